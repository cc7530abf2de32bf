"""Which preset fits the node labels, and what to write into the policy where the levels are not right."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from engine.api.field import is_dns_label
from engine.api.names import HOST_LEVEL, HOSTNAME
from engine.api.objects import Node
from engine.topology.levels import ZONE, Level, presets
from engine.topology.spec import TopologySpec
from engine.topology.topology import Topology
from webhook.checks.model import LevelLabels, PresetLabels
from webhook.snapshot.yaml_output import as_yaml

# Nearly every cloud sets it: alone it says nothing about a platform.
_WORDS: Final = re.compile(r"(^|[/._-])(hall|room|row|pod|block|rack|spine|leaf|switch|fabric|nvlink)([._-]|$)")
_MOST_LEVELS: Final = 3  # of label keys that merely look like levels


def preset_labels(nodes: Sequence[Node]) -> tuple[PresetLabels, ...]:
    """Return the presets of which nodes have a label other than the zone's; those that fit first, then by labels."""
    have: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for key, value in node.labels.items():
            if value:
                have[key].add(node.name)
    found = []
    for name, levels in presets().items():
        covered = tuple(
            LevelLabels(level=one.name, keys=one.keys, nodes=len(set().union(*(have[key] for key in one.keys))))
            for one in _above(levels)
        )
        if any(one.nodes for one in covered if ZONE not in one.keys):
            found.append(PresetLabels(name=name, fits=all(one.nodes for one in covered), levels=covered))
    # The order of the presets decides among those that fit, as where the policy names no topologies.
    return tuple(sorted(found, key=lambda one: (not one.fits, sum(1 for level in one.levels if not level.nodes))))


def fitting(found: Iterable[PresetLabels]) -> str | None:
    """Return the first preset that fits."""
    return next((one.name for one in found if one.fits), None)


def likely_levels(nodes: Collection[Node]) -> tuple[Level, ...]:
    """Return levels of label keys that look like a place and group the nodes, coarse to fine; () if there are none."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    count: defaultdict[str, int] = defaultdict(int)
    for node in nodes:
        for key, value in node.labels.items():
            if value and key != HOSTNAME and _WORDS.search(key.lower()):
                values[key].add(value)
                count[key] += 1
    keys = [key for key in values if 1 < len(values[key]) < count[key] and 2 * count[key] >= len(nodes)]
    levels: dict[str, Level] = {}
    for key in sorted(keys, key=lambda one: (len(values[one]), one)):
        name = key.rpartition("/")[2].removeprefix("topology-").lower()
        if is_dns_label(name) and name != HOST_LEVEL:
            levels.setdefault(name, Level(name, (key,)))
    return tuple(levels.values())[:_MOST_LEVELS]


def separating_label(inside: Sequence[Node], outside: Sequence[Node]) -> dict[str, str]:
    """Return a label that all nodes inside have and none outside, for a nodeSelector; {} if there is none."""
    if not inside or not outside:
        return {}
    common = set(inside[0].labels.items()).intersection(*(node.labels.items() for node in inside))
    free = common.difference(*(node.labels.items() for node in outside))
    best = sorted(free, key=lambda pair: ("gpu" not in pair[0], "pool" not in pair[0], pair))
    return dict(best[:1])


def as_policy(
    name: str, *, preset: str | None = None, levels: Iterable[Level] = (), selector: Mapping[str, str] | None = None
) -> str:
    """Return the section `topologies` of a policy with one topology, of a preset or of levels."""
    spec: dict[str, Any] = {"name": name}
    if preset is not None:
        spec["preset"] = preset
    else:
        spec["levels"] = [{"name": one.name, "keys": list(one.keys)} for one in _above(levels)]
    if selector:
        spec["nodeSelector"] = dict(selector)
    return as_yaml({"topologies": [spec]})


def policy_advice(
    topology: Topology, spec: TopologySpec | None, nodes: Sequence[Node], found: Sequence[PresetLabels]
) -> str | None:
    """Return what to write into the policy so that a topology gets its nodes; None if nothing is known to help."""
    fits = fitting(found)
    if spec is not None and not topology.tree.hosts and not topology.waits and fits not in (None, spec.preset):
        return as_policy(topology.name, preset=fits)
    if spec is None and len(topology.levels) == 1 and not topology.waits and topology.labelled:
        near = [presets()[name] for name, _ in topology.nearly[:1]]
        missing = {level for _, level in topology.nearly[:1]}
        levels = [one for preset in near for one in preset if one not in missing] or list(likely_levels(nodes))
        return as_policy(topology.name, levels=levels) if _above(levels) else None
    return None


def selector_advice(
    topology: Topology, spec: TopologySpec | None, inside: Sequence[Node], outside: Sequence[Node]
) -> str | None:
    """Return the topology with a nodeSelector without the nodes `outside`; None if no label tells them apart."""
    label = separating_label(inside, outside)
    if not label or not topology.labelled or (spec is not None and spec.from_object is not None):
        return None
    preset = (
        spec.preset
        if spec is not None
        else next((name for name, levels in presets().items() if levels == topology.levels), None)
    )
    selector = {**(spec.node_selector if spec is not None else {}), **label}
    return as_policy(topology.name, preset=preset, levels=topology.levels, selector=selector)


def _above(levels: Iterable[Level]) -> list[Level]:
    return [one for one in levels if one.name != HOST_LEVEL]
