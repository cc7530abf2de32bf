"""The index of all gangs by key, from the applied changes of the cluster and from plans that are not written yet.

Never from the stores, which may be a step ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Final

from engine.api import names
from engine.api.objects import PodGroupObject
from engine.api.placement import Assignment, Placement, PodSetPlan, Slot, kept_hosts, placed_at
from engine.api.pod import Pod, PodSpec, Shape
from engine.api.workload import GangKey, Workload
from engine.cache.host_index import HostIndex
from engine.cache.intents import IntentIndex
from engine.cache.pod_shapes import PodShapes
from engine.cache.pods import PodIndex
from engine.cache.reservations import KeptDomains
from engine.capacity.capacity import Capacity
from engine.capacity.counts import add, add_in
from engine.gang import plain_pods
from engine.gang.gang import Gang, PodGroupState, by_pod_set, over
from engine.gang.key import has_group, is_gang_key, key_of, keys_of, parts, placed_key
from engine.gang.ownership import OwnerResolver, key_to
from engine.gang.plain_pods import in_order
from engine.gang.relaxation import effective_request
from engine.gang.request import PlacementRequest, of_group
from engine.gang.slots import completed_without_slot, slots_of
from engine.policy.model import Policy
from engine.resources.shape import on_gpus_with, spread_over_gpus, with_cards, within_scope

# Members of a pod group: each event of one is an event of all, and they are planned in one hold of the state's lock.
MAX_MEMBERS: Final = 64
_NO_OBJECT: Final = (
    "PodGroup {} (scheduling.x-k8s.io) not found: create it with spec.minMember, the number of pods that start "
    f"together; or set {names.MIN_AVAILABLE} on each member, or remove its {names.POD_GROUP}"
)


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
        self._waiting: dict[GangKey, None] = {}  # gangs with a Placement that waits
        self._keeping: dict[GangKey, None] = {}  # waiting gangs with hosts that are kept free for them
        # The workloads of pod groups, by namespace and name of the group; and the group of each.
        self._groups: dict[tuple[str, str], dict[GangKey, None]] = {}
        self._group_of: dict[GangKey, tuple[str, str]] = {}
        # Of groups with too many workloads: those that count, under a policy, and the order of the last one.
        self._counted: dict[tuple[str, str], tuple[dict[GangKey, None], Policy, tuple[float, str]]] = {}
        self._group_objects: dict[tuple[str, str], PodGroupObject] = {}
        self._unfinished: Counter[str] = Counter()  # Placements by namespace
        self._hosts: dict[str, dict[str, int]] = {}  # namespace -> host -> Placements
        self.kept_domains = KeptDomains()
        self._left_out: dict[GangKey, Placement | None] = {}  # for one question, with the plans that are not written
        self.intents = IntentIndex()

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
        around = self._regroup(old, new)
        # Most changes of a status are no news here: how many pods are active, or ready.
        if old is not None and new is not None and replace(old, resource_version=new.resource_version) == new:
            return around
        return around | {key for one in (old, new) if one is not None for key in keys_of(one)}

    def set_pod_group(self, old: PodGroupObject | None, new: PodGroupObject | None) -> set[GangKey]:
        """Apply a change of a PodGroup object; returns the keys of the group's gangs."""
        if old is not None:
            self._group_objects.pop((old.namespace, old.name), None)
        if new is not None:
            self._group_objects[(new.namespace, new.name)] = new
        known = new or old
        return set(self._group_members((known.namespace, known.name))) if known is not None else set()

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

    def assume(self, key: GangKey, plan: Placement) -> None:
        """Store a plan that is not written yet; it takes precedence over the written Placement."""
        self._held[key] = plan
        self._index_slots(key)
        self.keep_domains(key)

    def drop(self, key: GangKey) -> bool:
        """Remove the assumed plan of a gang; False when there is none."""
        held = self._held.pop(key, None)
        if held is not None:
            self._index_slots(key)
            self.keep_domains(key)
        return held is not None

    def keep_domains(self, key: GangKey) -> None:
        """Update the index of the domains that a gang keeps other gangs out of: those with slots or with pods of it.

        Its pods may outlive their slots: these are given back or moved while the pods still end.
        """
        held = self._held.get(key)
        plans = [*self._placements.get(key, {}).values(), *([held] if held is not None else [])]
        apart = [one for one in plans if one.separation is not None and _unfinished(one)]
        if apart:
            before = (one.assignment for one in self.kept_domains.of(key) if one.assignment is not None)
            known = {slot.host: slot for one in before for slot in slots_of(one)}
            there = self._pods.hosts_of(key).difference(*(_hosts(one) for one in apart))
            others = tuple(known.get(host, Slot((host,), 1, None)) for host in sorted(there))
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
        state = self._pod_group_state(key, workload, request)
        if state is not None and (len(state.members) > 1 or state.of_object):
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
        found: set[GangKey] = set()
        for key in keys if self._groups else ():
            group = plain_pods.place_of(key) if plain_pods.is_plain(key) else self._group_of.get(key)
            members = self._group_members(group) if group is not None else {}
            found |= members.keys() if key in members else set()
        return found

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

    def namespace_of(self, key: GangKey) -> str:
        """Return the namespace of a gang; "" when there is none of that key."""
        if plain_pods.is_plain(key) or plain_pods.is_single(key):
            return next((pod.namespace for pod in self._pods.members(key)), "")
        workload = self._workloads.get(parts(key)[0])
        return workload.namespace if workload is not None else ""

    def plan_of(self, key: GangKey) -> Placement | None:
        """Return the Placement in force for a gang: the one that is about to be written, else the existing one."""
        return self._held.get(key) or self.placement_of(key)

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
        of_workloads = {key for one in self._workloads.values() for key in keys_of(one)}
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
            reserved = capacity.reserved_by(key)
            for pod_set, pods in by_pod_set(other, [pod for pod in self.pods_of(key) if not pod.finished]):
                unbound = sum(not pod.spec.node_name for pod in pods)
                # A pod that is to leave its host has a new slot beside it, but its successor comes when it goes.
                missing = min(reserved.get(pod_set.name, 0) - unbound, pod_set.slots - sum(pod.live for pod in pods))
                if missing > 0:
                    found.append((self._pod_shapes.spec_of(other, pod_set), missing))
        return found

    # -- internal ----------------------------------------------------------------------------------------------------

    def _index_slots(self, key: GangKey) -> None:
        held = self._held.get(key)
        plans = [*self._placements.get(key, {}).values(), *([held] if held is not None else [])]
        assigned = [one.assignment for one in plans if one.assignment is not None]
        self._by_host.set_slots(key, frozenset().union(*(one.hosts for one in assigned)))

    def _regroup(self, old: Workload | None, new: Workload | None) -> set[GangKey]:
        """Apply a change of a workload to the pod groups; returns the keys of the groups' gangs."""
        before, after = _named_group(old), _named_group(new)
        if before is None and after is None:
            return set()
        around = {key for group in (before, after) if group is not None for key in self._group_members(group)}
        for workload, group in ((old, before), (new, after)):
            if workload is None or group is None:
                continue
            key = key_of(workload)
            if workload is new:
                self._groups.setdefault(group, {})[key] = None
                self._group_of[key] = group
            elif after != group or new is None or key_of(new) != key:
                self._groups.get(group, {}).pop(key, None)
                self._group_of.pop(key, None)
                if not self._groups.get(group, True):
                    del self._groups[group]
            self._recount(group, workload, same=_same_member(old, new))
        return around | {key for group in (before, after) if group is not None for key in self._group_members(group)}

    def _group_members(self, group: tuple[str, str]) -> dict[GangKey, None]:
        """Return the keys of a pod group's workloads within the limit, and that of its plain pods."""
        known = self._groups.get(group, {})
        members = dict(known if len(known) <= MAX_MEMBERS else self._oldest(group))
        if self._pods.has_members(plain := plain_pods.gang_key(*group)):
            members[plain] = None
        return members

    def _oldest(self, group: tuple[str, str]) -> dict[GangKey, None]:
        """Return the oldest workloads of a pod group that have not ended, and the last that have, within the limit."""
        policy = self._owners().policy
        if (known := self._counted.get(group)) is not None and known[1] is policy:
            return known[0]
        found = sorted(
            (_age(workload), workload.finished, key)
            for key in self._groups[group]
            if (workload := self._workloads.get(parts(key)[0])) is not None
            and (workload.finished or not over(workload))
        )
        ended = [key for _, ends, key in found if ends][-MAX_MEMBERS:]
        # The children of a member copy its templates, and name the group as well.
        live = ((age, key) for age, ends, key in found if not ends and self._joins(key, group[1]))
        oldest = list(islice(live, MAX_MEMBERS))
        last = oldest[-1][0] if len(oldest) == MAX_MEMBERS else (inf, "")
        self._counted[group] = (dict.fromkeys([*ended, *(key for _, key in oldest)]), policy, last)
        return self._counted[group][0]

    def _recount(self, group: tuple[str, str], workload: Workload, *, same: bool) -> None:
        """Forget which workloads of a pod group count, if a change of one may concern that."""
        known = self._counted.get(group)
        if len(self._groups.get(group, ())) <= MAX_MEMBERS or (
            known is not None
            and not same
            and (workload.finished or key_of(workload) in known[0] or _age(workload) <= known[2])
        ):
            self._counted.pop(group, None)

    def recount_groups(self) -> None:
        """Forget which workloads of large pod groups count: their requests may be valid, or wrong, from now on."""
        self._counted.clear()

    def _joins(self, key: GangKey, name: str) -> bool:
        """Return True if the request of a workload is valid and names the pod group."""
        workload = self.workload_of(key)
        asked = self._owners().request_of(workload) if workload is not None else None
        return asked is not None and asked.asking and asked.pod_group is not None and asked.pod_group.name == name

    def _pod_group_state(self, key: GangKey, workload: Workload, request: PlacementRequest) -> PodGroupState | None:
        """Return the state of the pod group that a valid request names; None if its own minimum says it all."""
        group = request.pod_group
        if group is None:
            return None
        known = self._group_members((workload.namespace, group.name))
        if key not in known and key in self._groups.get((workload.namespace, group.name), ()):
            problem = f"pod group {group.name} has more than {MAX_MEMBERS} workloads; others join when some have ended"
            runs = any(pod.spec.node_name for pod in self.pods_of(key))
            least, slots = group.minimum or 0, assigned_count(self.plan_of(key))
            return PodGroupState(group.name, least, workload.slots, slots, runs, (key,), problem=problem)
        found = [(workload.created, workload.name, key)]
        minima = {group.minimum}
        pods, assigned, started = 0, 0, False
        for member in known | {key: None}:
            other = workload if member == key else self.workload_of(member)
            if other is None or (over(other) and not other.finished):
                continue
            placement = self.plan_of(member)
            if other.finished and _of_earlier_run(placement, workload):
                continue
            if member != key:
                asked = self._owners().request_of(other)
                if not asked.asking or asked.pod_group is None or asked.pod_group.name != group.name:
                    continue
                minima.add(asked.pod_group.minimum)
                found.append((other.created, other.name, member))
            slots = _placed_count(other, placement)
            pods += other.slots
            assigned += max(other.slots, slots) if other.finished else slots
            started = started or other.finished or any(pod.spec.node_name for pod in self.pods_of(member))
        minimum, of_object = max((least for least in minima if least is not None), default=0), None in minima
        if len(found) == 1 and pods >= minimum and not of_object:
            return None
        problem, timeout = "", None
        if of_object:
            said = self._group_objects.get((workload.namespace, group.name))
            if said is None:
                problem = _NO_OBJECT.format(group.name)
            elif said.problem:
                problem = f"PodGroup {group.name} cannot be read: {said.problem}"
            else:
                minimum, timeout = max(minimum, said.minimum), said.timeout
        members = tuple(member for _, _, member in sorted(found))
        return PodGroupState(
            group.name, minimum, pods, assigned, started, members, of_object=of_object, timeout=timeout, problem=problem
        )

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


