"""The plain-HTTP port: liveness, readiness, metrics.

The standard library's threading server, because these three paths must answer while every thread of the TLS server is
busy, need no framework, and a probe a second is no load. werkzeug's own server calls itself unfit for production; a
second gunicorn would be a second process without our state. Bounded: few threads, a time limit on every read.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 16
CLIENT_SECONDS: Final = 5.0  # for a whole request and its answer; a kubelet's probe gives up after 1


@dataclass(frozen=True, slots=True)
class Check:
    """One condition of readiness; `detail` says in a few words what is there or missing."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a path answers."""

    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]


def pages(*, ready: Callable[[], Sequence[Check]], metrics: Callable[[], tuple[str, bytes]]) -> Pages:
    """Return the three paths; `metrics` gives content type and text."""

    def healthz() -> Page:
        return Page(200, "text/plain; charset=utf-8", b"ok\n")

    def readyz() -> Page:
        checks = ready()
        lines = "".join(f"[{'+' if c.ok else '-'}] {c.name}{f': {c.detail}' if c.detail else ''}\n" for c in checks)
        return Page(200 if all(c.ok for c in checks) else 503, "text/plain; charset=utf-8", lines.encode())

    def exposition() -> Page:
        content_type, body = metrics()
        return Page(200, content_type, body)

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": exposition}


class OpsServer:
    """Serves `pages` on a port of its own from daemon threads; `port` is the real one when 0 was asked for."""

    def __init__(self, pages: Pages, *, host: str = "0.0.0.0", port: int) -> None:
        self._server = _BoundedServer((host, port), pages)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="ops", daemon=True)

    def start(self) -> None:
        """Answer from now on (the port is open since the construction)."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and close the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=CLIENT_SECONDS)
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], pages: Pages) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.pages = pages
        self._places = threading.BoundedSemaphore(MAX_CLIENTS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Full: close at once instead of queueing behind clients that may be silent on purpose.
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handler's own time limit is per read: this one ends a client that sends a byte now and then.
        end = threading.Timer(CLIENT_SECONDS, _abort, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("ops client %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # one request a connection: nothing to keep, nothing to time out
    server_version = "topogate"
    sys_version = ""
    timeout = CLIENT_SECONDS
    server: _BoundedServer

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def __getattr__(self, name: str) -> Any:
        # http.server looks for do_<METHOD> and answers 501 without it; the path is known, the method is not: 405.
        if name.startswith("do_"):
            return self._refuse_method
        raise AttributeError(name)

    def _answer(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._send(Page(404, "text/plain; charset=utf-8", b"not found\n"))
            return
        try:
            self._send(page())
        except OSError:
            raise
        except Exception:
            log.exception("the page %s failed", self.path.partition("?")[0])
            self._send(Page(500, "text/plain; charset=utf-8", b"internal error\n"))

    def _refuse_method(self) -> None:
        self._send(Page(405, "text/plain; charset=utf-8", b"method not allowed\n"), allow="GET, HEAD")

    def _send(self, page: Page, *, allow: str = "") -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        if allow:
            self.send_header("Allow", allow)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every second: no log lines."""


def _abort(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
