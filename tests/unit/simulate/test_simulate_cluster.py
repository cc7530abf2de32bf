from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.simulation import (
    BLOCK,
    RACK,
    Json,
    answer,
    grid,
    job,
    node,
    objects,
    pod,
    policy_map,
    simulated,
    topology,
    verdicts,
)
from webhook.snapshot.cluster import offline_cluster
from webhook.snapshot.files import FileProblem

LEVELS = "topologies: [{name: gpu, levels: [{name: row, keys: [example.com/row]}]}]"


def nodes(labels: Mapping[str, str], count: int = 2) -> list[Json]:
    return [node(f"h{number}", labels) for number in range(count)]


EVERY = nodes({BLOCK: "b", RACK: "r", "example.com/row": "w", "example.com/cell": "c", "x.org/hall": "l"})


def levels(cluster: list[Json], **options: Any) -> list[str]:
    found: list[str] = answer(cluster, [job("a", 1)], **options)["cluster"]["levels"]
    return found


def notes(cluster: list[Json]) -> tuple[str, ...]:
    return offline_cluster(objects(cluster, name="cluster.json")).notes


def test_where_the_levels_come_from() -> None:
    """--policy, then the ConfigMap, then --levels, then a Topology object, then the default policy."""
    config = policy_map("topologies: [{name: gpu, levels: [{name: cell, keys: [example.com/cell]}]}]")
    hall = topology("t", "x.org/hall")
    assert levels([*EVERY, config, hall], policy=parse_policy(LEVELS), levels=[RACK]) == ["row", "host"]
    assert levels([*EVERY, config, hall], levels=[RACK]) == ["cell", "host"]
    assert levels([*EVERY, hall], levels=[BLOCK, RACK]) == ["topology-block", "topology-rack", "host"]
    assert levels([*EVERY, hall]) == ["hall", "host"]
    assert levels(EVERY) == ["block", "rack", "host"]


FROM_OBJECT = "topologies: [{name: main, fromObject: {group: kueue.x-k8s.io, name: halls}}]"


def test_a_policy_can_take_levels_from_a_topology_object() -> None:
    """From the one that it names; without it workloads wait, and are told for what."""
    halls = topology("halls", "x.org/hall")
    assert levels([*EVERY, policy_map(FROM_OBJECT), halls, topology("rows", "example.com/row")]) == ["hall", "host"]
    [found] = answer([*EVERY, policy_map(FROM_OBJECT)], [job("a", 1, {"require": "hall"})])["workloads"]
    assert (found["verdict"], found["reason"]) == ("waits", "LabelsMissing")
    assert found["message"] == "the Topology halls of kueue.x-k8s.io was not found"


def test_a_policy_without_topologies_leaves_the_levels_to_others() -> None:
    """Its other settings apply all the same."""
    config = policy_map("neverFits: deny")
    cluster = [*EVERY, config]
    assert levels(cluster, levels=["example.com/row"]) == ["row", "host"]
    assert verdicts(cluster, [job("a", 9, {"require": "row"})], levels=["example.com/row"]) == [
        ("a", "rejected", "GangTooLarge")
    ]


def test_levels_without_effect_are_told() -> None:
    """A flag is never ignored in silence."""
    found = objects(EVERY, name="f")
    assert offline_cluster(found, policy=parse_policy(LEVELS), levels=[RACK]).notes == (
        "--levels has no effect: the policy names the topologies",
    )
    assert offline_cluster(found, levels=[RACK]).notes == ()


@pytest.mark.parametrize("word", ["topology-rack", RACK])
@pytest.mark.parametrize("last", [[], [names.HOSTNAME], ["host"]])
def test_aliases_of_keys(word: str, last: list[str]) -> None:
    """The part after the slash, and the full key; the host level need not be named."""
    found = answer(EVERY, [job("a", 2, {"require": word})], levels=[BLOCK, RACK, *last])
    assert found["workloads"][0]["podSets"][0]["require"] == "topology-rack"
    assert found["cluster"]["levels"] == ["topology-block", "topology-rack", "host"]


