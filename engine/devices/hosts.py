"""Tracks the devices of hosts where the numbers in the node's resources are not sufficient.

On a host that reports whole GPUs by a vendor's name, without a Device object and without a pod that uses Koordinator's
names, the reported number is enough, and its devices are not counted here. On every other host with devices the slots
are also limited by the devices: four free halves are not two free GPUs. Rows are those of `engine.capacity.capacity`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from engine.api.device import DeviceRequest, DeviceUse, NodeDevices, VirtualFunction
from engine.api.objects import Node
from engine.api.resources import Requests
from engine.api.text import sanitize
from engine.devices.allocation import limit_to_request
from engine.devices.choose import choose_devices
from engine.devices.choose import slots as slots_on
from engine.devices.fit import UNLIMITED
from engine.devices.free import FreeDevice, completed, unused
from engine.devices.inventory import Inventory, inventory
from engine.devices.ledger import DeviceLedger, Rows, Summary
from engine.devices.scopes import reported_scopes
from engine.devices.usage import DeviceHolding, Holder, free_devices
from engine.planner.tree import Bools, Ints64
from engine.resources.kinds import NO_KINDS, DeviceKinds
from engine.resources.names import KINDS, KOORDINATOR, WHOLE
from engine.resources.overcommit import NO_OVERCOMMIT, Overcommit

Uses = tuple[DeviceUse, ...]

# Why devices of a host do not count; the words appear in lists of nodes as they are.
UNHEALTHY: Final = "with unhealthy devices"
NOT_UNDERSTOOD: Final = "with devices that cannot be read"
DISAGREEING: Final = "with devices that differ from its resources"
# Sizes of GPUs that are told apart when units are counted; beyond that the smallest hosts have no limit.
_MAX_SIZES: Final = 4


def allocation_order(request: DeviceRequest) -> int:
    """Return the sort key by which pods on one host choose: most whole GPUs first, the others fit around them."""
    return -request.gpus if request.whole else 0


def by_vendor_name(requests: Requests) -> bool:
    """Return whether no request is one of Koordinator's dimensions, which a vendor's number does not count."""
    return not any(name in KOORDINATOR for name, _ in requests)


class HostDevices:
    """Devices and their holders by row. Not thread-safe: its owner (`engine.capacity.capacity`) is not either."""

    def __init__(self) -> None:
        self._kinds = NO_KINDS
        self._overcommit = NO_OVERCOMMIT
        self.stamp = 0  # another number whenever a node, or what it has of devices, may have changed
        self._objects: dict[str, NodeDevices] = {}
        self._nodes: dict[int, Node] = {}
        self._holdings: dict[int, dict[Holder, DeviceHolding]] = {}
        self._uncounted: Counter[int] = Counter()  # holders that the node's numbers do not count, by row
        self._ledger = DeviceLedger(self._holdings)
        self._counted: Bools = np.zeros(64, dtype=np.bool_)
        self._rows: set[int] = set()
        self._given: dict[int, Mapping[str, Uses]] = {}  # NodeDevices.given, by row
        self._problems: dict[int, str] = {}
        self._scopes: dict[int, frozenset[str]] = {}  # the scopes that a host reports, where it reports any
        self._reporting: Counter[str] = Counter()  # hosts by scope
        self._lost: dict[int, dict[Holder, bool]] = {}  # what `lost` said since the row last changed

    # -- changes; each method returns whether slots may have changed ---------------------------------------------------

    def set_host(self, row: int, node: Node | None) -> bool:
        """Store the resources that a node reports; None when the node is gone."""
        if node is None:
            self._nodes.pop(row, None)
        else:
            self._nodes[row] = node
        return self._refresh(row)

    def set_device_object(self, name: str, devices: NodeDevices | None, *, row: int | None) -> bool:
        """Store a Device object; None when it is gone. `row`: of its node, None when there is no node."""
        if devices is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = devices
        return row is not None and self._refresh(row)

    def set_rules(self, kinds: DeviceKinds, overcommit: Overcommit) -> bool:
        """Set the kinds of devices that the policy declares, and how far GPUs are overcommitted."""
        self._kinds, self._overcommit = kinds, overcommit
        return any([self._refresh(row) for row in self._nodes])

    def hold(self, row: int, holder: Holder, holding: DeviceHolding | None) -> None:
        """Set a holder's pods on a host; None removes them."""
        if holding is not None and row in self._given:
            holding = self._with_given(row, holding)
        holdings = self._holdings.setdefault(row, {})
        before = holdings.pop(holder, None)
        if holding is not None:
            holdings[holder] = holding
        elif not holdings:
            del self._holdings[row]
        if before == holding:
            return
        if row in self._rows:
            self._lost.pop(row, None)
            self._ledger.holdings_changed(row)
        change = (holding is not None and not holding.by_name) - (before is not None and not before.by_name)
        if change:
            self._uncounted[row] += change
            if not self._uncounted[row]:
                del self._uncounted[row]
            self._refresh(row)

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def relevant(self) -> bool:
        """True when devices are counted on at least one host."""
        return bool(self._rows)

    def counted(self, row: int) -> bool:
        """True when a host reports its devices, so that they are counted."""
        return row in self._rows

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that at least one host reports of its GPUs."""
        return frozenset(self._reporting)

    def limit(
        self, slots: Ints64, rows: Rows, request: DeviceRequest, *, empty: bool = False, sick: bool = True
    ) -> None:
        """Lower the slots of hosts, in place, to the pods that fit on their devices.

        `empty`: as if no device had a holder. `sick` False: skip hosts that have devices with problems. A host that
        does not report its devices has no slots for pods that need to know what they share, or their labels.
        """
        where = self._counted_positions(rows)
        if request.reported_only:
            unknown = np.ones(len(rows), dtype=np.bool_)
            unknown[where] = False
            slots[unknown] = 0
        if not sick and self._problems:
            where = where[[row not in self._problems for row in rows[where].tolist()]]
        if len(where):
            slots[where] = np.minimum(slots[where], self._ledger.slots(rows[where], request, empty=empty))

    def gpu_units(
        self, rows: Rows, unit: DeviceRequest, *, empty: bool = False, sick: bool = True
    ) -> list[tuple[int, Ints64]]:
        """Return how many units (`engine.devices.units`) each host has left, and beside it how many an unused GPU has.

        Once for each number that the GPUs of hosts have at least, as the units of the hosts that have so many; others
        have no limit there, nor have hosts where devices are not counted. `empty` and `sick` as in `limit`.
        """
        where = self._counted_positions(rows)
        least = self._ledger.least_units(rows[where], unit)
        left = self._ledger.slots(rows[where], unit, empty=empty)
        if not sick and self._problems:
            left[[row in self._problems for row in rows[where].tolist()]] = UNLIMITED
        found = []
        for number in np.unique(least[(least > 0) & (least < UNLIMITED)])[-_MAX_SIZES:].tolist():
            units: Ints64 = np.full(len(rows), UNLIMITED, dtype=np.int64)
            units[where] = np.where(least >= number, left, UNLIMITED)
            found.append((number, units))
        return found

    def whole_free(self, gpus: Ints64, rows: Rows) -> None:
        """Lower the free whole GPUs of hosts, in place, to the empty ones."""
        where = self._counted_positions(rows)
        if len(where):
            gpus[where] = np.minimum(gpus[where], self._ledger.free_gpus(rows[where]))

    def freest(self, rows: Rows, request: DeviceRequest) -> Ints64:
        """Return the percent left of the freest GPU of each host; 0 where devices are not counted."""
        found: Ints64 = np.zeros(len(rows), dtype=np.int64)
        where = self._counted_positions(rows)
        if len(where):
            found[where] = self._ledger.freest_gpu(rows[where], request)
        return found

    def problem(self, row: int) -> str:
        """Return why devices of a host do not count: one of the words above, "" when all count."""
        return self._problems.get(row, "")

    def slots(self, row: int, request: DeviceRequest) -> int | None:
        """Return how many pods fit on the devices of one host; None where devices are not counted and do not matter."""
        if row in self._rows:
            return self._ledger.slots_of(row, request)
        return 0 if request.reported_only else None

    def reports(self, row: int, request: DeviceRequest) -> bool:
        """Return whether the host's Device object lists enough devices of every requested kind."""
        node = self._nodes.get(row)
        reported = self._objects.get(node.name) if node is not None else None
        if reported is None:
            return False
        kinds = {device.kind for device in reported.devices}
        wanted = {"gpu": request.gpus, "rdma": request.rdma, "fpga": request.fpga}
        wanted |= {kind: part.gpus for kind, part in request.others}
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
        """Return the devices for `count` more pods; None where the host reports no devices or they do not fit.

        `without`: as if that holder had nothing on the host but the uses in `beside`.
        """
        if count <= 0 or row not in self._rows or not self.reports(row, request):
            return None
        left = self.left(row, without=without)
        for uses in beside:
            _take(left, uses)
        chosen = choose_devices(left, request, count, partitions=self._ledger.inventory(row).partitions)
        return chosen if len(chosen) == count else None

    def with_amounts(self, row: int, request: DeviceRequest, uses: Uses) -> Uses:
        """Return the devices that a pod has on a host with the amounts that it requests of them.

        Devices that it does not request are left out, but for those of kinds that the policy does not declare now.
        """
        devices = {(one.kind, one.minor): one for one in self._ledger.inventory(row).devices}
        requested = limit_to_request(uses, request, others=True) or ()
        return tuple(
            completed(use, devices[use.kind, use.minor]) if (use.kind, use.minor) in devices else use
            for use in requested
        )

    def fit(self, row: int, wanted: Iterable[tuple[DeviceRequest, int]], *, empty: bool = False) -> bool:
        """Return whether a host's devices hold that many more pods of each request, chosen by `allocation_order`.

        `empty`: as if no device had a holder.
        """
        if row not in self._rows:
            return not any(request.reported_only for request, _ in wanted)
        partitions = self._ledger.inventory(row).partitions
        left = [unused(one) for one in self._ledger.inventory(row).devices] if empty else self.left(row)
        for request, count in sorted(wanted, key=lambda one: allocation_order(one[0])):
            chosen = choose_devices(left, request, count, partitions=partitions)
            if len(chosen) < count:
                return False
            for uses in chosen:
                _take(left, uses)
        return True

    def lost_devices(
        self, row: int, holder: Holder, *, instead: Mapping[Holder, DeviceHolding | None] | None = None
    ) -> bool:
        """Return whether any of a holder's devices is unhealthy, gone, or in use by others.

        `instead`: what other holders are to have for this answer; None: nothing.
        """
        if row not in self._rows:
            return False
        if instead:
            holding = self._holdings.get(row, {}).get(holder)
            return holding is not None and not self._available(row, holder, holding, instead=instead)
        known = self._lost.setdefault(row, {})
        if holder not in known:
            holding = self._holdings.get(row, {}).get(holder)
            known[holder] = holding is not None and not self._available(row, holder, holding)
        return known[holder]

    def left(
        self,
        row: int,
        *,
        without: Holder | None = None,
        instead: Mapping[Holder, DeviceHolding | None] | None = None,
    ) -> list[FreeDevice]:
        """Return the free part of each device of a host.

        `without`: as if the holders that begin so had nothing; then `instead` as in `lost_devices`.
        """
        if without is None:
            return self._ledger.left(row)
        holdings = {**self._holdings.get(row, {}), **(instead or {})}.items()
        others = {
            holder: holding for holder, holding in holdings if holding is not None and holder[: len(without)] != without
        }
        return free_devices(self._ledger.inventory(row), others)

    def free_of_pods(self, row: int) -> int | None:
        """Return how many GPUs of a host no pod uses, whatever is reserved; None where devices are not counted."""
        if row not in self._rows:
            return None
        pods = {holder: holding for holder, holding in self._holdings.get(row, {}).items() if holder[0] == "pod"}
        left = free_devices(self._ledger.inventory(row), pods)
        return sum(one.device.kind == "gpu" and one.empty for one in left)

    def _available(
        self,
        row: int,
        holder: Holder,
        holding: DeviceHolding,
        *,
        instead: Mapping[Holder, DeviceHolding | None] | None = None,
    ) -> bool:
        left = self.left(row, without=holder, instead=instead)
        for uses in holding.uses:
            if not _fits(left, uses, holding.request):
                return False
            _take(left, uses)
        partitions = self._ledger.inventory(row).partitions
        return slots_on(left, holding.request, partitions=partitions) >= holding.count - len(holding.uses)

    def summary(self, row: int) -> Summary | None:
        """Return the GPUs of a host in numbers; None where devices are not counted."""
        return self._ledger.summary(row) if row in self._rows else None

    def notes(self, name: str, row: int | None) -> tuple[str, ...]:
        """Return the errors of a host's Device object, and the differences between node and object."""
        reported = self._objects.get(name)
        disagreements = self._ledger.inventory(row).notes if row is not None and row in self._rows else ()
        if reported is None:
            return disagreements
        unknown = [
            f"{sanitize(kind)} is none of {', '.join((*KINDS, *self._kinds.by_type))}"
            for kind in _undeclared(reported, self._kinds)
        ]
        return (*reported.faults, *unknown, *disagreements)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _counted_positions(self, rows: Rows) -> Rows:
        """Return the positions of the rows on which devices are counted."""
        if not self._rows:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self._counted[np.minimum(rows, len(self._counted) - 1)] & (rows < len(self._counted)))

    def _refresh(self, row: int) -> bool:
        """Start, stop or redo the counting of a host's devices; return whether slots may have changed."""
        self._lost.pop(row, None)
        self.stamp += 1
        node = self._nodes.get(row)
        reported = self._objects.get(node.name) if node is not None else None
        counted = node is not None and (reported is not None or row in self._uncounted or _counts_devices(node))
        if not counted:
            if row not in self._rows:
                return False
            self._rows.discard(row)
            self._problems.pop(row, None)
            self._set_scopes(row, frozenset())
            self._apply_given(row, None)
            self._counted[row] = False
            self._ledger.set_host(row, None)
            return True
        assert node is not None
        fresh = row not in self._rows
        devices = inventory(
            node.allocatable,
            reported,
            vendors=self._kinds.vendors,
            kinds=self._kinds,
            overcommit=self._overcommit,
            labels=node.labels,
        )
        changed = self._ledger.set_host(row, devices)
        if (reported is not None and (reported.given or reported.given_functions)) or row in self._given:
            changed |= self._apply_given(row, reported)
        self._set_scopes(row, reported_scopes(devices.devices, devices.partitions))
        if problem := _problem(devices, reported, self._kinds):
            self._problems[row] = problem
        else:
            self._problems.pop(row, None)
        if fresh:
            while row >= len(self._counted):
                self._counted = np.concatenate([self._counted, np.zeros_like(self._counted)])
            self._rows.add(row)
            self._counted[row] = True
        return changed or fresh

    def _set_scopes(self, row: int, scopes: frozenset[str]) -> None:
        before = self._scopes.pop(row, frozenset[str]())
        if scopes:
            self._scopes[row] = scopes
        self._reporting.update(scopes - before)
        for scope in before - scopes:
            self._reporting[scope] -= 1
            if not self._reporting[scope]:
                del self._reporting[scope]

    def _apply_given(self, row: int, reported: NodeDevices | None) -> bool:
        """Count pods on the devices that their host reports for them; return whether the report changed."""
        given = _given(reported) if reported is not None else {}
        before = self._given.pop(row, {})
        if given:
            self._given[row] = given
        if before == given:
            return False
        holdings = self._holdings.get(row, {})
        for holder, holding in holdings.items():
            holdings[holder] = self._with_given(row, holding)
        self._ledger.holdings_changed(row)
        return True

    def _with_given(self, row: int, holding: DeviceHolding) -> DeviceHolding:
        """Return a holding with the devices that its host reports, where the pod itself does not name them.

        A pod's own annotation goes before the host's report: the agents leave out pods that have one. Reports about
        pods that are gone are ignored: a kubelet forgets a pod's devices only when it allocates the next.
        """
        if not holding.uid:
            return holding
        given = self._given.get(row, {}).get(holding.uid, ())
        uses = limit_to_request(given, holding.request)
        return replace(holding, uses=() if uses is None else (uses,))


