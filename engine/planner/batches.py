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
    """Batches that must be in one domain of `level`; `domain` is the one of their kept pods, or None."""

    level: int
    batches: frozenset[int]
    domain: int | None


def shared_domains(tree: Tree, gang: GangPlanRequest, owners: Sequence[int]) -> tuple[SharedDomain, ...]:
    """Return the shared domains of a gang; `owners` is the pod set of every batch.

    Raises ValueError (`kept`) as `split_gang`.
    """
    level_of: dict[tuple[int, ...], int] = {}
    all_pod_sets = tuple(range(len(gang.pod_sets)))
    for i, pods in enumerate(gang.pod_sets):
        members: tuple[int, ...] = (i,)
        if pods.colocate is not None:
            members = tuple(j for j in all_pod_sets if gang.pod_sets[j].colocate == pods.colocate)
        if pods.require is not None:
            level_of[members] = max(level_of.get(members, -1), pods.require)
    if gang.require is not None:
        level_of[all_pod_sets] = max(level_of.get(all_pod_sets, -1), gang.require)
    all_shared = []
    for members, level in level_of.items():
        kept = {tree.domain_of(level, host) for i in members for host in gang.pod_sets[i].kept.values()}
        if len(kept) > 1:
            raise ValueError(f"kept: pods in {len(kept)} domains of the required level {tree.levels[level]}")
        batches = frozenset(i for i, owner in enumerate(owners) if owner in members)
        if batches:
            all_shared.append(SharedDomain(level, batches, kept.pop() if kept else None))
    return tuple(all_shared)


def implies(other: SharedDomain, shared: SharedDomain) -> bool:
    """Return whether every placement that satisfies `other` also satisfies `shared`."""
    closer = other != shared and other.level >= shared.level and other.batches >= shared.batches
    return closer and (shared.domain is None or other.domain is not None)


@dataclass(frozen=True, slots=True, eq=False)
class PodBatch:
    """Pods of one shape that are placed by one decision.

    `ranks` are (pod set, rank), assigned in this order to the hosts in tree order. `grain`: per level, the number of
    pods in a domain is a multiple of it, the required level's included. `prefer`: the finest preferred level.
    """

    ranks: tuple[tuple[int, int], ...]
    requests: Ints64
    eligible: Bools
    slices: tuple[Slices, ...]
    grain: tuple[int, ...]
    group: int
    prefer: int | None

    @property
    def count(self) -> int:
        """The number of pods."""
        return len(self.ranks)

    @property
    def sliced(self) -> bool:
        """Whether the number of pods per domain is restricted to multiples."""
        return any(size > 1 for size in self.grain)

    def slots(self, free: Ints64, most: int | None = None) -> Ints64:
        """Return how many of these pods fit on each host, at most `count` (or `most`)."""
        return slots_on_hosts(free, self.requests, self.eligible, self.count if most is None else most)


@dataclass(frozen=True, slots=True, eq=False)
class SpreadGroup:
    """Batches with domains that are counted together.

    `used` marks the domains of their kept pods per level (None: there are none). `counted`: whether a level counts;
    for pods without any level only the hosts do.
    """

    batches: tuple[int, ...]
    used: tuple[Bools, ...] | None
    counted: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BatchedGang:
    """A gang split into batches; `capacity` has one more resource for every pod set with a limit per host.

    `slots`: those of each batch on every host, if it had all capacity for itself.
    """

    capacity: HostCapacity
    batches: tuple[PodBatch, ...]
    slots: tuple[Ints64, ...]
    shared_domains: tuple[SharedDomain, ...]
    groups: tuple[SpreadGroup, ...]

    def slots_on(self, batch: int, free: Ints64) -> Ints64:
        """Return the slots of a batch on every host; they are known while `free` is all capacity."""
        return self.slots[batch] if free is self.capacity.free else self.batches[batch].slots(free)

    def shared_domains_of(self, batch: int) -> list[SharedDomain]:
        """Return the shared domains of a batch, the coarsest first."""
        return sorted(
            (shared for shared in self.shared_domains if batch in shared.batches), key=lambda shared: shared.level
        )


@dataclass(slots=True, eq=False)
class _Draft:
    """An unfinished batch; `within` is the (level, domain) of the kept pods of its slices.

    `parts`: the smaller last slices that it is in, as (pod set, level); each is in one domain.
    """

    ranks: list[tuple[int, int]]
    slices: tuple[Slices, ...]
    within: tuple[int, int] | None
    parts: tuple[tuple[int, int], ...] = ()


