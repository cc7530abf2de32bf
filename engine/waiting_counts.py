"""What the metrics show of gangs that wait for room."""

from __future__ import annotations

from collections import Counter

from engine import metrics
from engine.api.reasons import REASONS
from engine.term import Term


class WaitingCounts:
    """Outlives terms: what was shown of one is taken back in the next."""

    def __init__(self) -> None:
        self._counted: set[str] = set()  # reasons that the metrics show gangs for

    def show(self, term: Term) -> None:
        """Tell the metrics who waits, and why: of reason codes there are few."""
        reasons = Counter[str]()
        for key in term.queue:
            memory = term.memory.get(key)
            if memory is not None and memory.told is not None and memory.told.reason in REASONS:
                reasons[memory.told.reason] += 1
        for reason in self._counted - reasons.keys():
            metrics.waiting.labels(reason).set(0)
        for reason, gangs_of in reasons.items():
            metrics.waiting.labels(reason).set(gangs_of)
        self._counted = set(reasons)
        metrics.queued.set(len(term.queue))
