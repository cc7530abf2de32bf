"""What `topogate release` has tried already: it gives up what is refused again and again, and repeats no line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from webhook.maintenance.release import ReleasePlan
from webhook.maintenance.releaser import Outcome

# A refusal may pass: rights are granted, a quota is raised, a policy is taken back. Three of them within seconds tell.
TRIES: Final = 3


@dataclass(slots=True)
class Attempts:
    """The refusals and the last line of each object, by uid; `done`: something was let go."""

    done: bool = False
    _refused: dict[str, int] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def news(self, outcome: Outcome) -> Outcome | None:
        """Record an outcome; return it as it is to be told, None if it was told already."""
        uid = outcome.uid
        if outcome.done:
            self.done = True
            self._refused.pop(uid, None)
            self._told.pop(uid, None)
            return outcome
        if outcome.refused:
            self._refused[uid] = self._refused.get(uid, 0) + 1
            if self._refused[uid] == TRIES:
                return replace(outcome, text=f"{outcome.text}; given up after {TRIES} tries")
        known = self._told.get(uid)
        self._told[uid] = outcome.text
        return outcome if known != outcome.text else None

    def left(self, plan: ReleasePlan) -> ReleasePlan:
        """Return what of a plan is not given up, and forget what is not in it any more."""
        present = {*(one.uid for one in plan.workloads), *(one.uid for one in plan.pods)}
        for kept in (self._refused, self._told):
            for uid in kept.keys() - present:
                del kept[uid]
        return replace(
            plan,
            workloads=tuple(one for one in plan.workloads if not self._given_up(one.uid)),
            pods=tuple(one for one in plan.pods if not self._given_up(one.uid)),
        )

    def over(self, plan: ReleasePlan) -> bool:
        """Return True if all that is held is given up, and nothing is to come that may be let go.

        Pods to come may be, if anything ever was.
        """
        return plan.held > 0 and not self.left(plan).held and not (plan.templates and self.done)

    def _given_up(self, uid: str) -> bool:
        return self._refused.get(uid, 0) >= TRIES
