"""The outcome of scheduling a gang: a closed union, handled with `match`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.api.placement import PodSetPlan, hosts_in
from engine.api.reasons import REASONS, Code


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang fits; `domains_used` by level alias; `proven` if the number of domains is proven minimal.

    `levels`: the required and preferred level of each pod set by name, with `auto` resolved; empty if there is one pod
    set.
    """

    pod_sets: tuple[PodSetPlan, ...]
    domains_used: Mapping[str, int]
    proven: bool
    message: str
    require: str | None  # the level in force for all pods together, with `auto` resolved
    prefer: str | None
    levels: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of its slots."""
        return hosts_in(self.pod_sets)

    @property
    def count(self) -> int:
        """The number of pods that get a slot."""
        return sum(plan.count for plan in self.pod_sets)

    def levels_of(self, name: str) -> tuple[str | None, str | None]:
        """Return the effective levels of one pod set."""
        return self.levels.get(name, (self.require, self.prefer))


@dataclass(frozen=True, slots=True)
class EffectiveLevels:
    """The required and the preferred level of a plan, by alias and with `auto` resolved.

    `whole`: of all pods together; `pod_sets`: of each pod set by name.
    """

    whole: tuple[str | None, str | None]
    pod_sets: Mapping[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True)
class BestDomain:
    """The domain of a level with room for the most pods now; `path`: its label values, coarse to fine."""

    level: str
    path: tuple[str, ...]
    pods: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes with each of which alone a gang would fit now; None: not known of any.

    `level`: the nearest coarser level to require; `unconstrained`: no required level; `toleration`: for the taint with
    this key; `pods`: so many pods instead.
    """

    level: str | None = None
    unconstrained: bool | None = None
    toleration: str | None = None
    pods: int | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """The numbers of a gang that does not fit: pods that need slots, and those that the best domains have.

    `have` is about the required level, without one about the whole topology. `best`: the best domain of each level,
    coarse to fine. `pod_set`: the one that does not fit; None if the gang has only one.
    """

    needed: int
    have: int
    best: tuple[BestDomain, ...]
    proposal: Proposal | None = None
    pod_set: str | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """The gang does not fit now; `reason` is a reason code, `message` gives needed / have / best.

    `for_hosts`: it does not fit on the current hosts however many pods end; it waits for other hosts. `shortage`: the
    numbers of the message; None where the reason is another one than room. `beside`: why it does not fit on the other
    hosts, where those that it needs are kept for a gang that goes first.
    """

    reason: Code
    message: str
    for_hosts: bool = field(default=False, compare=False)
    shortage: Shortage | None = field(default=None, compare=False)
    beside: Code | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Never:
    """The gang does not fit even on the empty cluster."""

    reason: Code
    message: str
    shortage: Shortage | None = field(default=None, compare=False)

    @property
    def for_hosts(self) -> bool:
        """Return True, as in `Waits`: only other hosts could help."""
        return True


Outcome = Placed | Waits | Never


def with_new_nodes(outcome: Outcome) -> Outcome:
    """Return the outcome where the policy requests nodes: what never fits on the hosts of today waits for others.

    The message does not tell whether they are requested: only the leader knows, and adds it.
    """
    if not isinstance(outcome, Never) or not REASONS[outcome.reason].by_new_nodes:
        return outcome
    message = f"{outcome.message}; it waits for new nodes"
    return Waits("InsufficientFreeHosts", message, for_hosts=True, shortage=outcome.shortage)


def unschedulable_alone(outcome: Waits | Never) -> bool:
    """Return True if only the gang's own users can correct the cause; such a gang does not block others."""
    return isinstance(outcome, Never) or REASONS[outcome.reason].unschedulable_alone
