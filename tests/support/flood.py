"""A crowd of connections to one port: each says one byte, late, and nothing more."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from collections import deque
from types import TracebackType

OPEN = 3000  # at a time: more than two replicas have places


class Flood:
    """Connects without end from a thread of its own, and speaks on the oldest while newcomers have them evicted."""

    def __init__(self, port: int) -> None:
        self.made = 0
        self._address = ("127.0.0.1", port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)

    def __enter__(self) -> Flood:
        hard = self._limit[1]
        wanted = OPEN + 1000
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, self._limit[0]), hard))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)

    def _run(self) -> None:
        held: deque[socket.socket] = deque()
        try:
            while not self._stop.is_set():
                held.append(self._connect())
                self.made += 1
                if len(held) >= OPEN:
                    # The server's oldest are the ones that it gives up next.
                    with contextlib.suppress(OSError):
                        held[len(held) // 2].send(b"\x16")
                    held.popleft().close()
        finally:
            for client in held:
                client.close()

    def _connect(self) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.connect(self._address)
        return client
