"""Ranks as inclusive ranges, and their text on the wire: `0-3,8`.

The text is Kubernetes' own for `status.completedIndexes` of a Job; ranges are never expanded, so a range over 10^9
ranks costs as much as one over ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

Ranges = tuple[tuple[int, int], ...]

MAX_RANK: Final = 2**31 - 1  # counts are int32 in the Kubernetes API
_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)


def parse_ranks(text: str) -> Ranges:
    """Return the ranges of `0-3,8` as ((0, 3), (8, 8)); the empty text is no rank.

    Raises ValueError unless the ranges ascend, do not overlap and stay within 0..2^31-1.
    """
    if not text:
        return ()
    ranges: list[tuple[int, int]] = []
    last = -1
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:40]!r} is not a rank or a range of ranks (like 0-3,8)")
        first = int(match[1])
        end = first if match[2] is None else int(match[2])
        if not last < first <= end <= MAX_RANK:
            raise ValueError(f"{part!r}: ranks must ascend, without overlap, up to {MAX_RANK}")
        ranges.append((first, end))
        last = end
    return tuple(ranges)


def format_ranks(ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges as text, neighbouring ones joined: ((0, 1), (2, 3), (8, 8)) -> `0-3,8`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in join_ranks(ranges))


def join_ranks(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges ascending, with overlapping and neighbouring ones joined."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def count_ranks(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many ranks the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)
