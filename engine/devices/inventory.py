"""The devices of a host, from its Device object, else from the numbers that its node reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.api.device import Device, NodeDevices
from engine.api.resources import Resources
from engine.resources.kinds import NO_KINDS, DeviceKinds
from engine.resources.names import CORE, GPU, KINDS, MAX_BYTES, MAX_DEVICES, MEMORY, RATIO, SHARES, WHOLE, whole_names
from engine.resources.overcommit import NO_OVERCOMMIT, Overcommit

# Sets of one size in a table of partitions, and sizes: 16 GPUs have 120 pairs. Choosing compares each with each.
MAX_PARTITIONS: Final = 128
MAX_SIZES: Final = 16
_NAMES: Final = {"gpu": "GPUs", "rdma": "RDMA devices", "fpga": "FPGAs"}


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices of one host, by kind and minor; unhealthy ones too, since pods may hold them.

    `partitions` as in NodeDevices. `notes`: where the node and its Device object disagree, as text for people.
    """

    devices: tuple[Device, ...] = ()
    partitions: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def inventory(
    allocatable: Resources,
    devices: NodeDevices | None,
    *,
    vendors: Collection[str] = (),
    kinds: DeviceKinds = NO_KINDS,
    overcommit: Overcommit = NO_OVERCOMMIT,
    labels: Mapping[str, str] | None = None,
) -> Inventory:
    """Return the devices of a host; `allocatable` in planner units, `vendors` are the policy's names of whole GPUs.

    Of each kind: the devices of the Device object, else those that `allocatable` counts: `nvidia.com/gpu: n` (or
    another name of whole GPUs) is n devices of 100 percent core and memory, of unknown size;
    `koordinator.sh/gpu-core: 100n` with `gpu-memory-ratio: 100n` (and `gpu-memory`) is n devices of an even size; a
    missing dimension is zero. Where the numbers disagree, the smaller one counts: devices with the highest minors
    offer nothing. A name reported as 0 limits only the pods that request it: a removed device plugin leaves such a 0.
    Of the other kinds, which `kinds` declares, those of the Device object. GPUs of a Device object may be overcommitted
    on nodes with the labels of `overcommit`, if the node reports as much.
    """
    listed = _listed(devices.devices, kinds) if devices else {}
    found: list[Device] = []
    notes: list[str] = []
    for kind in KINDS:
        offered, sound = (WHOLE, WHOLE), 0
        if kind == "gpu" and overcommit != NO_OVERCOMMIT:
            gpus = [one for one in listed.get(kind, ()) if one.healthy]
            size, sound = sum(one.memory for one in gpus), len(gpus)
            offered = overcommit.offered(labels or {}, allocatable, gpus=sound, memory=size)
            if gpus:
                listed[kind] = [_offering(one, *offered) for one in listed[kind]]
        counts = _counts(kind, allocatable, vendors, *offered, gpus=sound)
        known = listed.get(kind) or _counted(kind, allocatable, counts)
        found += _agreed(kind, known, counts, notes, object_listed=kind in listed)
    for kind in sorted(listed.keys() - set(KINDS)):
        found += listed[kind]
    return Inventory(tuple(found), _partitions(devices, notes) if devices else {}, tuple(notes))


def _partitions(devices: NodeDevices, notes: list[str]) -> dict[int, tuple[tuple[int, ...], ...]]:
    table = devices.partitions
    kept = {size: table[size][:MAX_PARTITIONS] for size in sorted(table)[:MAX_SIZES]}
    if kept != table:
        notes.append(f"the table of partitions is too long: {MAX_PARTITIONS} of each of {MAX_SIZES} sizes are used")
    return kept


def _listed(devices: Iterable[Device], kinds: DeviceKinds) -> dict[str, list[Device]]:
    """Return the Device object's devices by kind: one per minor, the lowest minors, amounts within bounds."""
    listed: dict[str, dict[int, Device]] = {}
    for one in sorted(devices, key=lambda one: one.minor):
        if one.minor >= 0 and (one.kind in KINDS or one.kind in kinds.by_type):
            sound = _sound(one) if one.kind in KINDS else kinds.device(one)
            listed.setdefault(one.kind, {}).setdefault(one.minor, sound)
    return {kind: list(ones.values())[:MAX_DEVICES] for kind, ones in listed.items()}


