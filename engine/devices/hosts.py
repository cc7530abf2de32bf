"""The devices of the hosts as far as they decide: what the numbers of a node alone do not tell.

On a host that reports whole GPUs by a vendor's name, without a Device object and without a pod that asks by
Koordinator's names, the reported number says it all, and nothing here is counted. On every other host with devices the
slots are also limited by the devices: four free halves are not two free GPUs. Rows are those of
`engine.cache.capacity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.api.device import DeviceRequest, DeviceUse, NodeDevices
from engine.api.objects import Node
from engine.api.resources import Requests
from engine.devices.allocation import believed
from engine.devices.choose import choose_devices
from engine.devices.fit import slots as slots_on
from engine.devices.free import FreeDevice, completed
from engine.devices.inventory import Inventory, inventory
from engine.devices.ledger import DeviceLedger, Summary
from engine.devices.resources import KOORDINATOR, WHOLE
from engine.devices.usage import Holder, Holding, free_devices

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
Uses = tuple[DeviceUse, ...]

# Why devices of a host do not count; the words stand in lists of nodes as they are.
UNHEALTHY: Final = "with unhealthy devices"
NOT_UNDERSTOOD: Final = "whose devices are not understood"
DISAGREEING: Final = "whose devices are not what the node reports"


@dataclass(frozen=True, slots=True)
class Held:
    """What a holder has on a host: `count` pods of one request, the devices of those of which they are known.

    `uid`: of a pod that is there, for what its host tells of it.
    """

    request: DeviceRequest
    uses: tuple[Uses, ...] = ()
    count: int = 1
    by_name: bool = True  # whole GPUs under a vendor's name: the node's numbers count them
    uid: str = ""


def by_vendor_name(requests: Requests) -> bool:
    """True when none of the requests is a dimension of Koordinator's, which a vendor's number does not count."""
    return not any(name in KOORDINATOR for name, _ in requests)


class HostDevices:
    """Devices and their holders by row. Not thread-safe: its owner (`engine.cache.capacity`) is not either."""

    def __init__(self) -> None:
        self._told: dict[str, NodeDevices] = {}
        self._nodes: dict[int, Node] = {}
        self._holders: dict[int, dict[Holder, Held]] = {}
        self._odd: Counter[int] = Counter()  # holders that the node's numbers do not count, by row
        self._ledger = DeviceLedger()
        self._matter: npt.NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)
        self._rows: set[int] = set()
        self._given: dict[int, Mapping[str, tuple[tuple[str, int], ...]]] = {}  # NodeDevices.given, by row
        self._trouble: dict[int, str] = {}
        self._lost: dict[int, dict[Holder, bool]] = {}  # what `lost` said since the row last changed

    # -- what changes; each tells whether slots may have changed -------------------------------------------------------

    def set_host(self, row: int, node: Node | None) -> bool:
        """Take over what a node reports; None when it is gone."""
        if node is None:
            self._nodes.pop(row, None)
        else:
            self._nodes[row] = node
        return self._look(row)

    def tell(self, name: str, devices: NodeDevices | None, *, row: int | None) -> bool:
        """Take over a Device object; None when it is gone. `row`: of its node, None when there is none."""
        if devices is None:
            self._told.pop(name, None)
        else:
            self._told[name] = devices
        return row is not None and self._look(row)

    def hold(self, row: int, holder: Holder, held: Held | None) -> None:
        """Set what a holder has on a host; None: nothing (any more)."""
        holders = self._holders.get(row)
        before = holders.pop(holder, None) if holders is not None else None
        if before == held:
            if holders is not None and held is not None:
                holders[holder] = held
            return
        if held is not None:
            holders = self._holders.setdefault(row, {})
            holders[holder] = held
        if not holders:
            self._holders.pop(row, None)
        if row in self._rows:
            self._lost.pop(row, None)
            self._pass_on(row, holder, held)
        odd = (held is not None and not held.by_name) - (before is not None and not before.by_name)
        if odd:
            self._odd[row] += odd
            if not self._odd[row]:
                del self._odd[row]
            self._look(row)

    # -- what is asked -----------------------------------------------------------------------------------------------

    @property
    def matter(self) -> bool:
        """True when there is a host whose devices decide."""
        return bool(self._rows)

    def limit(self, slots: Ints, rows: Rows, request: DeviceRequest, *, empty: bool = False, sick: bool = True) -> None:
        """Lower the slots of hosts, in place, to what fits on their devices.

        `empty`: if nobody held any. Without `sick` hosts that have sick devices are left as they are.
        """
        where = self._where(rows)
        if not sick and self._trouble:
            where = where[[row not in self._trouble for row in rows[where].tolist()]]
        if len(where):
            slots[where] = np.minimum(slots[where], self._ledger.slots(rows[where], request, empty=empty))

    def whole_free(self, gpus: Ints, rows: Rows) -> None:
        """Lower the free whole GPUs of hosts, in place, to those that nobody holds a part of."""
        where = self._where(rows)
        if len(where):
            gpus[where] = np.minimum(gpus[where], self._ledger.free_gpus(rows[where]))

    def freest(self, rows: Rows, request: DeviceRequest) -> Ints:
        """Percent left of the freest GPU of each host; 0 where its devices do not matter."""
        found: Ints = np.zeros(len(rows), dtype=np.int64)
        where = self._where(rows)
        if len(where):
            found[where] = self._ledger.freest_gpu(rows[where], request)
        return found

    def trouble(self, row: int) -> str:
        """Why devices of a host do not count: one of the words above, "" when all count."""
        return self._trouble.get(row, "")

    def room(self, row: int, request: DeviceRequest) -> int | None:
        """How many pods fit on the devices of one host; None where the node's numbers say it."""
        return self._ledger.slots_of(row, request) if row in self._rows else None

    def tells(self, row: int, request: DeviceRequest) -> bool:
        """True when the host's Device object names devices of every kind that is asked for."""
        node = self._nodes.get(row)
        told = self._told.get(node.name) if node is not None else None
        if told is None:
            return False
        kinds = {device.kind for device in told.devices}
        wanted = {"gpu": request.gpus, "rdma": request.rdma, "fpga": request.fpga}
        return kinds.issuperset(kind for kind, amount in wanted.items() if amount)

    def choose(
        self,
        row: int,
        request: DeviceRequest,
        count: int,
        *,
        without: Holder | None = None,
        beside: Iterable[Uses] = (),
    ) -> tuple[Uses, ...] | None:
        """The devices of so many pods more; None where the host does not tell its devices or they do not fit.

        With `without` as if that holder had nothing there but what `beside` says.
        """
        if count <= 0 or row not in self._rows or not self.tells(row, request):
            return None
        left = self.left(row, without=without)
        for uses in beside:
            _take(left, uses)
        chosen = choose_devices(left, request, count, partitions=self._ledger.inventory(row).partitions)
        return chosen if len(chosen) == count else None

    def fit(self, row: int, wanted: Iterable[tuple[DeviceRequest, int]]) -> bool:
        """True when the devices of a host do for so many pods more of each request, one after the other."""
        if row not in self._rows:
            return True
        left = self.left(row)
        partitions = self._ledger.inventory(row).partitions
        for request, count in wanted:
            chosen = choose_devices(left, request, count, partitions=partitions)
            if len(chosen) < count:
                return False
            for uses in chosen:
                _take(left, uses)
        return True

    def lost(self, row: int, holder: Holder) -> bool:
        """True when a holder's devices are not all there for it: sick, gone, or in use by others."""
        if row not in self._rows:
            return False
        known = self._lost.setdefault(row, {})
        if holder not in known:
            held = self._holders.get(row, {}).get(holder)
            known[holder] = held is not None and not self._there(row, holder, held)
        return known[holder]

    def left(self, row: int, *, without: Holder | None = None) -> list[FreeDevice]:
        """What is left of each device of a host, when need be as if a holder were not there."""
        others = {
            holder: Holding(held.request, self._known(row, held), held.count)
            for holder, held in self._holders.get(row, {}).items()
            if holder != without
        }
        return free_devices(self._ledger.inventory(row), others)

    def _there(self, row: int, holder: Holder, held: Held) -> bool:
        left = self.left(row, without=holder)
        for uses in held.uses:
            if not _fits(left, uses, held.request):
                return False
            _take(left, uses)
        return slots_on(left, held.request) >= held.count - len(held.uses)

    def summary(self, row: int) -> Summary | None:
        """The GPUs of a host in numbers; None where the node's numbers say it."""
        return self._ledger.summary(row) if row in self._rows else None

    def notes(self, name: str, row: int | None) -> tuple[str, ...]:
        """What is wrong with what a host tells of its devices: what is left out, where node and object disagree."""
        told = self._told.get(name)
        disagreements = self._ledger.inventory(row).notes if row is not None and row in self._rows else ()
        return (told.faults if told is not None else ()) + disagreements

    # -- inside ------------------------------------------------------------------------------------------------------

    def _where(self, rows: Rows) -> Rows:
        """The positions of those rows whose devices matter."""
        if not self._rows:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self._matter[np.minimum(rows, len(self._matter) - 1)] & (rows < len(self._matter)))

    def _look(self, row: int) -> bool:
        """Begin or end to count the devices of a host, or count them anew."""
        self._lost.pop(row, None)
        node = self._nodes.get(row)
        told = self._told.get(node.name) if node is not None else None
        matter = node is not None and (told is not None or row in self._odd or _counts_devices(node))
        if not matter:
            if row not in self._rows:
                return False
            self._rows.discard(row)
            self._trouble.pop(row, None)
            self._given.pop(row, None)
            self._matter[row] = False
            self._ledger.set_host(row, None)
            for holder in self._holders.get(row, {}):
                self._ledger.give(row, holder)
            return True
        assert node is not None
        fresh = row not in self._rows
        devices = inventory(node.allocatable, told)
        changed = self._ledger.set_host(row, devices)
        if (told is not None and told.given) or row in self._given:
            changed |= self._settle(row, told)
        if trouble := _trouble(devices, told):
            self._trouble[row] = trouble
        else:
            self._trouble.pop(row, None)
        if fresh:
            while row >= len(self._matter):
                self._matter = np.concatenate([self._matter, np.zeros_like(self._matter)])
            self._rows.add(row)
            self._matter[row] = True
            for holder, held in self._holders.get(row, {}).items():
                self._pass_on(row, holder, held)
        return changed or fresh

    def _settle(self, row: int, told: NodeDevices | None) -> bool:
        """Count pods on the devices that their host says they have; True when it says something else than before."""
        given = told.given if told is not None else {}
        before = self._given.pop(row, {})
        if given:
            self._given[row] = given
        if before == given:
            return False
        for holder, held in self._holders.get(row, {}).items():
            self._pass_on(row, holder, held)
        return True

    def _known(self, row: int, held: Held) -> tuple[Uses, ...]:
        """The devices of those pods of a holder of which they are known.

        A pod's own annotation goes before what its host tells: the agents leave out who has one. What the host tells
        of pods that are gone says nothing: a kubelet forgets a pod's devices only when it gives the next.
        """
        given = self._given.get(row, {}).get(held.uid, ()) if held.uid and not held.uses else ()
        uses = believed([DeviceUse(kind, minor) for kind, minor in given], held.request) if given else None
        return (uses,) if uses is not None else held.uses

    def _pass_on(self, row: int, holder: Holder, held: Held | None) -> None:
        if held is None:
            self._ledger.give(row, holder)
        else:
            self._ledger.take(row, holder, held.request, self._known(row, held), count=held.count)


