"""Serves the live map on 127.0.0.1 to the caller alone.

Other users of the machine do not know the random path, and pages of other sites cannot ask under a name of theirs (DNS
rebinding), as the Host header must be ours. Nothing is written, so there is nothing but GET.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from webhook.map.history import History
from webhook.map.page import content_policy, live_page

ADDRESS: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 32
CLIENT_SECONDS: Final = 10.0  # for a request, and for each write of its answer
MOST_DIGITS: Final = 12  # of the number of a frame

_JSON: Final = "application/json; charset=utf-8"
_HEADERS: Final = {
    "Content-Security-Policy": f"{content_policy(live=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class MapServer:
    """The server of one live map; `port` 0 takes a free one. Raises OSError where the port is taken."""

    def __init__(self, history: History, *, port: int = 0) -> None:
        self._token = secrets.token_urlsafe(24)
        self._server = _Server((ADDRESS, port), _handler(self._answer, self._is_ours))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="map", daemon=True
        )
        self._history = history

    @property
    def address(self) -> str:
        """The address to open, with the random path."""
        return f"http://{ADDRESS}:{self._server.server_port}/{self._token}/"

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _is_ours(self, host: str) -> bool:
        return host in (f"{name}:{self._server.server_port}" for name in (ADDRESS, "localhost"))

    def _answer(self, path: str) -> tuple[str, bytes, bool] | None:
        """Return content type, body, and whether it is compressed; None for what is not there."""
        empty, _, rest = path.partition("/")
        token, _, name = rest.partition("/")
        if empty or not hmac.compare_digest(token.encode(), self._token.encode()) or rest == token:
            return None
        match name.split("/"):
            case [""]:
                return "text/html; charset=utf-8", live_page().encode(), False
            case ["frames"]:
                listed = [{"id": one.id, "takenAt": one.taken_at} for one in self._history.frames()]
                return _JSON, json.dumps({"frames": listed, "problem": self._history.problem}).encode(), False
            case ["frames", number] if number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS:
                found = self._history.frame(int(number))
                return None if found is None else (_JSON, found.content, True)
        return None


class _Server(ThreadingHTTPServer):
    """One thread per connection, at most MOST_CONNECTIONS; one more is closed at once."""

    daemon_threads = True
    # Exclusive, so that nobody else can take a port that was just ours and get the browser's next question.
    allow_reuse_address = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own if there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that broke off is no fault, and the terminal is the caller's."""


def _handler(
    answer: Callable[[str], tuple[str, bytes, bool] | None], is_ours: Callable[[str], bool]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS
        server_version, sys_version = "topogate", ""

        def setup(self) -> None:
            super().setup()
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)

        def do_GET(self) -> None:
            if not is_ours(self.headers.get("Host", "")):
                self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", b"wrong Host\n")
                return
            found = answer(self.path)
            if found is None:
                self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not found\n")
            else:
                self._send(HTTPStatus.OK, found[0], found[1], compressed=found[2])

        def _send(self, status: HTTPStatus, content_type: str, body: bytes, *, compressed: bool = False) -> None:
            self.send_response(status)
            encoding = {"Content-Encoding": "gzip"} if compressed else {}
            length = {"Content-Type": content_type, "Content-Length": str(len(body))}
            for name, value in (_HEADERS | length | encoding).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: the address with its secret path would be in it."""

    return Handler
