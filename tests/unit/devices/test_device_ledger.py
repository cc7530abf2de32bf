"""Who holds devices, which ones, and what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.api.device import DeviceRequest, DeviceUse, VirtualFunction
from engine.devices.choose import choose_devices, slots
from engine.devices.fit import UNLIMITED
from engine.devices.free import FreeDevice
from engine.devices.inventory import Inventory
from engine.devices.ledger import Summary
from tests.support.devices import NOTHING_ASKED, HeldDevices, card, eight, gpu, memory, minors, part, use, whole

FOUR = Inventory(tuple(gpu(at) for at in range(4)))


def lies(ledger: HeldDevices) -> list[int]:
    """The minors of the GPUs that somebody holds."""
    return [one.device.minor for one in ledger.left(0) if one.holders]


def test_slots_of_hosts_with_different_gpus() -> None:
    """Sizes, numbers of devices, hosts without any, rows that nobody set: each by its own devices."""
    ledger = HeldDevices(eight(size=40), eight(size=80), Inventory(), FOUR)
    rows = np.array([3, 0, 1, 2, 7])
    assert ledger.slots(rows, memory(30)).tolist() == [8, 8, 16, 0, 0]
    assert ledger.slots(rows, whole(4)).tolist() == [1, 2, 2, 0, 0]
    assert ledger.slots(rows, DeviceRequest()).tolist() == [UNLIMITED] * 5
    assert ledger.free_gpus(rows).tolist() == [4, 8, 8, 0, 0]


def test_what_is_taken_is_given_back() -> None:
    """Held and released, and held again in place of what was there."""
    ledger = HeldDevices(eight())
    ledger.hold(0, ("pod", "a"), whole(2), ((use(0), use(1)),))
    ledger.hold(0, ("gang", "b"), part(50), count=3)
    assert ledger.slots_of(0, whole(1)) == 4
    assert ledger.slots(np.array([0]), whole(1), empty=True).tolist() == [8]
    ledger.hold(0, ("gang", "b"), part(50), count=1)
    assert ledger.slots_of(0, whole(1)) == 5
    ledger.release(0, ("pod", "a"))
    ledger.release(0, ("gang", "b"))
    ledger.release(0, ("gang", "never there"))
    assert ledger.slots_of(0, whole(1)) == 8


def test_holders_that_do_not_say_lie_behind_those_that_do() -> None:
    """Whole GPUs first, then shares by best fit; and elsewhere when a known one comes."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("share",), part(50))
    ledger.hold(0, ("whole",), whole(2))
    assert lies(ledger) == [0, 1, 2]
    assert ledger.left(0)[2].ratio == 50
    assert ledger.slots_of(0, part(50)) == 3
    ledger.hold(0, ("known",), part(50), ((use(3, 50),),))
    assert lies(ledger) == [0, 1, 3]
    assert ledger.slots_of(0, whole(1)) == 1


def test_more_holders_than_devices_break_nothing() -> None:
    """Overcommitted by others: nothing is free, nothing is below zero, and all is there again when they go."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("crowd",), whole(3), count=5)
    ledger.hold(0, ("shares",), part(70, gpus=2, rdma=50), count=10**9)
    assert ledger.slots_of(0, part(1)) == 0
    assert ledger.choose(0, part(1), 1) == ()
    ledger.release(0, ("crowd",))
    assert ledger.slots_of(0, part(1)) == 0
    ledger.hold(0, ("shares",), part(70, gpus=2), count=2)
    assert ledger.slots_of(0, part(30)) == 4
    ledger.release(0, ("shares",))
    assert ledger.slots_of(0, whole(4)) == 1


def test_a_whole_gpu_pod_that_finds_too_few_takes_what_is_left_of_used_ones() -> None:
    """It runs somewhere: the host has less left, not more."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("known",), part(40), ((use(2, 40),),))
    ledger.hold(0, ("pods",), whole(4))
    assert ledger.slots_of(0, part(1)) == 0


