"""Places several batches on the same hosts one after the other, scarcest first, with backtracking.

Each lot goes where it opens the fewest domains, or, in a second try, to hosts that the lots after it miss least. When a
later lot finds no room, the domains of the earlier ones are taken back one by one. Sound, but not complete: what this
does not find may still exist (`mixed` decides).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.planner.batches import BatchedGang, PodBatch
from engine.planner.bounds import candidates, growth, lowest_fit
from engine.planner.cover import fewest
from engine.planner.descent import Choice, choice
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.feasibility import roomy
from engine.planner.gang import HostCapacity
from engine.planner.plan import fewest_hosts, fill, one_host
from engine.planner.search import fewest_domains
from engine.planner.slices import whole_slots
from engine.planner.sums import DomainSums, domain_sums, marks
from engine.planner.tree import Bools, Ints64, Tree

# Domains of the required level that pods joining a gang are tried in, in the order of their bounds.
_DOMAINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlacement:
    """Pods per host, the domains opened per level, and whether no placement opens fewer."""

    pods: Ints64
    opened: tuple[int, ...]
    proven: bool


def place(amounts: DomainSums, count: int, require: int, *, levelled: bool, steps: int) -> BatchPlacement | None:
    """Place `count` pods in one domain of level `require` (-1: anywhere); None when no domain holds them.

    Not `levelled`: only the number of hosts counts. Feasibility is exact.
    """
    if require < 0 or len(amounts.slots[require]):
        found = (
            _beside(amounts, count, require, steps) if amounts.used else _anew(amounts, count, require, levelled, steps)
        )
        if found is not None:
            best, proven = found
            pods = np.zeros_like(amounts.slots[-1])
            for host, number in fill(amounts, best.hosts, count):
                pods[host] = number
            return BatchPlacement(pods, choice(amounts, np.flatnonzero(pods)).used, proven)
    return None


def _anew(amounts: DomainSums, count: int, require: int, levelled: bool, steps: int) -> tuple[Choice, bool] | None:
    level = lowest_fit(amounts, count)
    if level is None or level < require:
        return None
    if level == len(amounts.slots) - 1:
        return one_host(amounts, count), True
    if not levelled and amounts.grain is None:
        return fewest_hosts(amounts, level, count), True
    return fewest_domains(amounts, level, candidates(amounts, level, count), count, steps)


def _beside(amounts: DomainSums, count: int, require: int, steps: int) -> tuple[Choice, bool] | None:
    """The best of the required level's domains; those above it are opened too where they are new."""
    tree = amounts.tree
    assert amounts.used is not None
    fitting = [0] if require < 0 else np.flatnonzero(amounts.slots[require] >= count).tolist()
    ordered = []
    for domain in fitting:
        candidate = growth(amounts, require, domain, count)
        if candidate is not None:
            above = [not amounts.used[up][tree.ancestors(require, up)[domain]] for up in range(require)]
            own = [] if require < 0 else [not amounts.used[require][domain]]
            size = 0 if require < 0 else int(amounts.slots[require][domain])
            bound = (*map(int, above + own), *candidate.bound)
            ordered.append((bound, -size if amounts.spread else size, candidate.domain, candidate))
    best: Choice | None = None
    proven = True
    for bound, _, _, candidate in sorted(ordered, key=lambda one: one[:3])[:_DOMAINS]:
        if best is not None and bound >= best.used:
            break
        reached, decided = fewest_domains(amounts, require, iter([candidate]), count, steps)
        proven &= decided
        if best is None or reached.used < best.used:
            best = reached
    if best is None:
        return None
    skipped = sorted(one[0] for one in ordered)[_DOMAINS:]
    return best, proven and not (skipped and skipped[0] < best.used)


Cost = tuple[int, ...]

