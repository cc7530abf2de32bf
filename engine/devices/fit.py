"""Counts the pods of one request that fit on a host's devices: closed forms, for one host and for many at once.

With t(i) = how often device i could take the request, the number of pods on g distinct devices each is
min over j < g of floor(sum of t without its j largest / (g - j)): of any g devices, at least g - j are not among the j
largest; and filling the devices one after the other, pods in turn, reaches the bound. Whole requests need empty
devices: a half-used one takes none, and four free halves are not two free GPUs. Kinds do not compete, so the slots of
a host are the least of its kinds', unless RDMA devices must share the PCIe scopes of GPUs (`engine.devices.choose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.api.device import Device, DeviceRequest
from engine.devices.free import FreeDevice, card_times, devices_asked, gpu_part
from engine.devices.scopes import Partitions, pods_in_scope
from engine.planner.tree import Bools, Ints64
from engine.resources.names import MAX_BYTES, WHOLE

Percents = npt.NDArray[np.int16]

# The slots of a request that asks for no device: devices do not limit it.
UNLIMITED: Final = 2**31 - 1


def slots(devices: Iterable[FreeDevice], request: DeviceRequest, *, partitions: Partitions) -> int:
    """Return how many such pods fit on the free part of a host's devices, wherever their RDMA devices are."""
    gpus: list[tuple[bool, int]] = []
    takers: list[Device] = []
    others: dict[str, list[FreeDevice]] = {"rdma": [], "fpga": []}
    for one in devices:
        if one.device.kind == "gpu":
            if not request.accepts(one.device):
                continue
            often = times_on(one, request)
            gpus.append((one.empty, often))
            if one.empty and often:
                takers.append(one.device)
        else:
            others.setdefault(one.device.kind, []).append(one)
    fit = UNLIMITED
    if request.gpus > 0:
        fit = gpu_slots(gpus, request)
    if request.scope:
        fit = pods_in_scope(takers, request.gpus, request.scope, partitions)
    if request.rdma > 0:
        fit = min(fit, card_slots(others["rdma"], request))
    if request.fpga > 0:
        fit = min(fit, share_slots([(one.empty, one.share) for one in others["fpga"]], request.fpga))
    for kind, part in request.others:
        if listed := others.get(kind):  # of a kind that the object does not list the number alone counts
            fit = min(fit, gpu_slots_on(listed, part))
    return fit


def card_slots(cards: Iterable[FreeDevice], request: DeviceRequest) -> int:
    """Return how many pods fit on RDMA devices."""
    return pods([card_times(request, one) for one in cards], request.cards[0])


def gpu_slots(devices: Sequence[tuple[bool, int]], request: DeviceRequest) -> int:
    """Return how many pods fit on GPUs, each given as (empty, number of times that the request fits)."""
    if request.whole:
        return sum(1 for empty, often in devices if empty and often) // request.gpus
    return pods([often for _, often in devices], request.gpus)


