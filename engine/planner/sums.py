"""The free slots and the free scarce resource of every domain, summed up level by level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from engine.planner.slices import whole_slots
from engine.planner.tree import Bools, Ints, Ints64, Tree

_FEW_OF: Final = 4  # fewer than one in so many domains are summed up one by one
_COUNTABLE: Final = 1 << 16  # the largest score up to which distinct ones are found by counting
_MOST_SLOTS: Final = (1 << 31) - 1
MAX_SCORES: Final = 8  # distinct values that are told apart; each costs one sum over the hosts


@dataclass(frozen=True, slots=True, eq=False)
class HostScores:
    """How much a gang's pods prefer each host (0 or more); they decide between equally good hosts and domains.

    `steps` are the distinct values above 0, descending, at most `MAX_SCORES`.
    """

    values: Ints64
    steps: tuple[int, ...]

    @classmethod
    def of(cls, values: Ints64) -> HostScores | None:
        """Return the scores of hosts, with neighbouring values as one where there are too many; None if all are equal.

        The least preferred host has 0.
        """
        if not len(values) or int(values.min()) == int(values.max()):
            return None
        least = values - values.min()
        distinct = _distinct(least)
        if len(distinct) > MAX_SCORES + 1:
            width = -(-int(distinct[-1]) // MAX_SCORES)
            least = -(-least // width) * width
            distinct = _distinct(least)
        return cls(least.astype(np.int64), tuple(distinct[:0:-1].tolist()))


def _distinct(values: Ints64) -> Ints64:
    """Return the distinct values, ascending; none is below 0."""
    if int(values.max()) > _COUNTABLE:
        return np.unique(values)
    return np.flatnonzero(np.bincount(values)).astype(np.int64, copy=False)


@dataclass(slots=True, eq=False)
class DomainSums:
    """The input of one decision: `slots[level]` per domain, `scarce` (free GPUs, say) per host.

    `scarce` is summed up only when a tie needs it. `spread` reverses the order of ties: the emptiest domain first
    instead of the fullest; `balanced` asks for even shares (`descend_evenly`). `grain`: per level, the pods of a domain
    are a multiple of it (slices), None without slices; `slots` are cut to it. `used` marks per level the domains
    that the gang uses already, so that they cost nothing; None for a new gang. `tally`: slots -> number of hosts, where
    `SlotIndex` maintains it (never empty). `scores` decide between what is equal otherwise, for `count` pods; None: the
    lowest index does.
    """

    tree: Tree
    slots: tuple[Ints64, ...]
    scarce: Ints64
    spread: bool
    grain: tuple[int, ...] | None = None
    used: tuple[Bools, ...] | None = None
    tally: dict[int, int] | None = None
    balanced: bool = False
    scores: HostScores | None = None
    count: int = 0
    _scarce: dict[int, Ints64] = field(default_factory=dict)
    _reachable: dict[int, Ints64] = field(default_factory=dict)

    def scored(self, scores: HostScores | None, count: int) -> DomainSums:
        """Return the same sums for one decision about `count` pods with these scores."""
        return self if scores is None else replace(self, scores=scores, count=count, _reachable={})

    def reachable(self, level: int, domains: Ints) -> Ints64:
        """Return the most that the pods can score in each of these domains, if they may take its hosts in any order."""
        assert self.scores is not None
        host = len(self.slots) - 1
        if level == host:
            return self.scores.values[domains]
        if level not in self._reachable and len(domains) * _FEW_OF < self.tree.size(level):
            order = np.argsort(domains)
            pool, starts = self.tree.descendants(level, domains[order], host)
            found = np.empty(len(domains), dtype=np.int64)
            found[order] = self._poured(
                self.scores.values[pool], self.slots[host][pool], lambda slots: np.add.reduceat(slots, starts)
            )
            return found
        if level not in self._reachable:
            self._reachable[level] = self._poured(
                self.scores.values, self.slots[host], lambda slots: self.tree.sums(level, slots)
            )
        return self._reachable[level][domains]

    def _poured(self, values: Ints64, slots: Ints64, summed: Callable[[Ints64], Ints64]) -> Ints64:
        """Return the score of `count` pods that take the best hosts of each domain first."""
        assert self.scores is not None
        steps = self.scores.steps
        total: Ints64 = np.zeros(1, dtype=np.int64)
        for step, following in zip(steps, (*steps[1:], 0), strict=True):
            total = total + np.minimum(summed(np.where(values >= step, slots, 0)), self.count) * (step - following)
        return total

    def most(self, level: int) -> int:
        """Return the most slots that any domain of the level has; 0 without domains."""
        if level == len(self.slots) - 1 and self.tally is not None:
            return max(self.tally)
        return int(self.slots[level].max(initial=0))

    def hosts_with(self, count: int) -> Ints64:
        """Return the best-fit hosts for `count` pods: those with the fewest slots that are enough (`spread`: most)."""
        slots = self.slots[-1]
        pick = max if self.spread else min
        if self.tally is not None:
            return np.flatnonzero(slots == pick(number for number in self.tally if number >= count))
        fitting = np.flatnonzero(slots >= count)
        found = slots[fitting]
        best: Ints64 = fitting[found == (found.max() if self.spread else found.min())]
        return best

    def scarce_of(self, level: int) -> Ints64:
        """Return the free scarce resource of each domain of the level."""
        if level not in self._scarce:
            self._scarce[level] = self.tree.sums(level, self.scarce)
        return self._scarce[level]

    def share_scarce(self, level: int, sums: Ints64) -> None:
        """Use sums of the scarce resource that the caller keeps up to date."""
        self._scarce[level] = sums

    def preference(self, level: int, domains: Ints) -> list[Ints64]:
        """Return the pack key of domains of one level, most significant first; equals go by their index.

        The scores are the last key, if there are any.
        A domain above the hosts: one without any of the scarce resource first (a gang that needs it fits into none),
        then the fewest slots. A host: the fewest slots, the least of the scarce resource, the fullest rack.
        """
        return [key(domains) for key in self._keys(level)]

    def best(self, level: int, domains: Ints) -> int:
        """Return the first domain by the pack key, the lowest index among equals; each key filters the rest."""
        rest = domains
        for key in self._keys(level):
            if len(rest) == 1:
                break
            values = key(rest)
            rest = rest[values == values.min()]
        return int(rest[0])

    def _keys(self, level: int) -> list[Callable[[Ints], Ints64]]:
        if level < 0:
            return []
        sign = -1 if self.spread else 1

        def slots(domains: Ints) -> Ints64:
            return sign * self.slots[level][domains]

        def scarce(domains: Ints) -> Ints64:
            return sign * self.scarce_of(level)[domains]

        def holds_scarce(domains: Ints) -> Ints64:
            return (self.scarce_of(level)[domains] > 0).astype(np.int64)

        def parent(domains: Ints) -> Ints64:
            # Free amounts of as many binary digits are equal: small gangs then keep to the same few racks for long,
            # instead of following whichever rack is the fullest at the moment (docs/benchmarks/placement.md).
            digits = np.frexp(self.scarce_of(level - 1))[1]
            return sign * digits[self.tree.ancestors(level, level - 1)[domains]].astype(np.int64)

        if level < len(self.slots) - 1:
            keys: list[Callable[[Ints], Ints64]] = [holds_scarce, slots]
        else:
            keys = [slots, scarce, parent] if level else [slots, scarce]
        if self.scores is not None:
            keys.append(lambda domains: -self.reachable(level, domains))
        return keys

    def by_size(self, level: int, domains: Ints) -> Ints64:
        """Return these domains (ascending) with most slots first, equals in the order of the pack key."""
        slots = self.slots[level][domains]
        # Only the domain's own scarce amount: its parents are chosen already.
        own = self.scarce_of(level)[domains]
        keys = (-own if self.spread else own, -slots)
        order = np.lexsort(keys if self.scores is None else (-self.reachable(level, domains), *keys))
        ordered: Ints64 = domains[order].astype(np.int64)
        return ordered


def domain_sums(
    tree: Tree,
    slots: Ints64,
    scarce: Ints64 | None,
    *,
    spread: bool,
    grain: tuple[int, ...] | None = None,
    used: Ints64 | None = None,
    balanced: bool = False,
    scores: HostScores | None = None,
    count: int = 0,
) -> DomainSums:
    """Return sums of the clamped per-host `slots` (0 .. 2**31 - 1) for every level; `scarce` None: use the slots.

    `used`: the hosts (indices) that the gang uses already. `scores` and `count`: of `DomainSums`.
    """
    sums = slot_sums(tree, slots, grain)
    free = sums[-1]
    rare = free if scarce is None else np.clip(scarce, 0, (1 << 62) // max(len(free), 1)).astype(np.int64, copy=False)
    marked = None if used is None else marks(tree, used)
    return DomainSums(tree, sums, rare, spread, grain, marked, balanced=balanced, scores=scores, count=count)


def slot_sums(tree: Tree, slots: Ints64, grain: tuple[int, ...] | None = None) -> tuple[Ints64, ...]:
    """Return the clamped per-host `slots` summed up for every level."""
    free: Ints64 = slots.astype(np.int64, copy=False)
    if len(free) and (int(free.min()) < 0 or int(free.max()) > _MOST_SLOTS):
        free = np.clip(free, 0, _MOST_SLOTS)
    levels = len(tree.levels)
    return tuple(whole_slots(tree, free, grain or (1,) * levels, levels - 1))


def marks(tree: Tree, hosts: Ints64) -> tuple[Bools, ...]:
    """Return per level which domains hold any of these hosts."""
    marked = []
    for level, domains in enumerate(tree.domains):
        mark: Bools = np.zeros(tree.size(level), dtype=np.bool_)
        mark[domains[hosts]] = True
        marked.append(mark)
    return tuple(marked)
