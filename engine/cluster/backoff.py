"""How long to wait after a failure: growing, jittered, forgotten after health.

Numbers are client-go's reflector: 0.8 s doubling to 30 s, back to the start after 2 minutes without a failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST: Final = 0.8
LIMIT: Final = 30.0
HEALTHY: Final = 120.0


class Backoff:
    """Delays in seconds between half and all of 0.8, 1.6, 3.2, ... 30; not for use by several threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        first: float = FIRST,
        limit: float = LIMIT,
        healthy: float = HEALTHY,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._first = first
        self._limit = limit
        self._healthy = healthy
        self._next = first
        self._resume_at: float | None = None

    def delay(self, *, at_least: float | None = None) -> float:
        """Return the delay after one more failure; `at_least` is the server's Retry-After, never undercut.

        A Retry-After beyond an hour is taken as an hour.
        """
        now = self._clock()
        if self._resume_at is not None and now - self._resume_at >= self._healthy:
            self._next = self._first
        delay = self._next * self._rng.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._limit)
        if at_least is not None:
            # Jitter goes on top: everybody was told the same number.
            delay += min(at_least, 3600.0)
        self._resume_at = now + delay
        return delay
