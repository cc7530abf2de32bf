"""Records of devices: a pod's request, a node's devices, and a pod's part of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

# How the GPUs of a host are filled.
STRATEGIES: Final = ("binpack", "spread")
# Scopes that a pod's GPUs can share, the nearest first: linked GPUs (a set of their number in the table of NVLink
# partitions), one PCIe scope, one NUMA node.
SCOPES: Final = ("nvlink", "pcie", "numa")


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One pod's request for devices of its host.

    `gpus` GPUs, each with `core` percent of its compute and `ratio` percent, or else `memory` bytes, of its memory (the
    other one is 0). `whole`: no other pod may be on them. `rdma`, `fpga`: percent of such devices, 100 is one; above
    that, a number of whole ones. `scope`: what several whole GPUs must share, one of SCOPES; "": nothing.
    `spread`: of equally near GPUs the pods of a host take those that are used least, instead of those used most.
    `selector`: labels that each of its GPUs must have. `others`: what it requests of devices of the policy's kinds, by
    kind, each as if these were GPUs; `name`, only there, is the first resource that requests them.
    """

    gpus: int = 0
    core: int = 0
    ratio: int = 0
    memory: int = 0
    whole: bool = False
    rdma: int = 0
    fpga: int = 0
    scope: str = ""
    spread: bool = False
    selector: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, DeviceRequest], ...] = ()
    name: str = ""

    @property
    def reported_only(self) -> bool:
        """True if only GPUs of a Device object will do, as no other host reports what the request needs to know."""
        return bool(self.scope or self.selector)

    def accepts(self, gpu: Device) -> bool:
        """Return whether a GPU has the labels that the request wants."""
        return not self.selector or set(self.selector).issubset(gpu.labels)

    def within(self, scope: str) -> DeviceRequest:
        """Return the request with the scope that its GPUs must share; one GPU, or a part of one, shares any."""
        return replace(self, scope=scope) if self.whole and self.gpus > 1 else self


@dataclass(frozen=True, slots=True)
class Device:
    """One healthy or unhealthy device of a host.

    `kind` is gpu, rdma, fpga, or another one that the policy may declare. `core` and `ratio` are percent (0 unless it
    is a GPU), `memory` bytes (0: unknown), `share` percent of an RDMA or FPGA device. `labels` are sorted. `numa` is
    None and `pcie` "" where the topology is unknown. `resources`: the amounts of another kind as the object has them.
    """

    kind: str
    minor: int
    id: str
    healthy: bool
    core: int = 0
    ratio: int = 0
    memory: int = 0
    share: int = 0
    numa: int | None = None
    pcie: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    resources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A Device object (scheduling.koordinator.sh): the devices of the node of that name, by kind and minor.

    `partitions`: sets of linked GPU minors, by the size of the set (empty where the table is unknown). `given`: the
    devices that the kubelet gave to pods by itself, as (kind, minor) by the pod's uid. `faults`: the parts of the
    object that could not be read and were left out.
    """

    name: str
    uid: str
    resource_version: str
    devices: tuple[Device, ...]
    partitions: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    given: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A pod's part of one device: percent of core and memory and bytes of a GPU, or percent (`share`) of another."""

    kind: str
    minor: int
    id: str = ""
    core: int = 0
    ratio: int = 0
    memory: int = 0
    share: int = 0
