"""How much of a turn each namespace may have: one with thousands of gangs must not cost the others their time. Pure.

What a namespace has left over is done in the turns that follow; the others do not wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

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
