"""RDMA devices, their virtual functions and the PCIe scopes of GPUs: counted and chosen as by trying everything."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.device import Device, DeviceRequest, DeviceUse, VirtualFunction, selects
from engine.decoding.devices import node_devices
from engine.devices.allocation import format_allocated, parse_allocated
from engine.devices.choose import MAX_JOINT, choose_devices, slots
from engine.devices.free import FreeDevice, unused
from engine.devices.inventory import Inventory
from tests.support.devices import HeldDevices, gpu

SCOPES = ("a", "b", "c", "")
LABELS = ((("type", "x"),), (("type", "y"),), ())
X = (("type", "In", ("x",)),)
SELECTORS = ((), X, (("type", "NotIn", ("x",)),), (("type", "Exists", ()),), (("type", "DoesNotExist", ()),))


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Device, ...]:
    """At most four GPUs and three RDMA devices with at most three virtual functions each."""
    gpus = [
        replace(gpu(minor, pcie=draw(st.sampled_from(SCOPES))), healthy=draw(st.integers(0, 5)) > 0)
        for minor in range(draw(st.integers(0, 4)))
    ]
    cards = []
    for minor in range(draw(st.integers(0, 3))):
        labels = draw(st.lists(st.sampled_from(LABELS), max_size=3))
        functions = tuple(VirtualFunction(at, f"{minor}:{at}", label) for at, label in enumerate(labels))
        cards.append(
            Device(
                "rdma",
                minor,
                f"card-{minor}",
                draw(st.integers(0, 7)) > 0,
                share=100,
                pcie=draw(st.sampled_from(SCOPES)),
                labels=draw(st.sampled_from(LABELS)),
                functions=functions,
            )
        )
    return (*gpus, *cards)


requests = st.builds(
    lambda gpus, part, rdma, cards, functions, scope: DeviceRequest(
        gpus=gpus,
        core=part if gpus else 0,
        ratio=part if gpus else 0,
        whole=bool(gpus) and part == 100,
        rdma=rdma,
        rdma_selector=cards,
        vf_selector=functions,
        rdma_scope=scope,
    ),
    st.integers(0, 2),
    st.sampled_from([50, 100]),
    st.sampled_from([1, 40, 100, 200]),
    st.sampled_from(SELECTORS),
    st.one_of(st.none(), st.sampled_from(SELECTORS)),
    st.sampled_from(["", "pcie", "pcie-preferred"]),
)
Left = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[str, ...], ...]]


class Host:
    """Every way to serve a pod, as plain numbers: percent left of GPUs and cards, functions left of cards."""

    def __init__(self, devices: tuple[Device, ...], request: DeviceRequest) -> None:
        self.request = request
        self.gpus = [one for one in devices if one.kind == "gpu"]
        self.cards = [one for one in devices if one.kind == "rdma"]
        self.count = max(1, request.rdma // 100)
        self.percent = min(100, request.rdma)
        self.most = cache(self._most)

    def full(self) -> Left:
        return (
            tuple(100 * one.healthy for one in self.gpus),
            tuple(100 * one.healthy for one in self.cards),
            tuple(self.wanted(one) if one.healthy else () for one in self.cards),
        )

    def wanted(self, card: Device) -> tuple[str, ...]:
        selector = self.request.vf_selector
        if selector is None:
            return ()
        return tuple(function.bus for function in card.functions if selects(selector, function.labels))

    def ways(self, left: Left) -> Iterator[Left]:
        """What is left after one more pod."""
        gpus_left, cards_left, functions_left = left
        part = self.request.ratio
        gpus = [at for at, percent in enumerate(gpus_left) if percent >= part]
        cards = [
            at
            for at, percent in enumerate(cards_left)
            if percent >= self.percent
            and selects(self.request.rdma_selector, self.cards[at].labels)
            and (self.request.vf_selector is None or functions_left[at])
        ]
        joint = self.request.rdma_scope == "pcie" and self.request.gpus > 0
        for some in combinations(gpus, self.request.gpus):
            scopes = {self.gpus[at].pcie for at in some}
            number = max(self.count, len(scopes)) if joint else self.count
            for chosen in combinations(cards, number):
                if joint and ("" in scopes or {self.cards[at].pcie for at in chosen} != scopes):
                    continue
                yield (
                    tuple(percent - part * (at in some) for at, percent in enumerate(gpus_left)),
                    tuple(percent - self.percent * (at in chosen) for at, percent in enumerate(cards_left)),
                    tuple(names[1:] if at in chosen else names for at, names in enumerate(functions_left)),
                )

    def _most(self, left: Left) -> int:
        return max((1 + self.most(rest) for rest in set(self.ways(left))), default=0)


def free(devices: tuple[Device, ...]) -> list[FreeDevice]:
    return [unused(one) for one in devices]


def bounded(devices: tuple[Device, ...], request: DeviceRequest) -> bool:
    """A search of few pods: at most four of shares."""
    return request.rdma >= 40 or request.vf_selector is not None or request.gpus > 0


@settings(max_examples=200, deadline=None)
@given(hosts(), requests)
def test_as_many_pods_fit_as_by_trying_everything(devices: tuple[Device, ...], request: DeviceRequest) -> None:
    """Of pods that need several GPUs beside their RDMA devices as many as are chosen one by one; never none."""
    if not bounded(devices, request):
        return
    host = Host(devices, request)
    most, found = host.most(host.full()), slots(free(devices), request, partitions={})
    if request.joint and request.gpus > 1:
        assert (found > 0) == (most > 0)
        assert found <= most
    else:
        assert found == most


gpus_in_use = st.lists(st.tuples(st.integers(0, 7), st.sampled_from((5, 50, 90, 100))), max_size=8)
cards_in_use = st.lists(st.tuples(st.integers(0, 7), st.sampled_from((10, 60, 100))), max_size=6)
joint_requests = st.builds(
    DeviceRequest,
    gpus=st.integers(2, 4),
    ratio=st.sampled_from((5, 30, 100)),
    core=st.sampled_from((0, 5, 100)),
    whole=st.booleans(),
    rdma=st.sampled_from((10, 50, 100, 200)),
    rdma_scope=st.just("pcie"),
    vf_selector=st.sampled_from((None, (), (("x", "In", ("1",)),))),
    rdma_selector=st.sampled_from(((), (("x", "In", ("1",)),))),
    scope=st.sampled_from(("", "", "pcie", "numa", "nvlink")),
    spread=st.booleans(),
).map(lambda one: one if one.whole else replace(one, scope=""))


@st.composite
def large_hosts(draw: st.DrawFn) -> list[FreeDevice]:
    """Eight GPUs and up to eight RDMA devices in scopes whose names may repeat in another NUMA node; some in use."""
    place = st.tuples(st.sampled_from((0, 0, 1, None)), st.sampled_from(("p0", "p1", "p2", "p3", "")))
    regular = draw(st.integers(0, 3)) > 0
    places = [(at // 4, f"p{at // 2}") for at in range(8)] if regular else draw(st.lists(place, min_size=8, max_size=8))
    near = [*places[::2], *places[1::2]][: draw(st.integers(4, 8))] if regular else draw(st.lists(place, max_size=6))
    numbers = draw(st.lists(st.sampled_from((0, 2, 3)), min_size=len(near), max_size=len(near)))
    gpus = [replace(gpu(at), numa=numa, pcie=pcie) for at, (numa, pcie) in enumerate(places)]
    cards = [
        Device(
            "rdma",
            at,
            f"card-{at}",
            healthy=True,
            share=100,
            numa=numa,
            pcie=pcie,
            labels=(("x", str(at % 2)),),
            functions=tuple(VirtualFunction(one, f"{at}-{one}", (("x", str(one % 2)),)) for one in range(number)),
        )
        for at, ((numa, pcie), number) in enumerate(zip(near, numbers, strict=True))
    ]
    devices = free((*gpus, *cards))
    for kind, uses in (("gpu", draw(gpus_in_use)), ("rdma", draw(cards_in_use))):
        of = [one for one in devices if one.device.kind == kind]
        for minor, percent in uses:
            if minor < len(of):
                of[minor].take(DeviceUse(kind, minor, core=percent, ratio=percent, share=percent))
    return devices


@settings(max_examples=300, deadline=None)
@given(st.lists(large_hosts(), min_size=1, max_size=6), st.lists(joint_requests, min_size=1, max_size=3), st.booleans())
def test_kept_counts_are_those_of_pods_chosen_one_by_one(
    fleet: list[list[FreeDevice]], asked: list[DeviceRequest], linked: bool
) -> None:
    """Of other hosts, other selectors and other requests: whatever was counted before."""
    known: dict[Hashable, int] = {}
    partitions = {2: ((0, 1), (2, 3), (4, 5), (6, 7)), 4: ((0, 1, 2, 3), (4, 5, 6, 7))} if linked else {}
    for devices in fleet:
        for request in asked:
            chosen = choose_devices(devices, request, MAX_JOINT, partitions=partitions)
            assert slots(devices, request, partitions=partitions, known=known) == len(chosen)


@settings(max_examples=200, deadline=None)
@given(hosts(), requests, st.integers(1, 6))
def test_the_chosen_devices_are_free_suitable_and_given_once(
    devices: tuple[Device, ...], request: DeviceRequest, count: int
) -> None:
    """As many pods as fit; each with its GPUs, its RDMA devices, and one function with each if it wants any."""
    chosen = choose_devices(free(devices), request, count, partitions={})
    assert len(chosen) == min(count, slots(free(devices), request, partitions={}))
    of = {(one.kind, one.minor): one for one in devices}
    left = {key: (100, {function.bus for function in one.functions}) for key, one in of.items() if one.healthy}
    at_least, percent = request.cards
    for uses in chosen:
        gpus = [of[use.kind, use.minor] for use in uses if use.kind == "gpu"]
        cards = [use for use in uses if use.kind == "rdma"]
        assert (len(gpus), len({one.minor for one in cards})) == (request.gpus, len(cards))
        scopes = {one.pcie for one in gpus}
        near = {of["rdma", use.minor].pcie for use in cards}
        if request.joint:
            assert near == scopes
            assert len(cards) == max(at_least, len(scopes))
        elif request.rdma_scope:
            assert at_least <= len(cards) <= max(at_least, len(scopes))
        else:
            assert len(cards) == at_least
        for use in uses:
            amount, buses = left[use.kind, use.minor]
            taken = use.ratio if use.kind == "gpu" else use.share
            assert amount >= taken == (request.ratio if use.kind == "gpu" else percent)
            wanted = use.kind == "rdma" and request.vf_selector is not None
            assert len(use.functions) == wanted
            for function in use.functions:
                assert function.bus in buses
                (group,) = [one for one in of[use.kind, use.minor].functions if one.bus == function.bus]
                assert request.accepts_function(group)
            if use.kind == "rdma":
                assert selects(request.rdma_selector, of["rdma", use.minor].labels)
            left[use.kind, use.minor] = amount - taken, buses - {function.bus for function in use.functions}


@settings(max_examples=80, deadline=None)
@given(st.lists(hosts(), min_size=1, max_size=3), st.lists(st.tuples(requests, st.booleans()), min_size=1, max_size=6))
def test_the_ledger_counts_what_the_host_itself_counts_whatever_happened(
    fleet: list[tuple[Device, ...]], steps: list[tuple[DeviceRequest, bool]]
) -> None:
    """Slots are kept between changes; no function is ever given twice, by known uses or unknown ones."""
    ledger = HeldDevices(*map(Inventory, fleet))
    rows = np.arange(len(fleet))
    held: dict[int, list[tuple[DeviceUse, ...]]] = {}
    for number, (request, known) in enumerate(steps):
        row = number % len(fleet)
        counted = ledger.slots(rows, request).tolist()
        assert counted == [ledger.slots_of(one, request) for one in rows.tolist()]
        assert counted == [slots(ledger.left(one), request, partitions={}) for one in rows.tolist()]
        empty = ledger.slots(rows, request, empty=True).tolist()
        assert empty == [slots(free(one), request, partitions={}) for one in fleet]
        for uses in ledger.choose(row, request, 1):
            ledger.hold(row, ("pod", str(number)), request, (uses,) if known else (), count=1)
            if known:
                held.setdefault(row, []).append(uses)
    for row, pods in held.items():
        given_out = [function.bus for uses in pods for use in uses for function in use.functions]
        there = {function.bus for one in ledger.left(row) for function in one.functions}
        assert len(set(given_out)) == len(given_out)
        assert there.isdisjoint(given_out)


@given(st.sampled_from(SELECTORS), st.sampled_from(LABELS))
def test_a_selector_selects_as_kubernetes_says(
    selector: tuple[tuple[str, str, tuple[str, ...]], ...], labels: tuple[tuple[str, str], ...]
) -> None:
    """Of one requirement: NotIn and DoesNotExist also hold where the key is missing."""
    expected = {"In": labels == LABELS[0], "NotIn": labels != LABELS[0], "Exists": bool(labels)}
    for _, operator, _ in selector:
        assert selects(selector, labels) == expected.get(operator, not labels)
    assert selector or selects(selector, labels)


garbage = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["labels", "vfs", "minor", "busID", "socketID", "nodeID", "pcieID"]), inner),
    ),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(garbage, garbage, garbage)
def test_garbage_in_a_device_object_never_raises(groups: object, module: object, topology: object) -> None:
    """Whatever is there instead of functions, a number and a place: a device or a fault, with sound functions."""
    card = {"type": "rdma", "minor": 0, "health": True, "resources": {"koordinator.sh/rdma": "100"}}
    broken = {**card, "minor": 1, "vfGroups": groups, "moduleID": module, "topology": topology}
    found = node_devices({"metadata": {"name": "h"}, "spec": {"devices": [card, broken]}})
    assert found.devices[0].minor == 0
    assert len(found.devices) == 2 or found.faults
    for device in found.devices:
        buses = [one.bus for one in device.functions]
        assert buses == sorted(set(buses))
        assert all(buses)
        assert all(one.minor >= 0 for one in device.functions)
        assert (device.module or 0) >= 0 <= (device.socket or 0)


uses = st.lists(
    st.builds(
        lambda minor, share, names: DeviceUse(
            "rdma", minor, share=share, functions=tuple(VirtualFunction(at, name) for at, name in names.items())
        ),
        st.integers(0, 50),
        st.integers(0, 100),
        st.dictionaries(
            st.integers(0, 9), st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
        ).map(lambda some: {at: f"{at}{name}" for at, name in some.items()}),
    ),
    max_size=4,
    unique_by=lambda use: use.minor,
)


@given(uses)
def test_functions_survive_the_annotation(known: list[DeviceUse]) -> None:
    """Written as Koordinator writes them, and read again."""
    assert parse_allocated(format_allocated(known)) == (tuple(known), "")


def test_the_brute_force_knows_the_difference() -> None:
    """So that the tests above can fail: one function for two GPUs of its scope, three for all."""
    card = Device("rdma", 0, "c", True, share=100, pcie="a", functions=(VirtualFunction(0, "0:0"),))
    devices = (gpu(0, pcie="a"), gpu(1, pcie="a"), gpu(2, pcie="b"), card)
    wants = DeviceRequest(gpus=1, core=100, ratio=100, whole=True, rdma=1)
    answers = [
        Host(devices, replace(wants, **more)).most(Host(devices, replace(wants, **more)).full())
        for more in ({}, {"rdma_scope": "pcie"}, {"vf_selector": ()}, {"rdma_selector": X})
    ]
    assert answers == [3, 2, 1, 0]