def assigned_count(placement: Placement | None) -> int:
    """Return how many slots a Placement has."""
    assignment = placement.assignment if placement is not None else None
    return assignment.count if assignment is not None else 0


def _placed_count(workload: Workload, placement: Placement | None) -> int:
    """Return how many pods of a workload have slots, or have completed."""
    completed = completed_without_slot(workload, placement.assignment if placement is not None else None)
    return min(workload.slots, assigned_count(placement) + completed) if completed else assigned_count(placement)


def _of_earlier_run(ended: Placement | None, workload: Workload) -> bool:
    """Return True if a workload that has ended was not placed together with another one of its pod group.

    The same group is often used again, as by the Jobs of a CronJob: what had its slots before the other workload was
    created did not start with it.
    """
    if ended is None or ended.assignment is None:
        return True
    since = placed_at(ended.status)
    return since is not None and since < workload.created


def _age(workload: Workload) -> tuple[float, str]:
    return (workload.created, workload.name)


def _same_member(old: Workload | None, new: Workload | None) -> bool:
    """Return True if a change of a workload concerns neither its request nor its end."""
    if old is None or new is None:
        return False
    before, after = (
        (one.uid, one.annotations, one.generation, one.finished, over(one), one.owner) for one in (old, new)
    )
    return before == after


def _named_group(workload: Workload | None) -> tuple[str, str] | None:
    """Return the namespace and the name of the pod group that a workload or one of its templates names."""
    if workload is None:
        return None
    carriers = (workload.annotations, *(pod_set.template.annotations for pod_set in workload.pod_sets))
    name = next((one[names.POD_GROUP] for one in carriers if names.POD_GROUP in one), None)
    return None if name is None else (workload.namespace, name)


def _unfinished(placement: Placement) -> bool:
    return placement.status.get("phase") != "Finished"
