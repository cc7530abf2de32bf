"""The consistent state of the cluster in one replica: stores of records, topologies, and free capacity.

Reflectors (or a file, for `simulate`) fill the stores; `refresh` applies the changes since the last call to topologies,
usage and reservations in one go. Gangs are read from the applied changes, never from the stores, which may be a step
ahead: so a pod is never missing as usage and as reservation at once. Every replica keeps this state; only the leader
acts on it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from engine.api import names
from engine.api.device import NodeDevices
from engine.api.objects import Node, ProvisioningRequest
from engine.api.placement import Assignment, Placement
from engine.api.pod import Pod, Shape
from engine.api.resources import Requests
from engine.api.workload import GangKey, ReservationKey, Workload
from engine.cache.gangs import GangIndex
from engine.cache.grace import GRACE_SECONDS, GraceReservations
from engine.cache.host_index import HostIndex
from engine.cache.larger_pods import LargerPods
from engine.cache.pod_shapes import PodShapes
from engine.cache.pods import PodIndex
from engine.cache.reservations import Reservations
from engine.cache.stores import Inbox, Stores
from engine.capacity.capacity import Capacity
from engine.capacity.daemon_sets import ExpectedDaemonPods
from engine.capacity.nearby_pods import NearbyPods
from engine.capacity.quota import NamespaceUsage, Usage, usage_of_pods
from engine.gang import plain_pods
from engine.gang.gang import ended, host_of, released
from engine.gang.key import has_group, is_gang_key, keys_of, parts, placed_key
from engine.gang.ownership import OwnerResolver
from engine.gang.request import PlacementRequest
from engine.gang.reservation import open_slots
from engine.kinds.registry import Registry
from engine.policy.model import Policy, default_policy
from engine.policy.namespaces import limits_hosts
from engine.resources.shape import covers
from engine.topology.objects import PLURAL
from engine.topology.topology import Topology, labels_read, topologies_of

# Parsed requests that are kept: a pass over the gangs that wait needs all of theirs, and to parse one takes 0.5 ms.
MAX_PARSED = 32_768
# Another thread is delivering the answer to a write of ours: microseconds, unless the machine is overloaded.
DELIVERED_WITHIN = 2.0

T = TypeVar("T")
Versioned = TypeVar("Versioned", Node, NodeDevices)

_NONE: AbstractSet[ReservationKey] = frozenset()


@dataclass(slots=True)
class Changes:
    """The result of `refresh`: keys of gangs to reconcile again, and whether capacity was freed for waiting ones.

    `hosts`: not because pods have ended, but because hosts, their devices or the topologies are others. `budgets`:
    disruption budgets are others.
    """

    gangs: set[GangKey] = field(default_factory=set)
    capacity_freed: bool = False
    everything: bool = False
    hosts: bool = False
    budgets: bool = False
    held_pods: set[tuple[str, str]] = field(default_factory=set)


class ClusterState:
    """The consistent state of the cluster. Methods that change it take the lock; `stores` are read without it."""

    def __init__(
        self,
        stores: Stores,
        policy: Policy | None = None,
        *,
        own_namespace: str = names.NAMESPACE,
        device_faults: Callable[[str, tuple[str, ...]], None] = lambda _host, _faults: None,
        covered: Callable[[Mapping[str, Topology]], None] = lambda _topologies: None,
        clock: Callable[[], float] = time.monotonic,
        grace: float = GRACE_SECONDS,
        new_daemon_sets: bool = False,
    ) -> None:
        """Subscribe to the stores; nothing is applied before the first `refresh`.

        `device_faults` is called at every change with the faults in a host's reported devices, `covered` with the
        topologies. `clock` is the leader's; `grace` is 0 where nothing happens but changes of the stores.
        `new_daemon_sets`: expect the pods of DaemonSets that have none yet.
        """
        self._covered = covered
        self.own_namespace = own_namespace
        self._device_faults = device_faults
        self.stores = stores
        self.lock = threading.RLock()
        self.changed = threading.Event()
        self.capacity = Capacity()
        self.pod_shapes = PodShapes(
            stores,
            lambda: self.policy.device_kinds,
            tolerates_resources=lambda: self.policy.nodes.extended_resource_toleration,
        )
        self._daemon_pods = ExpectedDaemonPods(self.capacity, quotas=stores.quotas.get_by, without_pods=new_daemon_sets)
        self._grace = GraceReservations(self.capacity, clock, seconds=grace)
        self.topologies: Mapping[str, Topology] = {}
        self.policy = policy or default_policy()
        self.capacity.set_device_rules(self.policy.device_kinds, self.policy.gpu.overcommit.ratios)
        self._recount_devices = False
        self._anew: set[GangKey] = set()
        self._inbox = Inbox()
        by_host = HostIndex()
        self._pods = PodIndex(self.capacity.gang_hosts, by_host)
        self.nearby = NearbyPods(self._pods.every)
        self._larger_pods = LargerPods(stores.quotas.get_by)
        self._reservations = Reservations(
            self.capacity,
            self.nearby,
            self.pod_shapes,
            self._larger_pods,
            schedulers=lambda: self.policy.schedulers,
        )
        self._usage = NamespaceUsage(self.policy.device_kinds.vendors)
        self.uncreated: tuple[Pod, ...] = ()  # pods that are left out for one question, and use no quota then
        self._owners: OwnerResolver | None = None
        self.gangs = GangIndex(self._pods, self.pod_shapes, owners=lambda: self.owners, by_host=by_host)
        self._topology_stale = True
        self._labels_read: frozenset[str] | None = None  # node labels that decide the topologies; None: any may
        self._reindex = False
        self._leaving: set[GangKey] = set()  # gangs that may ask that pods leave hosts
        self._pending = Changes(everything=True)
        self._touched: set[ReservationKey] = set()  # to be counted again; kept if a change cannot be applied
        for what, store in stores.all().items():
            store.subscribe(self._subscriber(what))

    def _subscriber(self, what: str) -> Callable[[object, Any, Any], None]:
        def note(_key: object, old: Any, new: Any) -> None:
            self._inbox.put(what, old, new)
            self.changed.set()

        return note

    @property
    def registry(self) -> Registry:
        """The workload kinds under the policy in force."""
        return self.policy.registry

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy) -> None:
        """Make a policy effective: topologies are rebuilt and every gang is reconciled again."""
        with self.lock:
            if policy.nodes.settle > self.policy.nodes.settle:
                self.capacity.check_settling()
            self.policy = policy
            self._recount_devices |= self.capacity.set_device_rules(policy.device_kinds, policy.gpu.overcommit.ratios)
            self._topology_stale = True
            self._pending.everything = self._pending.hosts = True
            self._reindex = True
            self.refresh()  # reviews read both: never the new policy beside the old one's topologies
        self.changed.set()

    def refresh(self) -> None:
        """Apply all changes since the last call to topologies, usage and reservations."""
        with self.lock:
            touched = self._touched
            if self._reindex:
                self._reindex = False
                touched |= self._pods.reindex(self.owners)
            while (change := self._inbox.take()) is not None:
                touched |= self._apply(change.what, change.old, change.new)
            if self._recount_devices:
                self._recount_devices = False
                self._usage = NamespaceUsage(self.policy.device_kinds.vendors, self._pods.every())
                for pod in self.stores.pods.values():
                    self.capacity.set_pod(pod.key, pod)
                for devices in self.stores.devices.values():
                    self._device_faults(devices.name, self.capacity.device_notes(devices.name))
                touched |= set(self.capacity.reserving()) - self._grace.renew()
            if self._daemon_pods.settle():
                self._pending.capacity_freed = self._pending.hosts = True
            if self._topology_stale and self._build_topologies():
                touched |= self._leaving
            for key in touched:
                self._reserve(key)
            for key in self._larger_pods.settle():
                self._reserve(key)
                touched.add(key)
                self._pending.capacity_freed = True
            self._touched = set()
            gangs = set(filter(is_gang_key, touched))
            self._pending.gangs |= gangs | self.gangs.in_group_with(gangs)
            if self._grace.release_expired():
                self._pending.capacity_freed = True
                self.changed.set()

    def refresh_host(self, host: str, *, gang: str, requests: Requests = ()) -> None:
        """Refresh if a change is about a host: its node, its devices, or a pod there without this gang's label.

        The gang's own pods take no capacity from its slots, unless they request less than those of its template do by
        now (`requests`). When it starts again there are many, and a refresh for each of them would count all slots of
        the gang each time.
        """
        with self.lock:
            records = ((one.what, record) for one in self._inbox for record in (one.old, one.new))
            if any(_is_about(what, record, host, gang, requests) for what, record in records):
                self.refresh()

    def take_changes(self) -> Changes:
        """Refresh and return the changes since the last call; each is returned once.

        Only this clears `changed`: a refresh for a review must not hide a change from the leader.
        """
        with self.lock:
            self.changed.clear()
            self.refresh()
            pending, self._pending = self._pending, Changes()
            return pending

    def _apply(self, what: str, old: Any, new: Any) -> AbstractSet[ReservationKey]:
        """Apply one change of a store; return the keys of the reservations to count again."""
        match what:
            case "nodes":
                return self._apply_node(old, new)
            case "pods":
                return self._apply_pod(old, new)
            case "workloads":
                return self._apply_workload(old, new)
            case "owned":
                return self._pods.set_link(old, new, self.owners)
            case "placements":
                return self._apply_placement(old, new)
            case "podgroups":
                return self.gangs.set_pod_group(old, new)
            case "provisioningrequests":
                request: ProvisioningRequest = new or old
                placement = self.stores.placements.get((request.namespace, request.gang))
                return {placed_key(placement)} if placement is not None else _NONE
            case "devices":
                self._apply_devices(old, new)
            case "daemonsets":
                if old != new:  # not its status alone
                    self._daemon_pods.set_daemon_set(old, new)
            case "persistentvolumes" | "persistentvolumeclaims" | "storageclasses":
                if old != new:  # not its status alone
                    self._pending.capacity_freed = self._pending.hosts = True
            case "poddisruptionbudgets":
                self._pending.budgets = True
            case "quotas":
                self._daemon_pods.set_quota((new or old).namespace)
                self._larger_pods.set_quota((new or old).namespace)
                self._pending.capacity_freed = True
            case "hypernodes":
                if old != new:  # not its status alone
                    self._topology_stale = self._pending.everything = True
            case str() if what.startswith(f"{PLURAL}."):
                self._topology_stale = self._pending.everything = True
            case _:
                self._pending.everything = True
        return _NONE

    def _apply_node(self, old: Node | None, new: Node | None) -> AbstractSet[ReservationKey]:
        if _same_but_version(old, new):
            return _NONE  # a heartbeat, an image pulled: nothing that a plan looks at
        name = _either(old, new).name
        self.capacity.set_node(name, new)
        self._daemon_pods.set_node(name)
        self._device_faults(name, self.capacity.device_notes(name) if new is not None else ())
        self._pending.capacity_freed = self._pending.hosts = True
        self._pending.gangs |= self.gangs.on_host(name)
        if old is None or new is None or self._other_labels(old, new):
            self._topology_stale = True
        same_amounts = old is not None and new is not None and old.allocatable == new.allocatable
        return _NONE if same_amounts else self._reservations.unreserved

    def _apply_devices(self, old: NodeDevices | None, new: NodeDevices | None) -> None:
        if _same_but_version(old, new):
            return
        name = _either(old, new).name
        self.capacity.set_devices(name, new)
        self._device_faults(name, self.capacity.device_notes(name))
        self._pending.hosts = True
        self._pending.gangs |= self.gangs.on_host(name)  # one may be lost for a gang, or there again

    def _apply_pod(self, old: Pod | None, new: Pod | None) -> AbstractSet[ReservationKey]:
        key = _either(old, new).key
        self.capacity.set_pod(key, new)
        self._daemon_pods.set_pod(old, new)
        frees = self.nearby.set_pod(old, new) or _frees(old, new)
        self._usage.change(old, new)
        if new is not None and host_of(new) is not None and (old is None or host_of(old) is None):
            self._grace.arrived(new)
        touched = self._pods.set_pod(old, new, self.owners)
        if frees:
            self._pending.capacity_freed = True
        if new is not None and names.GATE in new.spec.gates:
            self._pending.held_pods.add(key)
        return touched

    def _apply_workload(self, old: Workload | None, new: Workload | None) -> AbstractSet[ReservationKey]:
        if old is not None:
            self._keep_unwanted_slots(old, new if new is not None and new.uid == old.uid else None)
        touched = self.gangs.set_workload(old, new)
        if old is not None and (new is None or new.uid != old.uid):
            self.pod_shapes.forget(old.uid)
            self._pending.capacity_freed = True
        elif old is not None and new is not None:
            self.pod_shapes.renew(old, new)
        if new is not None and new.finished:
            self.pod_shapes.forget(new.uid)
        if old is not None and new is not None and _slot_fields(old) != _slot_fields(new):
            self._pending.capacity_freed = True
        linked = self._pods.set_link(old, new, self.owners)
        return touched | linked | self.gangs.keys_through(_either(old, new))

    def _apply_placement(self, old: Placement | None, new: Placement | None) -> AbstractSet[ReservationKey]:
        if old is not None and (new is None or new.assignment is None):
            self._keep_dropped_slots(old)
        touched = self.gangs.set_placement(old, new)
        before = old.assignment if old is not None else None
        dropped = before is not None and (new is None or new.assignment != before)
        ended = new is not None and new.status.get("phase") == "Finished" and self._keeps_hosts(new)
        if dropped or ended:
            self._pending.capacity_freed = True
        return touched

    def usage(self) -> dict[str, Usage]:
        """Return the usage by namespace: of bound pods, and of slots that are reserved for gangs."""
        with self.lock:
            found = self._usage.now()
            for key in filter(is_gang_key, self.capacity.reserving()):
                if namespace := self.gangs.namespace_of(key):
                    found[namespace] = found.get(namespace, Usage()) + self.reserved_usage(key)
            return found

    def reserved_usage(self, key: GangKey) -> Usage:
        """Return the usage of a gang's pods that are still to come."""
        vendors = self.policy.device_kinds.vendors
        return sum((usage_of_pods(requests, count, vendors) for count, requests in self.capacity.to_come(key)), Usage())

    def _keeps_hosts(self, placement: Placement) -> bool:
        """Return whether the hosts of a Placement count until it is finished, though its pods have ended before.

        For a limit of its namespace, or because it keeps other gangs out of its domains.
        """
        return placement.separation is not None or limits_hosts(placement.namespace, self.policy)

    def topologies_under(self, policy: Policy) -> dict[str, Topology]:
        """Return the topologies that a policy would have over the current nodes."""
        nodes = list(self.stores.nodes.values())
        objects = {
            group: {item.name: item for item in store.values()} for group, store in self.stores.topology_objects.items()
        }
        hyper_nodes = list(self.stores.hyper_nodes.values())
        return topologies_of(policy.topologies, nodes, objects=objects, hyper_nodes=hyper_nodes, before=self.topologies)

    def _build_topologies(self) -> bool:
        """Rebuild the topologies; return whether gangs may request others than before, or other levels."""
        before, self.topologies = self.topologies, self.topologies_under(self.policy)
        # What a gang may request depends on the levels; where its slots are, on the labels of their hosts alone, unless
        # HyperNodes select them.
        selected = bool(len(self.stores.hyper_nodes))
        self._labels_read = None if selected else labels_read(self.policy.topologies, self.topologies)
        same_levels = _levels_of(before) == _levels_of(self.topologies)
        if selected or not same_levels:
            self._pending.everything = True
        if not same_levels:
            self.gangs.recount_groups()
        known = self._owners
        if known is not None and known.topologies is before and same_levels:
            self._owners = known.with_nodes_of(self.topologies)
        self.capacity.keep_topologies(self.topologies.keys())
        self._topology_stale = False
        self._pending.capacity_freed = self._pending.hosts = True
        self._covered(self.topologies)
        return not same_levels

    def _other_labels(self, old: Node, new: Node) -> bool:
        """Return whether a node has other labels than before, of those that decide the topologies."""
        read = self._labels_read
        if old.labels == new.labels or read is None:
            return old.labels != new.labels
        return any(old.labels.get(key) != new.labels.get(key) for key in read)

    def _reserve(self, key: ReservationKey, plan: Placement | None = None) -> None:
        """Replace a gang's reservation by that of a plan: the one in force, unless another is given.

        Of a pod without a gang: by that of its host, if it has one.
        """
        if not is_gang_key(key):
            orphan = self._pods.orphan(key)
            self._reservations.keep(key, None, None, pods=(), related=() if orphan is None else (orphan,))
            return
        workload, placement = self.gangs.workload_of(key), plan or self.gangs.plan_of(key)
        before = self.gangs.moves_from(key) if plan is None else None
        if workload is None:
            self.pod_shapes.leave(key)
        if workload is None and (plain_pods.is_plain(key) or plain_pods.is_single(key)):
            self.pod_shapes.forget(key)
            self.gangs.drop(key)
            self.owners.forget(parts(key)[0])
        pods: tuple[Pod, ...] = ()
        if workload is not None and placement is not None:
            pods = self.gangs.pods_of(key)
            if not workload.finished and not plain_pods.is_single(key):
                self.pod_shapes.observe(key, workload, pods)
        self._leaving.discard(key)
        if workload is not None and _replaces(workload):
            self._leaving.add(key)
        leave = self._leave_hosts(workload) if workload is not None else ()
        related = self._pods.members(key)
        self._reservations.keep(key, workload, placement, pods=pods, related=related, leave_hosts=leave, before=before)
        self.gangs.keep_domains(key)

    def _leave_hosts(self, workload: Workload) -> frozenset[str]:
        """Return the hosts that the pods of a workload are to leave."""
        return self.owners.request_of(workload).leave_hosts if _replaces(workload) else frozenset()

    def _keep_unwanted_slots(self, old: Workload, new: Workload | None) -> None:
        """Keep the slots of pods that may have been created just before their workload was scaled down or deleted.

        Those of one that is scaled up again while its Placement still has them are reserved anew, and not kept besides.
        One that its user has suspended has its slots until the leader takes them. Not of a workload that has ended by
        itself: its controller creates no more pods before the status shows the end.
        """
        if ended(old) or (new is not None and new.finished):
            return
        if new is not None and new.suspended and not old.suspended:
            self._grace.suspended(old.uid)
        if new is None or new.deleting or _fewer(old, new) or _fewer(new, old):
            for key in keys_of(old):
                if self.gangs.placed(key):
                    self._keep_slots(key, old, new, self.gangs.plan_of(key))

    def _keep_dropped_slots(self, placement: Placement) -> None:
        """Keep the slots of pods that may have been released just before their gang lost its slots.

        Held pods need none: they stay held.
        """
        key = placed_key(placement)
        workload = self.gangs.workload_of(key)
        if workload is not None and not self.gangs.holds(key) and self.gangs.placement_of(key) == placement:
            self._keep_slots(key, workload, None, placement, held=False)

    def _keep_slots(
        self, key: GangKey, old: Workload, new: Workload | None, placement: Placement | None, *, held: bool = True
    ) -> None:
        since = self._grace.created_until(old)
        if placement is None or placement.assignment is None or since is None:
            return
        pods, whole = self._pods.members(key), self.owners.with_pod_sets(old)
        before = open_slots(whole, placement, pods, held=held, leave_hosts=self._leave_hosts(whole))
        after: Mapping[str, Counter[str]] = {}
        if new is not None and has_group(new, parts(key)[1]):
            smaller = self.owners.with_pod_sets(new)
            after = open_slots(smaller, placement, pods, held=held, leave_hosts=self._leave_hosts(smaller))
        left = {name: counts - after.get(name, Counter()) for name, counts in before.items()}
        # Without what admission may add: one large pod must not make the slots of all others large.
        shapes = {
            one.name: self.pod_shapes.shapes_of_slots(whole, one, placement.assignment.plan_of(one.name).requests)[0]
            for one in whole.pod_sets
        }
        self._grace.keep(placement, left, shapes, since=since)
        if after:
            self._grace.wanted_again(placement, {name: after[name] - counts for name, counts in before.items()})

    # -- assumed plans -----------------------------------------------------------------------------------------------

    def assume(self, key: GangKey, placement: Placement, *, moves: bool = False) -> None:
        """Count a plan as reserved before its Placement is written.

        `moves`: instead of slots that are not lost. Both are reserved until then: the write may fail.
        """
        with self.lock:
            self.gangs.assume(key, placement, moves=moves)
            self._reserve(key)

    def retract(self, key: GangKey) -> None:
        """Drop an assumed plan that will not be written. The caller has the lock."""
        self.gangs.drop(key)
        self._reserve(key)

    @contextmanager
    def release_slots(self, key: GangKey, *, stays: Assignment) -> Iterator[None]:
        """Count as free, while the block runs, the slots of a placed gang beyond those that stay.

        So its pods that lost their slots can be planned there too. Afterwards the plan that is then in force is
        reserved: the same one, unless another was assumed meanwhile. The caller has the lock.
        """
        plan = self.gangs.plan_of(key)
        if plan is not None:
            self._reserve(key, replace(plan, assignment=stays))
        try:
            yield
        finally:
            if self.gangs.plan_of(key) is plan:
                self._reserve(key)

    @contextmanager
    def without(
        self, keys: Collection[ReservationKey], pods: Collection[Pod], *, uncreated: Collection[Pod] = ()
    ) -> Iterator[None]:
        """Count pods nowhere, nor the slots and domains that gangs keep, while the block runs: as if they had ended.

        Pods that are gone or others by now are left as they are. `uncreated`: those that no controller creates again:
        their quota is free. The caller has the lock, and changes nothing meanwhile.
        """
        hidden: list[Pod] = []
        cleared: list[ReservationKey] = []
        others: set[GangKey] = set()  # of which only pods are left out
        try:
            for pod in map(self._pods.same, pods):
                if pod is not None:
                    hidden.append(pod)
                    if (gang := self._pods.gang_key_of(pod.key)) is not None and gang not in keys:
                        others.add(gang)
                    self._pods.hide(pod)
                    self.capacity.set_pod(pod.key, None)
                    self.nearby.set_pod(pod, None)
            for key in keys:
                if self.capacity.reserved(key) or key in self._reservations.unreserved:
                    cleared.append(key)
                    self._reservations.keep(key, None, None, pods=(), related=())
                if is_gang_key(key):
                    self.gangs.leave_out(key)
            for gang in others:
                self.gangs.keep_domains(gang)
            self.uncreated = tuple(uncreated)
            yield
        finally:
            self.uncreated = ()
            for pod in hidden:
                self.capacity.set_pod(pod.key, pod)
                self.nearby.set_pod(None, pod)
                self._pods.show(pod)
            for key in keys:
                if is_gang_key(key) and key in self._anew:
                    self._anew.discard(key)
                    self.gangs.drop(key)
                    cleared.append(key)
            self.gangs.take_in()
            for gang in others:
                self.gangs.keep_domains(gang)
            for key in cleared:
                self._reserve(key)

    def assume_anew(self, key: GangKey, placement: Placement) -> None:
        """Count another plan of a gang that `without` has taken away, with slots for all of its pods, until that ends.

        The gang has no plan that is being written.
        """
        self.gangs.assume(key, placement)
        self._anew.add(key)
        self._reservations.keep(key, self.gangs.workload_of(key), placement, pods=(), related=())

    def retract_anew(self, key: GangKey) -> None:
        """Take a plan of `assume_anew` back before `without` ends."""
        self._anew.discard(key)
        self.gangs.drop(key)
        self.gangs.kept_domains.set_plans(key, ())
        self._reservations.keep(key, None, None, pods=(), related=())

    def confirm(self, key: GangKey, *, failed: bool) -> None:
        """End an assumed plan: its write has succeeded (the store has it) or failed, and the stores are right again."""
        for store in (self.stores.placements, self.stores.workloads, self.stores.pods):
            store.wait_delivered(DELIVERED_WITHIN)
        with self.lock:
            self.refresh()  # the answer to the write is in the inbox: no moment without a reservation
            if self.gangs.drop(key) and failed:
                self._pending.capacity_freed = True
            self._reserve(key)

    def begin_term(self) -> None:
        """Keep the slots of Placements without a workload: no running replica may have seen its deletion."""
        with self.lock:
            self.refresh()
            for placement in self.gangs.orphaned():
                self._grace.keep_all(placement, self.stores.pods.get_by(placement.key))

    def grace_until(self) -> float | None:
        """Return when the next grace period ends, on the clock; None when there is none."""
        with self.lock:
            return self._grace.end

    def reconsider(self, key: GangKey) -> None:
        """Have a gang reconciled in the next pass."""
        with self.lock:
            self._pending.gangs.add(key)
        self.changed.set()

    # -- reading -----------------------------------------------------------------------------------------------------

    def request_of(self, workload: Workload) -> PlacementRequest:
        """Return the request of a workload under the policy and topologies in force."""
        return self.owners.request_of(workload)

    def pod_now(self, pod: Pod) -> Pod | None:
        """Return a pod as it is now; None when it is gone, or another one has its name. The caller has the lock."""
        return self._pods.same(pod)

    def settled_before(self, now: float) -> float:
        """Return the time of day by which a node must have become ready to be planned on now (`nodes.settle`)."""
        return now - self.policy.nodes.settle

    def unsettled(self, now: float) -> list[str]:
        """Return the nodes that may not be planned on yet, because they became ready a moment ago."""
        return self.capacity.unsettled(self.settled_before(now), settle=self.policy.nodes.settle)

    @property
    def owners(self) -> OwnerResolver:
        """The resolver of owner chains, as they were applied, under the policy in force."""
        known = self._owners
        if known is None or known.policy is not self.policy or known.topologies is not self.topologies:
            known = self._owners = OwnerResolver(
                self._pods.find, self.policy, self.topologies, self.own_namespace, most_parsed=MAX_PARSED
            )
        return known


