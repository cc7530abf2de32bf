"""Whether many gangs are being placed right now: then good news can wait a moment. Pure.

Telling people costs the API server two writes a gang (a status, an Event), as much as placing it. While a crowd is
being placed, whoever is still waiting for his slots goes first. Measured with 100 gangs of 4 pods at once:
docs/benchmarks.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# So many placements within so many seconds are a rush: a handful of gangs of one person is none, and a crowd, which
# comes at some twelve a second on two processors, is one from its second second on.
MANY: Final = 16
WITHIN: Final = 2.0
# Good news of a rush is told this much later (seconds).
LATER: Final = 5.0
GOOD: Final = frozenset({"Placed", "Running"})


class Rush:
    """Remembers the last few placements."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=MANY)

    def placed(self, now: float) -> None:
        """A gang was placed at this time (monotonic seconds)."""
        self._last.append(now)

    def delay(self, phase: str, now: float) -> float:
        """How many seconds a status may wait; what people must act on never does."""
        rushing = len(self._last) == MANY and now - self._last[0] <= WITHIN
        return LATER if rushing and phase in GOOD else 0.0
