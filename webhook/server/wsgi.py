"""The HTTPS server: embedded gunicorn with one worker process that holds caches, threads and connections.

The arbiter stays although there is one worker: it restarts a worker that dies and ends one that hangs. All threads
start in the worker, after the fork. Two replicas may share a port (SO_REUSEPORT); each listens from the moment it is
ready, because the worker makes the socket then, not gunicorn at its start.
"""

from __future__ import annotations

import os
import resource
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from webhook.admission.concurrency import ReviewSlots
from webhook.connections.listener import EVERYWHERE
from webhook.server.endpoint import MAX_BODY, Endpoint
from webhook.server.metrics import Metrics
from webhook.server.worker import ParkingWorker

KEEPALIVE_SECONDS: Final = (
    120  # longer than the 90 s after which Go gives up an idle connection, so that we never race it
)
GRACEFUL_SECONDS: Final = 10
HEARTBEAT_SECONDS: Final = 30  # the arbiter replaces a worker that was silent for this long
OVERSLEPT_SECONDS: Final = 5.0  # the arbiter checks every second; one that checks later than this was stopped itself
CONNECTIONS: Final = 1000  # parked and active; at the limit silent unproven ones are closed
MAX_PARTIAL: Final = 64 * 1024 * 1024  # bytes of unfinished requests and unread answers, all connections together


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The callbacks of the service that the server runs, all of them in the worker process.

    In order: `start` builds the endpoint (and may start threads); `ready(seconds)` waits at most so long and returns
    whether the port may open; `context` returns the TLS context of the current certificate and is called for each
    handshake; `listening(port)` reports the open port; `drain` runs beside the last requests as soon as the worker
    stops (release the Lease here); `stop` comes last. `drain` and `stop` also run when the worker ends by a fault or
    never was ready. With `client_names` only clients whose certificate has one of them may call; it is `context` that
    asks them for one. `turns` limits how many reviews compute at a time.
    """

    start: Callable[[], Endpoint]
    ready: Callable[[float], bool]
    context: Callable[[], ssl.SSLContext]
    client_names: frozenset[str] = frozenset()
    listening: Callable[[int], None] = lambda port: None
    drain: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    metrics: Metrics = field(default_factory=Metrics)
    turns: ReviewSlots = field(default_factory=ReviewSlots)


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn's application object: the settings and the `Service`."""

    def __init__(
        self,
        service: Service,
        *,
        host: str = EVERYWHERE,
        port: int,
        max_body: int = MAX_BODY,
        max_partial: int = MAX_PARTIAL,
        graceful: int = GRACEFUL_SECONDS,
        heartbeat: int = HEARTBEAT_SECONDS,
    ) -> None:
        self.service = service
        self.host = host
        self.port = port
        self.max_body = max_body
        self.max_partial = max_partial
        self.graceful = graceful
        self.heartbeat = heartbeat
        super().__init__()

    def load_config(self) -> None:
        """Set every setting that matters; nothing is read from files, arguments or GUNICORN_CMD_ARGS."""
        settings = {
            "bind": [],  # the worker opens the port itself, when it is ready
            "workers": 1,  # two workers would be two caches
            "worker_class": ParkingWorker,
            "threads": self.service.turns.count,
            "worker_connections": _connections(),
            "keepalive": KEEPALIVE_SECONDS,
            "timeout": self.heartbeat,
            "graceful_timeout": self.graceful,
            "max_requests": 0,  # a worker with a synced cache is never recycled
            "preload_app": False,
            "http_parser": "python",
            "control_socket_disable": True,
            "worker_tmp_dir": "/dev/shm" if os.path.isdir("/dev/shm") else None,  # noqa: S108 - heartbeat file, unlinked at once
            "forwarded_allow_ips": "",
            "logger_class": _PlainLogger,
            "proc_name": "topogate",
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Not used: the worker builds the application through `service.start`."""
        raise NotImplementedError

    def run(self) -> None:
        """Fork the worker and supervise it."""
        PatientArbiter(self).run()


def serve(server: Server) -> None:
    """Run until SIGTERM (drain, finish requests in flight, stop) or SIGINT. Always leaves by SystemExit.

    Exit status 0 after a signal, 3 if the worker could not start. Runs in two processes: a `finally` after the call
    runs in the arbiter and in the worker.
    """
    server.run()


class PatientArbiter(Arbiter):  # type: ignore[misc]
    """Does not kill a worker that was stopped along with it: a frozen container or machine thaws with its caches."""

    def __init__(self, app: Server) -> None:
        super().__init__(app)
        self._polled = time.monotonic()  # it may be stopped before its first check
        self._patient_until = 0.0

    def murder_workers(self) -> None:
        """Kill a worker that sent no heartbeat in time."""
        now = time.monotonic()
        if now - self._polled > OVERSLEPT_SECONDS:
            self._patient_until = now + self.timeout
        self._polled = now
        if now >= self._patient_until:
            super().murder_workers()


class _PlainLogger(Logger):  # type: ignore[misc]
    """Sends gunicorn's log lines to the same place as all others, in one format."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log.propagate = True


def _connections() -> int:
    """Return CONNECTIONS, or less if the limit of open files leaves no more beside the service's own."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(64, min(CONNECTIONS, soft - 200))
