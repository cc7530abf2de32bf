"""The scopes that GPUs of a host share: sets of the table of NVLink partitions, PCIe scopes, NUMA nodes, CPU sockets.

PCIe scopes are within NUMA nodes, and these within sockets; each kind is disjoint, so the pods that fit are a sum. The
sets of a table may overlap: the largest number of disjoint ones is searched, in a limited number of steps that no table
of real hosts needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from engine.api.device import Device

Partitions = Mapping[int, tuple[tuple[int, ...], ...]]
Scope = Callable[[Device], Hashable]
Minors = tuple[int, ...]

_STEPS: Final = 2_000


def numa_scope(device: Device) -> Hashable:
    """Return the NUMA scope; a device with an unknown NUMA node shares none but that of its PCIe scope."""
    return (device.socket, device.numa) if device.numa is not None else pcie_scope(device)


def socket_scope(device: Device) -> Hashable:
    """Return the scope of a CPU socket; a device with an unknown socket shares none but that of its NUMA scope."""
    return ("socket", device.socket) if device.socket is not None else numa_scope(device)


def pcie_scope(device: Device) -> Hashable:
    """Return the PCIe scope; a device with an unknown one is alone in it."""
    return (device.socket, device.numa, device.pcie) if device.pcie else ("alone", device.minor)


def scope_numbers(devices: Sequence[Device], scope: Scope) -> list[int]:
    """Return the number of each device's scope, from 1 in the order of the devices; 0 is no scope."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(scope(one), len(numbers) + 1) for one in devices]


def reported_scopes(devices: Sequence[Device], partitions: Partitions) -> frozenset[str]:
    """Return the scopes that a host reports of its GPUs."""
    gpus = [one for one in devices if one.kind == "gpu"]
    found = {"nvlink"} if any(size > 1 for size in partitions) else set()
    if any(one.pcie for one in gpus):
        found |= {"pcie", "numa"}
    if any(one.numa is not None for one in gpus):
        found.add("numa")
    if any(one.socket is not None for one in gpus):
        found.add("socket")
    return frozenset(found)


def pods_in_scope(devices: Sequence[Device], gpus: int, scope: str, partitions: Partitions) -> int:
    """Return how many pods get `gpus` of these free GPUs each, every pod within one scope."""
    if scope == "nvlink":
        return len(disjoint_sets(linked_sets({one.minor for one in devices}, gpus, partitions)))
    sizes: dict[Hashable, int] = {}
    for one in devices:
        key = _SCOPE_OF[scope](one)
        sizes[key] = sizes.get(key, 0) + 1
    return sum(size // gpus for size in sizes.values())


def linked_sets(minors: set[int], gpus: int, partitions: Partitions) -> tuple[Minors, ...]:
    """Return the sets of so many GPUs in the table that are free, in the order of the table."""
    return tuple(one for one in partitions.get(gpus, ()) if len(set(one)) == gpus and minors.issuperset(one))


def within_one(devices: Sequence[Device], scope: str, partitions: Partitions) -> Partitions:
    """Return the table with the sets that are in one PCIe scope, NUMA node or socket alone."""
    of = {one.minor: _SCOPE_OF[scope](one) for one in devices}
    return {
        size: tuple(one for one in sets if len({of.get(minor) for minor in one}) == 1)
        for size, sets in partitions.items()
    }


def scope_of(scope: str) -> Scope:
    """Return the function from a device to its scope of this name; not for nvlink."""
    return _SCOPE_OF[scope]


@lru_cache(maxsize=1024)
def disjoint_sets(sets: tuple[Minors, ...]) -> tuple[Minors, ...]:
    """Return as many sets as possible that have no GPU in common, the earliest ones where several choices are equal."""
    best: tuple[Minors, ...] = ()
    steps = _STEPS

    def search(rest: Sequence[Minors], chosen: tuple[Minors, ...]) -> None:
        nonlocal best, steps
        steps -= 1
        if len(chosen) > len(best):
            best = chosen
        free = {minor for one in rest for minor in one}
        if not rest or steps <= 0 or len(chosen) + min(len(rest), len(free) // len(rest[0])) <= len(best):
            return
        first = rest[0]
        search([one for one in rest[1:] if set(one).isdisjoint(first)], (*chosen, first))
        search(rest[1:], chosen)

    search(sets, ())
    return best


_SCOPE_OF: Final[Mapping[str, Scope]] = {"pcie": pcie_scope, "numa": numa_scope, "socket": socket_scope}