def _counts_devices(node: Node) -> bool:
    """True when a node reports devices under Koordinator's names."""
    allocatable = node.allocatable
    return not KOORDINATOR.isdisjoint(allocatable) and any(allocatable.get(name, 0) > 0 for name in KOORDINATOR)


def _trouble(devices: Inventory, told: NodeDevices | None) -> str:
    if told is not None and told.faults:
        return NOT_UNDERSTOOD
    if told is not None and not all(one.healthy for one in told.devices):
        return UNHEALTHY
    return DISAGREEING if devices.notes else ""


def _fits(left: Iterable[FreeDevice], uses: Uses, request: DeviceRequest) -> bool:
    """True when every one of a pod's devices is there for it."""
    by_minor = {(one.device.kind, one.device.minor): one for one in left}
    for use in uses:
        one = by_minor.get((use.kind, use.minor))
        if one is None or not one.device.healthy:
            return False
        if (request.whole if use.kind == "gpu" else use.share >= WHOLE) and not one.empty:
            return False
        part = completed(use, one.device)
        if part.core > one.core or part.ratio > one.ratio or part.memory > one.memory or part.share > one.share:
            return False
    return True


def _take(left: Iterable[FreeDevice], uses: Uses) -> None:
    by_minor = {(one.device.kind, one.device.minor): one for one in left}
    for use in uses:
        if (one := by_minor.get((use.kind, use.minor))) is not None:
            one.take(completed(use, one.device))
