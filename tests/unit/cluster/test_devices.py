"""Device objects as they come, and as they should not."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from engine.api.device import Device
from engine.cluster.devices import MAX_FAULTS, node_devices
from engine.cluster.wire import ProjectionError
from engine.resources.names import MAX_DEVICES

GPU: dict[str, Any] = {
    "type": "gpu",
    "id": "GPU-8c25ea37",
    "minor": 0,
    "moduleID": 1,
    "health": True,
    "resources": {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory-ratio": "100",
        "koordinator.sh/gpu-memory": "80Gi",
    },
    "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:00", "busID": "0000:09:00.0"},
}
NIC: dict[str, Any] = {
    "type": "rdma",
    "id": "0000:1f:00.0",
    "minor": 0,
    "health": True,
    "resources": {"koordinator.sh/rdma": 100},
    "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:1f"},
    "vfGroups": [{"labels": {"type": "general"}, "vfs": [{"minor": 0, "busID": "0000:1f:00.2"}]}],
}


def an_object(*devices: Any, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "host-1", "uid": "u", "resourceVersion": "7", "annotations": annotations or {}},
        "spec": {"devices": list(devices)},
    }


def changed(base: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The device with some fields replaced; None takes one out."""
    found = copy.deepcopy(base) | fields
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_device_object(as_bytes: bool) -> None:
    """GPUs with compute, memory and place, network cards with their share, in order of kind and number."""
    raw = an_object(changed(GPU, minor=1, health=False), GPU, NIC)
    found = node_devices(json.dumps(raw).encode() if as_bytes else raw)
    assert (found.name, found.uid, found.resource_version, found.faults) == ("host-1", "u", "7", ())
    assert found.devices == (
        Device("gpu", 0, "GPU-8c25ea37", True, core=100, ratio=100, memory=80 * 2**30, numa=0, pcie="pci0000:00"),
        Device("gpu", 1, "GPU-8c25ea37", False, core=100, ratio=100, memory=80 * 2**30, numa=0, pcie="pci0000:00"),
        Device("rdma", 0, "0000:1f:00.0", True, share=100, numa=1, pcie="pci0000:1f"),
    )


def test_what_is_not_told_counts_as_none() -> None:
    """A dimension that is not named is 0, a place that is not told is unknown, -1 is no NUMA node."""
    bare = changed(GPU, resources={"koordinator.sh/gpu-memory": "80Gi"}, topology=None, id=None)
    assert node_devices(an_object(bare)).devices == (Device("gpu", 0, "", True, memory=80 * 2**30),)
    assert node_devices(an_object(changed(GPU, topology={"nodeID": -1, "pcieID": ""}))).devices[0].numa is None


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        pytest.param(changed(GPU, minor=None), ": Object missing required field `minor`", id="no number"),
        pytest.param(changed(GPU, minor=-1), ".minor: Expected `int` >= 0", id="negative number"),
        pytest.param(changed(GPU, minor="0"), ".minor: Expected `int`, got `str`", id="number as text"),
        pytest.param(changed(GPU, health=None), ": Object missing required field `health`", id="no health"),
        pytest.param(changed(GPU, health="yes"), ".health: Expected `bool`, got `str`", id="health as text"),
        pytest.param(changed(GPU, type=None), ": Object missing required field `type`", id="no type"),
        pytest.param(changed(GPU, type="tpu\n"), '.type: "tpu\\n" is none of gpu, rdma, fpga', id="unknown type"),
        pytest.param(changed(GPU, resources=None), ".resources: no resources are reported", id="no amounts"),
        pytest.param(changed(NIC, resources={}), ".resources: no resources are reported", id="empty amounts"),
        pytest.param(
            changed(GPU, resources={"koordinator.sh/gpu-core": "lots"}),
            ".resources[koordinator.sh/gpu-core]: 'lots' is not a quantity (examples: 8, 500m, 1.5, 64Gi, 1e3)",
            id="no quantity",
        ),
        pytest.param(
            changed(GPU, resources={"koordinator.sh/gpu-core": "500m"}),
            ".resources[koordinator.sh/gpu-core]: '500m' must be a whole number",
            id="a fraction",
        ),
        pytest.param(
            changed(GPU, resources={"koordinator.sh/gpu-memory-ratio": 800}),
            ".resources[koordinator.sh/gpu-memory-ratio]: 800 is not from 0 to 100",
            id="more than a device",
        ),
        pytest.param(
            changed(GPU, resources={"koordinator.sh/gpu-memory": "-1"}),
            ".resources[koordinator.sh/gpu-memory]: -1 is not from 0 to 1,125,899,906,842,624",
            id="negative",
        ),
        pytest.param(changed(GPU, topology="near"), ".topology: Expected `object | null`, got `str`", id="place"),
        pytest.param(changed(GPU, id="x" * 254), ".id: Expected `str` of length <= 253", id="an endless id"),
        pytest.param("a GPU", ": Expected `object`, got `str`", id="no object"),
        pytest.param(None, ": Expected `object`, got `null`", id="null"),
    ],
)
def test_a_faulty_device_is_left_out_and_named(device: Any, fault: str) -> None:
    """The others count; what is wrong is told by its place in the list."""
    found = node_devices(an_object(device, changed(GPU, minor=3)))
    assert [one.minor for one in found.devices] == [3]
    assert found.faults == (f"devices[0]{fault}",)


