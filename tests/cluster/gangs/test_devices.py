"""Device objects on a real API server: pods are told their devices, and nobody else gets these."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.api import names
from engine.resources.names import CORE, MEMORY, RATIO
from local.client import Client, ClientError
from local.nodes import HostShape
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.device_objects import KOORDINATOR, DeviceObjects
from tests.support.eventually import eventually
from tests.support.gangs import INDEX, Json, Namespace, require

SERVER_ERROR = 500


def gpu(minor: int, *, health: bool = True, pcie: str = "p0") -> Json:
    amounts = {CORE: "100", RATIO: "100", MEMORY: "80Gi"}
    topology = {"socketID": 0, "nodeID": 0, "pcieID": pcie}
    one = {"type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": health, "resources": amounts}
    return {**one, "topology": topology}


class Told:
    """Hosts with two GPUs each that tell them.

    The GPUs of a host are on one PCIe scope, those of the first `apart` hosts on two.
    """

    def __init__(self, gangs: Namespace, objects: DeviceObjects, layout: str, *, apart: int = 0) -> None:
        self.objects = objects
        shape = HostShape(gpus=0, extended={CORE: "200", RATIO: "200", MEMORY: "160Gi"})
        self.hosts = gangs.fleet.grid(layout, shape=shape)
        for number, host in enumerate(self.hosts):
            objects.report(host, self._gpus(apart=number < apart))
        objects.known(len(self.hosts))

    def _gpus(self, *sick: int, apart: bool = False) -> list[Json]:
        return [gpu(minor, health=minor not in sick, pcie=f"p{minor if apart else 0}") for minor in range(2)]

    def sick(self, host: str, *minors: int) -> None:
        """Turn these of a host's GPUs sick, and the others well."""
        self.objects.change(host, self._gpus(*minors))


@pytest.fixture
def told(request: pytest.FixtureRequest, gangs: Namespace, service: Service) -> Iterator[Told]:
    layout, apart = getattr(request, "param", ("1x1x1", 0))
    objects = DeviceObjects(gangs.client, service)
    yield Told(gangs, objects, layout, apart=apart)
    objects.clear()


def share(percent: int) -> Json:
    container = {"name": "gpu", "image": "x", "resources": {"limits": {CORE: str(percent), RATIO: str(percent)}}}
    return {"containers": [container]}


def devices_of(pod: Json) -> list[Mapping[str, Any]]:
    text = pod["metadata"]["annotations"].get(names.DEVICE_ALLOCATED)
    return [] if text is None else list(json.loads(text)["gpu"])


def minors(gangs: Namespace, job: str) -> dict[int, int]:
    """Index -> minor of the one GPU of each pod."""
    return {int(pod["metadata"]["labels"][INDEX]): devices_of(pod)[0]["minor"] for pod in gangs.pods(job)}


def planned(gangs: Namespace, job: str) -> dict[int, int]:
    """Index -> minor of the one GPU that the Placement says; of a gang on one host."""
    placement = gangs.placement(job)
    assert placement is not None
    (slot,) = placement["spec"]["assignment"]["podSets"][0]["slots"]
    return {index: uses[0]["minor"] for index, uses in enumerate(slot["devices"])}


def test_pods_are_told_their_parts_of_devices(gangs: Namespace, told: Told) -> None:
    """In Koordinator's words and as the Placement says; two halves share a device, never three."""
    gangs.submit("parts", pods=4, annotations=require("host"), pod_spec=share(50))
    gangs.all_bound("parts", 4)
    assert Counter(minors(gangs, "parts").values()) == {0: 2, 1: 2}
    assert minors(gangs, "parts") == planned(gangs, "parts")
    for pod in gangs.pods("parts"):
        (device,) = devices_of(pod)
        assert device["id"] == f"GPU-{device['minor']}"
        assert device["resources"] == {CORE: "50", MEMORY: "40Gi", RATIO: "50"}
    gangs.submit("more", pods=1, annotations=require("host"), pod_spec=share(10))
    gangs.waits("more", "InsufficientFreeGPUs")


@pytest.mark.parametrize("told", [("1x1x3", 2)], indirect=True)
def test_near_devices_decide_the_host(gangs: Namespace, told: Told) -> None:
    """The last of three equal hosts is taken: its GPUs share a PCIe scope; if that is required no other will do."""
    near = told.hosts[-1]
    gangs.submit("pair", pods=1, annotations=require("host"), pod_spec=share(200))
    gangs.all_bound("pair", 1)
    (first,) = gangs.pods("pair")
    assert first["spec"]["nodeName"] == near
    assert [device["minor"] for device in devices_of(first)] == [0, 1]
    strict = {**require("host"), names.DEVICE_SCOPE: "pcie"}
    gangs.submit("strict", pods=1, annotations=strict, pod_spec=share(200))
    gangs.waits("strict", "InsufficientFreeGPUs")
    gangs.submit("any", pods=1, annotations=require("host"), pod_spec=share(200))
    gangs.all_bound("any", 1)
    gangs.client.delete(f"{gangs.jobs_path}/pair?propagationPolicy=Background")
    gangs.all_bound("strict", 1)
    assert [one["spec"]["nodeName"] for one in gangs.pods("strict")] == [near]


