"""Chooses the devices of a pod, and counts the pods that fit: GPUs first, RDMA devices and FPGAs near them.

RDMA and FPGA devices come from the PCIe scopes of the pod's GPUs in turn where there are some. With each RDMA device
comes a virtual function if the pod wants one: the first free one by PCI address. If the RDMA devices have to share the
PCIe scopes of the GPUs (`rdma_scope` pcie), GPUs count only where there are RDMA devices for them, and the pods are
chosen one after the other. Nothing depends on the order of devices or of calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices import fit
from engine.devices.free import FreeDevice, card_times, card_use, devices_asked, gpu_use, share_use
from engine.devices.gpus import choose_alike, choose_gpus, tightest_fit
from engine.devices.scopes import Partitions, linked_sets, pcie_scope, scope_of
from engine.resources.names import WHOLE

# Pods of one host whose parts of several GPUs have RDMA devices near: they are chosen one after the other, on every
# host whose devices differ, and any user may ask for them.
MAX_JOINT: Final = 16

Cards = Mapping[str, Sequence[FreeDevice]]  # RDMA devices that take the request, by PCIe scope


def choose_devices(
    devices: Sequence[FreeDevice], request: DeviceRequest, count: int, *, partitions: Partitions
) -> tuple[tuple[DeviceUse, ...], ...]:
    """Return the devices of each of `count` pods, fewer when no more fit: GPUs, RDMA, FPGA, others, each by minor."""
    left = sorted((one.copy() for one in devices), key=lambda one: (one.device.kind, one.device.minor))
    fitting = min(count, fit.slots(left, request, partitions=partitions))
    if fitting <= 0:
        return ()
    others = list(_others(left, request, fitting))
    if request.joint:
        pods_of = zip(_joint_pods(left, request, fitting, partitions), others, strict=False)
        return tuple((*uses, *further) for uses, further in pods_of)
    chosen = choose_gpus(left, request, fitting, partitions=partitions)
    pods = [(gpus, _nearest_cards(left, request, [one.device for one in gpus])) for gpus in chosen]
    if request.rdma_scope:
        for gpus, cards in pods:
            cards.extend(_further_cards(left, request, [one.device for one in gpus], tuple(cards)))
    return tuple(
        (*_uses(left, request, gpus, cards), *further) for (gpus, cards), further in zip(pods, others, strict=True)
    )


def _others(left: Sequence[FreeDevice], request: DeviceRequest, count: int) -> Iterator[list[DeviceUse]]:
    """Take and yield the devices of the policy's kinds of each of `count` pods, which fit, where the host lists any."""
    present = {one.device.kind for one in left}
    listed = [
        (part, choose_alike([one for one in left if one.device.kind == kind], part, count))
        for kind, part in request.others
        if kind in present
    ]
    for pod in range(count):
        yield [gpu_use(part, one.device) for part, of_pods in listed for one in of_pods[pod]]


def slots(
    devices: Sequence[FreeDevice],
    request: DeviceRequest,
    *,
    partitions: Partitions,
    known: MutableMapping[Hashable, int] | None = None,
) -> int:
    """Return how many such pods fit on the free part of a host's devices: as many as `choose_devices` can serve.

    Of pods with parts of several GPUs and RDMA devices near these, MAX_JOINT at most. `known`: where the counts of pods
    that are chosen one after the other are kept, also for other requests.
    """
    most = fit.slots(devices, request, partitions=partitions)
    if not request.joint or most <= 0:
        return most
    cards = _cards_by_scope(devices, request)
    gpus: dict[str, list[FreeDevice]] = {}
    for one in _fitting_gpus(devices, request):
        if one.device.pcie in cards:
            gpus.setdefault(one.device.pcie, []).append(one)
    if request.gpus > 1:
        most = min(most, MAX_JOINT)
        least, limit = _joint_bounds(request, gpus, cards)
        if least >= min(most, limit):
            return min(most, limit)
        key = (min(most, limit), *_joint_state(request, gpus, cards), tuple(partitions.items()))
        found = known.get(key) if known is not None else None
        if found is None:
            found = len(choose_devices(devices, request, min(most, limit), partitions=partitions))
            if known is not None:
                known[key] = found
        return found
    found = sum(
        min(
            fit.gpu_slots_on(near, request),
            fit.card_slots(of, request),
        )
        for scope, of in cards.items()
        if (near := gpus.get(scope))
    )
    return min(most, found)


