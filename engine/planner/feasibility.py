"""Necessary conditions that prove a gang does not fit, or needs at least a number of domains."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.planner.batches import PodBatch, SharedDomain, SpreadGroup
from engine.planner.cover import NEVER, fewest
from engine.planner.gang import HostCapacity
from engine.planner.slices import whole_slots
from engine.planner.tree import Bools, Ints64, Tree


def fitting_domains(tree: Tree, level: int, batches: Iterable[PodBatch], free: Ints64) -> Bools:
    """Return the domains of `level` that hold each batch alone, and all of them by the sum of every resource."""
    batches = list(batches)
    fits: Bools = np.ones(tree.size(level), dtype=np.bool_)
    for batch in batches:
        fits &= whole_slots(tree, batch.slots(free), batch.grain, len(tree.levels) - 1)[level] >= batch.count
    return fits & (shortage(tree, level, batches, free) <= 0)


def shortage(tree: Tree, level: int, batches: Iterable[PodBatch], free: Ints64) -> Ints64:
    """Return how much of the scarcest resource each domain of `level` lacks (0: nothing; -1: the whole topology)."""
    batches = list(batches)
    size = 1 if level < 0 else tree.size(level)
    worst = np.zeros(size, dtype=np.int64)
    for resource in range(free.shape[1]):
        demand = sum(int(batch.requests[resource]) * batch.count for batch in batches)
        if demand:
            usable = np.where(_open_to(batches, resource), np.maximum(free[:, resource], 0), 0)
            there = np.array([usable.sum()]) if level < 0 else tree.sums(level, usable)
            worst = np.maximum(worst, demand - there)
    return worst


def group_bound(
    capacity: HostCapacity, group: SpreadGroup, batches: list[PodBatch], shared_domains: Iterable[SharedDomain]
) -> tuple[int, ...]:
    """Return a lower bound of the domains that a new group opens, by sums of resources; zeros for a placed group."""
    tree, free = capacity.tree, capacity.free
    levels = len(tree.levels)
    if group.used is not None or not len(tree.hosts) or not batches:
        return (0,) * levels
    whole = [shared for shared in shared_domains if shared.batches >= set(group.batches)]
    level = max((shared.level for shared in whole), default=-1)
    candidates = (
        np.flatnonzero(fitting_domains(tree, level, batches, free)) if level >= 0 else np.zeros(1, dtype=np.int64)
    )
    if not len(candidates):
        return (0,) * levels
    bounds = [np.ones(len(candidates), dtype=np.int64) for _ in range(level + 1)]
    for below in range(level + 1, levels):
        pool, starts = tree.descendants(level, candidates, below)
        needed = np.ones(len(candidates), dtype=np.int64)
        for resource in range(free.shape[1]):
            demand = sum(int(batch.requests[resource]) * batch.count for batch in batches)
            if 0 < demand < NEVER:
                usable = np.where(_open_to(batches, resource), np.maximum(free[:, resource], 0), 0)
                needed = np.maximum(needed, fewest(tree.sums(below, usable)[pool], starts, demand))
        bounds.append(needed)
    least = np.stack(
        [bound if counts else np.zeros_like(bound) for bound, counts in zip(bounds, group.counted, strict=True)]
    )
    first = np.lexsort(least[::-1])[0]
    return tuple(int(number) for number in least[:, first])


def _open_to(batches: Iterable[PodBatch], resource: int) -> Bools:
    """Return the hosts that are eligible for a batch that requests the resource."""
    return np.any([batch.eligible for batch in batches if batch.requests[resource]], axis=0)  # type: ignore[no-any-return]
