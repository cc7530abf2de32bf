"""The topologies of a policy over the nodes there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.api.objects import Node
from engine.policy import ObjectRef, TopologySpec
from engine.presets import choose_default, nearly_default, with_preset_words
from engine.topology import HOST, Level, Topology, build_topology
from engine.topology_objects import GROUPS, Objects, from_object, waiting_topology

DEFAULT: Final = "default"  # the name of the topology where the policy names none


def topologies_of(
    specs: Sequence[TopologySpec], nodes: Iterable[Node], *, objects: Objects = MappingProxyType({})
) -> dict[str, Topology]:
    """The topologies that a policy names; without any those of the Topology objects, and the default one.

    The default is a preset that covers the nodes, else hosts alone. It comes last where there are Topology objects:
    gangs that were placed on it before these came go on there.
    """
    nodes = list(nodes)
    if not specs:
        found = _of_objects(nodes, objects)
        return found if DEFAULT in found else found | {DEFAULT: _default(nodes)}
    return {spec.name: _topology(spec, nodes, objects) for spec in specs}


def _of_objects(nodes: Sequence[Node], objects: Objects) -> dict[str, Topology]:
    """A topology for every Topology object that can be read, by name; of two of one name that of the first group."""
    found: dict[str, Topology] = {}
    for group in GROUPS:
        for name in sorted(objects.get(group, {})):
            levels = from_object(ObjectRef(group=group, name=name), objects)
            if not isinstance(levels, str) and name not in found:
                found[name] = build_topology(name, with_preset_words(levels), nodes)
    return found


def _default(nodes: Sequence[Node]) -> Topology:
    levels = choose_default(node.labels for node in nodes)
    topology = build_topology(DEFAULT, levels, nodes)
    return (
        topology
        if levels != (HOST,)
        else replace(topology, nearly=tuple(nearly_default(node.labels for node in nodes).items()))
    )


def _topology(spec: TopologySpec, nodes: Iterable[Node], objects: Objects) -> Topology:
    levels: tuple[Level, ...] | str = spec.resolved_levels()
    if spec.from_object is not None:
        levels = from_object(spec.from_object, objects)
    if isinstance(levels, str):
        return waiting_topology(spec.name, why=levels)
    return build_topology(spec.name, levels, nodes, node_selector=spec.node_selector, missing_label=spec.missing_label)
