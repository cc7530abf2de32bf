"""Descends from a chosen domain to hosts: at each level the fewest children of the domains above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.cover import SMALL, best_last, cover, cover_of, even_shares, fewest, fewest_in, tightest
from engine.planner.slices import shares, unit_of
from engine.planner.sums import DomainSums
from engine.planner.tree import Ints, Ints64, runs


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Hosts (ascending) that hold the gang, and the number of domains that they open at every level.

    Domains that the gang uses already do not count.
    """

    hosts: Ints64
    used: tuple[int, ...]


Pick = Callable[[Sequence[int], int, int], list[int]]


def _largest(values: Sequence[int], pick: int, count: int) -> list[int]:
    return list(range(pick))


# Ways to pick children, each the fewest at its level: the tightest keep large domains whole, the largest leave the
# level below the most freedom. Which of them needs the fewest hosts is not known beforehand.
TIGHTEST: Pick = tightest
PICKS: tuple[Pick, ...] = (tightest, best_last, _largest)


def descend(sums: DomainSums, level: int, domains: Ints, count: int, pick: Pick) -> Choice:
    """Choose hosts inside `domains` of `level` (-1: the whole topology), which hold at least `count` slots."""
    return choice(sums, np.sort(_hosts(sums, level, domains, count, pick)))


def _hosts(sums: DomainSums, level: int, domains: Ints, count: int, pick: Pick) -> Ints64:
    chosen: Ints64 = domains.astype(np.int64)
    for below in range(level + 1, len(sums.slots)):
        split = _split(sums, below - 1, chosen, count)
        if split is not None:
            return np.concatenate([_hosts(sums, below - 1, some, share, pick) for some, share in split])
        pool = sums.tree.children(below - 1, chosen)
        host = below == len(sums.slots) - 1
        # No level below depends on the hosts: among the fewest, the tightest is best.
        chosen = choose(sums, below, pool, count, TIGHTEST if host else pick)
    return chosen


def _split(sums: DomainSums, level: int, domains: Ints64, count: int) -> list[tuple[Ints64, int]] | None:
    """Split the domains by the domain that holds whole slices; return parts with their shares, None for one part.

    From there on down pods may no longer move between the parts, or slices would break.
    """
    grain = sums.grain
    if grain is None or len(domains) == 1 or all(size == 1 for size in grain[: level + 1]):
        return None
    finest = max(i for i in range(level + 1) if grain[i] > 1)
    holder = sums.tree.ancestors(level, finest)[domains] if finest < level else domains
    if (holder == holder[0]).all():
        return None
    open_: Ints64 = np.zeros_like(sums.slots[level])
    open_[domains] = sums.slots[level][domains]
    # Domains inside one domain of a level are part of what that one holds: its slices are handled already.
    inner = tuple(size if _separated(sums, level, domains, up) else 1 for up, size in enumerate(grain))
    got = shares(sums.tree, open_, inner, finest=level, count=count)
    parts = [domains[holder == one] for one in np.unique(holder)]
    return [(part, share) for part in parts if (share := int(got[part].sum()))]


def _separated(sums: DomainSums, level: int, domains: Ints64, up: int) -> bool:
    """Return whether these domains of `level` are in more than one domain of level `up`."""
    above = sums.tree.ancestors(level, up)[domains] if up < level else domains
    return bool((above != above[0]).any())


def choose(sums: DomainSums, level: int, pool: Ints64, count: int, pick: Pick) -> Ints64:
    """Return the fewest of these domains that hold `count` slots, picked by `pick`."""
    if sums.used is not None and sums.used[level][pool].any():
        return _choose_beside(sums, level, pool, count, pick)
    useful = pool
    if len(pool) >= SMALL:
        slots = sums.slots[level][pool]
        useful = pool[slots >= cover(slots, count)[1]]
    ordered = sums.by_size(level, useful)
    values = sums.slots[level][ordered].tolist()
    needed = fewest_in(values, count)
    if needed == len(pool):
        return pool
    if sums.spread:
        return ordered[:needed]
    return ordered[pick(values, needed, count)]


