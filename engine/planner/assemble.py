"""From a gang to its plan: the uniform search where all pods are alike, else lot after lot, then the exact search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.planner.amounts import Amounts, amounts
from engine.planner.bounds import lowest_fit
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.fits import kin_bound, roomy, shortage
from engine.planner.gang import Gang, GangPlan, Room, Seats, Undecided
from engine.planner.joint import Cost, Joint, Layout, cost_of
from engine.planner.lots import Lot, Parts, take_apart
from engine.planner.mixed import Mixed
from engine.planner.order import in_order
from engine.planner.place import Placed, place
from engine.planner.plan import NoFit, no_fit
from engine.planner.slices import grains
from engine.planner.tree import Ints64, Tree

_MOST_SLOTS = (1 << 31) - 1


def assemble(room: Room, gang: Gang, counts: Sequence[int]) -> GangPlan | NoFit | Undecided:
    """A plan for `counts[i]` pods of pod set i; the arguments have been checked."""
    parts = take_apart(room, gang, counts)
    room = parts.room
    if not parts.lots:
        return _seated(room.tree, gang, parts, (), proven=True)
    alone: list[Placed] = []
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


def _level(parts: Parts, lot: int) -> int:
    return max((tie.level for tie in parts.ties_of(lot)), default=-1)


def _state(room: Room, gang: Gang, parts: Parts, index: int) -> Amounts:
    lot = parts.lots[index]
    spread = gang.profile == "spread"
    grain = lot.grain if lot.sliced else None
    state = amounts(room.tree, lot.slots(room.free), room.scarce, spread=spread, grain=grain)
    state.used = parts.kins[lot.kin].used
    return state


def _together(room: Room, gang: Gang, parts: Parts, alone: list[Placed]) -> GangPlan | NoFit | Undecided:
    goal = _goal(room, parts, alone)
    quick = Steps(gang.steps // 2)
    joint = Joint(room, parts, spread=gang.profile == "spread", steps=quick)
    best = joint.run(goal)
    proven = best is not None and best.cost <= goal
    if not proven:
        steps = Steps(gang.steps - gang.steps // 2 + quick.left)
        try:
            pods = Mixed(room, parts, below=best.cost if best else None, steps=steps).run()
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


def _goal(room: Room, parts: Parts, alone: list[Placed]) -> Cost:
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


def _too_small(room: Room, lot: Lot, level: int) -> NoFit:
    """The numbers of a lot that does not fit, counted without the others: of the first pod set that does not by itself.

    Where pods of several pod sets are alike and each pod set has room by itself, no pod set is named.
    """
    grain = grains(lot.slices, len(room.tree.levels)) if lot.slices else None
    state = amounts(room.tree, lot.slots(room.free, _MOST_SLOTS), None, spread=False, grain=grain)
    most = int(state.slots[level].max(initial=0)) if level >= 0 else int(state.slots[0].sum())
    owners = Counter(pod_set for pod_set, _ in lot.ranks)
    large = next((owner for owner, count in sorted(owners.items()) if count > most), None)
    pod_set = large if len(owners) > 1 else next(iter(owners))
    answer = no_fit(state, level, lowest_fit(state, lot.count if pod_set is None else owners[pod_set]))
    return replace(answer, pod_set=pod_set)


def _too_tight(room: Room, parts: Parts) -> NoFit | None:
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


def _seated(tree: Tree, gang: Gang, parts: Parts, pods: tuple[Ints64, ...], *, proven: bool) -> GangPlan:
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
        seats.append(Seats(tuple(zip(filled.tolist(), number.tolist(), strict=True)), tuple(hosts.tolist())))
    everyone = np.unique(np.concatenate(ranks))
    everyone = everyone[everyone >= 0]
    used = tuple(len(np.unique(domains[everyone])) for domains in tree.domains)
    return GangPlan(tuple(seats), used, proven)
