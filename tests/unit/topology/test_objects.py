"""Levels out of the Topology objects of Kueue and KAI."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.objects import topology_object
from engine.decoding.wire import ProjectionError
from engine.gang.request import parse_request
from engine.policy.model import PolicyError, parse_policy
from engine.topology.choice import choose_topology, level_names
from engine.topology.levels import HOST, Level
from engine.topology.objects import TopologyObject, from_object, levels_of
from engine.topology.spec import ObjectRef
from engine.topology.topology import topologies_of, why_unusable
from tests.support.admission import raw_job, workload
from tests.support.cluster_records import gpu_nodes
from tests.support.simulation import node
from tests.support.simulation import objects as file_objects
from webhook.snapshot.cluster import offline_cluster

KUEUE = ObjectRef(group="kueue.x-k8s.io", name="default")
NODES = gpu_nodes(2, 2, 4)
KEYS = [key for key in NODES[0].labels if key != "kubernetes.io/hostname"][:2]
POLICY = parse_policy("topologies: [{name: main, fromObject: {group: kueue.x-k8s.io, name: default}}]")


def raw(spec: Any, **metadata: Any) -> bytes:
    return json.dumps({"metadata": {"name": "default", **metadata}, "spec": spec}).encode()


def of(*keys: str) -> bytes:
    return raw({"levels": [{"nodeLabel": key} for key in keys]})


def test_levels_are_the_keys_of_the_object() -> None:
    """By the last part of the key, or by KAI's alias; the host level is the last, named or not."""
    found = topology_object(raw({"levels": [{"nodeLabel": "x/block", "alias": "b"}, {"nodeLabel": "x/rack"}]}))
    assert from_object(KUEUE.group, KUEUE.name, {KUEUE.group: {"default": found}}) == (
        Level("b", ("x/block",)),
        Level("rack", ("x/rack",)),
        HOST,
    )
    assert levels_of([("x/rack", ""), ("kubernetes.io/hostname", "")]) == (Level("rack", ("x/rack",)), HOST)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "cannot be read"),
        ("x", "cannot be read"),
        ([], "cannot be read"),
        ({}, "cannot be read"),
        ({"levels": None}, "cannot be read"),
        ({"levels": {}}, "cannot be read"),
        ({"levels": []}, "must have 1 to 16 entries; has 0"),
        ({"levels": [{"nodeLabel": f"x/l{n}"} for n in range(17)]}, "has 17"),
        ({"levels": [{}]}, "cannot be read"),
        ({"levels": [7]}, "cannot be read"),
        ({"levels": [{"nodeLabel": 7}]}, "cannot be read"),
        ({"levels": [{"nodeLabel": "no label"}]}, "cannot be used"),
        ({"levels": [{"nodeLabel": "x/auto"}]}, "has its own meaning"),
        ({"levels": [{"nodeLabel": "x/rack"}, {"nodeLabel": "y/rack"}]}, "two levels would be called"),
        ({"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "x/rack"}]}, "is the last level"),
        ({"levels": [{"nodeLabel": f"x/l{n}"} for n in range(7)]}, "at most 6 levels"),
    ],
)
def test_what_cannot_be_used_says_so(spec: Any, said: str) -> None:
    """Nothing is raised: the topology waits, and tells of which object and why."""
    why = from_object(KUEUE.group, KUEUE.name, {KUEUE.group: {"default": topology_object(raw(spec))}})
    assert isinstance(why, str)
    assert why.startswith("the Topology default of kueue.x-k8s.io ")
    assert said in why


@pytest.mark.parametrize("source", [b"", b"[]", b"{}", b'{"metadata": {}}', b'{"metadata": {"name": 7}}', b"\xff"])
def test_what_is_no_object_is_left_out(source: bytes) -> None:
    """The one error that a projection raises."""
    with pytest.raises(ProjectionError):
        topology_object(source)