def test_keys_may_hold_what_a_policys_level_name_may_not() -> None:
    """`nvidia.com/gpu.clique` is a level all the same."""
    cluster = nodes({"nvidia.com/gpu.Clique": "c"})
    assert verdicts(cluster, [job("a", 2, {"require": "gpu.Clique"})], levels=["nvidia.com/gpu.Clique"]) == [
        ("a", "placed", None)
    ]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (["example.com/rack", "other.org/rack"], 'two levels would be called "rack"'),
        (["example.com/host"], 'would be the level "host", which has its own meaning'),
        (["example.com/auto"], 'would be the level "auto"'),
        ([names.HOSTNAME, "example.com/rack"], "kubernetes.io/hostname is the last level"),
        (["no key!"], '"no key!" is not a node label key'),
        ([""], '"" is not a node label key'),
        ([f"example.com/l{n}" for n in range(7)], "at most 6 levels"),
    ],
)
def test_levels_that_cannot_be(keys: list[str], problem: str) -> None:
    """One line; the same rules for --levels and for Topology objects."""
    with pytest.raises(FileProblem, match="--levels: ") as caught:
        levels(EVERY, levels=keys)
    assert problem in str(caught.value)
    assert [problem in note for note in notes([*EVERY, topology("t", *keys)])] == [True]


@pytest.mark.parametrize("group", ["kueue.x-k8s.io", "kai.scheduler"])
def test_topology_objects_give_topologies_by_name(group: str) -> None:
    """The first is the default, an annotation names the others."""
    cluster = [*EVERY, topology("halls", "x.org/hall", group=group), topology("rows", "example.com/row", group=group)]
    workloads = [job("a", 1, {"require": "hall"}), job("b", 1, {"require": "row", names.TOPOLOGY: "rows"})]
    found = answer(cluster, workloads)["workloads"]
    assert [(one["verdict"], one["topology"]) for one in found] == [("placed", "halls"), ("placed", "rows")]


@pytest.mark.parametrize("spec", [{}, {"levels": "rack"}, {"levels": [{"nodeLabel": 5}]}, {"levels": [{}]}, None])
def test_malformed_topology_objects(spec: object) -> None:
    """The service does without them, and so does the simulation, which says so; a job cannot name them."""
    cluster = [*EVERY, {**topology("t"), "spec": spec}]
    (note,) = notes(cluster)
    assert note.startswith("cluster.json, item 3: Topology is not used: ")
    assert levels(cluster) == ["block", "rack", "host"]
    (refused,) = answer(cluster, [job("a", 1, {"require": "rack", names.TOPOLOGY: "t"})])["workloads"]
    assert refused["reason"] == "UnknownTopology"


def test_the_policy_of_our_namespace_goes_before_others() -> None:
    """Somebody else's ConfigMap of that name is not ours, unless it is the only one."""
    ours, other = policy_map("mode: off"), policy_map("neverFits: deny", namespace="elsewhere")
    asked = [job("a", 9, {"require": "rack"})]
    assert verdicts([*EVERY, other, ours], asked) == [("a", "ignored", "PolicyOff")]
    assert verdicts([*EVERY, other], asked) == [("a", "rejected", "GangTooLarge")]


def test_a_bad_policy_never_takes_effect() -> None:
    """Bad input: the first error, and how to see all of them."""
    with pytest.raises(FileProblem, match=r"cluster\.json, item 3: the policy is refused: mode: ") as caught:
        verdicts([*EVERY, policy_map("mode: maybe\nschedulers: []")], [job("a", 1)])
    assert "(and 1 more: topogate policy check)" in str(caught.value)


