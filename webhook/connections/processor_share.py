"""Limits long work to a share of the processor: after each piece comes a proportional rest. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

REST: Final = 1.0  # seconds for each second of work: half of the one processor that the interpreter has
MAX_REST: Final = 0.25  # seconds after one piece: a single long one is no crowd


class ProcessorShare:
    """A shared limit for several threads: `rest` seconds of pause for each second of processor time used.

    The rest comes before the next piece of work, so a single piece never waits.
    """

    def __init__(
        self,
        *,
        rest: float = REST,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rest = rest
        self._clock, self._used, self._sleep = clock, used, sleep
        self._until = float("-inf")
        self._lock = threading.Lock()

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Wait for the end of the rest, then measure the processor time of the body."""
        pause = self._until - self._clock()
        while pause > 0:
            self._sleep(pause)
            pause = self._until - self._clock()
        begin = self._used()
        try:
            yield
        finally:
            rest = min(self._rest * (self._used() - begin), MAX_REST)
            with self._lock:
                self._until = max(self._until, self._clock()) + rest
