"""Devices of all pods on one host: no choice of any kind keeps more pods within a scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.device import Device
from engine.devices.choose import choose_devices
from engine.devices.fit import slots
from engine.devices.free import unused
from engine.devices.inventory import Inventory
from engine.devices.scopes import Partitions
from tests.support.devices import HeldDevices, whole

MOST = 8
places = st.tuples(st.sampled_from([None, 0, 0, 1]), st.sampled_from(["", "a", "a", "b", "c"]), st.booleans())
hosts = st.lists(places, max_size=MOST).map(
    lambda found: tuple(
        Device("gpu", minor, "", minor % 5 != 3 or healthy, core=100, ratio=100, numa=numa, pcie=pcie)
        for minor, (numa, pcie, healthy) in enumerate(found)
    )
)
minors = st.integers(0, MOST - 1)
pairs = st.lists(st.tuples(minors, minors), max_size=6).map(tuple)
triples = st.lists(st.tuples(minors, minors, minors), max_size=5).map(tuple)
tables = st.one_of(st.just({}), st.builds(lambda two, three: {2: two, 3: three}, pairs, triples))
Chosen = tuple[tuple[Device, ...], ...]


def linked(pod: tuple[Device, ...], table: Partitions) -> bool:
    return {one.minor for one in pod} in [set(one) for one in table.get(len(pod), ())]


def in_one_pcie(pod: tuple[Device, ...]) -> bool:
    return len({(one.numa, one.pcie or one.minor) for one in pod}) == 1


def in_one_numa(pod: tuple[Device, ...]) -> bool:
    if any(one.numa is None for one in pod):
        return in_one_pcie(pod)
    return len({one.numa for one in pod}) == 1


@cache
def most_within(free: tuple[Device, ...], gpus: int, scope: str, sets: tuple[tuple[int, ...], ...]) -> int:
    """The most pods that get devices of one scope each, by trying all."""
    fits = {"nvlink": lambda pod: linked(pod, {gpus: sets}), "pcie": in_one_pcie, "numa": in_one_numa}[scope]
    best = 0
    for pod in combinations(free, gpus):
        if fits(pod):
            rest = tuple(one for one in free if one not in pod)
            best = max(best, 1 + most_within(rest, gpus, scope, sets))
    return best


def healthy(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    return tuple(one for one in devices if one.healthy)


@settings(max_examples=150, deadline=None)
@given(hosts, tables, st.integers(2, 3), st.sampled_from(["nvlink", "pcie", "numa"]))
def test_the_slots_within_a_scope_are_the_most_that_trying_all_finds(
    devices: tuple[Device, ...], table: Partitions, gpus: int, scope: str
) -> None:
    """Of one host, and of the same host among many; all of these pods get devices, each of one scope."""
    free = healthy(devices)
    most = most_within(free, gpus, scope, table.get(gpus, ()))
    request = whole(gpus).within(scope)
    ledger = HeldDevices(Inventory(devices, table), Inventory())
    assert ledger.slots_of(0, request) == most
    assert ledger.slots(np.arange(2), request).tolist() == [most, 0]
    assert ledger.slots(np.arange(2), request, empty=True).tolist() == [most, 0]
    left = [unused(one) for one in devices]
    assert slots(left, request, partitions=table) == most
    chosen = choose_devices(left, request, MOST, partitions=table)
    assert len(chosen) == most
    fits = {"nvlink": lambda pod: linked(pod, table), "pcie": in_one_pcie, "numa": in_one_numa}[scope]
    named = [use.minor for pod in chosen for use in pod]
    assert len(set(named)) == len(named) == most * gpus
    assert all(fits(tuple(devices[use.minor] for use in pod)) for pod in chosen)


@settings(max_examples=150, deadline=None)
@given(hosts, st.integers(2, 3), st.integers(1, 3), st.booleans())
def test_no_choice_for_all_pods_together_keeps_more_of_them_near(
    devices: tuple[Device, ...], gpus: int, count: int, spread: bool
) -> None:
    """Most pods within a NUMA node, and among such choices most within a PCIe scope; packed and spread."""
    free = healthy(devices)
    count = min(count, len(free) // gpus)
    request = replace(whole(gpus), spread=spread)
    chosen = choose_devices([unused(one) for one in devices], request, count, partitions={})
    pods = [tuple(devices[use.minor] for use in pod) for pod in chosen]

    def near(one: Chosen | list[tuple[Device, ...]]) -> tuple[int, int]:
        return sum(map(in_one_numa, one)), sum(map(in_one_pcie, one))

    assert len(pods) == count
    assert near(pods) == max(map(near, everything(free, gpus, count)))


def everything(free: tuple[Device, ...], gpus: int, count: int) -> Iterator[Chosen]:
    """Every choice of disjoint groups for `count` pods."""
    if not count:
        yield ()
        return
    for pod in combinations(free, gpus):
        rest = tuple(one for one in free if one not in pod)
        for others in everything(rest, gpus, count - 1):
            yield (pod, *others)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, MOST), tables, st.integers(2, 3), st.integers(1, 3))
def test_as_many_pods_get_linked_gpus_as_trying_all_finds(
    number: int, table: Partitions, gpus: int, count: int
) -> None:
    """Sets of the table may overlap in any way; no other scope is known, which all pods could keep to."""
    devices = tuple(Device("gpu", minor, "", True, core=100, ratio=100) for minor in range(number))
    free = healthy(devices)
    count = min(count, number // gpus)
    chosen = choose_devices([unused(one) for one in devices], whole(gpus), count, partitions=table)
    pods = [tuple(devices[use.minor] for use in pod) for pod in chosen]
    most = min(count, most_within(free, gpus, "nvlink", table.get(gpus, ())))
    assert sum(linked(pod, table) for pod in pods) == most
