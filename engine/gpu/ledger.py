"""The devices of every host and who holds them: slots for all hosts at once, and the devices of a pod.

The state of a host is a function of its inventory and its holders, so that any history ends in what counting afresh
gives. A host that changed is laid again when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.api.device import DeviceRequest, DeviceUse
from engine.gpu import fit
from engine.gpu.choose import choose
from engine.gpu.inventory import Inventory
from engine.gpu.laying import Holder, Holding, laid
from engine.gpu.left import Left
from engine.gpu.table import Arrays, Bank, Ints, Rows

_NOTHING = Inventory()
_GPU_AMOUNTS = {
    "core": np.int16,
    "ratio": np.int16,
    "memory": np.int64,
    "empty": np.bool_,
    "all_core": np.int16,
    "all_ratio": np.int16,
    "size": np.int64,
    "healthy": np.bool_,
}
_SHARE_AMOUNTS = {"share": np.int16, "empty": np.bool_, "all_share": np.int16, "healthy": np.bool_}


@dataclass(frozen=True, slots=True)
class Summary:
    """The GPUs of a host in numbers that add up to `total`: `free` nobody holds, of `partly` used ones something is
    left, of `used` ones nothing, `unhealthy` ones offer nothing.
    """

    total: int
    free: int
    partly: int
    used: int
    unhealthy: int


class DeviceLedger:
    """Devices by row (`engine.capacity` numbers hosts so). Not thread-safe: its owner holds the lock, readers too."""

    def __init__(self) -> None:
        self._inventories: dict[int, Inventory] = {}
        self._holdings: dict[int, dict[Holder, Holding]] = {}
        self._gpus = Bank(_GPU_AMOUNTS)
        self._shares = {"rdma": Bank(_SHARE_AMOUNTS), "fpga": Bank(_SHARE_AMOUNTS)}
        self._stale: set[int] = set()

    # -- what changes ------------------------------------------------------------------------------------------------

    def set_host(self, row: int, inventory: Inventory | None) -> bool:
        """Take over a host's devices, None when it is gone; holders stay. Return whether anything changed."""
        inventory = inventory or _NOTHING
        if self._inventories.get(row, _NOTHING) == inventory:
            return False
        if inventory == _NOTHING:
            del self._inventories[row]
        else:
            self._inventories[row] = inventory
        self._set_up(row, inventory)
        self._stale.add(row)
        return True

    def take(
        self,
        row: int,
        holder: Holder,
        request: DeviceRequest | None,
        uses: Sequence[tuple[DeviceUse, ...]] | None = None,
        *,
        count: int = 1,
    ) -> None:
        """Count `count` pods of a holder on a host, in place of what it had there.

        `uses`: the devices of as many of them as are known, one tuple a pod; what a pod's uses do not cover of the
        request, and pods without uses, are laid where they fit. `request` None: only the uses count.
        """
        holding = Holding(request, tuple(uses or ()), max(count, len(uses or ())))
        if holding.count <= 0 or (request is None and not holding.uses):
            self.give(row, holder)
            return
        holdings = self._holdings.setdefault(row, {})
        if holdings.get(holder) != holding:
            holdings[holder] = holding
            self._stale.add(row)

    def give(self, row: int, holder: Holder) -> None:
        """Undo `take`; nothing when the holder has nothing there."""
        holdings = self._holdings.get(row)
        if holdings is None or holdings.pop(holder, None) is None:
            return
        if not holdings:
            del self._holdings[row]
        self._stale.add(row)

    # -- what is asked -----------------------------------------------------------------------------------------------

    def slots(self, rows: Rows, request: DeviceRequest, *, empty: bool = False) -> Ints:
        """Return how many such pods fit on the devices of each host; `empty`: if nobody held any (unhealthy: none)."""
        self._refresh()
        rows = np.asarray(rows, dtype=np.intp)
        result: Ints = np.full(len(rows), fit.UNLIMITED, dtype=np.int64)
        if request.gpus > 0:
            result = self._gpus.count(rows, partial(_gpus, request, empty))
        for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
            if percent > 0:
                np.minimum(result, self._shares[kind].count(rows, partial(_share, percent, empty)), out=result)
        return result

    def slots_of(self, row: int, request: DeviceRequest) -> int:
        """Return how many such pods fit on the devices of one host."""
        self._refresh_row(row)
        result = fit.UNLIMITED
        if request.gpus > 0:
            read = self._gpus.read(row, "empty", "core", "ratio", "memory", "size")
            result = 0 if read is None else fit.gpu_slots(_often(request, read), request)
        for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
            if percent > 0:
                read = self._shares[kind].read(row, "empty", "share")
                pairs = [] if read is None else list(zip(map(bool, read[0]), read[1], strict=True))
                result = min(result, fit.share_slots(pairs, percent))
        return result

    def choose(self, row: int, request: DeviceRequest, count: int) -> tuple[tuple[DeviceUse, ...], ...]:
        """Return the devices for each of `count` pods more on a host, fewer when no more fit. Takes nothing."""
        return choose(self.left(row), request, count, partitions=self.inventory(row).partitions)

    def inventory(self, row: int) -> Inventory:
        """Return the devices of a host as they were set."""
        return self._inventories.get(row, _NOTHING)

    def left(self, row: int) -> list[Left]:
        """Return what the holders leave of each device of a host, in the order of the inventory; the caller's own."""
        return laid(self.inventory(row), self._holdings.get(row, {}))

    def summary(self, row: int) -> Summary:
        """Return the GPUs of a host in numbers."""
        gpus = [one for one in self.left(row) if one.device.kind == "gpu"]
        healthy = [one for one in gpus if one.device.healthy]
        free = sum(one.empty for one in healthy)
        used = sum(not one.empty and not one.ratio for one in healthy)
        return Summary(len(gpus), free, len(healthy) - free - used, used, len(gpus) - len(healthy))

    def free_gpus(self, rows: Rows) -> Ints:
        """Return how many healthy GPUs that nobody holds each host has."""
        self._refresh()
        return self._gpus.count(np.asarray(rows, dtype=np.intp), lambda of: fit.summed(of["empty"]))

    def freest_gpu(self, rows: Rows, request: DeviceRequest) -> Ints:
        """Return how many percent are left of the one GPU of each host of which most is left.

        Of its memory, and of its compute where the request names compute: the smaller one.
        """
        self._refresh()
        return self._gpus.count(np.asarray(rows, dtype=np.intp), partial(_freest, request.core > 0))

    def held(self, row: int) -> bool:
        """True while somebody holds devices of the row: it must not become another host's."""
        return row in self._holdings

    def holders(self, row: int) -> Iterable[Holder]:
        """Return who holds devices of a host."""
        return tuple(self._holdings.get(row, ()))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        for row in self._stale:
            self._lay(row)
        self._stale.clear()

    def _refresh_row(self, row: int) -> None:
        if row in self._stale:
            self._lay(row)
            self._stale.discard(row)

    def _set_up(self, row: int, inventory: Inventory) -> None:
        """Write down what the devices offer when nobody holds them."""
        gpus = [one for one in inventory.devices if one.kind == "gpu"]
        self._gpus.put(
            row,
            len(gpus),
            {
                "all_core": [one.core * one.healthy for one in gpus],
                "all_ratio": [one.ratio * one.healthy for one in gpus],
                "size": [one.memory for one in gpus],
                "healthy": [one.healthy for one in gpus],
            },
        )
        for kind, bank in self._shares.items():
            others = [one for one in inventory.devices if one.kind == kind]
            bank.put(
                row,
                len(others),
                {
                    "all_share": [one.share * one.healthy for one in others],
                    "healthy": [one.healthy for one in others],
                },
            )

    def _lay(self, row: int) -> None:
        left = self.left(row)
        gpus = [one for one in left if one.device.kind == "gpu"]
        self._gpus.put(
            row,
            len(gpus),
            {
                "core": [one.core for one in gpus],
                "ratio": [one.ratio for one in gpus],
                "memory": [one.memory for one in gpus],
                "empty": [one.empty for one in gpus],
            },
        )
        if len(gpus) == len(left):
            return
        for kind, bank in self._shares.items():
            others = [one for one in left if one.device.kind == kind]
            bank.put(row, len(others), {"share": [one.share for one in others], "empty": [one.empty for one in others]})


def _gpus(request: DeviceRequest, empty: bool, of: Arrays) -> Ints:
    if empty:
        return fit.gpu_slots_many(
            request,
            core=of["all_core"],
            ratio=of["all_ratio"],
            memory=of["size"],
            size=of["size"],
            empty=of["healthy"],
        )
    return fit.gpu_slots_many(
        request, core=of["core"], ratio=of["ratio"], memory=of["memory"], size=of["size"], empty=of["empty"]
    )


def _freest(compute: bool, of: Arrays) -> Ints:
    left = np.minimum(of["ratio"], of["core"]) if compute else of["ratio"]
    most: Ints = left.max(axis=0).astype(np.int64)
    return most


def _share(percent: int, empty: bool, of: Arrays) -> Ints:
    if empty:
        return fit.share_slots_many(percent, share=of["all_share"], empty=of["healthy"])
    return fit.share_slots_many(percent, share=of["share"], empty=of["empty"])


def _often(request: DeviceRequest, read: list[list[int]]) -> list[tuple[bool, int]]:
    return [
        (bool(empty), fit.times(request, core, ratio, memory, size))
        for empty, core, ratio, memory, size in zip(*read, strict=True)
    ]
