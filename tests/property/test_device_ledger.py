"""The ledger of devices over any history: nothing beyond a device's own, and never other than counted afresh."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.api.device import DeviceRequest, DeviceUse
from engine.devices.choose import choose_devices
from engine.devices.fit import slots
from engine.devices.inventory import Inventory
from engine.devices.usage import free_devices
from tests.support.devices import HeldDevices, card, eight, gpu, memory, part, whole

HOSTS = (
    eight(cards=tuple(card(at, numa=at // 2, pcie=f"p{at}") for at in range(4))),
    Inventory((gpu(0, size=40), gpu(1, size=80), gpu(2, size=80)), {2: ((1, 2),)}),
    Inventory(tuple(replace(gpu(at, size=0), id="") for at in range(2))),
)
REQUESTS = (
    whole(1),
    whole(2, rdma=100),
    whole(4),
    whole(2).within("pcie"),
    whole(4).within("numa"),
    whole(2).within("nvlink"),
    part(50),
    part(30),
    part(40, gpus=2),
    memory(30),
    memory(10, gpus=2, core=20),
    replace(part(25), rdma=25),
    DeviceRequest(rdma=200),
)
row = st.integers(0, len(HOSTS) - 1)
request = st.sampled_from(REQUESTS)
holder = st.integers(0, 5).map(lambda one: ("pod", str(one)))
Known = tuple[DeviceRequest, tuple[tuple[DeviceUse, ...], ...], int]


class Histories(RuleBasedStateMachine):
    """Place, free, fail, heal, forget and bring back, with devices that are known and such that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = HeldDevices()
        self.holds: dict[tuple[int, tuple[str, ...]], Known] = {}
        self.hosts = dict(enumerate(HOSTS))
        for at, one in self.hosts.items():
            self.ledger.set_host(at, one)

    @rule(at=row, who=holder, what=request, count=st.integers(1, 3))
    def place(self, at: int, who: tuple[str, ...], what: DeviceRequest, count: int) -> None:
        self.free(at, who)
        room = self.ledger.slots_of(at, what)
        chosen = self.ledger.choose(at, what, count)
        assert len(chosen) == min(room, count)
        for uses in chosen:
            named = [(one.kind, one.minor) for one in uses]
            assert len(set(named)) == len(named)
            assert len([kind for kind, _ in named if kind == "gpu"]) == what.gpus
        if chosen:
            self.ledger.hold(at, who, what, chosen, count=len(chosen))
            self.holds[at, who] = (what, chosen, len(chosen))
            if all(count == len(uses) for (host, _), (_, uses, count) in self.holds.items() if host == at):
                assert self.ledger.slots_of(at, what) <= room - len(chosen)

    @rule(at=row, who=holder, what=request, count=st.integers(1, 5), told=st.booleans())
    def reserve(self, at: int, who: tuple[str, ...], what: DeviceRequest, count: int, told: bool) -> None:
        """By count, without a look at what is free: others may have overcommitted the host."""
        uses = self.ledger.choose(at, what, 1) if told and (at, who) not in self.holds else ()
        self.ledger.hold(at, who, what, uses, count=count)
        self.holds[at, who] = (what, uses, count)

    @rule(at=row, who=holder)
    def free(self, at: int, who: tuple[str, ...]) -> None:
        self.ledger.release(at, who)
        self.holds.pop((at, who), None)

    @rule(at=row, minor=st.integers(0, 7), healthy=st.booleans())
    def fail(self, at: int, minor: int, healthy: bool) -> None:
        devices = tuple(replace(one, healthy=healthy) if one.minor == minor else one for one in self.hosts[at].devices)
        self.hosts[at] = replace(self.hosts[at], devices=devices)
        self.ledger.set_host(at, self.hosts[at])

    @rule(at=row, back=st.booleans())
    def swap(self, at: int, back: bool) -> None:
        self.hosts[at] = HOSTS[at] if back else Inventory()
        self.ledger.set_host(at, self.hosts[at] if back else None)

    @invariant()
    def within(self) -> None:
        """No device gives more than it has; what is left is never below 0 nor above what it has."""
        for at, inventory in self.hosts.items():
            for one in self.ledger.left(at):
                assert 0 <= one.core <= one.device.core
                assert 0 <= one.ratio <= one.device.ratio
                assert 0 <= one.memory <= one.device.memory
                assert 0 <= one.share <= one.device.share
                assert one.device.healthy or not (one.core or one.ratio or one.memory or one.share)
            placed = [
                use
                for (host, _), (_, uses, count) in self.holds.items()
                for pod in uses
                for use in pod
                if host == at and count == len(uses)
            ]
            core: Counter[tuple[str, int]] = Counter()
            ratio, share, amount = core.copy(), core.copy(), core.copy()
            for use in placed:
                core[use.kind, use.minor] += use.core
                ratio[use.kind, use.minor] += use.ratio
                share[use.kind, use.minor] += use.share
                amount[use.kind, use.minor] += use.memory
            assert max([0, *core.values(), *ratio.values(), *share.values()]) <= 100
            sizes = {("gpu", one.minor): one.memory for one in HOSTS[at].devices if one.kind == "gpu"}
            assert all(amount[key] <= size for key, size in sizes.items())
            assert inventory == self.ledger.inventory(at)

    @invariant()
    def as_counted_afresh(self) -> None:
        """Warm = cold, for one host and for all, whatever order the holders came in."""
        fresh = HeldDevices()
        for at, inventory in self.hosts.items():
            fresh.set_host(at, inventory)
        for (at, who), (what, uses, count) in sorted(self.holds.items(), reverse=True):
            fresh.hold(at, who, what, uses, count=count)
        rows = np.arange(len(HOSTS))
        for what in REQUESTS:
            alone = [slots(fresh.left(at), what, partitions=one.partitions) for at, one in self.hosts.items()]
            assert self.ledger.slots(rows, what).tolist() == fresh.slots(rows, what).tolist() == alone
            assert self.ledger.slots(rows, what, empty=True).tolist() == fresh.slots(rows, what, empty=True).tolist()
        for at in self.hosts:
            assert self.ledger.left(at) == fresh.left(at)
            assert self.ledger.summary(at) == fresh.summary(at)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_the_choice_does_not_depend_on_the_order_of_devices() -> None:
    """The same devices, listed the other way round: the same answer."""
    holdings = HeldDevices()
    holdings.set_host(0, HOSTS[0])
    holdings.hold(0, ("a",), part(30), ((DeviceUse("gpu", 5, core=30, ratio=30),),))
    left = holdings.left(0)
    for what in REQUESTS:
        forwards = choose_devices(left, what, 3, partitions={})
        assert forwards == choose_devices(left[::-1], what, 3, partitions={})
        assert free_devices(HOSTS[0], {}) == free_devices(HOSTS[0], {})