def _choose_beside(sums: DomainSums, level: int, pool: Ints64, count: int, pick: Pick) -> Ints64:
    """Return the used ones of these domains, and the fewest others that take the remaining pods."""
    assert sums.used is not None
    used = sums.used[level][pool]
    near, far = pool[used], pool[~used]
    slots = sums.slots[level][near]
    left = count - int(slots.sum())
    if left > 0:
        return np.concatenate((near, choose(sums, level, far, left, pick)))
    if level < len(sums.slots) - 1:
        return near  # all cost the same, and the more of them, the more freedom further down
    near = near[np.argsort(-slots if sums.spread else slots, kind="stable")]
    return near[: int(np.searchsorted(np.cumsum(sums.slots[level][near]), count)) + 1]


def choice(sums: DomainSums, hosts: Ints64) -> Choice:
    """Return the choice of these hosts (ascending), with its domains counted."""
    if sums.used is not None:
        touched = _touched(sums, hosts)
        return Choice(hosts, tuple(int((~sums.used[i][some]).sum()) for i, some in enumerate(touched)))
    above = sums.tree.domains[:-1]
    if len(hosts) < SMALL:
        return Choice(hosts, (*[len(set(domains[hosts].tolist())) for domains in above], len(hosts)))
    return Choice(hosts, (*[len(runs(domains[hosts])) for domains in above], len(hosts)))


