"""Descends from a chosen domain to hosts: at each level the fewest children of the domains above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.cover import SMALL, best_last, cover, fewest_in, tightest
from engine.planner.slices import shares
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


def descend(amounts: DomainSums, level: int, domains: Ints, count: int, pick: Pick) -> Choice:
    """Choose hosts inside `domains` of `level` (-1: the whole topology), which hold at least `count` slots."""
    return choice(amounts, np.sort(_hosts(amounts, level, domains, count, pick)))


def _hosts(amounts: DomainSums, level: int, domains: Ints, count: int, pick: Pick) -> Ints64:
    chosen: Ints64 = domains.astype(np.int64)
    for below in range(level + 1, len(amounts.slots)):
        split = _split(amounts, below - 1, chosen, count)
        if split is not None:
            return np.concatenate([_hosts(amounts, below - 1, some, share, pick) for some, share in split])
        pool = amounts.tree.children(below - 1, chosen)
        host = below == len(amounts.slots) - 1
        # No level below depends on the hosts: among the fewest, the tightest is best.
        chosen = choose(amounts, below, pool, count, TIGHTEST if host else pick)
    return chosen


def _split(amounts: DomainSums, level: int, domains: Ints64, count: int) -> list[tuple[Ints64, int]] | None:
    """Split the domains by the domain that holds whole slices; return parts with their shares, None for one part.

    From there on down pods may no longer move between the parts, or slices would break.
    """
    grain = amounts.grain
    if grain is None or len(domains) == 1 or all(size == 1 for size in grain[: level + 1]):
        return None
    finest = max(i for i in range(level + 1) if grain[i] > 1)
    holder = amounts.tree.ancestors(level, finest)[domains] if finest < level else domains
    if (holder == holder[0]).all():
        return None
    open_: Ints64 = np.zeros_like(amounts.slots[level])
    open_[domains] = amounts.slots[level][domains]
    # Domains inside one domain of a level are part of what that one holds: its slices are handled already.
    inner = tuple(size if _separated(amounts, level, domains, up) else 1 for up, size in enumerate(grain))
    got = shares(amounts.tree, open_, inner, finest=level, count=count)
    parts = [domains[holder == one] for one in np.unique(holder)]
    return [(part, share) for part in parts if (share := int(got[part].sum()))]


def _separated(amounts: DomainSums, level: int, domains: Ints64, up: int) -> bool:
    """Return whether these domains of `level` are in more than one domain of level `up`."""
    above = amounts.tree.ancestors(level, up)[domains] if up < level else domains
    return bool((above != above[0]).any())


def choose(amounts: DomainSums, level: int, pool: Ints64, count: int, pick: Pick) -> Ints64:
    """Return the fewest of these domains that hold `count` slots, picked by `pick`."""
    if amounts.used is not None and amounts.used[level][pool].any():
        return _choose_beside(amounts, level, pool, count, pick)
    useful = pool
    if len(pool) >= SMALL:
        slots = amounts.slots[level][pool]
        useful = pool[slots >= cover(slots, count)[1]]
    ordered = amounts.by_size(level, useful)
    values = amounts.slots[level][ordered].tolist()
    needed = fewest_in(values, count)
    if needed == len(pool):
        return pool
    if amounts.spread:
        return ordered[:needed]
    return ordered[pick(values, needed, count)]


def _choose_beside(amounts: DomainSums, level: int, pool: Ints64, count: int, pick: Pick) -> Ints64:
    """Return the used ones of these domains, and the fewest others that take the remaining pods."""
    assert amounts.used is not None
    used = amounts.used[level][pool]
    near, far = pool[used], pool[~used]
    slots = amounts.slots[level][near]
    left = count - int(slots.sum())
    if left > 0:
        return np.concatenate((near, choose(amounts, level, far, left, pick)))
    if level < len(amounts.slots) - 1:
        return near  # all cost the same, and the more of them, the more freedom further down
    near = near[np.argsort(-slots if amounts.spread else slots, kind="stable")]
    return near[: int(np.searchsorted(np.cumsum(amounts.slots[level][near]), count)) + 1]


def choice(amounts: DomainSums, hosts: Ints64) -> Choice:
    """Return the choice of these hosts (ascending), with its domains counted."""
    if amounts.used is not None:
        touched = _touched(amounts, hosts)
        return Choice(hosts, tuple(int((~amounts.used[i][some]).sum()) for i, some in enumerate(touched)))
    above = amounts.tree.domains[:-1]
    if len(hosts) < SMALL:
        return Choice(hosts, (*[len(set(domains[hosts].tolist())) for domains in above], len(hosts)))
    return Choice(hosts, (*[len(runs(domains[hosts])) for domains in above], len(hosts)))


def rank(amounts: DomainSums, one: Choice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sort key of a choice: its opened domains, then the free slots in the touched domains, per level."""
    touched = _touched(amounts, one.hosts)
    return one.used, tuple(int(slots[some].sum()) for slots, some in zip(amounts.slots, touched, strict=True))


def _touched(amounts: DomainSums, hosts: Ints64) -> list[Ints]:
    """Return the domains of each level that hold any of these hosts (ascending)."""
    found: list[Ints] = []
    for domains in amounts.tree.domains:
        touched = domains[hosts]
        found.append(touched[runs(touched)])
    return found
