"""Levels, the presets of known platforms, and the default preset for a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

from engine.api import names, strict_yaml
from engine.api.field import is_dns_label, is_label_key
from engine.api.names import HOST_LEVEL, HOSTNAME


@dataclass(frozen=True, slots=True)
class Level:
    """A level: its alias, and its candidate node-label keys; the first one present on a node is used.

    `also`: further aliases that a request may use.
    """

    name: str
    keys: tuple[str, ...]
    also: tuple[str, ...] = ()


# Users of other systems name the host level by the hostname label; hosts are identified by node name all the same.
HOST = Level(HOST_LEVEL, (HOSTNAME,))


MAX_LEVELS: Final = 6  # above the host; the deepest fabric we know of has five
MAX_KEYS: Final = 8
RESERVED_NAMES: Final = frozenset({names.HOST_LEVEL, names.AUTO})  # `auto` is a value of the request annotations

ZONE: Final = "topology.kubernetes.io/zone"


@cache
def presets() -> Mapping[str, tuple[Level, ...]]:
    """Return every preset by name in the order of precedence; levels coarse to fine, the host level last."""
    return parse_presets(resources.files("engine.topology").joinpath("presets.yaml").read_text(encoding="utf-8"))


def parse_presets(text: str) -> Mapping[str, tuple[Level, ...]]:
    """Parse a file of presets. Raises ValueError naming the preset that breaks a rule of levels."""
    raw = strict_yaml.load(text)
    if not isinstance(raw, dict) or not raw:
        raise ValueError("presets: must be a mapping of names to lists of levels")
    return MappingProxyType({name: (*_levels(name, entries), HOST) for name, entries in raw.items()})


def _levels(preset: str, entries: strict_yaml.Value) -> tuple[Level, ...]:
    if not is_dns_label(preset) or not isinstance(entries, list) or not 0 < len(entries) <= MAX_LEVELS:
        raise ValueError(f"preset {preset}: needs a DNS label as name and 1 to {MAX_LEVELS} levels")
    levels = []
    for entry in entries:
        match entry:
            case {"name": str(name), "keys": [_, *_] as keys, **rest} if not rest and len(keys) <= MAX_KEYS:
                levels.append(Level(name, tuple(str(key) for key in keys)))
            case _:
                raise ValueError(f"preset {preset}: a level has a name and 1 to {MAX_KEYS} keys, nothing else")
    names_used = [level.name for level in levels]
    keys_used = [key for level in levels for key in level.keys]
    if not all(is_dns_label(name) and name not in RESERVED_NAMES for name in names_used):
        raise ValueError(f"preset {preset}: level names are DNS labels other than host and auto")
    if not all(is_label_key(key) and key != names.HOSTNAME for key in keys_used):
        raise ValueError(f"preset {preset}: keys are label keys other than {names.HOSTNAME}")
    if len({*names_used, *keys_used}) < len(names_used) + len(keys_used):
        raise ValueError(f"preset {preset}: a level name or key is a duplicate")
    return tuple(levels)


def default_preset(labels: Iterable[Mapping[str, str]]) -> str | None:
    """Return the first preset that covers nodes with these labels, or None.

    A preset covers the nodes when each of its levels has one of its keys on at least one node.
    Source: docs/tasks/admin/topology-presets.md.
    """
    present = _keys_of(labels)
    return next((name for name, levels in presets().items() if not _missing(levels, present)), None)


def nearly_default(labels: Iterable[Mapping[str, str]]) -> dict[str, Level]:
    """Return the presets that cover the nodes except for one level, each with that level.

    Nearly every cloud sets the zone label: nodes with nothing but the zone do not indicate a platform.
    """
    present = _keys_of(labels)
    near = {}
    for name, levels in presets().items():
        missing = _missing(levels, present)
        there = {level for level in levels if level is not HOST}.difference(missing)
        if len(missing) == 1 and any(ZONE not in level.keys for level in there):
            near[name] = missing[0]
    return near


def _keys_of(labels: Iterable[Mapping[str, str]]) -> set[str]:
    """Return the keys of the labels with a value: an empty one counts as none, as in a topology."""
    return {key for of_node in labels for key, value in of_node.items() if value}


def _missing(levels: Iterable[Level], present: Set[str]) -> list[Level]:
    """Return the levels above the host without a label on any node."""
    return [level for level in levels if level is not HOST and present.isdisjoint(level.keys)]


def choose_default(labels: Iterable[Mapping[str, str]]) -> tuple[Level, ...]:
    """Return the levels without a topology in the policy: those of the covering preset, else the host level."""
    name = default_preset(labels)
    return (HOST,) if name is None else presets()[name]


@cache
def known_levels() -> frozenset[str]:
    """Return every alias and label key of all presets; a request may name them before there are nodes."""
    words = (word for levels in presets().values() for level in levels for word in (level.name, *level.keys))
    return frozenset((names.HOSTNAME, *words))


def with_preset_words(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the levels with the presets' aliases for their keys added to `also`, where these are free."""
    taken = {level.name for level in levels}
    found: list[Level] = []
    for level in levels:
        known = [one for preset in presets().values() for one in preset if not set(one.keys).isdisjoint(level.keys)]
        also = tuple(dict.fromkeys(one.name for one in known if one.name not in taken))
        taken.update(also)
        found.append(level if level == HOST else replace(level, also=also))
    return tuple(found)
