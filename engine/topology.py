"""A topology: levels by node label, the tree of the nodes that carry them, and why the other nodes are outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.api.names import AUTO, HOST_LEVEL, HOSTNAME
from engine.api.objects import Node
from engine.planner.plan import lowest_level
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree

Ints = npt.NDArray[np.int64]

OUTSIDE_SELECTOR = "nodeSelector of the topology"


@dataclass(frozen=True, slots=True)
class Level:
    """A level: its alias, and the node-label keys to look for, the first present one wins.

    `also`: other words by which a request may name it.
    """

    name: str
    keys: tuple[str, ...]
    also: tuple[str, ...] = ()


# Users of other systems name the host level by the hostname label; hosts are told apart by node name all the same.
HOST = Level(HOST_LEVEL, (HOSTNAME,))


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A named topology over the nodes of a cluster.

    `levels` are coarse to fine, the host level last. `outside` says of each node that is left out why; `coverage` says
    per level above the host how many of the selected nodes carry its label, and of how many. `waits` says why the
    levels are not known now; it has no nodes then. `nearly`: presets that would have been chosen but for one level, and
    that level, when the topology has only hosts for want of a preset that fits.
    """

    name: str
    levels: tuple[Level, ...]
    tree: Tree
    pins: Mapping[str, Mapping[str, str]]
    outside: Mapping[str, str]
    coverage: Mapping[str, tuple[int, int]]
    waits: str = ""
    nearly: tuple[tuple[str, Level], ...] = ()

    def level_index(self, alias_or_key: str) -> int | None:
        """The index of a level by its alias or by one of its label keys; aliases go first; None when unknown."""
        for i, level in enumerate(self.levels):
            if alias_or_key == level.name:
                return i
        for i, level in enumerate(self.levels):
            if alias_or_key in level.keys:
                return i
        return None

    def level_of(self, asked: str | None) -> int | None:
        """The index of the level that a request names; None when it names none that is there, or `auto`."""
        return None if asked in (None, AUTO) else self.level_index(asked)

    def slices(self, asked: Iterable[tuple[str, int]]) -> tuple[Slices, ...]:
        """Slices (level, size) by index of their level; one of a level that is not there is left out."""
        levels = [(self.level_index(level), size) for level, size in asked]
        return tuple(Slices(level, size) for level, size in levels if level is not None)

    def auto_level(self, count: int, slices: Iterable[tuple[str, int]], *, empty: Ints) -> int:
        """The index of the level that `auto` is for so many equal pods, by the slots of empty hosts, in tree order.

        The lowest one of which a domain holds them all, in whole slices; the coarsest when none does.
        """
        return lowest_level(self.tree, empty, count, self.slices(slices)) or 0

    def pin_labels(self, host: str) -> dict[str, str]:
        """The labels of the levels above the host as this node carries them; {} for a node that is outside."""
        return dict(self.pins.get(host, {}))


def build_topology(
    name: str,
    levels: Iterable[Level],
    nodes: Iterable[Node],
    *,
    node_selector: Mapping[str, str] | None = None,
    missing_label: Literal["exclude", "own-domain"] = "exclude",
) -> Topology:
    """The topology of the nodes that carry `node_selector`, whatever order they come in.

    A node without a level's label (an empty value counts as none) is outside, or, with "own-domain", alone in a domain
    of that level and of the levels below it that it has no label for. `levels` may end with the host level or leave it
    out. Raises ValueError when the host level stands anywhere else, or two levels share an alias or a label key.
    """
    above = _above_host(tuple(levels))
    wanted = (node_selector or {}).items()
    keys = [level.keys for level in above]
    outside: dict[str, str] = {}
    pins: dict[str, dict[str, str]] = {}
    paths: list[tuple[str, ...]] = []
    have = [0] * len(above)
    selected = 0
    for node in nodes:
        labels = node.labels
        if wanted and not wanted <= labels.items():
            outside[node.name] = OUTSIDE_SELECTOR
            continue
        selected += 1
        path: list[str] = []
        pin: dict[str, str] = {}
        for i, candidates in enumerate(keys):
            key = next((key for key in candidates if labels.get(key)), None)
            if key is None:
                outside.setdefault(node.name, f"no label {above[i].name}")
                path.append(_own_domain(node.name))
            else:
                have[i] += 1
                path.append(labels[key])
                pin[key] = labels[key]
        if node.name in outside and missing_label == "exclude":
            continue
        outside.pop(node.name, None)
        pins[node.name] = pin
        path.append(node.name)
        paths.append(tuple(path))
    tree = build_tree([level.name for level in above] + [HOST_LEVEL], paths)
    coverage = {level.name: (count, selected) for level, count in zip(above, have, strict=True)}
    return Topology(name, (*above, HOST), tree, pins, outside, coverage)


def _own_domain(node: str) -> str:
    """A domain value that no label can have: label values never contain a slash or brackets."""
    return f"({node})"


def _above_host(levels: tuple[Level, ...]) -> tuple[Level, ...]:
    if levels and levels[-1].name == HOST_LEVEL:
        levels = levels[:-1]
    aliases = [level.name for level in levels]
    if HOST_LEVEL in aliases:
        raise ValueError(f"levels: {HOST_LEVEL!r} is the last level")
    keys = [key for level in levels for key in level.keys]
    for what, values in (("alias", aliases), ("label key", keys)):
        double = next((value for value in values if values.count(value) > 1), None)
        if double is not None:
            raise ValueError(f"levels: {what} {double!r} stands more than once")
    for level in levels:
        if not level.keys:
            raise ValueError(f"levels: {level.name!r} has no label keys")
    return levels
