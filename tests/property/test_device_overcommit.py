"""GPUs that offer more than they have: parts up to the offer and never beyond it, whole ones alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices.fit import slots
from engine.devices.free import offered_memory
from engine.devices.inventory import Inventory
from engine.resources.names import CORE, MEMORY, RATIO
from engine.resources.overcommit import Overcommit
from tests.support.devices import GIB, HeldDevices, gpu, memory, part, whole

ASKED = (
    whole(1),
    whole(2),
    part(25),
    part(50),
    part(70),
    part(40, gpus=2),
    memory(30),
    memory(80),
    memory(10, core=20),
)
devices = st.lists(
    st.builds(
        lambda minor, size, core, ratio: replace(gpu(minor, size=size), core=core, ratio=ratio),
        st.integers(0, 9),
        st.sampled_from([40, 80]),
        st.sampled_from([100, 150, 200, 1000]),
        st.sampled_from([100, 125, 200, 1000]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.minor,
)


def taken(uses: list[DeviceUse]) -> tuple[int, int, int]:
    return sum(one.core for one in uses), sum(one.ratio for one in uses), sum(one.memory for one in uses)


@given(listed=devices, turns=st.lists(st.tuples(st.sampled_from(ASKED), st.integers(1, 4)), max_size=6))
def test_no_gpu_gives_more_than_it_offers(listed: list[Device], turns: list[tuple[DeviceRequest, int]]) -> None:
    """Every way of counting agrees on every step, and what is counted can be chosen."""
    listed = sorted(listed, key=lambda one: one.minor)
    ledger = HeldDevices(Inventory(tuple(listed)))
    held: dict[int, list[tuple[DeviceRequest, DeviceUse]]] = defaultdict(list)
    for turn, (asked, count) in enumerate(turns):
        room = ledger.slots_of(0, asked)
        assert room == slots(ledger.left(0), asked, partitions={}) == ledger.slots(np.array([0]), asked)[0]
        assert room <= ledger.slots(np.array([0]), asked, empty=True)[0]
        chosen = ledger.choose(0, asked, count)
        assert len(chosen) == min(room, count)
        ledger.hold(0, ("pod", str(turn)), asked, chosen)
        for use in (use for pod in chosen for use in pod):
            held[use.minor].append((asked, use))
        if chosen:
            assert ledger.slots_of(0, asked) <= room - len(chosen)
    for one in listed:
        core, ratio, size = taken([use for _, use in held[one.minor]])
        assert core <= one.core and ratio <= one.ratio and size <= offered_memory(one)
        if any(asked.whole for asked, _ in held[one.minor]):
            assert len(held[one.minor]) == 1


@given(listed=devices, asked=st.sampled_from(ASKED))
def test_an_empty_host_offers_as_much_as_one_without_holders(listed: list[Device], asked: DeviceRequest) -> None:
    ledger = HeldDevices(Inventory(tuple(sorted(listed, key=lambda one: one.minor))))
    rows = np.array([0])
    assert ledger.slots(rows, asked, empty=True).tolist() == ledger.slots(rows, asked).tolist()


@given(
    gpus=st.integers(1, 8),
    factor=st.tuples(st.integers(100, 1000), st.integers(100, 1000)),
    reported=st.fixed_dictionaries(
        {},
        optional={
            CORE: st.integers(0, 10_000),
            RATIO: st.integers(0, 10_000),
            MEMORY: st.integers(0, 10_000).map(lambda gib: gib * GIB),
        },
    ),
)
@example(gpus=1, factor=(101, 100), reported={CORE: 0})
def test_a_host_offers_no_more_than_its_node_reports(
    gpus: int, factor: tuple[int, int], reported: dict[str, int]
) -> None:
    """Nor more than the policy says, and never less than there is."""
    size = 80 * GIB * gpus
    core, ratio = Overcommit(*factor).offered({}, reported, gpus=gpus, memory=size)
    assert 100 <= core <= factor[0] and 100 <= ratio <= factor[1]
    assert core == 100 or core * gpus <= reported.get(CORE, core * gpus)
    assert ratio == 100 or ratio * gpus <= reported.get(RATIO, ratio * gpus)
    if RATIO not in reported and ratio > 100:
        assert size * ratio // 100 <= reported.get(MEMORY, size * ratio)
    some = Overcommit(*factor, (("pool", "a"),))
    assert some.offered({"pool": "b"}, reported, gpus=gpus, memory=size) == (100, 100)
    assert some.offered({"pool": "a"}, reported, gpus=gpus, memory=size) == (core, ratio)
