"""Exact search for batches of different shapes: the pods of each batch that a domain can hold, by cost.

The same dynamic programme as `exact`, with a vector of pods instead of a number: a domain is described by the largest
vectors for every cost. Numbers of pods multiply over the batches, so this decides small gangs only; beyond its budget
it raises OutOfSteps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.planner.backtrack import Cost
from engine.planner.batches import BatchedGang
from engine.planner.exact import OutOfSteps, Steps
from engine.planner.feasibility import fitting_domains
from engine.planner.slices import shares
from engine.planner.tree import Bools, Ints64

_COST_BITS = 62
_MERGE = 100  # a merge takes some 50 us besides its pairs
_ROWS = 64  # rows that are compared in the time of a pair
LEAST_STEPS = 2 * _MERGE  # the search of a domain takes no fewer
_BLOCK = 64  # rows that are compared with all others at once


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
    """Pods per batch and cost of every useful entry; entry i is entry `rows[i]` of its source `made`."""

    counts: Ints64
    cost: Ints64
    rows: Ints64
    made: _Host | _Pairs | None


class ExactGangSearch:
    """The exact search for the cheapest layout of a gang, in one domain after the other or in the whole topology."""

    def __init__(self, batched: BatchedGang) -> None:
        self._tree = batched.capacity.tree
        self._batched = batched
        self._free = batched.capacity.free
        self._wanted = np.array([batch.count for batch in batched.batches], dtype=np.int64)
        self._requests = np.stack([batch.requests for batch in batched.batches])
        self._slots = self._reachable()
        self._total = self._slots.sum(axis=0)
        self._loads_of: dict[bytes, Ints64] = {}
        widths = self._widths()
        self._narrow = sum(widths) <= _COST_BITS
        self._shifts = [sum(widths[i + 1 :]) for i in range(len(widths))]
        self._below: int | None = None
        self._steps = Steps(0)

    def run(
        self, steps: Steps, *, below: Cost | None = None, level: int = -1, domain: int = 0
    ) -> tuple[Ints64, ...] | None:
        """Return the pods per host of every batch in a domain of `level`, or None when there is no such layout.

        With `below` only a cheaper layout counts: cheaper from `level` on. Raises OutOfSteps.
        """
        if not self._narrow:
            raise OutOfSteps
        self._steps = steps
        counted = slice(max(level, 0), None)
        self._below = None
        if below is not None:
            self._below = sum(c << s for c, s in zip(below[counted], self._shifts[counted], strict=True))
        self._total = self._slots.sum(axis=0) if level < 0 else self._slots_in(level, domain)
        if (self._total < self._wanted).any():
            return None
        self._steps.take(LEAST_STEPS)
        table = self._children(-1, 0) if level < 0 else self._domain(level, domain)
        whole = np.flatnonzero((table.counts == self._wanted).all(axis=1))
        if not len(whole):
            return None
        pods = np.zeros((len(self._tree.hosts), len(self._batched.batches)), dtype=np.int64)
        _collect(table, int(whole[table.cost[whole].argmin()]), pods)
        finest = len(self._tree.levels) - 1
        return tuple(
            shares(self._tree, pods[:, i], batch.grain, finest=finest, count=batch.count)
            for i, batch in enumerate(self._batched.batches)
        )

    def _reachable(self) -> Ints64:
        """Return the slots per host and batch, without those in domains too small for batches that share one."""
        slots = np.stack(self._batched.slots, axis=1)
        for shared in self._batched.shared_domains:
            fits = fitting_domains(self._batched, shared.level, shared.batches, self._free)
            outside = ~fits[self._tree.domains[shared.level]]
            for batch in shared.batches:
                slots[outside, batch] = 0
        return slots

    def _widths(self) -> list[int]:
        most = [0] * len(self._tree.levels)
        for group in self._batched.groups:
            pods = int(sum(self._wanted[list(group.batches)]))
            for level, counts in enumerate(group.counted):
                most[level] += min(pods, self._tree.size(level)) if counts else 0
        # Two tables are added before the expensive entries are dropped.
        return [max(2 * number, 1).bit_length() for number in most]

    def _children(self, level: int, domain: int) -> _Table:
        """Return the table of a domain's children, without the cost of the domain itself."""
        below = level + 1
        number = len(self._wanted)
        total = _Table(
            np.zeros((1, number), dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), None
        )
        inside = [
            (child, slots)
            for child in self._tree.children(level, np.array([domain])).tolist()
            if (slots := self._slots_in(below, child)).any()
        ]
        ahead = self._total - sum((slots for _, slots in inside), np.zeros(number, dtype=np.int64))
        open_ = [slots for _, slots in inside]
        for i, (child, _) in enumerate(inside):
            rest = ahead + sum(open_[i + 1 :], np.zeros(number, dtype=np.int64))
            total = self._merge(total, self._domain(below, child), rest)
        return total

    def _slots_in(self, level: int, domain: int) -> Ints64:
        first, end = self._tree.range(level, domain)
        slots: Ints64 = self._slots[first:end].sum(axis=0)
        return slots

    def _domain(self, level: int, domain: int) -> _Table:
        host = level == len(self._tree.levels) - 1
        table = self._host(domain) if host else self._children(level, domain)
        counts = table.counts.copy()
        for i, batch in enumerate(self._batched.batches):
            if batch.grain[level] > 1:
                counts[:, i] -= counts[:, i] % batch.grain[level]
        for shared in self._batched.shared_domains:
            if shared.level == level:
                members = sorted(shared.batches)
                short = (counts[:, members] < self._wanted[members]).any(axis=1)
                counts[np.ix_(np.flatnonzero(short), np.array(members))] = 0
        cost = table.cost.copy()
        for group in self._batched.groups:
            if group.batches and group.counted[level] and not (group.used is not None and group.used[level][domain]):
                cost += counts[:, list(group.batches)].any(axis=1) * (1 << self._shifts[level])
        keep = self._undominated(counts, cost)
        return _Table(counts[keep], cost[keep], table.rows[keep], table.made)

    def _host(self, host: int) -> _Table:
        counts = self._loads(host)
        return _Table(counts, np.zeros(len(counts), dtype=np.int64), np.arange(len(counts)), _Host(host, counts))

    def _loads(self, host: int) -> Ints64:
        """Return the loads of a host: all combinations of the batches but the last, with the most of that or none.

        Hosts with the same free resources share them.
        """
        most = np.minimum(self._slots[host], self._wanted)
        free = np.maximum(self._free[host], 0)
        alike = most.tobytes() + free.tobytes()
        if alike in self._loads_of:
            return self._loads_of[alike]
        loads = self._combinations(most[:-1])
        requests = self._requests
        taken = loads @ requests[:-1]
        fits = ((taken <= free) | (taken == 0)).all(axis=1)
        loads, taken = loads[fits], taken[fits]
        last = np.full(len(loads), most[-1], dtype=np.int64)
        for resource in np.flatnonzero(requests[-1]):
            last = np.minimum(last, (free[resource] - taken[:, resource]) // requests[-1][resource])
        full = np.column_stack((loads, np.maximum(last, 0)))
        none = np.column_stack((loads, np.zeros_like(last)))
        found = self._loads_of[alike] = np.unique(np.concatenate((full, none)), axis=0)
        return found

    def _combinations(self, most: Ints64) -> Ints64:
        """Return all vectors of pods per batch up to `most`."""
        number = math.prod((most + 1).tolist())
        self._steps.take(number + _MERGE)
        loads: Ints64 = np.zeros((number, len(most)), dtype=np.int64)
        some = np.flatnonzero(most)  # numpy has 32 dimensions, a gang may have more batches
        for batch, axis in zip(some, np.meshgrid(*(np.arange(n + 1) for n in most[some]), indexing="ij"), strict=True):
            loads[:, batch] = axis.ravel()
        return loads

    def _merge(self, left: _Table, right: _Table, rest: Ints64) -> _Table:
        """Return all pairs that can still be completed with `rest`, the slots of the open domains."""
        self._steps.take(len(left.cost) * len(right.cost) + _MERGE)
        number = len(self._wanted)
        counts = np.minimum(left.counts[:, None] + right.counts, self._wanted).reshape(-1, number)
        cost = (left.cost[:, None] + right.cost).ravel()
        possible = np.flatnonzero((counts + rest >= self._wanted).all(axis=1))
        keep = possible[self._undominated(counts[possible], cost[possible])]
        lefts, rights = np.divmod(keep, len(right.cost))
        return _Table(counts[keep], cost[keep], np.arange(len(keep)), _Pairs(left, right, lefts, rights))

    def _undominated(self, counts: Ints64, cost: Ints64) -> Ints64:
        """Return the rows cheaper than the best known layout that no other row dominates in pods and cost."""
        rows = np.arange(len(cost)) if self._below is None else np.flatnonzero(cost < self._below)
        rows = rows[np.lexsort((*(-counts[rows].T[::-1]), cost[rows]))]
        kept = []
        while len(rows):
            some, rows = rows[:_BLOCK], rows[_BLOCK:]
            self._steps.take(len(some) * (len(some) + len(rows)) // _ROWS)
            # A row is dominated by another one that costs no more, so by one before it.
            some = some[~np.triu(_at_least(counts[some], counts[some]), 1).any(axis=0)]
            kept.append(some)
            rows = rows[~_at_least(counts[some], counts[rows]).any(axis=0)]
        return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _at_least(counts: Ints64, others: Ints64) -> Bools:
    """Return [row, other]: whether a row has as many pods of every batch as another one, or more."""
    found: Bools = np.ones((len(counts), len(others)), dtype=np.bool_)
    for mine, theirs in zip(counts.T, others.T, strict=True):  # a few long comparisons instead of many short ones
        found &= mine[:, None] >= theirs
    return found


def _collect(table: _Table, at: int, pods: Ints64) -> None:
    """Write the pods of an entry into `pods`, without those of batches that it does not count.

    A domain that holds a part of what has to share it counts none of that, whatever its hosts would take.
    """
    pending = [(table, at, np.ones(pods.shape[1], dtype=np.bool_))]
    while pending:
        one, i, counted = pending.pop()
        row, counted = int(one.rows[i]), counted & (one.counts[i] > 0)
        match one.made:
            case _Host(host, counts):
                pods[host] += np.where(counted, counts[row], 0)
            case _Pairs(left, right, lefts, rights):
                pending.append((left, int(lefts[row]), counted))
                pending.append((right, int(rights[row]), counted))
            case None:
                pass
