"""Plans a gang of several pod sets: uniform search, batch by batch, exact search; then the order of its hosts.

A search places the scarcest pods first, so that the one pod that leads the others (a master, a launcher) may land
behind them for no reason. Here two hosts exchange all that was planned on them, where both are as good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

import numpy as np

from engine.planner.backtrack import BacktrackingSearch, BatchPlacement, Cost, Layout, cost_of, place
from engine.planner.batches import BatchedGang, PodBatch, split_gang
from engine.planner.bounds import lowest_fit
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.exact_gang import ExactGangSearch
from engine.planner.feasibility import kin_bound, roomy, shortage
from engine.planner.gang import (
    GangPlan,
    GangPlanRequest,
    HostAssignment,
    HostCapacity,
    PodSetPlanRequest,
    Undecided,
    check_gang,
)
from engine.planner.plan import NoFit, no_fit
from engine.planner.slices import grains
from engine.planner.sums import DomainSums, domain_sums
from engine.planner.tree import Bools, Ints64, Tree

# Exchanges that are looked at: pods that lead are few.
_TRIES = 64


def in_order(room: HostCapacity, parts: BatchedGang, pods: tuple[Ints64, ...]) -> tuple[Ints64, ...]:
    """The same pods per host, exchanged between hosts so that those of the first ranks come first in tree order.

    No exchange breaks what a lot asks for, opens a domain more, or moves pods that come before to the back. Of a gang
    with pods that stay nothing is exchanged: `pods` are those that join them.
    """
    if any(kin.used is not None for kin in parts.kins):
        return pods
    hosts = np.flatnonzero(sum(pods))
    planned = np.stack(pods)[:, hosts]
    order = sorted(range(len(parts.lots)), key=lambda lot: parts.lots[lot].ranks[0])
    tries = _TRIES
    for number, lot in enumerate(order[:-1]):
        before = planned[order[: number + 1]]
        first = 0
        for at in np.flatnonzero(planned[lot]).tolist():
            ahead = np.flatnonzero(_exchangeable(room, parts, planned, hosts, at)[:at])
            ahead = ahead[(ahead >= first) & (before[:, ahead].sum(axis=0) == 0)]
            first = at + 1
            for other in ahead.tolist():
                if tries <= 0:
                    return _spread(room, hosts, planned)
                tries -= 1
                exchanged = planned.copy()
                exchanged[:, [at, other]] = planned[:, [other, at]]
                if _as_good(room, parts, hosts, planned, exchanged):
                    planned, first = exchanged, other + 1
                    before = planned[order[: number + 1]]
                    break
    return _spread(room, hosts, planned)


def _exchangeable(room: HostCapacity, parts: BatchedGang, planned: Ints64, hosts: Ints64, place: int) -> Bools:
    """Per host, whether it has room for all that was planned on the one at `place`, and that one for what it has."""
    needs = planned.T @ np.stack([lot.requests for lot in parts.lots])
    free = room.free[hosts]
    eligible = np.stack([lot.eligible[hosts] for lot in parts.lots])
    there = ((needs[place] <= free) | (needs[place] == 0)).all(axis=1) & eligible[planned[:, place] > 0].all(axis=0)
    here = ((needs <= free[place]) | (needs == 0)).all(axis=1)
    found: Bools = there & here & ((planned == 0) | eligible[:, [place]]).all(axis=0)
    return found


def _as_good(room: HostCapacity, parts: BatchedGang, hosts: Ints64, before: Ints64, after: Ints64) -> bool:
    """Whether the pods of each lot still share the domains that they have to, and no more domains are opened."""
    tree = room.tree
    for lot, pods in zip(parts.lots, after, strict=True):
        for level, size in enumerate(lot.grain):
            if size > 1 and (np.bincount(tree.domains[level][hosts], weights=pods) % size).any():
                return False
    for tie in parts.ties:
        together = hosts[after[sorted(tie.lots)].sum(axis=0) > 0]
        if len(np.unique(tree.domains[tie.level][together])) > 1:
            return False
    costs = [cost_of(tree, parts, _spread(room, hosts, planned)) for planned in (before, after)]
    return costs[1] <= costs[0]


def _spread(room: HostCapacity, hosts: Ints64, planned: Ints64) -> tuple[Ints64, ...]:
    """Pods per host of the whole tree, by lot."""
    pods = np.zeros((len(planned), len(room.tree.hosts)), dtype=np.int64)
    pods[:, hosts] = planned
    return tuple(pods)


_MOST_SLOTS = (1 << 31) - 1


def assemble(room: HostCapacity, gang: GangPlanRequest, counts: Sequence[int]) -> GangPlan | NoFit | Undecided:
    """A plan for `counts[i]` pods of pod set i; the arguments have been checked."""
    parts = split_gang(room, gang, counts)
    room = parts.room
    if not parts.lots:
        return _seated(room.tree, gang, parts, (), proven=True)
    alone: list[BatchPlacement] = []
    for index, lot in enumerate(parts.lots):
        level = _level(parts, index)
        state = _state(room, gang, parts, index)
        found = place(state, lot.count, level, levelled=parts.kins[lot.kin].counted[0], steps=gang.steps)
        if found is None:
            return _too_small(room, lot, level)
        alone.append(found)
    if len(alone) == 1:
        return _seated(room.tree, gang, parts, (alone[0].pods,), proven=alone[0].proven)
    return _too_tight(room, parts) or _together(room, gang, parts, alone)


def _level(parts: BatchedGang, lot: int) -> int:
    return max((tie.level for tie in parts.ties_of(lot)), default=-1)


def _state(room: HostCapacity, gang: GangPlanRequest, parts: BatchedGang, index: int) -> DomainSums:
    lot = parts.lots[index]
    spread = gang.profile == "spread"
    grain = lot.grain if lot.sliced else None
    state = domain_sums(room.tree, lot.slots(room.free), room.scarce, spread=spread, grain=grain)
    state.used = parts.kins[lot.kin].used
    return state


def _together(
    room: HostCapacity, gang: GangPlanRequest, parts: BatchedGang, alone: list[BatchPlacement]
) -> GangPlan | NoFit | Undecided:
    goal = _goal(room, parts, alone)
    quick = Steps(gang.steps // 2)
    joint = BacktrackingSearch(room, parts, spread=gang.profile == "spread", steps=quick)
    best = joint.run(goal)
    proven = best is not None and best.cost <= goal
    if not proven:
        steps = Steps(gang.steps - gang.steps // 2 + quick.left)
        try:
            pods = ExactGangSearch(room, parts, below=best.cost if best else None, steps=steps).run()
        except OutOfSteps:
            if best is None:
                return Undecided(gang.steps)
        else:
            proven = True
            if pods is not None:
                best = Layout(pods, cost_of(room.tree, parts, pods))
    if best is None:
        return NoFit(-1, 1, -1, 0, 0, None, None)
    return _seated(room.tree, gang, parts, in_order(room, parts, best.pods), proven=proven)


def _goal(room: HostCapacity, parts: BatchedGang, alone: list[BatchPlacement]) -> Cost:
    """Domains that no plan can do without: of each kin at least what its neediest lot opens alone."""
    total = [0] * len(room.tree.levels)
    for kin in parts.kins:
        bound = kin_bound(room, kin, [parts.lots[lot] for lot in kin.lots], parts.ties)
        for lot in kin.lots:
            if alone[lot].proven:
                opened = tuple(n if c else 0 for n, c in zip(alone[lot].opened, kin.counted, strict=True))
                bound = max(bound, opened)
        total = [a + b for a, b in zip(total, bound, strict=True)]
    return tuple(total)


def _too_small(room: HostCapacity, lot: PodBatch, level: int) -> NoFit:
    """The numbers of a lot that does not fit, counted without the others: of the first pod set that does not by itself.

    Where pods of several pod sets are alike and each pod set has room by itself, no pod set is named.
    """
    grain = grains(lot.slices, len(room.tree.levels)) if lot.slices else None
    state = domain_sums(room.tree, lot.slots(room.free, _MOST_SLOTS), None, spread=False, grain=grain)
    most = int(state.slots[level].max(initial=0)) if level >= 0 else int(state.slots[0].sum())
    owners = Counter(pod_set for pod_set, _ in lot.ranks)
    large = next((owner for owner, count in sorted(owners.items()) if count > most), None)
    pod_set = large if len(owners) > 1 else next(iter(owners))
    answer = no_fit(state, level, lowest_fit(state, lot.count if pod_set is None else owners[pod_set]))
    return replace(answer, pod_set=pod_set)


def _too_tight(room: HostCapacity, parts: BatchedGang) -> NoFit | None:
    """A proof that lots that have room each for itself have none together; None: there is no such quick proof."""
    tree, free = room.tree, room.free
    if (shortage(tree, -1, parts.lots, free) > 0).any():
        return NoFit(-1, 1, -1, 0, 0, None, None)
    for tie in parts.ties:
        members = [parts.lots[lot] for lot in sorted(tie.lots)]
        if len(members) > 1 and not roomy(tree, tie.level, members, free).any():
            coarser = (up for up in range(tie.level - 1, -1, -1) if (shortage(tree, up, members, free) <= 0).any())
            best = int(shortage(tree, tie.level, members, free).argmin())
            return NoFit(tie.level, tree.size(tie.level), best, 0, 0, next(coarser, -1), None)
    return None


def _seated(
    tree: Tree, gang: GangPlanRequest, parts: BatchedGang, pods: tuple[Ints64, ...], *, proven: bool
) -> GangPlan:
    """Ranks on hosts, in tree order within every lot."""
    ranks = [np.full(one.count, -1, dtype=np.int64) for one in gang.pod_sets]
    for one, hosts in zip(gang.pod_sets, ranks, strict=True):
        for rank, host in one.kept.items():
            hosts[rank] = host
    for lot, placed in zip(parts.lots, pods, strict=True):
        hosts = np.repeat(np.arange(len(placed)), placed)
        for (pod_set, rank), host in zip(lot.ranks, hosts.tolist(), strict=True):
            ranks[pod_set][rank] = host
    seats = []
    for hosts in ranks:
        filled, number = np.unique(hosts[hosts >= 0], return_counts=True)
        seats.append(HostAssignment(tuple(zip(filled.tolist(), number.tolist(), strict=True)), tuple(hosts.tolist())))
    everyone = np.unique(np.concatenate(ranks))
    everyone = everyone[everyone >= 0]
    used = tuple(len(np.unique(domains[everyone])) for domains in tree.domains)
    return GangPlan(tuple(seats), used, proven)


# Ways to share out a gang's minimum over its pod sets that are tried; with more of them, a no is not certain.
_MINIMUMS = 64


def plan_gang(
    tree: Tree, free: Ints64, gang: GangPlanRequest, scarce: Ints64 | None = None
) -> GangPlan | NoFit | Undecided:
    """Place the pod sets of a gang on the hosts of `tree`, all or nothing.

    `free` is [host, resource]: what is free of each resource (negative: nothing), beside the pods that stay; `scarce`
    as for `plan`. NoFit is certain; a gang of unlike pods whose search needs more than `gang.steps` is Undecided. Where
    fewer than all pods are enough to start, as many are placed as there is room for. Same arguments, same plan. Raises
    ValueError, which names the argument, for what makes no sense.
    """
    room = HostCapacity(tree, free, scarce)
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


def _least(gang: GangPlanRequest) -> list[int]:
    """Pods of every set that have to be among the first, in whole slices; at least those that are there."""
    default = 0 if gang.least is not None else None
    return [
        max(_whole(pods, pods.least if pods.least is not None else default), len(pods.kept)) for pods in gang.pod_sets
    ]


def _size(pods: PodSetPlanRequest) -> int:
    return pods.slices[0].size if pods.slices else 1


def _whole(pods: PodSetPlanRequest, number: int | None) -> int:
    return pods.count if number is None else -(-number // _size(pods)) * _size(pods)


def _minimums(gang: GangPlanRequest) -> Iterator[tuple[int, ...]]:
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


def _grown(room: HostCapacity, gang: GangPlanRequest, counts: tuple[int, ...], core: GangPlan) -> GangPlan:
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


def _as_it_stands(room: HostCapacity, gang: GangPlanRequest, plan: GangPlan) -> tuple[GangPlanRequest, HostCapacity]:
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
