"""Topologies of Volcano's HyperNodes: levels, domains, names, and what garbage among them does."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Node
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.objects import hyper_node
from engine.decoding.wire import ProjectionError
from engine.gang.request import parse_request
from engine.policy.model import PolicyError, parse_policy
from engine.topology.choice import choose_topology, level_names
from engine.topology.hyper_nodes import HyperNode
from engine.topology.topology import Topology, left_out, topologies_of, uncovered
from tests.support.admission import raw_job, workload
from tests.support.cluster_records import node as node_record
from tests.support.simulation import node as file_node
from tests.support.simulation import objects as file_objects
from webhook.snapshot.cluster import offline_cluster

QUIET = parse_policy("{}")
A_PATTERN = {"regexMatch": {"pattern": "a"}}
A_NAME = {"exactMatch": {"name": "a"}}


def exact(name: str, *, kind: str = "Node") -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def regex(pattern: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def labelled(**match: Any) -> dict[str, Any]:
    return {"type": "Node", "selector": {"labelMatch": match}}


def below(*names: str) -> list[dict[str, Any]]:
    return [exact(name, kind="HyperNode") for name in names]


def raw(name: str, spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": spec,
    }


def hyper(name: str, tier: int, *members: dict[str, Any], tier_name: str | None = None) -> HyperNode:
    spec: dict[str, Any] = {"tier": tier, "members": list(members)}
    return hyper_node(raw(name, spec if tier_name is None else {**spec, "tierName": tier_name}))


def nodes(number: int = 8, **labels: str) -> list[Node]:
    return [node_record(f"node{index}", labels=labels) for index in range(number)]


def tree(*, tier_names: tuple[str | None, ...] = (None, None, None)) -> list[HyperNode]:
    """Volcano's example: s6(s4(s0, s1), s5(s2, s3)), two nodes each."""
    leaf, spine, core = tier_names
    leaves = [hyper(f"s{at}", 1, exact(f"node{2 * at}"), exact(f"node{2 * at + 1}"), tier_name=leaf) for at in range(4)]
    return [
        *leaves,
        hyper("s4", 2, *below("s0", "s1"), tier_name=spine),
        hyper("s5", 2, *below("s2", "s3"), tier_name=spine),
        hyper("s6", 3, *below("s4", "s5"), tier_name=core),
    ]


def topology(*hyper_nodes: HyperNode, over: list[Node] | None = None, name: str = "hypernodes") -> Topology:
    return topologies_of((), nodes() if over is None else over, hyper_nodes=hyper_nodes)[name]


def paths(found: Topology) -> dict[str, tuple[str, ...]]:
    return {path[-1]: path[:-1] for path in found.tree.paths}


def test_the_tiers_are_levels_and_the_hyper_nodes_domains() -> None:
    found = topology(*tree())
    assert [level.name for level in found.levels] == ["tier-3", "tier-2", "tier-1", "host"]
    assert paths(found)["node0"] == ("s6", "s4", "s0")
    assert paths(found)["node7"] == ("s6", "s5", "s3")
    assert not found.outside
    assert found.pin_labels("node0") == {}
    assert left_out(found) == ""


@pytest.mark.parametrize(
    ("said", "levels"),
    [
        (("rack", "spine", "core"), ["core", "spine", "rack"]),
        (("volcano.sh/tor", "example.com/row", ""), ["tier-3", "row", "tor"]),
        (("a/rack", "b/rack", "core"), ["core", "tier-2", "tier-1"]),
        (("host", "auto", "tier-7"), ["tier-3", "tier-2", "tier-1"]),
        (("3", "no name!", "x" * 64), ["tier-3", "tier-2", "tier-1"]),
    ],
)
def test_a_level_has_the_name_of_its_tier(said: tuple[str, ...], levels: list[str]) -> None:
    """A label key counts by its last part; a name that can be no level, or two, is none."""
    assert [level.name for level in topology(*tree(tier_names=said)).levels[:-1]] == levels


