"""What devices have to do with an answer of no: the numbers, out of the ledger, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.api.pod import Shape
from engine.api.resources import is_claim
from engine.api.text import joined, plain, plural
from engine.cache.capacity import Capacity, Count
from engine.devices.request import asked_in_words
from engine.devices.resources import KOORDINATOR, WHOLE, whole_names
from engine.topology.topology import Topology

# Why a host with enough by its numbers has no room; the words stand in the list of nodes as they are.
IN_PART: Final = "with GPUs used in part"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShortfall:
    """What a pod asks for, and how near a host comes to it.

    asked       in words (`4 GPUs`, `50% of a GPU`)
    gpus        whole GPUs of a pod; 0: parts of GPUs, or other devices only
    free        whole GPUs free on the eligible host with most of them
    free_in_all whole GPUs free on all eligible hosts
    in_part     GPUs used in part on that host
    freest      percent left of the freest GPU of an eligible host; None: not known of any
    most        whole GPUs of the largest host, in use or not
    """

    asked: str
    gpus: int
    free: int
    free_in_all: int
    in_part: int
    freest: int | None
    most: int


def device_shortfall(
    shape: Shape, topology: Topology, capacity: Capacity, reasons: Sequence[str]
) -> DeviceShortfall | None:
    """The numbers of the devices that a shape asks for; None when it asks for none. `reasons` as of `Capacity`."""
    request, name = shape.devices, device_name(shape)
    if request is None or name is None:
        return None
    eligible = np.array([not reason for reason in reasons], dtype=np.bool_)
    whole = np.where(eligible, capacity.whole_gpus(name, topology), 0)
    best = int(whole.max(initial=0))
    hosts = topology.tree.hosts
    partly = [capacity.gpus_in_part(hosts[place]) for place in np.flatnonzero(eligible & (whole == best))[:16].tolist()]
    freest = np.where(eligible, capacity.freest_gpu(request, topology), 0) if capacity.devices_matter else None
    return DeviceShortfall(
        asked=asked_in_words(request),
        gpus=request.gpus if request.whole else 0,
        free=best,
        free_in_all=int(whole.sum()),
        in_part=max(partly, default=0),
        freest=None if freest is None or not freest.any() else int(freest.max()),
        most=capacity.largest(name, topology) // (WHOLE if name in KOORDINATOR else 1),
    )


def without_devices(shape: Shape, topology: Topology, capacity: Capacity, counted: Count) -> Count:
    """The slots by the numbers that nodes report alone: what is less than that is the devices' doing."""
    if shape.devices is None or not capacity.devices_matter:
        return counted
    return capacity.count(replace(shape, devices=None), topology)


def full(host: str, place: int, capacity: Capacity, *, counted: Count, by_numbers: Count) -> str:
    """Why an eligible host without a free slot has none."""
    if counted.empty[place] > 0:
        return IN_PART if by_numbers.free[place] > 0 else "in use"
    trouble = capacity.device_trouble(host) if by_numbers.empty[place] > 0 else ""
    return trouble or "too small"


def device_name(shape: Shape) -> str | None:
    """The name under which a shape asks for GPUs, a vendor's first; for want of any that of another device."""
    names = {name for name, amount in shape.requests if amount > 0}
    vendors = sorted(names & whole_names())
    ours = sorted(names & KOORDINATOR)
    return next(iter([*vendors, *ours]), None)


def unreported(shape: Shape, capacity: Capacity) -> tuple[str, ...]:
    """Extended resources that the shape asks for and no node has any of."""
    return tuple(
        name
        for name, amount in shape.requests
        if amount > 0 and "/" in name and not is_claim(name) and not capacity.reports(name)
    )


def how_near(devices: DeviceShortfall) -> str:
    """How near the best host comes to what one pod needs; empty when that says nothing new."""
    if devices.gpus:
        if not devices.in_part and devices.free_in_all < devices.gpus:
            return ""
        whole = f"{plural(devices.free, 'whole GPU')} free" if devices.free else "no whole GPU free"
        rest = f" and {devices.in_part:,} used in part" if devices.in_part else ""
        return f"each pod needs {devices.asked} on one host; the best host has {whole}{rest}"
    if devices.freest is None:
        return ""
    return f"each pod needs {devices.asked}; no GPU has more than {devices.freest}% free"


def nobody_reports(names: Sequence[str], reported: Sequence[str]) -> str:
    """Why a pod can never be scheduled: the scheduler looks for the very name."""
    which = joined([plain(name) for name in names], "or")
    instead = f"; nodes report {joined(reported)}" if reported else ""
    return f"no node reports {which}, so no pod that asks for it is ever scheduled{instead}"
