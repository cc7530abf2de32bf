"""Places several batches on the same hosts one after the other, scarcest first, with backtracking.

Each batch goes where it opens the fewest domains, or, in a second try, to the hosts that later batches need least. When
a later batch does not fit, the search tries the next domains for the earlier ones. Sound, but not complete: a plan that
it misses may still exist (`exact_gang` decides).
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
from engine.planner.feasibility import fitting_domains
from engine.planner.plan import even_plan, fewest_hosts, fill, one_host
from engine.planner.search import fewest_domains
from engine.planner.slices import whole_slots
from engine.planner.sums import DomainSums, domain_sums, marks
from engine.planner.tree import Bools, Ints64, Tree

# Number of domains of the required level that are tried for pods that join a gang, in the order of their bounds.
_DOMAINS = 16


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlacement:
    """Pods per host, the domains opened per level, and whether no placement opens fewer."""

    pods: Ints64
    opened: tuple[int, ...]
    proven: bool


def place(
    sums: DomainSums, count: int, require: int, *, levelled: bool, steps: int, prefer: int | None = None
) -> BatchPlacement | None:
    """Place `count` pods in one domain of level `require` (-1: anywhere); None when no domain holds them.

    Not `levelled`: only the number of hosts counts. `prefer` as for `even_plan`. Feasibility is exact.
    """
    if require < 0 or len(sums.slots[require]):
        found = (
            _place_growth(sums, count, require, steps)
            if sums.used
            else _place_evenly(sums, count, require, levelled=levelled, steps=steps, prefer=prefer)
            if sums.balanced
            else _place_new(sums, count, require, levelled, steps)
        )
        if found is not None:
            pods, proven = found
            return BatchPlacement(pods, choice(sums, np.flatnonzero(pods)).used, proven)
    return None


def _filled(sums: DomainSums, best: Choice, count: int) -> Ints64:
    """Return the pods per host when these hosts are filled in tree order."""
    pods = np.zeros_like(sums.slots[-1])
    for host, number in fill(sums, best.hosts, count):
        pods[host] = number
    return pods


def _place_evenly(
    sums: DomainSums, count: int, require: int, *, levelled: bool, steps: int, prefer: int | None
) -> tuple[Ints64, bool] | None:
    level = lowest_fit(sums, count)
    if level is None or level < require:
        return None
    if level == len(sums.slots) - 1:
        return _filled(sums, one_host(sums, count), count), True
    pods = np.zeros_like(sums.slots[-1])
    levelled |= sums.grain is not None
    (hosts, shares), proven = even_plan(sums, level, count, levelled=levelled, prefer=prefer, steps=steps)
    pods[hosts] = shares
    return pods, proven


def _place_new(sums: DomainSums, count: int, require: int, levelled: bool, steps: int) -> tuple[Ints64, bool] | None:
    level = lowest_fit(sums, count)
    if level is None or level < require:
        return None
    if level == len(sums.slots) - 1:
        return _filled(sums, one_host(sums, count), count), True
    if not levelled and sums.grain is None:
        return _filled(sums, fewest_hosts(sums, level, count), count), True
    best, proven = fewest_domains(sums, level, candidates(sums, level, count), count, steps)
    return _filled(sums, best, count), proven


def _place_growth(sums: DomainSums, count: int, require: int, steps: int) -> tuple[Ints64, bool] | None:
    """Return the best of the required level's domains; a new one opens its new ancestors too."""
    tree = sums.tree
    assert sums.used is not None
    fitting = [0] if require < 0 else np.flatnonzero(sums.slots[require] >= count).tolist()
    ordered = []
    for domain in fitting:
        candidate = growth(sums, require, domain, count)
        if candidate is not None:
            above = [not sums.used[up][tree.ancestors(require, up)[domain]] for up in range(require)]
            own = [] if require < 0 else [not sums.used[require][domain]]
            size = 0 if require < 0 else int(sums.slots[require][domain])
            bound = (*map(int, above + own), *candidate.bound)
            ordered.append((bound, -size if sums.spread else size, candidate.domain, candidate))
    best: Choice | None = None
    proven = True
    for bound, _, _, candidate in sorted(ordered, key=lambda one: one[:3])[:_DOMAINS]:
        if best is not None and bound >= best.used:
            break
        reached, decided = fewest_domains(sums, require, iter([candidate]), count, steps)
        proven &= decided
        if best is None or reached.used < best.used:
            best = reached
    if best is None:
        return None
    skipped = sorted(one[0] for one in ordered)[_DOMAINS:]
    return _filled(sums, best, count), proven and not (skipped and skipped[0] < best.used)