def test_a_sick_device_offers_nothing_and_keeps_its_holders() -> None:
    """Its pod stays accounted: when it is well again, only the rest of it is free."""
    ledger = HeldDevices(eight())
    ledger.hold(0, ("pod",), part(50), ((use(2, 50),),))
    assert ledger.set_host(0, eight(sick=(2, 3)))
    assert ledger.slots_of(0, part(50)) == 12
    assert ledger.summary(0) == Summary(total=8, free=6, partly=0, used=0, unhealthy=2)
    assert ledger.set_host(0, eight())
    assert ledger.slots_of(0, part(50)) == 15
    assert ledger.summary(0) == Summary(total=8, free=7, partly=1, used=0, unhealthy=0)
    assert not ledger.set_host(0, eight())


def test_a_host_that_goes_and_comes_back_has_its_holders_again() -> None:
    """Nodes and pods come in any order."""
    ledger = HeldDevices()
    ledger.hold(0, ("pod",), whole(1), ((use(7),),))
    assert ledger.slots_of(0, whole(1)) == 0
    ledger.set_host(0, eight())
    assert ledger.slots_of(0, whole(1)) == 7
    ledger.set_host(0, None)
    assert ledger.slots_of(0, whole(1)) == 0
    ledger.set_host(0, eight())
    assert ledger.slots_of(0, whole(1)) == 7


@pytest.mark.parametrize(
    ("asks", "uses", "left"),
    [
        pytest.param(whole(2), (use(0), use(1)), 2, id="all are known"),
        pytest.param(whole(2), (use(0),), 2, id="one is not told"),
        pytest.param(whole(2), (), 2, id="none is told"),
        pytest.param(whole(2), (use(0), use(9)), 2, id="one that the host does not have"),
        pytest.param(whole(1), (use(9, device_id="GPU-2"),), 3, id="the id counts before the number"),
        pytest.param(whole(1), (use(2, device_id="GPU-gone"),), 3, id="the number where the id is not known"),
        pytest.param(whole(1), (use(0), use(1)), 2, id="more than it asked for"),
        pytest.param(part(50), (use(1, 50), DeviceUse("npu", 0)), 3, id="a kind that nobody knows"),
    ],
)
def test_a_pod_holds_as_many_devices_as_it_asks_for(
    asks: DeviceRequest, uses: tuple[DeviceUse, ...], left: int
) -> None:
    """What its annotation leaves out, or names wrongly, is laid where it fits: nobody hides by telling little."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("pod",), asks, (uses,))
    assert ledger.slots_of(0, whole(1)) == left


def test_a_device_is_found_by_its_id_before_its_number() -> None:
    """Numbers change with a restart of the host, ids do not."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("pod",), whole(1), ((use(3, device_id="GPU-1"),),))
    assert lies(ledger) == [1]
    ledger.hold(0, ("pod",), whole(1), ((use(3, device_id="GPU-gone"),),))
    assert lies(ledger) == [3]


def test_a_device_that_is_held_with_amounts_of_zero_is_not_free() -> None:
    """A whole GPU needs a device that nobody holds at all; shares of it are there."""
    ledger = HeldDevices(FOUR)
    ledger.hold(0, ("pod",), NOTHING_ASKED, ((use(0, 0),),))
    assert ledger.slots_of(0, whole(1)) == 3
    assert ledger.slots(np.array([0]), whole(1)).tolist() == [3]
    assert len(ledger.choose(0, whole(1), 9)) == 3
    assert ledger.slots_of(0, part(50)) == 8


def test_bytes_of_a_use_count_in_percent_and_the_other_way_round() -> None:
    """An annotation that gives one of the two; another scheduler's percent, rounded down, does not hide the bytes."""
    ledger = HeldDevices(Inventory((gpu(0, size=1),)))
    ledger.hold(0, ("bytes",), NOTHING_ASKED, ((DeviceUse("gpu", 0, memory=1),),))
    assert ledger.left(0)[0].ratio == 99
    ledger.hold(0, ("ratio",), NOTHING_ASKED, ((DeviceUse("gpu", 0, ratio=50),),))
    assert ledger.left(0)[0].memory == 2**30 - 1 - 2**29
    ledger.hold(0, ("both",), NOTHING_ASKED, ((DeviceUse("gpu", 0, ratio=1, memory=2**29 - 1),),))
    assert ledger.left(0)[0].ratio == 48
    assert ledger.slots_of(0, DeviceRequest(gpus=1, ratio=1)) == 0
    assert ledger.slots(np.array([0]), DeviceRequest(gpus=1, ratio=1)).tolist() == [0]


