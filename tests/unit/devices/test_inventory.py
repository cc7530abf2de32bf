"""Which devices a host has: the Device object, the numbers of the node, and what counts where they disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.device import Device, NodeDevices
from engine.devices.inventory import Inventory, inventory
from engine.resources.names import MAX_DEVICES
from tests.support.devices import GIB, card, gpu

CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"


def told(*devices: Device) -> NodeDevices:
    return NodeDevices("h1", "", "", devices, {2: ((0, 1),)})


def amounts(found: Inventory) -> list[tuple[int, int, int]]:
    return [(one.core, one.ratio, one.memory) for one in found.devices if one.kind == "gpu" and one.healthy]


@pytest.mark.parametrize(
    ("allocatable", "devices"),
    [
        ({"nvidia.com/gpu": 2}, [(100, 100, 0)] * 2),
        ({"amd.com/gpu": 1}, [(100, 100, 0)]),
        ({"example.com/gpu": 3}, [(100, 100, 0)] * 3),
        ({"nvidia.com/gpu": 1, "amd.com/gpu": 1}, [(100, 100, 0)] * 2),
        ({CORE: 200, RATIO: 200, MEMORY: 160 * GIB}, [(100, 100, 80 * GIB)] * 2),
        ({CORE: 250, RATIO: 250}, [(100, 100, 0)] * 2),
        ({CORE: 100}, [(100, 0, 0)]),
        ({RATIO: 100}, [(0, 100, 0)]),
        ({"koordinator.sh/gpu": 200}, [(100, 100, 0)] * 2),
        ({"nvidia.com/gpu": 0}, []),
        ({"nvidia.com/gpu": -3, CORE: -100}, []),
        ({"cpu": 8000}, []),
        ({}, []),
    ],
)
def test_devices_by_the_numbers_of_the_node(allocatable: dict[str, int], devices: list[tuple[int, int, int]]) -> None:
    """Without a Device object the reported names say how many; a dimension that is not named is zero."""
    found = inventory(allocatable, None, vendors=["example.com/gpu"])
    assert amounts(found) == devices
    assert [one.minor for one in found.devices] == list(range(len(devices)))


def test_rdma_and_fpga_by_the_numbers_of_the_node() -> None:
    """100 is one device; less than that is none."""
    found = inventory({"koordinator.sh/rdma": 250, "koordinator.sh/fpga": 99}, None)
    assert [(one.kind, one.minor, one.share) for one in found.devices] == [("rdma", 0, 100), ("rdma", 1, 100)]


def test_the_device_object_tells_more_than_numbers() -> None:
    """Its devices, sick ones and the table of partitions; kinds that it does not list come from the numbers."""
    found = inventory({"nvidia.com/gpu": 1, "koordinator.sh/rdma": 100}, told(gpu(0, numa=1), gpu(3, healthy=False)))
    assert found.devices == (gpu(0, numa=1), gpu(3, healthy=False), Device("rdma", 0, "", True, share=100))
    assert found.partitions == {2: ((0, 1),)}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("allocatable", "devices", "healthy", "note"),
    [
        pytest.param(
            {"nvidia.com/gpu": 1},
            (gpu(0), gpu(1)),
            [0],
            "GPUs disagree (its Device object 2, nvidia.com/gpu 1): 1 counted",
            id="fewer by the plugin",
        ),
        pytest.param(
            {"nvidia.com/gpu": 2},
            (gpu(0, healthy=False), gpu(1)),
            [1],
            "GPUs disagree (its Device object 1, nvidia.com/gpu 2): 1 counted",
            id="fewer by the object",
        ),
        pytest.param(
            {"nvidia.com/gpu": 2, CORE: 100, RATIO: 100},
            (),
            [0],
            f"GPUs disagree ({CORE} 1, {RATIO} 1, nvidia.com/gpu 2): 1 counted",
            id="two names",
        ),
        pytest.param(
            {"nvidia.com/gpu": 0, CORE: 200, RATIO: 200},
            (gpu(0), gpu(1)),
            [0, 1],
            "GPUs disagree (its Device object 2, koordinator.sh/gpu-core 2, koordinator.sh/gpu-memory-ratio 2, "
            "nvidia.com/gpu 0): 2 counted",
            id="a plugin that was removed",
        ),
    ],
)
def test_the_smaller_number_counts_and_the_disagreement_is_told(
    allocatable: dict[str, int], devices: tuple[Device, ...], healthy: list[int], note: str
) -> None:
    """Devices with the highest minors offer nothing; a 0 that a removed plugin left behind takes none away."""
    found = inventory(allocatable, told(*devices) if devices else None)
    assert [one.minor for one in found.devices if one.healthy] == healthy
    assert found.notes == (note,)


def test_a_device_that_is_one_too_many_stays_for_its_holders() -> None:
    """It is listed as unhealthy, so that a pod on it is still on a device."""
    found = inventory({"nvidia.com/gpu": 1}, told(gpu(0), gpu(1)))
    assert found.devices == (gpu(0), gpu(1, healthy=False))


def test_nonsense_in_records_is_cut_to_what_a_device_can_be() -> None:
    """Amounts beyond one device, a number twice or below 0, a kind that nobody knows, far too many."""
    odd = replace(gpu(0), core=900, ratio=-1, memory=2**60)
    found = inventory({}, told(odd, replace(gpu(1), minor=0), replace(gpu(1), minor=-1), card(0, kind="npu")))
    assert amounts(found) == [(100, 0, 2**50)]
    assert len(inventory({"nvidia.com/gpu": 2**45}, None).devices) == MAX_DEVICES
    assert len(inventory({}, told(*(gpu(at) for at in range(2 * MAX_DEVICES)))).devices) == MAX_DEVICES


def test_a_table_of_partitions_without_end_is_cut_and_that_is_told() -> None:
    """Choosing compares its sets with each other."""
    endless = {size: ((0,) * size,) * 1000 for size in range(1, 100)}
    found = inventory({}, replace(told(gpu(0)), partitions=endless))
    assert [len(sets) for sets in found.partitions.values()] == [128] * 16
    assert found.notes == ("the table of partitions is too long: 128 of each of 16 sizes are used",)
