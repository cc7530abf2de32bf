"""Topologies out of node labels."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from engine.api.objects import Node
from engine.topology.levels import Level
from engine.topology.topology import OUTSIDE_SELECTOR, build_topology

BLOCK = Level("block", ("example.com/block",))
RACK = Level("rack", ("example.com/rack", "old.example.com/rack"))


def node(name: str, block: str | None = "b0", rack: str | None = "r0", **extra: str) -> Node:
    labels = {"kubernetes.io/hostname": f"host-of-{name}", **extra}
    if block is not None:
        labels["example.com/block"] = block
    if rack is not None:
        labels["example.com/rack"] = rack
    return Node(
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        labels=labels,
        allocatable={},
        taints=(),
        unschedulable=False,
        ready=True,
        settled_at=0.0,
    )


def test_hosts_hang_below_their_labels_by_node_name() -> None:
    """The host level is last and by node name, whatever the hostname label says."""
    topology = build_topology("default", [BLOCK, RACK], [node("n2", rack="r1"), node("n1")])
    assert topology.tree.levels == ("block", "rack", "host")
    assert topology.tree.paths == (("b0", "r0", "n1"), ("b0", "r1", "n2"))
    assert [level.name for level in topology.levels] == ["block", "rack", "host"]


def test_the_first_present_key_of_a_level_wins() -> None:
    """Of a level's label keys the first one that the node carries gives its value, and is the one to pin by."""
    both = node("n1", rack="new", **{"old.example.com/rack": "old"})
    old = node("n2", rack=None, **{"old.example.com/rack": "old"})
    topology = build_topology("default", [BLOCK, RACK], [both, old])
    assert topology.tree.paths == (("b0", "new", "n1"), ("b0", "old", "n2"))
    assert topology.pin_labels("n2") == {"example.com/block": "b0", "old.example.com/rack": "old"}


@pytest.mark.parametrize("rack", [None, ""])
def test_a_node_without_a_label_is_outside(rack: str | None) -> None:
    """A node that lacks a level's label, or carries it empty, is outside, and says which level it lacks."""
    topology = build_topology("default", [BLOCK, RACK], [node("n1"), node("n2", rack=rack)])
    assert topology.tree.hosts == ("n1",)
    assert topology.outside == {"n2": "no label rack"}
    assert topology.pin_labels("n2") == {}


def test_the_coarsest_missing_level_is_named() -> None:
    """A node that lacks several labels is counted once, under the coarsest."""
    topology = build_topology("default", [BLOCK, RACK], [node("n1", block=None, rack=None)])
    assert topology.outside == {"n1": "no label block"}


def test_coverage_counts_the_selected_nodes() -> None:
    """Coverage says per level how many of the selected nodes carry its label."""
    nodes = [node("n1", pool="gpu"), node("n2", rack=None, pool="gpu"), node("n3", block=None)]
    topology = build_topology("default", [BLOCK, RACK], nodes, node_selector={"pool": "gpu"})
    assert topology.coverage == {"block": (2, 2), "rack": (1, 2)}


def test_own_domain_keeps_a_node_without_label_alone() -> None:
    """With own-domain a node without a rack is alone in a rack that no label can name, and is not pinned by one."""
    nodes = [node("n1", rack=None), node("n2", rack=None), node("n3")]
    topology = build_topology("default", [BLOCK, RACK], nodes, missing_label="own-domain")
    assert topology.outside == {}
    assert topology.tree.size(1) == 3
    assert topology.pin_labels("n1") == {"example.com/block": "b0"}
    assert topology.coverage["rack"] == (1, 3)


def test_nodes_of_other_pools_are_outside_by_selector() -> None:
    """A node that does not match the selector is outside as such, even when it also lacks labels."""
    nodes = [node("n1", pool="gpu"), node("n2", rack=None), node("n3", pool="cpu")]
    topology = build_topology("default", [BLOCK, RACK], nodes, node_selector={"pool": "gpu"})
    assert topology.tree.hosts == ("n1",)
    assert topology.outside == {"n2": OUTSIDE_SELECTOR, "n3": OUTSIDE_SELECTOR}


def test_pin_labels_leave_the_host_out() -> None:
    """The labels to pin by are those of the levels above the host."""
    assert build_topology("default", [BLOCK, RACK], [node("n1")]).pin_labels("n1") == {
        "example.com/block": "b0",
        "example.com/rack": "r0",
    }


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("block", 0),
        ("rack", 1),
        ("old.example.com/rack", 1),
        ("host", 2),
        ("kubernetes.io/hostname", 2),
        ("Rack", None),
        ("", None),
    ],
)
def test_levels_are_found_by_alias_or_key(name: str, index: int | None) -> None:
    """A level answers to its alias and to each of its label keys, and to nothing else."""
    assert build_topology("default", [BLOCK, RACK], []).level_index(name) == index


def test_an_alias_goes_before_another_levels_key() -> None:
    """When a level's alias is another level's label key, the alias decides."""
    levels = [Level("block", ("rack",)), Level("rack", ("example.com/rack",))]
    assert build_topology("default", levels, []).level_index("rack") == 1


def test_any_order_of_nodes_gives_the_same_tree() -> None:
    """Nodes that join in another order do not move each other in the tree."""
    nodes = [node(f"n{i}", block=f"b{i % 3}", rack=f"r{i % 11}") for i in range(40)]
    shuffled = nodes.copy()
    random.Random(3).shuffle(shuffled)
    one, other = (build_topology("default", [BLOCK, RACK], some) for some in (nodes, shuffled))
    assert one.tree.paths == other.tree.paths


def test_the_host_level_may_be_written_out_at_the_end() -> None:
    """A list of levels that ends with the host level means the same as one without it."""
    topology = build_topology("default", [BLOCK, Level("host", ("kubernetes.io/hostname",))], [node("n1")])
    assert topology.tree.paths == (("b0", "n1"),)


def test_a_topology_of_hosts_only() -> None:
    """Without any level above, every node is a host and nothing is outside."""
    topology = build_topology("default", [], [node("n1", block=None, rack=None)])
    assert (topology.tree.hosts, topology.outside, topology.coverage) == (("n1",), {}, {})


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([Level("host", ("x",)), RACK], "'host' is the last level"),
        ([RACK, Level("rack", ("y",))], "alias 'rack'"),
        ([RACK, Level("row", ("old.example.com/rack",))], "label key 'old.example.com/rack'"),
        ([Level("row", ())], "'row' has no label keys"),
    ],
)
def test_levels_that_make_no_sense_are_refused(levels: list[Level], message: str) -> None:
    """Levels that cannot be told apart, have no label, or stand below the host are refused by name."""
    with pytest.raises(ValueError, match=message):
        build_topology("default", levels, [])


def test_the_returned_pins_are_a_copy() -> None:
    """Changing what pin_labels returned does not change the topology."""
    topology = build_topology("default", [BLOCK, RACK], [node("n1")])
    changed: dict[str, str] = topology.pin_labels("n1")
    changed["example.com/rack"] = "other"
    again: Mapping[str, str] = topology.pin_labels("n1")
    assert again["example.com/rack"] == "r0"