def test_a_tier_is_named_in_other_words_as_well() -> None:
    """By number, as in Volcano's own requests, and by the whole name."""
    found = topologies_of((), nodes(), hyper_nodes=tree(tier_names=("volcano.sh/tor", "spine", None)))
    words = level_names((), found, "hypernodes")
    assert [words.resolve(word) for word in ("tor", "volcano.sh/tor", "tier-1", "1", "2", "3", "core", "host")] == [
        *["tor"] * 4,
        "spine",
        "tier-3",
        None,
        "host",
    ]


def test_hyper_nodes_of_one_tier_with_two_names_have_none() -> None:
    assert (
        topology(hyper("a", 1, exact("node0"), tier_name="x"), hyper("b", 1, tier_name="y")).levels[0].name == "tier-1"
    )


@pytest.mark.parametrize(
    "members",
    [
        [regex("^node[01]$")],
        [exact("node0"), regex("node1")],
        [labelled(matchLabels={"row": "r1"})],
        [labelled(matchExpressions=[{"key": "row", "operator": "In", "values": ["r1", "r9"]}])],
        [labelled(matchExpressions=[{"key": "row", "operator": "Exists"}])],
        [
            labelled(
                matchExpressions=[{"key": "none", "operator": "DoesNotExist"}, {"key": "row", "operator": "Exists"}]
            )
        ],
        [labelled(matchExpressions=[{"key": "row", "operator": "NotIn", "values": [""]}], matchLabels={"row": "r1"})],
    ],
)
def test_members_are_chosen_by_name_pattern_or_label(members: list[dict[str, Any]]) -> None:
    over = [*nodes(2, row="r1"), *nodes(8)[2:]]
    assert set(paths(topology(hyper("s0", 1, *members), over=over))) == {"node0", "node1"}


def test_an_empty_selector_matches_no_node() -> None:
    """As in Volcano; otherwise it would be the whole cluster."""
    assert not paths(topology(hyper("s0", 1, labelled(), labelled(matchLabels={}))))


def test_a_branch_may_leave_out_a_tier() -> None:
    """Up to tier 2 Volcano allows any HyperNode of tier 1: it is the domain at both."""
    found = topology(
        hyper("s0", 1, exact("node0")),
        hyper("s1", 1, exact("node1")),
        hyper("s4", 2, *below("s1")),
        hyper("s6", 3, *below("s0", "s4")),
    )
    assert paths(found) == {"node0": ("s6", "s0", "s0"), "node1": ("s6", "s4", "s1")}


def test_a_node_above_the_lowest_tier_or_in_none_is_left_out_and_counted() -> None:
    found = topology(hyper("s0", 1, exact("node0")), hyper("s4", 2, exact("node1"), *below("s0")), over=nodes(3))
    assert paths(found) == {"node0": ("s4", "s0")}
    assert found.outside == dict.fromkeys(("node1", "node2"), "without a HyperNode of tier 1")
    assert left_out(found) == "left out: 2 nodes without a HyperNode of tier 1"


def test_each_root_is_a_topology_of_its_own() -> None:
    """So one of two trees over the same nodes can be named; in the topology of all of them such nodes are left out."""
    two = [
        hyper("a0", 1, exact("node0"), exact("node1")),
        hyper("a", 2, *below("a0")),
        hyper("b0", 1, exact("node0")),
        hyper("b1", 1, exact("node1")),
        hyper("b", 2, *below("b0", "b1")),
        hyper("alone", 1, exact("node2")),
    ]
    found = topologies_of((), nodes(3), hyper_nodes=two)
    assert list(found) == ["default", "hypernodes", "a", "b"]
    assert paths(found["a"]) == {"node0": ("a", "a0"), "node1": ("a", "a0")}
    assert paths(found["b"]) == {"node0": ("b", "b0"), "node1": ("b", "b1")}
    assert paths(found["hypernodes"]) == {"node2": ("alone", "alone")}
    assert found["hypernodes"].outside["node0"] == "in two HyperNodes of tier 2"
    assert "node node0 is in the HyperNodes a and b" in left_out(found["hypernodes"])


