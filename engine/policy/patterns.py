"""Namespace patterns: names with `*` for any part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache


def matches(namespace: str, patterns: Iterable[str]) -> bool:
    """Return whether a namespace matches one of the patterns."""
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


def covers(pattern: str, other: str) -> bool:
    """Return whether every namespace that matches `other` matches `pattern` too.

    The `*` of `other` is taken as a character that only a `*` matches.
    """
    if "*" not in pattern:
        return pattern == other  # a policy may name a thousand namespaces, and each is compared with each
    return fnmatchcase(other, pattern)


def overlap(one: str, other: str) -> bool:
    """Return whether some text matches both patterns."""
    return _overlap(one, other) if "*" in one or "*" in other else one == other


@lru_cache(maxsize=4_096)
def _overlap(one: str, other: str) -> bool:
    if not one or not other:
        return not (one or other).strip("*")
    if one[0] == "*":
        return _overlap(one[1:], other) or _overlap(one, other[1:])
    if other[0] == "*":
        return _overlap(one, other[1:]) or _overlap(one[1:], other)
    return one[0] == other[0] and _overlap(one[1:], other[1:])


def first_for_all(pattern: str, entries: Iterable[Sequence[str]]) -> int | None:
    """Return the index of the entry (a list of patterns) that is the first for every namespace of a pattern.

    None if no entry matches them, or different entries match different ones.
    """
    for index, patterns in enumerate(entries):
        if any(covers(one, pattern) for one in patterns):
            return index
        if any(overlap(one, pattern) for one in patterns):
            return None
    return None