Cost = tuple[int, ...]

# Number of domains of its required level that are tried for a batch. More are rarely worth it before the exact search.
_TRIES = 8
_LEAST_STEPS = 100  # a try takes as long as that many pairs of the exact search, however few hosts there are
_HOSTS_PER_STEP = 10


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Pods per host of every batch, and the domains opened per level, summed over the groups."""

    pods: tuple[Ints64, ...]
    cost: Cost


def cost_of(tree: Tree, batched: BatchedGang, pods: tuple[Ints64, ...]) -> Cost:
    """Return the number of domains that a layout opens at every level, counted once per group."""
    total = np.zeros(len(tree.levels), dtype=np.int64)
    for group in batched.groups:
        if group.batches:
            hosts = np.flatnonzero(sum(pods[batch] for batch in group.batches))
            opened = marks(tree, hosts)
            for level, counts in enumerate(group.counted):
                if counts:
                    new = opened[level] if group.used is None else opened[level] & ~group.used[level]
                    total[level] += int(new.sum())
    return tuple(total.tolist())


class BacktrackingSearch:
    """The backtracking search for one gang; `profile` as for `PlanRequest`."""

    def __init__(self, batched: BatchedGang, *, profile: str, steps: Steps) -> None:
        capacity = batched.capacity
        self._tree = capacity.tree
        self._batched = batched
        self._free = capacity.free
        self._scarce = capacity.scarce
        self._scores = capacity.scores
        self._profile = profile
        self._steps = steps

    def run(self, goal: Cost) -> Layout | None:
        """Return the best layout of a few orders of the batches; stops at one within `goal` (domains per level)."""
        best: Layout | None = None
        for order in self._orders():
            try:
                pods = self._place_batches(order, {}, self._free)
            except OutOfSteps:
                break
            if pods is not None:
                layout = tuple(pods[batch] for batch in range(len(self._batched.batches)))
                found = Layout(layout, cost_of(self._tree, self._batched, layout))
                if best is None or found.cost < best.cost:
                    best = found
                if best.cost <= goal:
                    break
        return best

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """Yield orders of the batches by scarcity, each with another batch moved to the front."""
        batches = self._batched.batches
        ratios = [int(slots.sum()) / batch.count for batch, slots in zip(batches, self._batched.slots, strict=True)]
        # The first batch of a group is divided evenly, the others join it: the largest one should be the first.
        largest = [-batch.count if self._profile == "balanced" else 0 for batch in batches]
        scarce = sorted(range(len(batches)), key=lambda i: (largest[i], ratios[i], -batches[i].count, i))
        for first in scarce:
            yield (first, *(batch for batch in scarce if batch != first))

    def _place_batches(
        self, order: tuple[int, ...], taken: dict[int, Ints64], free: Ints64
    ) -> dict[int, Ints64] | None:
        index, later = order[0], order[1:]
        batch = self._batched.batches[index]
        for inside in self._domains(index, taken, free):
            for placed in self._placements(index, inside, later, taken, free):
                now = {**taken, index: placed.pods}
                if not later:
                    return now
                found = self._place_batches(later, now, free - placed.pods[:, None] * batch.requests)
                if found is not None:
                    return found
        return None

    def _domains(self, index: int, taken: dict[int, Ints64], free: Ints64) -> Iterator[Bools]:
        """Yield masks of hosts for the batch: inside the domains decided so far, one open domain at a time."""
        tree, batches = self._tree, self._batched.batches
        mask: Bools = np.ones(len(tree.hosts), dtype=np.bool_)
        fits: Bools | None = None
        level = -1
        for shared in self._batched.shared_domains_of(index):
            placed = [one for one in taken if one in shared.batches]
            if placed:
                host = int(np.flatnonzero(taken[placed[0]])[0])
                mask &= tree.domains[shared.level] == tree.domains[shared.level][host]
            else:
                rest = [one for one in shared.batches if one not in taken]
                here = fitting_domains(self._batched, shared.level, rest, free)
                if fits is not None:
                    here &= fits[tree.ancestors(shared.level, level)]
                fits, level = here, shared.level
        if fits is None:
            yield mask
            return
        batch = batches[index]
        state = self._sums(batch, np.where(mask, self._batched.slots_on(index, free), 0), taken)
        fitting = np.flatnonzero(fits & (state.slots[level] >= batch.count))
        for domain in self._by_bound(state, level, fitting, batch.count)[:_TRIES]:
            yield mask & (tree.domains[level] == domain)

    def _by_bound(self, state: DomainSums, level: int, fitting: Ints64, count: int) -> list[int]:
        """Return domains by the fewest domains needed below (a lower bound), then by the pack key."""
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

    def _placements(
        self, index: int, inside: Bools, later: tuple[int, ...], taken: dict[int, Ints64], free: Ints64
    ) -> Iterator[BatchPlacement]:
        batch = self._batched.batches[index]
        group = self._batched.groups[batch.group]
        slots = np.where(inside, self._batched.slots_on(index, free), 0)
        for contended in (True, False) if later else (True,):
            option = slots if contended else self._least_contended(batch, slots, later, free)
            self._steps.take(max(_LEAST_STEPS, len(slots) // _HOSTS_PER_STEP))
            state = self._sums(batch, option, taken)
            found = place(
                state, batch.count, -1, levelled=group.counted[0], steps=self._steps.left // 8, prefer=batch.prefer
            )
            if found is not None:
                yield found

    def _least_contended(self, batch: PodBatch, slots: Ints64, later: tuple[int, ...], free: Ints64) -> Ints64:
        """Return slots on just enough hosts for the batch, starting with those that later batches need least."""
        loss = np.zeros(len(slots), dtype=np.float64)
        for other in later:
            theirs = self._batched.slots_on(other, free)
            loss += theirs / max(int(theirs.sum()), 1)
        order = np.lexsort((np.arange(len(slots)), -slots, loss / np.maximum(slots, 1)))
        low, high = 1, len(slots)
        while low < high:
            middle = (low + high) // 2
            held = whole_slots(
                self._tree, _restricted_to(slots, order[:middle]), batch.grain, len(self._tree.levels) - 1
            )
            low, high = (low, middle) if held[0].sum() >= batch.count else (middle + 1, high)
        return _restricted_to(slots, order[:low])

    def _sums(self, batch: PodBatch, slots: Ints64, taken: dict[int, Ints64]) -> DomainSums:
        group = self._batched.groups[batch.group]
        state = domain_sums(
            self._tree,
            slots,
            self._scarce,
            spread=self._profile == "spread",
            grain=batch.grain if batch.sliced else None,
            balanced=self._profile == "balanced",
            scores=self._scores,
            count=batch.count,
        )
        used = group.used
        for other in group.batches:
            if other in taken:
                more = marks(self._tree, np.flatnonzero(taken[other]))
                used = more if used is None else tuple(a | b for a, b in zip(used, more, strict=True))
        state.used = used
        return state


def _restricted_to(slots: Ints64, hosts: Ints64) -> Ints64:
    some = np.zeros_like(slots)
    some[hosts] = slots[hosts]
    return some
