"""A plain HTTP/1.0 server for a few small pages that stays responsive under any number of silent clients.

One thread with a poller: no client has a thread of its own, and none is waited for. A client gets CLIENT_SECONDS for
everything. When no place is left, the client that has been silent longest is closed; clients that have sent their
request by then are answered first. So a kubelet's probe, which sends its request at once, is answered however many
others hold on or come back. werkzeug's own server calls itself unfit for production, the standard library's takes a
thread a client, and a second gunicorn would be a second process without our state.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from webhook.connections.listener import EVERYWHERE, open_port

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 128
MAX_HEAD: Final = 8192  # bytes of a request; a probe has 150
CLIENT_SECONDS: Final = 5.0  # for a whole request and its answer; a kubelet's probe gives up after 1 to 5
BACKLOG: Final = 1024

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([!-~]{1,32}) (/[!-~]*) HTTP/1\.[0-9]\r?\n")


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a path."""

    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]


class _Client:
    """A connection: `asked` grows until the head is complete, then `answer` shrinks until it is sent."""

    __slots__ = ("answer", "asked", "deadline", "lingers", "sock")

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.deadline = deadline
        self.asked = bytearray()
        self.answer: memoryview | None = None
        self.lingers = False  # more than a request came, or is coming: a close() would reset the answer away


class PlainServer:
    """Serves `pages` over HTTP; `port` is the actual port if 0 was requested.

    `fault` is called while an unexpected error is handled, to report it.
    """

    def __init__(self, pages: Pages, *, host: str = EVERYWHERE, port: int, fault: Callable[[], None]) -> None:
        self._listener = open_port(host, port, backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._pages = pages
        self._fault = fault
        self._clients: dict[_Client, None] = {}  # oldest first, which is also by deadline
        self._spare: int | None = None  # a file descriptor for the probe that comes when no other is left
        self._closing = False
        self._wake, self._waker = socket.socketpair()
        self._poller = selectors.DefaultSelector()
        self._poller.register(self._listener, selectors.EVENT_READ)
        self._poller.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="ops", daemon=True)
        self._reserve_descriptor()

    def start(self) -> None:
        """Start answering (the port is open since the construction)."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and close the port."""
        self._closing = True
        self._waker.send(b"x")
        if self._thread.is_alive():
            self._thread.join(timeout=CLIENT_SECONDS)
        for client in tuple(self._clients):
            self._drop(client)
        for one in (self._poller, self._listener, self._wake, self._waker):
            one.close()
        if self._spare is not None:
            os.close(self._spare)

    def _run(self) -> None:
        while not self._closing:
            try:
                self._turn()
            except Exception:
                self._fault()

    def _turn(self) -> None:
        oldest = next(iter(self._clients), None)
        for key, _ in self._poller.select(None if oldest is None else max(0.0, oldest.deadline - time.monotonic())):
            if isinstance(key.data, _Client):
                self._advance(key.data)
            elif key.fileobj is self._listener:
                self._accept()
        now = time.monotonic()
        for client in tuple(self._clients):
            # After all readable clients were served: close the oldest, so that there is a place for the next one.
            if client.deadline > now and len(self._clients) < MAX_CLIENTS:
                break
            self._drop(client)

    def _accept(self) -> None:
        # One per turn: accepted clients want an answer too, and without a file descriptor accept() fails only here.
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._free_descriptor()  # for one of the next turns
            return
        client = _Client(sock, time.monotonic() + CLIENT_SECONDS)
        self._poller.register(sock, selectors.EVENT_READ, client)
        self._clients[client] = None
        self._advance(client)  # a request that came with the connection is answered at once

    def _free_descriptor(self) -> None:
        """Release the spare file descriptor, else the oldest client's."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        elif self._clients:
            self._drop(next(iter(self._clients)))

    def _reserve_descriptor(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._poller.unregister(client.sock)
            client.sock.close()
            self._reserve_descriptor()

    def _advance(self, client: _Client) -> None:
        """Read or write once, as far as possible without waiting."""
        if client not in self._clients:
            return
        try:
            if client.answer is None:
                self._read(client)
            elif client.answer:
                self._write(client)
            elif not client.sock.recv(MAX_HEAD):
                self._drop(client)
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("a client of the plain port broke off: %s", error)
            self._drop(client)
        except Exception:
            self._drop(client)
            raise

    def _read(self, client: _Client) -> None:
        data = client.sock.recv(MAX_HEAD)
        if not data:
            self._drop(client)
            return
        client.asked += data
        end = _HEAD_END.search(client.asked)
        if end is None and len(client.asked) < MAX_HEAD:
            return
        client.lingers = end is None or end.end() < len(client.asked)
        client.answer = memoryview(self._answer(client, whole=end is not None))
        self._poller.modify(client.sock, selectors.EVENT_WRITE, client)
        self._write(client)

    def _write(self, client: _Client) -> None:
        assert client.answer is not None
        client.answer = client.answer[client.sock.send(client.answer) :]
        if client.answer:
            return
        if not client.lingers:
            self._drop(client)
            return
        client.sock.shutdown(socket.SHUT_WR)
        self._poller.modify(client.sock, selectors.EVENT_READ, client)

    def _answer(self, client: _Client, *, whole: bool) -> bytes:
        line = _REQUEST_LINE.match(client.asked)
        if not whole:
            return _response(_text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        if line is None:
            return _response(_text(HTTPStatus.BAD_REQUEST))
        method, target = line[1], line[2].decode("ascii").partition("?")[0]
        if method not in (b"GET", b"HEAD"):
            client.lingers = True  # a body may be on its way
            return _response(_text(HTTPStatus.METHOD_NOT_ALLOWED), extra="Allow: GET, HEAD\r\n")
        return _response(self._page(target), body=method == b"GET")

    def _page(self, path: str) -> Page:
        page = self._pages.get(path)
        if page is None:
            return _text(HTTPStatus.NOT_FOUND)
        try:
            return page()
        except Exception:
            log.exception("the page %s failed", path)
            return Page(500, "text/plain; charset=utf-8", b"internal error\n")


def _text(status: HTTPStatus) -> Page:
    return Page(status, "text/plain; charset=utf-8", f"{status.phrase.lower()}\n".encode())


def _response(page: Page, *, body: bool = True, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.0 {page.status} {HTTPStatus(page.status).phrase}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\n{extra}\r\n"
    )
    return head.encode("ascii") + (page.body if body else b"")
