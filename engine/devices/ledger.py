"""The devices of all hosts and their free amounts, in dense arrays: slots for every host at once.

The state of a host is a function of its inventory and its holders, so that any history ends in the same state as a
fresh count. A host that changed is computed again at the next query.

Rows of an array are long (one entry per host), so that sums over the devices of a host are sums of long vectors. Hosts
with about as many devices share a table, so that one host with very many does not make all arrays high.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.api.device import DeviceRequest
from engine.devices import fit
from engine.devices.choose import slots
from engine.devices.free import FreeDevice, offered_memory, unused
from engine.devices.inventory import Inventory
from engine.devices.scopes import Partitions, numa_scope, pcie_scope, pods_in_scope, scope_numbers, socket_scope
from engine.devices.usage import DeviceHolding, Holder, free_devices
from engine.planner.tree import Ints64
from engine.resources.names import WHOLE

Rows = npt.NDArray[np.intp]
Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


class DeviceTable:
    """Arrays of `height` x hosts, one per amount; 0 (False) where a host has no such device."""

    def __init__(self, height: int, amounts: Mapping[str, npt.DTypeLike]) -> None:
        self._arrays: dict[str, Array] = {name: np.zeros((height, 16), dtype=kind) for name, kind in amounts.items()}
        self._used = 0
        self._vacant: list[int] = []

    def __len__(self) -> int:
        return self._used

    def add(self) -> int:
        """Return the place of a new host."""
        if self._vacant:
            return self._vacant.pop()
        place = self._used
        self._used += 1
        for name, array in self._arrays.items():
            if place == array.shape[1]:
                self._arrays[name] = np.concatenate((array, np.zeros_like(array)), axis=1)
        return place

    def drop(self, place: int) -> None:
        """Free a host's place for the next one."""
        for array in self._arrays.values():
            array[:, place] = 0
        self._vacant.append(place)

    def write(self, place: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set the amounts of a host, one value a device."""
        for name, values in amounts.items():
            column = self._arrays[name][:, place]
            column[: len(values)] = values
            if len(values) < len(column):
                column[len(values) :] = 0

    def read(self, place: int, names: Sequence[str]) -> list[list[int]]:
        """Return some amounts of one host, padding included."""
        return [self._arrays[name][:, place].tolist() for name in names]

    def arrays(self, places: Rows | None) -> dict[str, Array]:
        """Return the amounts of some hosts as devices x hosts; None: of all hosts, not copied."""
        if places is None:
            return {name: array[:, : self._used] for name, array in self._arrays.items()}
        return {name: array[:, places] for name, array in self._arrays.items()}


class DeviceTables:
    """Tables of doubling height for one kind of device; hosts are addressed by their row."""

    def __init__(self, amounts: Mapping[str, npt.DTypeLike]) -> None:
        self._amounts = amounts
        self._tables: list[DeviceTable] = []
        self._table: npt.NDArray[np.int16] = np.full(64, -1, dtype=np.int16)
        self._place: Rows = np.zeros(64, dtype=np.intp)

    def put(self, row: int, devices: int, amounts: Mapping[str, Sequence[int]]) -> None:
        """Set amounts of a host with `devices` devices, one value a device; other amounts stay."""
        before = int(self._table[row]) if row < len(self._table) else -1
        table = _table_for(devices)
        if before != table:
            self._move(row, before, table)
        if table >= 0:
            self._tables[table].write(int(self._place[row]), amounts)

    def read(self, row: int, *names: str) -> list[list[int]] | None:
        """Return some amounts of one host, padding included; None when it has no such device."""
        table = int(self._table[row]) if 0 <= row < len(self._table) else -1
        return self._tables[table].read(int(self._place[row]), names) if table >= 0 else None

    def count(self, rows: Rows, of: Callable[[Arrays], Ints64], *, without: int = 0) -> Ints64:
        """Return a number per host; `of` computes it from arrays of devices x hosts.

        `without`: the number of hosts without such devices.
        """
        result = np.full(len(rows), without, dtype=np.int64)
        for table, positions, places in self._parts(rows):
            # Counting all hosts of a table and picking is cheaper than copying the arrays of most of them.
            if 2 * len(places) > len(table):
                result[positions] = of(table.arrays(None))[places]
            else:
                result[positions] = of(table.arrays(places))
        return result

    def _move(self, row: int, before: int, table: int) -> None:
        while row >= len(self._table):
            self._table = np.concatenate((self._table, np.full_like(self._table, -1)))
            self._place = np.concatenate((self._place, np.zeros_like(self._place)))
        if before >= 0:
            self._tables[before].drop(int(self._place[row]))
        self._table[row] = table
        if table >= 0:
            while table >= len(self._tables):
                self._tables.append(DeviceTable(_LOWEST << len(self._tables), self._amounts))
            self._place[row] = self._tables[table].add()

    def _parts(self, rows: Rows) -> Iterator[tuple[DeviceTable, Rows | slice, Rows]]:
        known = rows < len(self._table)
        within = rows if known.all() else np.where(known, rows, 0)
        tables = np.where(known, self._table[within], -1)
        places = self._place[within]
        for number, table in enumerate(self._tables):
            chosen = tables == number
            if chosen.all():
                yield table, slice(None), places
            elif chosen.any():
                positions = np.flatnonzero(chosen)
                yield table, positions, places[positions]


_LOWEST = 8


def _table_for(number: int) -> int:
    """Return the index of the lowest table that is high enough, -1 for hosts without devices."""
    return -1 if number == 0 else max(0, (number - 1).bit_length() - (_LOWEST - 1).bit_length())


_NOTHING = Inventory()
_GPU_AMOUNTS = {
    "core": np.int16,
    "ratio": np.int16,
    "memory": np.int64,
    "empty": np.bool_,
    "all_core": np.int16,
    "all_ratio": np.int16,
    "size": np.int64,
    "all_memory": np.int64,
    "healthy": np.bool_,
    "pcie": np.int16,
    "numa": np.int16,
    "socket": np.int16,
}
# The amounts that decide how often a GPU takes a request: what is free of them, and what is there without holders.
_FREE_AMOUNTS = ("empty", "core", "ratio", "memory", "size")
_ALL_AMOUNTS = ("healthy", "all_core", "all_ratio", "all_memory", "size")
_MAX_COUNTED = 1_024  # requests for which slots are kept by state
_MAX_COUNTS = 500_000  # slots that are kept of all of these
_MAX_JOINT_COUNTS = 8_192  # kept at a time, of pods that are chosen one after the other
_MAX_STATES = 16_384  # kept at a time; as many hosts as differ in the labels or the free parts of their devices
_SHARE_AMOUNTS = {"share": np.int16, "empty": np.bool_, "all_share": np.int16, "healthy": np.bool_}


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of a host's GPUs: empty, partly used, used up, and unhealthy ones, which add up to `total`."""

    total: int
    free: int
    partly: int
    used: int
    unhealthy: int


class DeviceLedger:
    """Devices by row (`engine.capacity.capacity` numbers hosts so). Not thread-safe: its owner holds the lock, readers
    too.

    `holdings`, by row and holder, belong to the owner, who reports every change of a row (`holdings_changed`).
    """

    def __init__(self, holdings: Mapping[int, Mapping[Holder, DeviceHolding]]) -> None:
        self._holdings = holdings
        self._inventories: dict[int, Inventory] = {}
        self._gpus = DeviceTables(_GPU_AMOUNTS)
        self._shares = {"rdma": DeviceTables(_SHARE_AMOUNTS), "fpga": DeviceTables(_SHARE_AMOUNTS)}
        self._others: dict[str, DeviceTables] = {}  # by the policy's kinds
        self._stale: set[int] = set()
        # For requests that are counted device by device: states of hosts as numbers, and a request's slots by state.
        self._numbers: dict[Hashable, int] = {}
        self._examples: list[tuple[list[FreeDevice], Partitions]] = []  # the devices of one host of each state
        self._states: dict[tuple[int, bool], int] = {}  # by row; also as if it had no holders
        self._counts: dict[DeviceRequest, dict[int, int]] = {}
        self._counted = 0
        self._joint_counts: dict[Hashable, int] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_host(self, row: int, inventory: Inventory | None) -> bool:
        """Set a host's devices, None when it is gone. Return whether anything changed."""
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

    def holdings_changed(self, row: int) -> None:
        """Compute a host again at the next query, because its holdings changed."""
        self._stale.add(row)

    # -- queries -----------------------------------------------------------------------------------------------------

    def slots(self, rows: Rows, request: DeviceRequest, *, empty: bool = False) -> Ints64:
        """Return how many such pods fit on the devices of each host; `empty`: as if no healthy one had a holder."""
        self._refresh()
        rows = np.asarray(rows, dtype=np.intp)
        result: Ints64 = np.full(len(rows), fit.UNLIMITED, dtype=np.int64)
        if request.particular:
            return self._by_state(rows, request, empty=empty)
        if request.selector:
            result = self._by_state(rows, replace(request, rdma=0, fpga=0, others=()), empty=empty)
        elif request.scope == "nvlink":
            result = np.array([self._linked(row, request, empty=empty) for row in rows.tolist()], dtype=np.int64)
        elif request.gpus > 0:
            result = self._gpus.count(rows, partial(_gpus, request, empty))
        for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
            if percent > 0:
                np.minimum(result, self._shares[kind].count(rows, partial(_share, percent, empty)), out=result)
        for kind, part in request.others:
            if (tables := self._others.get(kind)) is not None:
                counted = tables.count(rows, partial(_gpus, part, empty), without=fit.UNLIMITED)
                np.minimum(result, counted, out=result)
        return result

    def least_units(self, rows: Rows, unit: DeviceRequest) -> Ints64:
        """Return how many units (`engine.devices.units`) the smallest healthy GPU of each host has, if it is unused."""
        return self._gpus.count(np.asarray(rows, dtype=np.intp), partial(_least, unit), without=fit.UNLIMITED)

    def slots_of(self, row: int, request: DeviceRequest) -> int:
        """Return how many such pods fit on the devices of one host."""
        self._refresh_row(row)
        if request.particular:
            return self._on_state(self._state_of(row, empty=False), request)
        result = fit.UNLIMITED
        if request.selector:
            result = self._on_state(self._state_of(row, empty=False), replace(request, rdma=0, fpga=0, others=()))
        elif request.scope:
            result = self._within_scope(row, request, empty=False)
        elif request.gpus > 0:
            read = self._gpus.read(row, *_FREE_AMOUNTS)
            result = 0 if read is None else fit.gpu_slots(_often(request, read), request)
        for kind, percent in (("rdma", request.rdma), ("fpga", request.fpga)):
            if percent > 0:
                read = self._shares[kind].read(row, "empty", "share")
                pairs = [] if read is None else list(zip(map(bool, read[0]), read[1], strict=True))
                result = min(result, fit.share_slots(pairs, percent))
        for kind, part in request.others:
            tables = self._others.get(kind)
            if tables is not None and (read := tables.read(row, *_FREE_AMOUNTS)) is not None:
                result = min(result, fit.gpu_slots(_often(part, read), part))
        return result

    def inventory(self, row: int) -> Inventory:
        """Return the devices of a host as they were set."""
        return self._inventories.get(row, _NOTHING)

    def left(self, row: int) -> list[FreeDevice]:
        """Return the free part of each device of a host, in the order of the inventory; a copy for the caller."""
        return free_devices(self.inventory(row), self._holdings.get(row, {}))

    def summary(self, row: int) -> Summary:
        """Return the GPUs of a host in numbers."""
        gpus = [one for one in self.left(row) if one.device.kind == "gpu"]
        healthy = [one for one in gpus if one.device.healthy]
        free = sum(one.empty for one in healthy)
        used = sum(not one.empty and not one.ratio for one in healthy)
        return Summary(len(gpus), free, len(healthy) - free - used, used, len(gpus) - len(healthy))

    def free_gpus(self, rows: Rows) -> Ints64:
        """Return the number of empty healthy GPUs of each host."""
        self._refresh()
        return self._gpus.count(np.asarray(rows, dtype=np.intp), lambda of: fit.summed(of["empty"]))

    def freest_gpu(self, rows: Rows, request: DeviceRequest) -> Ints64:
        """Return the percent left of the freest GPU of each host.

        Of its memory, and of its compute where the request names compute: the smaller one.
        """
        self._refresh()
        return self._gpus.count(np.asarray(rows, dtype=np.intp), partial(_freest, request.core > 0))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        for row in self._stale:
            self._recompute(row)
        self._stale.clear()
        self._forget_states()

    def _refresh_row(self, row: int) -> None:
        if row in self._stale:
            self._recompute(row)
            self._stale.discard(row)
        self._forget_states()

    def _within_scope(self, row: int, request: DeviceRequest, *, empty: bool) -> int:
        """Return how many pods fit on the GPUs of one host, every pod within one scope."""
        inventory = self.inventory(row)
        gpus = [one for one in inventory.devices if one.kind == "gpu"]
        names = _ALL_AMOUNTS if empty else _FREE_AMOUNTS
        read = self._gpus.read(row, *names)
        if read is None:
            return 0
        often = _often(request, read)[: len(gpus)]
        taking = [one for one, (free, times) in zip(gpus, often, strict=True) if free and times]
        return pods_in_scope(taking, request.gpus, request.scope, inventory.partitions)

    def _by_state(self, rows: Rows, request: DeviceRequest, *, empty: bool) -> Ints64:
        """Return the slots of a request that is counted device by device, once for all hosts of one state."""
        states = [self._state_of(row, empty=empty) for row in rows.tolist()]
        return np.array([self._on_state(state, request) for state in states], dtype=np.int64)

    def _on_state(self, state: int, request: DeviceRequest) -> int:
        """Return how many pods fit on a host of this state; kept."""
        known = self._counts.get(request)
        if known is None:
            while len(self._counts) >= _MAX_COUNTED:
                self._forget_oldest()
            known = self._counts[request] = {}
        if state not in known:
            if len(self._joint_counts) >= _MAX_JOINT_COUNTS:
                self._joint_counts.clear()
            devices, partitions = self._examples[state]
            if request.particular:
                reported = any(one.device.kind == "rdma" for one in devices)
            else:
                reported = any(one.device.labels for one in devices)
            known[state] = slots(devices, request, partitions=partitions, known=self._joint_counts) if reported else 0
            self._counted += 1
            while self._counted > _MAX_COUNTS and len(self._counts) > 1:
                self._forget_oldest()
        return known[state]

    def _forget_oldest(self) -> None:
        self._counted -= len(self._counts.pop(next(iter(self._counts))))

    def _state_of(self, row: int, *, empty: bool) -> int:
        """Return the number of a host's state: hosts that have the same devices left have the same number."""
        state = self._states.get((row, empty))
        if state is not None:
            return state
        inventory = self.inventory(row)
        as_empty = empty or row not in self._holdings
        devices = [unused(one) for one in inventory.devices] if as_empty else self.left(row)
        key = _state(inventory, devices)
        state = self._numbers.get(key)
        if state is None:
            state = self._numbers[key] = len(self._examples)
            self._examples.append((devices, inventory.partitions))
        self._states[row, empty] = state
        if as_empty and row not in self._holdings:
            self._states[row, False] = self._states[row, True] = state
        return state

    def _forget_states(self) -> None:
        """Forget the states when there are too many: hosts change, and states of the past are kept."""
        if len(self._examples) >= _MAX_STATES:
            for kept in (self._numbers, self._examples, self._states, self._counts):
                kept.clear()
            self._counted = 0

    def _linked(self, row: int, request: DeviceRequest, *, empty: bool) -> int:
        if request.gpus not in self.inventory(row).partitions:
            return 0
        return self._within_scope(row, request, empty=empty)

    def _set_up(self, row: int, inventory: Inventory) -> None:
        """Write the amounts of the devices without holders."""
        self._states.pop((row, True), None)
        for kind in {one.kind for one in inventory.devices} - self._others.keys() - {"gpu", *self._shares}:
            self._others[kind] = DeviceTables(_GPU_AMOUNTS)
        for kind, tables in (("gpu", self._gpus), *self._others.items()):
            gpus = [one for one in inventory.devices if one.kind == kind]
            tables.put(
                row,
                len(gpus),
                {
                    "all_core": [one.core * one.healthy for one in gpus],
                    "all_ratio": [one.ratio * one.healthy for one in gpus],
                    "size": [one.memory for one in gpus],
                    "all_memory": [offered_memory(one) for one in gpus],
                    "healthy": [one.healthy for one in gpus],
                    "pcie": scope_numbers(gpus, pcie_scope),
                    "numa": scope_numbers(gpus, numa_scope),
                    "socket": scope_numbers(gpus, socket_scope),
                },
            )
        for kind, tables in self._shares.items():
            others = [one for one in inventory.devices if one.kind == kind]
            tables.put(
                row,
                len(others),
                {
                    "all_share": [one.share * one.healthy for one in others],
                    "healthy": [one.healthy for one in others],
                },
            )

    def _recompute(self, row: int) -> None:
        self._states.pop((row, False), None)
        left = self.left(row)
        counted = 0
        for kind, tables in (("gpu", self._gpus), *self._others.items()):
            gpus = [one for one in left if one.device.kind == kind]
            counted += len(gpus)
            tables.put(
                row,
                len(gpus),
                {
                    "core": [one.core for one in gpus],
                    "ratio": [one.ratio for one in gpus],
                    "memory": [one.memory for one in gpus],
                    "empty": [one.empty for one in gpus],
                },
            )
        if counted == len(left):
            return
        for kind, tables in self._shares.items():
            others = [one for one in left if one.device.kind == kind]
            tables.put(
                row, len(others), {"share": [one.share for one in others], "empty": [one.empty for one in others]}
            )


def _state(inventory: Inventory, left: Sequence[FreeDevice]) -> Hashable:
    """Return all that decides how many pods fit on a host: names and addresses do not."""
    return tuple(
        (
            (device := one.device).kind,
            device.minor,
            (one.core, one.ratio, one.memory, one.share, one.empty, device.core, device.ratio, device.memory),
            (device.socket, device.numa, device.pcie),
            device.labels,
            tuple(function.labels for function in one.functions),
        )
        for one in left
    ), tuple(inventory.partitions.items())


def _gpus(request: DeviceRequest, empty: bool, of: Arrays) -> Ints64:
    free, core, ratio, memory, size = (of[name] for name in (_ALL_AMOUNTS if empty else _FREE_AMOUNTS))
    scopes = of[request.scope] if request.scope else None
    return fit.gpu_slots_many(request, core=core, ratio=ratio, memory=memory, size=size, empty=free, scopes=scopes)


def _least(unit: DeviceRequest, of: Arrays) -> Ints64:
    healthy, core, ratio, memory, size = (of[name] for name in _ALL_AMOUNTS)
    return fit.least_times_many(unit, core=core, ratio=ratio, memory=memory, size=size, healthy=healthy)


def _freest(compute: bool, of: Arrays) -> Ints64:
    left = np.minimum(of["ratio"], of["core"]) if compute else of["ratio"]
    most: Ints64 = np.minimum(left.max(axis=0), WHOLE).astype(np.int64)
    return most


def _share(percent: int, empty: bool, of: Arrays) -> Ints64:
    if empty:
        return fit.share_slots_many(percent, share=of["all_share"], empty=of["healthy"])
    return fit.share_slots_many(percent, share=of["share"], empty=of["empty"])


def _often(request: DeviceRequest, read: list[list[int]]) -> list[tuple[bool, int]]:
    return [
        (bool(empty), fit.times(request, core, ratio, memory, size, empty=bool(empty)))
        for empty, core, ratio, memory, size in zip(*read, strict=True)
    ]