def test_two_devices_of_one_number_are_both_left_out() -> None:
    """Nobody can tell which of them a pod would get."""
    found = node_devices(an_object(GPU, changed(GPU, id="GPU-other"), changed(GPU, minor=1)))
    assert [one.minor for one in found.devices] == [1]
    assert found.faults == ("devices[1]: gpu 0 is a duplicate",)


@pytest.mark.parametrize("spec", [None, {}, {"devices": None}, {"devices": []}])
def test_an_object_without_devices_is_one_of_no_devices(spec: Any) -> None:
    """Half written, or of a node without any."""
    raw = an_object() | {"spec": spec}
    assert (node_devices(raw).devices, node_devices(raw).faults) == ((), ())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"metadata": {}}, "$.metadata.name: is required"),
        ({}, "$.metadata.name: is required"),
        ({"metadata": {"name": "h"}, "spec": "none"}, "$.spec: Expected `object | null`, got `str`"),
        (
            {"metadata": {"name": "h"}, "spec": {"devices": {}}},
            "$.spec.devices: Expected `array | null`, got `object`",
        ),
    ],
)
def test_what_is_no_device_object_is_refused(raw: Any, said: str) -> None:
    """One error, with the path."""
    with pytest.raises(ProjectionError) as error:
        node_devices(raw)
    assert str(error.value) == said


def test_devices_and_faults_are_bounded() -> None:
    """A hostile object costs no more than a large one."""
    many = node_devices(an_object(*(changed(GPU, minor=minor) for minor in range(MAX_DEVICES + 5))))
    assert len(many.devices) == MAX_DEVICES
    assert many.faults == (f"more than {MAX_DEVICES} devices",)
    faulty = node_devices(an_object(*([None] * 100)))
    assert len(faulty.faults) == MAX_FAULTS + 1
    assert faulty.faults[-1] == f"{100 - MAX_FAULTS} more faults"


def partitions(table: object) -> dict[str, str]:
    return {"scheduling.koordinator.sh/gpu-partitions": table if isinstance(table, str) else json.dumps(table)}


def test_nvlink_partitions_come_best_score_first() -> None:
    """By the number of their GPUs; equal scores by the lowest GPU."""
    table = {
        "2": [
            {"minors": [2, 3], "gpuLinkType": "NVLink", "ringBusBandwidth": "400Gi", "allocationScore": 1},
            {"minors": [1, 0], "allocationScore": 1},
            {"minors": [4, 5], "allocationScore": 7},
        ],
        "1": [{"minors": [0]}],
        "8": [],
    }
    found = node_devices(an_object(GPU, annotations=partitions(table)))
    assert found.partitions == {1: ((0,),), 2: ((4, 5), (0, 1), (2, 3))}
    assert found.faults == ()


@pytest.mark.parametrize(
    "table",
    [
        "{",
        "[]",
        "x" * 70_000,
        {"two": [{"minors": [0, 1]}]},
        {"2": [{"minors": [0, 0]}]},
        {"2": [{"minors": [0]}]},
        {"2": [{}]},
        {"2": {"minors": [0, 1]}},
        {"2": [{"minors": [-1, 0]}]},
        {"9" * 5000: []},
    ],
)
def test_a_table_that_cannot_be_read_is_no_table(table: object) -> None:
    """The devices count all the same, and the fault is told."""
    found = node_devices(an_object(GPU, annotations=partitions(table)))
    assert found.partitions == {}
    assert len(found.devices) == 1
    assert len(found.faults) == 1
    assert found.faults[0].startswith("annotations[scheduling.koordinator.sh/gpu-partitions]: ")


def entry(uid: str, *ids: str, **more: Any) -> dict[str, Any]:
    return {"podUID": uid, "containerName": "c", "resourceName": "nvidia.com/gpu", "deviceIDs": list(ids), **more}


@pytest.mark.parametrize("key", ["node.koordinator.sh/devices-checkpoints", "node.koordinator.sh/gpu-checkpoints"])
def test_what_the_kubelet_gave_to_pods_is_read_from_the_checkpoint(key: str) -> None:
    """The entries of a pod's containers are put together; devices that the object does not have are nobody's."""
    devices = [changed(GPU, id=f"GPU-{minor}", minor=minor) for minor in range(4)]
    entries = [
        entry("u1", "GPU-2", allocResp="AAAA"),
        entry("u1", "GPU-0", "GPU-2"),
        entry("u2", "GPU-9"),
        entry("u3", deviceIDs={"-1": ["GPU-3"]}),
        entry("u4", deviceIDs=None),
    ]
    found = node_devices(an_object(*devices, annotations={key: json.dumps(entries)}))
    assert found.given == {"u1": (("gpu", 0), ("gpu", 2)), "u3": (("gpu", 3),)}
    assert found.faults == ()


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", '[{"deviceIDs": []}]', '[{"podUID": "u", "deviceIDs": [1]}]', "[" * 100_000, " " * 300_000],
)
def test_a_checkpoint_that_cannot_be_read_is_a_fault_and_the_devices_count(text: str) -> None:
    """What is wrong with the annotation is told; the devices are there all the same."""
    found = node_devices(an_object(GPU, annotations={"node.koordinator.sh/devices-checkpoints": text}))
    assert (found.given, len(found.devices), len(found.faults)) == ({}, 1, 1)
    assert found.faults[0].startswith("annotations[node.koordinator.sh/devices-checkpoints]: ")
