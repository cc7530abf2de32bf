"""Slices: groups of consecutive ranks, each in one domain of a level, possibly with smaller slices inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.tree import Ints64, Tree


@dataclass(frozen=True, slots=True)
class Slices:
    """Each group of `size` consecutive ranks stays in one domain of `level` (an index).

    When every domain of that level holds a multiple of `size`, ranks assigned in the order of the hosts satisfy it.
    """

    level: int
    size: int


def check_slices(slices: Sequence[Slices], levels: int, count: int | None) -> None:
    """Raise ValueError unless levels go from coarse to fine, and each size divides the one before and the count.

    None: any count.
    """
    level, whole, what = -1, count, "count"
    for one in slices:
        if not level < one.level < levels:
            raise ValueError(f"slices: level {one.level} is unknown or not finer than the level before it")
        if one.size < 1 or (whole or 0) % one.size:
            raise ValueError(f"slices: size {one.size} does not divide the {what} {whole}")
        level, whole, what = one.level, one.size, "size"


def grains(slices: Sequence[Slices], levels: int) -> tuple[int, ...]:
    """Return per level the number that the pods of every domain must be a multiple of (1: any number)."""
    sizes = {one.level: one.size for one in slices}
    return tuple(sizes.get(level, 1) for level in range(levels))


def unit_of(grain: Sequence[int] | None, level: int) -> int:
    """Return the number that the pods of every domain of the level must be a multiple of, finer slices included."""
    return next((size for size in (grain or ())[max(level, 0) :] if size > 1), 1)


def whole_slots(tree: Tree, slots: Ints64, grain: Sequence[int], finest: int) -> list[Ints64]:
    """Return the slots of every domain that whole slices can use, coarse to fine down to level `finest`.

    `slots` are those of the domains of `finest`. A slice is lost where it fits into no single domain of its level.
    """
    sums = [slots // grain[finest] * grain[finest] if grain[finest] > 1 else slots]
    for level in range(finest - 1, -1, -1):
        inside: Ints64 = np.add.reduceat(sums[0], tree.offsets[level][:-1]) if len(sums[0]) else sums[0]
        sums.insert(0, inside // grain[level] * grain[level] if grain[level] > 1 else inside)
    return sums


def shares(tree: Tree, slots: Ints64, grain: Sequence[int], *, finest: int, count: int) -> Ints64:
    """Return how many of `count` pods each domain of `finest` gets when these `slots` are filled in tree order.

    Every domain gets whole slices. The slots must hold `count` in whole slices.
    """
    sums = whole_slots(tree, slots, grain, finest)
    before = np.cumsum(sums[0]) - sums[0]
    got: Ints64 = np.clip(count - before, 0, sums[0])
    for level in range(finest):
        before = np.cumsum(sums[level + 1]) - sums[level + 1]
        offsets = tree.offsets[level]
        parent = np.repeat(np.arange(len(got)), np.diff(offsets))
        got = np.clip(got[parent] - (before - before[offsets[:-1]][parent]), 0, sums[level + 1])
    return got
