"""Dense arrays of hosts with unlike numbers of devices."""

from __future__ import annotations

import numpy as np

from engine.devices.ledger import Arrays, DeviceTables
from engine.planner.tree import Ints64

HOSTS = {0: 8, 1: 3, 2: 0, 3: 200, 4: 9, 5: 8}


def bank_of(hosts: dict[int, int]) -> DeviceTables:
    bank = DeviceTables({"share": np.int16})
    for row, number in hosts.items():
        bank.put(row, number, {"share": [row + 1] * number})
    return bank


def added(arrays: Arrays) -> Ints64:
    result: Ints64 = arrays["share"].sum(axis=0, dtype=np.int64)
    return result


def test_every_host_is_counted_with_its_own_devices() -> None:
    """Any order of rows, rows twice, rows that nobody set."""
    bank = bank_of(HOSTS)
    rows = np.array([5, 3, 99, 0, 4, 2, 1, 5, 70])
    assert bank.count(rows, added).tolist() == [48, 800, 0, 8, 45, 0, 6, 48, 0]
    assert bank.read(1, "share") == [[2, 2, 2, 0, 0, 0, 0, 0]]
    assert bank.read(2, "share") is None
    assert bank.read(99, "share") is None


def test_a_host_with_very_many_devices_does_not_make_the_others_high() -> None:
    """The arrays that are counted over hold eight devices a host, but for the host that has more."""
    seen: list[tuple[int, ...]] = []

    def shapes(arrays: Arrays) -> Ints64:
        seen.append(arrays["share"].shape)
        return added(arrays)

    bank_of({**dict.fromkeys(range(1000), 8), 1000: 200}).count(np.arange(1001), shapes)
    assert seen == [(8, 1000), (256, 1)]


def test_a_host_that_changes_its_number_of_devices_leaves_nothing_behind() -> None:
    """More, fewer, none: places are used again, and start from zero."""
    bank = bank_of(HOSTS)
    for number in (20, 2, 0, 8, 3):
        bank.put(0, number, {"share": [7] * number})
        assert bank.count(np.arange(6), added).tolist() == [7 * number, 6, 0, 800, 45, 48]
    bank.put(0, 0, {"share": []})
    bank.put(2, 5, {})
    assert bank.count(np.array([0, 2]), added).tolist() == [0, 0]
