"""The outcome of scheduling a gang: a closed union, handled with `match`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.api.placement import PodSetPlan
from engine.api.reasons import REASONS, Code


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang fits; `domains_used` by level alias; `proven` when the number of domains is proven minimal.

    `levels`: what each pod set requires and prefers, by name, with `auto` resolved; empty where there is one pod set.
    """

    pod_sets: tuple[PodSetPlan, ...]
    domains_used: Mapping[str, int]
    proven: bool
    message: str
    require: str | None  # the level in force for all pods together, with `auto` resolved
    prefer: str | None
    levels: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def levels_of(self, name: str) -> tuple[str | None, str | None]:
        """The levels in force for one pod set."""
        return self.levels.get(name, (self.require, self.prefer))


@dataclass(frozen=True, slots=True)
class Waits:
    """Not now: `reason` is a reason code (`engine.scheduler.explain`), `message` says needed / have / best.

    `for_hosts`: however many pods end, it does not fit on the hosts as they are; it waits for others.
    """

    reason: Code
    message: str
    for_hosts: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Never:
    """Not even on the empty cluster."""

    reason: Code
    message: str

    @property
    def for_hosts(self) -> bool:
        """As of `Waits`: only other hosts could help."""
        return True


Outcome = Placed | Waits | Never


def own_trouble(outcome: Waits | Never) -> bool:
    """True when only the gang's own people can mend why it is not placed: it holds up nobody."""
    return isinstance(outcome, Never) or REASONS[outcome.reason].own_trouble
