"""Virtual functions of RDMA devices on a real API server: from Koordinator's hint to the annotation of bound pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.api import names
from engine.resources.names import CORE, MEMORY, RATIO, RDMA
from local.client import Client, ClientError
from local.nodes import HostShape
from local.service import Service
from tests.cluster.gangs.test_devices import SERVER_ERROR, gpu
from tests.support.device_objects import DeviceObjects
from tests.support.eventually import eventually
from tests.support.gangs import INDEX, Json, Namespace, require

FAST = {names.DEVICE_ALLOCATE_HINT: json.dumps({"rdma": {"vfSelector": {"matchLabels": {"type": "fast"}}}})}
SAME_PCIE = {names.DEVICE_JOINT_ALLOCATE: json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})}


def card(minor: int, fast: int) -> Json:
    """An RDMA device with functions of two types, and one that nobody can read."""
    groups = [
        {"labels": {"type": "slow"}, "vfs": [{"minor": 0, "busID": f"0000:{minor}f:00.2"}]},
        {
            "labels": {"type": "fast"},
            "vfs": [{"minor": 1 + at, "busID": f"0000:{minor}f:00.{3 + at}"} for at in range(fast)],
        },
        {"vfs": [{"minor": -1}]},
    ]
    place = {"socketID": -1, "nodeID": 0, "pcieID": f"p{minor}", "busID": f"0000:{minor}f:00.0"}
    one = {"type": "rdma", "minor": minor, "id": f"0000:{minor}f:00.0", "health": True, "resources": {RDMA: "100"}}
    return {**one, "topology": place, "vfGroups": groups}


@pytest.fixture
def host(client: Client, gangs: Namespace, service: Service) -> Iterator[str]:
    """A host with two GPUs, each in a PCIe scope with an RDMA device, which have two fast functions and one."""
    objects = DeviceObjects(client, service)
    amounts = {CORE: "200", RATIO: "200", MEMORY: "160Gi", RDMA: "200"}
    (name,) = gangs.fleet.grid("1x1x1", shape=HostShape(gpus=0, extended=amounts))
    objects.report(name, [gpu(0, pcie="p0"), gpu(1, pcie="p1"), card(0, 2), card(1, 1)])
    objects.known(1)
    yield name
    objects.clear()


def asking(gpus: int, *, rdma: int = 1) -> Json:
    amounts = {RDMA: str(rdma), **({CORE: str(100 * gpus), RATIO: str(100 * gpus)} if gpus else {})}
    return {"containers": [{"name": "c", "image": "x", "resources": {"limits": amounts}}]}


def allocated(gangs: Namespace, job: str) -> dict[int, Any]:
    """Index -> the annotation of each pod."""
    return {
        int(pod["metadata"]["labels"][INDEX]): json.loads(pod["metadata"]["annotations"][names.DEVICE_ALLOCATED])
        for pod in gangs.pods(job)
    }


def functions(gangs: Namespace, *jobs: str) -> list[str]:
    """The addresses that the pods have, sorted."""
    return sorted(
        function["busID"]
        for job in jobs
        for uses in allocated(gangs, job).values()
        for use in uses["rdma"]
        for function in use["extension"]["vfs"]
    )


def test_pods_get_a_function_beside_their_gpu(gangs: Namespace, host: str) -> None:
    """In Koordinator's words and as the Placement says: each of the PCIe scope of its GPU, of the selected type."""
    hints = {**FAST, **SAME_PCIE}
    gangs.submit("pair", pods=2, annotations=require("host"), pod_annotations=hints, pod_spec=asking(1))
    gangs.all_bound("pair", 2)
    assert allocated(gangs, "pair") == {
        index: {
            "gpu": [{"minor": index, "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"}, "id": f"GPU-{index}"}],
            "rdma": [
                {
                    "minor": index,
                    "resources": {RDMA: "1"},
                    "id": f"0000:{index}f:00.0",
                    "extension": {"vfs": [{"minor": 1, "busID": f"0000:{index}f:00.3"}]},
                }
            ],
        }
        for index in range(2)
    }
    placement = gangs.placement("pair")
    assert placement is not None
    assert placement["spec"]["podSets"][0]["vfSelector"] == "type=fast"
    assert placement["spec"]["podSets"][0]["rdmaScope"] == "pcie"
    (slot,) = placement["spec"]["assignment"]["podSets"][0]["slots"]
    planned = [[{"minor": 1, "busID": f"0000:{index}f:00.3"}] for index in range(2)]
    assert [uses[1]["vfs"] for uses in slot["devices"]] == planned


def test_a_gang_waits_for_functions_and_gets_those_that_are_given_back(gangs: Namespace, host: str) -> None:
    """Three are there: two gangs have them all, the third waits with the reason; nobody shares one."""
    gangs.submit("two", pods=2, annotations={**require("host"), **FAST}, pod_spec=asking(0))
    gangs.all_bound("two", 2)
    gangs.submit("one", pods=1, annotations={**require("host"), **FAST}, pod_spec=asking(0))
    gangs.all_bound("one", 1)
    assert functions(gangs, "two", "one") == ["0000:0f:00.3", "0000:0f:00.4", "0000:1f:00.3"]
    gangs.submit("more", pods=2, annotations={**require("host"), **FAST}, pod_spec=asking(0))
    status = gangs.waits("more", "InsufficientFreeHosts")["status"]
    assert "1% of an RDMA device with a virtual function (type=fast)" in status["message"]
    assert "with too few free virtual functions" in status["message"]
    given_back = functions(gangs, "two")
    gangs.client.delete(f"{gangs.jobs_path}/two?propagationPolicy=Background")
    gangs.all_bound("more", 2)
    assert functions(gangs, "more") == given_back


def test_the_next_leader_knows_who_has_which_function(gangs: Namespace, host: str, service: Service) -> None:
    """From the annotations of the pods: it gives the other functions."""
    gangs.submit("first", pods=2, annotations={**require("host"), **FAST}, pod_spec=asking(0))
    gangs.all_bound("first", 2)
    leader = eventually(service.leader, message="a replica leads")
    leader.kill()

    def submitted() -> bool:
        """The API server may still hold a connection to the one that was killed: then it answers 500."""
        try:
            gangs.submit("second", pods=1, annotations={**require("host"), **FAST}, pod_spec=asking(0))
        except ClientError as error:
            if error.status != SERVER_ERROR:
                raise
            return False
        return True

    eventually(submitted, message="the other replica answers")
    gangs.all_bound("second", 1)
    assert functions(gangs, "first", "second") == ["0000:0f:00.3", "0000:0f:00.4", "0000:1f:00.3"]
    service.start(2)


def test_a_wrong_selector_is_refused_by_the_api_server(gangs: Namespace, host: str) -> None:
    """With the path within the annotation and the allowed values."""
    expression = {"key": "type", "operator": "Equals", "values": ["fast"]}
    hint = {names.DEVICE_ALLOCATE_HINT: json.dumps({"rdma": {"vfSelector": {"matchExpressions": [expression]}}})}
    told = r'matchExpressions\[0\].operator: "Equals" is unknown; allowed: DoesNotExist, Exists, In, NotIn'
    with pytest.raises(ClientError, match=told) as refused:
        gangs.submit("wrong", pods=1, annotations={**require("host"), **hint}, pod_spec=asking(0))
    assert refused.value.status == 422
