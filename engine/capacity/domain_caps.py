"""Caps of pods per domain, and how slots are cut so that no plan exceeds them.

A domain is the set of hosts with one value of a label. A cap is exact where each domain of the topology's tree is
inside one such domain, or the other way round: the slots that are left hold as many pods as the caps allow, in whole
slices. For labels across the tree the cut is sound: fewer pods may fit than could, never more than may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.planner.slices import unit_of, whole_slots
from engine.planner.tree import Bools, Ints64, Tree, runs

# Domains of the required level that are tried one by one. Each costs a plan, and any user may ask for it.
MAX_DOMAINS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class LabelDomains:
    """The domains of a label: `codes[host]` in tree order, 0 for a host without it; all codes are below `size`."""

    key: str
    codes: Ints64
    size: int
    _levels: dict[int, int] = field(default_factory=dict)  # by tree: the answer of `level`

    def sums(self, per_host: Ints64) -> Ints64:
        """Return the sum of a per-host amount in each domain, by code."""
        return np.bincount(self.codes, weights=per_host, minlength=self.size).astype(np.int64)

    @property
    def number(self) -> int:
        """The number of domains with a host; codes of values that no node has any more do not count."""
        return int((np.bincount(self.codes, minlength=self.size)[1:] > 0).sum())

    def level(self, tree: Tree) -> int:
        """Return the coarsest level of the tree whose domains are each inside one domain of the label."""
        if id(tree) not in self._levels:
            self._levels[id(tree)] = self._level(tree)
        return self._levels[id(tree)]

    def _level(self, tree: Tree) -> int:
        for level in range(len(tree.levels) - 1):
            if (self.codes == self.codes[tree.starts[level]][tree.domains[level]]).all():
                return level
        return len(tree.levels) - 1


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
        return 0 if self.fixed or not self.counted.any() else int(self.existing[self.counted].min())

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
        least = 0 if self.skew.fixed or not self.skew.counted.any() else int(total[self.skew.counted].min())
        return bool((total[opened] <= least + self.skew.max_skew).all())


def clip(tree: Tree, slots: Ints64, domains: LabelDomains, limit: Ints64, grain: Sequence[int]) -> Ints64:
    """Return slots of which no domain has more than its limit; each keeps the largest places, in whole slices."""
    last = len(tree.levels) - 1
    level = domains.level(tree)
    if level == last and (np.bincount(domains.codes, minlength=domains.size)[1:] <= 1).all():
        return np.where(domains.codes > 0, np.minimum(slots, limit[domains.codes]), slots)
    sums = whole_slots(tree, slots, grain, last)
    codes = domains.codes[tree.starts[level]]
    here = sums[level]
    over = np.bincount(codes, weights=here, minlength=domains.size) > limit
    over[0] = False
    cut = np.flatnonzero(over[codes])
    if not len(cut):
        return slots
    unit = unit_of(grain, level)
    amounts: Ints64 = here.copy()
    amounts[cut] = _largest_first(codes[cut], here[cut], limit[codes[cut]] // unit * unit)
    for below in range(level + 1, last + 1):
        amounts = _divided(tree, below, sums[below], amounts, fewer=amounts < sums[below - 1])
    return np.where(over[domains.codes], amounts, slots)


def _divided(tree: Tree, level: int, sizes: Ints64, amounts: Ints64, *, fewer: Bools) -> Ints64:
    """Return how much each domain of a level takes of the amounts of those above it, the largest first.

    `fewer`: the domains above that do not take all that is inside them.
    """
    parent = tree.ancestors(level, level - 1)
    largest = np.maximum.reduceat(sizes, tree.offsets[level - 1][:-1])
    if (amounts <= largest)[fewer].all():
        # The usual case, without sorting: one domain takes all of it.
        first = np.flatnonzero((sizes == largest[parent]) & fewer[parent])
        first = first[runs(parent[first])]
        taken = np.where(fewer[parent], 0, sizes)
        taken[first] = amounts[parent[first]]
        return taken
    finer: Ints64 = sizes.copy()
    less = np.flatnonzero(fewer[parent])
    finer[less] = _largest_first(parent[less].astype(np.int64), finer[less], amounts[parent[less]])
    return finer


def _largest_first(groups: Ints64, sizes: Ints64, most: Ints64) -> Ints64:
    """Return how much of each size is taken when a group takes its largest ones first, `most` in all."""
    order = np.lexsort((-sizes, groups))
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
    level = cap.domains.level(tree)
    places = whole_slots(tree, slots, grain, len(tree.levels) - 1)[level]
    room = np.bincount(cap.domains.codes[tree.starts[level]], weights=places, minlength=cap.domains.size)
    room = room.astype(np.int64)
    room[0] = 0
    unit = unit_of(grain, level)

    def holds(least: int) -> Ints64:
        return np.minimum(room, skew.limits(least)) // unit * unit

    low = high = skew.least
    if int(holds(low).sum()) >= count:
        return cap.limit
    while int(holds(high).sum()) < count:
        if high - skew.least > count + unit:
            return cap.limit
        high += max(1, high - low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if int(holds(middle).sum()) >= count else (middle, high)
    for least in range(high, high + unit):
        most = holds(least)
        needed = np.where(skew.counted, np.maximum(least - skew.existing, 0), 0)
        needed = -(-needed // unit) * unit
        if (needed <= most).all() and int(needed.sum()) <= count <= int(most.sum()):
            spare = most - needed
            order = np.argsort(-spare, kind="stable")
            before = np.cumsum(spare[order]) - spare[order]
            needed[order] += np.clip(count - int(needed.sum()) - before, 0, spare[order])
            return needed
    return cap.limit


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


def _cut(
    tree: Tree, slots: Ints64, caps: Sequence[DomainCap], *, count: int, require: int | None, grain: Sequence[int]
) -> Ints64:
    # The smallest domains first: what they hold is what the larger ones can hold.
    for cap in sorted(caps, key=lambda cap: -cap.domains.number):
        if require is not None and require >= cap.domains.level(tree):
            # All pods are in one domain of the label anyway.
            few = (cap.limit < count)[cap.domains.codes] & (cap.domains.codes > 0)
            slots = np.where(few, 0, slots)
            continue
        limit = cap.limit if require is not None else limit_of(cap, tree, slots, count, grain)
        slots = clip(tree, slots, cap.domains, limit, grain)
    return slots
