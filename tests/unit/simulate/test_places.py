"""Where `simulate` places gangs by what their pods prefer, and on the tree of Volcano's HyperNodes."""

from __future__ import annotations

from typing import Any

from tests.support.simulation import RACK, Json, answer, grid, job, node


def placed(cluster: list[Json], workload: Json) -> list[list[str]]:
    """The domains of a Job's slots."""
    (found,) = answer(cluster, [workload])["workloads"]
    assert found["verdict"] == "placed", found
    return [slot["domain"] for one in found["podSets"] for slot in one["assignment"]]


def preferring(rack: str) -> dict[str, Any]:
    expression = {"key": RACK, "operator": "In", "values": [rack]}
    terms = [{"weight": 5, "preference": {"matchExpressions": [expression]}}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def test_of_equal_racks_the_preferred_one() -> None:
    wish = job("train", 2, {"require": "rack"})
    wish["spec"]["template"]["spec"]["affinity"] = preferring("b0-r2")
    assert {path[1] for path in placed(grid(1, 3, 2), wish)} == {"b0-r2"}
    assert {path[1] for path in placed(grid(1, 3, 2), job("train", 2, {"require": "rack"}))} == {"b0-r0"}


def test_of_equal_racks_the_one_with_the_preferred_neighbour() -> None:
    """The pods of the cluster's file count, as in the service."""
    cache = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "cache", "namespace": "default", "labels": {"app": "cache"}},
        "spec": {"nodeName": "b0-r1-h0", "containers": [{"name": "main", "image": "x"}]},
        "status": {"phase": "Running"},
    }
    there = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "cache"}}}
    wish = job("train", 2, {"require": "rack"})
    wish["spec"]["template"]["spec"]["affinity"] = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": there}]}
    }
    assert {path[1] for path in placed([*grid(1, 3, 2), cache], wish)} == {"b0-r1"}
    assert {path[1] for path in placed(grid(1, 3, 2), wish)} == {"b0-r0"}


def test_a_rack_that_is_better_left_free_is_taken_last() -> None:
    taint = {"key": "gone-soon", "effect": "PreferNoSchedule"}
    nodes = [
        node(f"h{at}", {RACK: f"r{at}", "cloud.provider.com/topology-block": "b"}, taints=[taint] * (at == 0))
        for at in range(2)
    ]
    assert {path[1] for path in placed(nodes, job("train", 1, {"require": "rack"}))} == {"r1"}


def test_a_topology_of_hyper_nodes() -> None:
    """By the same rule as in the service: by name, and a pattern may cross the racks."""
    hyper_nodes = [
        {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": f"s{at}"},
            "spec": {"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": f"-h{at}$"}}}]},
        }
        for at in range(2)
    ]
    asks = {"require": "tier-1", "topogate.dev/topology": "hypernodes"}
    assert placed([*grid(1, 2, 2), *hyper_nodes], job("train", 2, asks)) == [["s0", "b0-r0-h0"], ["s0", "b0-r1-h0"]]