def test_pods_use_capacity() -> None:
    """Bound and nominated ones do; finished and unbound ones use nothing."""
    cluster = grid(1, 1, 4)
    waiting = [("a", "waits", "InsufficientFreeGPUs")]
    placed = [("a", "placed", None)]
    asked = [job("a", 4, {"require": "rack"})]
    nominated = pod("p", "", phase="Pending")
    nominated["status"]["nominatedNodeName"] = "b0-r0-h0"
    assert verdicts([*cluster, pod("p", "b0-r0-h0")], asked) == waiting
    assert verdicts([*cluster, nominated], asked) == waiting
    assert verdicts([*cluster, pod("p", "b0-r0-h0", deletionTimestamp="2026-01-01T00:00:00Z")], asked) == waiting
    assert verdicts([*cluster, pod("p", "b0-r0-h0", phase="Succeeded")], asked) == placed
    assert verdicts([*cluster, pod("p", "b0-r0-h0", phase="Failed")], asked) == placed
    assert verdicts([*cluster, pod("p", "", phase="Pending")], asked) == placed


def test_pods_of_daemon_sets_use_capacity_before_they_exist() -> None:
    """On every host that takes them."""
    limits = {"nvidia.com/gpu": 1}
    agent = {"containers": [{"name": "a", "image": "a", "resources": {"limits": limits}}]}
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": agent}},
    }
    asked = [job("a", 4, {"require": "rack"})]
    assert verdicts(grid(1, 1, 4), asked) == [("a", "placed", None)]
    cluster = [*grid(1, 1, 4), daemon_set]
    assert verdicts(cluster, asked) == [("a", "waits", "InsufficientFreeGPUs")]
    (found,) = answer([*cluster, pod("p", "b0-r0-h0")], asked)["workloads"]
    assert "; 4 nodes = 3 kept for DaemonSets + 1 in use; " in found["message"]


def live_gang(uid: str) -> tuple[Json, Json]:
    """A Job as the cluster stores it, and its Placement on two hosts of the rack."""
    running = job("running", 2, {"require": "rack"})
    running["metadata"] |= {"namespace": "ml", "uid": uid}
    slots = [{"domain": ["b0", "b0-r0", f"b0-r0-h{n}"], "count": 1, "ranks": str(n), "devices": None} for n in range(2)]
    placement = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": "job-running-00000000", "namespace": "ml"},
        "spec": {
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "running", "uid": uid},
            "topology": "default",
            "podSets": [{"name": "main", "count": 2, "require": "rack", "ranked": True}],
            "assignment": {"revision": 1, "podSets": [{"name": "main", "slots": slots}]},
        },
    }
    return running, placement


def test_placements_hold_their_slots() -> None:
    """When their workload is there too; a slot counts once, as its pod or as a reservation."""
    running, placement = live_gang("uid-1")
    cluster = grid(1, 1, 4)
    asked = [job("a", 3, {"require": "rack"})]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "running", "uid": "uid-1", "controller": True}
    bound = pod(
        "running-0",
        "b0-r0-h0",
        namespace="ml",
        ownerReferences=[owner],
        labels={names.COMPLETION_INDEX: "0"},
    )
    assert verdicts([*cluster, running, placement], asked) == [("a", "waits", "InsufficientFreeGPUs")]
    assert verdicts([*cluster, running, placement], [job("a", 2, {"require": "rack"})]) == [("a", "placed", None)]
    assert verdicts([*cluster, running, placement, bound], [job("a", 2, {"require": "rack"})]) == [
        ("a", "placed", None)
    ]
    assert verdicts([*cluster, placement], asked) == [("a", "placed", None)]


