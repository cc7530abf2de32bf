"""The topologies of a policy over the nodes there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType

from engine.policy import Policy, TopologySpec
from engine.presets import HOST, choose_default, nearly_default
from engine.records import Node
from engine.topology import Level, Topology, build_topology
from engine.topology_objects import Objects, from_object, waiting_topology


def topologies_of(
    policy: Policy, nodes: Iterable[Node], *, objects: Objects = MappingProxyType({})
) -> dict[str, Topology]:
    """The topologies that the policy names, or the default one (a preset that covers the nodes, else hosts alone)."""
    nodes = list(nodes)
    if not policy.topologies:
        return {"default": _default(nodes)}
    return {spec.name: _topology(spec, nodes, objects) for spec in policy.topologies}


def _default(nodes: Sequence[Node]) -> Topology:
    levels = choose_default(node.labels for node in nodes)
    topology = build_topology("default", levels, nodes)
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
