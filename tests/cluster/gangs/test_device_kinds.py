"""Devices of kinds that only the policy knows, on a real control plane: chosen, written, never handed out twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api import names
from local.client import Client, ClientError
from local.nodes import HostShape
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.device_objects import DEVICES, DeviceObjects
from tests.support.gangs import INDEX, Json, Namespace, require

NPU, CORE, RATIO = "example.com/npu", "example.com/npu-core", "example.com/npu-memory-ratio"
KIND = f"devices: {{kinds: [{{type: npu, resources: {{whole: {NPU}, core: {CORE}, memoryRatio: {RATIO}}}}}]}}\n"


@pytest.fixture
def objects(client: Client, service: Service) -> Iterator[DeviceObjects]:
    """The Device objects of this test: a replica that does not know the kind finds a fault in them, others none."""
    made = DeviceObjects(client, service)
    yield made
    made.clear()


@pytest.fixture
def npus(gangs: Namespace, client: Client, objects: DeviceObjects) -> str:
    """One host with four NPUs, two on each PCIe scope; no replica knows yet what these are."""
    shape = HostShape(gpus=0, extended={NPU: "4", CORE: "400", RATIO: "400"})
    (host,) = gangs.fleet.grid("1x1x1", shape=shape)
    one = {"type": "npu", "health": True, "resources": {CORE: "100", RATIO: "100"}}
    near = {"socketID": 0, "nodeID": 0}
    listed = [
        {**one, "minor": minor, "id": f"NPU-{minor}", "topology": {**near, "pcieID": f"p{minor // 2}"}}
        for minor in range(4)
    ]
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device", "metadata": {"name": host}}
    client.create(DEVICES, {**body, "spec": {"devices": listed}})
    objects.known(1)
    return host


def asking(**limits: str) -> Json:
    return {"containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}


def minors(gangs: Namespace, job: str) -> dict[int, list[int]]:
    """Index -> minors of the NPUs in the annotation of each pod."""
    found: dict[int, list[int]] = {}
    for pod in gangs.pods(job):
        listed: dict[str, list[dict[str, Any]]] = json.loads(pod["metadata"]["annotations"][names.DEVICE_ALLOCATED])
        assert list(listed) == ["npu"]
        assert all(device["id"] == f"NPU-{device['minor']}" for device in listed["npu"])
        found[int(pod["metadata"]["labels"][INDEX])] = [device["minor"] for device in listed["npu"]]
    return found


def test_a_kind_of_the_policy_is_handed_out_device_by_device(
    gangs: Namespace, npus: str, policy: PolicyInForce, objects: DeviceObjects
) -> None:
    """Whole ones near each other, parts on one device; what is in use outlives the kind and the policy's change."""
    policy.set(TEST_POLICY + KIND)
    objects.known(0)
    with pytest.raises(ClientError, match="asks for compute without memory") as refused:
        gangs.submit("wrong", pods=1, annotations=require("host"), pod_spec=asking(**{CORE: "50"}))
    assert f"spec.template.spec.containers[0].resources.limits[{CORE}]" in refused.value.message
    gangs.submit("pair", pods=1, annotations=require("host"), pod_spec=asking(**{NPU: "2"}))
    gangs.all_bound("pair", 1)
    assert minors(gangs, "pair") == {0: [0, 1]}
    gangs.submit("halves", pods=2, annotations=require("host"), pod_spec=asking(**{CORE: "50", RATIO: "50"}))
    gangs.all_bound("halves", 2)
    assert minors(gangs, "halves") == {0: [2], 1: [2]}
    placement = gangs.placement("halves")
    assert placement is not None
    (slot,) = placement["spec"]["assignment"]["podSets"][0]["slots"]
    assert slot["devices"] == [[{"type": "npu", "minor": 2, "core": 50, "memoryRatio": 50}]] * 2

    policy.set(TEST_POLICY)
    objects.known(1)
    policy.set(TEST_POLICY + KIND)
    objects.known(0)
    gangs.submit("rest", pods=1, annotations=require("host"), pod_spec=asking(**{NPU: "1"}))
    gangs.all_bound("rest", 1)
    assert minors(gangs, "rest") == {0: [3]}
    gangs.submit("late", pods=1, annotations=require("host"), pod_spec=asking(**{CORE: "10", RATIO: "10"}))
    gangs.waits("late")


def test_without_the_kind_pods_count_by_number(gangs: Namespace, npus: str, policy: PolicyInForce) -> None:
    policy.set(TEST_POLICY)
    gangs.submit("pair", pods=1, annotations=require("host"), pod_spec=asking(**{NPU: "2"}))
    gangs.all_bound("pair", 1)
    (pod,) = gangs.pods("pair")
    assert names.DEVICE_ALLOCATED not in pod["metadata"]["annotations"]
    gangs.submit("more", pods=1, annotations=require("host"), pod_spec=asking(**{NPU: "3"}))
    gangs.waits("more")
