"""Counts room for a waiting gang without some running ones: what is certain before the planner is asked. Pure.

A plan costs a hundred times as much. Every condition here is necessary for one, and stays true when more gangs end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.planner.tree import Bools, Ints64


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """The domains of a level on the hosts of a room: that of every host, counted from 0, and their number."""

    of_host: Ints64
    size: int

    def on(self, hosts: slice) -> Domains:
        """Return those on a range of the hosts."""
        own = self.of_host[hosts]
        return Domains(own - own[0], int(own[-1] - own[0]) + 1) if len(own) else Domains(own, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """The equal pods of one pod set: at least `count` of them have to fit into one of its `domains`.

    `requests` by column; `most`: how many fit on each host at best, 0 where none may be. `slices`: whole ones of so
    many pods fit into the domains of each level, finer than those of the pod set.
    """

    count: int
    requests: Ints64
    most: Ints64
    domains: Domains
    slices: tuple[tuple[Domains, int], ...] = ()

    def on(self, hosts: slice) -> Need:
        """Return what is needed of a range of the hosts."""
        slices = tuple((finer.on(hosts), size) for finer, size in self.slices)
        return replace(self, most=self.most[hosts], domains=self.domains.on(hosts), slices=slices)


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """What running gangs have, by host: entry by entry the gang's index, the host, and the amount of each column."""

    gangs: Ints64
    hosts: Ints64
    amounts: Ints64

    def within(self, hosts: Bools) -> Holdings:
        """Return those on some of the hosts."""
        kept = hosts[self.hosts]
        return Holdings(self.gangs[kept], self.hosts[kept], self.amounts[kept])

    def of(self, gangs: Sequence[int], hosts: slice) -> Holdings:
        """Return those of some gangs on a range of hosts, both counted from 0; all gangs there are among them."""
        number = np.zeros(1 + max(gangs, default=0), dtype=np.int64)
        number[list(gangs)] = np.arange(len(gangs))
        first, end = np.searchsorted(self.hosts, (hosts.start, hosts.stop)).tolist()
        return Holdings(number[self.gangs[first:end]], self.hosts[first:end] - hosts.start, self.amounts[first:end])


@dataclass(frozen=True, slots=True, eq=False)
class Shortfalls:
    """What a waiting gang lacks of sums over the whole cluster, such as quota, and how much each running one frees."""

    lacks: Ints64
    frees: Ints64  # by gang and sum

    def of(self, gangs: Ints64) -> Shortfalls:
        """Return it with these gangs, by index, in their order."""
        return Shortfalls(self.lacks, self.frees[gangs])


class Room:
    """The free amounts of some hosts, what each running gang has of them, and what a waiting one needs.

    Gangs are given as masks over all that `budget` has.
    """

    def __init__(self, free: Ints64, needs: Sequence[Need], held: Holdings, budget: Shortfalls, *, least: int) -> None:
        """`free`: by host and column; `least`: how many pods of all pod sets together have to fit."""
        usable = np.zeros(len(free), dtype=np.bool_)
        for need in needs:
            usable |= need.most > 0
        self._free = free
        self._usable = usable
        self._needs = needs
        self._held = held.within(usable)
        self._least = least
        self._demand: Ints64 = sum((need.requests * need.count for need in needs), np.zeros(free.shape[1], np.int64))
        self._size = size = len(budget.frees)
        self._budget = budget
        self._gains = [
            (need, column, self._gained(need, column))
            for need in needs
            for column in np.flatnonzero(need.requests > 0).tolist()
            if need.count
        ]
        self._amounts = [self._per_gang(self._held.amounts[:, column]) for column in range(free.shape[1])]
        frees = budget.frees[:, budget.lacks > 0].any(axis=1)
        self.useful: Bools = (np.bincount(self._held.gangs, minlength=size) > 0) | frees

    def fits(self, gone: Bools) -> bool:
        """Return False if the waiting gang has no room without these gangs."""
        if (self._budget.frees[gone].sum(axis=0) < self._budget.lacks).any():
            return False
        free = self._without(gone)
        pods = 0
        for need in self._needs:
            slots = _slots(free, need)
            if need.count and _most_in_domain(slots, need) < need.count:
                return False
            pods += int(slots.sum())
        return pods >= self._least and bool((self._sums(free) >= self._demand).all())

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        """Return False if it has no room without these gangs and any `more` of the rest."""
        if not self.fits(gone | rest):
            return False
        left = self._budget.lacks - self._budget.frees[gone].sum(axis=0)
        if any(_largest(frees[rest], more) < lack for frees, lack in zip(self._budget.frees.T, left, strict=True)):
            return False
        free = self._without(gone)
        for need, column, gains in self._gains:
            slots = np.clip(free[:, column] // need.requests[column], 0, need.most)
            if int(slots.sum()) + _largest(gains[rest], more) < need.count:
                return False
        sums = self._sums(free)
        return all(
            sums[column] + _largest(amounts[rest], more) >= self._demand[column]
            for column, amounts in enumerate(self._amounts)
            if sums[column] < self._demand[column]
        )

    def _without(self, gone: Bools) -> Ints64:
        taken = gone[self._held.gangs]
        hosts, amounts = self._held.hosts[taken], self._held.amounts[taken]
        freed = [np.bincount(hosts, one, minlength=len(self._free)) for one in amounts.T.astype(np.float64)]
        total: Ints64 = self._free + np.stack(freed, axis=1).astype(np.int64) if freed else self._free
        return total

    def _sums(self, free: Ints64) -> Ints64:
        sums: Ints64 = np.maximum(free[self._usable], 0).sum(axis=0)
        return sums

    def _gained(self, need: Need, column: int) -> Ints64:
        """Return for each gang how many slots its end adds at most, by one resource."""
        rounded_up = -(-self._held.amounts[:, column] // need.requests[column])
        return self._per_gang(np.minimum(rounded_up, need.most[self._held.hosts]))

    def _per_gang(self, amounts: Ints64) -> Ints64:
        return np.bincount(self._held.gangs, amounts.astype(np.float64), minlength=self._size).astype(np.int64)


def _slots(free: Ints64, need: Need) -> Ints64:
    slots = need.most
    for column, amount in enumerate(need.requests.tolist()):
        if amount > 0:
            slots = np.minimum(slots, free[:, column] // amount)
    least: Ints64 = np.maximum(slots, 0)
    return least


def _most_in_domain(slots: Ints64, need: Need) -> int:
    """Return how many pods of a pod set fit into one of its domains, in whole slices."""
    found = _sums_by(need.domains, slots)
    for finer, size in need.slices:
        whole = _sums_by(finer, slots) // size * size
        above = np.zeros(finer.size, dtype=np.int64)
        above[finer.of_host] = need.domains.of_host
        found = np.minimum(found, np.bincount(above, whole.astype(np.float64), minlength=need.domains.size))
    return int(found.max(initial=0))


def _sums_by(domains: Domains, slots: Ints64) -> Ints64:
    return np.bincount(domains.of_host, slots.astype(np.float64), minlength=domains.size).astype(np.int64)


def _largest(amounts: Ints64, number: int) -> int:
    """Return the sum of the largest amounts, so many of them."""
    if number >= len(amounts):
        return int(amounts.sum())
    return int(np.partition(amounts, len(amounts) - number)[len(amounts) - number :].sum()) if number else 0
