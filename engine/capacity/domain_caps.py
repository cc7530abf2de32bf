"""Caps of pods per domain, and how slots are cut so that no plan exceeds them.

A domain is the set of hosts with one value of a label. A cap is exact where each domain of the topology's tree is
inside one such domain, or the other way round: the slots that are left hold as many pods as the caps allow, in whole
slices. For labels across the tree the cut is sound: fewer pods may fit than could, never more than may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from engine.capacity.label_domains import LabelDomains
from engine.planner.slices import unit_of, whole_slots
from engine.planner.tree import Bools, Ints64, Tree

# Domains of the required level that are tried one by one. Each costs a plan, and any user may ask for it.
MAX_DOMAINS: Final = 64
# Ways that are looked at for whether a number of pods fits.
_TRIED: Final = 16
_MOST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Skew:
    """The pods that count for a spread constraint, by code, and the domains that count.

    `fixed`: the fewest pods of a domain are 0 whatever is placed, as there are fewer domains than minDomains.
    """

    existing: Ints64
    counted: Bools
    max_skew: int
    fixed: bool

    @property
    def least(self) -> int:
        """The fewest pods that a domain has now."""
        return self.least_of(self.existing)

    def least_of(self, pods: Ints64) -> int:
        """Return the fewest of these pods by code in any domain that counts."""
        counted = pods[self.counted] if not self.fixed else pods[:0]
        return int(counted.min()) if len(counted) else 0

    def limits(self, least: int) -> Ints64:
        """Return how many more pods each domain may get if the fewest of any are `least` in the end."""
        limit: Ints64 = np.maximum(least + self.max_skew - self.existing, 0)
        return limit


@dataclass(frozen=True, slots=True, eq=False)
class DomainCap:
    """At most `limit[code]` more pods of some pod sets together in each domain.

    With a skew the limit is that of the present; it rises with the domain of the fewest pods.
    """

    why: str
    domains: LabelDomains
    limit: Ints64
    pod_sets: frozenset[str]
    skew: Skew | None = None

    def keeps(self, placed: Ints64) -> bool:
        """Return whether these new pods of the pod sets, by host, keep within the cap in the end."""
        more = self.domains.sums(placed)
        opened = more > 0
        opened[0] = False  # hosts without the label
        if self.skew is None:
            return bool((more <= self.limit)[opened].all())
        total = self.skew.existing + more
        return bool((total[opened] <= self.skew.least_of(total) + self.skew.max_skew).all())


def clip(tree: Tree, slots: Ints64, domains: LabelDomains, limit: Ints64, grain: Sequence[int]) -> Ints64:
    """Return slots of which no domain has more than its limit; each keeps the largest places, in whole slices."""
    last = len(tree.levels) - 1
    level, codes = domains.level, domains.level_codes
    if level == last and domains.single:
        least = np.minimum(slots, limit[codes])
        return least if domains.every else np.where(codes > 0, least, slots)
    sums = whole_slots(tree, slots, grain, last)
    here, most = sums[level], limit[codes]
    over = here > most if domains.single else (domains.level_sums(here) > limit)[codes]
    if not domains.every:
        over &= codes > 0
    if not over.any():
        return slots
    unit = unit_of(grain, level)
    if unit > 1:
        most = most // unit * unit
    if domains.single:
        amounts = np.where(over, np.minimum(here, most), here)
    else:
        cut = np.flatnonzero(over)
        amounts = here.copy()
        amounts[cut] = _largest_first(codes[cut], here[cut], most[cut])
    for below in range(level + 1, last + 1):
        amounts = _divided(tree, below, sums[below], amounts, fewer=amounts < sums[below - 1])
    if over.all():
        return amounts
    return np.where(tree.hosts_in(level, over), amounts, slots)


def _divided(tree: Tree, level: int, sizes: Ints64, amounts: Ints64, *, fewer: Bools) -> Ints64:
    """Return how much each domain of a level takes of the amounts of those above it, the largest first.

    `fewer`: the domains above that do not take all that is inside them.
    """
    if fewer.all():
        taken: Ints64 = np.zeros_like(sizes)
    else:
        taken = sizes * np.repeat((~fewer).astype(np.int64), np.diff(tree.offsets[level - 1]))
    some = np.flatnonzero(fewer & (amounts > 0))
    if not len(some):
        return taken
    # The usual case, without sorting: one domain takes all of it.
    if len(some) == len(fewer):
        largest, place = _largest(sizes, tree.offsets[level - 1][:-1])
        most = amounts
    else:
        pool, starts = tree.descendants(level - 1, some, level)
        largest, first = _largest(sizes[pool], starts)
        place, most = pool[first], amounts[some]
    alone = most <= largest
    if alone.all():
        taken[place] = most
    else:
        taken[place[alone]] = most[alone]
        several = some[~alone]
        pool, starts = tree.descendants(level - 1, several, level)
        group = np.repeat(np.arange(len(several)), np.diff(starts, append=len(pool)))
        taken[pool] = _largest_first(group, sizes[pool], most[~alone][group])
    return taken


def _largest(sizes: Ints64, starts: Ints64) -> tuple[Ints64, Ints64]:
    """Return the largest size in each segment, and where the first one of it is."""
    number = len(sizes)
    if int(sizes.max(initial=0)) >= _MOST // max(number, 1) - 1:  # would not fit into one number with its place
        order = np.lexsort((-sizes, np.repeat(np.arange(len(starts)), np.diff(np.append(starts, number)))))
        first = order[starts]
        return sizes[first], first
    # One number for both, so that one pass finds them: the size, less a fraction for the place.
    keys = sizes * number
    keys -= np.arange(number)
    best = np.maximum.reduceat(keys, starts)
    largest = -(-best // number)
    return largest, largest * number - best


def _largest_first(groups: Ints64, sizes: Ints64, most: Ints64, ties: Ints64 | None = None) -> Ints64:
    """Return how much of each size is taken when a group takes its largest ones first, `most` in all.

    Of equal ones the first is taken, by `ties` where these are given.
    """
    order = np.lexsort((-sizes, groups) if ties is None else (ties, -sizes, groups))
    group, size = groups[order], sizes[order]
    before = np.cumsum(size) - size
    first = np.flatnonzero(np.diff(group, prepend=-1))
    before -= np.repeat(before[first], np.diff(np.append(first, len(group))))
    taken = np.empty_like(sizes)
    taken[order] = np.clip(most[order] - before, 0, size)
    return taken


def limit_of(cap: DomainCap, tree: Tree, slots: Ints64, count: int, grain: Sequence[int]) -> Ints64:
    """Return the limit of a cap for `count` pods on these slots.

    Where the present limit holds too few, the fewest pods of any domain must rise: then each domain gets exactly its
    limit. The present limit if that is impossible.
    """
    skew = cap.skew
    if skew is None or skew.fixed:
        return cap.limit
    level = cap.domains.level
    room = cap.domains.level_sums(whole_slots(tree, slots, grain, len(tree.levels) - 1)[level])
    room[0] = 0
    unit = unit_of(grain, level)
    above = _slices_above(tree, cap.domains, grain)

    def holds(least: int) -> Ints64:
        held = np.minimum(room, skew.limits(least))
        return held // unit * unit if unit > 1 else held

    def number(least: int) -> int:
        held = holds(least)
        for slices in above:
            held = slices.sums(held) // slices.size * slices.size
        return int(held.sum())

    low = high = skew.least
    if number(low) >= count:
        return cap.limit
    most_unit = above[-1].size if above else unit
    while number(high) < count:
        if high - skew.least > count + most_unit:
            return cap.limit
        high += max(1, high - low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if number(middle) >= count else (middle, high)
    for least in range(high, high + most_unit):
        needed = np.where(skew.counted, np.maximum(least - skew.existing, 0), 0)
        exact = _divide(-(-needed // unit) * unit, holds(least), count, above, first=cap.domains.first)
        if exact is not None:
            return exact
    return cap.limit


@dataclass(frozen=True, slots=True, eq=False)
class _SlicesAbove:
    """Slices of a level with `number` domains, and which of these each domain below is in."""

    size: int
    parents: Ints64
    number: int

    def sums(self, amounts: Ints64) -> Ints64:
        """Return the sum of the amounts of the domains below in each domain."""
        return np.bincount(self.parents, weights=amounts, minlength=self.number).astype(np.int64)


def _slices_above(tree: Tree, domains: LabelDomains, grain: Sequence[int]) -> list[_SlicesAbove]:
    """Return the slices that are coarser than the domains of a label, fine to coarse; below the first are the codes.

    None where a domain of the label is in several of their domains: the cut is not exact then.
    """
    found: list[_SlicesAbove] = []
    codes, places, size = domains.level_codes, tree.starts[domains.level], domains.size
    for level in range(domains.level - 1, -1, -1):
        if grain[level] == 1:
            continue
        parents = np.zeros(size, dtype=np.int64)
        parents[codes] = tree.domains[level][places]
        if ((parents[codes] != tree.domains[level][places]) & (codes > 0)).any() and not found:
            return []
        found.append(_SlicesAbove(grain[level], parents, tree.size(level)))
        size = tree.size(level)
        codes, places = np.arange(size), tree.starts[level]
    return found


def _divide(least: Ints64, most: Ints64, count: int, above: Sequence[_SlicesAbove], *, first: Ints64) -> Ints64 | None:
    """Return numbers from `least` to `most` that are `count` in all and whole slices above; None if there are none.

    `first`: what ties among them go by.
    """
    lows, highs = [least], [most]
    for slices in above:
        lows.append(-(-slices.sums(lows[-1]) // slices.size) * slices.size)
        highs.append(slices.sums(highs[-1]) // slices.size * slices.size)
    if any((low > high).any() for low, high in zip(lows, highs, strict=True)):
        return None
    if not int(lows[-1].sum()) <= count <= int(highs[-1].sum()):
        return None
    top = _SlicesAbove(1, np.zeros(len(lows[-1]), dtype=np.int64), 1)
    totals = np.array([count], dtype=np.int64)
    for slices, low, high in zip(reversed((*above, top)), reversed(lows), reversed(highs), strict=True):
        rest = totals - slices.sums(low)
        ties = first if low is least else None
        totals = low + _largest_first(slices.parents, high - low, rest[slices.parents], ties)
    return totals


def capped(
    tree: Tree, slots: Ints64, caps: Sequence[DomainCap], *, count: int, require: int | None, grain: Sequence[int]
) -> Iterator[Ints64]:
    """Yield slots of equal pods that keep within the caps, one way after the other; `require`: all in one domain.

    The first way is enough, unless a spread constraint needs the domain with the fewest pods to rise inside the
    required domain.
    """
    yield _cut(tree, slots, caps, count=count, require=require, grain=grain)
    if require is None or all(cap.skew is None or cap.skew.fixed for cap in caps):
        return
    roomy = whole_slots(tree, slots, grain, len(tree.levels) - 1)[require] >= count
    raises = np.logical_or.reduce([_raising(tree, cap, require) for cap in caps])
    for domain in np.flatnonzero(roomy & raises)[:MAX_DOMAINS].tolist():
        first, end = tree.range(require, domain)
        inside = np.zeros_like(slots)
        inside[first:end] = slots[first:end]
        yield _cut(tree, inside, caps, count=count, require=None, grain=grain)


def capped_most(
    tree: Tree,
    slots: Ints64,
    caps: Sequence[DomainCap],
    *,
    least: int,
    most: int,
    require: int | None,
    grain: Sequence[int],
) -> Iterator[Ints64]:
    """Yield slots as in `capped`, for the most pods between two numbers that the caps allow.

    What a spread constraint lets be placed depends on how many there will be: with one domain full, no further pod fits
    anywhere. So does what caps leave where all pods are in one domain of their label anyway.
    """

    def cuts(count: int) -> Iterator[Ints64]:
        return capped(tree, slots, caps, count=count, require=require, grain=grain)

    def fits(count: int) -> bool:
        ways = islice(cuts(count), _TRIED)
        return any((free.sum() if require is None else tree.sums(require, free).max()) >= count for free in ways)

    def by_count(cap: DomainCap) -> bool:
        whole = require is not None and require >= cap.domains.level
        return whole or (cap.skew is not None and not cap.skew.fixed)

    count = most
    if least < most and any(map(by_count, caps)) and not fits(most):
        step = max(grain, default=1)  # slices stay whole: in between nothing fits
        low, high = -(-least // step) - 1, -(-most // step)  # the most steps that are known to fit, and too many
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle * step) else (low, middle)
        count = low * step if low * step >= least else most
    if count == most or require is None:
        return cuts(count)
    # The required domain with room for so many pods may have slots for more, which its caps forbid.
    required = LabelDomains("", tree, tree.domains[require].astype(np.int64) + 1, tree.size(require) + 1)
    limit = np.full(required.size, count, dtype=np.int64)
    return (clip(tree, free, required, limit, grain) for free in cuts(count))


def _raising(tree: Tree, cap: DomainCap, level: int) -> Bools:
    """Return the domains of a level in which pods alone can raise the fewest pods of any domain of the cap.

    All domains of the cap with the fewest must have a host there: with labels that nest, of few levels' domains any.
    """
    found = np.zeros(tree.size(level), dtype=np.bool_)
    skew = cap.skew
    if skew is None or skew.fixed or not skew.counted.any():
        return found
    fewest = skew.counted & (skew.existing == skew.least)
    hosts = np.flatnonzero(fewest[cap.domains.codes])
    pairs = np.unique(np.stack((tree.domains[level][hosts], cap.domains.codes[hosts])), axis=1)
    found[:] = np.bincount(pairs[0].astype(np.int64), minlength=len(found)) == fewest.sum()
    return found


def _holds(cap: DomainCap, cut: Ints64, count: int, grain: Sequence[int]) -> bool:
    """Return whether it is certain that slots that are cut to the present limit hold `count` pods: then it is kept."""
    return cap.domains.every and max(grain, default=1) == 1 and int(cut.sum()) >= count


def _cut(
    tree: Tree, slots: Ints64, caps: Sequence[DomainCap], *, count: int, require: int | None, grain: Sequence[int]
) -> Ints64:
    # The smallest domains first: what they hold is what the larger ones can hold.
    for cap in sorted(caps, key=lambda cap: -cap.domains.number) if len(caps) > 1 else caps:
        if require is not None and require >= cap.domains.level:
            # All pods are in one domain of the label anyway.
            few = cap.limit < count
            few[0] = False
            slots = np.where(cap.domains.hosts_in(few), 0, slots)
            continue
        cut = clip(tree, slots, cap.domains, cap.limit, grain)
        if require is None and cap.skew is not None and not cap.skew.fixed and not _holds(cap, cut, count, grain):
            cut = clip(tree, slots, cap.domains, limit_of(cap, tree, slots, count, grain), grain)
        slots = cut
    return slots
