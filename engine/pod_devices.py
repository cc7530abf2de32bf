"""Which devices a pod has, by the annotation that it carries, and what is written there when it is placed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from engine.api import names
from engine.api.device import DeviceRequest, DeviceUse, NodeDevices
from engine.api.pod import Pod
from engine.gpu.allocated import format_allocated, parse_allocated
from engine.gpu.resources import WHOLE

Uses = tuple[DeviceUse, ...]

_KEPT_TEXT = 4096  # characters; a longer annotation is read anew each time: what somebody wrote must not fill the cache


def devices_of(pod: Pod) -> Uses | None:
    """Return the devices that a pod's annotation names; None when it names none that can be believed.

    Only which devices they are is taken from the annotation. How much of each the pod has is what it asks for, and it
    has no more of them than it asks for: whoever writes the annotation can neither hide what he uses nor take more.
    """
    text, request = pod.spec.annotations.get(names.DEVICE_ALLOCATED), pod.spec.shape.devices
    if not text or request is None:
        return None
    return (_kept if len(text) <= _KEPT_TEXT else _believed)(text, request)


def _believed(text: str, request: DeviceRequest) -> Uses | None:
    told, _ = parse_allocated(text)
    return believed(told, request) if told else None


def believed(told: Sequence[DeviceUse], request: DeviceRequest) -> Uses | None:
    """Return the devices that a pod is told to have, no more of them than it asks for, each with what it asks for."""
    parts = {
        "gpu": (request.gpus, DeviceUse("gpu", 0, core=request.core, ratio=request.ratio, memory=request.memory)),
        "rdma": _shares("rdma", request.rdma),
        "fpga": _shares("fpga", request.fpga),
    }
    found: list[DeviceUse] = []
    for kind, (most, part) in parts.items():
        of_kind = [use for use in told if use.kind == kind][:most]
        found += [DeviceUse(kind, use.minor, use.id, part.core, part.ratio, part.memory, part.share) for use in of_kind]
    return tuple(found) or None


_kept = lru_cache(maxsize=4096)(_believed)


def _shares(kind: str, percent: int) -> tuple[int, DeviceUse]:
    return -(-percent // WHOLE), DeviceUse(kind, 0, share=min(percent, WHOLE))


def allocation(uses: Uses, devices: NodeDevices | None) -> str | None:
    """Return the annotation of a pod that gets these devices of a host, with their ids of now.

    None when the host does not tell of one of them any more, or tells that it is sick: then nobody gets it.
    """
    known = {(one.kind, one.minor): one for one in devices.devices} if devices is not None else {}
    whole: list[DeviceUse] = []
    for use in uses:
        device = known.get((use.kind, use.minor))
        if device is None or not device.healthy:
            return None
        whole.append(DeviceUse(use.kind, use.minor, device.id, use.core, use.ratio, use.memory, use.share))
    return format_allocated(whole)