def test_many_roots_give_one_topology() -> None:
    racks = [hyper(f"a{at}", 1, exact(f"node{at}")) for at in range(17)]
    rows = [hyper(f"b{at}", 2, *below(f"a{at}")) for at in range(17)]
    assert list(topologies_of((), nodes(20), hyper_nodes=[*racks, *rows])) == ["default", "hypernodes"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bad", "HyperNode bad: spec: Expected object, got int"),
        ("leaf", "HyperNode leaf is no root of a tree: it is in HyperNode root"),
        ("alone", "HyperNode alone is no root of a tree: it has no members of type HyperNode"),
        ("high", "HyperNode high: member root has tier 2; it must be lower than 1"),
    ],
)
def test_who_names_a_hyper_node_without_a_topology_reads_why(name: str, said: str) -> None:
    """Not only that there is no such topology."""
    every = [
        hyper_node(raw("bad", 7)),
        hyper("leaf", 1, exact("node0")),
        hyper("root", 2, *below("leaf")),
        hyper("alone", 1, exact("node1")),
        hyper("high", 1, *below("root")),
    ]
    found = topologies_of((), nodes(2), hyper_nodes=every)
    asked = workload(raw_job({names.TOPOLOGY: name, names.REQUIRE: "host"}))
    (error,) = parse_request(asked, policy=parse_policy("{}"), topologies=found).errors
    assert error.message == f"{said}; allowed: default, hypernodes, root"
    assert found.unusable("root") is found.unusable("gone") is None


def test_who_names_one_of_many_roots_reads_that_there_are_too_many() -> None:
    racks = [hyper(f"a{at}", 1, exact(f"node{at}")) for at in range(17)]
    rows = [hyper(f"b{at}", 2, *below(f"a{at}")) for at in range(17)]
    found = topologies_of((), nodes(20), hyper_nodes=[*racks, *rows])
    assert found.unusable("b3") == "HyperNode b3 has no topology of its own: more than 16 HyperNodes are roots of trees"


# -- garbage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "Expected `object`, got `null`"),
        ("x", "Expected `object`"),
        ({"tier": "1"}, "Expected `int`, got `str`"),
        ({"tier": -1}, ">= 0"),
        ({"tier": 2**40}, "<= 2147483647"),
        ({"tier": 1, "tierName": 7}, "Expected `str | null`"),
        ({"tier": 1, "members": {}}, "Expected `array | null`"),
        ({"tier": 1, "members": [None]}, "Expected `object`"),
        ({"tier": 1, "members": [{"type": "Rack", "selector": {}}]}, "Invalid enum value"),
        ({"tier": 1, "members": [{"type": "Node"}]}, "missing required field `selector`"),
        ({"tier": 1, "members": [{"type": "Node", "selector": {}}]}, "members[0].selector: must have one of"),
        ({"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": ""}}}]}, "length >= 1"),
        (
            {"tier": 1, "members": [exact("a"), {**regex("s"), "type": "HyperNode"}]},
            "members[1].selector: must have ex",
        ),
        ({"tier": 1, "members": [{"type": "Node", "selector": {**A_PATTERN, **A_NAME}}]}, "must have one of"),
        ({"tier": 1, "members": [labelled(matchLabels=["a"])]}, "Expected `object | null`"),
        ({"tier": 1, "members": [exact("a")] * 10_001}, "has 10,001; at most 10,000"),
    ],
)
def test_a_hyper_node_that_cannot_be_read_is_left_out_and_named(spec: Any, said: str) -> None:
    """The others stay in use."""
    bad = hyper_node(json.dumps(raw("bad", spec)).encode())
    assert said.replace("`", "") in bad.problem
    found = topology(bad, hyper("s0", 1, exact("node0")))
    assert paths(found) == {"node0": ("s0",)}
    assert "HyperNode bad: spec" in left_out(found)


@pytest.mark.parametrize("source", [b"", b"[]", b"{}", b'{"metadata": {}}', b'{"metadata": {"name": 7}}', b"\xff"])
def test_what_is_no_object_is_no_hyper_node(source: bytes) -> None:
    with pytest.raises(ProjectionError):
        hyper_node(source)


