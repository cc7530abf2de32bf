"""The index of all gangs by key, from the applied changes of the cluster and from plans that are not written yet.

Never from the stores, which may be a step ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from engine.api.objects import PodGroupObject
from engine.api.placement import Assignment, Placement, PodSetPlan, Slot, kept_hosts
from engine.api.pod import Pod, PodSpec, Shape
from engine.api.workload import GangKey, Workload
from engine.cache.host_index import HostIndex
from engine.cache.intents import IntentIndex
from engine.cache.pod_groups import PodGroupIndex
from engine.cache.pod_shapes import PodShapes
from engine.cache.pods import PodIndex
from engine.cache.reservations import KeptDomains
from engine.capacity.capacity import Capacity
from engine.capacity.counts import add, add_in
from engine.gang import plain_pods
from engine.gang.gang import Gang, by_pod_set
from engine.gang.key import has_group, is_gang_key, key_of, keys_of, parts, placed_key, replica_index
from engine.gang.ownership import OwnerResolver, key_to
from engine.gang.plain_pods import in_order
from engine.gang.relaxation import effective_request
from engine.gang.request import PlacementRequest, of_group
from engine.gang.reservation import admitted
from engine.gang.slots import slots_of
from engine.resources.shape import on_gpus_with, spread_over_gpus, with_cards, within_scope

# Replicas of one workload that are gangs before they have a pod: the first ones.
_REPLICAS_WITHOUT_PODS: Final = 64


class GangIndex:
    """All gangs by key; not thread-safe.

    `owners` returns the resolver under the policy in force; `by_host` has their bound pods, and gets their slots.
    """

    def __init__(
        self, pods: PodIndex, pod_shapes: PodShapes, *, owners: Callable[[], OwnerResolver], by_host: HostIndex
    ) -> None:
        self._pods = pods
        self._by_host = by_host
        self._pod_shapes = pod_shapes
        self._owners = owners
        self._workloads: dict[str, Workload] = {}  # by uid
        self._placements: dict[GangKey, dict[tuple[str, str], Placement]] = {}
        self._held: dict[GangKey, Placement] = {}
        self._moving: set[GangKey] = set()  # of these the written slots count too until the held ones are written
        self._waiting: dict[GangKey, None] = {}  # gangs with a Placement that waits
        self._keeping: dict[GangKey, None] = {}  # waiting gangs with hosts that are kept free for them
        self._unfinished: Counter[str] = Counter()  # Placements by namespace
        self._hosts: dict[str, dict[str, int]] = {}  # namespace -> host -> Placements
        self.kept_domains = KeptDomains()
        self._left_out: dict[GangKey, Placement | None] = {}  # for one question, with the plans that are not written
        self.intents = IntentIndex()
        self._pod_groups = PodGroupIndex(self, pods, owners=owners)

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_workload(self, old: Workload | None, new: Workload | None) -> set[GangKey]:
        """Apply a change of a workload; returns the keys of the gangs that it affects."""
        if old is not None and (new is None or new.uid != old.uid):
            self._workloads.pop(old.uid, None)
            self._owners().forget(old.uid)
            for key in self._held.keys() & set(keys_of(old)):
                self.drop(key)
        if new is not None:
            self._workloads[new.uid] = new
        around = self._pod_groups.set_workload(old, new)
        # Most changes of a status are no news here: how many pods are active, or ready.
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            return around
        return around | {key for one in (old, new) if one is not None for key in self._known_keys(one)}

    def set_pod_group(self, old: PodGroupObject | None, new: PodGroupObject | None) -> set[GangKey]:
        """Apply a change of a PodGroup object; returns the keys of the group's gangs."""
        return self._pod_groups.set_object(old, new)

    def recount_groups(self) -> None:
        """Forget which workloads of large pod groups count: their requests may be valid, or wrong, from now on."""
        self._pod_groups.recount()

    def set_placement(self, old: Placement | None, new: Placement | None) -> set[GangKey]:
        """Apply a change of a Placement; returns the keys of the gangs that it affects."""
        if old is not None:
            of_gang = self._placements.get(placed_key(old), {})
            of_gang.pop(old.key, None)
            add(self._unfinished, old.namespace, -_unfinished(old))
            if not of_gang:
                self._placements.pop(placed_key(old), None)
        if new is not None:
            self._placements.setdefault(placed_key(new), {})[new.key] = new
            add(self._unfinished, new.namespace, _unfinished(new))
        self._count_hosts(old, new)
        for key in {placed_key(one) for one in (old, new) if one is not None}:
            known = self._placements.get(key, {}).values()
            _set_member(self._waiting, key, any(one.status.get("phase") == "Waiting" for one in known))
            _set_member(self._keeping, key, any(kept_hosts(one.status) for one in known))
            self._index_slots(key)
            self.keep_domains(key)
        return {placed_key(one) for one in (old, new) if one is not None} | self.intents.set_placement(old, new)

    def _count_hosts(self, old: Placement | None, new: Placement | None) -> None:
        """Apply a change of a Placement to the hosts of its namespace; most changes are of its status alone."""
        before, after = (_hosts(one) if one is not None else frozenset[str]() for one in (old, new))
        if before == after and old is not None and new is not None and old.namespace == new.namespace:
            return
        if old is not None:
            # A difference of counters would look at all hosts of the namespace.
            for host in before:
                add_in(self._hosts, old.namespace, host, -1)
        if new is not None:
            for host in after:
                add_in(self._hosts, new.namespace, host, 1)

    def assume(self, key: GangKey, plan: Placement, *, moves: bool = False) -> None:
        """Store a plan that is not written yet; it takes precedence over the written Placement.

        `moves`: the slots of that stand until then, as the write may fail.
        """
        self._held[key] = plan
        if moves:
            self._moving.add(key)
        self._index_slots(key)
        self.keep_domains(key)

    def drop(self, key: GangKey) -> bool:
        """Remove the assumed plan of a gang; False when there is none."""
        held = self._held.pop(key, None)
        self._moving.discard(key)
        if held is not None:
            self._index_slots(key)
            self.keep_domains(key)
        return held is not None

    def keep_domains(self, key: GangKey) -> None:
        """Update the index of the domains that a gang keeps other gangs out of: those with slots or with pods of it.

        Its pods may outlive their slots: these are given back or moved while the pods still end. No more hosts count
        beyond its slots than the gang has pods: anybody may create pods on hosts with a workload as their controller.
        The slots of a workload that is being deleted are nobody's: a finalizer may keep it for ever.
        """
        held = self._held.get(key)
        plans = [*self._placements.get(key, {}).values(), *([held] if held is not None else [])]
        apart = [one for one in plans if one.separation is not None and _unfinished(one)]
        if apart:
            before = (one.assignment for one in self.kept_domains.of(key) if one.assignment is not None)
            known = {slot.host: slot for one in before for slot in slots_of(one)}
            workload = self._workloads.get(parts(key)[0])
            if workload is not None and workload.deleting:
                apart = [replace(one, assignment=None) for one in apart]
            there = self._pods.hosts_of(key).difference(*(_hosts(one) for one in apart))
            most = sum(ask.count for one in apart for ask in one.pod_sets)
            ending = sorted(there, key=lambda host: (host not in known, host))[:most]
            others = tuple(known.get(host, Slot((host,), 1, None)) for host in ending)
            apart = [_with_slots(one, others) for one in apart]
        self.kept_domains.set_plans(key, tuple(one for one in apart if _hosts(one)))

    def leave_out(self, key: GangKey) -> None:
        """Count the hosts and the domains of a gang for nobody until all such gangs are taken in again."""
        self._left_out[key] = self._held.get(key)
        self.kept_domains.set_plans(key, ())

    def take_in(self) -> None:
        """Count the gangs again that were left out."""
        left_out, self._left_out = self._left_out, {}
        for key in left_out:
            self.keep_domains(key)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: GangKey) -> Gang | None:
        """Return a gang with all its objects; None when there is none of that key."""
        workload = self.workload_of(key)
        if workload is None:
            return None
        placement, pods = self.plan_of(key), self.pods_of(key)
        request = self._request_of(workload, pods, placement)
        state = self._pod_groups.state_of(key, workload, request)
        if state is not None and state.common_minimum:
            request = of_group(request, timeout=state.timeout)
        return Gang(
            workload=workload,
            request=request,
            placement=placement,
            pods=pods,
            shapes=self._shapes_of(workload, request, placement),
            group=parts(key)[1],
            later=plain_pods.in_turn(self._pods.members(key))[1] if plain_pods.is_single(key) else (),
            pod_group=state,
            jobs=tuple(self._pods.jobs_below(workload)) if workload.unit == "workload" else (),
        )

    def in_group_with(self, keys: Iterable[GangKey]) -> set[GangKey]:
        """Return the gangs that count in one pod group with any of these, themselves included."""
        return self._pod_groups.in_group_with(keys)

    def as_reviewed(self, workload: Workload, request: PlacementRequest) -> Gang:
        """Return the (first) gang of a workload under review, with the Placement and pods that it has already."""
        key = next(iter(keys_of(workload)), key_of(workload))
        known = self.get(key)
        placement = known.placement if known is not None else None
        request = effective_request(request, placement, self._owners().policy)
        return Gang(
            workload=workload,
            request=request,
            placement=placement,
            pods=known.pods if known is not None else (),
            shapes=self._shapes_of(workload, request, placement),
            group=parts(key)[1],
            pod_group=self._pod_groups.state_of(key, workload, request),
        )

    def _shapes_of(
        self, workload: Workload, request: PlacementRequest, placement: Placement | None
    ) -> dict[str, Shape]:
        """Return the shape of one pod of every pod set, with what request and policy say about its devices."""
        placed = placement is not None and placement.assignment is not None
        shapes = self._pod_shapes.gang_shapes_of(workload, placed=placed)
        default = self._owners().policy.gpu.strategy
        for ask in request.pod_sets:
            if ask.device_scope is not None:
                shapes[ask.name] = within_scope(shapes[ask.name], ask.device_scope)
            if ask.device_selector is not None:
                shapes[ask.name] = on_gpus_with(shapes[ask.name], ask.device_selector)
            if (cards := (ask.rdma_selector, ask.vf_selector, ask.rdma_scope)) != (None, None, None):
                devices, functions, scope = cards
                shapes[ask.name] = with_cards(shapes[ask.name], devices=devices, functions=functions, scope=scope)
            if (ask.gpu_strategy or default) == "spread":
                shapes[ask.name] = spread_over_gpus(shapes[ask.name])
        return shapes

    def workload_of(self, key: GangKey) -> Workload | None:
        """Return the live workload with a gang of that key, with all its pod sets."""
        if plain_pods.is_plain(key):
            pods = self._pods.members(key)
            dialects = self._owners().policy.annotations.dialects
            return plain_pods.plain_workload(key, pods, dialects=dialects) if pods else None
        if plain_pods.is_single(key):
            return self._single_workload(self.pods_of(key))
        uid, group = parts(key)
        workload = self._workloads.get(uid)
        return self._owners().with_pod_sets(workload) if workload is not None and has_group(workload, group) else None

    def written_workload(self, key: GangKey) -> Workload | None:
        """Return the workload object of a gang as it is written; None for a gang of pods."""
        return self._workloads.get(parts(key)[0])

    def is_idle(self, key: GangKey) -> bool:
        """True for a replica of a high index that has neither a pod nor a plan: no gang yet.

        Anybody may write ten thousand replicas into a few lines.
        """
        index = replica_index(key)
        high = index is not None and index >= _REPLICAS_WITHOUT_PODS
        return high and not self.placed(key) and not self._pods.has_members(key)

    def is_scaled_away(self, key: GangKey) -> bool:
        """True for a replica of a live workload that has fewer of them by now."""
        uid, group = parts(key)
        workload = self._workloads.get(uid)
        return group is not None and workload is not None and not workload.deleting and not has_group(workload, group)

    def namespace_of(self, key: GangKey) -> str:
        """Return the namespace of a gang; "" when there is none of that key."""
        if plain_pods.is_plain(key) or plain_pods.is_single(key):
            return next((pod.namespace for pod in self._pods.members(key)), "")
        workload = self.written_workload(key)
        return workload.namespace if workload is not None else ""

    def plan_of(self, key: GangKey) -> Placement | None:
        """Return the Placement in force for a gang: the one that is about to be written, else the existing one."""
        return self._held.get(key) or self.placement_of(key)

    def moves_from(self, key: GangKey) -> Placement | None:
        """Return the Placement whose slots a gang still has beside those of its plan; None if it has no others."""
        return self.placement_of(key) if key in self._moving else None

    def placement_of(self, key: GangKey) -> Placement | None:
        """Return the Placement of a gang, in its workload's namespace; the oldest when there are several."""
        workload = self.workload_of(key)
        known = [
            item
            for item in self._placements.get(key, {}).values()
            if workload is None or item.namespace == workload.namespace
        ]
        return min(known, key=lambda item: (item.created, item.name), default=None)

    def on_host(self, host: str) -> set[GangKey]:
        """Return the gangs with slots (planned ones included) or bound pods on a host."""
        return self._by_host.gangs(host)

    def in_namespace(self, namespace: str) -> int:
        """Return how many gangs of a namespace have a Placement and have not ended."""
        return self._unfinished[namespace]

    def hosts_in(self, namespace: str, *, besides: GangKey | None = None) -> set[str]:
        """Return the hosts on which gangs of a namespace have slots, planned ones included.

        `besides`: a gang that does not count.
        """
        own = Counter[str]()
        apart = {*self._left_out, *([besides] if besides is not None else [])}
        for placement in (one for key in apart for one in self._placements.get(key, {}).values()):
            if placement.namespace == namespace:
                own.update(_hosts(placement))
        hosts = {host for host, gangs in self._hosts.get(namespace, {}).items() if gangs > own[host]}
        for key, plan in self._held.items():
            if key != besides and plan is not self._left_out.get(key) and plan.namespace == namespace:
                hosts |= _hosts(plan)
        return hosts

    def placed(self, key: GangKey) -> bool:
        """True when a gang of that key has, or is to have, a Placement."""
        return key in self._placements or key in self._held

    def holds(self, key: GangKey) -> bool:
        """True when the gang has a plan that is not written yet."""
        return key in self._held

    def placements(self) -> list[Placement]:
        """Return every Placement that was applied."""
        return [placement for group in self._placements.values() for placement in group.values()]

    def plans(self) -> Iterator[Placement]:
        """Yield the Placement in force of every gang, also those that are not written yet."""
        for key in self._placements.keys() | self._held.keys():
            if (plan := self.plan_of(key)) is not None:
                yield plan

    def orphaned(self) -> list[Placement]:
        """Return the Placements of deleted workloads."""
        return [
            placement
            for key, placements in self._placements.items()
            if not plain_pods.is_plain(key) and parts(key)[0] not in self._workloads
            for placement in placements.values()
        ]

    def pods_of(self, key: GangKey) -> tuple[Pod, ...]:
        """Return the pods of a gang: their controller references lead to its workload, and to its group."""
        if plain_pods.is_single(key):
            return plain_pods.in_turn(self._pods.members(key))[0]
        return self._pods.members(key) if self.knows(key) else ()

    def gang_of(self, pod: Pod) -> GangKey | None:
        """Return the key of the gang that a pod belongs to; None when it belongs to no gang."""
        key = self._pods.gang_key_of(pod.key)
        return key if key is not None and self.knows(key) else None

    def knows(self, key: GangKey) -> bool:
        """True when there is a gang of that key."""
        if plain_pods.is_single(key):
            return any(not pod.finished for pod in self._pods.members(key))
        if plain_pods.is_plain(key):
            # Called for every held pod, and the workload of such a gang would be built from all of them.
            return self._pods.has_members(key)
        return self.workload_of(key) is not None

    def keys(self) -> list[GangKey]:
        """Return the keys of all gangs and of all Placements."""
        of_workloads = {key for one in self._workloads.values() for key in self._known_keys(one)}
        return sorted(of_workloads | self._placements.keys() | set(self._pods.plain_keys()))

    def waiting(self) -> Iterator[tuple[GangKey, Workload, Placement]]:
        """Yield the gangs with a Placement that waits, with their live workloads, the pod sets as written."""
        for key in self._waiting:
            yield from self._waits(key)

    def keeping(self) -> Iterator[tuple[GangKey, Workload, Placement]]:
        """Yield the waiting gangs with a nomination: hosts are kept free for them."""
        for key in self._keeping:
            yield from self._waits(key)

    def keys_through(self, child: Workload) -> set[GangKey]:
        """Return the key of the gang that is placed through a workload."""
        if child.owner is None:
            return set()
        above = self._pods.find(key_to(child.namespace, child.owner))
        return {key_of(above)} if isinstance(above, Workload) and above.handling == "through" else set()

    def pending(self, gang: Gang, capacity: Capacity) -> list[tuple[PodSpec, int]]:
        """Return the pods to come of other placed gangs in the gang's namespace, which will use its quotas."""
        found: list[tuple[PodSpec, int]] = []
        for key in filter(is_gang_key, capacity.reserving()):
            if key == gang.key or not self._placed_in(key, gang.workload.namespace):
                continue
            other = self.workload_of(key)
            if other is None or other.namespace != gang.workload.namespace:
                continue
            reserved, plan = capacity.reserved_by(key), self.plan_of(key)
            # One that terminates may do so for ever, and quotas do not count it then.
            for pod_set, pods in by_pod_set(other, [pod for pod in self.pods_of(key) if pod.live]):
                unbound = admitted(other, pod_set, (pod for pod in pods if not pod.spec.node_name), placement=plan)
                # A pod that is to leave its host has a new slot beside it, but its successor comes when it goes.
                live = admitted(other, pod_set, pods, placement=plan)
                missing = min(reserved.get(pod_set.name, 0) - unbound, pod_set.slots - live)
                if missing > 0:
                    found.append((self._pod_shapes.spec_of(other, pod_set), missing))
        return found

    # -- internal ----------------------------------------------------------------------------------------------------

    def _known_keys(self, workload: Workload) -> Iterable[GangKey]:
        """Return the keys of a workload's gangs without those that are no gangs yet (`is_idle`)."""
        keys = keys_of(workload)
        return keys if len(keys) <= _REPLICAS_WITHOUT_PODS else [key for key in keys if not self.is_idle(key)]

    def _index_slots(self, key: GangKey) -> None:
        held = self._held.get(key)
        plans = [*self._placements.get(key, {}).values(), *([held] if held is not None else [])]
        assigned = [one.assignment for one in plans if one.assignment is not None]
        self._by_host.set_slots(key, frozenset().union(*(one.hosts for one in assigned)))

    def _waits(self, key: GangKey) -> Iterator[tuple[GangKey, Workload, Placement]]:
        workload = self._workloads.get(parts(key)[0]) or self.workload_of(key)
        if workload is not None and key not in self._held:
            for placement in self._placements[key].values():
                if placement.namespace == workload.namespace and placement.assignment is None:
                    yield key, workload, placement

    def _placed_in(self, key: GangKey, namespace: str) -> bool:
        """True when a gang of that key has, or is to have, a Placement in a namespace."""
        held = self._held.get(key)
        known = self._placements.get(key, {}).values()
        return (held is not None and held.namespace == namespace) or any(one.namespace == namespace for one in known)

    def _single_workload(self, pods: Sequence[Pod]) -> Workload | None:
        if not pods:
            return None
        above = self._owners().owner_of(in_order(pods)[0]).controller
        return plain_pods.single_workload(above, pods, dialects=self._owners().policy.annotations.dialects)

    def _request_of(self, workload: Workload, pods: Sequence[Pod], placement: Placement | None) -> PlacementRequest:
        owners = self._owners()
        found = effective_request(owners.request_of(workload), placement, owners.policy)
        if workload.handling != "pods" or workload.unit == "pod" or found.ignored is not None:
            return found
        placed = placement is not None and placement.assignment is not None
        errors = plain_pods.faults(workload, pods, placed=placed, dialects=owners.policy.annotations.dialects)
        return PlacementRequest(errors=errors) if errors else found


def _set_member(keys: dict[GangKey, None], key: GangKey, holds: bool) -> None:
    if holds:
        keys[key] = None
    else:
        keys.pop(key, None)


def _hosts(placement: Placement) -> frozenset[str]:
    """Return the hosts on which a Placement has slots; none once its gang has ended."""
    if placement.assignment is None or not _unfinished(placement):
        return frozenset()
    return placement.assignment.hosts


def _with_slots(placement: Placement, more: tuple[Slot, ...]) -> Placement:
    """Return a Placement with further slots, which are of none of its pod sets."""
    if not more:
        return placement
    known = placement.assignment or Assignment(0, ())
    return replace(placement, assignment=replace(known, pod_sets=(*known.pod_sets, PodSetPlan("", more))))


def _unfinished(placement: Placement) -> bool:
    return placement.status.get("phase") != "Finished"