def _sound(device: Device) -> Device:
    return replace(
        device,
        core=_within(device.core, WHOLE),
        ratio=_within(device.ratio, WHOLE),
        memory=_within(device.memory, MAX_BYTES),
        share=_within(device.share, WHOLE),
    )


def _within(amount: int, most: int) -> int:
    return max(0, min(amount, most))


def _offering(gpu: Device, core: int, ratio: int) -> Device:
    """Return a GPU that offers percents of what it has."""
    return replace(gpu, core=gpu.core * core // WHOLE, ratio=gpu.ratio * ratio // WHOLE)


def _counts(
    kind: str, allocatable: Resources, vendors: Collection[str], core: int, ratio: int, *, gpus: int
) -> dict[str, int]:
    """Return the number of devices by reported resource name; `core` and `ratio` are what one of them offers.

    `gpus`: the number of healthy ones, if they may be overcommitted.
    """
    if kind != "gpu":
        name = SHARES[kind]
        return {name: max(0, allocatable[name]) // WHOLE} if name in allocatable else {}
    whole = [name for name in sorted(whole_names(vendors)) if allocatable.get(name, 0) > 0]
    # A node may report more compute alone: by this name a GPU offers no more than the node reports of it.
    both = max(WHOLE, min(core, allocatable.get(GPU, 0) // gpus)) if gpus else core
    each = {GPU: both, CORE: core, RATIO: ratio}
    counts = {name: max(0, allocatable[name]) // one for name, one in each.items() if name in allocatable}
    if whole:
        # A host with GPUs of two vendors has the sum of them.
        counts[" + ".join(whole)] = sum(allocatable[name] for name in whole)
    elif zero := next((name for name in sorted(whole_names(vendors)) if name in allocatable), None):
        counts[zero] = 0
    return counts


def _counted(kind: str, allocatable: Resources, counts: Mapping[str, int]) -> list[Device]:
    """Return as many devices as the largest reported number; `_agreed` cuts them to the smallest."""
    number = min(max(counts.values(), default=0), MAX_DEVICES)
    if kind != "gpu":
        return [Device(kind, minor, "", healthy=True, share=WHOLE) for minor in range(number)]
    dimensions = {GPU, CORE, RATIO}
    named = any(amount for name, amount in counts.items() if name not in dimensions)
    core = WHOLE if named or counts.get(CORE) or counts.get(GPU) else 0
    ratio = WHOLE if named or counts.get(RATIO) or counts.get(GPU) else 0
    smallest = min((amount for amount in counts.values() if amount), default=0)
    memory = _within(allocatable.get(MEMORY, 0) // smallest, MAX_BYTES) if smallest else 0
    return [Device(kind, minor, "", healthy=True, core=core, ratio=ratio, memory=memory) for minor in range(number)]


def _agreed(
    kind: str, devices: list[Device], counts: Mapping[str, int], notes: list[str], *, object_listed: bool
) -> list[Device]:
    """Return the devices with no more healthy ones than any positive count, and add a note per disagreement."""
    healthy = [one for one in devices if one.healthy]
    reported = dict(counts)
    if object_listed:
        reported["its Device object"] = len(healthy)
    most = min([len(healthy), *(amount for amount in counts.values() if amount)])
    if len(set(reported.values())) > 1:
        numbers = ", ".join(f"{name} {amount}" for name, amount in sorted(reported.items()))
        notes.append(f"{_NAMES[kind]} disagree ({numbers}): {most} counted")
    if most == len(healthy):
        return devices
    surplus = {one.minor for one in healthy[most:]}
    if not object_listed:
        return [one for one in devices if one.minor not in surplus]
    return [replace(one, healthy=False) if one.minor in surplus else one for one in devices]