def split_gang(capacity: HostCapacity, gang: GangPlanRequest, counts: Sequence[int]) -> BatchedGang:
    """Return the batches of the pods that are still to be placed, when pod set i has `counts[i]` pods.

    Raises ValueError (`kept`) when the kept pods are not in one domain of a required level.
    """
    tree = capacity.tree
    free, requests = with_limits(capacity, gang)
    group_of = _group_numbers(gang)
    drafts = [list(_drafts(tree, i, pods, counts[i])) for i, pods in enumerate(gang.pod_sets)]
    batches: list[PodBatch] = []
    owners: list[int] = []
    parts: dict[tuple[int, int], set[int]] = {}
    for i, pods in enumerate(gang.pod_sets):
        for draft in drafts[i]:
            for part in draft.parts:
                parts.setdefault(part, set()).add(len(batches))
            batches.append(_batch(tree, pods, draft, requests[i], group_of[i]))
            owners.append(i)
    of_parts = (SharedDomain(level, frozenset(members), None) for (_, level), members in parts.items())
    all_shared = tuple(dict.fromkeys((*shared_domains(tree, gang, owners), *of_parts)))
    batches, all_shared = _merged(batches, all_shared)
    all_shared = tuple(shared for shared in all_shared if not any(implies(other, shared) for other in all_shared))
    levels = len(tree.levels)
    finished = []
    for index, batch in enumerate(batches):
        grain = list(batch.grain)
        eligible = batch.eligible
        for shared in all_shared:
            if index in shared.batches:
                grain[shared.level] = batch.count
                if shared.domain is not None:
                    eligible = eligible & _inside(tree, shared.level, shared.domain)
        prefer = _finest(batch.prefer, gang.prefer)
        finished.append(replace(batch, grain=tuple(grain), eligible=eligible, prefer=prefer))
    groups = []
    for group in sorted(set(group_of)):
        members = [pods for pods, one in zip(gang.pod_sets, group_of, strict=True) if one == group]
        kept = np.array([host for pods in members for host in pods.kept.values()], dtype=np.int64)
        levelled = len(kept) > 0 or gang.require is not None or gang.prefer is not None
        levelled |= any(p.require is not None or p.prefer is not None or p.slices for p in members)
        groups.append(
            SpreadGroup(
                tuple(i for i, batch in enumerate(finished) if batch.group == group),
                marks(tree, kept) if len(kept) else None,
                (levelled,) * (levels - 1) + (True,),
            )
        )
    slots = tuple(batch.slots(free) for batch in finished)
    return BatchedGang(replace(capacity, free=free), tuple(finished), slots, all_shared, tuple(groups))


def _group_numbers(gang: GangPlanRequest) -> list[int]:
    if gang.require is not None or gang.prefer is not None:
        return [0] * len(gang.pod_sets)
    keys = [(pods.colocate,) if pods.colocate is not None else i for i, pods in enumerate(gang.pod_sets)]
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys]