def test_without_its_object_a_topology_waits_and_any_level_may_be_named() -> None:
    """It has no nodes; what is asked of it is not refused, as nobody knows the levels."""
    topologies = topologies_of(POLICY.topologies, NODES)
    assert topologies["main"].waits == "the Topology default of kueue.x-k8s.io was not found"
    assert len(topologies["main"].tree.hosts) == 0
    levels = level_names(POLICY.topologies, topologies, "main")
    assert levels.resolve("rack") == "rack"
    assert levels.resolve("x/rack") == "x/rack"
    assert levels.resolve("no level") is None


def test_the_view_follows_the_object() -> None:
    """Come, changed, gone: each makes another topology, and gangs are looked at again."""
    stores = Stores()
    stores.nodes.replace(NODES)
    view = ClusterState(stores, POLICY)
    view.take_changes()
    assert view.topologies["main"].waits
    store = stores.topology_objects["kueue.x-k8s.io"]
    store.replace([topology_object(of(*KEYS))])
    assert view.take_changes().everything
    assert [level.name for level in view.topologies["main"].levels] == [
        *(key.rpartition("/")[2] for key in KEYS),
        "host",
    ]
    assert len(view.topologies["main"].tree.hosts) == len(NODES)
    store.replace([topology_object(of(KEYS[0]))])
    view.take_changes()
    assert len(view.topologies["main"].levels) == 2
    store.replace([])
    view.take_changes()
    assert view.topologies["main"].waits


def test_objects_of_another_group_or_name_are_none() -> None:
    """The two systems may have objects of one name."""
    objects = {
        "kai.scheduler": {"default": TopologyObject("default", "1", (("x/rack", ""),))},
        "kueue.x-k8s.io": {"other": TopologyObject("other", "1", (("x/rack", ""),))},
    }
    assert from_object(KUEUE.group, KUEUE.name, objects) == "the Topology default of kueue.x-k8s.io was not found"
    assert from_object("kai.scheduler", "default", objects) == (Level("rack", ("x/rack",)), HOST)


@pytest.mark.parametrize("name", ["gke.default", "x" * 64, "a" * 253])
def test_an_object_may_have_any_name_of_an_object(name: str) -> None:
    """Dots, and up to 253 characters: it is a topology by its name, and for the policy."""
    objects = {KUEUE.group: {name: TopologyObject(name, "1", ((KEYS[0], ""),))}}
    assert set(topologies_of((), NODES, objects=objects)) == {name, "default"}
    policy = parse_policy(f"topologies: [{{name: main, fromObject: {{group: kueue.x-k8s.io, name: {name}}}}}]")
    assert not topologies_of(policy.topologies, NODES, objects=objects)["main"].waits
    assert why_unusable(
        topologies_of((), NODES, objects={KUEUE.group: {name: TopologyObject(name, "1", (), "no")}}), name
    )


@pytest.mark.parametrize("name", ["Gke", "gke..default", ".gke", "gke-", "a" * 254, "ä"])
def test_a_policy_names_no_object_that_cannot_be(name: str) -> None:
    with pytest.raises(PolicyError, match="must be lower-case letters, digits, dashes and dots"):
        parse_policy(f'topologies: [{{name: main, fromObject: {{group: kueue.x-k8s.io, name: "{name}"}}}}]')


# -- without topologies in the policy --------------------------------------------------------------------------------

QUIET = parse_policy("{}")


def objects(**levels: list[str]) -> dict[str, dict[str, TopologyObject]]:
    """Kueue's Topology objects: name -> label keys."""
    found = {name: TopologyObject(name, "1", tuple((key, "") for key in keys)) for name, keys in levels.items()}
    return {KUEUE.group: found}


def test_topology_objects_give_the_topologies_where_the_policy_names_none() -> None:
    """By name, the first is that of workloads that name none; the default one comes last, for what is placed on it."""
    found = topologies_of(QUIET.topologies, NODES, objects=objects(rows=["x/row"], halls=["x/hall"]))
    assert list(found) == ["halls", "rows", "default"]
    assert [level.name for level in found["rows"].levels] == ["row", "host"]
    assert [level.name for level in found["default"].levels] == ["block", "rack", "host"]


