"""The slots of a host's devices: closed form, many hosts at once, and what a search over devices finds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices.fit import pods, slots
from engine.devices.free import gpu_use, share_use, unused
from engine.devices.inventory import Inventory
from tests.support.devices import NOTHING_ASKED, HeldDevices

amounts = st.sampled_from([0, 25, 33, 50, 75, 100])
devices = st.builds(
    Device,
    kind=st.just("gpu"),
    minor=st.just(0),
    id=st.just(""),
    healthy=st.sampled_from([True, True, True, False]),
    core=st.sampled_from([100, 100, 0]),
    ratio=st.sampled_from([100, 100, 0]),
    memory=st.sampled_from([0, 7, 10, 16]),
)
uses = st.builds(
    DeviceUse, kind=st.just("gpu"), minor=st.just(0), core=amounts, ratio=amounts, memory=st.integers(0, 9)
)
hosts = st.lists(st.tuples(devices, st.lists(uses, max_size=2)), max_size=4)
cards = st.lists(st.tuples(st.sampled_from([0, 50, 100]), st.lists(st.integers(0, 60), max_size=2)), max_size=3)
requests = st.one_of(
    st.builds(
        DeviceRequest,
        gpus=st.integers(0, 3),
        core=st.sampled_from([0, 25, 34, 50, 100]),
        ratio=st.sampled_from([25, 33, 34, 50, 100]),
        rdma=st.sampled_from([0, 0, 25, 60, 100, 200]),
    ),
    st.builds(
        DeviceRequest, gpus=st.integers(1, 3), core=st.sampled_from([0, 30, 50]), memory=st.sampled_from([2, 3, 5, 8])
    ),
    st.builds(
        DeviceRequest,
        gpus=st.integers(1, 3),
        core=st.sampled_from([0, 100]),
        ratio=st.just(100),
        whole=st.just(True),
        rdma=st.sampled_from([0, 100]),
    ),
)
Host = tuple[Inventory, tuple[tuple[DeviceUse, ...], ...]]


def build(gpus: list[tuple[Device, list[DeviceUse]]], nics: list[tuple[int, list[int]]]) -> Host:
    found: list[Device] = []
    held: list[tuple[DeviceUse, ...]] = []
    for minor, (device, taken) in enumerate(gpus):
        found.append(
            Device("gpu", minor, "", device.healthy, core=device.core, ratio=device.ratio, memory=device.memory)
        )
        held += [(DeviceUse("gpu", minor, core=one.core, ratio=one.ratio, memory=one.memory),) for one in taken]
    for minor, (share, taken_shares) in enumerate(nics):
        found.append(Device("rdma", minor, "", True, share=share))
        held += [(DeviceUse("rdma", minor, share=one),) for one in taken_shares]
    return Inventory(tuple(found)), tuple(held)


def ledger_of(hosts_: list[Host]) -> HeldDevices:
    ledger = HeldDevices(*(inventory for inventory, _ in hosts_))
    for row, (_, held) in enumerate(hosts_):
        ledger.hold(row, ("held",), NOTHING_ASKED, held)
    return ledger


def searched(ledger: HeldDevices, row: int, request: DeviceRequest) -> int:
    """The most pods that any choice of devices allows, one pod after the other."""
    left = ledger.left(row)
    gpus = [one for one in left if one.device.kind == "gpu"]
    sizes = [one.device for one in gpus]
    nics = tuple((one.share, one.empty) for one in left if one.device.kind == "rdma")
    wanted = -(-request.rdma // 100)

    @cache
    def on_gpus(state: tuple[tuple[int, int, int, bool], ...]) -> int:
        best = 0
        for chosen in combinations(range(len(state)), request.gpus):
            after = list(state)
            for at in chosen:
                core, ratio, memory, empty = state[at]
                part = gpu_use(request, sizes[at])
                short = not sizes[at].memory and request.memory
                if core < part.core or ratio < part.ratio or memory < part.memory or short:
                    break
                if request.whole and not empty:
                    break
                after[at] = (core - part.core, ratio - part.ratio, memory - part.memory, False)
            else:
                best = max(best, 1 + on_gpus(tuple(after)))
        return best

    @cache
    def on_nics(state: tuple[tuple[int, bool], ...]) -> int:
        best = 0
        for chosen in combinations(range(len(state)), wanted):
            each = min(request.rdma, 100)
            if all(state[at][0] >= each and (state[at][1] or request.rdma < 100) for at in chosen):
                after = tuple(
                    (share - each, False) if at in chosen else (share, empty) for at, (share, empty) in enumerate(state)
                )
                best = max(best, 1 + on_nics(after))
        return best

    found = 2**31 - 1
    if request.gpus:
        found = on_gpus(tuple((one.core, one.ratio, one.memory, one.empty) for one in gpus))
    return min(found, on_nics(nics)) if request.rdma else found


@settings(max_examples=300, deadline=None)
@given(hosts, cards, requests)
def test_the_closed_form_is_what_a_search_over_devices_finds(
    gpus: list[tuple[Device, list[DeviceUse]]], nics: list[tuple[int, list[int]]], request: DeviceRequest
) -> None:
    """Half-used, sick, small and unknown devices; whole GPUs, shares of one and of several, bytes, RDMA."""
    ledger = ledger_of([build(gpus, nics)])
    assert ledger.slots_of(0, request) == searched(ledger, 0, request)


@settings(max_examples=200, deadline=None)
@given(hosts, requests, st.booleans())
def test_as_many_pods_get_devices_as_there_are_slots(
    gpus: list[tuple[Device, list[DeviceUse]]], request: DeviceRequest, spread: bool
) -> None:
    """Packed and spread: no pod gets a device twice, and no device gives more than it has."""
    asked = replace(request, rdma=0, spread=spread)
    ledger = ledger_of([build(gpus, [])])
    room = min(ledger.slots_of(0, asked), 5)
    chosen = ledger.choose(0, asked, room) if asked.gpus else ()
    assert len(chosen) == (room if asked.gpus else 0)
    left = {one.device.minor: one for one in ledger.left(0)}
    for uses in chosen:
        assert len({use.minor for use in uses}) == len(uses) == asked.gpus
        for use in uses:
            one = left[use.minor]
            assert one.device.healthy
            assert (one.core, one.ratio, one.memory) >= (0, 0, 0)
            assert use.core <= one.core
            assert use.ratio <= one.ratio
            assert use.memory <= one.memory
            one.take(use)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(hosts, cards), max_size=5), requests, st.integers(0, 12))
def test_many_hosts_at_once_are_each_host_alone(
    built: list[tuple[list[tuple[Device, list[DeviceUse]]], list[tuple[int, list[int]]]]],
    request: DeviceRequest,
    wide: int,
) -> None:
    """Free and empty; hosts with other numbers of devices, without any, and rows that nobody set."""
    made = [build(*one) for one in built]
    crowd = tuple(Device("gpu", at, "", True, core=100, ratio=100, memory=10) for at in range(wide))
    ledger = ledger_of([*made, (Inventory(crowd), ())])
    rows = np.arange(len(made) + 2)[::-1]
    alone = [ledger.slots_of(int(row), request) for row in rows]
    assert ledger.slots(rows, request).tolist() == alone
    assert ledger.slots(rows[:1], request).tolist() == alone[:1]
    bare = [slots([unused(one) for one in ledger.inventory(int(row)).devices], request, partitions={}) for row in rows]
    assert ledger.slots(rows, request, empty=True).tolist() == bare


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 4))
def test_distinct_devices_are_dealt_as_often_as_any_order_allows(often: list[int], distinct: int) -> None:
    """Pods that want several devices each: the formula is the best of all orders."""

    @cache
    def best(left: tuple[int, ...]) -> int:
        found = 0
        for chosen in combinations(range(len(left)), distinct):
            if all(left[at] for at in chosen):
                after = tuple(sorted(one - (at in chosen) for at, one in enumerate(left)))
                found = max(found, 1 + best(after))
        return found

    assert pods(often, distinct) == best(tuple(sorted(often)))


@given(st.integers(1, 100), st.integers(1, 2**50), st.integers(1, 2**50))
def test_bytes_and_percent_never_add_up_to_more_than_the_device(percent: int, size: int, asked: int) -> None:
    """As many shares as fit take no more bytes than there are; bytes are never 0 percent."""
    device = Device("gpu", 0, "", True, core=100, ratio=100, memory=size)
    share = gpu_use(DeviceRequest(gpus=1, ratio=percent), device)
    assert (100 // percent) * share.memory <= size
    by_bytes = gpu_use(DeviceRequest(gpus=1, memory=min(asked, size)), device)
    assert 1 <= by_bytes.ratio <= 100
    assert by_bytes.memory * 100 <= by_bytes.ratio * size
    assert share_use(percent, device).share == percent
