"""Splits a gang into batches of equal pods, and finds which batches must share a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.planner.gang import GangPlanRequest, HostCapacity, PodSetPlanRequest
from engine.planner.slices import Slices
from engine.planner.sums import marks
from engine.planner.tree import Bools, Ints64, Tree


@dataclass(frozen=True, slots=True)
class SharedDomain:
    """Lots that share one domain of a level; `domain` is the one where kept pods of them already are, or None."""

    level: int
    lots: frozenset[int]
    domain: int | None


def shared_domains(tree: Tree, gang: GangPlanRequest, owners: Sequence[int]) -> tuple[SharedDomain, ...]:
    """The ties of a gang; `owners` is the pod set of every lot. Raises ValueError (`kept`) as `split_gang`."""
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
            ties.append(SharedDomain(level, lots, kept.pop() if kept else None))
    return tuple(ties)


def implies(other: SharedDomain, tie: SharedDomain) -> bool:
    """Whether what keeps to `other` keeps to `tie` too."""
    closer = other != tie and other.level >= tie.level and other.lots >= tie.lots
    return closer and (tie.domain is None or other.domain is not None)


@dataclass(frozen=True, slots=True, eq=False)
class PodBatch:
    """Pods of one shape that are placed by one decision.

    `ranks` are (pod set, rank), handed out in this order to the hosts in tree order. `grain` is per level the number of
    which every domain holds a multiple, the required level's included.
    """

    ranks: tuple[tuple[int, int], ...]
    requests: Ints64
    eligible: Bools
    slices: tuple[Slices, ...]
    grain: tuple[int, ...]
    kin: int

    @property
    def count(self) -> int:
        """Number of pods."""
        return len(self.ranks)

    @property
    def sliced(self) -> bool:
        """Whether the number of pods per domain is restricted at all."""
        return any(size > 1 for size in self.grain)

    def slots(self, free: Ints64, most: int | None = None) -> Ints64:
        """How many of these pods each host has room for, at most as many as there are (or `most`)."""
        slots: Ints64 = np.where(self.eligible, self.count if most is None else most, 0)
        for resource in np.flatnonzero(self.requests):
            slots = np.minimum(slots, np.maximum(free[:, resource], 0) // self.requests[resource])
        return slots


@dataclass(frozen=True, slots=True, eq=False)
class SpreadGroup:
    """Lots whose domains are counted together.

    `used` marks the domains of their kept pods per level (None: there are none). `counted` are the levels that count:
    of pods without any level only the hosts do.
    """

    lots: tuple[int, ...]
    used: tuple[Bools, ...] | None
    counted: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BatchedGang:
    """A gang ready to be searched: what is free has one more column for every pod set with a most per host."""

    room: HostCapacity
    lots: tuple[PodBatch, ...]
    ties: tuple[SharedDomain, ...]
    kins: tuple[SpreadGroup, ...]

    def ties_of(self, lot: int) -> list[SharedDomain]:
        """The ties of a lot, the coarsest first."""
        return sorted((tie for tie in self.ties if lot in tie.lots), key=lambda tie: tie.level)


@dataclass(slots=True, eq=False)
class _Draft:
    """A lot in the making: `within` are the domains of kept pods of its slices."""

    ranks: list[tuple[int, int]]
    slices: tuple[Slices, ...]
    within: tuple[int, int] | None


def split_gang(room: HostCapacity, gang: GangPlanRequest, counts: Sequence[int]) -> BatchedGang:
    """The lots of the pods that are still to be placed, when pod set i has `counts[i]` pods.

    Raises ValueError (`kept`) when the pods that stay are not in one domain of a level that says so.
    """
    tree = room.tree
    free, requests = _with_limits(room, gang)
    kin_of = _kins(gang)
    drafts = [list(_drafts(tree, i, pods, counts[i])) for i, pods in enumerate(gang.pod_sets)]
    lots: list[PodBatch] = []
    owners: list[int] = []
    for i, pods in enumerate(gang.pod_sets):
        for draft in drafts[i]:
            lots.append(_lot(tree, pods, draft, requests[i], kin_of[i]))
            owners.append(i)
    ties = shared_domains(tree, gang, owners)
    lots, ties = _merged(lots, ties)
    ties = tuple(tie for tie in ties if not any(implies(other, tie) for other in ties))
    levels = len(tree.levels)
    finished = []
    for index, lot in enumerate(lots):
        grain = list(lot.grain)
        eligible = lot.eligible
        for tie in ties:
            if index in tie.lots:
                grain[tie.level] = lot.count
                if tie.domain is not None:
                    eligible = eligible & _inside(tree, tie.level, tie.domain)
        finished.append(replace(lot, grain=tuple(grain), eligible=eligible))
    kins = []
    for kin in sorted(set(kin_of)):
        members = [pods for pods, one in zip(gang.pod_sets, kin_of, strict=True) if one == kin]
        kept = np.array([host for pods in members for host in pods.kept.values()], dtype=np.int64)
        levelled = len(kept) > 0 or gang.require is not None or gang.prefer is not None
        levelled |= any(p.require is not None or p.prefer is not None or p.slices for p in members)
        kins.append(
            SpreadGroup(
                tuple(i for i, lot in enumerate(finished) if lot.kin == kin),
                marks(tree, kept) if len(kept) else None,
                (levelled,) * (levels - 1) + (True,),
            )
        )
    return BatchedGang(replace(room, free=free), tuple(finished), ties, tuple(kins))


def _kins(gang: GangPlanRequest) -> list[int]:
    if gang.require is not None or gang.prefer is not None:
        return [0] * len(gang.pod_sets)
    keys = [(pods.colocate,) if pods.colocate is not None else i for i, pods in enumerate(gang.pod_sets)]
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys]


def _drafts(tree: Tree, index: int, pods: PodSetPlanRequest, count: int) -> Iterator[_Draft]:
    """The missing ranks, those of slices that still have pods apart from whole slices."""
    wanted = _wanted(pods, count)
    missing = [rank for rank in wanted if rank not in pods.kept]
    homes = [_homes(tree, one, pods.kept) for one in pods.slices]
    found: dict[tuple[tuple[int, int] | None, int], _Draft] = {}
    for rank in missing:
        within: tuple[int, int] | None = None
        depth = 0
        for one, home in zip(pods.slices, homes, strict=True):
            if rank // one.size not in home:
                break
            within = (one.level, home[rank // one.size])
            depth += 1
        draft = found.setdefault((within, depth), _Draft([], pods.slices[depth:], within))
        draft.ranks.append((index, rank))
    yield from found.values()


def _homes(tree: Tree, slices: Slices, kept: Mapping[int, int]) -> dict[int, int]:
    """The domain of each slice that has kept pods."""
    homes: dict[int, int] = {}
    for rank, host in kept.items():
        domain = tree.domain_of(slices.level, host)
        if homes.setdefault(rank // slices.size, domain) != domain:
            raise ValueError(f"kept: the slice of rank {rank} is not in one {tree.levels[slices.level]}")
    return homes


def _wanted(pods: PodSetPlanRequest, count: int) -> list[int]:
    """The ranks that `count` pods have: kept ones and their slices first, then from rank 0 up, by whole slices."""
    size = pods.slices[0].size if pods.slices else 1
    groups = [range(first, first + size) for first in range(0, pods.count, size)]
    begun = {rank // size for rank in pods.kept}
    groups.sort(key=lambda group: group.start // size not in begun)
    ranks: list[int] = []
    for group in groups:
        if len(ranks) >= count and group.start // size not in begun:
            break
        ranks += group
    return sorted(ranks)


def _with_limits(room: HostCapacity, gang: GangPlanRequest) -> tuple[Ints64, list[Ints64]]:
    """What is free and what each pod asks for, where a most per host is a resource like any other."""
    columns = [room.free]
    requests = [np.array(pods.requests, dtype=np.int64) for pods in gang.pod_sets]
    for i, pods in enumerate(gang.pod_sets):
        if pods.per_host is not None:
            here = np.bincount(np.array(list(pods.kept.values()), dtype=np.int64), minlength=len(room.tree.hosts))
            columns.append((pods.per_host - here)[:, None])
            requests = [np.append(one, int(j == i)) for j, one in enumerate(requests)]
    return np.hstack(columns), requests


def _lot(tree: Tree, pods: PodSetPlanRequest, draft: _Draft, requests: Ints64, kin: int) -> PodBatch:
    hosts = len(tree.hosts)
    eligible = np.ones(hosts, dtype=np.bool_) if pods.eligible is None else pods.eligible
    if draft.within is not None:
        eligible = eligible & _inside(tree, *draft.within)
    sizes = {one.level: one.size for one in draft.slices}
    grain = tuple(sizes.get(level, 1) for level in range(len(tree.levels)))
    return PodBatch(tuple(draft.ranks), requests, eligible, draft.slices, grain, kin)


def _merged(lots: list[PodBatch], ties: tuple[SharedDomain, ...]) -> tuple[list[PodBatch], tuple[SharedDomain, ...]]:
    """Lots that differ in nothing are one; a tie that another one implies does not tell them apart."""
    kept: list[PodBatch] = []
    number: list[int] = []
    bonds = [_bonds(i, ties) for i in range(len(lots))]
    first: list[int] = []
    for i, lot in enumerate(lots):
        same = next((n for n, one in enumerate(kept) if _alike(one, lot) and bonds[first[n]] == bonds[i]), None)
        if same is None:
            number.append(len(kept))
            first.append(i)
            kept.append(lot)
        else:
            number.append(same)
            kept[same] = replace(kept[same], ranks=kept[same].ranks + lot.ranks)
    moved = [replace(tie, lots=frozenset(number[i] for i in tie.lots)) for tie in ties]
    return kept, tuple(dict.fromkeys(moved))


def _bonds(lot: int, ties: tuple[SharedDomain, ...]) -> set[SharedDomain]:
    own = [tie for tie in ties if lot in tie.lots]
    return {tie for tie in own if not any(implies(other, tie) for other in own)}


def _alike(one: PodBatch, other: PodBatch) -> bool:
    return (
        one.kin == other.kin
        and not one.slices
        and not other.slices
        and bool((one.requests == other.requests).all())
        and bool((one.eligible == other.eligible).all())
    )


def _inside(tree: Tree, level: int, domain: int) -> Bools:
    inside: Bools = np.zeros(len(tree.hosts), dtype=np.bool_)
    first, end = tree.range(level, domain)
    inside[first:end] = True
    return inside
