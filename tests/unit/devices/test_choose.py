"""Which devices a pod gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.device import DeviceRequest, DeviceUse
from engine.devices.choose import choose_devices
from engine.devices.inventory import Inventory
from engine.devices.usage import DeviceHolding, free_devices
from tests.support.devices import GIB, NOTHING_ASKED, card, eight, gpu, memory, minors, part, use, whole


def given(inventory: Inventory, *held: DeviceUse, asks: DeviceRequest, count: int = 1) -> list[list[int]]:
    holdings = {(str(at),): DeviceHolding(NOTHING_ASKED, ((one,),)) for at, one in enumerate(held)}
    return minors(choose_devices(free_devices(inventory, holdings), asks, count, partitions=inventory.partitions))


@pytest.mark.parametrize(
    ("used", "wanted", "chosen"),
    [
        ([], 1, [0]),
        ([5], 1, [4]),
        ([5], 2, [6, 7]),
        ([5], 3, [4, 6, 7]),
        ([5], 4, [0, 1, 2, 3]),
        ([5], 5, [0, 1, 2, 3, 4]),
        ([0, 2, 4, 6], 2, [1, 3]),
        ([0, 2], 2, [4, 5]),
        ([0, 4], 6, [1, 2, 3, 5, 6, 7]),
        ([0, 4], 7, None),
    ],
)
def test_whole_gpus_share_the_deepest_scope(used: list[int], wanted: int, chosen: list[int] | None) -> None:
    """PCIe before NUMA before the node; of the scopes that are enough the one with fewest free, so large ones stay."""
    found = given(eight(), *map(use, used), asks=whole(wanted))
    assert found == ([] if chosen is None else [chosen])


@pytest.mark.parametrize(
    ("used", "wanted", "chosen"),
    [
        ([0], 1, [1]),
        ([0], 2, [2, 3]),
        ([2, 3], 1, [0]),
        ([2, 3], 2, [0, 1]),
        ([0, 1, 4, 5], 2, [2, 3]),
        ([1], 4, [4, 5, 6, 7]),
        ([4, 5], 1, [6]),
        ([4, 5], 2, [6, 7]),
    ],
)
def test_linked_gpus_break_as_few_larger_partitions_as_they_can(
    used: list[int], wanted: int, chosen: list[int]
) -> None:
    """The table of NVLink partitions comes before PCIe and NUMA."""
    table = {
        1: tuple((at,) for at in range(8)),
        2: ((0, 1), (2, 3), (4, 5), (6, 7)),
        4: ((0, 1, 2, 3), (4, 5, 6, 7)),
        8: (tuple(range(8)),),
    }
    flat = Inventory(tuple(gpu(at) for at in range(8)), table)
    assert given(flat, *map(use, used), asks=whole(wanted)) == [chosen]


def test_of_equal_partitions_the_first_of_the_table_is_taken() -> None:
    """The table stands in order of preference."""
    assert given(replace(eight(), partitions={2: ((6, 7), (0, 1))}), asks=whole(2)) == [[6, 7]]


def test_a_table_that_names_devices_that_are_not_there_is_of_no_use() -> None:
    """Nonsense in the table falls back to the scopes."""
    assert given(replace(eight(), partitions={2: ((0, 9), (1, 1), ())}), asks=whole(2)) == [[0, 1]]


def test_several_pods_of_whole_gpus_get_a_scope_each() -> None:
    """Pod by pod, each as tight as it can be."""
    assert given(eight(), use(5), asks=whole(2), count=9) == [[6, 7], [0, 1], [2, 3]]


def test_a_half_used_device_takes_no_whole_gpu_pod() -> None:
    """Four free halves are not two free GPUs."""
    halves = [use(at, 50) for at in range(4)]
    four = Inventory(tuple(gpu(at) for at in range(4)))
    assert given(four, *halves, asks=whole(1)) == []
    assert given(four, *halves, asks=part(50), count=9) == [[0], [1], [2], [3]]


def test_a_share_goes_to_the_fullest_device_that_still_takes_it() -> None:
    """Best fit; an untouched device comes last, and then one of a scope that is broken already."""
    assert given(eight(), use(3, 20), use(6, 60), asks=part(40), count=4) == [[6], [3], [3], [2]]
    assert given(eight(), use(5), use(1, 50), asks=part(60)) == [[0]]
    assert given(eight(), use(5), asks=part(60)) == [[4]]


def test_a_share_of_several_devices_gets_distinct_ones_for_as_many_pods_as_fit() -> None:
    """The fullest first would strand the second pod; the places are dealt out in turn instead."""
    three = Inventory(tuple(gpu(at) for at in range(3)))
    assert given(three, use(0, 50), use(1, 50), asks=part(50, gpus=2), count=2) == [[0, 2], [1, 2]]
    assert given(three, use(0, 25), asks=part(25, gpus=2), count=2) == [[0, 1], [0, 1]]


def test_bytes_go_where_they_leave_least() -> None:
    """Devices of different size on one host: the smallest that is enough, however full in percent."""
    mixed = Inventory((gpu(0, size=80), gpu(1, size=24), gpu(2, size=40)))
    assert given(mixed, asks=memory(20)) == [[1]]
    assert given(mixed, use(0, 50), asks=memory(20)) == [[0]]
    assert given(mixed, asks=memory(30), count=4) == [[2], [0], [0]]
    assert given(mixed, use(0, 50), asks=memory(40), count=2) == [[0], [2]]


def test_each_pod_gets_the_amounts_of_its_device() -> None:
    """Percent of a device in its bytes, bytes in its percent rounded up, and the id."""
    mixed = Inventory((gpu(0, size=40), gpu(1, size=80)))
    full = choose_devices(free_devices(mixed, {}), whole(2), 1, partitions={})
    assert full == (
        (DeviceUse("gpu", 0, "GPU-0", 100, 100, 40 * GIB), DeviceUse("gpu", 1, "GPU-1", 100, 100, 80 * GIB)),
    )
    by_bytes = choose_devices(free_devices(mixed, {}), memory(1), 1, partitions={})
    assert by_bytes == ((DeviceUse("gpu", 0, "GPU-0", 0, 3, GIB),),)


@pytest.mark.parametrize(
    ("held", "asks", "cards"),
    [
        pytest.param([], whole(2, rdma=100), [0], id="the scope of the GPUs"),
        pytest.param([use(0), use(1)], whole(2, rdma=100), [1], id="the next scope"),
        pytest.param([DeviceUse("rdma", 0, share=100)], whole(2, rdma=100), [1], id="in use: the same NUMA node"),
        pytest.param(
            [*map(use, range(4)), DeviceUse("rdma", 2, share=1)], whole(2, rdma=100), [3], id="the other NUMA node"
        ),
        pytest.param([], whole(4, rdma=200), [0, 1], id="one of each scope"),
        pytest.param([], whole(4, rdma=400), [0, 1, 2, 3], id="more than the scopes have"),
        pytest.param([DeviceUse("rdma", 3, share=40)], part(50, rdma=25), [0], id="a share in the same scope"),
        pytest.param([DeviceUse("rdma", 3, share=40)], DeviceRequest(rdma=25), [3], id="a share alone: best fit"),
        pytest.param([], DeviceRequest(rdma=200), [0, 1], id="whole ones alone: one NUMA node"),
        pytest.param([DeviceUse("rdma", at, share=1) for at in range(4)], whole(1, rdma=100), None, id="none is free"),
    ],
)
def test_cards_come_from_the_scope_of_the_gpus(
    held: list[DeviceUse], asks: DeviceRequest, cards: list[int] | None
) -> None:
    """PCIe scope, NUMA node, any: where the pod's GPUs are, else where it fits."""
    inventory = eight(cards=tuple(card(at, numa=at // 2, pcie=f"p{at}") for at in range(4)))
    holdings = {(str(at),): DeviceHolding(NOTHING_ASKED, ((one,),)) for at, one in enumerate(held)}
    found = choose_devices(free_devices(inventory, holdings), asks, 1, partitions={})
    assert minors(found, "rdma") == ([] if cards is None else [cards])


def test_a_missing_dimension_is_zero() -> None:
    """No compute reported, no memory reported, no size known: nothing that names it fits."""
    blind = Inventory((replace(gpu(0), core=0), replace(gpu(1), ratio=0), replace(gpu(2), memory=0)))
    assert given(blind, asks=whole(1), count=3) == [[2]]
    assert given(blind, asks=part(10), count=1) == [[2]]
    assert given(blind, asks=memory(1), count=999)[-1] == [0]
    assert given(Inventory((replace(gpu(0), memory=0),)), asks=memory(1)) == []