def test_rdma_and_fpga_are_counted_by_device() -> None:
    """Shares and whole ones, beside the GPUs: the scarcest kind says how many pods fit."""
    ledger = HeldDevices(eight(cards=(card(0), card(1), card(0, kind="fpga"))))
    assert ledger.slots_of(0, whole(1, rdma=100)) == 2
    assert ledger.slots_of(0, whole(1, rdma=200, fpga=100)) == 1
    assert ledger.slots_of(0, DeviceRequest(rdma=30)) == 6
    ledger.hold(0, ("a",), DeviceRequest(rdma=30), count=1)
    assert ledger.slots_of(0, DeviceRequest(rdma=100)) == 1
    assert minors(ledger.choose(0, DeviceRequest(rdma=70, fpga=50), 3), "rdma") == [[0], [1]]


@pytest.mark.parametrize(
    "odd",
    [
        DeviceRequest(gpus=1, core=2**45, ratio=2**45),
        DeviceRequest(gpus=1, memory=2**45),
        DeviceRequest(gpus=1, memory=2**62, core=1),
        DeviceRequest(gpus=2**45, ratio=1),
        DeviceRequest(gpus=2**45, core=100, ratio=100, whole=True),
        DeviceRequest(rdma=2**45),
        DeviceRequest(rdma=150),
    ],
)
def test_absurd_requests_never_fit_and_never_fail(odd: DeviceRequest) -> None:
    """Amounts as large as records can hold: 0 slots, one by one and all at once, and holding them does no harm."""
    ledger = HeldDevices(replace(FOUR, devices=(*FOUR.devices, card(0))))
    assert ledger.slots_of(0, odd) == 0
    assert ledger.slots(np.array([0]), odd).tolist() == [0]
    assert ledger.slots(np.array([0]), odd, empty=True).tolist() == [0]
    assert ledger.choose(0, odd, 2) == ()
    ledger.hold(0, ("odd",), odd, count=3)
    assert ledger.slots_of(0, whole(1)) >= 0


def test_pods_that_find_too_few_healthy_devices_may_be_on_sick_ones() -> None:
    """A sick device that nobody is known to hold is where such a pod is, before it crowds used ones."""
    ledger = HeldDevices(Inventory((gpu(0), gpu(1), gpu(2), gpu(3, healthy=False))))
    ledger.hold(0, ("known",), part(40), ((use(2, 40),),))
    ledger.hold(0, ("pods",), whole(3))
    assert minors(ledger.choose(0, part(60), 9)) == [[2]]


