"""Records of devices: a pod's request, a node's devices, and a pod's part of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

_WHOLE: Final = 100  # percent of a device
# How the GPUs of a host are filled.
STRATEGIES: Final = ("binpack", "spread")
# Scopes that a pod's GPUs can share, the nearest first: linked GPUs (a set of their number in the table of NVLink
# partitions), one PCIe scope, one NUMA node, one CPU socket.
SCOPES: Final = ("nvlink", "pcie", "numa", "socket")
# What a pod's RDMA devices share with its GPUs: one is in each PCIe scope of these and none elsewhere, or one is in
# each if possible.
RDMA_SCOPES: Final = ("pcie", "pcie-preferred")

Labels = tuple[tuple[str, str], ...]  # sorted
# A label selector: key, operator (In, NotIn, Exists, DoesNotExist) and values of each requirement. Empty: selects all.
LabelSelector = tuple[tuple[str, str, tuple[str, ...]], ...]


def selects(selector: LabelSelector, labels: Labels) -> bool:
    """Return whether a label selector selects something with these labels."""
    if not selector:
        return True
    known = dict(labels)
    return all(_holds(operator, known.get(key), values) for key, operator, values in selector)


def _holds(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One pod's request for devices of its host.

    `gpus` GPUs, each with `core` percent of its compute and `ratio` percent, or else `memory` bytes, of its memory (the
    other one is 0, unless it is `translated`). `whole`: no other pod may be on them. `rdma`, `fpga`: percent of such
    devices, 100 is one; above that, a number of whole ones. `scope`: what several whole GPUs must share, one of SCOPES;
    "": nothing. `rdma_selector`: of the RDMA devices. `vf_selector`: with each RDMA device comes one virtual function
    of a group that it selects; None: no virtual functions. `rdma_scope`: one of RDMA_SCOPES; "": nothing. `spread`: of
    equally near GPUs the pods of a host take those that are used least, instead of those used most. `selector`: labels
    that each of its GPUs must have. `others`: what it requests of devices of the policy's kinds, by kind, each as if
    these were GPUs. `name`: the first resource that requests them, or the GPUs where it is a name of the policy; "" for
    built-in names.
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
    selector: Labels = ()
    rdma_selector: LabelSelector = ()
    vf_selector: LabelSelector | None = None
    rdma_scope: str = ""
    others: tuple[tuple[str, DeviceRequest], ...] = ()
    name: str = ""

    @property
    def translated(self) -> bool:
        """True if its memory was requested in percent, and admission wrote it in bytes: both count."""
        return self.ratio > 0 and self.memory > 0

    @property
    def reported_only(self) -> bool:
        """True if only devices of a Device object will do: no other host reports what the request needs to know."""
        return bool(self.scope or self.selector or self.particular)

    @property
    def particular(self) -> bool:
        """True if not every RDMA device with enough left will do."""
        return self.rdma > 0 and (bool(self.rdma_selector) or self.vf_selector is not None or self.joint)

    @property
    def joint(self) -> bool:
        """True if the RDMA devices have to share the PCIe scopes of the GPUs."""
        return self.rdma_scope == "pcie" and self.gpus > 0 and self.rdma > 0

    @property
    def cards(self) -> tuple[int, int]:
        """The number of RDMA devices, at least, and the percent of each."""
        return (-(-self.rdma // _WHOLE), min(self.rdma, _WHOLE)) if self.rdma > 0 else (0, 0)

    def accepts(self, gpu: Device) -> bool:
        """Return whether a GPU has the labels that the request wants."""
        return not self.selector or set(self.selector).issubset(gpu.labels)

    def accepts_card(self, card: Device) -> bool:
        """Return whether an RDMA device has the labels that the request wants."""
        return selects(self.rdma_selector, card.labels)

    def accepts_function(self, function: VirtualFunction) -> bool:
        """Return whether a virtual function is of a group that the request wants."""
        return self.vf_selector is not None and selects(self.vf_selector, function.labels)

    def within(self, scope: str) -> DeviceRequest:
        """Return the request with the scope that its GPUs must share; one GPU, or a part of one, shares any."""
        return replace(self, scope=scope) if self.whole and self.gpus > 1 else self


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """A virtual function of an RDMA device (SR-IOV); `bus` is its PCI address, `labels` those of its group."""

    minor: int
    bus: str
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Device:
    """One healthy or unhealthy device of a host.

    `kind` is gpu, rdma, fpga, or another one that the policy may declare. `core` and `ratio` are percent (0 unless it
    is a GPU), `memory` bytes (0: unknown), `share` percent of an RDMA or FPGA device. `labels` are sorted. `resources`:
    the amounts of another kind as the object has them. `socket` and `numa` are None, `pcie` and `bus` (its PCI address)
    "" where the topology is unknown. `module`: its physical number on the host; None: unknown. `functions` are sorted
    by bus.
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
    labels: Labels = ()
    resources: tuple[tuple[str, int], ...] = ()
    socket: int | None = None
    bus: str = ""
    module: int | None = None
    functions: tuple[VirtualFunction, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A Device object (scheduling.koordinator.sh): the devices of the node of that name, by kind and minor.

    `partitions`: sets of linked GPU minors, by the size of the set (empty where the table is unknown). `given`: the
    devices that the kubelet gave to pods by itself, as (kind, minor) by the pod's uid; `given_functions`: the same of
    virtual functions, as (minor of the RDMA device, PCI address). `faults`: the parts of the object that could not be
    read and were left out.
    """

    name: str
    uid: str
    resource_version: str
    devices: tuple[Device, ...]
    partitions: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    given: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    given_functions: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A pod's part of one device: percent of core and memory and bytes of a GPU, or percent (`share`) of another.

    `functions`: its virtual functions of the device, without labels.
    """

    kind: str
    minor: int
    id: str = ""
    core: int = 0
    ratio: int = 0
    memory: int = 0
    share: int = 0
    functions: tuple[VirtualFunction, ...] = ()

    @property
    def identity(self) -> tuple[str, int, tuple[str, ...]]:
        """What the pod has, without amounts: kind and minor of the device, PCI addresses of the virtual functions."""
        return self.kind, self.minor, tuple(sorted(function.bus for function in self.functions))
