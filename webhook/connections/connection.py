"""A TLS connection that never blocks: handshake and reads use only bytes that have arrived, writes what is taken."""

from __future__ import annotations

import contextlib
import enum
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from webhook.connections.framing import Frame, frame

ARRIVAL_SECONDS: Final = 3.0  # from connect to the end of the handshake, and from a request's first byte to its last
WRITE_SECONDS: Final = 2.0  # to read the whole answer; answers are small and fit into the socket's buffer
LINGER_SECONDS: Final = 1.0  # how long a refused body may still arrive, so that the refusal is read and not reset away

# Bytes of a request above which its cost depends on its size: a Job or a pod has 3 to 20 KiB, at an UPDATE twice that.
LARGE: Final = 32 * 1024
_READ: Final = 65_536
_MOST_NAMES: Final = 300  # characters of the names in a refused certificate
_PLAIN: Final = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 28\r\n\r\nthis port speaks HTTPS only\n"
)


class Progress(enum.Enum):
    """The next thing that a connection needs."""

    BYTES = enum.auto()  # wait until it is readable
    ANSWER = enum.auto()  # a request is here
    LARGE = enum.auto()  # a large request is here or on its way: other threads continue with it
    CLOSE = enum.auto()  # finished or broken
    READER = enum.auto()  # wait until it is writable: the client has not read all of its answer
    LINGER = enum.auto()  # answered; read and discard the rest of the request, then close


class ClientNotAllowed(OSError):
    """The client's certificate is of the right CA and has none of the names that may call."""