def test_with_nothing_but_garbage_the_topology_waits() -> None:
    found = topologies_of((), nodes(), hyper_nodes=[hyper_node(raw("bad", 7))])
    assert found["hypernodes"].waits == "HyperNode bad: spec: Expected object, got int"
    assert level_names((), found, "hypernodes").resolve("anything") == "anything"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([hyper("s0", 1, *below("s0"))], "member s0 has tier 1; it must be lower than 1"),
        ([hyper("s0", 2, *below("s1")), hyper("s1", 2, *below("s0"))], "member s1 has tier 2; it must be lower than 2"),
        ([hyper("s0", 2, *below("s1")), hyper("s1", 3, *below("s0"))], "member s1 has tier 3; it must be lower than 2"),
        ([hyper("s0", 2, *below("gone"))], "member gone was not found"),
        ([hyper("s0", 1, regex("(a"))], '"(a": unmatched ('),
        ([hyper("s0", 1, regex("\\bnode"))], "\\b is not supported"),
        ([hyper("s0", 1, labelled(matchExpressions=[{"key": "row", "operator": "Gt", "values": ["1"]}]))], "operator"),
    ],
)
def test_what_is_wrong_among_hyper_nodes_is_said_and_the_rest_used(wrong: list[HyperNode], said: str) -> None:
    found = topology(*wrong, hyper("good", 1, exact("node1")), over=nodes(2))
    assert said in left_out(found)
    assert paths(found)["node1"][-1] == "good"


def test_a_member_of_two_hyper_nodes_is_left_out_with_its_nodes() -> None:
    """Volcano's scheduler stops there."""
    found = topology(
        hyper("s0", 1, exact("node0")),
        hyper("s1", 1, exact("node1")),
        hyper("s4", 2, *below("s0", "s1")),
        hyper("s5", 2, *below("s0")),
        over=nodes(2),
    )
    assert paths(found) == {"node1": ("s4", "s1")}
    assert found.outside == {"node0": "in two HyperNodes of tier 2"}


def test_too_many_tiers_are_no_levels() -> None:
    found = topology(*(hyper(f"s{tier}", tier, exact("node0")) for tier in range(7)))
    assert found.waits == "the HyperNodes have 7 tiers; at most 6 are levels"


def test_many_faults_are_counted() -> None:
    found = topology(*(hyper(f"s{at}", 2, *below("gone")) for at in range(50)), hyper("x", 1, exact("node0")))
    assert len(found.faults) == 6
    assert found.faults[-1] == "and 45 more"


def test_large_objects_are_read_in_bounded_time() -> None:
    """10,000 members each, patterns that match everything, and a chain of members."""
    over = nodes(2_000)
    members = [exact(f"node{at}") for at in range(10_000)]
    none_of_a = labelled(matchExpressions=[{"key": "a", "operator": "DoesNotExist"}])
    hostile = [
        *(hyper(f"big{at}", 1, *members) for at in range(5)),
        *(hyper(f"re{at}", 1, regex("^(.*)*(.*)*x$")) for at in range(200)),
        *(hyper(f"no{at}", 1, none_of_a) for at in range(2_000)),
        *(hyper(f"up{at}", 2, *below(*(f"re{one}" for one in range(200)))) for at in range(200)),
    ]
    began = time.process_time()
    found = topology(*hostile, over=over)
    assert time.process_time() - began < 20
    assert any("takes too long" in fault for fault in found.faults)


@pytest.mark.parametrize(
    "expressions",
    [
        [{"key": "row", "operator": "NotIn", "values": [f"v{at}" for at in range(20_000)]}],
        [{"key": "row", "operator": "In", "values": [f"v{at}" for at in range(20_000)]}],
        [{"key": f"k{at}", "operator": "Exists"} for at in range(600)],
        [{"key": "row", "operator": "Exists"}] * 600,
    ],
)
def test_a_selector_costs_steps_for_all_that_it_says(expressions: list[dict[str, Any]]) -> None:
    """Its values, the indexes made for its keys, and the nodes of each requirement."""
    hostile = [hyper(f"s{at}", 1, labelled(matchExpressions=expressions)) for at in range(60)]
    began = time.process_time()
    found = topology(*hostile, over=nodes(2_000, row="r1"))
    assert time.process_time() - began < 10
    assert any("labelMatch: matching takes too long" in fault for fault in found.faults)


# -- in the policy, the view and simulate ----------------------------------------------------------------------------