def rank(sums: DomainSums, one: Choice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sort key of a choice: its opened domains, then the free slots in the touched domains, per level."""
    touched = _touched(sums, one.hosts)
    return one.used, tuple(int(slots[some].sum()) for slots, some in zip(sums.slots, touched, strict=True))


def _touched(sums: DomainSums, hosts: Ints64) -> list[Ints]:
    """Return the domains of each level that hold any of these hosts (ascending)."""
    found: list[Ints] = []
    for domains in sums.tree.domains:
        touched = domains[hosts]
        found.append(touched[runs(touched)])
    return found


Shares = tuple[Ints64, Ints64]  # domains of one level, and the pods of each
# What a domain needs for one unit more than its share: 0 nothing, 1 more finer domains, and this cannot take it.
_CANNOT = 2
_FEW = 8  # domains whose hosts are handled one by one, where they are few too


def descend_evenly(sums: DomainSums, level: int, domains: Ints64, pods: Ints64) -> Shares:
    """Divide the pods of each of these domains (of level -1: 0, the whole topology); return hosts and their pods.

    At each level a domain's pods are divided among the fewest of its children, as evenly as possible, in whole slices.
    Both are ascending by domain.
    """
    for below in range(level + 1, len(sums.slots) - 1):
        parts = [
            _divide(sums, below, sums.tree.children(below - 1, np.array([one])), number)
            for one, number in zip(domains, pods.tolist(), strict=True)
        ]
        domains, pods = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(domains)
        domains, pods = domains[order], pods[order]
        level = below
    return even_hosts(sums, level, domains, pods)


def divide_within(sums: DomainSums, level: int, domain: int, count: int, most: int) -> tuple[Shares, bool] | None:
    """Divide `count` pods among the children of a domain so that these need at most `most` children of their own.

    Return the shares and whether they are the most even of all; None when none are found. Where even shares need too
    many children, as many domains do without their last one: those that lose the fewest pods, which the others take.
    """
    unit = unit_of(sums.grain, level + 1)
    children, pods = _divide(sums, level + 1, sums.tree.children(level, np.array([domain])), count)
    inside = (sums.tree.inside(level + 1, one, level + 2) for one in children.tolist())
    reached = [np.cumsum(np.sort(sums.slots[level + 2][start:end])[::-1]) for start, end in inside]
    last = [int(np.searchsorted(held, share)) for held, share in zip(reached, pods.tolist(), strict=True)]
    extra = sum(last) + len(last) - most
    order = np.argsort(children)
    if extra <= 0:
        return (children[order], pods[order]), True
    losses = sorted(
        (share - int(held[at - 1]), one)
        for one, (held, share, at) in enumerate(zip(reached, pods.tolist(), last, strict=True))
        if at
    )
    for _, one in losses[:extra]:
        last[one] -= 1
    units = np.array([int(held[at]) // unit for held, at in zip(reached, last, strict=True)], dtype=np.int64)
    if len(losses) < extra or int(units.sum()) * unit < count or not units.all():
        return None
    by_slots = np.argsort(-units, kind="stable")
    shares = np.zeros(len(children), dtype=np.int64)
    shares[by_slots[::-1]] = np.array(even_shares(units[by_slots].tolist(), len(units), count // unit)) * unit
    return (children[order], shares[order]), False


def _divide(sums: DomainSums, level: int, pool: Ints64, count: int) -> Shares:
    """Divide `count` pods among the fewest of these domains (ascending, above the hosts), as evenly as possible.

    Of domains that allow the same shares those are taken that need the fewest finer domains, then by the pack key.
    """
    unit = unit_of(sums.grain, level)
    slots = sums.slots[level][pool] // unit
    descending = np.sort(slots)[::-1].tolist()
    needed = fewest_in(descending, count // unit)
    wanted = even_shares(descending, needed, count // unit)
    open_ = pool[slots >= wanted[0]]
    if len(open_) == needed and wanted[0] == wanted[-1]:
        return open_, np.full(needed, wanted[0] * unit, dtype=np.int64)
    if wanted[-1] - wanted[0] > 1:
        return _by_capacity(sums, level, open_, wanted, unit)
    low, more = wanted[0] * unit, sum(share > wanted[0] for share in wanted)
    costs = _costs(sums, level, open_, low)
    extra = np.zeros(len(open_), dtype=np.int64)
    if more:
        larger = _costs(sums, level, open_, low + unit)
        extra = np.where(slots[slots >= wanted[0]] == wanted[0], _CANNOT, (larger != costs).any(axis=0))
    keys = [*costs, extra, *sums.preference(level, open_)]
    order = np.lexsort([open_, *reversed(keys)])
    chosen, others = order[:needed], order[needed:]
    able = chosen[extra[chosen] < _CANNOT]
    if len(able) < more:
        missing = more - len(able)
        spare, unable = others[extra[others] < _CANNOT], chosen[extra[chosen] == _CANNOT]
        chosen = np.concatenate((able, spare[:missing], unable[: len(unable) - missing]))
    chosen = chosen[np.argsort(extra[chosen], kind="stable")]
    pods = np.full(needed, low, dtype=np.int64)
    pods[:more] += unit
    return open_[chosen], pods


def _by_capacity(sums: DomainSums, level: int, pool: Ints64, wanted: list[int], unit: int) -> Shares:
    """Give each share, the largest first, to the domain that holds it in the fewest finer domains."""
    slots = sums.slots[level][pool]
    got = np.zeros(len(pool), dtype=np.int64)
    for share in sorted(set(wanted), reverse=True):
        fitting, number = np.flatnonzero((slots >= share * unit) & (got == 0)), wanted.count(share)
        if len(fitting) > number:
            some = pool[fitting]
            keys = [*_costs(sums, level, some, share * unit), *sums.preference(level, some)]
            fitting = fitting[np.lexsort([some, *reversed(keys)])[:number]]
        got[fitting] = share * unit
    return pool[got > 0], got[got > 0]


def _costs(sums: DomainSums, level: int, domains: Ints64, count: int) -> Ints64:
    """Return for each finer level, and each of these domains (ascending), the fewest domains that hold `count`.

    Exact for the next level, a lower bound further down.
    """
    found = []
    for below in range(level + 1, len(sums.slots)):
        pool, starts = sums.tree.descendants(level, domains, below)
        found.append(fewest(sums.slots[below][pool], starts, count))
    return np.stack(found)


def even_hosts(sums: DomainSums, level: int, domains: Ints64, pods: Ints64) -> Shares:
    """Divide the pods of each of these domains (ascending) among the fewest of its hosts, as evenly as possible.

    Return all hosts, ascending, with their pods. Of hosts that allow the same shares the tightest are taken.
    """
    host = len(sums.slots) - 1
    unit = unit_of(sums.grain, host)
    ranges = [sums.tree.inside(level, one, host) for one in domains.tolist()] if len(domains) <= _FEW else []
    if ranges and sum(end - start for start, end in ranges) <= SMALL:
        found = [
            pair
            for (start, end), number in zip(ranges, pods.tolist(), strict=True)
            for pair in _share_out(sums, start, end, number, unit)
        ]
        found.sort()
        return np.array([one for one, _ in found], dtype=np.int64), np.array([n for _, n in found], dtype=np.int64)
    counts = pods // unit
    pool, starts = sums.tree.descendants(level, domains, host)
    if len(domains) == 1:
        pool = _likely_hosts(sums, pool, int(counts[0]), unit)
    segment = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(pool))))
    slots = sums.slots[host][pool] // unit
    descending = -np.sort((segment << 32) - slots) + (segment << 32)
    reached = np.cumsum(descending)
    needed = np.searchsorted(reached, reached[starts] - descending[starts] + counts) - starts + 1
    low, more = np.divmod(counts, needed)
    enough, larger = slots >= low[segment], slots > low[segment]
    even = (np.add.reduceat(enough, starts, dtype=np.int64) >= needed) & (
        np.add.reduceat(larger, starts, dtype=np.int64) >= more
    )
    keys = (sums.scarce[pool], slots, segment)
    order = np.lexsort(keys if sums.scores is None else (-sums.scores.values[pool], *keys))
    got = np.zeros(len(pool), dtype=np.int64)
    first = _first_of_each(order[larger[order] & even[segment[order]]], segment, more)
    got[first] = low[segment[first]] + 1
    rest = _first_of_each(order[(enough & (got == 0))[order] & even[segment[order]]], segment, needed - more)
    got[rest] = low[segment[rest]]
    for one in np.flatnonzero(~even).tolist():
        inside = order[segment[order] == one]
        largest = inside[::-1][: needed[one]]
        got[largest] = even_shares(slots[largest].tolist(), int(needed[one]), int(counts[one]))[::-1]
    filled = np.flatnonzero(got)
    return pool[filled], got[filled] * unit


def _likely_hosts(sums: DomainSums, pool: Ints64, count: int, unit: int) -> Ints64:
    """Return those of these hosts that have room for an even share, if they are enough, else all of them."""
    free = sums.slots[-1][pool] // unit if unit > 1 or len(pool) < len(sums.slots[-1]) else sums.slots[-1]
    known = sums.tally is not None and unit == 1 and len(pool) == len(sums.slots[-1])
    needed = cover_of(sums.tally or {}, count)[0] if known else cover(free, count)[0]
    enough = np.flatnonzero(free >= count // needed)
    return pool[enough] if len(enough) >= needed else pool


def _share_out(sums: DomainSums, start: int, end: int, count: int, unit: int) -> list[tuple[int, int]]:
    """Divide the pods of one domain among the hosts from `start` to `end` as `even_hosts` does, one by one."""
    slots = (sums.slots[-1][start:end] // unit).tolist() if unit > 1 else sums.slots[-1][start:end].tolist()
    keys = [slots, sums.scarce[start:end].tolist()]
    keys += [] if sums.scores is None else [(-sums.scores.values[start:end]).tolist()]
    order = sorted(range(end - start), key=list(zip(*keys, strict=True)).__getitem__)
    descending = [slots[one] for one in reversed(order)]
    count //= unit
    needed = fewest_in(descending, count)
    low, more = divmod(count, needed)
    larger = [one for one in order if slots[one] > low][:more]
    taken = set(larger)
    rest = [one for one in order if slots[one] >= low and one not in taken][: needed - more]
    if len(larger) < more or len(rest) < needed - more:
        largest = order[len(order) - needed :]
        return [
            (start + one, share * unit)
            for one, share in zip(largest, even_shares(descending, needed, count), strict=True)
        ]
    return [(start + one, (low + 1) * unit) for one in larger] + [(start + one, low * unit) for one in rest]


def _first_of_each(ordered: Ints64, segment: Ints64, number: Ints64) -> Ints64:
    """Return the first `number[s]` of these positions of every segment s; they are ordered by segment."""
    owner = segment[ordered]
    begins = np.searchsorted(owner, np.arange(len(number)))
    return ordered[np.arange(len(ordered)) - begins[owner] < number[owner]]