def _counts_devices(node: Node) -> bool:
    """Return whether a node reports devices under Koordinator's names."""
    allocatable = node.allocatable
    return not KOORDINATOR.isdisjoint(allocatable) and any(allocatable.get(name, 0) > 0 for name in KOORDINATOR)


def _undeclared(reported: NodeDevices, kinds: DeviceKinds) -> list[str]:
    """Return the kinds of a Device object that neither are built in nor the policy declares."""
    return sorted({one.kind for one in reported.devices} - set(KINDS) - kinds.by_type.keys())


def _problem(devices: Inventory, reported: NodeDevices | None, kinds: DeviceKinds) -> str:
    if reported is not None and (reported.faults or _undeclared(reported, kinds)):
        return NOT_UNDERSTOOD
    if reported is not None and not all(one.healthy for one in reported.devices):
        return UNHEALTHY
    return DISAGREEING if devices.notes else ""


def _given(reported: NodeDevices) -> dict[str, Uses]:
    """Return the devices that a host reports for pods, by uid; virtual functions with their device."""
    found: dict[str, Uses] = {}
    for uid in reported.given.keys() | reported.given_functions.keys():
        uses = {pair: DeviceUse(*pair) for pair in reported.given.get(uid, ())}
        for minor, bus in reported.given_functions.get(uid, ()):
            use = uses.setdefault(("rdma", minor), DeviceUse("rdma", minor))
            uses["rdma", minor] = replace(use, functions=(*use.functions, VirtualFunction(0, bus)))
        found[uid] = tuple(uses[pair] for pair in sorted(uses))
    return found


def _fits(left: Iterable[FreeDevice], uses: Uses, request: DeviceRequest) -> bool:
    """Return whether every one of a pod's devices is healthy and has enough left for it."""
    by_minor = {(one.device.kind, one.device.minor): one for one in left}
    for use in uses:
        one = by_minor.get((use.kind, use.minor))
        if one is None or not one.device.healthy:
            return False
        whole = request.whole if use.kind == "gpu" else use.share >= WHOLE
        whole |= any(kind == use.kind and other.whole for kind, other in request.others)
        if whole and not one.empty:
            return False
        if not {function.bus for function in use.functions}.issubset({function.bus for function in one.functions}):
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
