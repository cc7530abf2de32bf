"""The devices of a pod: the `scheduling.koordinator.sh/device-allocated` annotation, and the devices of slots by rank.

The annotation is a JSON object from kind to devices; each device has a minor, resources as quantities in text, and an
id. We write byte for byte what Koordinator writes: kinds and resources by name, no spaces, no id where there is none.
We must not trust what we read: anybody may have written it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from engine.api import names
from engine.api.device import DeviceRequest, DeviceUse, NodeDevices, VirtualFunction
from engine.api.placement import PodSetPlan, Slot
from engine.api.pod import Pod
from engine.api.rank import expand_ranks
from engine.api.resources import QuantityError, format_bytes
from engine.api.text import quote, sanitize
from engine.resources.kinds import NO_KINDS, DeviceKinds
from engine.resources.names import (
    CORE,
    FPGA,
    KINDS,
    MAX_BUS,
    MAX_BYTES,
    MAX_DEVICES,
    MAX_FUNCTIONS,
    MEMORY,
    RATIO,
    RDMA,
    WHOLE,
    amount,
    is_kind,
)

# Characters; the longest that hosts of 256 devices of each kind can cause, and what the API server keeps at most.
MAX_TEXT: Final = 256 * 1024
_MAX_ID: Final = 253
_MEBIBYTE: Final = 2**20
_MAX_OTHERS: Final = 16  # kinds beside our own
_NOTHING: Final = DeviceRequest()
_MAX_MINOR: Final = 2**31 - 1
_FIELDS: Final = {
    "fpga": {FPGA: "share"},
    "gpu": {CORE: "core", MEMORY: "memory", RATIO: "ratio"},
    "rdma": {RDMA: "share"},
}


class _Unreadable(ValueError):
    """The annotation cannot be read; the text starts with the path of the faulty value."""


def format_allocated(uses: Iterable[DeviceUse], kinds: DeviceKinds = NO_KINDS) -> str:
    """Return the annotation's value; devices of a kind stay in their order, amounts of 0 are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for use in uses:
        entry: dict[str, Any] = {
            "minor": use.minor,
            "resources": _resources(use) if use.kind in _FIELDS else kinds.resources(use),
        }
        if use.id:
            entry["id"] = use.id
        if use.functions:
            # Koordinator leaves out a minor of 0.
            functions = [
                {**({"minor": function.minor} if function.minor else {}), "busID": function.bus}
                for function in use.functions
            ]
            entry["extension"] = {"vfs": functions}
        found.setdefault(use.kind, []).append(entry)
    return _json(dict(sorted(found.items())))


def _resources(use: DeviceUse) -> dict[str, str]:
    amounts = {name: getattr(use, field) for name, field in _FIELDS[use.kind].items()}
    return {name: format_bytes(amount) if name == MEMORY else str(amount) for name, amount in amounts.items() if amount}


def parse_allocated(text: str) -> tuple[tuple[DeviceUse, ...] | None, str]:
    """Return the devices and "", or None and the error.

    GPUs, RDMA, FPGAs, each in the order of the text, then other kinds by name, without amounts, where they can be read.
    Unknown resources and fields are ignored; quantities may be text or numbers. Never raises.
    """
    if len(text) > MAX_TEXT:
        return None, f"longer than {MAX_TEXT:,} characters"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, "not JSON" if isinstance(error, ValueError) else "nested too deeply"
    if not isinstance(found, dict):
        return None, "not a JSON object"
    try:
        known = [use for kind in KINDS for use in _uses(kind, found.get(kind))]
    except _Unreadable as error:
        return None, str(error)
    return (*known, *(use for kind in sorted(filter(is_kind, found))[:_MAX_OTHERS] for use in _others(kind, found))), ""


def _others(kind: str, found: dict[str, object]) -> list[DeviceUse]:
    try:
        return _uses(kind, found[kind])
    except _Unreadable:
        return []


