"""Decodes the Device object (scheduling.koordinator.sh) into NodeDevices, keeping every valid part of a faulty object.

Facts about the object: it is named after its node, a device's `minor` is its number among those of its type,
`resources` are what it offers (100 percent of a healthy GPU's compute and memory), `vfGroups` are the virtual functions
of an RDMA device, the NVLink partitions and the kubelet's own allocations to pods are annotations in JSON. A device
with missing or nonsense fields is left out, never guessed at; so is a virtual function alone. Numbers of sockets and
NUMA nodes below 0 are unknown (Koordinator's agent writes -1 for every socket).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import intern
from typing import Annotated, Any, Final

import msgspec

from engine.api import names
from engine.api.device import Device, NodeDevices, VirtualFunction
from engine.api.resources import Quantity, QuantityError
from engine.api.text import quote, sanitize
from engine.decoding import wire
from engine.decoding.wire import ProjectionError, Source, decode
from engine.resources.names import (
    CORE,
    KINDS,
    MAX_BUS,
    MAX_BYTES,
    MAX_DEVICES,
    MAX_FUNCTIONS,
    MEMORY,
    RATIO,
    SHARES,
    WHOLE,
    amount,
    is_kind,
)

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
PLURAL: Final = "devices"

MAX_FAULTS: Final = 16  # reported of one object
_MAX_NUMBER: Final = 2**31
_MAX_TEXT: Final = 253  # characters of an id or of a PCIe name
_MAX_RESOURCES: Final = 16  # of a device of another kind
_MAX_TABLE: Final = 65536  # characters of the partition table
_MAX_PARTITIONS: Final = 1024
_MAX_ALL_FUNCTIONS: Final = 4096  # virtual functions of one object: 16 full devices
_MAX_CHECKPOINT: Final = 262144  # characters: the API server stores no more annotations than that
_PARTITIONS: Final = "scheduling.koordinator.sh/gpu-partitions"

Text = Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]
Minor = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Topology(wire.Struct):
    socket_id: Any = msgspec.field(name="socketID", default=None)
    bus_id: Any = msgspec.field(name="busID", default=None)
    node_id: wire.Int32 | None = msgspec.field(name="nodeID", default=None)
    pcie_id: Text | None = msgspec.field(name="pcieID", default=None)


class _Function(wire.Struct):
    minor: Minor
    bus_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BUS)] = msgspec.field(name="busID")


class _FunctionGroup(wire.Struct):
    labels: dict[str, Text] | None = None
    vfs: list[Any] | None = None


class _Device(wire.Struct):
    type: str
    minor: Minor
    health: bool
    id: Text | None = None
    resources: dict[str, Quantity | None] | None = None
    labels: dict[str, Text] | None = None
    # A device can be used without these, so a fault in them does not hide it.
    module_id: Any = msgspec.field(name="moduleID", default=None)
    topology: _Topology | None = None
    vf_groups: Any = msgspec.field(name="vfGroups", default=None)


class _Partition(wire.Struct):
    minors: list[Minor]
    allocation_score: int | None = None


class _Given(wire.Struct):
    pod_uid: Text = msgspec.field(name="podUID")
    # A mapping is by NUMA node.
    device_ids: list[Text] | dict[str, list[Text]] | None = msgspec.field(name="deviceIDs", default=None)


# Made at import, as in `wire`: two threads must not be the first to read a struct's fields.
_DEVICE: Final = msgspec.json.Decoder(_Device)
_FUNCTION: Final = msgspec.json.Decoder(_Function)
_GROUP: Final = msgspec.json.Decoder(_FunctionGroup)
_TABLE: Final = msgspec.json.Decoder(dict[str, list[_Partition]])
_CHECKPOINT: Final = msgspec.json.Decoder(list[_Given])


class _Faulty(ValueError):
    """A device is left out; the text starts with the path of the fault, relative to the device, or with ": "."""


def node_devices(source: Source) -> NodeDevices:
    """Return the devices of a node; ProjectionError only when it has no name or is no such object at all."""
    raw = decode(wire.Device, source)
    meta, spec = raw.metadata or wire.ObjectMeta(), raw.spec or wire.DeviceSpec()
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    faults: list[str] = []
    devices = _devices(spec.devices or (), faults)
    annotations = meta.annotations or {}
    partitions = _partitions(annotations.get(_PARTITIONS) or "", faults)
    checkpoints = {key: annotations.get(key) or "" for key in names.DEVICE_CHECKPOINTS}
    given, given_functions = _given(checkpoints, devices, faults)
    return NodeDevices(
        name=intern(meta.name),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        devices=devices,
        partitions=partitions,
        given=given,
        given_functions=given_functions,
        faults=_bounded(faults),
    )


def _devices(raw: Iterable[Any], faults: list[str]) -> tuple[Device, ...]:
    found: dict[tuple[str, int], Device] = {}
    twice: set[tuple[str, int]] = set()
    buses = Counter[str]()  # PCI addresses of virtual functions
    for position, one in enumerate(raw):
        if position == MAX_DEVICES:
            faults.append(f"more than {MAX_DEVICES} devices")
            break
        try:
            device = _device(one, f"devices[{position}]", buses, faults)
        except _Faulty as fault:
            faults.append(f"devices[{position}]{fault}")
            continue
        key = (device.kind, device.minor)
        if key in found:
            twice.add(key)
            faults.append(f"devices[{position}]: {device.kind} {device.minor} is a duplicate")
        found[key] = device
    # Two devices under one number: it is unknown which of them a pod would get. The same of virtual functions.
    devices = (found[key] for key in sorted(found) if key not in twice)
    if max(buses.values(), default=0) <= 1:
        return tuple(devices)
    faults.extend(f"virtual function {sanitize(bus)} is a duplicate" for bus, number in buses.items() if number > 1)
    return tuple(
        replace(one, functions=tuple(function for function in one.functions if buses[function.bus] == 1))
        for one in devices
    )


def _device(raw: Any, path: str, buses: Counter[str], faults: list[str]) -> Device:
    try:
        one = msgspec.convert(raw, _DEVICE.type)
    except (msgspec.MsgspecError, RecursionError, TypeError) as error:
        raise _Faulty(_fault(error)) from None
    if one.type not in KINDS and not is_kind(one.type):
        raise _Faulty(f".type: {quote(one.type)} is none of {', '.join(KINDS)}")
    topology = one.topology or _Topology()
    module = _number(one.module_id, f"{path}.moduleID", faults)
    gpu = one.type == "gpu"
    resources = one.resources or {}
    core, ratio = (_percent(resources, CORE), _percent(resources, RATIO)) if gpu else (0, 0)
    memory = _amount(resources, MEMORY, most=MAX_BYTES) if gpu else 0
    share = _percent(resources, SHARES[one.type]) if one.type in SHARES else 0
    others = _others(resources) if one.type not in KINDS else ()
    if one.health and one.type in KINDS and not (core or ratio or memory or share):
        raise _Faulty(".resources: no resources are reported")
    return Device(
        kind=intern(one.type),
        minor=one.minor,
        id=one.id or "",
        healthy=one.health,
        core=core,
        ratio=ratio,
        memory=memory,
        share=share,
        numa=_number(topology.node_id, "", []),
        pcie=intern(topology.pcie_id or ""),
        labels=_labels(one.labels, module),
        socket=_number(topology.socket_id, f"{path}.topology.socketID", faults),
        bus=_bus(topology.bus_id, f"{path}.topology.busID", faults),
        module=module,
        functions=_functions(one.vf_groups, f"{path}.vfGroups", buses, faults) if one.type == "rdma" else (),
        resources=others,
    )


def _others(resources: Mapping[str, Quantity | None]) -> tuple[tuple[str, int], ...]:
    """Return the amounts of a device whose kind the policy may declare, of any name."""
    if len(resources) > _MAX_RESOURCES:
        raise _Faulty(f".resources: more than {_MAX_RESOURCES} resources")
    return tuple((intern(name), _amount(resources, name, most=MAX_BYTES)) for name in sorted(resources))


def _fault(error: Exception) -> str:
    """Return an error of msgspec as the path of the fault, relative to what was converted, and its text."""
    text, _, path = sanitize(str(error), _MAX_TEXT).partition(" - at `$")
    return f"{path.removesuffix('`')}: {text}"


def _number(number: Any, path: str, faults: list[str]) -> int | None:
    """Return a number from 0; None where it is unknown, with a fault where it is no number."""
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and number < _MAX_NUMBER):
        return number if number is not None and number >= 0 else None
    faults.append(f"{path}: is no whole number below 2^31")
    return None


def _bus(bus: Any, path: str, faults: list[str]) -> str:
    if bus is None or (isinstance(bus, str) and len(bus) <= MAX_BUS):
        return bus or ""
    faults.append(f"{path}: is no text of {MAX_BUS} characters at most")
    return ""


def _labels(labels: Mapping[str, str] | None, module: int | None = None) -> tuple[tuple[str, str], ...]:
    """Return labels in order; the module is one, so that devices can be chosen by it."""
    found = {**(labels or {}), **({names.MODULE_ID: str(module)} if module is not None else {})}
    return tuple(sorted((intern(key), intern(value)) for key, value in found.items()))


def _functions(raw_groups: Any, path: str, buses: Counter[str], faults: list[str]) -> tuple[VirtualFunction, ...]:
    """Return the virtual functions of a device by PCI address; `buses` counts those of the whole object."""
    if raw_groups is not None and not isinstance(raw_groups, list):
        faults.append(f"{path}: is no list")
        return ()
    found: list[VirtualFunction] = []
    for number, raw_group in enumerate(raw_groups or ()):
        if number == MAX_FUNCTIONS:
            faults.append(f"{path}: more than {MAX_FUNCTIONS} groups")
            break
        try:
            group = msgspec.convert(raw_group, _GROUP.type)
        except (msgspec.MsgspecError, RecursionError, TypeError) as error:
            faults.append(f"{path}[{number}]{_fault(error)}")
            continue
        labels = _labels(group.labels)
        for position, raw in enumerate(group.vfs or ()):
            where = f"{path}[{number}].vfs[{position}]"
            if len(found) == MAX_FUNCTIONS or buses.total() >= _MAX_ALL_FUNCTIONS:
                faults.append(f"{where}: more than {MAX_FUNCTIONS} of a device, or {_MAX_ALL_FUNCTIONS:,} in all")
                return tuple(sorted(found, key=lambda one: one.bus))
            try:
                one = msgspec.convert(raw, _FUNCTION.type)
            except (msgspec.MsgspecError, RecursionError, TypeError) as error:
                faults.append(f"{where}{_fault(error)}")
                continue
            buses[one.bus_id] += 1
            found.append(VirtualFunction(one.minor, one.bus_id, labels))
    return tuple(sorted(found, key=lambda one: one.bus))


def _percent(resources: Mapping[str, Quantity | None], name: str) -> int:
    return _amount(resources, name, most=WHOLE)


def _amount(resources: Mapping[str, Quantity | None], name: str, *, most: int) -> int:
    """Return an amount in whole units; 0 for a missing resource."""
    quantity = resources.get(name)
    if quantity is None:
        return 0
    try:
        found = amount(name, quantity)
    except QuantityError as error:
        raise _Faulty(f".resources[{name}]: {error}") from None
    if not 0 <= found <= most:
        raise _Faulty(f".resources[{name}]: {found:,} is not from 0 to {most:,}")
    return found


def _partitions(text: str, faults: list[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    """Return the NVLink partitions by their number of GPUs, best score first; none when the table cannot be read."""
    if not text:
        return {}
    if len(text) > _MAX_TABLE:
        faults.append(f"annotations[{_PARTITIONS}]: longer than {_MAX_TABLE:,} characters")
        return {}
    try:
        table = _TABLE.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        faults.append(f"annotations[{_PARTITIONS}]: {sanitize(str(error), _MAX_TEXT)}")
        return {}
    found: dict[int, tuple[tuple[int, ...], ...]] = {}
    for key, entries in table.items():
        count = int(key) if key.isascii() and key.isdigit() and len(key) <= len(str(MAX_DEVICES)) else 0
        minors = [(-(entry.allocation_score or 0), tuple(sorted(set(entry.minors)))) for entry in entries]
        if not count or len(minors) > _MAX_PARTITIONS or any(len(one) != count for _, one in minors):
            faults.append(
                f"annotations[{_PARTITIONS}]: the entry {sanitize(key)!r} is not a list of that many GPUs each"
            )
            return {}
        if minors:
            found[count] = tuple(one for _, one in sorted(minors))
    return dict(sorted(found.items()))


def _given(
    texts: Mapping[str, str], devices: Iterable[Device], faults: list[str]
) -> tuple[dict[str, tuple[tuple[str, int], ...]], dict[str, tuple[tuple[int, str], ...]]]:
    """Return the devices of pods in the node's checkpoints, by the pods' uids, and their virtual functions.

    Device plugins of virtual functions name them by PCI address.
    """
    devices = tuple(devices)
    of_bus = {function.bus: (device.minor, function.bus) for device in devices for function in device.functions}
    functions: dict[str, dict[tuple[int, str], None]] = {}
    ids = {device.id: (device.kind, device.minor) for device in devices if device.id}
    found: dict[str, dict[tuple[str, int], None]] = {}
    for key, text in texts.items():
        if len(text) > _MAX_CHECKPOINT:
            faults.append(f"annotations[{key}]: longer than {_MAX_CHECKPOINT:,} characters")
            continue
        try:
            entries = _CHECKPOINT.decode(text) if text else ()
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            faults.append(f"annotations[{key}]: {sanitize(str(error), _MAX_TEXT)}")
            continue
        for entry in entries:
            listed = entry.device_ids or ()
            for name in listed if not isinstance(listed, dict) else (one for some in listed.values() for one in some):
                if name in ids and entry.pod_uid:
                    found.setdefault(entry.pod_uid, {})[ids[name]] = None
                elif name in of_bus and entry.pod_uid:
                    functions.setdefault(entry.pod_uid, {})[of_bus[name]] = None
    return (
        {uid: tuple(sorted(pairs)) for uid, pairs in found.items()},
        {uid: tuple(sorted(pairs)) for uid, pairs in functions.items()},
    )


def _bounded(faults: list[str]) -> tuple[str, ...]:
    rest = len(faults) - MAX_FAULTS
    return tuple(faults) if rest <= 0 else (*faults[:MAX_FAULTS], f"{rest} more faults")
