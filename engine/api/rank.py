"""Ranks of pods: inclusive ranges with their text (`0-3,8`), and the term that computes a rank from labels.

The text is Kubernetes' own for `status.completedIndexes` of a Job; ranges are never expanded, so a range over 10^9
ranks costs as much as one over ten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

MAX_NUMBER: Final = 2**31 - 1  # counts are int32 in the Kubernetes API


_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)  # as strconv.Itoa writes it, and nothing else

Operator = Literal["min", "max", "sum", "mul"]


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing number and the reason; `wrong`: there is a value, but it is not a number."""

    reason: str
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """The index in a label of the pod; it must be less than `below`."""

    key: str
    below: int | None


@dataclass(frozen=True, slots=True)
class Combined:
    """Several terms under one operator."""

    operator: Operator
    parts: tuple[Term, ...]


Term = int | Missing | LabelTerm | Combined
_OPERATIONS: Final[Mapping[Operator, Callable[[Sequence[int]], int]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "mul": prod,
}


def value(term: Term, labels: Mapping[str, str]) -> int | Missing:
    """Return the number that a term gives for a pod with these labels."""
    match term:
        case LabelTerm(key, below):
            index = index_of(labels.get(key))
            if index is None:
                return Missing(f"the label {key} is {'missing' if key not in labels else 'no index'}", key in labels)
            if below is not None and index >= below:
                return Missing(f"the label {key} is {index}, and not below {below}", wrong=True)
            return index
        case Combined(operator, parts):
            found = combine(operator, tuple(value(part, labels) for part in parts))
            return found if isinstance(found, int | Missing) else Missing("it is not a number")
    return term


def index_of(text: object) -> int | None:
    """Return the index in a label value, None unless it is written as controllers write it.

    Decimal digits without sign, spaces or leading zeros, up to 2^31-1.
    """
    if not isinstance(text, str) or _INDEX.fullmatch(text) is None or int(text) > MAX_NUMBER:
        return None
    return int(text)


def combine(operator: Operator, parts: tuple[Term, ...]) -> Term:
    """Combine several terms under one operator, as a number where all of them are known."""
    if any(isinstance(part, LabelTerm | Combined) for part in parts):
        return Combined(operator, parts)
    missing = [part for part in parts if isinstance(part, Missing)]
    known = [part for part in parts if isinstance(part, int)]
    wrong = next((part for part in missing if part.wrong), None)
    if wrong is not None:
        return wrong
    if missing and (operator in ("sum", "mul") or not known):
        return missing[0]
    return _capped(_OPERATIONS[operator](known))


def _capped(found: int) -> int:
    return max(-MAX_NUMBER, min(found, MAX_NUMBER))


Ranges = tuple[tuple[int, int], ...]

MAX_RANK: Final = 2**31 - 1  # counts are int32 in the Kubernetes API
_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)


def parse_ranks(text: str) -> Ranges:
    """Parse `0-3,8` as ((0, 3), (8, 8)); the empty text has no ranks.

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


def slice_index(rank: int, sizes: Iterable[int]) -> str:
    """Return the numbers of the slices that a rank is in, for sizes coarse to fine: 7 in slices of 6 and 3 -> `1/2`."""
    return "/".join(str(rank // size) for size in sizes)


def expand_ranks(ranges: Iterable[tuple[int, int]] | None) -> list[int]:
    """Return each rank of the ranges, in their order; none for None."""
    return [rank for first, last in ranges or () for rank in range(first, last + 1)]


def count_ranks(ranges: Iterable[tuple[int, int]]) -> int:
    """Return how many ranks the ranges hold."""
    return sum(last - first + 1 for first, last in ranges)
