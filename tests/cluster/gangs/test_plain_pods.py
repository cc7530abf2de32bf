"""Gangs of plain pods, by gang-name and gang-size, on a real API server with the stock scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.raw_pods import GATE

pytestmark = pytest.mark.timeout(120)


def make(gangs: Namespace, name: str, *, size: int, gang: str = "mesh", **more: Any) -> Json:
    """Create a pod of a gang."""
    template = job_body(name, pods=1, selector=gangs.fleet.selector)["spec"]["template"]
    annotations = {"topogate.dev/gang-name": gang, "topogate.dev/gang-size": str(size), **require("rack")}
    body = {"metadata": {"name": name, "annotations": annotations, **more}, "spec": template["spec"]}
    stored: Json = gangs.client.create(f"/api/v1/namespaces/{gangs.name}/pods", body)
    return stored


def pods(gangs: Namespace) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods")}


def hosts(gangs: Namespace) -> dict[str, str]:
    return {name: one["spec"]["nodeName"] for name, one in pods(gangs).items() if one["spec"].get("nodeName")}


def events(gangs: Namespace, reason: str) -> list[Json]:
    found = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return [one for one in found if one["reason"] == reason]


def test_pods_go_together_when_all_of_them_exist(gangs: Namespace) -> None:
    """In one rack; the Placement is owned by all of them and goes with the last."""
    gangs.fleet.grid("1x2x4")
    for number in range(3):
        make(gangs, f"p{number}", size=4)
    eventually(lambda: events(gangs, "WaitingForMembers"), message="the pods say how many are missing")
    assert hosts(gangs) == {}
    make(gangs, "p3", size=4)
    eventually(lambda: len(hosts(gangs)) == 4, message=lambda: f"four pods bound: {pods(gangs)}")
    assert len(gangs.racks(dict(enumerate(hosts(gangs).values())))) == 1
    placed = gangs.placement("mesh")
    assert placed is not None
    assert placed["metadata"]["name"].startswith("pods-mesh-")
    owners = {owner["name"] for owner in placed["metadata"]["ownerReferences"]}
    assert owners == {"p0", "p1", "p2", "p3"}
    assert {one["metadata"]["labels"]["topogate.dev/gang"] for one in pods(gangs).values()} == {
        placed["metadata"]["name"]
    }
    for name in sorted(owners):
        gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{name}")
    eventually(lambda: gangs.placement("mesh") is None, 60.0, message="the Placement is gone")


def test_pods_that_give_different_sizes_stay_held_and_say_so(gangs: Namespace) -> None:
    gangs.fleet.grid("1x1x4")
    make(gangs, "p0", size=2)
    make(gangs, "p1", size=3)
    eventually(lambda: events(gangs, "GangSizeMismatch"), message="they are told why")
    assert all({"name": GATE} in one["spec"]["schedulingGates"] for one in pods(gangs).values())
