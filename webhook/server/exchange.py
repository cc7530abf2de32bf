"""Turns the bytes of a request into the bytes of its answer, directly or through gunicorn's parser and WSGI.

A review in the API server's own form is answered directly: its head was recognized while its bytes were counted, so
that nothing is left to parse. All other requests go the general way. Both call the same endpoint, and for a request
that both can read they make the same answer, byte for byte.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from gunicorn import SERVER
from gunicorn.http import RequestParser, wsgi
from gunicorn.util import http_date, write_error
from werkzeug.http import HTTP_STATUS_CODES

from webhook.connections.connection import Connection
from webhook.connections.framing import Frame
from webhook.connections.review_head import ReviewHead
from webhook.server.app import BUSY, RECEIVED, create_app
from webhook.server.endpoint import Answer, Endpoint

# Called with the request (None: unreadable), the outbox, the client's address and the exception; writes the answer.
ErrorHandler = Callable[[Any, "Outbox", Any, Exception], None]

_ENDS: Final = b"\r\n\r\n"


class Outbox:
    """Collects gunicorn's response, which is sent afterwards, so that no slow reader blocks the application."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        """Keep bytes of the response."""
        self.parts.append(bytes(data))

    send = sendall

    def gettimeout(self) -> float:
        """Return 0.0 (non-blocking); gunicorn's error page calls this."""
        return 0.0


class Sent(NamedTuple):
    """The bytes of an answer. `reusable`: the connection can be used again; `reviewed`: a review was answered."""

    data: bytes
    reusable: bool
    reviewed: bool


class Exchange:
    """The two ways from a request to its answer; thread-safe. `cfg` are gunicorn's settings."""

    def __init__(self, cfg: Any, endpoint: Endpoint, *, on_error: ErrorHandler) -> None:
        self._app = create_app(endpoint)
        self._cfg = cfg
        self._endpoint = endpoint
        self._on_error = on_error
        self._date = (0, b"")

    def answer(self, connection: Connection, request: bytes, framed: Frame, *, busy: bool, last: bool) -> Sent:
        """Answer a request. `busy`: refuse it for now; `last`: the connection is closed afterwards."""
        if framed.review is not None:
            return self.directly(connection, request, framed.review, busy=busy, last=last)
        if framed.refusal is not None:
            outbox = Outbox()
            write_error(outbox, *framed.refusal, "")
            return Sent(b"".join(outbox.parts), reusable=False, reviewed=False)
        return self.through_wsgi(connection, request, whole=framed.whole, busy=busy, last=last)

    def directly(self, connection: Connection, request: bytes, head: ReviewHead, *, busy: bool, last: bool) -> Sent:
        """Answer a review in the API server's own form."""
        answer = self._endpoint.answer(
            head.path,
            lambda: request[head.size :],
            received=connection.received,
            timeout=head.timeout,
            busy=busy,
        )
        return Sent(self._encoded(answer, last=last), not last, answer.status == HTTPStatus.OK)

    def through_wsgi(self, connection: Connection, request: bytes, *, whole: bool, busy: bool, last: bool) -> Sent:
        """Answer any request. `whole` is False if its body is not here and never read."""
        outbox = Outbox()
        message = None
        head, body = _split(request) if whole else (request, None)
        try:
            message = next(RequestParser(self._cfg, iter([head]), connection.client))
            response, environ = wsgi.create(message, outbox, connection.client, connection.server, self._cfg)
            if body is not None:
                environ["wsgi.input"] = io.BytesIO(body)
            environ["wsgi.multithread"] = True
            environ[RECEIVED] = connection.received
            environ[BUSY] = busy
            if last or not whole:
                response.force_close()
            chunks: Iterable[bytes] = self._app(environ, response.start_response)
            try:
                for chunk in chunks:
                    response.write(chunk)
                response.close()
            finally:
                if hasattr(chunks, "close"):
                    chunks.close()
            return Sent(b"".join(outbox.parts), not response.should_close(), response.status_code == HTTPStatus.OK)
        except Exception as error:  # a request that the parser refuses, or a fault outside the application's own guard
            outbox.parts.clear()
            self._on_error(message, outbox, connection.client, error)
            return Sent(b"".join(outbox.parts), False, False)

    def _encoded(self, answer: Answer, *, last: bool) -> bytes:
        retry = "Retry-After: 1\r\n" if answer.retry else ""
        head = (
            f"Connection: {'close' if last else 'keep-alive'}\r\n"
            f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n{retry}\r\n"
        )
        return b"".join((_FIRST_LINES[answer.status], self._date_line(), head.encode("ascii"), answer.body))

    def _date_line(self) -> bytes:
        """Return the header Date, made once a second."""
        now = int(time.time())
        second, line = self._date
        if second != now:
            line = f"Date: {http_date(now)}\r\n".encode("ascii")
            self._date = (now, line)
        return line


# As werkzeug and gunicorn write them.
_FIRST_LINES: Final = {
    status: f"HTTP/1.1 {status} {phrase.upper()}\r\nServer: {SERVER}\r\n".encode("ascii")
    for status, phrase in HTTP_STATUS_CODES.items()
}


def _split(request: bytes) -> tuple[bytes, bytes]:
    """Return the head and the complete body; the parser would copy the body several times (26 ms for 6 MiB)."""
    head, end, body = request.partition(_ENDS)
    return head + end, body
