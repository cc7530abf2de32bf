"""The CPU time that one review may use; a longer review is stopped, so that no object delays others for long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

# Objects at the limits of templates and containers take a quarter of this on a slow core (docs/concepts/admission.md).
REVIEW_CPU: Final = 1.0  # seconds


class BudgetExceeded(Exception):
    """A review has used up its processor time; `seconds` is the limit that it exceeded."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the review takes more than {seconds:g} s of processor time")
        self.seconds = seconds


class Budget:
    """The processor time of one review, counted from construction in the thread that constructed it.

    `cpu` returns the processor time of the calling thread in seconds. `exceeded` is True once a check has failed.
    """

    def __init__(self, seconds: float = math.inf, *, cpu: Callable[[], float] = time.thread_time) -> None:
        self.seconds = seconds
        self.exceeded = False
        self._cpu = cpu
        self._end = cpu() + seconds

    @property
    def spent(self) -> bool:
        """Return True if nothing is left; optional work is skipped then."""
        return self._cpu() >= self._end

    def check(self) -> None:
        """Raise BudgetExceeded if nothing is left. Called wherever the work grows with the object."""
        if self.spent:
            self.exceeded = True
            raise BudgetExceeded(self.seconds)