def _joint_bounds(request: DeviceRequest, gpus: Mapping[str, Sequence[FreeDevice]], cards: Cards) -> tuple[int, int]:
    """Return how many pods with several GPUs surely are chosen, and how many there are at most.

    A pod with whole GPUs takes those of one PCIe scope while some scope has enough of all: that leaves one pod less
    there, and the others as they are. So as many pods are chosen as the PCIe scopes alone have.
    """
    wanted = request.cards[0]
    often = {scope: [card_times(request, one) for one in cards[scope]] for scope in gpus}
    limit = fit.pods([times for of in often.values() for times in of], wanted)
    if not request.whole:
        return 0, limit
    limit = min(limit, sum(len(of) for of in gpus.values()) // request.gpus)
    if request.scope == "nvlink":
        return 0, limit
    least = 0
    for scope, of in gpus.items():
        if len({pcie_scope(one.device) for one in of}) == 1:
            least += min(len(of) // request.gpus, sum(often[scope]) // wanted)
        else:
            return 0, limit  # two scopes with one name share its RDMA devices
    return least, limit


def _joint_state(
    request: DeviceRequest, gpus: Mapping[str, Sequence[FreeDevice]], cards: Cards
) -> tuple[Hashable, ...]:
    """Return all that decides how many pods with several GPUs are chosen: not the selectors that chose the devices."""
    part = (0, 0, 0) if request.whole else (request.core, request.ratio, request.memory)
    asked = (request.gpus, request.whole, part, request.rdma, request.scope, request.spread)
    places: list[Hashable] = []
    for one in (one for of in gpus.values() for one in of):
        device = one.device
        left = (one.core, one.ratio, one.memory, one.empty, device.core, device.ratio, device.memory)
        places.append((device.minor, device.socket, device.numa, device.pcie, () if request.whole else left))
    near: list[Hashable] = []
    for scope in sorted(gpus):
        of = cards[scope]
        if request.rdma >= WHOLE and request.vf_selector is None:
            near.append((scope, len(of)))
            continue
        for one in of:
            wanted = -1 if request.vf_selector is None else sum(map(request.accepts_function, one.functions))
            near.append((scope, one.device.minor, one.empty, one.share, len(one.functions), wanted))
    return asked, tuple(places), tuple(near)


def _uses(
    left: Sequence[FreeDevice], request: DeviceRequest, gpus: Sequence[FreeDevice], cards: list[DeviceUse]
) -> tuple[DeviceUse, ...]:
    """Return the uses of one pod, with its FPGAs."""
    uses = [*(gpu_use(request, one.device) for one in gpus), *sorted(cards, key=lambda one: one.minor)]
    if request.fpga > 0:
        percent = request.fpga
        usable = [one for one in left if one.device.kind == "fpga" and _fits_share(one, percent)]
        for one in _nearest_devices(usable, percent, [one.device for one in gpus]):
            uses.append(_taken(one, share_use(percent, one.device)))
    return tuple(uses)


def _fits_share(one: FreeDevice, percent: int) -> bool:
    return one.share >= percent if percent < WHOLE else one.empty and one.share >= WHOLE


def _nearest_cards(left: Sequence[FreeDevice], request: DeviceRequest, gpus: list[Device]) -> list[DeviceUse]:
    """Take and return the RDMA devices of one pod, as many as it asks for."""
    if request.rdma <= 0:
        return []
    usable = [one for one in left if one.device.kind == "rdma" and card_times(request, one)]
    return [_taken(one, card_use(request, one)) for one in _nearest_devices(usable, request.rdma, gpus)]


def _further_cards(
    left: Sequence[FreeDevice], request: DeviceRequest, gpus: list[Device], cards: Sequence[DeviceUse]
) -> Iterator[DeviceUse]:
    """Take and yield an RDMA device of each PCIe scope of a pod's GPUs in which it has none yet, where one is left.

    The number of its RDMA devices is at most that of these scopes.
    """
    scopes = dict.fromkeys(one.pcie for one in gpus if one.pcie)
    of = {one.device.minor: one.device.pcie for one in left if one.device.kind == "rdma"}
    served = {of[card.minor] for card in cards}
    by_scope = _cards_by_scope(left, request)
    missing = [scope for scope in scopes if scope not in served and scope in by_scope]
    for scope in missing[: max(0, len(scopes) - len(cards))]:
        best = min(by_scope[scope], key=_fullest)
        yield _taken(best, card_use(request, best))


def _nearest_devices(usable: Sequence[FreeDevice], percent: int, gpus: list[Device]) -> list[FreeDevice]:
    """Return the RDMA or FPGA devices of one pod: from the PCIe scopes of its GPUs in turn, then from their NUMA nodes.

    `usable`: those that take a pod, enough for one.
    """
    scopes = [one.pcie for one in gpus if one.pcie]
    nodes = {one.numa for one in gpus if one.numa is not None}
    sockets = {one.socket for one in gpus if one.socket is not None}

    def distance(device: Device) -> int:
        if device.pcie and device.pcie in scopes:
            return 0
        if device.numa is not None and device.numa in nodes:
            return 1
        return 2 if device.socket is not None and device.socket in sockets else 3

    if percent < WHOLE:
        return [min(usable, key=lambda one: (distance(one.device), *_fullest(one)))]
    free = {one.device.minor: one for one in usable}
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


def _fullest(one: FreeDevice) -> tuple[int, ...]:
    return one.empty, one.share, len(one.functions), one.device.minor


def _taken(one: FreeDevice, use: DeviceUse) -> DeviceUse:
    one.take(use)
    return use


# -- RDMA devices in the PCIe scopes of the GPUs ---------------------------------------------------------------------


def _joint_pods(
    left: Sequence[FreeDevice], request: DeviceRequest, count: int, partitions: Partitions
) -> Iterator[tuple[DeviceUse, ...]]:
    for _ in range(count):
        cards = _cards_by_scope(left, request)
        gpus = _joint_gpus(left, request, cards, partitions)
        if not gpus:
            return
        for one in gpus:
            one.take(gpu_use(request, one.device))
        chosen = _cards_of_scopes(request, cards, [one.device for one in gpus])
        yield _uses(left, request, gpus, [_taken(one, card_use(request, one)) for one in chosen])


def _cards_by_scope(devices: Sequence[FreeDevice], request: DeviceRequest) -> dict[str, list[FreeDevice]]:
    found: dict[str, list[FreeDevice]] = {}
    for one in devices:
        if one.device.kind == "rdma" and one.device.pcie and card_times(request, one):
            found.setdefault(one.device.pcie, []).append(one)
    return found


def _cards_of_scopes(request: DeviceRequest, cards: Cards, gpus: Sequence[Device]) -> list[FreeDevice]:
    """Return the RDMA devices of one pod: one of each PCIe scope of its GPUs, then further ones of these in turn."""
    scopes = dict.fromkeys(one.pcie for one in gpus)
    in_turn = sorted(
        (turn, place, one.device.minor, one)
        for place, scope in enumerate(scopes)
        for turn, one in enumerate(sorted(cards[scope], key=_fullest))
    )
    return [one for *_, one in in_turn[: max(request.cards[0], len(scopes))]]


def _joint_gpus(
    left: Sequence[FreeDevice], request: DeviceRequest, cards: Cards, partitions: Partitions
) -> list[FreeDevice]:
    """Return GPUs of one pod whose PCIe scopes have the RDMA devices that it needs; none if there are none.

    The nearest ones: of one PCIe scope, else as they would be chosen without RDMA devices, else of the PCIe scopes
    with most RDMA devices, which finds some whenever there are any.
    """
    gpus = [one for one in _fitting_gpus(left, request) if one.device.pcie in cards]
    wanted = request.cards[0]
    for group in _groups(gpus, request, partitions):
        by_scope: dict[str, list[FreeDevice]] = {}
        for one in group:
            by_scope.setdefault(one.device.pcie, []).append(one)
        tries = [(group, request)]
        if request.scope != "nvlink":
            enough = [s for s, of in by_scope.items() if len(of) >= request.gpus and len(cards[s]) >= wanted]
            tries = [([one for s in enough for one in by_scope[s]], request.within("pcie")), *tries]
        for usable, narrowed in tries:
            chosen = _chosen(usable, narrowed, partitions)
            if chosen and sum(len(cards[scope]) for scope in {one.device.pcie for one in chosen}) >= wanted:
                return chosen
        most = sorted(by_scope, key=lambda s: (-len(cards[s]), -len(by_scope[s]), by_scope[s][0].device.minor))
        for number in range(1, min(request.gpus, len(most)) + 1):
            some = most[:number]
            gpus_there, cards_there = (sum(len(of[scope]) for scope in some) for of in (by_scope, cards))
            if gpus_there >= request.gpus and cards_there >= wanted:
                return _spanning(request.gpus, [by_scope[scope] for scope in some])
    return []


def _spanning(wanted: int, scopes: Sequence[Sequence[FreeDevice]]) -> list[FreeDevice]:
    """Return GPUs of all these PCIe scopes, one of each at least."""
    chosen = [of[0] for of in scopes]
    rest = [one for of in scopes for one in of[1:]]
    return sorted([*chosen, *rest[: wanted - len(chosen)]], key=lambda one: one.device.minor)


def _groups(
    gpus: Sequence[FreeDevice], request: DeviceRequest, partitions: Partitions
) -> Iterator[Sequence[FreeDevice]]:
    """Yield the groups of GPUs of which a pod's must be one's, by the scope that they have to share."""
    if not request.scope:
        yield gpus
    elif request.scope == "nvlink":
        by_minor = {one.device.minor: one for one in gpus}
        for minors in linked_sets(set(by_minor), request.gpus, partitions):
            yield [by_minor[minor] for minor in sorted(minors)]
    else:
        of = scope_of(request.scope)
        groups: dict[object, list[FreeDevice]] = {}
        for one in gpus:
            groups.setdefault(of(one.device), []).append(one)
        yield from sorted(groups.values(), key=lambda group: (len(group), group[0].device.minor))


def _chosen(usable: Sequence[FreeDevice], request: DeviceRequest, partitions: Partitions) -> list[FreeDevice]:
    """Return the GPUs of one pod, without taking them; none if they do not fit."""
    copies = [one.copy() for one in usable]
    fitting = fit.gpu_slots_on(copies, request)
    if request.scope:
        fitting = fit.slots(copies, replace(request, rdma=0, fpga=0, others=()), partitions=partitions)
    if fitting <= 0:
        return []
    (chosen,) = choose_gpus(copies, request, 1, partitions=partitions)
    of = {one.device.minor: one for one in usable}
    return [of[one.device.minor] for one in chosen]


def _fitting_gpus(devices: Sequence[FreeDevice], request: DeviceRequest) -> list[FreeDevice]:
    return [
        one
        for one in devices
        if one.device.kind == "gpu"
        and request.accepts(one.device)
        and fit.times_on(one, request)
        and (one.empty or not request.whole)
    ]