def _uses(kind: str, entries: object) -> list[DeviceUse]:
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _Unreadable(f"{kind}: not a list")
    if len(entries) > MAX_DEVICES:
        raise _Unreadable(f"{kind}: more than {MAX_DEVICES} devices")
    uses = [_use(kind, entry, f"{kind}[{position}]") for position, entry in enumerate(entries)]
    if len({use.minor for use in uses}) < len(uses):
        raise _Unreadable(f"{kind}: names a device twice")
    return uses


def _use(kind: str, entry: object, path: str) -> DeviceUse:
    if not isinstance(entry, dict):
        raise _Unreadable(f"{path}: not an object")
    minor, device_id = entry.get("minor"), entry.get("id")
    if not isinstance(minor, int) or isinstance(minor, bool) or not 0 <= minor <= _MAX_MINOR:
        raise _Unreadable(f"{path}.minor: not a number from 0")
    device_id = "" if device_id is None else device_id
    if not isinstance(device_id, str) or len(device_id) > _MAX_ID or not device_id.isprintable():
        raise _Unreadable(f"{path}.id: not a plain text of {_MAX_ID} characters at most")
    resources = entry.get("resources")
    if resources is None:
        resources = {}
    if not isinstance(resources, dict):
        raise _Unreadable(f"{path}.resources: not an object")
    amounts = {
        field: _amount(name, resources[name], f"{path}.resources[{name}]")
        for name, field in _FIELDS.get(kind, {}).items()
        if name in resources
    }
    return DeviceUse(kind, minor, device_id, **amounts, functions=_functions(entry.get("extension"), path))


def _functions(extension: object, path: str) -> tuple[VirtualFunction, ...]:
    if extension is None:
        return ()
    if not isinstance(extension, dict):
        raise _Unreadable(f"{path}.extension: not an object")
    listed = extension.get("vfs")
    if listed is None:
        return ()
    path = f"{path}.extension.vfs"
    if not isinstance(listed, list) or len(listed) > MAX_FUNCTIONS:
        raise _Unreadable(f"{path}: not a list of {MAX_FUNCTIONS} at most")
    found: dict[str, VirtualFunction] = {}
    for position, one in enumerate(listed):
        minor, bus = (one.get("minor", 0), one.get("busID", "")) if isinstance(one, dict) else (None, None)
        if not isinstance(minor, int) or isinstance(minor, bool) or not 0 <= minor <= _MAX_MINOR:
            raise _Unreadable(f"{path}[{position}].minor: not a number from 0")
        if not isinstance(bus, str) or len(bus) > MAX_BUS or not bus.isprintable():
            raise _Unreadable(f"{path}[{position}].busID: not a plain text of {MAX_BUS} characters at most")
        if bus:
            found[bus] = VirtualFunction(minor, bus)
    return tuple(found.values())


def _amount(name: str, quantity: Any, path: str) -> int:
    most = MAX_BYTES if name == MEMORY else WHOLE
    try:
        found = amount(name, quantity)
    except QuantityError as error:
        raise _Unreadable(f"{path}: {sanitize(str(error))}") from None
    if not 0 <= found <= most:
        raise _Unreadable(f"{path}: {quote(str(quantity))} is not from 0 to {most:,}")
    return found


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


Uses = tuple[DeviceUse, ...]

_CACHED_TEXT = 4096  # characters; a longer annotation is parsed each time: what somebody wrote must not fill the cache


def devices_of(pod: Pod, kinds: DeviceKinds | None = None) -> Uses | None:
    """Return the devices in a pod's annotation; None when it names no usable ones.

    With `kinds`, those that the policy declares: also the devices of them that the pod requests. Without: devices of
    any other kind, and GPUs that it may request by a name of the policy, without amounts, which is enough to tell who
    has which.

    Only the identity of the devices comes from the annotation. Their number and the amount of each are limited to the
    pod's request: the writer of the annotation can neither hide usage nor take more.
    """
    text, request = pod.spec.annotations.get(names.DEVICE_ALLOCATED), pod.spec.shape.devices
    if not text:
        return None
    if kinds is not None:
        request = kinds.extended(request, pod.spec.shape.requests)
        if request is None:
            return None
    return (_cached_uses if len(text) <= _CACHED_TEXT else _parsed_uses)(text, request or _NOTHING, kinds is None)


