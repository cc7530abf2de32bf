"""A topology that is built with the help of the one before is the same as one that is built from nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from engine.api.objects import Node
from engine.topology.levels import Level
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import gpu_nodes

LEVELS = (Level("block", ("example.com/block", "example.com/pod")), Level("rack", ("example.com/rack",)))
KEYS = tuple(key for level in LEVELS for key in level.keys)
values = st.sampled_from(["", "a", "a1", "a02", "a10", "b"])
labels = st.dictionaries(st.sampled_from(KEYS), values)
[EXAMPLE] = gpu_nodes(1, 1, 1)
# So many nodes that the changes are few beside them.
MANY = {f"node-{at}": {"example.com/block": f"b{at // 64}", "example.com/rack": f"r{at // 8}"} for at in range(384)}


def nodes_of(found: Mapping[str, Mapping[str, str]]) -> list[Node]:
    return [replace(EXAMPLE, name=name, labels=dict(one)) for name, one in found.items()]


def parts(topology: Topology) -> tuple[object, ...]:
    """All of a topology, with its arrays as lists."""
    tree = topology.tree
    arrays = [[one.tolist() for one in part] for part in (tree.starts, tree.domains, tree.offsets)]
    pins = {name: dict(pin) for name, pin in topology.pins.items()}
    return tree.levels, tree.hosts, tree.paths, dict(tree.index), arrays, pins, topology.outside, topology.coverage


def changed(nodes: Sequence[Node], changes: Mapping[int, Mapping[str, str] | None]) -> list[Node]:
    """The nodes with other labels of some, by place; without those that have None, with new ones behind the last."""
    known = dict(enumerate(nodes))
    for place, change in changes.items():
        if change is None:
            known.pop(place, None)
        else:
            name = known[place].name if place in known else f"new-{place}"
            known[place] = replace(EXAMPLE, name=name, labels=dict(change))
    return list(known.values())


@given(
    many=st.booleans(),
    few=st.dictionaries(st.sampled_from([f"n-{at}" for at in range(12)]), labels),
    changes=st.dictionaries(st.integers(0, 400), st.none() | labels, max_size=6),
    missing=st.sampled_from(["exclude", "own-domain"]),
)
def test_a_rebuilt_topology_is_the_one_that_is_built_from_nothing(
    many: bool,
    few: dict[str, dict[str, str]],
    changes: dict[int, dict[str, str] | None],
    missing: Literal["exclude", "own-domain"],
) -> None:
    nodes = nodes_of(MANY | few if many else few)
    before = build_topology("t", LEVELS, nodes, missing_label=missing)
    after = changed(nodes, changes)
    rebuilt = build_topology("t", LEVELS, after, missing_label=missing, before=before)
    assert parts(rebuilt) == parts(build_topology("t", LEVELS, after, missing_label=missing))


def test_a_topology_of_other_levels_helps_nothing_and_harms_nothing() -> None:
    nodes = nodes_of(MANY)
    other = build_topology("t", LEVELS[:1], nodes)
    assert parts(build_topology("t", LEVELS, nodes, before=other)) == parts(build_topology("t", LEVELS, nodes))
