"""Free capacity per host: allocatable - usage - reservations, in dense arrays addressed by row.

One row per node, one column per resource that a node has named. Every change is applied as a
difference, so that the state after any history equals the state counted afresh. Slots are counted for all hosts of a
topology at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from engine.api.device import DeviceRequest, DeviceUse, NodeDevices
from engine.api.objects import Node
from engine.api.pod import Pod, Shape
from engine.api.resources import Requests, is_claim, less
from engine.api.workload import ORPHAN_PREFIX, GangKey, ReservationKey
from engine.capacity.eligibility import MAX_WEIGHT, Eligibility, Verdicts, weight_of
from engine.capacity.gang_hosts import GangHosts
from engine.capacity.label_domains import LabelDomains
from engine.capacity.nearby_pods import NearbyPods, PodQuery
from engine.capacity.preferences import NodePreferences
from engine.capacity.resource_table import ResourceTable
from engine.devices.allocation import devices_of, limit_to_request
from engine.devices.hosts import HostDevices, by_vendor_name
from engine.devices.ledger import Rows
from engine.devices.usage import DeviceHolding, Holder
from engine.planner.plan import SlotIndex
from engine.planner.sums import HostScores
from engine.planner.tree import Bools, Ints64
from engine.resources.kinds import NO_KINDS, DeviceKinds
from engine.resources.names import KOORDINATOR, WHOLE, is_gpu
from engine.resources.overcommit import NO_OVERCOMMIT, Overcommit
from engine.topology.topology import Topology

Uses = tuple[DeviceUse, ...]

# Shapes with slots kept summed up between decisions: those of the gangs that wait or come in a row. 16 bytes per
# host and shape, so 64 shapes on 100,000 hosts are 100 MB.
MAX_WARM_SHAPES = 64
# With more than one host in so many changed, counting all of them at once is cheaper than one by one.
RECOUNT = 16
# Labels with their domains kept for each topology, and selections of nodes for spread constraints: 16 bytes and one per
# host.
MAX_DOMAINS = 32
MAX_SELECTIONS = 32
MAX_SELECTION_WEIGHT = 1024
_CLOCKS_DIFFER = 60.0  # seconds
_NO_COLUMN = -1  # the column of a resource that nothing names
_NO_DEVICES = DeviceRequest()


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """Slots of a shape per host, in tree order: `free` by what is free now, `empty` by allocatable alone.

    Both are 0 on hosts that are not eligible; `built` is by allocatable on every host, eligible or not, sick devices
    counted as sound ones.
    """

    free: Ints64
    empty: Ints64
    built: Ints64


@dataclass(frozen=True, slots=True)
class Reserved:
    """Equal pods of a gang that are to come to one host: the requests of each, their devices where known.

    `planned`: what their slots are planned for, where they request more and none of them is released yet.
    """

    count: int
    requests: Requests
    devices: DeviceRequest | None = None
    uses: tuple[Uses, ...] = ()
    planned: Reserved | None = None

    @property
    def beyond(self) -> Requests:
        """What each of them requests beyond its plan."""
        return less(self.requests, self.planned.requests) if self.planned is not None else ()


@dataclass(frozen=True, slots=True)
class _TreeRows:
    """The rows of a topology's hosts in tree order, the host of each row, and domains of labels with their stamp."""

    topology: Topology
    rows: Rows
    hosts: dict[int, int]
    domains: OrderedDict[str, tuple[object, LabelDomains]] = field(default_factory=OrderedDict)


@dataclass(frozen=True, slots=True)
class _Selection:
    """Nodes by row, and the codes of a label that they have, with the stamp of the codes."""

    nodes: Bools
    counted: dict[str, tuple[object, Bools]] = field(default_factory=dict)


@dataclass(slots=True)
class _WarmSlots:
    """The slots of one shape on one topology, current up to `seen` in the log of changed rows."""

    rows: Rows
    index: SlotIndex
    empty: tuple[int, Ints64]  # the slots of empty hosts, with the stamp of the devices when they were counted
    scarce: str
    era: int
    seen: int
    # What `_recount` reads, for so many columns: resolved once, and again when columns are added.
    columns: int = -1
    asked: list[tuple[int, int]] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)


