"""A gunicorn worker that parks connections until a complete request has arrived.

The stock thread worker holds a thread from a client's first byte to the end of its request and has no bound on reads
over TLS: the idle connections that Go's HTTP client (the API server) dials ahead take every thread for good, and so can
anybody with a handful of sockets. Here the poller keeps silent connections, and those of clients that do not read their
answers; a pool thread only ever works on bytes that have arrived. A fault of a client or of the code ends that client's
connection and never the worker, which holds the caches, the Lease and everybody else's reviews. Depends on internals of
gunicorn 27.0.1 (pinned): ThreadWorker's run loop, poller and method queue, the request parser and the WSGI response;
tests/contract checks them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from gunicorn.workers.gthread import ThreadWorker

from webhook.connections.connection import LINGER_SECONDS, ClientNotAllowed, Connection, Progress
from webhook.connections.listener import accept_client, leave, listen
from webhook.connections.parked import ParkedConnections, Stage
from webhook.connections.thread_pool import ThreadPool
from webhook.server.exchange import Exchange
from webhook.server.fault_log import FaultLog
from webhook.server.handshake_log import HandshakeLog
from webhook.server.metrics import Ended

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 0.5  # between checks of the parked connections' time limits
OVERSLEPT_SECONDS: Final = 0.5  # a turn that comes later than this was prevented from running
SPARE_FILES: Final = 8  # freed when no descriptor is left: the application opens files too
STOP_LINGER: Final = 2.0  # how long a stopping worker keeps silent connections: a request may be on its way


def _is_unproven(event: tuple[selectors.SelectorKey, int]) -> bool:
    """Return True for an unproven connection; a poller turn handles proven ones first."""
    data = event[0].data
    return isinstance(data, Connection) and not data.proven


class ParkingWorker(ThreadWorker):  # type: ignore[misc]
    """The worker of the module docstring; `self.app` is a `webhook.server.wsgi.Server`."""

    alive: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: set[Connection] = set()  # all open ones: parked here, or worked on by the pool
        self.parked = ParkedConnections(places=self.worker_connections)
        self.context: Callable[[], ssl.SSLContext]
        self._metrics = self.app.service.metrics
        self._polled = time.monotonic()  # when the poller ran last
        self._arrived = self._polled  # when the bytes of that turn had arrived
        self._overslept = False
        self._next_sweep = 0.0
        self._handshake_log = HandshakeLog(self._metrics)
        self._faults = FaultLog(self._metrics, "webhook")
        self._drain: threading.Thread | None = None

    # Life: start, wait until ready, listen, drain, stop.

    def load_wsgi(self) -> None:
        """Build the application in this process and listen as soon as it is ready, not before."""
        # The arbiter kills at its own limit: end before that, so that `stop` still runs.
        self.cfg.set("graceful_timeout", max(1, self.cfg.graceful_timeout - 3))
        service = self.app.service
        self.exchange = Exchange(self.cfg, service.start(), on_error=self.handle_error)
        while not service.ready(0.5):
            self.notify()
            if not self.alive or not self.is_parent_alive():
                self.alive = False
                return
        self.context = service.context
        listener = listen(self.app.host, self.app.port)
        self.sockets = [listener]
        host, port = listener.getsockname()[:2]
        log.info("listening on https://%s:%d", f"[{host}]" if ":" in host else host, port)
        service.listening(port)

    def get_thread_pool(self) -> ThreadPool:
        """Return the threads that run `handle`."""
        return ThreadPool(self.app.service.turns)

    def init_process(self) -> None:
        """Run to the end; then, also after a fault, drain and stop the service."""
        try:
            super().init_process()
        finally:
            self._start_drain()
            assert self._drain is not None
            self._drain.join(timeout=2.0)
            self.app.service.stop()

    def is_parent_alive(self) -> bool:
        """Return False once the arbiter is gone; the worker then ends as on SIGTERM."""
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
        # First release what must not wait for the clients (the Lease), then accept clients that are already connected
        # and close: with SO_REUSEPORT the kernel sends all others to the other replica.
        self._start_drain()
        for listener in self.sockets:
            with contextlib.suppress(KeyError, ValueError):
                self.poller.unregister(listener)
            leave(listener, self._accept_one)
        self.sockets = []
        self._accepting = False

    def _cap_keepalive(self, deadline: float) -> None:
        for connection in self.parked:
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

    # The poller's side: accept, park, close.

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Run one turn: serve every connection that is ready. An error of one affects no other."""
        wait = min(timeout, SWEEP_SECONDS)
        events = self.poller.select(wait)
        now = time.monotonic()
        if now > self._polled + wait + OVERSLEPT_SECONDS:
            # This process was frozen, or starved: bytes have waited since the poller should have run. The events of
            # this turn may have been collected before, so that such bytes show in the next turn only.
            self._arrived, self._overslept = self._polled + wait, True
        elif self._overslept:
            self._overslept = False
        else:
            self._arrived = now
        self._polled = now
        for key, _ in sorted(events, key=_is_unproven):
            try:
                if isinstance(key.data, Connection):
                    self._on_ready(key.data)
                else:
                    key.data(key.fileobj)
            except Exception:
                self._fault(key.data if isinstance(key.data, Connection) else None)

    def accept(self, listener: socket.socket) -> None:
        """Accept one connection and park it: it uses no thread before it sends something."""
        self._accept_one(listener)

    def _accept_one(self, listener: socket.socket) -> bool:
        try:
            sock, client = accept_client(listener)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return any([self._end_idle() for _ in range(SPARE_FILES)])
            if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.ECONNABORTED):
                log.warning("accept failed: %s", error)
            return False
        try:
            connection = Connection(
                sock,
                client,
                listener.getsockname(),
                context=self.context,
                max_body=self.app.max_body,
                client_names=self.app.service.client_names,
            )
        except OSError:
            sock.close()
            return True
        self.connections.add(connection)
        self._count()
        self._park(connection, Stage.ARRIVING)
        return True

    def finish_request(self, conn: Connection, fs: Future[Progress]) -> None:
        """Take a connection back from the pool."""
        try:
            self._continue(conn, fs.result())
        except Exception:
            self._fault(conn)

    def _continue(self, connection: Connection, progress: Progress) -> None:
        match progress:
            case Progress.BYTES if connection.idle:
                connection.timeout = time.monotonic() + (self.cfg.keepalive if self.alive else STOP_LINGER)
                self._park(connection, Stage.IDLE)
            case Progress.BYTES:
                self._park(connection, Stage.ARRIVING)
            case Progress.ANSWER | Progress.LARGE:
                self.enqueue_req(connection)
            case Progress.READER:
                self._park(connection, Stage.SENDING)
            case Progress.LINGER:
                connection.timeout = time.monotonic() + LINGER_SECONDS
                self._park(connection, Stage.LEAVING)
            case Progress.CLOSE:
                self._drop(connection)

    def _park(self, connection: Connection, stage: Stage) -> None:
        self.parked.add(connection, stage)
        event = selectors.EVENT_WRITE if stage is Stage.SENDING else selectors.EVENT_READ
        try:
            self.poller.register(connection.sock, event, connection)
        except (OSError, KeyError, ValueError):
            self._drop(connection)

    def _on_ready(self, connection: Connection) -> None:
        if connection not in self.parked:
            return  # it was closed earlier in this turn
        stage = self.parked.stage(connection)
        if stage is Stage.LEAVING:
            if connection.discard() is Progress.CLOSE:
                self._drop(connection)
            return
        self.poller.unregister(connection.sock)
        self.parked.remove(connection)
        connection.arrived = self._arrived
        if stage is Stage.SENDING:
            self._continue(connection, self._send(connection))
        else:
            self.enqueue_req(connection)

    def _send(self, connection: Connection) -> Progress:
        try:
            return connection.send()
        except OSError as error:
            log.debug("connection from %s: %s", connection.client, error)
            return Progress.CLOSE

    def murder_pending(self) -> None:
        """Close connections that are too slow or too large, or to free places; runs between the poller's turns."""
        try:
            self._keep_bounds()
        except Exception:
            self._fault(None)

    def _keep_bounds(self) -> None:
        while self.parked.partial > self.app.max_partial:
            self._end(self.parked.first_to_forget(), Ended.MEMORY)
        # Below the limit at which the run loop stops accepting: silence must not keep others out.
        while len(self.connections) >= self.worker_connections and self._end_idle():
            pass
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            for connection in self.parked.overdue(now):
                self._end(connection, Ended.IDLE if self.parked.stage(connection) is Stage.IDLE else Ended.LATE)

    def murder_keepalived(self, force: bool = False) -> None:
        """Do nothing: our connections are never in gunicorn's queue, and the last of them end with the process."""

    def _end_idle(self) -> bool:
        connection = self.parked.first_to_go()
        if connection is None:
            return False
        self._end(connection, Ended.ROOM)
        return True

    def _end(self, connection: Connection, why: Ended) -> None:
        self._metrics.ended(why)
        self._drop(connection)

    def _fault(self, connection: Connection | None) -> None:
        """Report the exception being handled, and end the connection that caused it, if any."""
        self._faults.report()
        if connection is not None:
            self._end(connection, Ended.FAULT)

    def _drop(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        if self.parked.remove(connection):
            with contextlib.suppress(OSError, KeyError, ValueError):
                self.poller.unregister(connection.sock)
        connection.close()
        self.connections.discard(connection)
        self._count()

    def _count(self) -> None:
        self.nr_conns = len(self.connections)  # read by gunicorn's run loop
        self._metrics.connections.set(self.nr_conns)

    # The pool's side: bytes that have arrived become an answer.

    def handle(self, conn: Connection, *, busy: bool = False) -> Progress:
        """Continue a readable connection: handshake, read, answer at most one request (`busy`: refuse it)."""
        shaking = not conn.handshaken
        try:
            # A complete large request is now in the thread that answers large ones.
            progress = Progress.ANSWER if conn.large and conn.complete else conn.advance()
            if shaking and conn.handshaken:
                self._metrics.handshakes.inc()
            if progress is Progress.ANSWER and not shaking:  # else it is submitted again, to a thread for answers
                return Progress.CLOSE if conn.hung_up() else self._answer(conn, busy=busy)
            return progress
        except (ssl.SSLError, ClientNotAllowed) as error:
            if getattr(error, "reason", None) == "HTTP_REQUEST":
                conn.refuse_plain_http()
            if self._handshake_log.report(conn.client, error) is not None:
                conn.finish()
                return Progress.LINGER  # closing on unread bytes is a reset, which can overtake TLS' word of the reason
        except OSError as error:
            log.debug("connection from %s: %s", conn.client, error)
        return Progress.CLOSE

    def _answer(self, connection: Connection, *, busy: bool) -> Progress:
        request, framed = connection.take()
        sent = self.exchange.answer(connection, request, framed, busy=busy, last=not self.alive)
        connection.proven |= sent.reviewed
        if sent.reusable:
            return connection.answer(sent.data, after=Progress.BYTES)
        return connection.answer(sent.data, after=Progress.CLOSE if framed.whole else Progress.LINGER)
