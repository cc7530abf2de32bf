"""Topology objects of Kueue and KAI, the source of levels for the policy's `fromObject`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.api import names
from engine.api.field import is_label_key
from engine.api.text import quote
from engine.topology.levels import HOST, MAX_LEVELS, RESERVED_NAMES, Level

GROUPS: Final = ("kueue.x-k8s.io", "kai.scheduler")
PLURAL: Final = "topologies"


@dataclass(frozen=True, slots=True)
class TopologyObject:
    """A Topology object: node-label keys, coarse to fine, each with its alias ("" when it has none).

    `problem`: why it cannot be read; it has no levels then.
    """

    name: str
    resource_version: str
    levels: tuple[tuple[str, str], ...]
    problem: str = ""


Objects = Mapping[str, Mapping[str, TopologyObject]]
"""By API group and name."""


def levels_of(keys: Sequence[tuple[str, str]]) -> tuple[Level, ...]:
    """Return the levels of label keys with aliases, the host level last; the default alias is the key's last part.

    Raises ValueError: too many levels, an invalid label key, a reserved name, or a duplicate.
    """
    above = list(keys)
    if above and above[-1][0] in (names.HOSTNAME, names.HOST_LEVEL):
        above.pop()
    if len(above) > MAX_LEVELS:
        raise ValueError(f"at most {MAX_LEVELS} levels above the host")
    found: dict[str, Level] = {}
    for key, alias in above:
        name = alias or key.rpartition("/")[2]
        if key == names.HOSTNAME:
            raise ValueError(f"{names.HOSTNAME} is the last level")
        if not is_label_key(key):
            raise ValueError(f"{quote(key)} is not a node label key")
        if name in RESERVED_NAMES:
            raise ValueError(f"{quote(key)} would be the level {quote(name)}, which has its own meaning")
        if name in found:
            raise ValueError(f"two levels would be called {quote(name)}")
        if any(key in level.keys for level in found.values()):
            raise ValueError(f"{quote(key)} is a duplicate")
        found[name] = Level(name, (key,))
    return (*found.values(), HOST)


def from_object(group: str, name: str, objects: Objects) -> tuple[Level, ...] | str:
    """Return the levels of an object, or the reason why there are none now."""
    what = f"the Topology {name} of {group}"
    found = objects.get(group, {}).get(name)
    if found is None:
        return f"{what} was not found"
    if found.problem:
        return f"{what} cannot be read: {found.problem}"
    try:
        return levels_of(found.levels)
    except ValueError as error:
        return f"{what} cannot be used: {error}"
