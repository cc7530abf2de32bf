"""`topogate simulate` keeps gangs apart as the leader does, and says why one waits."""

from __future__ import annotations

from engine.api import names
from tests.support.simulation import Json, answer, grid, job

RACK = {"require": "rack"}


def serving(name: str, replicas: int, size: int, asked: dict[str, str]) -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "annotations": {names.REQUIRE: "rack", **asked}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": {"containers": [container]}}},
        },
    }


def told(objects: list[Json], nodes: list[Json]) -> list[tuple[str, str | None]]:
    return [(one["verdict"], one["reason"]) for one in answer(nodes, objects)["workloads"]]


def test_groups_are_spread_over_racks_as_far_as_there_are_any() -> None:
    """Five groups, four racks with room for two each; without the annotation all of them fit."""
    assert told([serving("serve", 5, 2, {})], grid(1, 4, 4)) == [("placed", None)] * 5
    found = answer(grid(1, 4, 4), [serving("serve", 5, 2, {names.SPREAD: "rack"})])["workloads"]
    assert [one["verdict"] for one in found] == ["placed"] * 4 + ["waits"]
    assert found[4]["reason"] == "SpreadDomains"
    assert found[4]["message"] == (
        "needs room for 2 pods outside the racks of the other gangs of its workload; 4 racks = 4 with such gangs"
    )


def test_an_exclusive_job_keeps_others_out_and_goes_nowhere_beside_them() -> None:
    """In the order of submission; the numbers of nodes add up where too little is free anyway."""
    jobs = [
        job("a", 1, RACK),
        job("alone", 2, {**RACK, names.EXCLUSIVE: "rack"}),
        job("b", 4, RACK),
        job("c", 1, RACK),
        job("second", 2, {**RACK, names.EXCLUSIVE: "rack"}),
    ]
    found = answer(grid(1, 2, 4), jobs)["workloads"]
    assert [(one["name"], one["verdict"], one["reason"]) for one in found] == [
        ("a", "placed", None),
        ("alone", "placed", None),
        ("b", "waits", "InsufficientFreeGPUs"),
        ("c", "placed", None),
        ("second", "waits", "ExclusiveDomains"),
    ]
    assert found[2]["message"].endswith("8 nodes = 4 in domains of exclusive gangs + 1 in use + 3 with room")
    assert found[4]["message"] == (
        "needs room for 2 pods in racks without other gangs; 2 racks = 1 of exclusive gangs + 1 with other gangs"
    )


def test_the_workloads_of_one_pod_group_are_one_gang() -> None:
    """They share an exclusive rack, as both belong to the gang; a third Job stays outside."""
    asked = {**RACK, names.EXCLUSIVE: "rack", names.POD_GROUP: "pair", names.MIN_AVAILABLE: "2"}
    jobs = [job("one", 1, asked), job("two", 1, asked), job("three", 1, RACK)]
    assert told(jobs, grid(1, 1, 4)) == [("placed", None), ("placed", None), ("waits", "ExclusiveDomains")]
