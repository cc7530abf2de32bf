"""Exact search: the lexicographically fewest domains, level by level, by dynamic programming over the tree.

Costs are vectors of domain counts, packed into one integer, coarsest level in the highest bits. They form an ordered
group under addition, so a part of an optimum is an optimum of its part: a domain is fully described by its frontier,
the most pods for every cost. Frontiers of siblings merge by adding all pairs; the size of a frontier follows the
number of hosts, not of pods. Where a domain must hold whole slices, the pods of its frontier are cut to them; domains
that the gang uses already cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from engine.planner.cover import fewest_of
from engine.planner.sums import DomainSums
from engine.planner.tree import Bools, Ints64

Reaches = list[Ints64]

_COST_BITS = 62
_MERGE = 100  # a merge takes some 50 us besides its pairs: as long as a hundred of them and more
_NOTHING = np.zeros(1, dtype=np.int64)
_NOTHING.flags.writeable = False
_NO_DOMAINS = np.zeros(0, dtype=np.int64)


class OutOfSteps(Exception):
    """The search would take more than the allowed steps."""


@dataclass(slots=True)
class Steps:
    """The remaining budget of one decision, in pairs of partial placements; each merge counts a hundred more."""

    left: int

    def take(self, pairs: int) -> None:
        """Subtract `pairs` from the budget. Raises OutOfSteps when it is used up."""
        if pairs > self.left:
            raise OutOfSteps
        self.left -= pairs

    @contextmanager
    def part(self, most: int) -> Iterator[Steps]:
        """Set aside `most` of the steps for one search; those that it leaves come back."""
        lent = Steps(most)
        self.left -= most
        try:
            yield lent
        finally:
            self.left += lent.left


@dataclass(frozen=True, slots=True, eq=False)
class _Leaves:
    """Entry i takes all of `free`, which cost nothing, and the first i of `domains` (largest first)."""

    free: Ints64
    domains: Ints64


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Entry i joins entry `lefts[i]` of `left` and entry `rights[i]` of `right`."""

    left: _Frontier
    right: _Frontier
    lefts: Ints64
    rights: Ints64


@dataclass(frozen=True, slots=True, eq=False)
class _Frontier:
    """Costs and pods, both strictly ascending; entry i is entry `rows[i]` of its source `made`."""

    cost: Ints64
    pods: Ints64
    rows: Ints64
    made: _Leaves | _Pairs | None = None