def test_containers_see_the_gpus_of_their_pod(gangs: Namespace, told: Told, policy: PolicyInForce) -> None:
    """The stored pods have the variable, and its annotation names the GPU of the device annotation."""
    policy.set(TEST_POLICY + "gpu: {env: uuid}\n")
    gangs.submit("sees", pods=2, annotations=require("host"), pod_spec=share(100))
    gangs.all_bound("sees", 2)
    seen = set()
    for pod in gangs.pods("sees"):
        env = {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}
        variable = env[names.VISIBLE_DEVICES_VARIABLE]
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == f"metadata.annotations['{names.VISIBLE_DEVICES}']"
        (device,) = devices_of(pod)
        assert pod["metadata"]["annotations"][names.VISIBLE_DEVICES] == device["id"]
        seen.add(device["id"])
    assert seen == {"GPU-0", "GPU-1"}


def test_containers_get_the_limits_of_their_parts(gangs: Namespace, told: Told, policy: PolicyInForce) -> None:
    """Held and placed pods alike: the stored pods refer to annotations with what the device annotation says."""
    policy.set(TEST_POLICY + "gpu: {hami: {limits: true}}\n")
    gangs.submit("parts", pods=2, annotations=require("host"), pod_spec=share(30))
    gangs.all_bound("parts", 2)
    for pod in gangs.pods("parts"):
        env = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in pod["spec"]["containers"][0]["env"]}
        assert (
            env.items()
            >= {
                names.GPU_MEMORY_LIMIT_VARIABLE: f"metadata.annotations['{names.GPU_MEMORY_LIMIT}']",
                names.GPU_CORE_LIMIT_VARIABLE: f"metadata.annotations['{names.GPU_CORE_LIMIT}']",
            }.items()
        )
        annotations = pod["metadata"]["annotations"]
        assert annotations[names.GPU_CORE_LIMIT] == devices_of(pod)[0]["resources"][CORE] == "30"
        assert devices_of(pod)[0]["resources"][MEMORY] == "24Gi"
        assert annotations[names.GPU_MEMORY_LIMIT] == "24576m"


def test_a_sick_device_is_nobodys_until_it_is_well(gangs: Namespace, told: Told) -> None:
    """The gang waits, and is told that it is the devices; the moment the device is well it starts there."""
    (host,) = told.hosts
    told.sick(host, 0)
    gangs.submit("first", pods=1, annotations=require("host"), pod_spec=share(60))
    gangs.all_bound("first", 1)
    assert minors(gangs, "first") == {0: 1}
    gangs.submit("second", pods=1, annotations=require("host"), pod_spec=share(60))
    gangs.waits("second")
    told.sick(host)
    gangs.all_bound("second", 1)
    assert minors(gangs, "second") == {0: 0}


def test_a_half_and_a_whole_race_for_the_last_device(gangs: Namespace, told: Told) -> None:
    """Submitted in the same moment, one gets the device and the other waits; when it ends the other one has it."""
    gangs.submit("before", pods=1, annotations=require("host"), pod_spec=share(100))
    gangs.all_bound("before", 1)
    with ThreadPoolExecutor(2) as pool:
        for one in [
            pool.submit(gangs.submit, job, pods=1, annotations=require("host"), pod_spec=share(percent))
            for job, percent in (("half", 50), ("whole", 100))
        ]:
            one.result()
    eventually(lambda: any(gangs.bound(job) for job in ("half", "whole")), message="one of the two runs")
    first, second = ("half", "whole") if gangs.bound("half") else ("whole", "half")
    gangs.waits(second, "InsufficientFreeGPUs")
    assert minors(gangs, first)[0] != minors(gangs, "before")[0]
    gangs.client.delete(f"{gangs.jobs_path}/{first}")
    gangs.all_bound(second, 1)
    assert minors(gangs, second)[0] != minors(gangs, "before")[0]


def test_devices_outlive_the_leader_that_chose_them(gangs: Namespace, told: Told, service: Service) -> None:
    """The next leader knows from pods and Placements who has what, and gives the rest to others."""
    gangs.submit("first", pods=1, annotations=require("host"), pod_spec=share(60))
    gangs.all_bound("first", 1)
    before = minors(gangs, "first")
    leader = eventually(service.leader, message="a replica leads")
    leader.kill()

    def submitted() -> bool:
        """The API server may still hold a connection to the one that was killed: then it answers 500."""
        try:
            gangs.submit("second", pods=2, annotations=require("host"), pod_spec=share(40))
        except ClientError as error:
            if error.status != SERVER_ERROR:
                raise
            return False
        return True

    eventually(submitted, message="the other replica answers")
    gangs.all_bound("second", 2)
    assert minors(gangs, "first") == before
    held = Counter({before[0]: 60})
    for minor in minors(gangs, "second").values():
        held[minor] += 40
    assert max(held.values()) <= 100
    service.start(2)


def test_where_nobody_tells_devices_everything_works_without(gangs: Namespace, told: Told, client: Client) -> None:
    """The custom resource is removed: the service goes on, counts what nodes report, and names no device."""
    KOORDINATOR.remove(client)
    told.objects.known(0)
    gangs.submit("parts", pods=4, annotations=require("host"), pod_spec=share(50))
    gangs.all_bound("parts", 4)
    assert [devices_of(pod) for pod in gangs.pods("parts")] == [[]] * 4
