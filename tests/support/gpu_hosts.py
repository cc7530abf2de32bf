"""Device objects and pods that ask for devices, for tests."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from engine.api import names
from engine.api.device import Device, DeviceUse, NodeDevices
from engine.api.objects import Node
from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from engine.devices.allocation import format_allocated
from engine.resources.request import device_request
from tests.support.cluster_records import changed, job, node

GIB = 2**30
_serial = itertools.count(1)

CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"


def asking(**amounts: int) -> Shape:
    """A shape: `gpu` (nvidia.com/gpu), `core`, `ratio`, `memory` (bytes), `rdma`."""
    known = {
        "gpu": "nvidia.com/gpu",
        "core": CORE,
        "ratio": RATIO,
        "memory": MEMORY,
        "rdma": "koordinator.sh/rdma",
    }
    requests = {"pods": 1, **{known[key]: amount for key, amount in amounts.items()}}
    return Shape(requests=tuple(sorted(requests.items())), devices=device_request(requests))


def share(percent: int) -> Shape:
    """So much of one GPU's compute and memory; more than 100 is whole GPUs."""
    return asking(core=percent, ratio=percent)


def gpus(host: str, count: int = 4, *, sick: tuple[int, ...] = (), memory: int = 80 * GIB, **more: Any) -> NodeDevices:
    """A host's Device object with so many GPUs, two on a PCIe scope."""
    devices = tuple(
        Device(
            "gpu",
            minor,
            f"GPU-{host}-{minor}",
            minor not in sick,
            core=100,
            ratio=100,
            memory=memory,
            numa=minor // 4,
            pcie=f"pci{minor // 2}",
        )
        for minor in range(count)
    )
    fields: dict[str, Any] = {"uid": f"uid-{host}", "resource_version": str(next(_serial)), "devices": devices}
    return NodeDevices(name=host, **(fields | more))


def gpu_node(name: str, count: int = 4, *, memory: int = 80 * GIB, **more: Any) -> Node:
    """A node that reports GPUs by the vendor's name and by Koordinator's."""
    amounts = {
        "cpu": 96_000,
        "pods": 110,
        "nvidia.com/gpu": count,
        "koordinator.sh/gpu": 100 * count,
        CORE: 100 * count,
        RATIO: 100 * count,
        MEMORY: memory * count,
    }
    return node(name, allocatable=amounts, **more)


def gpu_job(name: str, shape: Shape, **more: Any) -> Workload:
    """A Job as our webhook leaves it, of pods of this shape."""
    made = job(name, **more)
    return changed(made, template=replace(made.template, shape=shape))


def with_uses(pod: Pod, *uses: DeviceUse) -> Pod:
    """The pod with the annotation that names these devices."""
    annotations = {**pod.spec.annotations, names.DEVICE_ALLOCATED: format_allocated(uses)}
    return replace(pod, spec=replace(pod.spec, annotations=annotations))


def use(minor: int, percent: int = 100, *, memory: int = 80 * GIB) -> DeviceUse:
    """So many percent of a GPU of 80 GiB."""
    return DeviceUse("gpu", minor, core=percent, ratio=percent, memory=memory * percent // 100)