def test_a_workload_in_both_files_is_sent_anew() -> None:
    """What the cluster holds for the old one is free."""
    running, placement = live_gang("uid-1")
    again = {**job("running", 4, {"require": "rack"})}
    again["metadata"]["namespace"] = "ml"
    assert verdicts([*grid(1, 1, 4), running, placement], [again]) == [("running", "placed", None)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"unschedulable": True}}, "NodesUnhealthy"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NodesUnhealthy"),
        ({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, "NodesExcluded"),
    ],
)
def test_nodes_that_take_no_pods(change: Json, reason: str) -> None:
    """Cordoned, not ready, tainted: as in the cluster."""
    cluster = grid(1, 1, 4)
    for key, value in change.items():
        cluster[0][key] = {**cluster[0][key], **value}
    assert verdicts(cluster, [job("a", 4, {"require": "rack"})]) == [("a", "waits", reason)]


def test_a_node_that_became_ready_this_moment_counts() -> None:
    """The settle time is for live clusters; nobody waits for a file."""
    cluster = nodes({BLOCK: "b", RACK: "r"})
    for one in cluster:
        one["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    assert verdicts(cluster, [job("a", 2, {"require": "rack"})]) == [("a", "placed", None)]


def test_what_a_handwritten_node_leaves_out() -> None:
    """Without conditions it is ready, without a number of pods it has the kubelet's default of 110."""
    bare = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {BLOCK: "b", RACK: "r"}},
        "status": {"allocatable": {"cpu": "1000", "nvidia.com/gpu": "1000"}},
    }
    assert verdicts([bare], [job("a", 110, {"require": "rack"}, gpus=1)]) == [("a", "placed", None)]
    assert verdicts([bare], [job("a", 111, {"require": "rack"}, gpus=1)]) == [("a", "never", "GangTooLarge")]


def test_kinds_that_nobody_reads_are_left_out() -> None:
    """`kubectl get all` prints more than nodes and pods."""
    device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": "h0"}}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt", "namespace": "x"}}
    assert levels([*EVERY, device, other]) == ["block", "rack", "host"]


def test_what_the_cluster_facts_count() -> None:
    """All nodes of the files, and those of any topology."""
    found = answer([*grid(1, 1, 2), node("outside", {})], [job("a", 1)])
    assert found["cluster"] == {"nodes": 3, "nodesInTopology": 2, "levels": ["block", "rack", "host"]}


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"kind": "Node", "metadata": {}}, "Node: metadata.name: is required"),
        ({"kind": "Node", "metadata": {"name": 5}}, "Node: metadata.name: expected text, got a whole number"),
        ({"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "x"}}}, "Node: status.allocat"),
        ({"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-1"}}}, "must not be negative"),
        ({"kind": "Pod", "metadata": {}}, "Pod: metadata.name: is required"),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": []}, "Pod: spec: expected an object, got a list"),
        ({"kind": "ConfigMap", "metadata": {"name": names.POLICY_NAME}}, "the ConfigMap has no data[policy.yaml]"),
        ({"kind": "ConfigMap", "metadata": 5}, "ConfigMap: metadata: expected an object, got a whole number"),
    ],
)
def test_malformed_cluster_objects(broken: Json, problem: str) -> None:
    """Bad input with file and item: a cluster that is half read would give wrong answers."""
    with pytest.raises(FileProblem, match=r"cluster\.json, item 3: ") as caught:
        simulated([*EVERY, {"apiVersion": "v1", **broken}], [job("a", 1)])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_faulty_devices_are_left_out_and_told() -> None:
    """As the service does it: the others count, and a line says which and why."""
    whole = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    cluster = offline_cluster(
        objects(
            [
                head | {"metadata": {"name": "h0"}, "spec": {"devices": [whole, whole | {"minor": "1"}]}},
                head | {"metadata": {}, "spec": {}},
            ],
            name="cluster.json",
        )
    )
    known = cluster.view.stores.devices.get("h0")
    assert known is not None and [one.minor for one in known.devices] == [0]
    assert cluster.notes == (
        "cluster.json, item 1: Device h0 is only partly read: devices[1].minor: expected a whole number, got text",
        "cluster.json, item 2: the Device is skipped: metadata.name: is required",
        "Device h0: node not found",
    )