class Capacity:
    """The free resources of every host. Not thread-safe: its owner (`cache.state`) holds the lock."""

    def __init__(self) -> None:
        self.gang_hosts = GangHosts()
        self._rows: dict[str, int] = {}
        self._rows_stamp = 0  # another number whenever a host has got or lost a row
        self._amounts = ResourceTable()
        self._nodes: list[Node | None] = []
        self._eligibility = Eligibility(self._nodes)
        self._preferences = NodePreferences(self._nodes, self._eligibility)
        self._names: list[str] = []
        self._vacant: list[int] = []  # rows of nodes that are gone, to be used again: autoscalers never repeat a name
        self._devices = HostDevices()
        self._kinds = NO_KINDS
        self._overcommit = NO_OVERCOMMIT
        self._usage: dict[tuple[str, str], tuple[int, Requests, DeviceHolding | None]] = {}
        self._expected: dict[str, dict[str, Requests]] = {}  # host -> DaemonSet -> what its pod to come requests
        # -> pod set -> host
        self._reservations: dict[ReservationKey, dict[str, dict[str, tuple[Reserved, ...]]]] = {}
        self._fresh: set[str] = set()  # nodes that may not be settled yet
        self._tree_rows: dict[str, _TreeRows] = {}
        self._selections: OrderedDict[object, _Selection] = (
            OrderedDict()
        )  # dropped when a node's labels or taints change
        self._warm: OrderedDict[tuple[str, Shape], _WarmSlots] = OrderedDict()
        self._warm_weight = 0
        self._touched: list[int] = []  # rows with any change in the present era
        self._era = 0

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Node | None) -> None:
        """Set a node's allocatable, labels and health; None when it is gone."""
        row = self._row(name)
        self._amounts.set_allocatable(row, node.allocatable if node else {})
        before = self._nodes[row]
        if node is not None and (before is None or before.settled_at != node.settled_at):
            self._fresh.add(name)
        if before is None or node is None or before.labels != node.labels or before.taints != node.taints:
            self._selections.clear()
        self._nodes[row] = node
        self._devices.set_host(row, node)
        self._eligibility.changed(row)
        self._preferences.changed(row)
        self._touch(row)
        self._vacate(row)

    def check_settling(self) -> None:
        """Have `unsettled` check every node again, as it may have to settle for longer by now."""
        self._fresh.update(name for name, row in self._rows.items() if self._nodes[row] is not None)

    def keep_topologies(self, names: Collection[str]) -> None:
        """Forget what is kept for topologies other than these."""
        for key in [key for key in self._warm if key[0] not in names]:
            self._warm_weight -= weight_of(key[1])
            del self._warm[key]
        for name in self._tree_rows.keys() - names:
            del self._tree_rows[name]
        self.gang_hosts.keep_topologies(names)

    def set_devices(self, name: str, devices: NodeDevices | None) -> None:
        """Set the Device object of a node; None when it is gone."""
        row = self._rows.get(name)
        if self._devices.set_device_object(name, devices, row=row) and row is not None:
            self._touch(row)

    def set_device_rules(self, kinds: DeviceKinds, overcommit: Overcommit) -> bool:
        """Set the policy's kinds and names of devices, and how far GPUs are overcommitted; True if they differ.

        Pods and reservations are to be set again then.
        """
        if (kinds, overcommit) == (self._kinds, self._overcommit):
            return False
        self._kinds, self._overcommit = kinds, overcommit
        self._devices.set_rules(kinds, overcommit)
        for row in self._rows.values():
            self._touch(row)
        return True

    def set_pod(self, key: tuple[str, str], pod: Pod | None) -> None:
        """Count a pod on the host where it is bound or nominated; None, finished or unbound: nowhere."""
        entry: tuple[int, Requests, DeviceHolding | None] | None = None
        if pod is not None and not pod.finished and (host := pod.spec.node_name or pod.nominated_node):
            entry = (self._row(host), pod.spec.shape.requests, _holding_of_pod(pod, self._kinds))
        before = self._usage.pop(key, None)
        if before is not None:
            self._add(before[0], before[1], 1)
            if before[2] is not None and (entry is None or entry[0] != before[0] or entry[2] is None):
                self._devices.hold(before[0], ("pod", *key), None)
        if entry is not None:
            self._usage[key] = entry
            self._add(entry[0], entry[1], -1)
            if entry[2] is not None:
                self._devices.hold(entry[0], ("pod", *key), entry[2])
        if before is not None:
            self._vacate(before[0])

    def expect_pod(self, daemon_set: str, host: str, pod: Pod | None) -> None:
        """Count the pod of a DaemonSet that is still to come to a host; None: it has come, or will not."""
        self.set_pod((daemon_set, host), pod)
        of_host = self._expected.setdefault(host, {})
        of_host.pop(daemon_set, None)
        if pod is not None:
            of_host[daemon_set] = pod.spec.shape.requests
        elif not of_host:
            del self._expected[host]

    def reserve(
        self,
        key: ReservationKey,
        hosts: Mapping[str, int],
        requests: Requests,
        *,
        pod_set: str = "",
        devices: DeviceRequest | None = None,
        uses: Mapping[str, tuple[Uses, ...]] | None = None,
        others: Mapping[Shape, Mapping[str, int]] | None = None,
        planned: Shape | None = None,
        held: Mapping[Shape, Mapping[str, int]] | None = None,
    ) -> None:
        """Replace the reservation of a key's pod set: host -> number of pods that are still to come there.

        `devices` is what one of them needs of its host's devices, beside what `requests` name of the policy's kinds;
        `uses`, by host, the devices of those pods with known ones. `others`: further pods of the pod set that request
        something else. `held`: how many of all these are not released yet; their slots are for `planned`.
        """
        known, plan = uses or {}, planned or Shape(())
        devices_planned = self._kinds.extended(plan.devices, plan.requests)
        wanted: dict[str, tuple[Reserved, ...]] = {}
        for shape, numbers in (*(others or {}).items(), (Shape(requests, devices=devices), hosts)):
            extended = self._kinds.extended(shape.devices, shape.requests)
            exceeding = held.get(shape, {}) if held and less(shape.requests, plan.requests) else {}
            for host, total in numbers.items():
                more = min(total, exceeding.get(host, 0))
                for count, limited in ((total - more, False), (more, True)):
                    if count > 0:
                        there = wanted.get(host, ())
                        first = sum(one.count for one in there)
                        own = known.get(host, ())[first : first + count]
                        of_plan = Reserved(count, plan.requests, devices_planned, own) if limited else None
                        wanted[host] = (*there, Reserved(count, shape.requests, extended, own, of_plan))
        of_key = self._reservations.setdefault(key, {})
        before = of_key.pop(pod_set, {})
        for host in before.keys() | wanted.keys():
            old, new = before.get(host, ()), wanted.get(host, ())
            if old == new:
                continue
            row = self._row(host)
            if bool(old) != bool(new) and not key.startswith(ORPHAN_PREFIX):
                self.gang_hosts.change(key, host, 1 if new else -1)
            for one in old:
                self._add(row, one.requests, one.count)
            for one in new:
                self._add(row, one.requests, -one.count)
            if any(one.devices is not None for one in (*old, *new)):
                for number, (_, one) in enumerate(zip_longest(old, new)):
                    self._devices.hold(row, _holder(key, pod_set, number), _holding_of_reservation(one))
        if wanted:
            of_key[pod_set] = wanted
        elif not of_key:
            del self._reservations[key]
        for host in before.keys() - wanted.keys():
            self._vacate(self._row(host))

    # -- queries -----------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node | None:
        """Return the node as last seen."""
        row = self._rows.get(name)
        return None if row is None else self._nodes[row]

    def reserved(self, key: ReservationKey) -> dict[str, int]:
        """Return host -> pods still to come, of all pod sets."""
        total: dict[str, int] = {}
        for hosts in self._reservations.get(key, {}).values():
            for host, reserved in hosts.items():
                total[host] = total.get(host, 0) + sum(one.count for one in reserved)
        return total

    def reserved_by(self, key: ReservationKey) -> dict[str, int]:
        """Return pod set -> pods still to come."""
        return {
            name: sum(one.count for reserved in hosts.values() for one in reserved)
            for name, hosts in self._reservations.get(key, {}).items()
        }

    def to_come(self, key: ReservationKey) -> list[tuple[int, Requests]]:
        """Return the pods still to come: the number of those of a pod set that request the same, and what each does."""
        found: Counter[tuple[str, Requests]] = Counter()
        for name, _, reserved in self.reservations_of(key):
            found[name, reserved.requests] += reserved.count
        return [(count, requests) for (_, requests), count in found.items()]

    def reservations(self) -> Iterator[tuple[ReservationKey, str, Reserved]]:
        """Yield all that is reserved: the key, the host, and equal pods to come there; of several pod sets, each."""
        for key in self._reservations:
            for _, host, reserved in self.reservations_of(key):
                yield key, host, reserved

    def reservations_of(self, key: ReservationKey) -> Iterator[tuple[str, str, Reserved]]:
        """Yield what is reserved under a key: the pod set, the host, and equal pods to come there."""
        for name, hosts in self._reservations.get(key, {}).items():
            for host, reserved in hosts.items():
                for one in reserved:
                    yield name, host, one

    def reserving(self) -> list[ReservationKey]:
        """Return the keys that have a reservation."""
        return list(self._reservations)

    def overcommitted(self, host: str, requests: Requests, *, gang: GangKey | None = None) -> bool:
        """True when a host is overcommitted in a resource that `requests` names.

        For a `gang` pods of others that are not released, and exceed their plan by more than its own do, count as they
        were planned: they do not take what is reserved for it.
        """
        row = self._rows.get(host)
        if row is None:
            return False
        short = {name: left for name, amount in requests if amount > 0 and (left := self._amounts.left(row, name)) < 0}
        for _, one in self._exceeding(row, host, gang) if short and gang is not None else ():
            for name, amount in one.beyond:
                if name in short:
                    short[name] += one.count * amount
        return any(left < 0 for left in short.values())

    def _exceeding(self, row: int, host: str, gang: GangKey) -> Iterator[tuple[Holder, Reserved]]:
        """Yield the pods to come that exceed their plan on a host, of other gangs that do so by more than this one.

        The one that exceeds it most counts everything, so that two are never released to the same room.
        """
        own = self._excess(row, host, gang)
        for key in map(ReservationKey, self.gang_hosts.on(host)):
            if self._excess(row, host, key) > own:
                for name, hosts in self._reservations[key].items():
                    for number, one in enumerate(hosts.get(host, ())):
                        if one.beyond:
                            yield _holder(key, name, number), one

    def _excess(self, row: int, host: str, key: ReservationKey) -> float:
        """Return how much of a host the pods to come of a key request beyond their plan: the largest share of it."""
        more = Counter[str]()
        for hosts in self._reservations.get(key, {}).values():
            for one in hosts.get(host, ()):
                for name, amount in one.beyond:
                    more[name] += one.count * amount
        node = self._nodes[row]
        amounts = node.allocatable if node is not None else {}
        return max((amount / max(1, amounts.get(name, 0)) for name, amount in more.items()), default=0.0)

    def eligible_hosts(self, shape: Shape) -> list[str]:
        """Return the hosts that may take pods of a shape, regardless of what is free there."""
        return [self._names[row] for row in np.flatnonzero(self._eligibility.of(shape).mask)]

    def reserved_resource(self, pod: Pod, host: str) -> str | None:
        """Return a resource in which a pod would take reserved capacity on a host; None when there is none."""
        row = self._rows.get(host)
        if row is None:
            return None
        counted = self._usage.get(pod.key)  # a nominated pod is counted before it is bound
        own = dict(counted[1]) if counted is not None and counted[0] == row else {}
        short = {
            resource
            for resource, amount in pod.spec.shape.requests
            if amount > 0 and self._amounts.left(row, resource) + own.get(resource, 0) < amount
        }
        return min(short & self._reserved_on(host), default=None) if short else None

    def takes_reserved(self, requests: Mapping[str, int], host: str) -> bool:
        """Return True if further requests on a host would take reserved capacity there."""
        row = self._rows.get(host)
        if row is None:
            return False
        short = {resource for resource, amount in requests.items() if amount > self._amounts.left(row, resource)}
        return bool(short) and not short.isdisjoint(self._reserved_on(host))

    def _reserved_on(self, host: str) -> set[str]:
        """Return the resources of which something is reserved on a host."""
        return {
            resource
            for pod_sets in self._reservations.values()
            for hosts in pod_sets.values()
            if host in hosts
            for one in hosts[host]
            for resource, amount in one.requests
            if amount > 0
        }

    def lost_devices(self, gang: GangKey, host: str, *, pod_set: str | None = None) -> bool:
        """True when devices reserved for pods of a gang (or of one pod set) on a host are not available to them.

        Sick, gone, or in use by others; of which pods to come count as in `overcommitted`.
        """
        row = self._rows.get(host)
        if row is None:
            return False
        pod_sets = self._reservations.get(gang, {})
        lost = [
            holder
            for name in (pod_sets if pod_set is None else (pod_set,))
            for number in range(len(pod_sets.get(name, {}).get(host, ())))
            if self._devices.lost_devices(row, holder := _holder(gang, name, number))
        ]
        if not lost:
            return False
        planned = {holder: _holding_of_reservation(one.planned) for holder, one in self._exceeding(row, host, gang)}
        return any(self._devices.lost_devices(row, holder, instead=planned) for holder in lost)

    def free(self, host: str) -> dict[str, int]:
        """Return the free amount of each resource on a host (negative when overcommitted)."""
        row = self._rows.get(host)
        return {} if row is None else self._amounts.all_left(row)

    def hosts_expecting(self) -> Iterable[str]:
        """Return the hosts on which pods of DaemonSets are expected."""
        return self._expected.keys()

    def expected_on(self, host: str) -> Iterable[Requests]:
        """Return what each pod of a DaemonSet requests that is expected on a host."""
        return self._expected.get(host, {}).values()

    def fits_but_for_expected(self, shape: Shape, host: str) -> bool:
        """Return whether a pod would fit on a host now if no pods of DaemonSets were expected there."""
        of_host, row = self._expected.get(host), self._rows.get(host)
        if not of_host or row is None:
            return False
        kept = Counter[str]()
        for requests in of_host.values():
            kept.update(dict(requests))
        if any(self._amounts.left(row, name) + kept[name] < amount for name, amount in shape.requests if amount > 0):
            return False
        if shape.devices is None or not self._devices.relevant:
            return True
        slots: Ints64 = np.ones(1, dtype=np.int64)
        self._devices.limit(slots, np.array([row]), shape.devices)
        return bool(slots[0] > 0)

    def count(self, shape: Shape, topology: Topology) -> SlotCounts:
        """Count the slots of `shape` on every host of the topology, in tree order; vectorised, O(hosts x resources)."""
        rows = self._rows_of(topology)
        mask = self._eligibility.of(shape).mask[rows]
        slots_free = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        slots_empty = slots_free.copy()
        for resource, amount in shape.requests:
            if amount <= 0:
                continue
            np.minimum(slots_free, self._amounts.of(rows, resource) // amount, out=slots_free)
            np.minimum(slots_empty, self._amounts.of(rows, resource, empty=True) // amount, out=slots_empty)
        built = slots_empty
        if shape.devices is not None and (self._devices.relevant or shape.devices.reported_only):
            built = slots_empty.copy()
            self._devices.limit(slots_free, rows, shape.devices)
            self._devices.limit(slots_empty, rows, shape.devices, empty=True)
            self._devices.limit(built, rows, shape.devices, empty=True, sick=False)
        slots_free = np.where(mask, np.maximum(slots_free, 0), 0)
        return SlotCounts(slots_free, np.where(mask, np.maximum(slots_empty, 0), 0), np.maximum(built, 0))

    def slots(self, shape: Shape, topology: Topology, *, scarce: str) -> SlotIndex:
        """Return the free slots of `shape`, as `count` gives them, kept current between decisions.

        `scarce` names the resource that breaks ties. Costs microseconds per host that changed since the last time;
        after many changes, and for a shape that was not asked for lately, all hosts are counted. The result must not be
        kept.
        """
        rows = self._rows_of(topology)
        verdicts = self._eligibility.of(shape)
        key = (topology.name, shape)
        known = self._warm.get(key)
        changed = set(self._touched[known.seen :]) if known is not None and known.era == self._era else None
        if (
            known is None
            or changed is None
            or known.rows is not rows
            or known.scarce != scarce
            or len(changed) * RECOUNT > len(rows)
        ):
            counted = self.count(shape, topology)
            index = SlotIndex(topology.tree, counted.free, self.free_of(scarce, topology))
            self._warm_weight += weight_of(shape) if key not in self._warm else 0
            empty = self._devices.stamp, counted.empty
            known = self._warm[key] = _WarmSlots(rows, index, empty, scarce, self._era, len(self._touched))
            while len(self._warm) > 1 and (len(self._warm) > MAX_WARM_SHAPES or self._warm_weight > MAX_WEIGHT):
                self._warm_weight -= weight_of(self._warm.popitem(last=False)[0][1])
        elif changed:
            self._recount(known, shape, verdicts, changed, hosts=self._tree_rows[topology.name].hosts)
            known.seen = len(self._touched)
        self._warm.move_to_end(key)
        return known.index

    def empty_slots(self, shape: Shape, topology: Topology) -> Ints64:
        """Return the `empty` slots of `count`; it must not be written to.

        For a shape that `slots` keeps they are counted again only when a node or its devices have changed.
        """
        known = self._warm.get((topology.name, shape))
        if known is None or known.rows is not self._rows_of(topology):
            return self.count(shape, topology).empty
        if known.empty[0] != self._devices.stamp:
            known.empty = self._devices.stamp, self.count(shape, topology).empty
        return known.empty[1]

    @property
    def soft_taints(self) -> bool:
        """Whether any node has a taint with PreferNoSchedule."""
        return self._preferences.soft_taints

    def scores(self, shapes: Mapping[Shape, int], topology: Topology, near: Ints64 | None = None) -> HostScores | None:
        """Return how much pods of these shapes, so many of each, prefer the hosts of the topology; None: all equally.

        Preferred node affinity counts, and taints with PreferNoSchedule that the pods do not tolerate; and `near`, the
        scores of all of them by host because of the pods there (`engine.capacity.pod_preferences`).
        """
        return self._preferences.of(shapes, self._rows_of(topology), near)

    def eligible(self, shape: Shape, topology: Topology) -> Bools:
        """Return which hosts of the topology may take the shape's pods, regardless of what is free, in tree order."""
        mask: Bools = self._eligibility.of(shape).mask[self._rows_of(topology)]
        return mask

    def reasons(self, shape: Shape, topology: Topology) -> list[str]:
        """Return why each host of the topology is not eligible ("" when it is), in tree order."""
        verdicts = self._eligibility.of(shape).reasons
        return [verdicts[row] for row in self._rows_of(topology).tolist()]

    def has_label(self, key: str) -> bool:
        """Return whether some node has a label."""
        return self._eligibility.label(key) is not None

    def label_codes(self, key: str) -> Ints64:
        """Return, by row, the number of a node's value of a label, 0 for none; it must not be written to."""
        column = self._eligibility.label(key)
        if column is None:
            return np.zeros(self.rows, dtype=np.int64)
        return column.codes[: self.rows].astype(np.int64, copy=False)

    def domains(self, key: str, topology: Topology) -> LabelDomains:
        """Return the domains of a label on the hosts of a topology; `size` is above the codes of all rows."""
        rows = self._rows_of(topology)
        kept = self._tree_rows[topology.name].domains
        column = self._eligibility.label(key)
        known = kept.get(key)
        if column is None or known is None or known[0] is not column.stamp:
            codes = self.label_codes(key)
            found = LabelDomains(key, topology.tree, codes[rows], int(codes.max(initial=0)) + 1)
            if column is None:
                return found  # an invented key; nothing is kept for it
            known = kept[key] = column.stamp, found
            if len(kept) > MAX_DOMAINS:
                kept.popitem(last=False)
        kept.move_to_end(key)
        return known[1]

    def selected(self, shape: Shape, *, affinity: bool, taints: bool) -> Bools:
        """Return, by row, the nodes that a shape's constraints select, as `Eligibility.selected`."""
        return self._eligibility.selected(shape, affinity=affinity, taints=taints)

    def spread_nodes(
        self, shape: Shape, key: str, keys: Iterable[str], *, affinity: bool, taints: bool
    ) -> tuple[Bools, Bools]:
        """Return, by row, the nodes with all labels that a shape's constraints select, and by code the domains of one.

        `affinity` and `taints`: whether its node affinity and its tolerations count. The arrays must not be written to.
        """
        labels = tuple(sorted(set(keys)))
        wanted = (
            labels,
            (shape.node_selector, shape.affinity) if affinity else None,
            shape.tolerations if taints else (),
        )
        selection = self._selections.get(wanted)
        if selection is None or len(selection.nodes) != self.rows:
            nodes = self._eligibility.selected(shape, affinity=affinity, taints=taints)[: self.rows].copy()
            for label in labels:
                nodes &= self.label_codes(label) > 0
            selection = _Selection(nodes)
            if weight_of(shape) <= MAX_SELECTION_WEIGHT:
                self._selections[wanted] = selection
            if len(self._selections) > MAX_SELECTIONS:
                self._selections.popitem(last=False)
        if wanted in self._selections:
            self._selections.move_to_end(wanted)
        column = self._eligibility.label(key)
        stamp = None if column is None else column.stamp
        known = selection.counted.get(key)
        if known is None or known[0] is not stamp:
            codes = self.label_codes(key)
            counted = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
            counted[codes[selection.nodes]] = True
            counted[0] = False
            known = selection.counted[key] = stamp, counted
        return selection.nodes, known[1]

    def rows_of(self, topology: Topology) -> Rows:
        """Return the rows of the topology's hosts, in tree order; they must not be written to."""
        return self._rows_of(topology)

    def nearby(self, pods: NearbyPods, query: PodQuery) -> Ints64:
        """Return, by row, how many pods on a host a query matches; it must not be written to."""
        return pods.by_row(query, self._rows, size=len(self._nodes), stamp=self._rows_stamp)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._nodes)

    @property
    def version(self) -> tuple[int, int]:
        """Return another value after every change of what hosts have or who uses them."""
        return self._era, len(self._touched)

    def row_of(self, host: str) -> int | None:
        """Return the row of a host."""
        return self._rows.get(host)

    def free_of(self, resource: str, topology: Topology, *, empty: bool = False) -> Ints64:
        """Return the free amount of one resource on every host of the topology, in tree order, at least 0.

        `empty`: what would be free without pods.
        """
        result: Ints64 = np.maximum(self._amounts.of(self._rows_of(topology), resource, empty=empty), 0)
        return result

    def reports(self, resource: str) -> bool:
        """True when some node has some of the resource."""
        return self._amounts.exists(resource)

    def hosts_by_resource(self) -> dict[str, int]:
        """Return how many hosts have some of each resource."""
        counts = {name: self._amounts.hosts_with(name) for name in self._amounts.columns}
        return {name: count for name, count in counts.items() if count}

    def counts_devices(self, resource: str) -> bool:
        """True for a known name of GPUs, of parts of them, or of other devices, under the policy in force."""
        kinds = self._kinds
        return is_gpu(resource) or resource in KOORDINATOR or resource in kinds.vendors or resource in kinds.names

    def unsettled(self, before: float, *, settle: float) -> list[str]:
        """Return the nodes that became ready (or appeared) after a time, `settle` seconds ago; only the newest nodes
        are checked.

        A node whose time is still to come counts as settled: its kubelet writes it, by a clock that may have been wrong
        when the machine started.
        """
        late: list[str] = []
        until = before + settle + _CLOCKS_DIFFER
        for name in list(self._fresh):
            node = self.node(name)
            if node is None or not settle or not before < node.settled_at <= until:
                self._fresh.discard(name)
            else:
                late.append(name)
        return sorted(late)

    def largest(self, resource: str, topology: Topology) -> int:
        """Return the most that any host of the topology has of a resource, in use or not."""
        amounts = self._amounts.of(self._rows_of(topology), resource, empty=True)
        return int(amounts.max()) if len(amounts) else 0

    def reports_devices(self, host: str) -> bool:
        """True when a host reports its devices."""
        row = self._rows.get(host)
        return row is not None and self._devices.counted(row)

    def choose(
        self,
        host: str,
        request: DeviceRequest,
        count: int,
        *,
        instead: tuple[GangKey, str] | None = None,
        beside: Iterable[Uses] = (),
    ) -> tuple[Uses, ...] | None:
        """Return devices for `count` more pods on a host; None where they do not fit or the host reports no devices.

        `beside`: what others get there in the same plan. `instead`: a pod set (gang, name) with a reservation there
        that is not counted.
        """
        row = self._rows.get(host)
        if row is None:
            return None
        without = None if instead is None else ("gang", *instead)
        return self._devices.choose(row, request, count, without=without, beside=beside)

    def with_amounts(self, host: str, request: DeviceRequest, uses: Uses) -> Uses:
        """Return the devices that a pod has on a host with the amounts that it requests, as if chosen anew."""
        row = self._rows.get(host)
        return uses if row is None else self._devices.with_amounts(row, request, uses)

    def devices_fit(self, host: str, wanted: Iterable[tuple[DeviceRequest, int]], *, empty: bool = False) -> bool:
        """True when a host has devices for these numbers of pods of several requests together.

        `empty`: as if no device was in use.
        """
        row = self._rows.get(host)
        return row is None or self._devices.fit(row, wanted, empty=empty)

    def gpu_units(
        self, unit: DeviceRequest, topology: Topology, *, empty: bool = False, sick: bool = True
    ) -> list[tuple[int, Ints64]]:
        """Return units of GPUs on every host of the topology, in tree order, as `HostDevices.gpu_units`."""
        return self._devices.gpu_units(self._rows_of(topology), unit, empty=empty, sick=sick)

    def devices_near(self, host: str, wanted: Sequence[tuple[DeviceRequest, int]]) -> bool:
        """True when these numbers of pods fit on a host, each within the scope that its request names."""
        row = self._rows.get(host)
        if row is None:
            return False
        if len(wanted) > 1:
            return self._devices.fit(row, wanted)
        return all((self._devices.slots(row, request) or 0) >= count for request, count in wanted)

    @property
    def device_scopes(self) -> frozenset[str]:
        """The scopes of GPUs (`engine.api.device.SCOPES`) that some host reports."""
        return self._devices.scopes

    @property
    def devices_matter(self) -> bool:
        """True when devices are counted one by one on some host, not only as numbers of its node."""
        return self._devices.relevant

    def whole_gpus(self, name: str, topology: Topology) -> Ints64:
        """Return the unused whole GPUs of every host of the topology, in tree order; `name`: the requested resource."""
        rows = self._rows_of(topology)
        unit = WHOLE if name in KOORDINATOR else 1
        whole: Ints64 = np.maximum(self._amounts.of(rows, name), 0) // unit
        self._devices.whole_free(whole, rows)
        return whole

    def gpus_free_of_pods(self, host: str) -> int | None:
        """Return how many GPUs of a host no pod uses, whatever is reserved; None where its devices are not counted."""
        row = self._rows.get(host)
        return None if row is None else self._devices.free_of_pods(row)

    def freest_gpu(self, request: DeviceRequest, topology: Topology) -> Ints64:
        """Return the free percentage of every host's freest GPU, in tree order; 0 if its devices are not counted."""
        return self._devices.freest(self._rows_of(topology), request)

    def gpus_in_part(self, host: str) -> int:
        """Return how many GPUs of a host are used in part."""
        summary = self._devices.summary(self._rows[host]) if host in self._rows else None
        return summary.partly if summary is not None else 0

    def device_problem(self, host: str) -> str:
        """Return why devices of a host do not count (`engine.devices.hosts`), in few words; "" when all count."""
        row = self._rows.get(host)
        return "" if row is None else self._devices.problem(row)

    def device_notes(self, host: str) -> tuple[str, ...]:
        """Return the faults in a host's reported devices, in words; empty when there are none."""
        return self._devices.notes(host, self._rows.get(host))

    # -- internal ----------------------------------------------------------------------------------------------------

    def _row(self, name: str) -> int:
        row = self._rows.get(name)
        if row is None:
            self._rows_stamp += 1
            if self._vacant:
                row = self._rows[name] = self._vacant.pop()
                self._names[row] = name
                return row
            row = self._rows[name] = len(self._nodes)
            self._nodes.append(None)
            self._names.append(name)
            self._amounts.make_row(row)
            self._eligibility.changed(row)
        return row

    def _vacate(self, row: int) -> None:
        """Free the row of a deleted node for the next one, once no pod is or will be there."""
        if self._nodes[row] is None and self._amounts.untouched(row) and self._rows.get(self._names[row]) == row:
            del self._rows[self._names[row]]
            self._rows_stamp += 1
            self._fresh.discard(self._names[row])
            self._vacant.append(row)
            self._tree_rows.clear()

    def _add(self, row: int, requests: Requests, times: int) -> None:
        self._amounts.add(row, requests, times)
        self._touch(row)

    def _touch(self, row: int) -> None:
        self._touched.append(row)
        if len(self._touched) > max(4096, 4 * len(self._nodes)):
            self._touched.clear()
            self._era += 1  # a reader that is behind counts afresh

    def _recount(
        self, warm: _WarmSlots, shape: Shape, verdicts: Verdicts, changed: set[int], *, hosts: Mapping[int, int]
    ) -> None:
        amounts, columns = self._amounts, self._amounts.columns
        if warm.columns != len(columns):
            claims = [resource for resource, _ in shape.requests if is_claim(resource)]
            asked = [
                (columns.get(resource, _NO_COLUMN), amount)
                for resource, amount in shape.requests
                if amount > 0 and resource not in claims
            ]
            warm.asked, warm.claims, warm.columns = asked, claims, len(columns)
        scarce = columns.get(warm.scarce)
        for row in changed:
            host = hosts.get(row)
            if host is None:
                continue
            free = amounts.free[row].tolist()
            count = 0
            if verdicts.mask[row]:
                count = min([free[column] // amount if column != _NO_COLUMN else 0 for column, amount in warm.asked])
                if warm.claims:
                    count = min([count, *[amounts.left(row, claim) for claim in warm.claims]])
                if shape.devices is not None and (fitting := self._devices.slots(row, shape.devices)) is not None:
                    count = min(count, fitting)
            warm.index.set(host, count, free[scarce] if scarce is not None else 0)

    def _rows_of(self, topology: Topology) -> Rows:
        cached = self._tree_rows.get(topology.name)
        if cached is not None and cached.topology is topology:
            return cached.rows
        rows = np.fromiter((self._row(host) for host in topology.tree.hosts), dtype=np.intp)
        places = {row: host for host, row in enumerate(rows.tolist())}
        self._tree_rows[topology.name] = _TreeRows(topology, rows, places)
        return rows


def _holding_of_pod(pod: Pod, kinds: DeviceKinds) -> DeviceHolding | None:
    """Return the devices that a pod holds on its host."""
    shape = pod.spec.shape
    devices = kinds.extended(shape.devices, shape.requests)
    if devices is None:
        if any("/" in name and not is_claim(name) for name, _ in shape.requests):
            # Its host may report that the kubelet gave it a virtual function under another plugin's name.
            return DeviceHolding(_NO_DEVICES, count=0, uid=pod.uid)
        return None
    uses = devices_of(pod, kinds)
    by_name = by_vendor_name(shape.requests)
    if uses is None:
        return DeviceHolding(devices, by_name=by_name, uid=pod.uid)
    return DeviceHolding(devices, (uses,), by_name=by_name)


def _holder(key: ReservationKey, pod_set: str, number: int) -> Holder:
    """Return who holds the devices of equal pods to come: on a host there may be several such of one pod set."""
    return ("gang", key, pod_set, str(number))


def _holding_of_reservation(reserved: Reserved | None) -> DeviceHolding | None:
    """Return the devices that pods to come hold on their host."""
    if reserved is None or reserved.devices is None:
        return None
    # Those that are read from pods on their way have no amounts of kinds that are not built in.
    uses = tuple(limit_to_request(one, reserved.devices) or () for one in reserved.uses)
    return DeviceHolding(reserved.devices, uses, reserved.count, by_name=by_vendor_name(reserved.requests))