def share_slots(devices: Sequence[tuple[bool, int]], percent: int) -> int:
    """Return how many pods fit on RDMA or FPGA devices, each given as (empty, percent left)."""
    if percent >= WHOLE:
        return sum(1 for empty, share in devices if empty and share >= WHOLE) // devices_asked(percent)
    return sum(share // percent for _, share in devices)


def times(request: DeviceRequest, core: int, ratio: int, memory: int, size: int, *, empty: bool) -> int:
    """Return how many times the request's part of one GPU fits on a GPU with these free amounts.

    All of its memory, in bytes too, only once, and only where it is empty, also of a GPU that offers more.
    """
    core_part, ratio_part, memory_part = gpu_part(request, size)
    often = ratio // ratio_part
    if core_part > 0:
        often = min(often, core // core_part)
    if memory_part > 0:
        often = min(often, memory // memory_part)
    return min(often, int(empty)) if ratio_part >= WHOLE else often


def times_on(one: FreeDevice, request: DeviceRequest) -> int:
    """Return how many times the request's part of one GPU fits on this one."""
    return times(request, one.core, one.ratio, one.memory, one.device.memory, empty=one.empty)


def gpu_slots_on(devices: Iterable[FreeDevice], request: DeviceRequest) -> int:
    """Return how many pods fit on these devices, by their free amounts alone; see `gpu_slots`."""
    return gpu_slots([(one.empty, times_on(one, request)) for one in devices], request)


def pods(often: Sequence[int], distinct: int) -> int:
    """Return how many pods fit when each needs `distinct` devices and device i takes `often[i]` pods."""
    if distinct > len(often):
        return 0
    total = sum(often)
    fit = total // distinct
    if distinct > 1:
        for j, largest in enumerate(sorted(often, reverse=True)[: distinct - 1], start=1):
            total -= largest
            fit = min(fit, total // (distinct - j))
    return fit


def gpu_slots_many(
    request: DeviceRequest,
    *,
    core: Percents,
    ratio: Percents,
    memory: Ints64,
    size: Ints64,
    empty: Bools,
    scopes: Percents | None = None,
) -> Ints64:
    """Return the slots on the GPUs of many hosts: arrays of devices x hosts, padded with zeros.

    `scopes`: the number of each device's scope on its host, from 1, where the devices of a pod must share one.
    """
    often = _times_many(request, core=core, ratio=ratio, memory=memory, size=size, empty=empty)
    if request.whole:
        taking = (often > 0) & empty
        if scopes is None:
            return summed(taking) // request.gpus
        found: Ints64 = np.zeros(taking.shape[1], dtype=np.int64)
        for number in range(1, int(scopes.max(initial=0)) + 1):
            found += summed(taking & (scopes == number)) // request.gpus
        return found
    return _pods_many(often, request.gpus)


def least_times_many(
    request: DeviceRequest, *, core: Percents, ratio: Percents, memory: Ints64, size: Ints64, healthy: Bools
) -> Ints64:
    """Return how often the healthy GPU of each host that takes the request least often does; UNLIMITED without any."""
    often = _times_many(request, core=core, ratio=ratio, memory=memory, size=size, empty=healthy)
    if request.whole:
        often = np.minimum(often, np.int16(1))
    least: Ints64 = np.where(healthy, often.astype(np.int64), UNLIMITED).min(axis=0)
    return least


def share_slots_many(percent: int, *, share: Percents, empty: Bools) -> Ints64:
    """Return the slots on the RDMA or FPGA devices of many hosts: arrays of devices x hosts, padded with zeros."""
    if percent >= WHOLE:
        return summed((share >= WHOLE) & empty) // devices_asked(percent)
    return summed(share // np.int16(percent))


def _times_many(
    request: DeviceRequest, *, core: Percents, ratio: Percents, memory: Ints64, size: Ints64, empty: Bools
) -> Percents:
    """Return `times` of every device; 100 at most, as every part is 1 percent at least."""
    if request.memory > 0:
        asked = min(request.memory, MAX_BYTES + 1)
        known = np.maximum(size, 1)
        parts = np.minimum(-(-asked * WHOLE // known), WHOLE + 1).astype(np.int16)
        np.maximum(parts, np.int16(min(max(request.ratio, 0), WHOLE + 1)), out=parts)
        often: Percents = ratio // parts
        often = np.minimum(often, memory // asked).astype(np.int16)
        often = np.where(parts >= WHOLE, np.minimum(often, empty.astype(np.int16)), often)
    else:
        percent = min(max(request.ratio, 1), WHOLE + 1)
        often = ratio // np.int16(percent)
        # Uses that others wrote may take more bytes than their percents say; only there do bytes decide.
        tight = memory * WHOLE < ratio * size
        if tight.any():
            part = size[tight] * percent // WHOLE
            often[tight] = np.minimum(often[tight], memory[tight] // np.maximum(part, 1))
    if request.core > 0:
        often = np.minimum(often, core // np.int16(min(request.core, WHOLE + 1)))
    return often


def _pods_many(often: Percents, distinct: int) -> Ints64:
    if distinct > often.shape[0]:
        return np.zeros(often.shape[1], dtype=np.int64)
    total = summed(often)
    fit = total // distinct
    if distinct > 1:
        ordered = np.sort(often, axis=0)
        for j in range(1, distinct):
            total -= ordered[-j]
            np.minimum(fit, total // (distinct - j), out=fit)
    return fit


def summed(amounts: Percents | Bools) -> Ints64:
    """Return the sum over the devices of each host."""
    result: Ints64 = amounts.sum(axis=0, dtype=np.int64)
    return result
