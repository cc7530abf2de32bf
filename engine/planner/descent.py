"""From a chosen domain down to hosts: at each level the fewest children of what was chosen above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.amounts import Amounts
from engine.planner.cover import best_last, fewest_of, tightest
from engine.planner.tree import Ints, Ints64, runs


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Hosts (ascending) that cover the gang, and the number of domains that they touch at every level."""

    hosts: Ints64
    used: tuple[int, ...]
    leftover: tuple[int, ...]  # free slots in the touched domains, per level


Pick = Callable[[Sequence[int], int, int], list[int]]


def _largest(values: Sequence[int], pick: int, count: int) -> list[int]:
    return list(range(pick))


# Ways to pick children, each the fewest at its level: the tightest keep large domains whole, the largest leave the
# level below the most freedom. Which of them needs the fewest hosts is not known beforehand.
TIGHTEST: Pick = tightest
PICKS: tuple[Pick, ...] = (tightest, best_last, _largest)


def descend(amounts: Amounts, level: int, domains: Ints, count: int, pick: Pick) -> Choice:
    """Hosts inside `domains` of `level` (-1: the whole topology), which hold at least `count` slots."""
    chosen: Ints = domains
    for below in range(level + 1, len(amounts.slots)):
        pool = amounts.tree.children(below - 1, chosen)
        host = below == len(amounts.slots) - 1
        # No level hangs on the hosts: among the fewest, the tightest is best.
        chosen = choose(amounts, below, pool, count, TIGHTEST if host else pick)
    return choice(amounts, np.sort(chosen).astype(np.int64))


def choose(amounts: Amounts, level: int, pool: Ints64, count: int, pick: Pick) -> Ints64:
    """The fewest of these domains that hold `count` slots, picked by `pick`."""
    slots = amounts.slots[level][pool]
    needed = fewest_of(slots, count)
    if needed == len(pool):
        return pool
    ordered = amounts.by_size(level, pool)
    if amounts.spread:
        return ordered[:needed]
    return ordered[pick(amounts.slots[level][ordered].tolist(), needed, count)]


def choice(amounts: Amounts, hosts: Ints64) -> Choice:
    """The choice of these hosts (ascending), with its domains counted."""
    used = []
    leftover = []
    for level, slots in enumerate(amounts.slots):
        touched = amounts.tree.domains[level][hosts]
        touched = touched[runs(touched)]
        used.append(len(touched))
        leftover.append(int(slots[touched].sum()))
    return Choice(hosts, tuple(used), tuple(leftover))