def _one_scope_each(cards: int = 8) -> Inventory:
    """Eight GPUs with a label, two on a PCIe scope, and an RDMA device with two virtual functions for each."""
    functions = [tuple(VirtualFunction(one, f"0000:{at:02x}:00.{one}", X) for one in range(2)) for at in range(cards)]
    near = [
        replace(card(at, numa=at // 4, pcie=f"p{at // 2}"), functions=of, labels=X) for at, of in enumerate(functions)
    ]
    found = eight(cards=tuple(near))
    return replace(found, devices=tuple(replace(one, labels=X) for one in found.devices))


X = (("x", "1"),)
JOINT = replace(whole(2, rdma=100), rdma_scope="pcie")


def _different_hosts(count: int) -> HeldDevices:
    """Hosts that differ in what is left of one GPU, and in nothing that pods with whole GPUs can use."""
    ledger = HeldDevices(*(_one_scope_each() for _ in range(count)))
    for row in range(count):
        ledger.hold(row, ("pod",), part(row + 1), ((use(0, row + 1), use(2, row + 1)),))
    return ledger


@pytest.mark.parametrize(
    "asked",
    [
        replace(JOINT, rdma_selector=(("x", "Exists", ()),)),
        replace(JOINT, vf_selector=()),
        replace(whole(1), selector=X),
        replace(part(10, gpus=2, rdma=10), rdma_scope="pcie"),
    ],
)
def test_what_a_request_counted_is_kept(asked: DeviceRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted device by device once for each state of a host, and again where a host changed alone."""
    counted: list[DeviceRequest] = []

    def slots_(devices: list[FreeDevice], request: DeviceRequest, **more: Any) -> int:
        counted.append(request)
        return slots(devices, request, **more)

    monkeypatch.setattr("engine.devices.ledger.slots", slots_)
    ledger, rows = _different_hosts(5), np.arange(5)
    first = ledger.slots(rows, asked)
    assert len(counted) == 5
    assert ledger.slots(rows, asked).tolist() == first.tolist() == [ledger.slots_of(row, asked) for row in range(5)]
    assert len(counted) == 5
    ledger.hold(3, ("more",), whole(1), ((use(7),),))
    ledger.slots(rows, asked)
    assert len(counted) == 6


def test_another_selector_costs_no_second_look_at_the_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices left are computed once for all requests, however many selectors there are."""
    ledger, rows = _different_hosts(5), np.arange(5)
    ledger.slots(rows, JOINT)
    looked: list[int] = []
    monkeypatch.setattr(ledger, "left", looked.append)
    for number in range(100):
        named = (("x", "In", ("1", str(number))),)
        assert ledger.slots(rows, replace(JOINT, rdma_selector=named)).tolist() == [3] * 5
    assert looked == []


@pytest.mark.parametrize("more", [{}, {"vf_selector": ()}, {"rdma": 20}, {"gpus": 4, "rdma": 200}])
def test_pods_are_chosen_once_for_hosts_that_are_alike_to_them(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts in use, selectors and addresses do not matter to whole GPUs: one host is counted for all."""
    ledger, rows = _different_hosts(20), np.arange(20)
    chosen: list[int] = []

    def choose(devices: list[FreeDevice], request: DeviceRequest, count: int, **more: Any) -> Any:
        chosen.append(count)
        return choose_devices(devices, request, count, **more)

    monkeypatch.setattr("engine.devices.choose.choose_devices", choose)
    for number in range(10):
        asked = replace(JOINT, rdma_selector=(("x", "In", ("1", str(number))),), **more)
        found = ledger.slots(rows, asked)
        assert found.tolist() == [len(choose_devices(ledger.left(0), asked, 9, partitions={}))] * 20
    assert len(chosen) <= 1


def test_few_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, and by the slots kept of them: the oldest are counted again, with the same result."""
    monkeypatch.setattr("engine.devices.ledger._MAX_COUNTED", 3)
    monkeypatch.setattr("engine.devices.ledger._MAX_COUNTS", 7)
    monkeypatch.setattr("engine.devices.ledger._MAX_STATES", 4)
    monkeypatch.setattr("engine.devices.ledger._MAX_JOINT_COUNTS", 1)
    ledger, rows = _different_hosts(5), np.arange(5)
    for number in range(12):
        asked = replace(JOINT, rdma_selector=(("x", "In", ("1", str(number % 5))),))
        assert ledger.slots(rows, asked).tolist() == [3] * 5
        ledger.hold(0, ("other", str(number)), NOTHING_ASKED, ((use(0, 1),),))
    assert len(ledger._counts) <= 3
    assert ledger._counted == sum(map(len, ledger._counts.values())) <= 7


@pytest.mark.parametrize("core", [0, 50])
def test_nobody_joins_a_pod_with_all_of_the_memory_of_a_gpu_that_offers_more(core: int) -> None:
    """In bytes as in percent: it is placed once on an empty GPU, and beside nobody; one GiB less may be shared."""
    offers = Inventory((replace(gpu(0), core=200, ratio=200),))
    for gib, slots_of_two in ((79, 2), (80, 1)):
        asked = memory(gib, core=core)
        ledger = HeldDevices(offers)
        assert ledger.slots_of(0, asked) == ledger.slots(np.array([0]), asked).tolist()[0] == slots_of_two
        assert len(minors(ledger.choose(0, asked, 3))) == slots_of_two
        ledger.hold(0, ("pod", "part"), part(10), ledger.choose(0, part(10), 1))
        assert ledger.slots_of(0, asked) == slots_of_two - 1
