"""The CPU time for forecasts: a share for each namespace, so that one tenant's do not slow down others.

A forecast is optional. It holds the lock of the cluster state, which the leader's turns and other reviews need too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.1  # seconds of computing per second that a namespace regains
MOST: Final = 2.0  # seconds: what a namespace may use at once after a long rest
REMEMBERED: Final = 1_024  # namespaces with a balance; beyond that the longest silent one starts afresh


class ForecastBudget:
    """The balance of each namespace; `clock` returns the time, `cpu` the processor time of the calling thread."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds left, and when
        self._lock = threading.Lock()

    def left(self, namespace: str) -> float:
        """Return the seconds of computing that the namespace may still use; negative after an expensive forecast."""
        with self._lock:
            seconds, when = self._left.get(namespace, (MOST, 0.0))
        return min(MOST, seconds + SHARE * (self._clock() - when))

    @contextmanager
    def used(self, namespace: str) -> Iterator[None]:
        """Charge the namespace for the computing inside."""
        begin = self._cpu()
        try:
            yield
        finally:
            left = self.left(namespace) - (self._cpu() - begin)
            with self._lock:
                self._left[namespace] = (left, self._clock())
                self._left.move_to_end(namespace)
                while len(self._left) > REMEMBERED:
                    self._left.popitem(last=False)