class Connection:
    """A client's connection; owned by the poller while parked and by one pool thread while worked on.

    `context` is called for each handshake, so that a new certificate is a new context and never a change of one in use.
    A client must have one of `client_names` in its certificate, if there are any.
    `timeout` (monotonic) is when the poller closes it. `arrived` is when the bytes that are read next came, as far as
    the poller knows, `received` when the first byte of the current request did. `outgoing` is the answer that is
    being sent. `proven` is True once a review on it was answered.
    """

    __slots__ = (
        "_after",
        "_sent",
        "address",
        "arrived",
        "buffer",
        "client",
        "client_names",
        "context",
        "frame",
        "handshaken",
        "max_body",
        "outgoing",
        "proven",
        "received",
        "server",
        "sock",
        "timeout",
    )

    def __init__(
        self,
        sock: socket.socket,
        client: Any,
        server: Any,
        *,
        context: Callable[[], ssl.SSLContext],
        max_body: int,
        client_names: Collection[str] = (),
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.client = client
        self.address = str(client[0])
        self.proven = False
        self.server = server
        self.context = context
        self.client_names = client_names
        self.max_body = max_body
        self.buffer = bytearray()
        self.outgoing = b""
        self.frame: Frame | None = None
        self.handshaken = False
        self._after = Progress.BYTES
        self._sent = 0
        self.arrived = time.monotonic()
        self._begin()

    @property
    def idle(self) -> bool:
        """Return True between requests: after the handshake, with no byte of the next request."""
        return self.handshaken and not self.buffer

    @property
    def held(self) -> int:
        """Return the bytes in memory: of a request that is not complete, or of an answer that is not read."""
        return len(self.buffer) + len(self.outgoing)

    @property
    def ahead(self) -> bool:
        """Return True if there are buffered bytes that will not make the socket readable again."""
        return bool(self.buffer) or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0)

    @property
    def large(self) -> bool:
        """Return True from the moment the head of a large request is read until the request is taken."""
        return self.frame is not None and self.frame.size > LARGE

    @property
    def complete(self) -> bool:
        """Return True if all bytes that an answer needs have arrived."""
        return self.frame is not None and len(self.buffer) >= self.frame.size

    def advance(self) -> Progress:
        """Continue the handshake and read as far as possible without waiting.

        Reading stops when the request turns out to be large; the next call reads it. Raises OSError (ssl.SSLError is
        one) if the peer disconnects, does not speak TLS or may not call.
        """
        try:
            self._shake_hands()
            known = self.large
            while True:
                if self.frame is None and self.buffer:
                    self.frame = frame(self.buffer, max_body=self.max_body)
                if self.large and (self.complete or not known):
                    return Progress.LARGE
                if self.complete:
                    return Progress.ANSWER
                data = self.sock.recv(_READ)
                if not data:
                    return Progress.CLOSE
                if not self.buffer:
                    self._begin()
                self.buffer += data
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return Progress.BYTES

    def take(self) -> tuple[bytes, Frame]:
        """Return and remove the request that `advance` read; bytes of the next one stay."""
        found = self.frame
        assert found is not None
        with memoryview(self.buffer) as buffer:
            request = bytes(buffer[: found.size])
        del self.buffer[: found.size]
        self.frame = None
        if self.buffer:
            self._begin()
        return request, found

    def hung_up(self) -> bool:
        """Return True if the client has closed its side, so that an answer has no reader. Earlier bytes are kept.

        Of a client that sent more than the request it is not asked: reading on would keep all that it sends ahead.
        """
        if self.frame is not None and len(self.buffer) > self.frame.size:
            return False
        try:
            data = self.sock.recv(_READ)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return False
        self.buffer += data
        return not data

    def answer(self, data: bytes, *, after: Progress) -> Progress:
        """Begin to send an answer, which the client has to read within WRITE_SECONDS.

        `after` it is sent: BYTES to use the connection again, CLOSE, or LINGER if a rest of the request may come.
        Returns what `send` does.
        """
        self.outgoing, self._sent, self._after = data, 0, after
        self.timeout = time.monotonic() + WRITE_SECONDS
        return self.send()

    def send(self) -> Progress:
        """Send as much of the answer as the client takes without waiting. Raises OSError."""
        try:
            with memoryview(self.outgoing) as outgoing:
                while self._sent < len(outgoing):
                    self._sent += self.sock.send(outgoing[self._sent :])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return Progress.READER
        self.outgoing = b""
        self.timeout = self.received + ARRIVAL_SECONDS  # of the next request, if it has begun
        if self._after is Progress.BYTES:
            return Progress.ANSWER if self.ahead else Progress.BYTES
        self.finish()
        # The unread rest of a request would turn close() into a reset that can overtake the answer.
        return Progress.LINGER if self.ahead else self._after

    def refuse_plain_http(self) -> None:
        """Answer a plain-HTTP request to the TLS port with an unencrypted HTTP error."""
        with contextlib.suppress(OSError):
            socket.socket.send(self.sock, _PLAIN)

    def finish(self) -> None:
        """Send TLS close_notify and FIN, without waiting for the peer's."""
        with contextlib.suppress(OSError, ValueError):
            if self.handshaken and isinstance(self.sock, ssl.SSLSocket):
                self.sock.unwrap()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def discard(self) -> Progress:
        """Read and discard bytes that still arrive after `finish`, whatever they mean in TLS."""
        try:
            return Progress.LINGER if socket.socket.recv(self.sock, _READ) else Progress.CLOSE
        except BlockingIOError:
            return Progress.LINGER
        except OSError:
            return Progress.CLOSE

    def close(self) -> None:
        """Close without lingering."""
        with contextlib.suppress(OSError):
            self.sock.close()

    def _begin(self) -> None:
        self.received = self.arrived
        self.timeout = self.received + ARRIVAL_SECONDS

    def _shake_hands(self) -> None:
        if self.handshaken:
            return
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock = self.context().wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        self.sock.do_handshake()
        if self.client_names and (found := _names(self.sock)).isdisjoint(self.client_names):
            raise ClientNotAllowed(f"its certificate is for {', '.join(sorted(found)) or 'nobody'}"[:_MOST_NAMES])
        self.handshaken = True


def _names(sock: ssl.SSLSocket) -> set[str]:
    """Return the common name and the DNS names of the client's certificate."""
    certificate: Mapping[str, Any] = sock.getpeercert() or {}
    found = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return found | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
