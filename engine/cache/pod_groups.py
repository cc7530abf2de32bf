"""The index of pod groups: the workloads and plain pods of each, and whether its minimum exists and has slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Final, Protocol

from engine.api import names
from engine.api.objects import PodGroupObject
from engine.api.placement import Placement, placed_at
from engine.api.pod import Pod
from engine.api.workload import GangKey, Workload
from engine.cache.pods import PodIndex
from engine.gang import plain_pods
from engine.gang.gang import PodGroupState, over
from engine.gang.key import key_of
from engine.gang.ownership import OwnerResolver
from engine.gang.request import PlacementRequest, PodGroupRequest
from engine.gang.slots import assigned_count, completed_without_slot
from engine.policy.model import Policy

# Members of a pod group: each event of one is an event of all, and they are planned in one hold of the state's lock.
MAX_MEMBERS: Final = 64
_NO_OBJECT: Final = (
    "PodGroup {} (scheduling.x-k8s.io) not found: create it with spec.minMember, the number of pods that start "
    f"together; or set {names.MIN_AVAILABLE} on each member, or remove its {names.POD_GROUP}"
)
_Group = tuple[str, str]  # namespace and name


class GangReader(Protocol):
    """What a pod group reads of its gangs: the index of gangs."""

    def workload_of(self, key: GangKey) -> Workload | None:
        """Return the live workload with a gang of that key, with all its pod sets."""

    def written_workload(self, key: GangKey) -> Workload | None:
        """Return the workload object of a gang as it is written; None for a gang of pods."""

    def plan_of(self, key: GangKey) -> Placement | None:
        """Return the Placement in force for a gang."""

    def pods_of(self, key: GangKey) -> tuple[Pod, ...]:
        """Return the pods of a gang."""


class PodGroupIndex:
    """The workloads of each pod group, and the PodGroup objects; not thread-safe.

    `owners` returns the resolver under the policy in force.
    """

    def __init__(self, gangs: GangReader, pods: PodIndex, *, owners: Callable[[], OwnerResolver]) -> None:
        self._gangs = gangs
        self._pods = pods
        self._owners = owners
        self._groups: dict[_Group, dict[GangKey, None]] = {}
        self._group_of: dict[GangKey, _Group] = {}
        # Of groups with too many workloads: those that count, under a policy, and the order of the last one.
        self._counted: dict[_Group, tuple[dict[GangKey, None], Policy, tuple[float, str]]] = {}
        self._objects: dict[_Group, PodGroupObject] = {}

    # -- changes -----------------------------------------------------------------------------------------------------

    def set_workload(self, old: Workload | None, new: Workload | None) -> set[GangKey]:
        """Apply a change of a workload; returns the keys of its groups' gangs, before and after."""
        before, after = _named_group(old), _named_group(new)
        if before is None and after is None:
            return set()
        around = {key for group in (before, after) if group is not None for key in self._members(group)}
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
        return around | {key for group in (before, after) if group is not None for key in self._members(group)}

    def set_object(self, old: PodGroupObject | None, new: PodGroupObject | None) -> set[GangKey]:
        """Apply a change of a PodGroup object; returns the keys of the group's gangs."""
        if old is not None:
            self._objects.pop((old.namespace, old.name), None)
        if new is not None:
            self._objects[(new.namespace, new.name)] = new
        known = new or old
        return set(self._members((known.namespace, known.name))) if known is not None else set()

    def recount(self) -> None:
        """Forget which workloads of large pod groups count: their requests may be valid, or wrong, from now on."""
        self._counted.clear()

    # -- reading -----------------------------------------------------------------------------------------------------

    def in_group_with(self, keys: Iterable[GangKey]) -> set[GangKey]:
        """Return the gangs that count in one pod group with any of these, themselves included."""
        found: set[GangKey] = set()
        for key in keys if self._groups else ():
            group = plain_pods.place_of(key) if plain_pods.is_plain(key) else self._group_of.get(key)
            members = self._members(group) if group is not None else {}
            found |= members.keys() if key in members else set()
        return found

    def state_of(self, key: GangKey, workload: Workload, request: PlacementRequest) -> PodGroupState | None:
        """Return the state of the pod group that a valid request names; None if its own minimum says it all."""
        if (asked := request.pod_group) is None:
            return None
        group = (workload.namespace, asked.name)
        known = self._members(group)
        if key not in known and key in self._groups.get(group, ()):
            return self._state_of_surplus(key, workload, asked)
        found = [(workload.created, workload.name, key)]
        minima = {asked.minimum}
        pods, assigned, started = 0, 0, False
        for member in known | {key: None}:
            other = workload if member == key else self._gangs.workload_of(member)
            if other is None or (over(other) and not other.finished):
                continue
            placement = self._gangs.plan_of(member)
            if other.finished and _of_earlier_run(placement, workload):
                continue
            if member != key:
                of_other = self._group_named_by(other)
                if of_other is None or of_other.name != asked.name:
                    continue
                minima.add(of_other.minimum)
                found.append((other.created, other.name, member))
            slots = _placed_count(other, placement)
            pods += other.slots
            assigned += max(other.slots, slots) if other.finished else slots
            started = started or other.finished or any(pod.spec.node_name for pod in self._gangs.pods_of(member))
        of_object = None in minima
        minimum = max((least for least in minima if least is not None), default=0)
        if len(found) == 1 and pods >= minimum and not of_object:
            return None
        members = tuple(member for _, _, member in sorted(found))
        state = PodGroupState(asked.name, minimum, pods, assigned, started, members, of_object=of_object)
        return self._with_object(state, group) if of_object else state

    # -- internal ----------------------------------------------------------------------------------------------------

    def _state_of_surplus(self, key: GangKey, workload: Workload, asked: PodGroupRequest) -> PodGroupState:
        """Return the state for a workload that does not count, because its group has too many."""
        problem = f"pod group {asked.name} has more than {MAX_MEMBERS} workloads; others join when some have ended"
        runs = any(pod.spec.node_name for pod in self._gangs.pods_of(key))
        slots = assigned_count(self._gangs.plan_of(key))
        return PodGroupState(asked.name, asked.minimum or 0, workload.slots, slots, runs, (key,), problem=problem)

    def _with_object(self, state: PodGroupState, group: _Group) -> PodGroupState:
        """Return the state of a group with what its PodGroup object says."""
        known = self._objects.get(group)
        if known is None:
            return replace(state, problem=_NO_OBJECT.format(state.name))
        if known.problem:
            return replace(state, problem=f"PodGroup {state.name} cannot be read: {known.problem}")
        return replace(state, minimum=max(state.minimum, known.minimum), timeout=known.timeout)

    def _members(self, group: _Group) -> dict[GangKey, None]:
        """Return the keys of a pod group's workloads within the limit, and that of its plain pods."""
        known = self._groups.get(group, {})
        members = dict(known if len(known) <= MAX_MEMBERS else self._oldest(group))
        if self._pods.has_members(plain := plain_pods.gang_key(*group)):
            members[plain] = None
        return members

    def _oldest(self, group: _Group) -> dict[GangKey, None]:
        """Return the oldest workloads of a pod group that have not ended, and the last that have, within the limit."""
        policy = self._owners().policy
        if (known := self._counted.get(group)) is not None and known[1] is policy:
            return known[0]
        found = sorted(
            (_age(workload), workload.finished, key)
            for key in self._groups[group]
            if (workload := self._gangs.written_workload(key)) is not None and (workload.finished or not over(workload))
        )
        ended = [key for _, ends, key in found if ends][-MAX_MEMBERS:]
        # The children of a member copy its templates, and name the group as well.
        live = ((age, key) for age, ends, key in found if not ends and self._joins(key, group[1]))
        oldest = list(islice(live, MAX_MEMBERS))
        last = oldest[-1][0] if len(oldest) == MAX_MEMBERS else (inf, "")
        self._counted[group] = (dict.fromkeys([*ended, *(key for _, key in oldest)]), policy, last)
        return self._counted[group][0]

    def _recount(self, group: _Group, workload: Workload, *, same: bool) -> None:
        """Forget which workloads of a pod group count, if a change of one may concern that."""
        known = self._counted.get(group)
        if len(self._groups.get(group, ())) <= MAX_MEMBERS or (
            known is not None
            and not same
            and (workload.finished or key_of(workload) in known[0] or _age(workload) <= known[2])
        ):
            self._counted.pop(group, None)

    def _joins(self, key: GangKey, name: str) -> bool:
        """Return True if the request of a workload is valid and names the pod group."""
        workload = self._gangs.workload_of(key)
        named = self._group_named_by(workload) if workload is not None else None
        return named is not None and named.name == name

    def _group_named_by(self, workload: Workload) -> PodGroupRequest | None:
        """Return the pod group that the valid request of a workload names."""
        asked = self._owners().request_of(workload)
        return asked.pod_group if asked.asking else None


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
