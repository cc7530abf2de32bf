"""A gunicorn worker that parks connections until a whole request is here.

The stock thread worker holds a thread from a client's first byte to the end of its request and has no bound on reads
over TLS: the idle connections that Go's HTTP client (the API server) dials ahead take every thread for good, and so can
anybody with a handful of sockets. Here the poller keeps whoever has nothing to say; a pool thread only ever works on
bytes that have arrived. Leans on internals of gunicorn 27.0.1 (pinned): ThreadWorker's run loop, poller, method queue
and keep-alive queue, the request parser and the WSGI response; held by tests/contract.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from gunicorn.http import RequestParser, wsgi
from gunicorn.util import write_error
from gunicorn.workers.gthread import ThreadWorker

from webhook.app import RECEIVED
from webhook.connection import LINGER_SECONDS, Connection, Progress
from webhook.listener import leave, listen

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.5  # between looks at the parked connections' time limits
MAX_PARTIAL: Final = 64 * 1024 * 1024  # bytes of unfinished requests in memory, all connections together
SPARE_FILES: Final = 8  # freed when none is left: the application opens files too
STOP_LINGER: Final = 2.0  # a stopping worker keeps silent connections so long: a request may be on its way
COMPLAINT_SECONDS: Final = 30.0  # between log lines about clients that distrust the certificate


class _Outbox:
    """What gunicorn's response writes to; sent at once afterwards, so that no slow reader holds up the application."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.parts.append(bytes(data))

    send = sendall

    def gettimeout(self) -> float:
        """0.0, non-blocking: gunicorn's error page asks."""
        return 0.0


