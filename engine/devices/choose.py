"""Chooses the devices of a pod: whole ones by the tightest shared scope, shares by best fit.

Whole GPUs: a set from the table of NVLink partitions, the one that breaks fewest larger sets; else one PCIe scope, one
NUMA node, the node; among scopes of a level the one with the fewest free devices that is enough, so that large free
scopes stay whole. Shares: the fullest device that still takes them. RDMA and FPGA devices come after the GPUs, from
their PCIe scopes where there are some. Nothing depends on the order of devices or of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices.fit import slots, times
from engine.devices.free import FreeDevice, devices_asked, gpu_use, share_use
from engine.devices.resources import WHOLE

Partitions = Mapping[int, tuple[tuple[int, ...], ...]]
Scope = Callable[[Device], Hashable]


def choose_devices(
    devices: Sequence[FreeDevice], request: DeviceRequest, count: int, *, partitions: Partitions
) -> tuple[tuple[DeviceUse, ...], ...]:
    """Return the devices of each of `count` pods, fewer when no more fit: GPUs, RDMA, FPGA, each by minor."""
    left = sorted((one.copy() for one in devices), key=lambda one: (one.device.kind, one.device.minor))
    fitting = min(count, slots(left, request))
    if fitting <= 0:
        return ()
    gpus = [one for one in left if one.device.kind == "gpu"]
    chosen = _gpus(gpus, request, fitting, partitions)
    answer: list[tuple[DeviceUse, ...]] = []
    for pod_gpus in chosen:
        uses = [gpu_use(request, one.device) for one in pod_gpus]
        for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
            if percent > 0:
                nearest = _nearest_devices(
                    [one for one in left if one.device.kind == kind], percent, [one.device for one in pod_gpus]
                )
                uses.extend(_taken(one, share_use(percent, one.device)) for one in nearest)
        answer.append(tuple(uses))
    return tuple(answer)


def tightest_fit(devices: Sequence[Device], wanted: int, *, partitions: Partitions) -> list[Device]:
    """Return `wanted` of these free devices (sorted by minor, at least as many) that share the deepest scope."""
    minors = {one.minor for one in devices}
    linked = [one for one in partitions.get(wanted, ()) if len(set(one)) == wanted and minors.issuperset(one)]
    if linked:
        larger = [
            [one for one in partitions[size] if minors.issuperset(one)]
            for size in sorted(partitions, reverse=True)
            if size > wanted
        ]
        # The table is in order of preference, and min() keeps the first of equals.
        best = min(linked, key=lambda one: _broken(set(one), larger))
        return [one for one in devices if one.minor in best]
    return _by_topology(list(devices), wanted)


def best_fit(devices: Sequence[FreeDevice], request: DeviceRequest) -> list[tuple[FreeDevice, int]]:
    """Return the GPUs that take a share, and how many times each, with the fullest one first.

    Empty devices come last: the smallest first, then those in scopes that are broken already.
    """
    empty = [one.device for one in devices if one.empty]
    in_pcie, in_numa = _sizes(empty, _pcie), _sizes(empty, _numa)

    def key(one: FreeDevice) -> tuple[int, ...]:
        device = one.device
        asked = (one.memory, one.ratio) if request.memory > 0 else (one.ratio, one.memory)
        scopes = (in_pcie.get(_pcie(device), 0), in_numa.get(_numa(device), 0)) if one.empty else (0, 0)
        return (int(one.empty), asked[0], one.core, asked[1], *scopes, device.minor)

    often = [(one, times(request, one.core, one.ratio, one.memory, one.device.memory)) for one in devices]
    return sorted((pair for pair in often if pair[1]), key=lambda pair: key(pair[0]))


def _gpus(gpus: list[FreeDevice], request: DeviceRequest, count: int, partitions: Partitions) -> list[list[FreeDevice]]:
    if request.gpus <= 0:
        return [[] for _ in range(count)]
    if request.whole:
        return [_whole_gpus(gpus, request, partitions) for _ in range(count)]
    # Fill the fullest device first, no device more often than there are pods; dealing the places out in turn then
    # never gives a pod the same device twice.
    places: list[FreeDevice] = []
    for one, often in best_fit(gpus, request):
        places.extend([one] * min(often, count, count * request.gpus - len(places)))
    dealt = [sorted(places[pod::count], key=lambda one: one.device.minor) for pod in range(count)]
    for one in places:
        one.take(gpu_use(request, one.device))
    return dealt


def _whole_gpus(gpus: list[FreeDevice], request: DeviceRequest, partitions: Partitions) -> list[FreeDevice]:
    free = {
        one.device.minor: one
        for one in gpus
        if one.empty and times(request, one.core, one.ratio, one.memory, one.device.memory)
    }
    chosen = tightest_fit([one.device for one in free.values()], request.gpus, partitions=partitions)
    for device in chosen:
        free[device.minor].take(gpu_use(request, device))
    return [free[device.minor] for device in chosen]


def _nearest_devices(devices: list[FreeDevice], percent: int, gpus: list[Device]) -> list[FreeDevice]:
    """Return the RDMA or FPGA devices of one pod: from the PCIe scopes of its GPUs in turn, then from their NUMA."""
    scopes = [one.pcie for one in gpus if one.pcie]
    nodes = {one.numa for one in gpus if one.numa is not None}

    def distance(device: Device) -> int:
        if device.pcie and device.pcie in scopes:
            return 0
        return 1 if device.numa is not None and device.numa in nodes else 2

    if percent < WHOLE:
        fitting = [one for one in devices if one.share >= percent]
        return [min(fitting, key=lambda one: (distance(one.device), one.empty, one.share, one.device.minor))]
    free = {one.device.minor: one for one in devices if one.empty and one.share >= WHOLE}
    wanted = devices_asked(percent)
    if not gpus:
        return [free[one.minor] for one in tightest_fit([one.device for one in free.values()], wanted, partitions={})]
    turn: dict[str, int] = {}
    keys: dict[int, tuple[int, int, int]] = {}
    for minor, one in free.items():
        scope = one.device.pcie
        turn[scope] = turn.get(scope, -1) + 1
        far = distance(one.device)
        keys[minor] = (far, turn[scope] if not far else 0, scopes.index(scope) if not far else 0)
    nearest = sorted(free, key=lambda minor: (keys[minor], minor))[:wanted]
    return [free[minor] for minor in sorted(nearest)]


def _taken(one: FreeDevice, use: DeviceUse) -> DeviceUse:
    one.take(use)
    return use


def _broken(minors: set[int], larger: Sequence[Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """Return how many of the free partitions of each size a choice breaks, the largest size first."""
    return tuple(sum(1 for one in free if not minors.isdisjoint(one)) for free in larger)


def _by_topology(devices: list[Device], wanted: int) -> list[Device]:
    if wanted >= len(devices):
        return devices
    if not any(one.pcie or one.numa is not None for one in devices):
        return devices[:wanted]  # what follows comes to the same, in ten times the time; most hosts report no topology
    around = _sizes(devices, _numa)
    enough = [one for one in _scopes(devices, _pcie) if len(one) >= wanted]
    if enough:
        best = min(enough, key=lambda one: (len(one), around[_numa(one[0])], one[0].minor))
        return best[:wanted]
    enough = [one for one in _scopes(devices, _numa) if len(one) >= wanted]
    if enough:
        return _over(min(enough, key=lambda one: (len(one), one[0].minor)), wanted, _pcie)
    return _over(devices, wanted, _numa)


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


def _numa(device: Device) -> Hashable:
    """Return the NUMA scope; a device with an unknown NUMA node shares none but that of its PCIe scope."""
    return device.numa if device.numa is not None else _pcie(device)


def _pcie(device: Device) -> Hashable:
    return (device.numa, device.pcie) if device.pcie else ("alone", device.minor)
