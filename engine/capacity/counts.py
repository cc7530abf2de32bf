"""Counters that forget what is at zero: hosts, gangs and namespaces come and go. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeVar

Key = TypeVar("Key")
Group = TypeVar("Group")


def add(counts: MutableMapping[Key, int], key: Key, number: int) -> None:
    """Add to one count."""
    counts[key] = counts.get(key, 0) + number
    if not counts[key]:
        del counts[key]


def add_in(groups: MutableMapping[Group, dict[Key, int]], group: Group, key: Key, number: int) -> None:
    """Add to one count of a group; a group without counts is forgotten, too."""
    counts = groups.setdefault(group, {})
    add(counts, key, number)
    if not counts:
        del groups[group]
