"""Necessary conditions that prove a gang does not fit, or needs at least a number of domains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.batches import BatchedGang, PodBatch, SpreadGroup, eligible_hosts, slots_on_hosts, with_limits
from engine.planner.cover import NEVER, fewest
from engine.planner.gang import GangPlanRequest, HostCapacity, PodSetPlanRequest
from engine.planner.slices import grains, whole_slots
from engine.planner.tree import Bools, Ints64, Tree


def fitting_domains(batched: BatchedGang, level: int, members: Iterable[int], free: Ints64) -> Bools:
    """Return the domains of `level` that hold each of these batches alone, and all by the sum of every resource."""
    tree, members = batched.capacity.tree, list(members)
    fits: Bools = np.ones(tree.size(level), dtype=np.bool_)
    for member in members:
        batch, slots = batched.batches[member], batched.slots_on(member, free)
        fits &= whole_slots(tree, slots, batch.grain, len(tree.levels) - 1)[level] >= batch.count
    return fits & (shortage(tree, level, [batched.batches[member] for member in members], free) <= 0)


def shortage(tree: Tree, level: int, batches: Iterable[PodBatch], free: Ints64) -> Ints64:
    """Return how much of the scarcest resource each domain of `level` lacks (0: nothing; -1: the whole topology)."""
    batches = list(batches)
    size = 1 if level < 0 else tree.size(level)
    worst = np.zeros(size, dtype=np.int64)
    for resource in range(free.shape[1]):
        demand = sum(int(batch.requests[resource]) * batch.count for batch in batches)
        if demand:
            usable = np.where(_open_to(batches, resource), _in_whole_pods(batches, free, resource), 0)
            there = np.array([usable.sum()]) if level < 0 else tree.sums(level, usable)
            worst = np.maximum(worst, demand - there)
    return worst


def group_bound(batched: BatchedGang, group: SpreadGroup) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a lower bound of the domains that a new group opens, and the fewest of each level by itself.

    Both are zeros for a placed group.
    """
    tree = batched.capacity.tree
    nothing = (0,) * len(tree.levels)
    if group.used is not None or not len(tree.hosts) or not group.batches:
        return nothing, nothing
    shared = (one.level for one in batched.shared_domains if one.batches >= set(group.batches))
    domains, bounds = domain_bounds(batched, group, max(shared, default=-1))
    if not len(domains):
        return nothing, nothing
    return tuple(bounds[:, 0].tolist()), tuple(bounds.min(axis=1).tolist())


def domain_bounds(batched: BatchedGang, group: SpreadGroup, level: int) -> tuple[Ints64, Ints64]:
    """Return the domains of `level` (-1: the whole topology) that may hold a new group, and lower bounds for each.

    The bounds are [level, domain]: how many domains the group opens there, by sums of resources and by the slots of
    each batch alone. The domain with the lowest ones is the first.
    """
    tree, free = batched.capacity.tree, batched.capacity.free
    levels = len(tree.levels)
    batches = [batched.batches[batch] for batch in group.batches]
    found = np.zeros(1, dtype=np.int64)
    if level >= 0:
        found = np.flatnonzero(fitting_domains(batched, level, group.batches, free))
    amounts: list[tuple[int, list[Ints64]]] = []
    for resource in range(free.shape[1]):
        demand = sum(int(batch.requests[resource]) * batch.count for batch in batches)
        if 0 < demand < NEVER:
            alone = sum(batched.slots[one] * batched.batches[one].requests[resource] for one in group.batches)
            usable = np.minimum(_in_whole_pods(batches, free, resource), alone)
            amounts.append((demand, [tree.sums(below, usable) for below in range(levels)]))
    for one in group.batches:
        batch = batched.batches[one]
        amounts.append((batch.count, whole_slots(tree, batched.slots[one], batch.grain, levels - 1)))
    bounds = np.ones((levels, len(found)), dtype=np.int64)
    for below in range(level + 1, levels):
        pool, starts = tree.descendants(level, found, below)
        for demand, sums in amounts:
            bounds[below] = np.maximum(bounds[below], fewest(sums[below][pool], starts, demand))
    bounds[[not counts for counts in group.counted]] = 0
    order = np.lexsort((found, *bounds[::-1]))
    return found[order], bounds[:, order]


