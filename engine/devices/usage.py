"""Assigns a host's holders to its devices: those with known devices first, then the others where they fit.

A holder with unknown devices (a pod of an ordinary device plugin, a reservation made by count) is assigned as the
chooser would do it: whole GPUs first, then shares by best fit, the larger ones first, equal ones by the holder's key.
Holders that no longer fit share devices in use: nothing goes below 0. The result depends on the devices and the
holders alone, not on their history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.api.device import DeviceRequest, DeviceUse
from engine.devices.free import FreeDevice, card_times, card_use, completed, devices_asked, gpu_use, share_use, unused
from engine.devices.gpus import best_fit, tightest_fit
from engine.devices.inventory import Inventory
from engine.devices.scopes import Partitions
from engine.resources.names import WHOLE

Holder = tuple[str, ...]
_Size = tuple[object, ...]  # comparable


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """A holder's pods on a host: `count` pods of one request, and the devices of those with known devices.

    `uses`: one tuple a pod, at most `count`. `uid`: of an existing pod that does not name its devices, to look
    up those that its host reports.
    """

    request: DeviceRequest
    uses: tuple[tuple[DeviceUse, ...], ...] = ()
    count: int = 1
    by_name: bool = True  # whole GPUs under a vendor's name: the node's numbers count them
    uid: str = ""


def free_devices(inventory: Inventory, holdings: Mapping[Holder, DeviceHolding]) -> list[FreeDevice]:
    """Return the free part of each device, in the order of the inventory."""
    left = [unused(one) for one in inventory.devices]
    unknown: list[tuple[_Size, Holder, int, DeviceRequest]] = []
    finder = _Finder(left)
    for holder, holding in holdings.items():
        for uses in holding.uses:
            rest = finder.take(uses, holding.request)
            if rest is not None:
                unknown.append((_size(rest), holder, 1, rest))
        missing = holding.count - len(holding.uses)
        if missing > 0:
            unknown.append((_size(holding.request), holder, missing, holding.request))
    unknown.sort(key=lambda one: one[:3])
    for _, _, pods, request in unknown:
        for _ in range(pods):
            if not _assign(left, request, inventory):
                break  # no device has anything left: more of the same change nothing
    return left


class _Finder:
    """Finds the device of a use: by the address of its virtual function or by its id, else by its minor."""

    def __init__(self, left: Sequence[FreeDevice]) -> None:
        self._left = left
        self._ids: dict[tuple[str, str], FreeDevice] | None = None
        self._minors: dict[tuple[str, int], FreeDevice] = {}
        self._buses: dict[str, FreeDevice] = {}

    def take(self, uses: Sequence[DeviceUse], request: DeviceRequest) -> DeviceRequest | None:
        """Take one pod's uses; return the rest of its request, held on unknown devices.

        A use of a device that the host does not have is part of it: the pod has a device, only not the named one.
        """
        if self._ids is None:
            self._ids = {(one.device.kind, one.device.id): one for one in self._left if one.device.id}
            self._minors = {(one.device.kind, one.device.minor): one for one in self._left}
            self._buses = {function.bus: one for one in self._left for function in one.device.functions}
        shares = {"rdma": 0, "fpga": 0}
        taken: set[tuple[str, int]] = set()
        for use in uses:
            one = self._ids.get((use.kind, use.id)) or self._minors.get((use.kind, use.minor))
            for function in use.functions:
                # Its address is unique on the host, also where the device has another number by now.
                there = self._buses.get(function.bus)
                if there is not None and there.device.kind == use.kind:
                    there.withdraw({function.bus})  # an entry may name functions of several devices
                    one = there
            if one is None:
                continue
            if (one.device.kind, one.device.minor) in taken:
                # Named twice, by its id or by an address: the pod has another device, only not the named one.
                one.withdraw({function.bus for function in use.functions})
                continue
            taken.add((one.device.kind, one.device.minor))
            one.take(completed(use, one.device))
            if use.kind in shares:
                shares[use.kind] += use.share
        number = Counter(kind for kind, _ in taken)
        others = tuple(
            (kind, replace(part, gpus=missing))
            for kind, part in request.others
            if (missing := part.gpus - number[kind]) > 0
        )
        rest = (request.gpus - number["gpu"], request.rdma - shares["rdma"], request.fpga - shares["fpga"])
        if max(rest) <= 0 and not others:
            return None
        return replace(request, gpus=max(0, rest[0]), rdma=max(0, rest[1]), fpga=max(0, rest[2]), others=others)


def _size(request: DeviceRequest) -> _Size:
    """Return the sort key by which holders of unknown devices are assigned: the largest first, of each kind."""
    return (
        not request.whole,
        -request.gpus,
        -request.core,
        -request.ratio,
        -request.memory,
        -request.rdma,
        -request.fpga,
        tuple((kind, _size(part)) for kind, part in request.others),
    )


def _assign(left: Sequence[FreeDevice], request: DeviceRequest, inventory: Inventory) -> bool:
    """Assign one pod; return False when its devices have no part left for it or an equal pod."""
    changed = False
    if request.gpus > 0:
        changed = _assign_gpus([one for one in left if one.device.kind == "gpu"], request, inventory.partitions)
    for kind, part in request.others:
        changed |= _assign_gpus([one for one in left if one.device.kind == kind], part, {})
    for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
        if percent > 0:
            others = [one for one in left if one.device.kind == kind]
            if kind == "rdma" and request.particular:
                fitting = [one for one in others if card_times(request, one)]
                others = fitting if len(fitting) >= request.cards[0] else others
            for one in _others(others, percent):
                changed |= one.holders == 0 or one.share > 0
                one.take(card_use(request, one) if kind == "rdma" else share_use(percent, one.device))
    return changed


def _assign_gpus(gpus: Sequence[FreeDevice], request: DeviceRequest, partitions: Partitions) -> bool:
    """Assign the GPUs of one pod, or devices that are counted like them; return as `_assign`."""
    changed = False
    chosen = _whole(gpus, request.gpus, partitions) if request.whole else _shares(gpus, request)
    chosen += _crowded(gpus, chosen, request.gpus - len(chosen))
    for one in chosen:
        changed |= one.holders == 0 or one.ratio > 0 or one.core > 0 or one.memory > 0
        one.take(gpu_use(request, one.device))
    return changed


def _whole(gpus: Sequence[FreeDevice], wanted: int, partitions: Partitions) -> list[FreeDevice]:
    empty = {one.device.minor: one for one in gpus if one.empty}
    if len(empty) <= wanted:
        return list(empty.values())
    chosen = tightest_fit([one.device for one in empty.values()], wanted, partitions=partitions)
    return [empty[one.minor] for one in chosen]


def _shares(gpus: Sequence[FreeDevice], request: DeviceRequest) -> list[FreeDevice]:
    return [one for one, _ in best_fit(gpus, request)[: request.gpus]]


def _others(devices: Sequence[FreeDevice], percent: int) -> list[FreeDevice]:
    if percent < WHOLE:
        fitting = [one for one in devices if one.share >= percent]
        chosen = sorted(fitting, key=lambda one: (one.empty, one.share, one.device.minor))[:1]
        return chosen or _crowded(devices, chosen, 1)
    wanted = devices_asked(percent)
    chosen = [one for one in devices if one.empty][:wanted]
    return chosen + _crowded(devices, chosen, wanted - len(chosen))


def _crowded(devices: Sequence[FreeDevice], chosen: Sequence[FreeDevice], missing: int) -> list[FreeDevice]:
    """Return devices for pods that do not fit: unhealthy ones without holders, then the freest ones."""
    taken = {one.device.minor for one in chosen}
    others = [one for one in devices if one.device.minor not in taken]
    others.sort(
        key=lambda one: (
            one.device.healthy or one.holders > 0,
            -one.ratio,
            -one.core,
            -one.share,
            one.device.minor,
        )
    )
    return others[: max(0, missing)]