def test_a_policy_takes_its_levels_from_hyper_nodes() -> None:
    """Of all, or of the tree of a root; with a nodeSelector and, first in the list, for workloads that name none."""
    policy = parse_policy(
        "topologies:\n"
        "- {name: main, fromObject: {group: topology.volcano.sh, name: hypernodes}, nodeSelector: {pool: a}}\n"
        "- {name: one, fromObject: {group: topology.volcano.sh, name: s6}}\n"
    )
    over = [*nodes(6, pool="a"), *nodes(8)[6:]]
    found = topologies_of(policy.topologies, over, hyper_nodes=tree())
    assert list(found) == ["main", "one", "hypernodes", "s6"]
    assert len(found["main"].tree.hosts) == 6
    assert found["main"].outside == dict.fromkeys(("node6", "node7"), "nodeSelector of the topology")
    assert len(found["one"].tree.hosts) == 8
    assert choose_topology(policy.topologies, found, ()) == "main"


@pytest.mark.parametrize(
    ("name", "hyper_nodes", "said"),
    [
        ("hypernodes", [], "there are no HyperNodes"),
        ("s6", [], "there are no HyperNodes"),
        ("other", tree(), "no HyperNode other is the root of a tree"),
        ("s4", tree(), "no HyperNode s4 is the root of a tree"),
    ],
)
def test_a_topology_of_the_policy_waits_for_its_hyper_nodes(name: str, hyper_nodes: list[HyperNode], said: str) -> None:
    policy = parse_policy(f"topologies: [{{name: main, fromObject: {{group: topology.volcano.sh, name: {name}}}}}]")
    found = topologies_of(policy.topologies, nodes(), hyper_nodes=hyper_nodes)
    assert found["main"].waits == said
    assert uncovered(found["main"]) == said


def test_a_policy_cannot_name_another_group() -> None:
    with pytest.raises(PolicyError, match="group"):
        parse_policy("topologies: [{name: main, fromObject: {group: volcano.sh, name: hypernodes}}]")


def test_hyper_nodes_are_never_the_default() -> None:
    """What a cluster's users write must not change its meaning because somebody else makes objects."""
    found = topologies_of((), nodes(), hyper_nodes=tree())
    assert choose_topology((), found, ()) == "default"
    words = level_names((), found, "default")
    assert words.resolve("rack") == "rack"
    assert words.resolve("tier-1") is None
    assert words.elsewhere("tier-1") == "hypernodes"


def test_the_view_follows_hyper_nodes() -> None:
    """Come, changed, gone: each makes another topology; a change of its status alone makes none."""
    stores = Stores()
    stores.nodes.replace(nodes())
    view = ClusterState(stores, QUIET)
    view.take_changes()
    assert list(view.topologies) == ["default"]
    stores.hyper_nodes.replace(tree())
    assert view.take_changes().everything
    assert len(view.topologies["hypernodes"].tree.hosts) == 8
    before = view.topologies
    stores.hyper_nodes.replace([replace(one, resource_version="2") for one in tree()])
    assert not view.take_changes().everything
    assert view.topologies is before
    stores.hyper_nodes.replace(tree()[:2])
    assert view.take_changes().everything
    assert paths(view.topologies["hypernodes"])["node0"] == ("s0",)
    stores.hyper_nodes.replace([])
    view.take_changes()
    assert list(view.topologies) == ["default"]


def test_simulate_and_the_service_have_the_same_hyper_nodes() -> None:
    cluster = [
        *(file_node(f"node{at}", {}) for at in range(2)),
        raw("s0", {"tier": 1, "members": [exact("node0")]}),
        raw("s1", {"tier": 1, "members": [regex("^node1$")]}),
        raw("s4", {"tier": 2, "tierName": "spine", "members": below("s0", "s1")}),
        raw("bad", {"tier": "x"}),
    ]
    simulated = offline_cluster(file_objects(cluster, name="cluster.json"))
    service = topologies_of((), nodes(2), hyper_nodes=[hyper_node(one) for one in cluster[2:]])
    assert paths(simulated.view.topologies["hypernodes"]) == paths(service["hypernodes"])
    assert "topology hypernodes: HyperNode bad: spec: Expected int, got str - at $.tier" in simulated.notes