def _parsed_uses(text: str, request: DeviceRequest, others: bool) -> Uses | None:
    reported, _ = parse_allocated(text)
    if not reported:
        return None
    known = limit_to_request(_with_due_functions(reported, request), request, others=others) or ()
    if others and not request.gpus:
        known = (*(DeviceUse(use.kind, use.minor, use.id) for use in reported if use.kind == "gpu"), *known)
    return known or None


def _with_due_functions(reported: Iterable[DeviceUse], request: DeviceRequest) -> Uses:
    """Return the uses with at most one virtual function of each RDMA device, and none if the pod requests no RDMA.

    Koordinator gives no more, but may give one of every device (`ApplyForAll`). More would be others': anybody who may
    change the pod may change its annotation.
    """
    found: list[DeviceUse] = []
    for use in reported:
        due = use.functions[: int(use.kind == "rdma" and request.rdma > 0)]
        found.append(use if due == use.functions else replace(use, functions=due))
    return tuple(found)


def limit_to_request(reported: Sequence[DeviceUse], request: DeviceRequest, *, others: bool = False) -> Uses | None:
    """Return the reported devices of a pod, at most as many as it requests, each with the requested amounts.

    A pod with GPUs may have an RDMA device for each of them (Koordinator's joint allocation). Further RDMA devices keep
    their virtual functions alone: these are never given twice, whatever the pod requests. That is for what the host
    reports; from an annotation `devices_of` takes one function of each device at most.
    `others`: also those of kinds that are not built in, whatever it requests.
    """
    parts = {
        "gpu": (request.gpus, DeviceUse("gpu", 0, core=request.core, ratio=request.ratio, memory=request.memory)),
        "rdma": (max(request.cards[0], request.gpus if request.rdma else 0), _share("rdma", request.rdma)),
        "fpga": (-(-request.fpga // WHOLE), _share("fpga", request.fpga)),
    }
    for kind, asked in request.others:
        parts[kind] = (asked.gpus, DeviceUse(kind, 0, core=asked.core, ratio=asked.ratio, memory=asked.memory))
    found: list[DeviceUse] = []
    for kind, (most, part) in parts.items():
        of_kind = [use for use in reported if use.kind == kind]
        found += [
            DeviceUse(kind, use.minor, use.id, part.core, part.ratio, part.memory, part.share, use.functions)
            for use in of_kind[:most]
        ]
        found += [
            DeviceUse(kind, use.minor, use.id, functions=use.functions) for use in of_kind[most:] if use.functions
        ]
    if others:
        found += [use for use in reported if use.kind not in parts]
    return tuple(found) or None


_cached_uses = lru_cache(maxsize=4096)(_parsed_uses)


def _share(kind: str, percent: int) -> DeviceUse:
    return DeviceUse(kind, 0, share=min(percent, WHOLE))


def declared_uses(uses: Uses, kinds: DeviceKinds) -> Uses:
    """Return the uses without those of kinds that the policy no longer declares: these count by number alone."""
    return tuple(use for use in uses if use.kind in _FIELDS or use.kind in kinds.by_type)


def allocation(uses: Uses, devices: NodeDevices | None, kinds: DeviceKinds = NO_KINDS) -> str | None:
    """Return the annotation of a pod that gets these devices of a host, with their current ids.

    None when the host no longer reports one of them or of their virtual functions, or reports it unhealthy.
    """
    known = {(one.kind, one.minor): one for one in devices.devices} if devices is not None else {}
    whole: list[DeviceUse] = []
    for use in uses:
        device = known.get((use.kind, use.minor))
        if device is None or not device.healthy:
            return None
        current = {function.bus: VirtualFunction(function.minor, function.bus) for function in device.functions}
        if not all(function.bus in current for function in use.functions):
            return None
        functions = tuple(current[function.bus] for function in use.functions)
        whole.append(replace(use, id=device.id, functions=functions))
    return format_allocated(whole, kinds)


def visible_devices(allocated: str | None, *, minors: bool) -> str | None:
    """Return the GPUs of an annotation of ours for the NVIDIA runtime: UUIDs, or `minors`; None without GPUs.

    A GPU without a known UUID has its minor there.
    """
    gpus = json.loads(allocated).get("gpu", ()) if allocated else ()
    return ",".join(str(one["minor"] if minors else one.get("id") or one["minor"]) for one in gpus) or None


def gpu_limits(allocated: str | None) -> tuple[str | None, str | None]:
    """Return what a pod may use of each GPU of an annotation of ours, for HAMi's library: compute and memory.

    Percent of the compute, and the memory as `4096m` (MiB; the least if GPUs differ). None where there is no limit: for
    whole GPUs, without GPUs, and of what the annotation does not tell.
    """
    gpus = [one.get("resources", {}) for one in json.loads(allocated).get("gpu", ())] if allocated else []
    core = min((int(one[CORE]) for one in gpus if CORE in one), default=WHOLE)
    parts = [one for one in gpus if int(one.get(RATIO, WHOLE)) < WHOLE]
    memory = min((amount(MEMORY, one[MEMORY]) for one in parts if MEMORY in one), default=0)
    return (str(core) if core < WHOLE else None), (_mebibytes(memory) if memory else None)


def _mebibytes(memory: int) -> str:
    return f"{memory // _MEBIBYTE}m" if memory >= _MEBIBYTE else str(memory)


def devices_by_rank(plan: PodSetPlan) -> dict[int, Uses]:
    """Return the devices of each rank's pod; ranks with unknown devices are left out."""
    found: dict[int, Uses] = {}
    for slot in plan.slots:
        if slot.devices is not None:
            ranks = expand_ranks(slot.ranks)
            found.update(pair for pair in zip(ranks, slot.devices, strict=False) if pair[1])
    return found


def spare_devices(slot: Slot, pods: Iterable[Pod]) -> list[Uses]:
    """Return the devices of a slot that none of these pods has, in order; () for a pod with unknown devices."""
    held = Counter(_which(uses) for pod in pods if (uses := devices_of(pod)) is not None)
    spare: list[Uses] = []
    for uses in slot.devices or ():
        if uses and held[_which(uses)] > 0:
            held[_which(uses)] -= 1
        else:
            spare.append(uses)
    return spare


def with_lowest_ranks(slot: Slot, count: int, pods: Iterable[Pod]) -> Slot:
    """Return the slot with its lowest `count` ranks, and with the devices of the existing pods."""
    devices = slot.devices
    if devices is not None and count < slot.count:
        spare = spare_devices(slot, pods)
        given = list(devices)
        for uses in spare:
            given.remove(uses)
        devices = (*given, *spare)[:count]
    return replace(slot, count=count, ranks=_lowest(slot.ranks, count), devices=devices)


def without_ranks_from(slot: Slot, limit: int) -> Slot | None:
    """Return the slot without ranks from `limit` on; None when none remains. A slot without ranks stays whole."""
    if slot.ranks is None or slot.ranks[-1][1] < limit:
        return slot
    count = sum(max(0, min(last, limit - 1) - first + 1) for first, last in slot.ranks)
    devices = None if slot.devices is None else slot.devices[:count]  # in the order of the ranks
    return replace(slot, count=count, ranks=_lowest(slot.ranks, count), devices=devices) if count else None


def _which(uses: Uses) -> frozenset[tuple[str, int, tuple[str, ...]]]:
    return frozenset(use.identity for use in uses)


def _lowest(ranks: tuple[tuple[int, int], ...] | None, count: int) -> tuple[tuple[int, int], ...] | None:
    """Return the lowest `count` ranks of a list of inclusive ranges."""
    if ranks is None:
        return None
    kept: list[tuple[int, int]] = []
    for first, last in ranks:
        if count <= 0:
            break
        take = min(count, last - first + 1)
        kept.append((first, first + take - 1))
        count -= take
    return tuple(kept)
