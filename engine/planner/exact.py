"""Exact search: the lexicographically fewest domains, level by level, by dynamic programming over the tree.

Costs are vectors of domain counts, packed into one integer, coarsest level in the highest bits. They form an ordered
group under addition, so a part of an optimum is an optimum of its part: a domain is fully described by its frontier,
the most pods for every cost. Frontiers of siblings merge by adding all pairs; the size of a frontier follows the
number of hosts, not of pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.planner.amounts import Amounts
from engine.planner.cover import fewest_of
from engine.planner.tree import Ints64

_COST_BITS = 62


class OutOfSteps(Exception):
    """The search would take more steps than were granted."""


@dataclass(slots=True)
class Steps:
    """How many more pairs of partial placements a decision may look at."""

    left: int

    def take(self, pairs: int) -> None:
        """Count them, or raise OutOfSteps."""
        if pairs > self.left:
            raise OutOfSteps
        self.left -= pairs


@dataclass(frozen=True, slots=True, eq=False)
class _Frontier:
    """Costs and pods, both strictly ascending from (0, 0). Entry i of a merge came from `left[lefts[i]]` and
    `right[rights[i]]`; entry i of a leaf takes the first i of `items`.
    """

    cost: Ints64
    pods: Ints64
    items: Ints64 | None = None
    left: _Frontier | None = None
    right: _Frontier | None = None
    lefts: Ints64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rights: Ints64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Search:
    """One search: the fewest domains of the levels `level + 1 .. leaf` inside a domain of `level`.

    The levels below `leaf` are not looked at: a domain of `leaf` counts as one, whatever is inside.
    """

    def __init__(self, amounts: Amounts, *, level: int, leaf: int, count: int, steps: Steps) -> None:
        self._amounts = amounts
        self._leaf = leaf
        self._count = count
        self._steps = steps
        self._top = level + 1
        # Wide enough that no sum of two partial costs runs over: parts are disjoint, and each has at most `count` pods
        # more than it needs.
        widths = [min(4 * count, amounts.tree.size(below)).bit_length() for below in range(level + 1, leaf + 1)]
        if sum(widths) > _COST_BITS:
            raise OutOfSteps
        self._shifts = [sum(widths[i + 1 :]) for i in range(len(widths))]

    def run(self, domain: int, ceiling: tuple[int, ...] | None) -> Ints64 | None:
        """The domains of `leaf` to use (ascending), or None when no cover costs less than `ceiling`."""
        limit = (1 << _COST_BITS) if ceiling is None else self._pack(ceiling)
        frontier = self._inside(self._top - 1, domain, limit)
        at = int(np.searchsorted(frontier.pods, self._count))
        if at == len(frontier.pods) or frontier.cost[at] >= limit:
            return None
        return np.sort(_items(frontier, at))

    def _pack(self, vector: tuple[int, ...]) -> int:
        return sum(n << shift for n, shift in zip(vector, self._shifts, strict=True))

    def _unit(self, level: int) -> int:
        return 1 << self._shifts[level - self._top]

    def _inside(self, level: int, domain: int, limit: int) -> _Frontier:
        """The frontier of a domain's children, without the cost of the domain itself."""
        below = level + 1
        children = self._amounts.tree.children(level, np.array([domain]))
        children = children[self._amounts.slots[below][children] > 0]
        children = self._amounts.by_size(below, children)
        sizes = np.minimum(self._amounts.slots[below][children], self._count)
        most = fewest_of(sizes, min(self._count, int(sizes.sum())))
        if below == self._leaf:
            return self._leaves(children[:most], sizes[:most])
        whole = level == self._top - 1
        if whole and most < len(children):
            # Of the fewest children that cover the gang none is smaller than what the largest others leave over.
            enough = sizes >= self._count - int(sizes[: most - 1].sum())
            children, sizes = children[enough], sizes[enough]
        total = _Frontier(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        reach = np.concatenate(([0], np.cumsum(sizes)))
        copies: dict[bytes, int] = {}
        for i, child in enumerate(children.tolist()):
            table = self._inside(below, child, limit)
            signature = table.cost.tobytes() + table.pods.tobytes()
            copies[signature] = copies.get(signature, 0) + 1
            if copies[signature] > most:
                continue  # no optimum uses more than `most` children, so more equal ones change nothing
            cost = table.cost.copy()
            cost[1:] += self._unit(below)
            table = _Frontier(cost, table.pods, table.items, table.left, table.right, table.lefts, table.rights)
            total = self._merge(total, table, limit)
            if whole:
                total = self._promising(total, reach, i + 1, most)
        return total

    def _leaves(self, children: Ints64, sizes: Ints64) -> _Frontier:
        """Largest first: no set of as many leaves holds more."""
        self._steps.take(len(children) + 1)
        pods = np.minimum(np.concatenate(([0], np.cumsum(sizes))), self._count)
        cost = np.arange(len(pods), dtype=np.int64) * self._unit(self._leaf)
        return _Frontier(cost, pods, items=children)

    def _merge(self, left: _Frontier, right: _Frontier, limit: int) -> _Frontier:
        self._steps.take(len(left.cost) * len(right.cost))
        cost = (left.cost[:, None] + right.cost[None, :]).ravel()
        pods = np.minimum((left.pods[:, None] + right.pods[None, :]).ravel(), self._count)
        keep = np.flatnonzero(cost < limit)
        keep = keep[np.lexsort((-pods[keep], cost[keep]))]
        pods = pods[keep]
        keep = keep[np.flatnonzero(pods > np.concatenate(([-1], np.maximum.accumulate(pods)[:-1])))]
        pods = np.minimum((left.pods[keep // len(right.pods)] + right.pods[keep % len(right.pods)]), self._count)
        return _Frontier(
            cost[keep],
            pods,
            left=left,
            right=right,
            lefts=keep // len(right.pods),
            rights=keep % len(right.pods),
        )

    def _promising(self, frontier: _Frontier, reach: Ints64, done: int, most: int) -> _Frontier:
        """Without the entries that the remaining children cannot complete within the fewest children."""
        used = frontier.cost >> self._shifts[0]
        ahead = reach[np.minimum(done + np.maximum(most - used, 0), len(reach) - 1)] - reach[done]
        keep = np.flatnonzero(frontier.pods + ahead >= self._count)
        return _Frontier(
            frontier.cost[keep],
            frontier.pods[keep],
            left=frontier.left,
            right=frontier.right,
            lefts=frontier.lefts[keep],
            rights=frontier.rights[keep],
        )


def _items(frontier: _Frontier, at: int) -> Ints64:
    """The leaves behind an entry."""
    found: list[Ints64] = []
    open_entries = [(frontier, at)]
    while open_entries:
        table, i = open_entries.pop()
        if table.items is not None:
            found.append(table.items[:i])
        elif table.left is not None and table.right is not None:
            open_entries.append((table.left, int(table.lefts[i])))
            open_entries.append((table.right, int(table.rights[i])))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
