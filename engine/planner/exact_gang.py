"""Exact search for lots of different shapes: which numbers of pods of each lot a domain can hold, and at what cost.

The same dynamic programme as `exact`, with a vector of pods instead of a number: a domain is described by the largest
vectors for every cost. Numbers of pods multiply over the lots, so this decides small gangs, and says so when it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.planner.backtrack import Cost
from engine.planner.batches import BatchedGang
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.feasibility import roomy
from engine.planner.gang import HostCapacity
from engine.planner.slices import shares
from engine.planner.tree import Ints64

_COST_BITS = 62
_MERGE = 100  # a merge takes some 50 us besides its pairs
_ROWS = 16  # rows that are compared in the time of a pair


@dataclass(frozen=True, slots=True, eq=False)
class _Host:
    """Entry i puts `counts[i]` on the host."""

    host: int
    counts: Ints64


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Entry i joins entry `lefts[i]` of `left` and entry `rights[i]` of `right`."""

    left: _Table
    right: _Table
    lefts: Ints64
    rights: Ints64


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Pods per lot and cost of every entry worth keeping; entry i was `rows[i]` of what it was made from."""

    counts: Ints64
    cost: Ints64
    rows: Ints64
    made: _Host | _Pairs | None


class ExactGangSearch:
    """The cheapest layout of a gang, cheaper than `below` where that is given."""

    def __init__(self, room: HostCapacity, parts: BatchedGang, *, below: Cost | None, steps: Steps) -> None:
        self._tree = room.tree
        self._parts = parts
        self._free = room.free
        self._steps = steps
        self._wanted = np.array([lot.count for lot in parts.lots], dtype=np.int64)
        self._slots = self._reachable()
        self._total = self._slots.sum(axis=0)
        widths = self._widths()
        if sum(widths) > _COST_BITS:
            raise OutOfSteps
        self._shifts = [sum(widths[i + 1 :]) for i in range(len(widths))]
        self._below = None if below is None else sum(c << s for c, s in zip(below, self._shifts, strict=True))

    def run(self) -> tuple[Ints64, ...] | None:
        """Pods per host of every lot, or None when there is no such layout. Raises OutOfSteps."""
        if (self._total < self._wanted).any():
            return None
        table = self._children(-1, 0)
        whole = np.flatnonzero((table.counts == self._wanted).all(axis=1))
        if not len(whole):
            return None
        pods = np.zeros((len(self._tree.hosts), len(self._parts.lots)), dtype=np.int64)
        _collect(table, int(whole[table.cost[whole].argmin()]), pods)
        finest = len(self._tree.levels) - 1
        return tuple(
            shares(self._tree, pods[:, i], lot.grain, finest=finest, count=lot.count)
            for i, lot in enumerate(self._parts.lots)
        )

    def _reachable(self) -> Ints64:
        """Slots per host and lot, without those in domains that cannot hold what is tied together."""
        slots = np.stack([lot.slots(self._free) for lot in self._parts.lots], axis=1)
        for tie in self._parts.ties:
            members = sorted(tie.lots)
            fits = roomy(self._tree, tie.level, [self._parts.lots[i] for i in members], self._free)
            outside = ~fits[self._tree.domains[tie.level]]
            for lot in members:
                slots[outside, lot] = 0
        return slots

    def _widths(self) -> list[int]:
        most = [0] * len(self._tree.levels)
        for kin in self._parts.kins:
            pods = int(sum(self._wanted[list(kin.lots)]))
            for level, counts in enumerate(kin.counted):
                most[level] += min(pods, self._tree.size(level)) if counts else 0
        # Sums of two tables are made before the dear ones are dropped.
        return [max(2 * number, 1).bit_length() for number in most]

    def _children(self, level: int, domain: int) -> _Table:
        """The table of what is inside a domain, without the cost of the domain itself."""
        below = level + 1
        lots = len(self._wanted)
        total = _Table(
            np.zeros((1, lots), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), None
        )
        inside = [
            (child, room)
            for child in self._tree.children(level, np.array([domain])).tolist()
            if (room := self._room(below, child)).any()
        ]
        ahead = self._total - sum((room for _, room in inside), np.zeros(lots, dtype=np.int64))
        open_ = [room for _, room in inside]
        for i, (child, _) in enumerate(inside):
            rest = ahead + sum(open_[i + 1 :], np.zeros(lots, dtype=np.int64))
            total = self._merge(total, self._domain(below, child), rest)
        return total

    def _room(self, level: int, domain: int) -> Ints64:
        first, end = self._tree.range(level, domain)
        room: Ints64 = self._slots[first:end].sum(axis=0)
        return room

    def _domain(self, level: int, domain: int) -> _Table:
        host = level == len(self._tree.levels) - 1
        table = self._host(domain) if host else self._children(level, domain)
        counts = table.counts.copy()
        for i, lot in enumerate(self._parts.lots):
            if lot.grain[level] > 1:
                counts[:, i] -= counts[:, i] % lot.grain[level]
        for tie in self._parts.ties:
            if tie.level == level:
                members = sorted(tie.lots)
                short = (counts[:, members] < self._wanted[members]).any(axis=1)
                counts[np.ix_(np.flatnonzero(short), np.array(members))] = 0
        cost = table.cost.copy()
        for kin in self._parts.kins:
            if kin.lots and kin.counted[level] and not (kin.used is not None and kin.used[level][domain]):
                cost += counts[:, list(kin.lots)].any(axis=1) * (1 << self._shifts[level])
        keep = self._worth(counts, cost)
        return _Table(counts[keep], cost[keep], table.rows[keep], table.made)

    def _host(self, host: int) -> _Table:
        counts = self._loads(host)
        return _Table(counts, np.zeros(len(counts), dtype=np.int64), np.arange(len(counts)), _Host(host, counts))

    def _loads(self, host: int) -> Ints64:
        """What the host can hold: every combination of all lots but the last, with as many of that as fit or none."""
        lots = self._parts.lots
        most = np.minimum(self._slots[host], self._wanted)
        free = np.maximum(self._free[host], 0)
        self._steps.take(int(np.prod([float(n + 1) for n in most[:-1]])) + 1)
        axes = np.meshgrid(*(np.arange(n + 1) for n in most[:-1]), indexing="ij")
        loads = np.stack([axis.ravel() for axis in axes], axis=1) if axes else np.zeros((1, 0), dtype=np.int64)
        requests = np.stack([lot.requests for lot in lots])
        taken = loads @ requests[:-1]
        fits = ((taken <= free) | (taken == 0)).all(axis=1)
        loads, taken = loads[fits], taken[fits]
        last = np.full(len(loads), most[-1], dtype=np.int64)
        for resource in np.flatnonzero(requests[-1]):
            last = np.minimum(last, (free[resource] - taken[:, resource]) // requests[-1][resource])
        full = np.column_stack((loads, np.maximum(last, 0)))
        none = np.column_stack((loads, np.zeros_like(last)))
        return np.unique(np.concatenate((full, none)), axis=0)

    def _merge(self, left: _Table, right: _Table, rest: Ints64) -> _Table:
        """All pairs that what is left open can still complete."""
        self._steps.take(len(left.cost) * len(right.cost) + _MERGE)
        lots = len(self._wanted)
        counts = np.minimum(left.counts[:, None] + right.counts, self._wanted).reshape(-1, lots)
        cost = (left.cost[:, None] + right.cost).ravel()
        possible = np.flatnonzero((counts + rest >= self._wanted).all(axis=1))
        keep = possible[self._worth(counts[possible], cost[possible])]
        lefts, rights = np.divmod(keep, len(right.cost))
        return _Table(counts[keep], cost[keep], np.arange(len(keep)), _Pairs(left, right, lefts, rights))

    def _worth(self, counts: Ints64, cost: Ints64) -> Ints64:
        """The rows that are cheaper than the best known, and of which no other holds as much at no more cost."""
        rows = np.arange(len(cost)) if self._below is None else np.flatnonzero(cost < self._below)
        rows = rows[np.lexsort((*(-counts[rows].T[::-1]), cost[rows]))]
        kept = []
        while len(rows):
            self._steps.take(len(rows) // _ROWS)
            first = rows[0]
            kept.append(first)
            rows = rows[1:][(counts[rows[1:]] > counts[first]).any(axis=1)]
        return np.array(kept, dtype=np.int64)


def _collect(table: _Table, at: int, pods: Ints64) -> None:
    """Write the pods behind an entry into `pods`."""
    behind = [(table, at)]
    while behind:
        one, i = behind.pop()
        row = int(one.rows[i])
        match one.made:
            case _Host(host, counts):
                pods[host] += counts[row]
            case _Pairs(left, right, lefts, rights):
                behind.append((left, int(lefts[row])))
                behind.append((right, int(rights[row])))
            case None:
                pass
