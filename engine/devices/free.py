"""The free part of one device, and a pod's part of it; the only place that converts between bytes and percent.

A GPU has three amounts: percent of compute, percent of memory, bytes of memory. Every use counts in all three, so that
pods that ask in bytes and pods that ask in percent share a device. Bytes become percent rounded up (never 0), percent
become bytes of the device rounded down: the percents of a device add up to 100 at most, and so its bytes to its size.
What a device does not report counts as zero, not as plenty.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from engine.api.device import Device, DeviceRequest, DeviceUse, Labels, VirtualFunction
from engine.resources.names import WHOLE

# More than any device has: the memory part of a request on a device that does not report its memory.
_NEVER: Final = WHOLE + 1


@dataclass(slots=True)
class FreeDevice:
    """One device and its free amounts: never below 0, all 0 on an unhealthy one. `holders` counts pods.

    `functions`: its free virtual functions, in the order of the device.
    """

    device: Device
    core: int
    ratio: int
    memory: int
    share: int
    holders: int = 0
    functions: tuple[VirtualFunction, ...] = ()

    @property
    def empty(self) -> bool:
        """True for a healthy device without holders."""
        return self.device.healthy and not self.holders

    def take(self, use: DeviceUse) -> None:
        """Take a pod's part; amounts stop at 0 when more is taken than there is.

        Of a GPU that offers more than it has, nothing is left beside a pod with all of its memory.
        """
        if use.ratio >= WHOLE and max(self.device.core, self.device.ratio) > WHOLE:
            self.core = self.ratio = self.memory = 0
        self.core = max(0, self.core - use.core)
        self.ratio = max(0, self.ratio - use.ratio)
        self.memory = max(0, self.memory - use.memory)
        self.share = max(0, self.share - use.share)
        self.holders += 1
        if use.functions:
            self.withdraw({function.bus for function in use.functions})

    def withdraw(self, buses: Collection[str]) -> None:
        """Take virtual functions, given by their PCI addresses."""
        self.functions = tuple(function for function in self.functions if function.bus not in buses)

    def copy(self) -> FreeDevice:
        """Return an independent copy."""
        return FreeDevice(self.device, self.core, self.ratio, self.memory, self.share, self.holders, self.functions)


def unused(device: Device) -> FreeDevice:
    """Return a device without holders."""
    if not device.healthy:
        return FreeDevice(device, 0, 0, 0, 0)
    return FreeDevice(
        device, device.core, device.ratio, offered_memory(device), device.share, functions=device.functions
    )


def offered_memory(device: Device) -> int:
    """Return the bytes that a GPU offers: its size, or more of them if it is overcommitted."""
    return device.memory * max(device.ratio, WHOLE) // WHOLE


def gpu_part(request: DeviceRequest, size: int) -> tuple[int, int, int]:
    """Return the part that one pod takes of one GPU with `size` bytes: core, ratio, bytes.

    A request without memory takes 1 percent, so that it never shares a device that has no free memory.
    """
    ratio = max(0, request.ratio)
    if request.memory > 0:
        needed = -(-request.memory * WHOLE // size) if size else _NEVER
        return request.core, max(ratio, min(needed, _NEVER)), request.memory
    ratio = ratio or 1
    return request.core, ratio, size * ratio // WHOLE


def gpu_use(request: DeviceRequest, device: Device) -> DeviceUse:
    """Return a pod's part of one GPU, or of a device that counts like one, for the annotation; at most 100 percent."""
    core, ratio, memory = gpu_part(request, device.memory)
    return DeviceUse(device.kind, device.minor, device.id, min(core, WHOLE), min(ratio, WHOLE), memory)


def share_use(percent: int, device: Device) -> DeviceUse:
    """Return a pod's part of one RDMA or FPGA device."""
    return DeviceUse(device.kind, device.minor, device.id, share=min(percent, WHOLE))


def card_use(request: DeviceRequest, one: FreeDevice) -> DeviceUse:
    """Return a pod's part of one RDMA device, with the first free virtual function of those that the pod wants."""
    use = share_use(request.cards[1], one.device)
    function = next(filter(request.accepts_function, one.functions), None)
    return use if function is None else replace(use, functions=(VirtualFunction(function.minor, function.bus),))


def card_times(request: DeviceRequest, one: FreeDevice) -> int:
    """Return how many times the request's part of one RDMA device fits on this one."""
    percent = request.cards[1]
    if not one.share >= percent > 0 or not request.accepts_card(one.device):
        return 0
    often = int(one.empty) if percent >= WHOLE else one.share // percent
    if request.vf_selector is None or not often:
        return often
    if not request.vf_selector:
        return min(often, len(one.functions))
    groups: dict[Labels, bool] = {}  # the functions of a group have the same labels
    found = 0
    for function in one.functions:
        wanted = groups.get(function.labels)
        if wanted is None:
            wanted = groups[function.labels] = request.accepts_function(function)
        found += wanted
    return min(often, found)


def completed(use: DeviceUse, device: Device) -> DeviceUse:
    """Return a use with its missing memory dimension computed from the size of this device."""
    ratio, memory = use.ratio, use.memory
    if memory and not ratio and device.memory:
        ratio = min(-(-memory * WHOLE // device.memory), WHOLE)
    elif ratio and not memory:
        memory = device.memory * ratio // WHOLE
    return DeviceUse(device.kind, device.minor, device.id, use.core, ratio, memory, use.share, use.functions)


def devices_asked(percent: int) -> int:
    """Return how many RDMA or FPGA devices a percentage needs; above 100 they are whole devices."""
    return -(-percent // WHOLE) if percent > 0 else 0
