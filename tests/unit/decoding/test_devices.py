"""Device objects as they come, and as they should not."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from engine.api import names
from engine.api.device import Device, VirtualFunction
from engine.decoding.devices import MAX_FAULTS, node_devices
from engine.decoding.wire import ProjectionError
from engine.resources.names import MAX_DEVICES, MAX_FUNCTIONS

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
    well, sick = (
        Device(
            "gpu",
            minor,
            "GPU-8c25ea37",
            not minor,
            core=100,
            ratio=100,
            memory=80 * 2**30,
            numa=0,
            pcie="pci0000:00",
            bus="0000:09:00.0",
            module=1,
            labels=((names.MODULE_ID, "1"),),
        )
        for minor in range(2)
    )
    general = VirtualFunction(0, "0000:1f:00.2", (("type", "general"),))
    nic = Device("rdma", 0, "0000:1f:00.0", True, share=100, numa=1, pcie="pci0000:1f", functions=(general,))
    assert found.devices == (well, sick, nic)


def test_what_is_not_told_counts_as_none() -> None:
    """A dimension that is not named is 0, a place that is not told is unknown, -1 is no NUMA node."""
    bare = changed(GPU, resources={"koordinator.sh/gpu-memory": "80Gi"}, topology=None, id=None, moduleID=None)
    assert node_devices(an_object(bare)).devices == (Device("gpu", 0, "", True, memory=80 * 2**30),)
    (nowhere,) = node_devices(an_object(changed(GPU, topology={"nodeID": -1, "socketID": -1, "pcieID": ""}))).devices
    assert (nowhere.numa, nowhere.socket, nowhere.bus) == (None, None, "")
    (placed,) = node_devices(an_object(changed(GPU, topology={"nodeID": 3, "socketID": 1, "pcieID": ""}))).devices
    assert (placed.numa, placed.socket) == (3, 1)


@pytest.mark.parametrize(
    ("device", "fault"),
    [
        pytest.param(changed(GPU, moduleID="one"), ".moduleID: is no whole number below 2^31", id="module as text"),
        pytest.param(changed(GPU, moduleID=2**40), ".moduleID: is no whole number below 2^31", id="an endless module"),
        pytest.param(changed(GPU, moduleID=True), ".moduleID: is no whole number below 2^31", id="module as bool"),
        pytest.param(
            changed(GPU, topology={"socketID": "0"}), ".topology.socketID: is no whole number below 2^31", id="socket"
        ),
        pytest.param(
            changed(GPU, topology={"busID": ["0"]}), ".topology.busID: is no text of 63 characters at most", id="bus"
        ),
        pytest.param(
            changed(GPU, topology={"busID": "0" * 64}),
            ".topology.busID: is no text of 63 characters at most",
            id="long",
        ),
        pytest.param(changed(NIC, vfGroups={"vfs": []}), ".vfGroups: is no list", id="groups as an object"),
        pytest.param(changed(NIC, vfGroups="all"), ".vfGroups: is no list", id="groups as text"),
        pytest.param(
            changed(NIC, vfGroups=[7]), ".vfGroups[0]: Expected `object`, got `int`", id="a number as a group"
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"labels": {"a": 1}, "vfs": []}]),
            ".vfGroups[0].labels[...]: Expected `str`, got `int`",
            id="a number as a label",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": {}}]),
            ".vfGroups[0].vfs: Expected `array | null`, got `object`",
            id="no list",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": ["0000:1f:00.2"]}]),
            ".vfGroups[0].vfs[0]: Expected `object`, got `str`",
            id="an address as a function",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": [{"minor": -1, "busID": "0000:1f:00.2"}]}]),
            ".vfGroups[0].vfs[0].minor: Expected `int` >= 0",
            id="negative number",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": [{"minor": 1}]}]),
            ".vfGroups[0].vfs[0]: Object missing required field `busID`",
            id="no address",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": [{"minor": 1, "busID": ""}]}]),
            ".vfGroups[0].vfs[0].busID: Expected `str` of length >= 1",
            id="an empty address",
        ),
        pytest.param(
            changed(NIC, vfGroups=[{"vfs": [{"minor": 1, "busID": "0" * 64}]}]),
            ".vfGroups[0].vfs[0].busID: Expected `str` of length <= 63",
            id="an endless address",
        ),
    ],
)
def test_what_is_wrong_with_a_place_or_a_function_leaves_the_device(device: Any, fault: str) -> None:
    """It is named, and the rest of the device counts."""
    found = node_devices(an_object(device))
    (one,) = found.devices
    assert (one.module, one.socket, one.bus, one.functions) == (1 if one.module else None, None, one.bus, ())
    assert one.healthy
    assert found.faults == (f"devices[0]{fault}",)


def function(minor: int, bus: str) -> dict[str, Any]:
    return {"minor": minor, "busID": bus}


def test_a_faulty_function_does_not_hide_the_others() -> None:
    """Sorted by address, with the labels of their groups; a group may have none of either."""
    groups = [
        {
            "labels": {"type": "b"},
            "vfs": [{"minor": 2, "busID": "0000:1f:01.0"}, None, {"minor": 3, "busID": "0000:1f:00.3"}],
        },
        {"labels": None, "vfs": None},
        {"vfs": [{"minor": 9, "busID": "0000:1f:00.2", "more": "?"}]},
    ]
    found = node_devices(an_object(changed(NIC, vfGroups=groups)))
    assert found.devices[0].functions == (
        VirtualFunction(9, "0000:1f:00.2"),
        VirtualFunction(3, "0000:1f:00.3", (("type", "b"),)),
        VirtualFunction(2, "0000:1f:01.0", (("type", "b"),)),
    )
    assert found.faults == ("devices[0].vfGroups[0].vfs[1]: Expected `object`, got `null`",)


def test_one_address_twice_is_no_function() -> None:
    """On two devices, in two groups, in one list: nobody can tell whose it is."""
    twice = [{"minor": 1, "busID": "0000:1f:00.2"}, {"minor": 2, "busID": "0000:1f:00.3"}]
    for groups in ([{"vfs": twice}, {"vfs": twice[:1]}], [{"vfs": [*twice, twice[0]]}]):
        found = node_devices(an_object(changed(NIC, vfGroups=groups)))
        assert [one.bus for one in found.devices[0].functions] == ["0000:1f:00.3"]
        assert found.faults == ("virtual function 0000:1f:00.2 is a duplicate",)
    found = node_devices(an_object(NIC, changed(NIC, minor=1)))
    assert [one.functions for one in found.devices] == [(), ()]


def test_functions_are_bounded() -> None:
    """10,000 of one device, and 256 on each of 256: read in a moment, with a fault for what is left out."""
    many = [{"minor": at, "busID": f"{at:04x}:00:00.0"} for at in range(10_000)]
    found = node_devices(an_object(changed(NIC, vfGroups=[{"vfs": many}])))
    assert len(found.devices[0].functions) == MAX_FUNCTIONS
    assert found.faults == ("devices[0].vfGroups[0].vfs[256]: more than 256 of a device, or 4,096 in all",)
    nics = [
        changed(NIC, minor=minor, vfGroups=[{"vfs": [{"minor": at, "busID": f"{minor}:{at}"} for at in range(256)]}])
        for minor in range(256)
    ]
    found = node_devices(an_object(*nics))
    assert sum(len(one.functions) for one in found.devices) == 4096
    assert len(found.faults) == MAX_FAULTS + 1
    found = node_devices(an_object(changed(NIC, vfGroups=[{}] * 10_000)))
    assert found.faults == ("devices[0].vfGroups: more than 256 groups",)


def test_only_rdma_devices_have_functions() -> None:
    """Those of a GPU or an FPGA are nothing that a pod could ask for."""
    assert node_devices(an_object(changed(GPU, vfGroups=NIC["vfGroups"]))).devices[0].functions == ()


def test_functions_in_the_checkpoint_are_read_by_address() -> None:
    """Beside devices; addresses that the object does not have are not counted."""
    entries = [
        {"podUID": "a", "deviceIDs": ["0000:1f:00.2", "0000:1f:00.9"]},
        {"podUID": "b", "deviceIDs": ["0000:1f:00.0"]},
    ]
    found = node_devices(an_object(NIC, annotations={names.DEVICE_CHECKPOINTS[0]: json.dumps(entries)}))
    assert found.given_functions == {"a": ((0, "0000:1f:00.2"),)}
    assert found.given == {"b": (("rdma", 0),)}


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
