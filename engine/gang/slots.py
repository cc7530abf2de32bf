"""Assigns the slots of a placed gang to its pods. Pure.

Pod sets are assigned separately. Where every slot is one rank (as many completions as slots) the rank decides; where
ranks come and go (more completions than slots) or there are none, any slot of a host is as good as another, and only
counts per host matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, count, zip_longest

from engine.api import names
from engine.api.placement import Assignment, Placement, PodSetPlan, Slot
from engine.api.pod import Pod
from engine.api.rank import index_of
from engine.api.workload import PodSet, Workload
from engine.devices.allocation import Uses, devices_by_rank, spare_devices, with_lowest_ranks, without_ranks_from
from engine.gang.gang import by_pod_set, host_of, pod_set_of, rank_is_slot, rank_of
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """A held pod with its slot, its rank, and its devices (none where they are not known).

    The rank is the pod's index, None where that is impossible; pods of kinds without an index get a free rank.
    """

    pod: Pod
    slot: Slot
    rank: int | None
    devices: Uses = ()


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A held pod that gets no slot, and the reason (for an Event)."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class SlotAssignments:
    """The result of `assign_slots` for the held pods of a gang."""

    assignments: tuple[SlotAssignment, ...] = ()
    refused: tuple[Unassigned, ...] = ()
    foreign: tuple[Pod, ...] = ()  # held by another gate too: not ready, ours is removed last


def slots_of(assignment: Assignment) -> tuple[Slot, ...]:
    """Return all slots of the gang: pod set by pod set, each in order of the lowest rank."""
    return tuple(slot for plan in assignment.pod_sets for slot in plan.slots)


def slot_by_rank(plan: PodSetPlan) -> dict[int, Slot]:
    """Rank -> slot; empty when the slots carry no ranks."""
    return {rank: slot for slot in plan.slots for first, last in slot.ranks or () for rank in range(first, last + 1)}


def slot_of_rank(plan: PodSetPlan, rank: int) -> Slot | None:
    """Return the slot of one rank; None when it has none."""
    # They are ordered by their lowest rank; only the further ranges of a slot may be elsewhere.
    before = bisect_right(plan.slots, rank, key=_lowest_rank)
    likely = plan.slots[before - 1 : before]
    return next((slot for slot in chain(likely, plan.slots) if _has_rank(slot, rank)), None)


def _lowest_rank(slot: Slot) -> int:
    return slot.ranks[0][0] if slot.ranks else -1


def _has_rank(slot: Slot, rank: int) -> bool:
    return any(first <= rank <= last for first, last in slot.ranks or ())


def done_ranks(pod_set: PodSet, pods: Iterable[Pod]) -> set[int]:
    """Return the ranks that need no slot any more, where each rank is a slot."""
    done = {rank for first, last in pod_set.finished_ranks for rank in range(first, min(last, pod_set.slots) + 1)}
    for pod in pods:
        if pod.phase == "Succeeded" and (rank := rank_of(pod, pod_set)) is not None:
            done.add(rank)
    return done


def left_domain(placement: Placement, slot: Slot, topology: Topology | None, *, pod_set: str) -> bool:
    """True when a slot's host has left the domain that its pod set requires, by the host's current labels.

    False for a topology with other levels than the slot's, and for a gang that requires no level.
    """
    require = next((one.require for one in placement.pod_sets if one.name == pod_set), None)
    if require is None or topology is None or len(topology.levels) != len(slot.domain):
        return False
    index = topology.tree.index.get(slot.host)
    if index is None:
        return True
    level = topology.level_index(require)
    depth = len(slot.domain) - 1 if level is None else level + 1  # `auto`: everything above the host
    return topology.tree.path(len(topology.levels) - 1, index)[:depth] != slot.domain[:depth]


def assign_slots(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> SlotAssignments:
    """Assign slots to held pods: by rank, or any free slot of the pod set in order.

    The slot of a rank belongs to its first live pod; a terminating pod shares its slot with its replacement. Where any
    pod may take any slot, one that is bound elsewhere (it is to leave its host, or landed there) has one of them.
    """
    if placement.assignment is None:
        return SlotAssignments()
    pods = [pod for pod in pods if pod.live]
    found = [
        _assign_pod_set(pod_set, placement.assignment.plan_of(pod_set.name), members)
        for pod_set, members in by_pod_set(workload, pods)
    ]
    unmatched = tuple(
        Unassigned(pod, "its labels match no pod set of this gang")
        for pod in pods
        if names.GATE in pod.spec.gates and pod_set_of(pod, workload) is None
    )
    return SlotAssignments(
        tuple(one_pod for one in found for one_pod in one.assignments),
        (*(refused for one in found for refused in one.refused), *unmatched),
        tuple(pod for one in found for pod in one.foreign),
    )


def _assign_pod_set(pod_set: PodSet, plan: PodSetPlan, pods: Iterable[Pod]) -> SlotAssignments:
    held: list[Pod] = []
    foreign: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        if names.GATE not in pod.spec.gates:
            others.append(pod)
        elif len(pod.spec.gates) > 1:
            foreign.append(pod)
        else:
            held.append(pod)
    if not held:
        return SlotAssignments(foreign=tuple(foreign))
    held.sort(key=lambda pod: (pod.created, pod.uid))
    assigned: list[SlotAssignment] = []
    refused: list[Unassigned] = []
    if rank_is_slot(pod_set):
        by_rank, devices = slot_by_rank(plan), devices_by_rank(plan)
        taken = {rank_of(pod, pod_set) for pod in others}
        for pod in held:
            rank = rank_of(pod, pod_set)
            if rank is None or rank not in by_rank:
                refused.append(Unassigned(pod, f"index {'unknown' if rank is None else rank} has no slot in this gang"))
            elif rank in taken:
                refused.append(Unassigned(pod, f"rank {rank} of this gang belongs to another live pod"))
            else:
                taken.add(rank)
                assigned.append(SlotAssignment(pod, by_rank[rank], rank, devices.get(rank, ())))
        return SlotAssignments(tuple(assigned), tuple(refused), tuple(foreign))
    free = _free_slots(plan, others)
    spare = {
        slot.host: spare_devices(slot, [pod for pod in others if host_of(pod) == slot.host])
        for slot in plan.slots
        if slot.devices is not None
    }
    for pod, (slot, rank) in zip(held, free, strict=False):
        left = spare.get(slot.host)
        own = rank_of(pod, pod_set) if pod_set.ranked else rank
        assigned.append(SlotAssignment(pod, slot, own, left.pop(0) if left else ()))
    refused.extend(Unassigned(pod, "every slot of this gang is taken") for pod in held[len(free) :])
    return SlotAssignments(tuple(assigned), tuple(refused), tuple(foreign))


def _free_slots(plan: PodSetPlan, pods: Iterable[Pod]) -> list[tuple[Slot, int]]:
    """Return the free slots of a pod set in order, each with a rank for a pod that has no index of its own.

    The ranks of the slots count through the plan, so that neighbours in rank are neighbours on the network. A live pod
    keeps the rank that it was given; a slot's rank that a pod elsewhere still has is replaced by the lowest free one.
    Pods that are bound elsewhere have the last of the slots, as those go first when the gang shrinks.
    """
    pods = list(pods)
    elsewhere = Counter(pod.spec.node_name for pod in pods if pod.spec.node_name)
    for slot in plan.slots:
        elsewhere[slot.host] -= slot.count
    used = Counter(host for pod in pods if (host := host_of(pod)))
    taken = {rank for pod in pods if (rank := index_of(pod.spec.annotations.get(names.RANK))) is not None}
    found: list[tuple[Slot, int | None]] = []
    first = 0
    for slot in plan.slots:
        own = [rank for rank in range(first, first + slot.count) if rank not in taken]
        free = max(0, slot.count - used.pop(slot.host, 0))
        found += zip_longest((slot,) * free, own[:free])
        taken.update(own[:free])
        first += slot.count
    del found[max(0, len(found) - (+elsewhere).total()) :]
    lowest = (rank for rank in count() if rank not in taken)
    return [(slot, next(lowest) if rank is None else rank) for slot, rank in found]


def scaled_down(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> Assignment | None:
    """Return the assignment without the slots that a workload does not need any more; None when there are none.

    It was scaled down, or pods have completed. Where a rank is a slot the highest ranks go, as the Job controller
    removes those; else slots without a pod. The slots of a pod set that the workload does not have any more go too.
    """
    assignment = placement.assignment
    if assignment is None:
        return None
    members = {pod_set.name: (pod_set, pods) for pod_set, pods in by_pod_set(workload, pods)}
    plans = tuple(
        _scaled_plan(plan, *members[plan.name], wanted_slots(workload, *members[plan.name]))
        for plan in assignment.pod_sets
        if plan.name in members
    )
    smaller = replace(assignment, pod_sets=plans)
    return smaller if smaller != assignment else None


def wanted_slots(workload: Workload, pod_set: PodSet, pods: Iterable[Pod]) -> int:
    """Return how many slots a pod set needs now.

    Pods that start each by itself exceed their number for a while (a Deployment's surge): each of them has a slot.
    Where any pod may take any slot, those of pods that have completed are not needed: another gang may get one of them,
    and which one must not be in doubt when a pod is lost. A gang of plain pods keeps the slots of lost ones.
    """
    if workload.unit != "pod":
        return pod_set.slots if rank_is_slot(pod_set) or workload.handling == "pods" else pod_set.needed
    return max(pod_set.slots, sum(1 for pod in pods if pod.live))


def _scaled_plan(plan: PodSetPlan, pod_set: PodSet, pods: list[Pod], wanted: int) -> PodSetPlan:
    if rank_is_slot(pod_set):
        return replace(
            plan,
            slots=tuple(slot for one in plan.slots if (slot := without_ranks_from(one, pod_set.slots)) is not None),
        )
    surplus = plan.count - wanted
    if surplus <= 0:
        return plan
    busy = Counter(host for pod in pods if (host := host_of(pod)))
    kept: list[Slot] = []
    for slot in reversed(plan.slots):
        drop = min(surplus, max(0, slot.count - busy.get(slot.host, 0)))
        surplus -= drop
        if slot.count > drop:
            there = [pod for pod in pods if host_of(pod) == slot.host]
            kept.append(with_lowest_ranks(slot, slot.count - drop, there))
    return replace(plan, slots=tuple(reversed(kept)))
