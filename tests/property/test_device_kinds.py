"""Devices of the policy's kinds count like GPUs: the same requests on equal devices get the same ones."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices.allocation import format_allocated, limit_to_request, parse_allocated
from engine.devices.fit import slots
from engine.devices.inventory import Inventory
from engine.resources.kinds import DeviceKind, DeviceKinds
from tests.support.devices import GIB, HeldDevices, gpu, memory, part, whole

KIND = DeviceKind("npu", whole="e.x/npu", core="e.x/core", ratio="e.x/ratio", memory="e.x/memory")
KINDS = DeviceKinds((KIND,))
ASKED = (whole(1), whole(2), whole(3), part(25), part(50), part(70), part(40, gpus=2), memory(30), memory(10, core=20))
devices = st.lists(
    st.builds(
        gpu,
        st.integers(0, 9),
        size=st.sampled_from([0, 40, 80]),
        healthy=st.booleans(),
        numa=st.sampled_from([None, 0, 1]),
        pcie=st.sampled_from(["", "p0", "p1"]),
    ),
    max_size=6,
    unique_by=lambda one: one.minor,
)
holders = st.lists(
    st.tuples(st.sampled_from(ASKED), st.integers(1, 3), st.booleans()),
    max_size=4,
)


def as_npu(request: DeviceRequest) -> DeviceRequest:
    return DeviceRequest(others=(("npu", replace(request, name="e.x/npu")),))


def npus(uses: tuple[tuple[DeviceUse, ...], ...]) -> tuple[tuple[DeviceUse, ...], ...]:
    return tuple(tuple(replace(use, kind="npu") for use in pod) for pod in uses)


@given(listed=devices, held=holders, asked=st.sampled_from(ASKED), count=st.integers(1, 4))
def test_a_kind_counts_like_gpus(
    listed: list[Device], held: list[tuple[DeviceRequest, int, bool]], asked: DeviceRequest, count: int
) -> None:
    """Slots one by one and for many hosts, free and empty, and the devices chosen, whoever holds some already."""
    ordered = sorted(listed, key=lambda one: one.minor)
    gpus = HeldDevices(Inventory(tuple(ordered)))
    others = HeldDevices(Inventory(tuple(replace(one, kind="npu") for one in ordered)))
    for number, (request, pods, known) in enumerate(held):
        uses = gpus.choose(0, request, pods) if known else ()
        gpus.hold(0, ("pod", str(number)), request, uses, count=pods)
        others.hold(0, ("pod", str(number)), as_npu(request), npus(uses), count=pods)
    if not listed:
        assert others.slots_of(0, as_npu(asked)) == others.slots(np.array([0]), as_npu(asked))[0] == 2**31 - 1
        return
    request = as_npu(asked)
    assert others.slots_of(0, request) == gpus.slots_of(0, asked)
    for empty in (False, True):
        rows = np.array([0])
        assert others.slots(rows, request, empty=empty).tolist() == gpus.slots(rows, asked, empty=empty).tolist()
    assert slots(others.left(0), request, partitions={}) == slots(gpus.left(0), asked, partitions={})
    assert others.choose(0, request, count) == npus(gpus.choose(0, asked, count))


amounts = st.fixed_dictionaries(
    {},
    optional={
        KIND.whole: st.integers(1, 9),
        KIND.core: st.integers(1, 400),
        KIND.ratio: st.integers(1, 400),
        KIND.memory: st.integers(1, 400).map(lambda gib: gib * GIB),
    },
)


@given(asked=amounts)
def test_a_request_is_refused_or_asks_for_all_of_it(asked: dict[str, int]) -> None:
    """Never for less than the amounts say, on any number of devices; the wrong ones have a reason."""
    requests = tuple(sorted(asked.items()))
    found = KINDS.extended(None, requests)
    if not asked:
        assert found is None
        return
    if reasons := KINDS.contradictions(asked):
        assert found is None
        assert all(one.name in asked and one.message for one in reasons)
        return
    assert found is not None
    ((kind, request),) = found.others
    assert (kind, found.gpus) == ("npu", 0)
    assert request.name in asked
    assert request.gpus == asked.get(KIND.whole, request.gpus)
    assert request.core * request.gpus >= asked.get(KIND.core, 0)
    assert request.ratio * request.gpus >= asked.get(KIND.ratio, 0)
    assert request.memory * request.gpus >= asked.get(KIND.memory, 0)
    assert request.core <= 100 and request.ratio <= 100
    assert request.whole == (request.ratio == 100)


@settings(max_examples=50)
@given(listed=devices, asked=st.sampled_from(ASKED))
def test_the_annotation_names_the_devices_that_were_chosen(listed: list[Device], asked: DeviceRequest) -> None:
    """Read again it names the same ones; amounts are those of the request, whatever was written."""
    ordered = sorted(listed, key=lambda one: one.minor)
    others = HeldDevices(Inventory(tuple(replace(one, kind="npu") for one in ordered)))
    for uses in others.choose(0, as_npu(asked), 1) if listed else ():
        read, error = parse_allocated(format_allocated(uses, KINDS))
        assert read is not None and not error
        assert [(one.kind, one.minor, one.id) for one in read] == [(one.kind, one.minor, one.id) for one in uses]
        limited = limit_to_request((*read, DeviceUse("npu", 99), DeviceUse("tpu", 1)), as_npu(asked)) or ()
        assert [(one.kind, one.minor) for one in limited] == [(one.kind, one.minor) for one in uses]
        assert {(one.core, one.ratio, one.memory) for one in limited} == {(asked.core, asked.ratio, asked.memory)}


TEXT = st.text(alphabet='{}[]":,0123456789npugrdmaif \\é', max_size=60)


@given(text=TEXT, kinds=st.dictionaries(st.text(max_size=8), st.lists(st.integers() | st.none() | TEXT, max_size=3)))
def test_any_annotation_can_be_read(text: str, kinds: dict[str, object]) -> None:
    """Devices of other kinds that cannot be read are left out; nothing raises."""
    for one in (text, json.dumps(kinds), json.dumps({"npu": kinds}), json.dumps({"npu": [kinds]})):
        found, error = parse_allocated(one)
        assert (found is None) == bool(error)
