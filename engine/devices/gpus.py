"""Chooses the GPUs of a pod: whole ones by the tightest shared scope, shares by best fit.

Whole GPUs: a set from the table of NVLink partitions, the one that breaks fewest larger sets; else one PCIe scope, one
NUMA node, one socket, the node; among scopes of a level the one with the fewest free devices that is enough, so that
large free scopes stay whole. Shares: the fullest device that still takes them. To spread, it is the scope with most
free devices, and the device that is used least. Nothing depends on the order of devices or of calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from engine.api.device import SCOPES, Device, DeviceRequest
from engine.devices.fit import slots, times_on
from engine.devices.free import FreeDevice, gpu_use
from engine.devices.scopes import (
    Minors,
    Partitions,
    Scope,
    disjoint_sets,
    linked_sets,
    numa_scope,
    pcie_scope,
    socket_scope,
    within_one,
)


def choose_gpus(
    devices: Sequence[FreeDevice], request: DeviceRequest, count: int, *, partitions: Partitions
) -> list[list[FreeDevice]]:
    """Return the GPUs of each of `count` pods, which fit, by minor; they are taken from `devices` (sorted by minor)."""
    gpus = [one for one in devices if one.device.kind == "gpu" and request.accepts(one.device)]
    request = replace(request, rdma=0, fpga=0, others=())
    if not request.scope:
        request = _nearest_scope(gpus, request, count, partitions)
    return _gpus(gpus, request, count, partitions)


def choose_alike(devices: list[FreeDevice], request: DeviceRequest, count: int) -> list[list[FreeDevice]]:
    """Return the devices of each of `count` pods, which fit, of a kind that counts like GPUs; they are taken."""
    return _gpus(devices, request, count, {})


def tightest_fit(devices: Sequence[Device], wanted: int, *, partitions: Partitions) -> list[Device]:
    """Return `wanted` of these free devices (sorted by minor, at least as many) that share the deepest scope."""
    best = _linked({one.minor for one in devices}, wanted, partitions)
    return [one for one in devices if one.minor in best] if best else _by_topology(list(devices), wanted)


def best_fit(devices: Sequence[FreeDevice], request: DeviceRequest) -> list[tuple[FreeDevice, int]]:
    """Return the GPUs that take a share, and how many times each, with the fullest one first.

    Empty devices come last: the smallest first, then those in scopes that are broken already.
    """
    empty = [one.device for one in devices if one.empty]
    in_pcie, in_numa = _sizes(empty, pcie_scope), _sizes(empty, numa_scope)

    def key(one: FreeDevice) -> tuple[int, ...]:
        device = one.device
        asked = (one.memory, one.ratio) if request.memory > 0 else (one.ratio, one.memory)
        scopes = (in_pcie.get(pcie_scope(device), 0), in_numa.get(numa_scope(device), 0)) if one.empty else (0, 0)
        return (int(one.empty), asked[0], one.core, asked[1], *scopes, device.minor)

    often = [(one, times_on(one, request)) for one in devices]
    return sorted((pair for pair in often if pair[1]), key=lambda pair: key(pair[0]))


def _gpus(gpus: list[FreeDevice], request: DeviceRequest, count: int, partitions: Partitions) -> list[list[FreeDevice]]:
    if request.gpus <= 0:
        return [[] for _ in range(count)]
    if request.whole:
        return _whole_gpus(gpus, request, count, partitions)
    if request.spread:
        return [_least_used(gpus, request) for _ in range(count)]
    # Fill the fullest device first, no device more often than there are pods; dealing the places out in turn then
    # never gives a pod the same device twice.
    places: list[FreeDevice] = []
    for one, often in best_fit(gpus, request):
        places.extend([one] * min(often, count, count * request.gpus - len(places)))
    dealt = [sorted(places[pod::count], key=lambda one: one.device.minor) for pod in range(count)]
    for one in places:
        one.take(gpu_use(request, one.device))
    return dealt


def _least_used(gpus: list[FreeDevice], request: DeviceRequest) -> list[FreeDevice]:
    """Return the GPUs of one pod with shares: those that take the request most often, of different scopes if possible.

    Taking them lets as many pods follow as any other choice would, also if each needs several GPUs.
    """
    empty = [one.device for one in gpus if one.empty]
    in_pcie, in_numa = _sizes(empty, pcie_scope), _sizes(empty, numa_scope)

    def key(pair: tuple[FreeDevice, int]) -> tuple[int, ...]:
        one, often = pair
        scopes = (in_numa.get(numa_scope(one.device), 0), in_pcie.get(pcie_scope(one.device), 0))
        return (-often, -one.ratio, -one.core, -one.memory, *(-size for size in scopes), one.device.minor)

    chosen = [one for one, _ in sorted(best_fit(gpus, request), key=key)[: request.gpus]]
    for one in chosen:
        one.take(gpu_use(request, one.device))
    return sorted(chosen, key=lambda one: one.device.minor)


def _nearest_scope(
    devices: Sequence[FreeDevice], request: DeviceRequest, count: int, partitions: Partitions
) -> DeviceRequest:
    """Return the request with the nearest scope that every one of `count` pods can keep to, if there is one."""
    for scope in SCOPES:
        within = request.within(scope)
        if within.scope and slots(devices, within, partitions=partitions) >= count:
            return within
    return request


def _whole_gpus(
    gpus: list[FreeDevice], request: DeviceRequest, count: int, partitions: Partitions
) -> list[list[FreeDevice]]:
    """Return the GPUs of each of `count` pods, which fit: chosen for all pods together.

    Linked sets first, as many as possible. Of the rest each pod takes one PCIe scope, else one NUMA node, else one
    socket, while there is one with enough devices: that lowers the pods which fit into such scopes by one, so no order
    gives more.
    """
    free = {one.device.minor: one for one in gpus if one.empty and times_on(one, request)}
    if request.scope in ("pcie", "numa", "socket"):
        partitions = within_one([one.device for one in free.values()], request.scope, partitions)
    chosen: list[list[FreeDevice]] = []
    linked = _linked_sets(set(free), request.gpus, count, partitions)
    for number in range(count):
        devices = [one.device for one in free.values()]
        minors = linked[number] if number < len(linked) else ()
        picked = [one for one in devices if one.minor in minors] or _by_topology(
            devices, request.gpus, spread=request.spread
        )
        chosen.append([free.pop(device.minor) for device in picked])
        for one in chosen[-1]:
            one.take(gpu_use(request, one.device))
    return chosen


def _linked_sets(minors: set[int], wanted: int, count: int, partitions: Partitions) -> list[Minors]:
    """Return disjoint linked sets for at most `count` pods; as many as there can be, even if sets overlap."""
    most = disjoint_sets(linked_sets(minors, wanted, partitions))[:count]
    left, found = set(minors), list[Minors]()
    while len(found) < len(most) and (best := _linked(left, wanted, partitions)):
        found.append(best)
        left -= set(best)
    return found if len(found) == len(most) else list(most)


def _linked(minors: set[int], wanted: int, partitions: Partitions) -> Minors:
    """Return the free set of so many linked GPUs that breaks fewest larger ones; none: ()."""
    linked = linked_sets(minors, wanted, partitions)
    larger = [
        [one for one in partitions[size] if minors.issuperset(one)]
        for size in sorted(partitions, reverse=True)
        if size > wanted and linked
    ]
    # The table is in order of preference, and min() keeps the first of equals.
    return min(linked, key=lambda one: _broken(set(one), larger), default=())


def _broken(minors: set[int], larger: Sequence[Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """Return how many of the free partitions of each size a choice breaks, the largest size first."""
    return tuple(sum(1 for one in free if not minors.isdisjoint(one)) for free in larger)


def _by_topology(devices: list[Device], wanted: int, *, spread: bool = False) -> list[Device]:
    """Return devices of one scope if possible: of those with enough the smallest, to `spread` the largest."""
    if wanted >= len(devices):
        return devices
    if not any(one.pcie or one.numa is not None or one.socket is not None for one in devices):
        return devices[:wanted]  # what follows comes to the same, in ten times the time; most hosts report no topology
    around = _sizes(devices, numa_scope)
    enough = [one for one in _scopes(devices, pcie_scope) if len(one) >= wanted]
    if enough:
        sign = -1 if spread else 1
        best = min(enough, key=lambda one: (sign * len(one), sign * around[numa_scope(one[0])], one[0].minor))
        return best[:wanted]
    for scope, finer in ((numa_scope, pcie_scope), (socket_scope, numa_scope)):
        enough = [one for one in _scopes(devices, scope) if len(one) >= wanted]
        if enough:
            best = min(enough, key=lambda one: (-len(one) if spread else len(one), one[0].minor))
            return _over(best, wanted, finer)
    return _over(devices, wanted, socket_scope)


def _over(devices: list[Device], wanted: int, scope: Scope) -> list[Device]:
    """Return devices of several scopes: the largest scopes whole, the rest from the scope that fits tightest."""
    scopes = sorted(_scopes(devices, scope), key=lambda one: (-len(one), one[0].minor))
    chosen: list[Device] = []
    while len(chosen) < wanted:
        missing = wanted - len(chosen)
        enough = [one for one in scopes if len(one) >= missing]
        if enough:
            chosen += _by_topology(min(enough, key=lambda one: (len(one), one[0].minor)), missing)
        else:
            chosen += scopes.pop(0)
    return sorted(chosen, key=lambda one: one.minor)


def _scopes(devices: Sequence[Device], scope: Scope) -> list[list[Device]]:
    groups: dict[Hashable, list[Device]] = {}
    for one in devices:
        groups.setdefault(scope(one), []).append(one)
    return list(groups.values())


def _sizes(devices: Sequence[Device], scope: Scope) -> dict[Hashable, int]:
    sizes: dict[Hashable, int] = {}
    for one in devices:
        sizes[scope(one)] = sizes.get(scope(one), 0) + 1
    return sizes