def test_beside_topologies_of_the_policy_an_object_is_used_by_name_alone() -> None:
    """A workload that names none goes by what the admin says, which also hides an object of the same name."""
    of_policy = parse_policy("topologies: [{name: main, levels: [{name: hall, keys: [x/hall]}]}]").topologies
    found = topologies_of(of_policy, NODES, objects=objects(rows=["x/row"], main=["x/other"]))
    assert {name: [level.name for level in one.levels] for name, one in found.items()} == {
        "main": ["hall", "host"],
        "rows": ["row", "host"],
    }
    assert choose_topology(of_policy, found, ()) == "main"


def test_an_object_that_cannot_be_used_gives_nothing() -> None:
    """Nobody waits for it."""
    found = topologies_of(QUIET.topologies, NODES, objects=objects(bad=["no key!"], good=["x/row"]))
    assert list(found) == ["good", "default"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a.io/rack", "b.io/rack"], 'cannot be used: two levels would be called "rack"'),
        (["no key!"], 'cannot be used: "no key!" is not a node label key'),
        (["a.io/auto"], 'cannot be used: "a.io/auto" would be the level "auto", which has its own meaning'),
        (["kubernetes.io/hostname", "a.io/rack"], "cannot be used: kubernetes.io/hostname is the last level"),
    ],
)
def test_who_names_an_object_that_cannot_be_used_reads_why(keys: list[str], said: str) -> None:
    """Not only that there is no such topology."""
    found = topologies_of(QUIET.topologies, NODES, objects=objects(bad=keys, good=["x/row"]))
    record = workload(raw_job({names.TOPOLOGY: "bad", names.REQUIRE: "host"}))
    (error,) = parse_request(record, policy=QUIET, topologies=found).errors
    assert (error.field, error.reason) == (f"metadata.annotations[{names.TOPOLOGY}]", "UnknownTopology")
    assert error.message == f"the Topology bad of {KUEUE.group} {said}; allowed: good, default"
    assert found.unusable("good") is found.unusable("gone") is None


def test_who_names_an_object_that_cannot_be_read_reads_why() -> None:
    """The reason is that of the object; control characters in it are shown as such."""
    broken = TopologyObject("bad", "1", (), problem="spec.levels: must have 1 to 8 entries; has 0\x1b[2J")
    found = topologies_of(QUIET.topologies, NODES, objects={KUEUE.group: {"bad": broken}})
    why = found.unusable("bad")
    assert why is not None
    assert why.startswith(f"the Topology bad of {KUEUE.group} cannot be read: spec.levels: must have 1 to 8 entries")
    assert "\x1b" not in why


def test_of_two_objects_of_one_name_that_of_kueue_counts() -> None:
    both = objects(net=["x/row"]) | {"kai.scheduler": {"net": TopologyObject("net", "1", (("x/hall", ""),))}}
    assert [level.name for level in topologies_of(QUIET.topologies, NODES, objects=both)["net"].levels] == [
        "row",
        "host",
    ]


@pytest.mark.parametrize(("word", "level"), [("rack", "topology-rack"), (KEYS[0], "topology-block"), ("row", None)])
def test_the_words_of_presets_go_on_naming_the_levels_of_an_object(word: str, level: str | None) -> None:
    """An object that somebody else makes must not make the requests of yesterday wrong."""
    found = topologies_of(QUIET.topologies, NODES, objects=objects(net=KEYS))
    assert level_names(QUIET.topologies, found, "net").resolve(word) == level


def test_simulate_and_the_service_have_the_same_topologies() -> None:
    """Of the same objects, in whatever order the file has them."""
    labels = {"x.org/hall": "h0", "example.com/row": "r0"}
    cluster = [
        node("n", labels),
        *(
            {
                "apiVersion": f"{KUEUE.group}/v1beta1",
                "kind": "Topology",
                "metadata": {"name": name},
                "spec": {"levels": [{"nodeLabel": key}]},
            }
            for name, key in (("rows", "example.com/row"), ("halls", "x.org/hall"))
        ),
    ]
    simulated = offline_cluster(file_objects(cluster, name="cluster.json")).view.topologies
    service = topologies_of(QUIET.topologies, [], objects=objects(halls=["x.org/hall"], rows=["example.com/row"]))
    assert [(name, one.levels) for name, one in simulated.items()][:2] == [
        (name, one.levels) for name, one in service.items()
    ][:2]