# Domains of its required level that a lot is tried in. More than a few are rarely worth it before the exact search.
_TRIES = 8
_LEAST_STEPS = 100  # a try takes as long as that many pairs of the exact search, however few hosts there are
_HOSTS_PER_STEP = 10


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Pods per host of every lot, and the domains opened per level, summed over the kins."""

    pods: tuple[Ints64, ...]
    cost: Cost


def cost_of(tree: Tree, parts: BatchedGang, pods: tuple[Ints64, ...]) -> Cost:
    """Domains that a layout opens at every level, counted once per kin."""
    total = np.zeros(len(tree.levels), dtype=np.int64)
    for kin in parts.kins:
        if kin.lots:
            hosts = np.flatnonzero(sum(pods[lot] for lot in kin.lots))
            opened = marks(tree, hosts)
            for level, counts in enumerate(kin.counted):
                if counts:
                    new = opened[level] if kin.used is None else opened[level] & ~kin.used[level]
                    total[level] += int(new.sum())
    return tuple(total.tolist())


class BacktrackingSearch:
    """The search for one gang; `spread` turns the order of ties round."""

    def __init__(self, room: HostCapacity, parts: BatchedGang, *, spread: bool, steps: Steps) -> None:
        self._tree = room.tree
        self._parts = parts
        self._free = room.free
        self._scarce = room.scarce
        self._spread = spread
        self._steps = steps

    def run(self, goal: Cost) -> Layout | None:
        """The best layout of a few orders of the lots; the first one that opens no more domains than `goal`."""
        best: Layout | None = None
        for order in self._orders():
            try:
                pods = self._rest(order, {}, self._free)
            except OutOfSteps:
                break
            if pods is not None:
                layout = tuple(pods[lot] for lot in range(len(self._parts.lots)))
                found = Layout(layout, cost_of(self._tree, self._parts, layout))
                if best is None or found.cost < best.cost:
                    best = found
                if best.cost <= goal:
                    break
        return best

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """The scarcest lot first, then each other one first."""
        lots = self._parts.lots
        room = [int(lot.slots(self._free).sum()) / lot.count for lot in lots]
        scarce = sorted(range(len(lots)), key=lambda i: (room[i], -lots[i].count, i))
        for first in scarce:
            yield (first, *(lot for lot in scarce if lot != first))

    def _rest(self, order: tuple[int, ...], taken: dict[int, Ints64], free: Ints64) -> dict[int, Ints64] | None:
        if not order:
            return taken
        index, later = order[0], order[1:]
        lot = self._parts.lots[index]
        for inside in self._domains(index, taken, free):
            for placed in self._ways(index, inside, later, taken, free):
                left = free - placed.pods[:, None] * lot.requests
                found = self._rest(later, {**taken, index: placed.pods}, left)
                if found is not None:
                    return found
        return None

    def _domains(self, index: int, taken: dict[int, Ints64], free: Ints64) -> Iterator[Bools]:
        """Masks of the hosts that the lot may go to: inside the domains decided so far, one open domain at a time."""
        tree, lots = self._tree, self._parts.lots
        mask: Bools = np.ones(len(tree.hosts), dtype=np.bool_)
        fits: Bools | None = None
        level = -1
        for tie in self._parts.ties_of(index):
            mates = [one for one in taken if one in tie.lots]
            if mates:
                host = int(np.flatnonzero(taken[mates[0]])[0])
                mask &= tree.domains[tie.level] == tree.domains[tie.level][host]
            else:
                rest = [lots[one] for one in tie.lots if one not in taken]
                here = roomy(tree, tie.level, rest, free)
                if fits is not None:
                    here &= fits[tree.ancestors(tie.level, level)]
                fits, level = here, tie.level
        if fits is None:
            yield mask
            return
        lot = lots[index]
        state = self._amounts(lot, np.where(mask, lot.slots(free), 0), taken)
        fitting = np.flatnonzero(fits & (state.slots[level] >= lot.count))
        for domain in self._in_order(state, level, fitting, lot.count)[:_TRIES]:
            yield mask & (tree.domains[level] == domain)

    def _in_order(self, state: DomainSums, level: int, fitting: Ints64, count: int) -> list[int]:
        """Domains that need the fewest others below first (as if none stood in the way), then by the pack key."""
        if not len(fitting):
            return []
        keys: list[Ints64] = []
        for below in range(level + 1, len(state.slots)):
            pool, starts = self._tree.descendants(level, fitting, below)
            keys.append(fewest(state.slots[below][pool], starts, count))
        keys += state.preference(level, fitting)
        order = np.lexsort([fitting, *reversed(keys)])
        ordered: list[int] = fitting[order].tolist()
        return ordered

    def _ways(
        self, index: int, inside: Bools, later: tuple[int, ...], taken: dict[int, Ints64], free: Ints64
    ) -> Iterator[BatchPlacement]:
        lot = self._parts.lots[index]
        kin = self._parts.kins[lot.kin]
        slots = np.where(inside, lot.slots(free), 0)
        ways = [slots]
        if later:
            ways.append(self._spare(lot, slots, later, free))
        for way in ways:
            self._steps.take(max(_LEAST_STEPS, len(slots) // _HOSTS_PER_STEP))
            state = self._amounts(lot, way, taken)
            found = place(state, lot.count, -1, levelled=kin.counted[0], steps=self._steps.left // 8)
            if found is not None:
                yield found

    def _spare(self, lot: PodBatch, slots: Ints64, later: tuple[int, ...], free: Ints64) -> Ints64:
        """The slots of just so many hosts as hold the lot, those first that the lots after it miss least."""
        loss = np.zeros(len(slots), dtype=np.float64)
        for other in later:
            theirs = self._parts.lots[other].slots(free)
            loss += theirs / max(int(theirs.sum()), 1)
        order = np.lexsort((np.arange(len(slots)), -slots, loss / np.maximum(slots, 1)))
        low, high = 1, len(slots)
        while low < high:
            middle = (low + high) // 2
            room = whole_slots(self._tree, _only(slots, order[:middle]), lot.grain, len(self._tree.levels) - 1)
            low, high = (low, middle) if room[0].sum() >= lot.count else (middle + 1, high)
        return _only(slots, order[:low])

    def _amounts(self, lot: PodBatch, slots: Ints64, taken: dict[int, Ints64]) -> DomainSums:
        kin = self._parts.kins[lot.kin]
        state = domain_sums(
            self._tree, slots, self._scarce, spread=self._spread, grain=lot.grain if lot.sliced else None
        )
        used = kin.used
        for mate in kin.lots:
            if mate in taken:
                more = marks(self._tree, np.flatnonzero(taken[mate]))
                used = more if used is None else tuple(a | b for a, b in zip(used, more, strict=True))
        state.used = used
        return state


def _only(slots: Ints64, hosts: Ints64) -> Ints64:
    some = np.zeros_like(slots)
    some[hosts] = slots[hosts]
    return some
