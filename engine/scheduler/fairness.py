"""Fairness between namespaces: each has a share of a pass's time, and its own queue of pending writes.

A namespace with thousands of writes keeps the writers as busy as before, but a write of another one waits for one
writer to become free, not for thousands of writes. Work beyond a namespace's share is done in later turns; other
namespaces do not wait for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final


class WriteLines:
    """Passes writes of all namespaces in turn to `pool`, at most `writers` at a time. Thread-safe."""

    def __init__(self, pool: Executor, *, writers: int) -> None:
        self._pool = pool
        self._free = writers
        self._lock = threading.Lock()
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()

    def submit(self, namespace: str, write: Callable[[], None]) -> None:
        """Run a write when it is its turn; it must not raise. Raises RuntimeError if the pool is shut down."""
        with self._lock:
            if self._free == 0:
                self._lines.setdefault(namespace, deque()).append(write)
                return
            self._free -= 1
        self._start(write)

    def _start(self, write: Callable[[], None]) -> None:
        def run() -> None:
            try:
                write()
            finally:
                self._writer_freed()

        try:
            self._pool.submit(run)
        except RuntimeError:
            with self._lock:
                self._free += 1
            raise

    def _writer_freed(self) -> None:
        with self._lock:
            if not self._lines:
                self._free += 1
                return
            namespace, line = self._lines.popitem(last=False)
            write = line.popleft()
            if line:
                self._lines[namespace] = line  # at the end of the round
        self._start(write)


# Seconds of a turn that all namespaces together have for one sort of work, and the minimum for each, however many there
# are. Reconciling a small gang takes some 0.1 ms, a plan 0.1 to 2 ms.
WHOLE: Final = 0.1
LEAST: Final = 0.01


class Shares:
    """The shares of one pass; a namespace may start more work until it has used up its share."""

    def __init__(self, namespaces: Collection[str], clock: Callable[[], float]) -> None:
        self._share = max(LEAST, WHOLE / max(1, len(namespaces)))
        self._clock = clock
        self._used: defaultdict[str, float] = defaultdict(float)

    def left(self, namespace: str, *, of: float = 1.0) -> bool:
        """Return True while a namespace has used less than its share, or than this part of it."""
        return self._used[namespace] < self._share * of

    @contextmanager
    def used_by(self, namespace: str) -> Iterator[None]:
        """Charge the namespace for the time inside."""
        began = self._clock()
        try:
            yield
        finally:
            self._used[namespace] += self._clock() - began