class ParkingWorker(ThreadWorker):  # type: ignore[misc]
    """See the module; `self.app` is a `webhook.server.Server`."""

    alive: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unfinished: dict[Connection, None] = {}  # in the handshake or in the middle of a request; oldest first
        self.lingering: dict[Connection, None] = {}
        self.context: Callable[[], ssl.SSLContext]
        self._next_sweep = 0.0
        self._next_complaint = 0.0
        self._drain: threading.Thread | None = None

    # Life: start, wait until ready, listen, drain, stop.

    def load_wsgi(self) -> None:
        """Build the application in this process and listen as soon as it is ready, not before."""
        # The arbiter kills at its own limit: end before that, so that `stop` still runs.
        self.cfg.set("graceful_timeout", max(1, self.cfg.graceful_timeout - 3))
        service = self.app.service
        self.wsgi = service.start()
        while not service.ready(0.5):
            self.notify()
            if not self.alive or not self.is_parent_alive():
                self.alive = False
                return
        self.context = service.context
        listener = listen(self.app.host, self.app.port)
        self.sockets = [listener]
        address = listener.getsockname()
        log.info("listening on https://%s:%d", address[0], address[1])
        service.listening(address[1])

    def init_process(self) -> None:
        """Run to the end; whatever ends it, the service is drained and stopped."""
        try:
            super().init_process()
        finally:
            self._start_drain()
            assert self._drain is not None
            self._drain.join(timeout=2.0)
            self.app.service.stop()

    def is_parent_alive(self) -> bool:
        """False once the arbiter is gone; the worker then ends like on SIGTERM."""
        if self.ppid == os.getppid():
            return True
        log.warning("the parent process is gone: stopping")
        self.alive = False
        return False

    def set_accept_enabled(self, enabled: bool) -> None:
        """Start, pause or (when stopping) end accepting."""
        if self.alive:
            super().set_accept_enabled(enabled)
            return
        # First let go of what must not wait for the clients (the Lease), then take over whoever is connected already
        # and close: with SO_REUSEPORT the kernel sends everybody else to the other replica.
        self._start_drain()
        for listener in self.sockets:
            with contextlib.suppress(KeyError, ValueError):
                self.poller.unregister(listener)
            leave(listener, self._accept_one)
        self.sockets = []
        self._accepting = False

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(deadline)
        for connection in self.unfinished:
            connection.timeout = min(connection.timeout, deadline)

    def _start_drain(self) -> None:
        if self._drain is None:
            self._drain = threading.Thread(target=self._run_drain, name="drain", daemon=True)
            self._drain.start()

    def _run_drain(self) -> None:
        try:
            self.app.service.drain()
        except Exception:
            log.exception("draining failed")

    # The poller's side: accept, park, give up.

    def accept(self, listener: socket.socket) -> None:
        """Take one connection and park it: it costs no thread before it says something."""
        self._accept_one(listener)

    def _accept_one(self, listener: socket.socket) -> bool:
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                for _ in range(SPARE_FILES):
                    self._evict()
            elif error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED):
                log.warning("accept failed: %s", error)
            return False
        self.nr_conns += 1
        try:
            connection = Connection(
                sock, client, listener.getsockname(), context=self.context, max_body=self.app.max_body
            )
        except OSError:
            sock.close()
            self.nr_conns -= 1
            return True
        self._park(connection)
        # Below the limit at which the run loop stops accepting: silence must not keep others out.
        if self.nr_conns >= self.worker_connections:
            self._evict()
        return True

    def finish_request(self, conn: Connection, fs: Future[Progress]) -> None:
        """Take a connection back from the pool."""
        try:
            progress = fs.result()
        except Exception:
            log.exception("a connection broke the server's own code")
            progress = Progress.CLOSE
        match progress:
            case Progress.BYTES:
                self._park(conn)
            case Progress.ANSWER:
                self.enqueue_req(conn)
            case Progress.LINGER:
                conn.timeout = time.monotonic() + LINGER_SECONDS
                self._register(conn, self.lingering, self._on_lingering)
            case Progress.CLOSE:
                self._drop(conn)

    def _park(self, connection: Connection) -> None:
        if not connection.idle:
            self._register(connection, self.unfinished, self._on_unfinished)
            self._bound_memory()
            return
        connection.timeout = time.monotonic() + (self.cfg.keepalive if self.alive else STOP_LINGER)
        self.keepalived_conns.append(connection)
        self._watch(connection, partial(self.on_client_socket_readable, connection))

    def _register(self, connection: Connection, group: dict[Connection, None], action: Callable[..., None]) -> None:
        group[connection] = None
        self._watch(connection, partial(action, connection))

    def _watch(self, connection: Connection, action: Callable[[Any], None]) -> None:
        try:
            self.poller.register(connection.sock, 1, action)
        except (OSError, KeyError, ValueError):
            self._drop(connection)

    def _on_unfinished(self, connection: Connection, _: Any) -> None:
        self.poller.unregister(connection.sock)
        del self.unfinished[connection]
        self.enqueue_req(connection)

    def _on_lingering(self, connection: Connection, _: Any) -> None:
        if connection.discard() is Progress.CLOSE:
            self._drop(connection)

    def murder_pending(self) -> None:
        """Give up connections whose handshake, request or last bytes take too long."""
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        for group in (self.unfinished, self.lingering):
            for connection in [c for c in group if c.timeout <= now]:
                self._drop(connection)

    def _evict(self) -> None:
        """Make room: first who is leaving, else the oldest of the larger crowd: a lone newcomer is never the one."""
        crowd = self.lingering or max(self.unfinished, self.keepalived_conns, key=len)
        for connection in crowd:
            self._drop(connection)
            return

    def _bound_memory(self) -> None:
        while sum(len(connection.buffer) for connection in self.unfinished) > MAX_PARTIAL:
            self._drop(next(connection for connection in self.unfinished if connection.buffer))

    def _drop(self, connection: Connection) -> None:
        with contextlib.suppress(OSError, KeyError, ValueError):
            self.poller.unregister(connection.sock)
        self.unfinished.pop(connection, None)
        self.lingering.pop(connection, None)
        with contextlib.suppress(ValueError):
            self.keepalived_conns.remove(connection)
        connection.close()
        self.nr_conns -= 1

    # The pool's side: bytes that have arrived become an answer.

    def handle(self, conn: Connection) -> Progress:
        """Go on with a readable connection: handshake, read, answer at most one request."""
        try:
            progress = conn.advance()
            return self._answer(conn) if progress is Progress.ANSWER else progress
        except ssl.SSLError as error:
            self._explain(conn, error)
        except OSError as error:
            log.debug("connection from %s: %s", conn.client, error)
        return Progress.CLOSE

    def _answer(self, connection: Connection) -> Progress:
        request, framed = connection.take()
        outbox = _Outbox()
        reusable = False
        if framed.refusal:
            write_error(outbox, *framed.refusal, "")
        else:
            reusable = self._respond(connection, request, outbox, last=not framed.whole)
        connection.send(b"".join(outbox.parts))
        if not reusable:
            connection.finish()
            # The unread rest of a request would turn close() into a reset that can overtake the answer.
            return Progress.CLOSE if framed.whole and not connection.ahead else Progress.LINGER
        return Progress.ANSWER if connection.ahead else Progress.BYTES

    def _respond(self, connection: Connection, request: bytes, outbox: _Outbox, *, last: bool) -> bool:
        """Run the application on `request`; True when the connection can be used again."""
        message = None
        try:
            message = next(RequestParser(self.cfg, iter([request]), connection.client))
            response, environ = wsgi.create(message, outbox, connection.client, connection.server, self.cfg)
            environ["wsgi.multithread"] = True
            environ[RECEIVED] = connection.received
            if last or not self.alive:
                response.force_close()
            chunks: Iterable[bytes] = self.wsgi(environ, response.start_response)
            try:
                for chunk in chunks:
                    response.write(chunk)
                response.close()
            finally:
                if hasattr(chunks, "close"):
                    chunks.close()
            return not response.should_close()
        except Exception as error:  # a request that the parser refuses, or a fault outside the application's own guard
            outbox.parts.clear()
            self.handle_error(message, outbox, connection.client, error)
            return False

    def _explain(self, connection: Connection, error: ssl.SSLError) -> None:
        if error.reason == "HTTP_REQUEST":
            connection.refuse_plain_http()
        distrusted = "UNKNOWN_CA" in (error.reason or "") or "CERTIFICATE" in (error.reason or "")
        now = time.monotonic()
        if distrusted and now >= self._next_complaint:
            self._next_complaint = now + COMPLAINT_SECONDS
            log.warning("%s does not trust our certificate (%s): is caBundle current?", connection.client, error.reason)
        else:
            log.debug("TLS with %s: %s", connection.client, error)
