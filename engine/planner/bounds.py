"""Candidate domains for a gang, with a lower bound of the domains that each of them needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.planner.cover import cover_of, fewest, fewest_of
from engine.planner.slices import unit_of
from engine.planner.sums import DomainSums
from engine.planner.tree import Bools, Ints64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain that holds the gang; `bound`: minimum number of domains to open per level below, coarse to fine."""

    domain: int
    bound: tuple[int, ...]


def lowest_fit(sums: DomainSums, count: int) -> int | None:
    """Return the finest level with a domain of `count` slots; -1: only the whole topology; None: not even that."""
    for level in range(len(sums.slots) - 1, -1, -1):
        if sums.most(level) >= count:
            return level
    return -1 if len(sums.slots[0]) and int(sums.slots[0].sum()) >= count else None


def candidates(sums: DomainSums, level: int, count: int) -> Iterator[Candidate]:
    """Yield the domains of `level` (not the hosts') that hold `count` slots: best bound first, then by the pack key.

    The number of domains at the next level is exact (largest first), so only domains with the fewest of these are
    kept. Further down the bound pools all of a domain's descendants of one level and ignores the levels between; it is
    never less than at the level above, since each domain there has one inside it.
    """
    tree = sums.tree
    fitting = np.zeros(1, dtype=np.int64) if level < 0 else np.flatnonzero(sums.slots[level] >= count)
    first = _first(sums, level, fitting, count, known=())
    if first is not None:
        yield first
    bounds: list[Ints64] = []
    for below in range(level + 1, len(sums.slots)):
        pool, starts = tree.descendants(level, fitting, below)
        needed = fewest(sums.slots[below][pool], starts, count)
        if not bounds:
            least = needed == needed.min()
            fitting, needed = fitting[least], needed[least]
            if first is None:
                first = _first(sums, level, fitting, count, known=(int(needed[0]),))
                if first is not None:
                    yield first
        else:
            needed = np.maximum(needed, bounds[-1])
        bounds.append(needed)
    keys = [*bounds, *sums.preference(level, fitting)]
    order = np.lexsort([fitting, *reversed(keys)])
    for i in order:
        if first is None or fitting[i] != first.domain:
            yield Candidate(int(fitting[i]), tuple(int(bound[i]) for bound in bounds))