class Search:
    """The fewest domains of the levels `level + 1 .. leaf` inside one domain of `level` (-1: the whole topology).

    Levels below `leaf` are ignored: a domain of `leaf` counts as one. `caps` are the most domains per level that an
    answer may use; all but the last must be the minimum for this domain, level by level from the coarsest. Only partial
    placements that can be completed within the caps are kept, so tighter caps mean less work.
    """

    def __init__(
        self, sums: DomainSums, *, level: int, domain: int, caps: tuple[int, ...], count: int, steps: Steps
    ) -> None:
        self._sums = sums
        self._count = count
        self._steps = steps
        self._level = level
        self._domain = domain
        self._top = level + 1
        self._leaf = level + len(caps)
        self._caps = caps
        # Kept partial costs are within the caps, so twice the cap holds every sum of two.
        widths = [max(2 * cap, 1).bit_length() for cap in caps]
        if sum(widths) > _COST_BITS:
            raise OutOfSteps
        self._shifts = [sum(widths[i + 1 :]) for i in range(len(caps))]
        self._masks = [(1 << width) - 1 for width in widths]
        pools = [self._pool(below) for below in range(self._top, self._leaf + 1)]
        self._children = [domains for domains, _, _ in pools]
        self._slots = [slots for _, slots, _ in pools]
        self._used = [used for _, _, used in pools]
        everywhere = np.ones(max(sums.tree.size(self._top), 1), dtype=np.bool_)
        self._ahead = self._reaches_in(everywhere)

    def run(self) -> Ints64 | None:
        """Return the domains of `leaf` to use (ascending), or None when there is no answer within the caps."""
        total = self._inside(self._level, self._domain)
        at = int(np.searchsorted(total.pods, self._count))
        return np.sort(_domains(total, at)) if at < len(total.pods) else None

    def _pool(self, below: int) -> tuple[Ints64, Ints64, Bools | None]:
        """Return all domains of a level inside, largest first.

        As arrays: the child of the searched domain that each is in, its slots, and whether it is in use.
        """
        tree = self._sums.tree
        inside = tree.descendants(self._level, np.array([self._domain]), below)[0]
        slots = np.minimum(self._sums.slots[below][inside], self._count)
        order = np.argsort(-slots, kind="stable")
        ordered = inside[order]
        used = None if self._sums.used is None else self._sums.used[below][ordered]
        return tree.ancestors(below, self._top)[ordered].astype(np.int64), slots[order], used

    def _reaches(self, *open_: Ints64, level: int) -> Reaches:
        """Return the most pods in 0, 1, .. cap domains of each level, of these siblings and outside their parent."""
        if level > self._top:
            return self._ahead  # distinguishing siblings further down costs more than it prunes
        among = np.zeros(self._sums.tree.size(level), dtype=bool)
        for domains in open_:
            among[domains] = True
        return self._reaches_in(among)

    def _reaches_in(self, among: Bools) -> Reaches:
        found = []
        for child, slots, used, cap in zip(self._children, self._slots, self._used, self._caps, strict=True):
            here = among[child]
            free = 0 if used is None else int(slots[here & used].sum())
            found.append(_reach(slots[here if used is None else here & ~used], cap, free))
        return found

    def _inside(self, level: int, domain: int) -> _Frontier:
        """Return the frontier of a domain's children, without the cost of the domain itself."""
        below = level + 1
        place = below - self._top
        children = self._sums.tree.children(level, np.array([domain]))
        sizes = np.minimum(self._sums.slots[below][children], self._count)
        used = np.zeros(len(children), dtype=np.bool_)
        if self._sums.used is not None:
            used = self._sums.used[below][children]
        # A domain that leaves more open than the largest others could take is in no answer.
        cap = self._caps[place]
        others = self._ahead[place][min(cap - 1, len(self._ahead[place]) - 1)] if cap else -self._count
        free = children[used & (sizes > 0)]
        children = self._sums.by_size(below, children[~used & (sizes > 0) & (sizes + others >= self._count)])
        sizes = np.minimum(self._sums.slots[below][children], self._count)
        most = min(fewest_of(sizes, min(self._count, int(sizes.sum()))), cap)
        if below == self._leaf:
            return self._whole_slices(level, self._leaves(free, children[:most], sizes[:most]))
        chains = self._chains(below, children)
        single, children = children[chains], np.concatenate((free, children[~chains]))
        total = self._viable(_Frontier(_NOTHING, _NOTHING, _NOTHING), self._reaches(children, single, level=below))
        copies: dict[bytes, int] = {}
        for i, child in enumerate(children.tolist()):
            if not len(total.cost):
                break  # not even all that is left completes any of it
            table = self._inside(below, child)
            if i >= len(free):
                cost = table.cost + np.where(table.pods > 0, 1 << self._shifts[place], 0)
                table = _Frontier(cost, table.pods, table.rows, table.made)
            table = self._viable(table, self._reaches(children[:i], children[i + 1 :], single, level=below))
            signature = table.cost.tobytes() + table.pods.tobytes()
            copies[signature] = copies.get(signature, 0) + 1
            # No answer opens more than `most` children, so more equal ones change nothing.
            if i < len(free) or copies[signature] <= most:
                total = self._viable(self._merge(total, table), self._reaches(children[i + 1 :], single, level=below))
        if len(single) and len(total.cost):
            table = self._viable(self._chain_frontier(below, single[:most]), self._reaches(children, level=below))
            total = self._viable(self._merge(total, table), self._reaches(level=below))
        return self._whole_slices(level, total)

    def _chains(self, level: int, domains: Ints64) -> Bools:
        """Return which of these domains have a single domain of `leaf` inside them."""
        first, end = domains, domains + 1
        for offsets in self._sums.tree.offsets[level : self._leaf]:
            first, end = offsets[first], offsets[end]
        chains: Bools = end - first == 1
        return chains

    def _chain_frontier(self, level: int, chains: Ints64) -> _Frontier:
        """Return the frontier of chains, largest first: all cost the same, so no set of as many holds more."""
        each = sum(1 << shift for shift in self._shifts[level - self._top :])
        sizes = np.minimum(self._sums.slots[level][chains], self._count)
        leaves = chains
        for offsets in self._sums.tree.offsets[level : self._leaf]:
            leaves = offsets[leaves]
        table = self._leaves(_NO_DOMAINS, leaves, sizes)
        keep = np.ones(len(table.pods), dtype=np.bool_)
        np.greater(table.pods[1:], table.pods[:-1], out=keep[1:])
        return _Frontier(table.cost[keep] * each, table.pods[keep], table.rows[keep], table.made)

    def _leaves(self, free: Ints64, children: Ints64, sizes: Ints64) -> _Frontier:
        """Return the frontier of leaves, largest first: no set of as many leaves holds more."""
        self._steps.take(len(children) + 1)
        at_no_cost = int(self._sums.slots[self._leaf][free].sum()) if len(free) else 0
        pods = np.minimum(np.concatenate((_NOTHING, np.cumsum(sizes))) + at_no_cost, self._count)
        rows = np.arange(len(pods), dtype=np.int64)
        return _Frontier(rows, pods, rows, _Leaves(free, children))

    def _whole_slices(self, level: int, frontier: _Frontier) -> _Frontier:
        """Return the frontier of a domain that takes whole slices only."""
        grain = 1 if self._sums.grain is None or level < 0 else self._sums.grain[level]
        if grain == 1 or not len(frontier.pods):
            return frontier
        pods = frontier.pods // grain * grain
        more = np.ones(len(pods), dtype=np.bool_)
        np.greater(pods[1:], pods[:-1], out=more[1:])
        return _Frontier(frontier.cost[more], pods[more], frontier.rows[more], frontier.made)

    def _merge(self, left: _Frontier, right: _Frontier) -> _Frontier:
        self._steps.take(len(left.cost) * len(right.cost) + _MERGE)
        cost = (left.cost[:, None] + right.cost).ravel()
        pods = np.minimum(left.pods[:, None] + right.pods, self._count).ravel()
        order = np.lexsort((-pods, cost))
        ascending = np.maximum.accumulate(pods[order])
        more = np.ones(len(order), dtype=bool)
        np.greater(ascending[1:], ascending[:-1], out=more[1:])
        keep = order[more]
        lefts, rights = np.divmod(keep, len(right.cost))
        return _Frontier(cost[keep], pods[keep], np.arange(len(keep)), _Pairs(left, right, lefts, rights))

    def _viable(self, frontier: _Frontier, others: Reaches) -> _Frontier:
        """Drop the entries that even the largest domains of some level cannot complete within its cap."""
        keep = np.ones(len(frontier.cost), dtype=bool)
        for shift, mask, cap, ahead in zip(self._shifts, self._masks, self._caps, others, strict=True):
            allowed = cap - (frontier.cost >> shift & mask)
            keep &= allowed >= 0
            keep &= frontier.pods + ahead[np.minimum(np.maximum(allowed, 0), len(ahead) - 1)] >= self._count
        if keep.all():
            return frontier
        return _Frontier(frontier.cost[keep], frontier.pods[keep], frontier.rows[keep], frontier.made)


def _reach(descending: Ints64, cap: int, free: int) -> Ints64:
    """Return the pods that the first 0, 1, .. cap of these hold, plus `free` pods that cost nothing."""
    reach: Ints64 = np.concatenate((_NOTHING, np.cumsum(descending[:cap]))) + free
    return reach


def _domains(frontier: _Frontier, at: int) -> Ints64:
    """Return the leaves that an entry uses."""
    found: list[Ints64] = []
    pending = [(frontier, at)]
    while pending:
        table, i = pending.pop()
        row = int(table.rows[i])
        match table.made:
            case _Leaves(free, domains):
                found += [free, domains[:row]]
            case _Pairs(left, right, lefts, rights):
                pending.append((left, int(lefts[row])))
                pending.append((right, int(rights[row])))
            case None:
                pass
    return np.concatenate(found)
