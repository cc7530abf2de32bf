"""Errands that wait for a writer: a line for each namespace, and the lines take turns.

A namespace with thousands of errands keeps the writers as busy as before, but the errand of another one waits for one
writer to come free, not for thousands of writes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor


class ErrandLines:
    """Hands errands on to `pool`, no more than `writers` at a time. Safe to use from any thread."""

    def __init__(self, pool: Executor, *, writers: int) -> None:
        self._pool = pool
        self._free = writers
        self._lock = threading.Lock()
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()

    def submit(self, namespace: str, errand: Callable[[], None]) -> None:
        """Run an errand when it is its turn; it must not raise. Raises RuntimeError when the pool is shut down."""
        with self._lock:
            if self._free == 0:
                self._lines.setdefault(namespace, deque()).append(errand)
                return
            self._free -= 1
        self._hand_on(errand)

    def _hand_on(self, errand: Callable[[], None]) -> None:
        def run() -> None:
            try:
                errand()
            finally:
                self._came_free()

        try:
            self._pool.submit(run)
        except RuntimeError:
            with self._lock:
                self._free += 1
            raise

    def _came_free(self) -> None:
        with self._lock:
            if not self._lines:
                self._free += 1
                return
            namespace, line = self._lines.popitem(last=False)
            errand = line.popleft()
            if line:
                self._lines[namespace] = line  # behind the others
        self._hand_on(errand)