def _drafts(tree: Tree, index: int, pods: PodSetPlanRequest, count: int) -> Iterator[_Draft]:
    """Yield the missing ranks: those of slices that still have pods, and apart from them whole slices."""
    wanted = _wanted(pods, count)
    missing = [rank for rank in wanted if rank not in pods.kept]
    slice_domains = [_slice_domains(tree, one, pods.kept) for one in pods.slices]
    found: dict[tuple[tuple[int, int] | None, int, tuple[tuple[int, int], ...]], _Draft] = {}
    for rank in missing:
        within: tuple[int, int] | None = None
        depth = 0
        for one, domain_of in zip(pods.slices, slice_domains, strict=True):
            if rank // one.size not in domain_of:
                break
            within = (one.level, domain_of[rank // one.size])
            depth += 1
        parts: list[tuple[int, int]] = []
        while depth < len(pods.slices) and _end(rank, pods.slices[depth].size) > pods.count:
            parts.append((index, pods.slices[depth].level))
            depth += 1
        key = (within, depth, tuple(parts))
        draft = found.setdefault(key, _Draft([], pods.slices[depth:], within, tuple(parts)))
        draft.ranks.append((index, rank))
    yield from found.values()


def _end(rank: int, size: int) -> int:
    """Return the end of the slice of a rank, if that was whole."""
    return (rank // size + 1) * size


def _slice_domains(tree: Tree, slices: Slices, kept: Mapping[int, int]) -> dict[int, int]:
    """Return the domain of each slice that has kept pods."""
    slice_domains: dict[int, int] = {}
    for rank, host in kept.items():
        domain = tree.domain_of(slices.level, host)
        if slice_domains.setdefault(rank // slices.size, domain) != domain:
            raise ValueError(f"kept: the slice of rank {rank} is not in one {tree.levels[slices.level]}")
    return slice_domains


def _wanted(pods: PodSetPlanRequest, count: int) -> list[int]:
    """Return the ranks of `count` pods: kept ones and their slices first, then from rank 0 up, by whole slices.

    Those that wait are not among them.
    """
    size = pods.slices[0].size if pods.slices else 1
    groups = [range(first, min(first + size, pods.count)) for first in range(0, pods.count, size)]
    begun = {rank // size for rank in pods.kept}
    groups.sort(key=lambda group: group.start // size not in begun)
    ranks: list[int] = []
    for group in groups:
        if len(ranks) >= count and group.start // size not in begun:
            break
        ranks += [rank for rank in group if rank not in pods.waiting]
    return sorted(ranks)


def lacking_parts(pods: PodSetPlanRequest) -> list[list[tuple[int, ...]]]:
    """Return what each slice with kept pods lacks: single ranks, and smaller slices of which no pod is kept."""
    begun = [{rank // one.size for rank in pods.kept} for one in pods.slices]
    found: dict[int, dict[tuple[int, int], list[int]]] = {}
    for rank in range(pods.count) if begun and pods.kept else ():
        first = rank // pods.slices[0].size
        if rank not in pods.kept and first in begun[0]:
            layers = ((one.size, rank // one.size, there) for one, there in zip(pods.slices, begun, strict=True))
            part = next(((size, number) for size, number, there in layers if number not in there), (1, rank))
            found.setdefault(first, {}).setdefault(part, []).append(rank)
    return [[tuple(ranks) for ranks in parts.values()] for parts in found.values()]


def with_limits(capacity: HostCapacity, gang: GangPlanRequest) -> tuple[Ints64, list[Ints64]]:
    """Return free amounts and requests, with each limit per host as one more resource."""
    columns = [capacity.free]
    requests = [np.array(pods.requests, dtype=np.int64) for pods in gang.pod_sets]
    for i, pods in enumerate(gang.pod_sets):
        if pods.per_host is not None:
            here = np.bincount(np.array(list(pods.kept.values()), dtype=np.int64), minlength=len(capacity.tree.hosts))
            columns.append((pods.per_host - here)[:, None])
            requests = [np.append(one, int(j == i)) for j, one in enumerate(requests)]
    return np.hstack(columns), requests


def eligible_hosts(tree: Tree, pods: PodSetPlanRequest) -> Bools:
    """Return for every host whether pods of a pod set may go there."""
    return np.ones(len(tree.hosts), dtype=np.bool_) if pods.eligible is None else pods.eligible


def slots_on_hosts(free: Ints64, requests: Ints64, eligible: Bools, most: int) -> Ints64:
    """Return how many equal pods fit on each host if it gets no others, at most `most`."""
    slots: Ints64 = np.where(eligible, most, 0)
    for resource in np.flatnonzero(requests):
        slots = np.minimum(slots, np.maximum(free[:, resource], 0) // requests[resource])
    return slots


def _batch(tree: Tree, pods: PodSetPlanRequest, draft: _Draft, requests: Ints64, group: int) -> PodBatch:
    eligible = eligible_hosts(tree, pods)
    if draft.within is not None:
        eligible = eligible & _inside(tree, *draft.within)
    sizes = {one.level: one.size for one in draft.slices}
    grain = tuple(sizes.get(level, 1) for level in range(len(tree.levels)))
    return PodBatch(tuple(draft.ranks), requests, eligible, draft.slices, grain, group, pods.prefer)


def _merged(
    batches: list[PodBatch], all_shared: tuple[SharedDomain, ...]
) -> tuple[list[PodBatch], tuple[SharedDomain, ...]]:
    """Merge equal batches; a shared domain that another one implies makes no difference between them."""
    kept: list[PodBatch] = []
    number: list[int] = []
    distinct = [_distinct_shared(i, all_shared) for i in range(len(batches))]
    first: list[int] = []
    for i, batch in enumerate(batches):
        same = next(
            (n for n, one in enumerate(kept) if _mergeable(one, batch) and distinct[first[n]] == distinct[i]), None
        )
        if same is None:
            number.append(len(kept))
            first.append(i)
            kept.append(batch)
        else:
            number.append(same)
            prefer = _finest(kept[same].prefer, batch.prefer)
            kept[same] = replace(kept[same], ranks=kept[same].ranks + batch.ranks, prefer=prefer)
    moved = [replace(shared, batches=frozenset(number[i] for i in shared.batches)) for shared in all_shared]
    return kept, tuple(dict.fromkeys(moved))


def _finest(*levels: int | None) -> int | None:
    return max((level for level in levels if level is not None), default=None)


def _distinct_shared(batch: int, all_shared: tuple[SharedDomain, ...]) -> set[SharedDomain]:
    own = [shared for shared in all_shared if batch in shared.batches]
    return {shared for shared in own if not any(implies(other, shared) for other in own)}


def _mergeable(one: PodBatch, other: PodBatch) -> bool:
    return (
        one.group == other.group
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
