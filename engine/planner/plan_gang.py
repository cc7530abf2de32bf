"""Plans a gang of several pod sets: uniform search, batch by batch, exact search; then the order of its hosts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

import numpy as np

from engine.planner.assemble import assemble
from engine.planner.gang import Gang, GangPlan, PodSet, Room, Undecided, check_gang
from engine.planner.plan import NoFit
from engine.planner.tree import Ints64, Tree

# Ways to share out a gang's minimum over its pod sets that are tried; with more of them, a no is not certain.
_MINIMUMS = 64


def plan_gang(tree: Tree, free: Ints64, gang: Gang, scarce: Ints64 | None = None) -> GangPlan | NoFit | Undecided:
    """Place the pod sets of a gang on the hosts of `tree`, all or nothing.

    `free` is [host, resource]: what is free of each resource (negative: nothing), beside the pods that stay; `scarce`
    as for `plan`. NoFit is certain; a gang of unlike pods whose search needs more than `gang.steps` is Undecided. Where
    fewer than all pods are enough to start, as many are placed as there is room for. Same arguments, same plan. Raises
    ValueError, which names the argument, for what makes no sense.
    """
    room = Room(tree, free, scarce)
    check_gang(room, gang)
    wanted = tuple(pods.count for pods in gang.pod_sets)
    if not tree.hosts:
        return NoFit(-1, 0, -1, 0, 0, None, 0 if len(wanted) == 1 else None)
    whole = assemble(room, gang, wanted)
    if isinstance(whole, GangPlan) or all(least == count for least, count in zip(_least(gang), wanted, strict=True)):
        return whole
    certain = isinstance(whole, NoFit)
    tries = list(islice(_minimums(gang), _MINIMUMS + 1))
    for counts in tries[:_MINIMUMS]:
        answer = assemble(room, gang, counts)
        if isinstance(answer, GangPlan):
            return _grown(room, gang, counts, answer)
        certain &= isinstance(answer, NoFit)
    return whole if certain and len(tries) <= _MINIMUMS else Undecided(gang.steps)


def _least(gang: Gang) -> list[int]:
    """Pods of every set that have to be among the first, in whole slices; at least those that are there."""
    default = 0 if gang.least is not None else None
    return [
        max(_whole(pods, pods.least if pods.least is not None else default), len(pods.kept)) for pods in gang.pod_sets
    ]


def _size(pods: PodSet) -> int:
    return pods.slices[0].size if pods.slices else 1


def _whole(pods: PodSet, number: int | None) -> int:
    return pods.count if number is None else -(-number // _size(pods)) * _size(pods)


def _minimums(gang: Gang) -> Iterator[tuple[int, ...]]:
    """The smallest numbers of pods per pod set that are enough to start; the first few come nearest to even shares."""
    least = _least(gang)
    needed = gang.least or 0
    if sum(least) >= needed:
        yield tuple(least)
        return
    counts = [pods.count for pods in gang.pod_sets]
    share = (needed - sum(least)) / (sum(counts) - sum(least))
    near = [
        _whole(pods, math.floor(n + share * (pods.count - n))) for n, pods in zip(least, gang.pod_sets, strict=True)
    ]
    near = [max(n, m) for n, m in zip(near, least, strict=True)]
    for i, pods in enumerate(gang.pod_sets):
        missing = max(needed - sum(near), 0)
        near[i] = min(pods.count, _whole(pods, near[i] + missing))
    first = tuple(near)
    yield first
    ranges = [range(n, pods.count + 1, _size(pods)) for n, pods in zip(least, gang.pod_sets, strict=True)]
    for numbers in product(*ranges):
        spare = sum(numbers) - needed
        bare = all(
            n - _size(pods) < low or spare < _size(pods)
            for n, pods, low in zip(numbers, gang.pod_sets, least, strict=True)
        )
        if spare >= 0 and bare and numbers != first:
            yield numbers


def _grown(room: Room, gang: Gang, counts: tuple[int, ...], core: GangPlan) -> GangPlan:
    """The plan with as many more pods as there is room for, one pod set after the other."""
    best = core
    alone = len(gang.pod_sets) == 1
    for i, pods in enumerate(gang.pod_sets):
        base, left = (gang, room) if alone else _as_it_stands(room, gang, best)
        low, high = counts[i], pods.count
        while low < high:
            middle = min(high, low + _whole(pods, (high - low + 1) // 2))
            answer = assemble(left, base, (*counts[:i], middle, *counts[i + 1 :]))
            if isinstance(answer, GangPlan):
                low = middle
                # Pods that join one pod set after the other may open more domains than all at once would.
                best = answer if alone else replace(answer, proven=False)
            else:
                high = middle - _size(pods)
        counts = (*counts[:i], low, *counts[i + 1 :])
    return best


def _as_it_stands(room: Room, gang: Gang, plan: GangPlan) -> tuple[Gang, Room]:
    """The gang with all placed pods kept, and what is free beside them."""
    left = room.free.copy()
    standing = []
    for pods, seats in zip(gang.pod_sets, plan.pod_sets, strict=True):
        kept = {rank: host for rank, host in enumerate(seats.ranks) if host >= 0}
        for rank, host in kept.items():
            if rank not in pods.kept:
                left[host] -= np.array(pods.requests, dtype=np.int64)
        standing.append(replace(pods, kept=kept))
    return replace(gang, pod_sets=tuple(standing)), replace(room, free=left)
