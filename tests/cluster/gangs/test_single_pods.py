"""Pods of a controller that nobody registered, on a real API server with the stock scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local.client import Client
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.raw_pods import GATE

GROUP = "flows.topogate.example.com"
FLOWS = Definition(GROUP, "Flow", "flows")


@pytest.fixture
def flow(client: Client, gangs: Namespace) -> Iterator[Json]:
    """An object of a kind of its own: its controller is this test."""
    FLOWS.install(client)
    path = f"/apis/{GROUP}/v1/namespaces/{gangs.name}/flows"
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Flow", "metadata": {"name": "train"}}
    stored: Json = client.create(path, body)
    yield stored
    FLOWS.remove(client)


def make(gangs: Namespace, name: str, above: Json | None, annotations: dict[str, str], **more: Any) -> Json:
    template = job_body(name, pods=1, selector=gangs.fleet.selector)["spec"]["template"]
    metadata: Json = {"name": name, "annotations": annotations}
    if above is not None:
        meta = above["metadata"]
        reference = {"apiVersion": f"{GROUP}/v1", "kind": "Flow", "name": meta["name"], "uid": meta["uid"]}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    path = f"/api/v1/namespaces/{gangs.name}/pods"
    stored: Json = gangs.client.create(path, {"metadata": metadata, "spec": {**template["spec"], **more}})
    return stored


def pods(gangs: Namespace) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods")}


def hosts(gangs: Namespace) -> dict[str, str]:
    return {name: one["spec"]["nodeName"] for name, one in pods(gangs).items() if one["spec"].get("nodeName")}


def test_pods_of_an_unregistered_controller_go_one_by_one_into_one_rack(gangs: Namespace, flow: Json) -> None:
    """The first goes at once, the others near it; one too many waits; the Placement is the controller's."""
    gangs.fleet.grid("1x2x3")
    make(gangs, "p0", flow, require("rack"))
    eventually(lambda: len(hosts(gangs)) == 1, message=lambda: f"the first is bound: {pods(gangs)}")
    for number in range(1, 4):
        make(gangs, f"p{number}", flow, require("rack"))
    eventually(lambda: len(hosts(gangs)) == 3, message=lambda: f"three are bound: {pods(gangs)}")
    assert len(gangs.racks(dict(enumerate(hosts(gangs).values())))) == 1
    placed = gangs.placement("train")
    assert placed is not None
    (owner,) = placed["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Flow", flow["metadata"]["uid"])
    (held,) = set(pods(gangs)) - set(hosts(gangs))
    assert {"name": GATE} in pods(gangs)[held]["spec"]["schedulingGates"]
    gone = next(iter(hosts(gangs)))
    gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{gone}", grace=0)
    eventually(lambda: held in hosts(gangs), message=lambda: f"it takes the place that is free: {pods(gangs)}")
    for name in pods(gangs):
        gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{name}", grace=0)
    eventually(lambda: gangs.placement("train") is None, message="without pods the Placement goes")


def test_a_bare_pod_that_asks_is_placed_by_itself(gangs: Namespace) -> None:
    gangs.fleet.grid("1x1x2")
    make(gangs, "alone", None, require("rack"))
    eventually(lambda: "alone" in hosts(gangs), message=lambda: f"it is bound: {pods(gangs)}")
    placed = gangs.placement("alone")
    assert placed is not None
    assert [owner["name"] for owner in placed["metadata"]["ownerReferences"]] == ["alone"]
