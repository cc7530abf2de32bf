"""Covering a number of pods with the fewest domains of one level, and the tightest choice among the fewest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.planner.tree import Ints, Ints64

NEVER = 1 << 31  # more domains than any tree has: cannot be covered

# Fewer values than this are handled one by one: each numpy call costs a microsecond or more.
SMALL = 96
# Up to this value, values are counted rather than sorted.
_COUNTED = 256

# Picks that the subset sum varies; the larger domains before them are fixed. The surplus of the largest-first choice
# is less than its smallest member, so few exchanges are ever needed; 8 keep a choice at tens of microseconds.
_WINDOW = 8


def fewest(values: Ints64, starts: Ints, count: int) -> Ints64:
    """Return per segment the smallest number of its values that add up to `count`; NEVER where all are too few.

    Largest first is optimal on one level (exchange argument). `values` are free slots >= 0, `starts` the first index
    of each (non-empty) segment, `count` below 2**31.
    """
    if len(starts) == 1:
        return np.array([fewest_of(values, count)], dtype=np.int64)
    lengths = np.concatenate((starts[1:], [len(values)])) - starts
    # One sort for all segments: the segment in the high bits, the value (descending) in the low ones. Values beyond
    # count cover it alone, so cutting them there changes no answer, and the keys nearly always fit into 32 bits.
    width = count.bit_length()
    narrow = len(starts) << width < 1 << 31
    high: Ints = np.arange(len(starts)).astype(np.int32 if narrow else np.int64)
    segments = np.repeat(high << width, lengths)
    keys = segments - np.minimum(values, count).astype(segments.dtype)
    keys.sort()
    sizes = segments - keys
    reached = np.cumsum(sizes, dtype=np.int64)
    before = reached[starts] - sizes[starts]
    last = np.searchsorted(reached, before + count)
    picked: Ints64 = np.where(last < starts + lengths, last - starts + 1, NEVER).astype(np.int64)
    return picked


def fewest_of(values: Ints64, count: int) -> int:
    """Return `fewest` for a single segment."""
    if len(values) >= SMALL:
        return cover(values, count)[0]
    return fewest_in(sorted(values.tolist(), reverse=True), count)


def fewest_in(descending: Sequence[int], count: int) -> int:
    """Return `fewest` for values in descending order."""
    for taken, value in enumerate(descending, 1):
        count -= value
        if count <= 0:
            return taken
    return NEVER


def cover(values: Ints64, count: int) -> tuple[int, int]:
    """Return the fewest of these values that reach `count`, and the smallest value that can be among them.

    (NEVER, 0) when all of them together do not reach it.
    """
    largest = int(values.max(initial=0))
    if largest > 0:
        # Most often there are enough of the largest ones: comparing costs a tenth of counting all values.
        enough = -(-count // largest)
        if np.count_nonzero(values == largest) >= enough:
            return enough, largest - (enough * largest - count)
    if largest <= _COUNTED:
        return cover_of(dict(enumerate(np.bincount(values).tolist())), count)
    descending = np.sort(np.minimum(values, count))[::-1]
    reached = np.cumsum(descending)
    last = int(np.searchsorted(reached, count))
    if last == len(descending):
        return NEVER, 0
    return last + 1, int(descending[last]) - (int(reached[last]) - count)


def cover_of(tally: Mapping[int, int], count: int) -> tuple[int, int]:
    """Return `cover` for values given as value -> number of occurrences."""
    taken = 0
    for value in sorted(tally, reverse=True):
        if value <= 0:
            break
        enough = -(-count // value)
        if tally[value] >= enough:
            return taken + enough, value - (enough * value - count)
        taken += tally[value]
        count -= tally[value] * value
    return NEVER, 0


def tightest(values: Sequence[int], pick: int, count: int) -> list[int]:
    """Return the positions of `pick` values with the least sum that still reaches `count`.

    `values` are in descending order, and the first `pick` of them reach `count`, but no `pick - 1` do. Exact up to
    eight picks (subset sum over bit sets, one per number of picks); beyond, the largest are fixed first.
    """
    surplus = sum(values[:pick]) - count
    if surplus <= 0:
        return list(range(pick))
    least = values[pick - 1] - surplus  # a smaller value can be in no cover of this size
    last = _last_at_least(values, least)
    if values[last] == least:
        return [*range(pick - 1), max(last, pick - 1)]
    fixed = max(0, pick - _WINDOW)
    picks = pick - fixed
    pool = _pool(values, fixed, last, picks)
    target = count - sum(values[:fixed]) - picks * least
    reach = [1] + [0] * picks
    history = []
    for position in pool:
        history.append(reach)
        shift = values[position] - least
        reach = [reach[0], *(reach[j] | reach[j - 1] << shift for j in range(1, picks + 1))]
    above = reach[picks] >> max(target, 0)
    total = max(target, 0) + (above & -above).bit_length() - 1
    chosen = []
    for position, before in zip(reversed(pool), reversed(history), strict=True):
        if before[picks] >> total & 1:
            continue
        chosen.append(position)
        total -= values[position] - least
        picks -= 1
    return [*range(fixed), *reversed(chosen)]


def even_shares(descending: Sequence[int], pick: int, count: int) -> list[int]:
    """Return the most even shares of `count` among the `pick` largest of these values, in ascending order.

    The smallest share is as large as possible, then the second smallest, and so on; none exceeds its value.
    """
    shares = []
    for left in range(pick, 0, -1):
        shares.append(min(descending[left - 1], count // left))
        count -= shares[-1]
    return shares


def best_last(values: Sequence[int], pick: int, count: int) -> list[int]:
    """Return the positions of the `pick - 1` largest values and of the smallest that completes the cover.

    Arguments as for `tightest`.
    """
    rest = count - sum(values[: pick - 1])
    return [*range(pick - 1), max(_last_at_least(values, rest), pick - 1)]


def _last_at_least(values: Sequence[int], least: int) -> int:
    """Return the position of the first of the smallest values >= `least` in a descending sequence."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if values[middle] >= least else (low, middle)
    last = low - 1
    while last and values[last - 1] == values[last]:
        last -= 1
    return last


def _pool(values: Sequence[int], start: int, last: int, picks: int) -> list[int]:
    """Return the positions to consider: of equal values only as many as could be picked."""
    pool = []
    copies, previous = 0, -1
    for position in range(start, len(values)):
        value = values[position]
        if value < values[last]:
            break
        copies = copies + 1 if value == previous else 1
        previous = value
        if copies <= picks:
            pool.append(position)
    return pool