def most_even(sums: DomainSums, level: int, count: int) -> int:
    """Return the domain of `level` (-1: the whole topology) that divides `count` pods best among its children.

    Best are the fewest children, then the most even shares (the smallest as large as possible, then the second
    smallest), then the lowest bounds further down, then the pack key.
    """
    if level < 0:
        return 0
    tree, below, unit = sums.tree, level + 1, unit_of(sums.grain, level + 1)
    fitting = np.flatnonzero(sums.slots[level] >= count)
    likely = _first(sums, level, fitting, count, known=())
    if likely is not None:
        start, end = tree.inside(level, likely.domain, below)
        one = np.zeros(1, dtype=np.int64)
        if len(fitting) == 1 or _even(sums.slots[below][start:end] // unit, one, likely.bound[0], count // unit)[0]:
            return likely.domain
    pool, starts = tree.descendants(level, fitting, below)
    needed = fewest(sums.slots[below][pool], starts, count)
    fitting, pick = fitting[needed == needed.min()], int(needed.min())
    pool, starts = tree.descendants(level, fitting, below)
    slots = sums.slots[below][pool] // unit
    even = np.flatnonzero(_even(slots, starts, pick, count // unit))
    fitting = fitting[even if len(even) else _evenest(slots, starts, pick, count // unit)]
    keys: list[Ints64] = []
    for finer in range(below + 1, len(sums.slots)):
        pool, starts = tree.descendants(level, fitting, finer)
        keys.append(fewest(sums.slots[finer][pool], starts, count))
    keys += sums.preference(level, fitting)
    return int(fitting[np.lexsort([fitting, *reversed(keys)])[0]])


def _even(slots: Ints64, starts: Ints64, pick: int, count: int) -> Bools:
    """Return per segment whether `pick` of its slots can share `count` with a difference of at most one."""
    low, more = divmod(count, pick)
    enough = np.add.reduceat(slots >= low, starts, dtype=np.int64)
    larger = np.add.reduceat(slots > low, starts, dtype=np.int64)
    even: Bools = (enough >= pick) & (larger >= more)
    return even


def _evenest(slots: Ints64, starts: Ints64, pick: int, count: int) -> Ints64:
    """Return the segments with the most even shares of `count` among their `pick` largest slots."""
    segment = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(slots))))
    largest = slots[np.lexsort((-slots, segment))][starts[:, None] + np.arange(pick)]
    rest = np.arange(len(starts))
    for left in range(pick, 0, -1):
        if len(rest) == 1:
            break
        share = min(int(largest[rest, left - 1].max()), count // left)
        rest = rest[largest[rest, left - 1] >= share]
        count -= share
    return rest


def _first(sums: DomainSums, level: int, fitting: Ints64, count: int, *, known: tuple[int, ...]) -> Candidate | None:
    """Return the first domain by the pack key if no domain can have a lower bound, else None.

    `known`: the least bounds, shared by all of these domains. Most decisions end here, before the others are computed.
    """
    domain = sums.best(level, fitting) if len(fitting) > 1 else int(fitting[0])
    bound: list[int] = []
    least = 0
    for below in range(level + 1, len(sums.slots)):
        if level < 0 and below == len(sums.slots) - 1 and sums.tally is not None:
            needed = cover_of(sums.tally, count)[0]
        else:
            start, end = sums.tree.inside(level, domain, below)
            needed = fewest_of(sums.slots[below][start:end], count)
        bound.append(max(needed, bound[-1] if bound else 0))
        place = below - level - 1
        least = known[place] if place < len(known) else max(least, -(-count // sums.most(below)))
        if bound[-1] > least and len(fitting) > 1:
            return None
    return Candidate(domain, tuple(bound))


def tightened(sums: DomainSums, level: int, candidate: Candidate, count: int, *, used: tuple[int, ...]) -> Candidate:
    """Return the candidate with a tighter bound for choices that use fewer domains than `used`, coarse to fine.

    A better choice that is equal at the first level has as many domains there, and these few parents bound how few
    children can hold the gang. Continues while the bound equals `used`.
    """
    bound = list(candidate.bound)
    for place in range(1, len(bound)):
        if sums.used is not None or bound[place - 1] != used[place - 1]:
            break
        below = level + 1 + place
        first, end = sums.tree.inside(level, candidate.domain, below - 1)
        start, stop = sums.tree.inside(level, candidate.domain, below)
        least = _fewest_in_parents(
            sums.slots[below][start:stop],
            sums.tree.offsets[below - 1][first:end] - start,
            parents=bound[place - 1],
            count=count,
        )
        bound[place] = max(bound[place], bound[place - 1], least)
    return Candidate(candidate.domain, tuple(bound))


def _fewest_in_parents(slots: Ints64, starts: Ints64, *, parents: int, count: int) -> int:
    """Return a lower bound of the domains that hold `count` inside at most `parents` parents (segments of `starts`).

    Charge a price per domain: `count`, less what the best parents hold at most beyond the price of their domains, must
    be paid by that many prices (Lagrange relaxation of the number of domains; any price gives a valid bound).
    """

    def at(price: int) -> int:
        worth = np.add.reduceat(np.maximum(slots - price, 0), starts)
        worth.sort()
        return -(-(count - int(worth[-parents:].sum())) // price)

    low, high = 1, max(int(slots.max(initial=0)), 1)
    best = 0
    while high - low > 2:  # noqa: PLR2004 - the bound rises to its best price and falls behind it
        third = (high - low) // 3
        left, right = at(low + third), at(high - third)
        best = max(best, left, right)
        low, high = (low + third, high) if left < right else (low, high - third)
    return max(best, *[at(price) for price in range(low, high + 1)])


def growth(sums: DomainSums, level: int, domain: int, count: int) -> Candidate | None:
    """Return the domain as the only candidate for pods that join a gang; its bound counts domains not yet in use.

    None when it does not hold `count` more. Used domains are filled before another one is opened.
    """
    tree = sums.tree
    assert sums.used is not None, "a gang that grows uses something"
    inside = sums.slots[0].sum() if level < 0 else sums.slots[level][domain]
    if inside < count:
        return None
    bound: list[int] = []
    for below in range(level + 1, len(sums.slots)):
        pool = tree.descendants(level, np.array([domain]), below)[0]
        slots, used = sums.slots[below][pool], sums.used[below][pool]
        left = count - int(slots[used].sum())
        least = bound[-1] if bound else 0
        bound.append(max(least, fewest_of(slots[~used], left)) if left > 0 else least)
    return Candidate(domain, tuple(bound))