def _in_whole_pods(batches: Iterable[PodBatch], free: Ints64, resource: int) -> Ints64:
    """Return at least what whole pods can use of a resource on each host: of 7 GPUs 4, if they ask for 4 or 8."""
    divisor = int(np.gcd.reduce([int(batch.requests[resource]) for batch in batches]))
    usable: Ints64 = np.maximum(free[:, resource], 0)
    return usable if divisor <= 1 else usable // divisor * divisor


def _open_to(batches: Iterable[PodBatch], resource: int) -> Bools:
    """Return the hosts that are eligible for a batch that requests the resource."""
    return np.any([batch.eligible for batch in batches if batch.requests[resource]], axis=0)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class MostPods:
    """Upper bounds of the pods that fit, kept ones included: of each pod set, and of all together."""

    of_sets: tuple[int, ...]
    in_all: int


def most_pods(capacity: HostCapacity, gang: GangPlanRequest, minimums: Sequence[int]) -> MostPods:
    """Return how many pods of a gang fit at most when each pod set has its minimum, in one domain of the gang's level.

    By the slots of each pod set alone, by the pods that each host takes of any of them, and by sums of resources.
    """
    tree, level = capacity.tree, -1 if gang.require is None else gang.require
    least = np.array(minimums, dtype=np.int64)
    kept = np.array([len(pods.kept) for pods in gang.pod_sets], dtype=np.int64)
    requests = np.array([pods.requests for pods in gang.pod_sets], dtype=np.int64)
    free, limited = with_limits(capacity, gang)
    slots = np.stack(
        [
            slots_on_hosts(free, one, eligible_hosts(tree, pods), pods.count)
            for pods, one in zip(gang.pod_sets, limited, strict=True)
        ]
    )
    alone = np.stack(
        [
            np.minimum(pods.count, len(pods.kept) + _in_domains(tree, pods, mine, level))
            for pods, mine in zip(gang.pod_sets, slots, strict=True)
        ]
    )
    room = alone - least[:, None]
    most = np.where((room >= 0).all(axis=0), alone.sum(axis=0), 0)
    on_host = slots.sum(axis=0)
    for resource in np.flatnonzero(requests.any(axis=0)):
        amounts, usable = requests[:, resource], np.maximum(capacity.free[:, resource], 0)
        smallest = np.where(slots > 0, amounts[:, None], _MOST).min(axis=0)
        on_host = np.where(smallest > 0, np.minimum(on_host, usable // np.maximum(smallest, 1)), on_host)
        usable = np.where((slots[amounts > 0] > 0).any(axis=0), usable, 0)
        left = tree.sums(level, usable) - int(amounts @ (least - kept))
        by_sum = np.where(left >= 0, least.sum(), 0)
        for pod_set in np.argsort(amounts, kind="stable"):
            more = np.maximum(room[pod_set], 0)
            if amounts[pod_set]:
                more = np.clip(left // amounts[pod_set], 0, more)
            by_sum = np.where(left >= 0, by_sum + more, 0)
            left = left - more * amounts[pod_set]
        most = np.minimum(most, by_sum)
    most = np.minimum(most, kept.sum() + tree.sums(level, on_host))
    return MostPods(tuple(alone.max(axis=1, initial=0).tolist()), int(most.max(initial=0)))


_MOST = (1 << 31) - 1


def _in_domains(tree: Tree, pods: PodSetPlanRequest, slots: Ints64, level: int) -> Ints64:
    """Return how many more pods of one pod set fit into each domain of `level` (-1: the whole topology)."""
    own = max(level, -1 if pods.require is None else pods.require)
    grain = grains(() if pods.kept or pods.remnant else pods.slices, len(tree.levels))
    found = whole_slots(tree, slots, grain, len(tree.levels) - 1)[max(own, 0)]
    if own == level:
        return found if level >= 0 else found.sum(keepdims=True)
    most: Ints64 = np.zeros(1 if level < 0 else tree.size(level), dtype=np.int64)
    np.maximum.at(most, tree.ancestors(own, level), found)
    return most
