"""Hosts with devices, and requests for them."""

from __future__ import annotations

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.devices.choose import choose_devices
from engine.devices.inventory import Inventory
from engine.devices.ledger import DeviceLedger
from engine.devices.usage import DeviceHolding, Holder

GIB = 2**30
NOTHING_ASKED = DeviceRequest()  # of a holder that has its known uses and nothing else


class HeldDevices(DeviceLedger):
    """A ledger with a table of holdings of its own; hosts are rows 0, 1, ..."""

    def __init__(self, *hosts: Inventory) -> None:
        self.table: dict[int, dict[Holder, DeviceHolding]] = {}
        super().__init__(self.table)
        for row, one in enumerate(hosts):
            self.set_host(row, one)

    def hold(
        self,
        row: int,
        holder: Holder,
        request: DeviceRequest,
        uses: tuple[tuple[DeviceUse, ...], ...] = (),
        *,
        count: int = 1,
    ) -> None:
        """Replace what a holder has on a host."""
        self.table.setdefault(row, {})[holder] = DeviceHolding(request, uses, max(count, len(uses)))
        self.holdings_changed(row)

    def release(self, row: int, holder: Holder) -> None:
        self.table.get(row, {}).pop(holder, None)
        self.holdings_changed(row)

    def choose(self, row: int, request: DeviceRequest, count: int) -> tuple[tuple[DeviceUse, ...], ...]:
        """The devices of so many more pods, as far as they fit."""
        return choose_devices(self.left(row), request, count, partitions=self.inventory(row).partitions)


def gpu(minor: int, *, size: int = 80, healthy: bool = True, numa: int | None = None, pcie: str = "") -> Device:
    """A GPU with so many GiB."""
    return Device("gpu", minor, f"GPU-{minor}", healthy, core=100, ratio=100, memory=size * GIB, numa=numa, pcie=pcie)


def card(minor: int, *, kind: str = "rdma", healthy: bool = True, numa: int | None = None, pcie: str = "") -> Device:
    """An RDMA (or FPGA) device."""
    return Device(kind, minor, f"{kind}-{minor}", healthy, share=100, numa=numa, pcie=pcie)


def eight(*, sick: tuple[int, ...] = (), size: int = 80, cards: tuple[Device, ...] = ()) -> Inventory:
    """Eight GPUs: two on a PCIe scope, four on a NUMA node."""
    gpus = (gpu(at, size=size, healthy=at not in sick, numa=at // 4, pcie=f"p{at // 2}") for at in range(8))
    return Inventory((*gpus, *cards))


def whole(gpus: int, *, rdma: int = 0, fpga: int = 0) -> DeviceRequest:
    return DeviceRequest(gpus=gpus, core=100, ratio=100, whole=True, rdma=rdma, fpga=fpga)


def part(percent: int, *, gpus: int = 1, rdma: int = 0) -> DeviceRequest:
    """A share of the compute and the memory of each of some GPUs."""
    return DeviceRequest(gpus=gpus, core=percent, ratio=percent, rdma=rdma)


def memory(gib: int, *, gpus: int = 1, core: int = 0) -> DeviceRequest:
    return DeviceRequest(gpus=gpus, core=core, memory=gib * GIB)


def use(minor: int, percent: int = 100, *, device_id: str = "") -> DeviceUse:
    """A known use of a GPU."""
    return DeviceUse("gpu", minor, device_id, core=percent, ratio=percent)


def minors(pods: tuple[tuple[DeviceUse, ...], ...], kind: str = "gpu") -> list[list[int]]:
    """The minors of a kind that each pod got."""
    return [[one.minor for one in uses if one.kind == kind] for uses in pods]
