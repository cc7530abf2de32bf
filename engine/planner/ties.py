"""What has to share a domain: the pods of a pod set, pod sets that are colocated, a whole gang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.planner.gang import Gang
from engine.planner.tree import Tree


@dataclass(frozen=True, slots=True)
class Tie:
    """Lots that share one domain of a level; `domain` is the one where kept pods of them already are, or None."""

    level: int
    lots: frozenset[int]
    domain: int | None


def ties_of(tree: Tree, gang: Gang, owners: Sequence[int]) -> tuple[Tie, ...]:
    """The ties of a gang; `owners` is the pod set of every lot. Raises ValueError (`kept`) as `take_apart`."""
    members: dict[tuple[int, ...], int] = {}
    everyone = tuple(range(len(gang.pod_sets)))
    for i, pods in enumerate(gang.pod_sets):
        mates: tuple[int, ...] = (i,)
        if pods.colocate is not None:
            mates = tuple(j for j in everyone if gang.pod_sets[j].colocate == pods.colocate)
        if pods.require is not None:
            members[mates] = max(members.get(mates, -1), pods.require)
    if gang.require is not None:
        members[everyone] = max(members.get(everyone, -1), gang.require)
    ties = []
    for mates, level in members.items():
        kept = {tree.domain_of(level, host) for i in mates for host in gang.pod_sets[i].kept.values()}
        if len(kept) > 1:
            raise ValueError(f"kept: pods in {len(kept)} domains of the required level {tree.levels[level]}")
        lots = frozenset(i for i, owner in enumerate(owners) if owner in mates)
        if lots:
            ties.append(Tie(level, lots, kept.pop() if kept else None))
    return tuple(ties)


def implies(other: Tie, tie: Tie) -> bool:
    """Whether what keeps to `other` keeps to `tie` too."""
    closer = other != tie and other.level >= tie.level and other.lots >= tie.lots
    return closer and (tie.domain is None or other.domain is not None)