def _is_about(what: str, item: Any, host: str, gang: str, requests: Requests) -> bool:
    """Return True if an object of a store is a host's node or devices, or a pod there.

    Of the pods with the label of the gang only those that request less than `requests`.
    """
    if item is None:
        return False
    if what == "pods":
        pod: Pod = item
        if pod.spec.node_name != host:
            return False
        return pod.spec.labels.get(names.GANG) != gang or not covers(pod.spec.shape, Shape(requests))
    return what in ("nodes", "devices") and host == item.name


def _either(old: T | None, new: T | None) -> T:
    """Return an object as it is after a change, or as it was if it is gone."""
    found = new if new is not None else old
    assert found is not None
    return found


def _same_but_version(old: Versioned | None, new: Versioned | None) -> bool:
    """Return True if an object has been written, but nothing that is read of it is another."""
    return old is not None and new is not None and replace(old, resource_version=new.resource_version) == new


def _frees(old: Pod | None, new: Pod | None) -> bool:
    """Return True if a change of a pod frees capacity, or slots that are kept for it."""
    if new is None or new.finished or (old is not None and not old.deleting and new.deleting):
        return True
    # If no gang has a slot for a pod that does not fit, nothing is kept for it.
    return released(new) and bool(new.unschedulable) and old is not None and not old.unschedulable


def _replaces(workload: Workload) -> bool:
    """Return True if a workload may ask that pods leave hosts; its request says which."""
    templates = (pod_set.template.annotations for pod_set in workload.pod_sets)
    return any(names.REPLACE in annotations for annotations in (workload.annotations, *templates))


def _levels_of(topologies: Mapping[str, Topology]) -> list[tuple[object, ...]]:
    """Return the fields of topologies that decide what a gang may request."""
    return [(name, one.levels, one.waits, one.labelled) for name, one in topologies.items()]


def _slot_fields(workload: Workload) -> tuple[object, ...]:
    """Return the fields that decide how many slots a placed workload keeps: a change may free capacity."""
    return (
        tuple((one.name, one.slots, one.total, one.remaining, one.finished_ranks) for one in workload.pod_sets),
        (workload.finished, workload.deleting, workload.suspended, workload.annotations.get(names.HELD_BY)),
    )


def _fewer(old: Workload, new: Workload) -> bool:
    """True when a workload no longer needs slots that it needed before."""
    slots = {pod_set.name: pod_set.slots for pod_set in new.pod_sets}
    return new.groups < old.groups or any(slots.get(one.name, 0) < one.slots for one in old.pod_sets)
