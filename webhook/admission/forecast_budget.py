"""What forecasts may cost: a share of the processor for each namespace, so that one tenant's do not cost the others.

A forecast is a courtesy. It holds the view while it is made, which the leader's turns and other reviews need too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SHARE: Final = 0.1  # seconds of computing a second that come back to a namespace
MOST: Final = 2.0  # seconds: what a namespace that has asked for nothing may use at once
REMEMBERED: Final = 1_024  # namespaces that have used some of theirs; of more the one longest silent starts afresh


class ForecastBudget:
    """What each namespace has left; `clock` tells the time, `cpu` what the calling thread has computed."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds left, when that was
        self._lock = threading.Lock()

    def left(self, namespace: str) -> float:
        """Seconds of computing that the namespace may still use; negative after a dear one."""
        with self._lock:
            seconds, when = self._left.get(namespace, (MOST, 0.0))
        return min(MOST, seconds + SHARE * (self._clock() - when))

    @contextmanager
    def used(self, namespace: str) -> Iterator[None]:
        """Charge the namespace with what is computed inside."""
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
