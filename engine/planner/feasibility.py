"""Necessary conditions: they prove that a gang does not fit, or that it needs so many domains."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.planner.batches import PodBatch, SharedDomain, SpreadGroup
from engine.planner.cover import NEVER, fewest
from engine.planner.gang import HostCapacity
from engine.planner.slices import whole_slots
from engine.planner.tree import Bools, Ints64, Tree


def roomy(tree: Tree, level: int, lots: Iterable[PodBatch], free: Ints64) -> Bools:
    """The domains of `level` that hold each of the lots alone, and all of them by the sum of every resource."""
    lots = list(lots)
    fits: Bools = np.ones(tree.size(level), dtype=np.bool_)
    for lot in lots:
        fits &= whole_slots(tree, lot.slots(free), lot.grain, len(tree.levels) - 1)[level] >= lot.count
    return fits & (shortage(tree, level, lots, free) <= 0)


def shortage(tree: Tree, level: int, lots: Iterable[PodBatch], free: Ints64) -> Ints64:
    """Per domain of `level` (-1: the whole topology), by how much the scarcest resource falls short, at least 0."""
    lots = list(lots)
    size = 1 if level < 0 else tree.size(level)
    worst = np.zeros(size, dtype=np.int64)
    for resource in range(free.shape[1]):
        demand = sum(int(lot.requests[resource]) * lot.count for lot in lots)
        if demand:
            usable = np.where(_open_to(lots, resource), np.maximum(free[:, resource], 0), 0)
            there = np.array([usable.sum()]) if level < 0 else tree.sums(level, usable)
            worst = np.maximum(worst, demand - there)
    return worst


def kin_bound(
    room: HostCapacity, kin: SpreadGroup, lots: list[PodBatch], ties: Iterable[SharedDomain]
) -> tuple[int, ...]:
    """Domains that a new kin opens at least, by the sums of its resources; zeros for one that is spread already."""
    tree, free = room.tree, room.free
    levels = len(tree.levels)
    if kin.used is not None or not len(tree.hosts) or not lots:
        return (0,) * levels
    whole = [tie for tie in ties if tie.lots >= set(kin.lots)]
    level = max((tie.level for tie in whole), default=-1)
    candidates = np.flatnonzero(roomy(tree, level, lots, free)) if level >= 0 else np.zeros(1, dtype=np.int64)
    if not len(candidates):
        return (0,) * levels
    bounds = [np.ones(len(candidates), dtype=np.int64) for _ in range(level + 1)]
    for below in range(level + 1, levels):
        pool, starts = tree.descendants(level, candidates, below)
        needed = np.ones(len(candidates), dtype=np.int64)
        for resource in range(free.shape[1]):
            demand = sum(int(lot.requests[resource]) * lot.count for lot in lots)
            if 0 < demand < NEVER:
                usable = np.where(_open_to(lots, resource), np.maximum(free[:, resource], 0), 0)
                needed = np.maximum(needed, fewest(tree.sums(below, usable)[pool], starts, demand))
        bounds.append(needed)
    least = np.stack(
        [bound if counts else np.zeros_like(bound) for bound, counts in zip(bounds, kin.counted, strict=True)]
    )
    first = np.lexsort(least[::-1])[0]
    return tuple(int(number) for number in least[:, first])


def _open_to(lots: Iterable[PodBatch], resource: int) -> Bools:
    """The hosts that may take a pod of a lot that asks for the resource."""
    return np.any([lot.eligible for lot in lots if lot.requests[resource]], axis=0)  # type: ignore[no-any-return]
