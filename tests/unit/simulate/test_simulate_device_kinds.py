"""`topogate simulate` on devices of the policy's own kinds: chosen one by one, checked, explained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from engine.resources.names import CORE, MEMORY, NVIDIA, RATIO
from tests.support.simulation import Json, answer, grid, job, pod
from tests.unit.simulate.test_simulate_devices import RACK, asking

WHOLE, NPU_CORE, NPU_RATIO, NPU_MEMORY = (
    "example.com/npu",
    "example.com/npu-core",
    "example.com/npu-memory-ratio",
    "m/m",
)
POLICY = parse_policy(
    f"devices: {{kinds: [{{type: npu, resources: {{whole: {WHOLE}, core: {NPU_CORE}, memoryRatio: {NPU_RATIO}, "
    f"memory: {NPU_MEMORY}}}}}]}}"
)


def hosts(count: int = 2, npus: int = 4, *, listed: bool = True, gpus: int = 0, **device: Any) -> list[Json]:
    """Hosts of one rack with NPUs, two on a PCIe scope, and their Device objects."""
    nodes = grid(1, 1, count)
    objects = []
    for node in nodes:
        allocatable = node["status"]["allocatable"]
        del allocatable[NVIDIA]
        allocatable |= {WHOLE: str(npus), NPU_CORE: str(100 * npus), NPU_RATIO: str(100 * npus), NPU_MEMORY: "256Gi"}
        allocatable |= {CORE: str(100 * gpus), RATIO: str(100 * gpus), MEMORY: f"{80 * gpus}Gi"} if gpus else {}
        one = {"type": "npu", "health": True, "resources": {NPU_CORE: "100", NPU_RATIO: "100", NPU_MEMORY: "64Gi"}}
        listed_ones = [
            {
                **one,
                "minor": minor,
                "topology": {"nodeID": 0, "pcieID": f"p{minor // 2}"},
                **device,
            }
            for minor in range(npus)
        ]
        gpu = {"type": "gpu", "health": True, "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"}}
        listed_ones += [{**gpu, "minor": minor, "id": f"GPU-{minor}"} for minor in range(gpus)]
        objects.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": node["metadata"]["name"]},
                "spec": {"devices": listed_ones},
            }
        )
    return [*nodes, *(objects if listed else [])]


def gang(cluster: list[Json], *workloads: Json, policy: Any = POLICY) -> list[Json]:
    found: list[Json] = answer(cluster, list(workloads), policy=policy)["workloads"]
    return found


def uses(found: Json) -> list[list[Json]]:
    """The devices of each pod."""
    return [pod_uses for slot in found["podSets"][0]["assignment"] for pod_uses in slot["devices"] or ()]


def asks(name: str, pods: int, **limits: str) -> Json:
    return asking(job(name, pods, RACK), {"limits": limits})


def test_whole_devices_share_a_scope_and_belong_to_one_pod() -> None:
    (found,) = gang(hosts(1), asks("train", 2, **{WHOLE: "2"}))
    assert found["verdict"] == "placed"
    assert sorted([use["minor"] for use in one] for one in uses(found)) == [[0, 1], [2, 3]]
    assert (
        uses(found)[0][0].items()
        >= {"type": "npu", "minor": 0, "core": 100, "memoryRatio": 100, "memory": "64Gi"}.items()
    )


def test_parts_share_a_device_up_to_all_of_it() -> None:
    """Four halves on two devices; the rest of the host stays whole for others."""
    first, second, third = gang(
        hosts(1),
        asks("halves", 4, **{NPU_CORE: "50", NPU_RATIO: "50"}),
        asks("pair", 1, **{WHOLE: "2"}),
        asks("late", 1, **{NPU_RATIO: "10"}),
    )
    assert sorted(one["minor"] for (one,) in uses(first)) == [0, 0, 1, 1]
    assert [use["minor"] for use in uses(second)[0]] == [2, 3]
    assert third["verdict"] == "waits"


def test_bytes_count_against_the_size_of_a_device() -> None:
    first, second = gang(hosts(1, 1), asks("most", 1, **{NPU_MEMORY: "48Gi"}), asks("half", 1, **{NPU_RATIO: "50"}))
    assert first["verdict"] == "placed"
    ((only,),) = uses(first)
    assert only.items() >= {"type": "npu", "minor": 0, "core": None, "memoryRatio": 75, "memory": "48Gi"}.items()
    assert second["verdict"] == "waits"


def test_a_pod_may_have_devices_of_several_kinds() -> None:
    (found,) = gang(hosts(1, gpus=2), asks("both", 1, **{WHOLE: "2", CORE: "100", RATIO: "100"}))
    assert [(use["type"], use["minor"]) for use in uses(found)[0]] == [("gpu", 0), ("npu", 0), ("npu", 1)]


def test_four_free_halves_are_not_two_free_devices() -> None:
    """The number would do; the devices do not, and the message says what is wanted."""
    halves, whole = gang(
        hosts(1, 2),
        asks("halves", 2, **{NPU_CORE: "60", NPU_RATIO: "60"}),
        asks("whole", 1, **{NPU_CORE: "50", NPU_RATIO: "50"}),
    )
    assert halves["verdict"] == "placed"
    assert whole["verdict"] == "waits"
    assert "npu device" in whole["message"]


def test_a_host_that_does_not_list_them_counts_by_number() -> None:
    (found,) = gang(hosts(1, 2, listed=False), asks("train", 2, **{WHOLE: "1"}))
    assert found["verdict"] == "placed"
    assert uses(found) == []
    (found,) = gang(hosts(1, 2, listed=False), asks("train", 3, **{WHOLE: "1"}))
    assert found["verdict"] == "never"


def test_sick_devices_are_nobodys() -> None:
    (found,) = gang(hosts(1, 2, health=False), asks("train", 1, **{WHOLE: "1"}))
    assert found["verdict"] != "placed"


@pytest.mark.parametrize("resources", [{}, {NPU_CORE: "100", NPU_RATIO: "101"}, {NPU_CORE: "300"}])
def test_devices_that_cannot_be_read_offer_nothing(resources: Json) -> None:
    """Declared dimensions that are missing are zero, not plenty."""
    (found,) = gang(hosts(1, 2, resources=resources), asks("train", 1, **{NPU_CORE: "10", NPU_RATIO: "10"}))
    assert found["verdict"] != "placed"


def test_without_the_kind_they_count_by_number() -> None:
    (found,) = gang(hosts(1), asks("train", 2, **{WHOLE: "2"}), policy=parse_policy("{}"))
    assert found["verdict"] == "placed"
    assert uses(found) == []


def test_running_pods_keep_theirs() -> None:
    """By the annotation of a pod that is bound; one without it has any of them."""
    cluster = hosts(1)
    node = cluster[0]["metadata"]["name"]
    holder = asking(pod("holder", node), {"limits": {WHOLE: "1"}, "requests": {WHOLE: "1"}})
    holder["spec"]["nodeName"] = node
    holder["metadata"]["annotations"] = {names.DEVICE_ALLOCATED: json.dumps({"npu": [{"minor": 1}]})}
    unknown = asking(pod("unknown", node), {"limits": {WHOLE: "1"}, "requests": {WHOLE: "1"}})
    unknown["spec"]["nodeName"] = node
    (found,) = gang([*cluster, holder], asks("train", 1, **{WHOLE: "3"}))
    assert [use["minor"] for use in uses(found)[0]] == [0, 2, 3]
    (found,) = gang([*cluster, holder, unknown], asks("train", 1, **{WHOLE: "2"}))
    assert [use["minor"] for use in uses(found)[0]] == [2, 3]


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({WHOLE: "1", NPU_CORE: "50"}, "cannot be combined"),
        ({NPU_RATIO: "50", NPU_MEMORY: "1Gi"}, "in bytes or in percent"),
        ({NPU_CORE: "50"}, "compute without memory"),
        ({NPU_RATIO: "150"}, "multiple of 100"),
        ({NPU_RATIO: "50", NPU_CORE: "200"}, "use at most 100"),
        ({WHOLE: "0.5"}, "whole number"),
        ({WHOLE: "5000"}, "no host has that many"),
        ({NPU_RATIO: "0"}, "more than 0"),
    ],
    ids=str,
)
def test_a_wrong_request_is_rejected(limits: Json, told: str) -> None:
    (found,) = gang(hosts(), asks("train", 1, **limits))
    assert (found["verdict"], found["reason"]) == ("rejected", "GPURequestInvalid")
    assert any(told in error["message"] for error in found["errors"]), found["errors"]
    assert all(error["field"].startswith("spec.template.spec.containers[0]") for error in found["errors"])
