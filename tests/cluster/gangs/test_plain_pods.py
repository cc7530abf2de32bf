"""Gangs of plain pods, by gang-name and gang-size, on a real API server with the stock scheduler."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.raw_pods import GATE

pytestmark = pytest.mark.core

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


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
    eventually(lambda: gangs.placement("mesh") is None, message="the Placement is gone")


def test_the_placement_of_a_gang_outlives_the_pods_that_were_replaced(gangs: Namespace) -> None:
    """All of its first pods, one after the other: a new pod owns it before it takes the slot of a lost one."""
    gangs.fleet.grid("1x2x4")
    for number in range(2):
        make(gangs, f"p{number}", size=2)
    eventually(lambda: len(hosts(gangs)) == 2, message=lambda: f"two pods bound: {pods(gangs)}")
    first = gangs.placement("mesh")
    assert first is not None
    before = set(hosts(gangs).values())
    for number in range(2):
        gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/p{number}")
        eventually(lambda lost=f"p{number}": lost not in pods(gangs), message="it is gone")
        make(gangs, f"q{number}", size=2)
        eventually(lambda: len(hosts(gangs)) == 2, message=lambda: f"the new pod is bound: {pods(gangs)}")
    assert set(hosts(gangs).values()) == before
    stands = gangs.placement("mesh")
    assert stands is not None
    assert stands["metadata"]["uid"] == first["metadata"]["uid"]
    assert {"q0", "q1"} <= {owner["name"] for owner in stands["metadata"]["ownerReferences"]}
    for number in range(2):
        gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/q{number}")
    eventually(lambda: gangs.placement("mesh") is None, message="the Placement goes with the last of them")


def test_pods_that_give_different_sizes_stay_held_and_say_so(gangs: Namespace) -> None:
    gangs.fleet.grid("1x1x4")
    make(gangs, "p0", size=2)
    make(gangs, "p1", size=3)
    eventually(lambda: events(gangs, "GangSizeMismatch"), message="they are told why")
    assert all({"name": GATE} in one["spec"]["schedulingGates"] for one in pods(gangs).values())


def submitted(kubectl: Kubectl, name: str, **annotations: str) -> tuple[bool, str]:
    """What kubectl says of a pod with these annotations that is created; nothing is stored."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {f"topogate.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"},
    }
    done = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(body), check=False)
    return done.returncode == 0, done.stderr


def test_a_wrong_request_on_a_plain_pod_is_refused_at_submit(gangs: Namespace, kubectl: Kubectl) -> None:
    """With everything that is wrong, on a pod by itself and on one of a gang."""
    gangs.fleet.grid("1x1x2")
    for wrong, told in (
        ({"require_topology": "rak"}, ["require-topology", 'did you mean "rack"?']),
        ({"gangname": "j", "require_topology": "rak"}, ["gangname", "require-topology"]),
        ({"gang_name": "j"}, ["gang-size"]),
        ({"gang_name": "j", "gang_size": "two", "require_topology": "rak"}, ["gang-size", "require-topology"]),
        ({"gang_size": "2"}, ["gang-size"]),
        ({"slice_topology": "rack", "slice_size": "2"}, ["slice-size", "slice-topology"]),
    ):
        created, said = submitted(kubectl, "wrong", **wrong)
        assert not created, wrong
        assert all(word in said for word in told), said


def test_a_plain_pod_that_asks_is_told_what_will_happen(gangs: Namespace, kubectl: Kubectl) -> None:
    """By itself and as one of a gang, which is planned whole."""
    gangs.fleet.grid("1x1x2")
    refused: list[str] = []

    def told(words: str, name: str, **annotations: str) -> bool:
        """A busy replica gives no forecast."""
        created, said = submitted(kubectl, name, **annotations)
        refused.extend([] if created else [said])
        return words in said

    eventually(lambda: told("would place 1 pod", "alone", require_topology="rack"), message="it is placed")
    assert told("the pod is placed alone", "alone", require_topology="rack")
    asks = {"gang_name": "j", "gang_size": "3", "require_topology": "rack"}
    eventually(lambda: told("would place 3 pods", "one", **asks), message="the gang is placed")
    assert refused == []


GROUP, MIN = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
KOORDINATOR, KOORDINATOR_MIN = "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pods_of_a_pod_group_start_when_its_minimum_can_and_others_join(gangs: Namespace, where: str) -> None:
    """By the labels of coscheduling or the annotations of Koordinator, as their users write them."""
    gangs.fleet.grid("1x1x2")
    keys = (GROUP, MIN) if where == "labels" else (KOORDINATOR, KOORDINATOR_MIN)
    spec = job_body("x", pods=1, selector=gangs.fleet.selector)["spec"]["template"]["spec"]

    def make_member(name: str) -> None:
        metadata = {"name": name, where: {keys[0]: "mesh", keys[1]: "3"}}
        gangs.client.create(f"/api/v1/namespaces/{gangs.name}/pods", {"metadata": metadata, "spec": spec})

    make_member("p0")
    make_member("p1")
    eventually(lambda: events(gangs, "WaitingForMembers"), message="the pods say how many are missing")
    make_member("p2")
    eventually(lambda: gangs.placement("mesh"), message="they wait for room")
    assert hosts(gangs) == {}
    gangs.fleet.host("host-002", block="block-0", rack="rack-00")
    eventually(lambda: len(hosts(gangs)) == 3, message=lambda: f"three pods bound: {pods(gangs)}")
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    make_member("p3")
    eventually(lambda: len(hosts(gangs)) == 4, message=lambda: f"the fourth joins: {pods(gangs)}")
