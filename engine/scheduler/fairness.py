"""Fairness between namespaces: the share of a turn that each may use, and one line of pending writes for each.

A namespace with thousands of errands keeps the writers as busy as before, but the errand of another one waits for one
writer to come free, not for thousands of writes.

What a namespace has left over is done in the turns that follow; the others do not wait for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final


class WriteLines:
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


# Seconds of a turn that all namespaces have together for one sort of work, and the least that each has however many
# they are. A look at a small gang takes some 0.1 ms, a plan 0.1 to 2 ms.
WHOLE: Final = 0.1
LEAST: Final = 0.01


class Shares:
    """The shares of one turn; a namespace may begin something while it has not used its share up."""

    def __init__(self, namespaces: Collection[str], clock: Callable[[], float]) -> None:
        self._share = max(LEAST, WHOLE / max(1, len(namespaces)))
        self._clock = clock
        self._used: defaultdict[str, float] = defaultdict(float)

    def left(self, namespace: str, *, of: float = 1.0) -> bool:
        """True while a namespace has used less than its share, or than that part of it."""
        return self._used[namespace] < self._share * of

    @contextmanager
    def used_by(self, namespace: str) -> Iterator[None]:
        """Count the time that something takes."""
        began = self._clock()
        try:
            yield
        finally:
            self._used[namespace] += self._clock() - began
