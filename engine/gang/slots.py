"""Assigns the slots of a placed gang to its pods. Pure.

Pod sets are assigned separately. Where every slot is one rank (as many completions as slots) the rank decides; where
ranks come and go (more completions than slots) or there are none, any slot of a host is as good as another, and only
counts per host matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, zip_longest

from engine.api import names
from engine.api.placement import Assignment, Placement, PodSetPlan, PodSetRequest, Slot
from engine.api.pod import Pod
from engine.api.rank import expand_ranks, index_of, join_ranks, value
from engine.api.workload import PodSet, Workload
from engine.devices.allocation import Uses, devices_by_rank, spare_devices, with_lowest_ranks, without_ranks_from
from engine.gang.gang import Gang, by_pod_set, host_of, pod_set_of, pod_set_with, rank_is_slot, rank_of, rank_with
from engine.gang.request import PlacementRequest
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


def assigned_count(placement: Placement | None) -> int:
    """Return how many slots a Placement has."""
    assignment = placement.assignment if placement is not None else None
    return assignment.count if assignment is not None else 0


def slots_of(assignment: Assignment) -> tuple[Slot, ...]:
    """Return all slots of the gang: pod set by pod set, each in order of the lowest rank."""
    return tuple(slot for plan in assignment.pod_sets for slot in plan.slots)


def slot_by_rank(plan: PodSetPlan) -> dict[int, Slot]:
    """Rank -> slot; empty when the slots carry no ranks."""
    return {rank: slot for slot in plan.slots for rank in expand_ranks(slot.ranks)}


def slot_of_rank(plan: PodSetPlan, rank: int) -> Slot | None:
    """Return the slot of one rank; None when it has none."""
    # They are ordered by their lowest rank; only the further ranges of a slot may be elsewhere.
    before = bisect_right(plan.slots, rank, key=lowest_rank)
    likely = plan.slots[before - 1 : before]
    return next((slot for slot in chain(likely, plan.slots) if _has_rank(slot, rank)), None)


def lowest_rank(slot: Slot) -> int:
    """Return the lowest rank of the pods on a host, by which the slots of a pod set are ordered; -1 without ranks."""
    return slot.ranks[0][0] if slot.ranks else -1


def _has_rank(slot: Slot, rank: int) -> bool:
    return any(first <= rank <= last for first, last in slot.ranks or ())


def done_ranks(pod_set: PodSet, pods: Iterable[Pod]) -> set[int]:
    """Return the ranks that need no slot any more, where each rank is a slot."""
    done = _finished_ranks(pod_set)
    for pod in pods:
        if pod.phase == "Succeeded" and (rank := rank_of(pod, pod_set)) is not None:
            done.add(rank)
    return done


def _finished_ranks(pod_set: PodSet) -> set[int]:
    """Return the ranks that have completed, by the workload's status, which never takes one back."""
    return {rank for first, last in pod_set.finished_ranks for rank in range(first, min(last, pod_set.slots) + 1)}


def ranks_to_place(
    workload: Workload,
    asks: Iterable[PodSetRequest],
    kept: Mapping[str, Collection[int]] | None = None,
    completed: Mapping[str, Collection[int]] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Return the ranks that need a slot, of each pod set with ranks that need none: those that have completed.

    Ranks in `kept` have a slot that stays, whether they need it or not. `completed`: ranks that have completed beside
    those that the workload's status tells.
    """
    found = {}
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for ask in asks:
        pod_set, more = pod_sets.get(ask.name), (completed or {}).get(ask.name, ())
        if pod_set is None or not (pod_set.finished_ranks or more) or not rank_is_slot(pod_set):
            continue
        ranks = ranks_of_slices(ask, _finished_ranks(pod_set).union(more).difference((kept or {}).get(ask.name, ())))
        if len(ranks) < ask.count:
            found[ask.name] = ranks
    return found


def ranks_of_slices(ask: PodSetRequest, done: Collection[int]) -> tuple[int, ...]:
    """Return the ranks that need a slot where some are done: of a slice all ranks are placed, or none."""
    size = ask.slices[0][1] if ask.slices else 1
    slices = (range(first, min(first + size, ask.count)) for first in range(0, ask.count, size))
    return tuple(rank for one in slices if any(rank not in done for rank in one) for rank in one)


def request_to_place(gang: Gang) -> PlacementRequest:
    """Return the request of a gang without slots for the pods that still have to run: some may have completed."""
    workload, request = gang.workload, gang.request
    counts = {name: len(ranks) for name, ranks in ranks_to_place(workload, request.pod_sets).items()}
    if workload.unit != "pod" and any(pod_set.needed < pod_set.slots for pod_set in workload.pod_sets):
        sizes = {ask.name: ask.slices[0][1] for ask in request.pod_sets if ask.slices}
        for pod_set, pods in by_pod_set(workload, gang.pods):
            if not rank_is_slot(pod_set):
                # The status may count a completed pod that is still in the cache, where it keeps its host.
                with_hosts = sum(1 for pod in pods if pod.live and host_of(pod) is not None)
                size = sizes.get(pod_set.name, 1)
                counts[pod_set.name] = -(-max(wanted_slots(workload, pod_set, ()), with_hosts) // size) * size
    return with_counts(request, counts)


def with_counts(request: PlacementRequest, counts: Mapping[str, int]) -> PlacementRequest:
    """Return a request for fewer pods, by pod set; all of them have to start where they are fewer than the minimum."""
    if all(counts.get(ask.name, ask.count) >= ask.count for ask in request.pod_sets):
        return request
    asks = []
    for ask in request.pod_sets:
        count = min(ask.count, counts.get(ask.name, ask.count))
        asks.append(replace(ask, count=count, min_available=min(ask.min_available, count)))
    gang = request.gang
    least = gang.min_available if gang is not None else None
    if gang is not None and least is not None and least >= sum(ask.count for ask in asks):
        asks = [replace(ask, min_available=ask.count) for ask in asks]
        gang = replace(gang, min_available=None) if gang.require is not None or gang.prefer is not None else None
    return replace(request, pod_sets=tuple(asks), gang=gang)


def part_to_place(gang: Gang, assignment: Assignment) -> Assignment:
    """Return the part of an assignment that the gang would get if it was planned anew: for ranks that need a slot."""
    return part_of_ranks(assignment, ranks_to_place(gang.workload, gang.request.pod_sets))


def part_of_ranks(assignment: Assignment, ranks: Mapping[str, Collection[int]]) -> Assignment:
    """Return the slots of these ranks; all those of pod sets that are not in `ranks`."""
    plans = []
    for plan in assignment.pod_sets:
        if plan.name in ranks:
            wanted = set(ranks[plan.name])
            left = [[one for one in expand_ranks(slot.ranks) if one in wanted] for slot in plan.slots]
            slots = (
                replace(slot, count=len(own), ranks=join_ranks([(rank, rank) for rank in own]), devices=None)
                for slot, own in zip(plan.slots, left, strict=True)
                if own
            )
            plan = replace(plan, slots=tuple(slots))  # noqa: PLW2901
        plans.append(plan)
    return replace(assignment, pod_sets=tuple(plans))


def left_domain(placement: Placement, slot: Slot, topology: Topology | None, *, pod_set: str) -> bool:
    """True when a slot's host has left the domain that its pod set requires, by the host's current labels.

    False for a topology with other levels than the slot's, or without the required one by now, and for a gang that
    requires no level.
    """
    require = next((one.require for one in placement.pod_sets if one.name == pod_set), None)
    if require is None or topology is None or len(topology.levels) != len(slot.domain):
        return False
    index = topology.tree.index.get(slot.host)
    if index is None:
        return True
    depth = len(slot.domain) - 1  # `auto`: everything above the host
    if require != names.AUTO:
        if (level := topology.level_index(require)) is None:
            return False
        depth = level + 1
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
        of_others = _ranks_of_other_replicas(pod_set, by_rank, held, others)
        for pod in held:
            rank = of_others.get(pod.uid, rank_of(pod, pod_set))
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


def _ranks_of_other_replicas(
    pod_set: PodSet, slots: Collection[int], held: Sequence[Pod], others: Sequence[Pod]
) -> dict[str, int]:
    """Return, by uid, the ranks of held pods that take the slots of another replica than their own index says.

    KubeRay removes any replica, and those that stay keep their indexes: one that is still held may have an index beyond
    the slots, or one whose slots such a replica has taken. All pods of a replica go to the slots of one.
    """
    size = pod_set.replica
    if size is None or pod_set.rank is None or _have_their_own(pod_set, size, held, others):
        return {}
    every = ((pod.uid, value(pod_set.rank, pod.spec.labels)) for pod in (*held, *others))
    indexes = {uid: index for uid, index in every if isinstance(index, int)}
    given: dict[int, int] = {}  # replica -> replica whose slots it has
    for pod in others:
        if (rank := rank_of(pod, pod_set)) is not None and pod.uid in indexes:
            given.setdefault(indexes[pod.uid] // size, rank // size)
    waiting = dict.fromkeys(indexes[pod.uid] // size for pod in held if pod.uid in indexes)
    used = set(given.values())
    at_home = {one for one in waiting if one * size < pod_set.slots and one not in used}
    whole = (one for one in range(pod_set.slots // size) if all(one * size + host in slots for host in range(size)))
    free = (one for one in whole if one not in used | at_home)
    given |= zip((one for one in waiting if one not in given and one not in at_home), free, strict=False)
    return {
        pod.uid: given[index // size] * size + index % size
        for pod in held
        if (index := indexes.get(pod.uid)) is not None and given.get(index // size, index // size) != index // size
    }


def _have_their_own(pod_set: PodSet, size: int, held: Iterable[Pod], others: Iterable[Pod]) -> bool:
    """True when no held pod needs the slots of another replica: the usual case, at the lowest cost."""
    own = {None if (rank := rank_of(pod, pod_set)) is None else rank // size for pod in held}
    return None not in own and not any(
        (rank := rank_of(pod, pod_set)) is not None
        and rank // size in own
        and rank != rank_with(pod.spec.labels, pod_set)
        for pod in others
    )


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


def lacking_slots(workload: Workload, plan: PodSetPlan, pod_set: PodSet, pods: Iterable[Pod]) -> int:
    """Return how many slots a pod set needs that its plan has not: it was scaled up, or not all fitted."""
    lacking = max(0, wanted_slots(workload, pod_set, pods) - plan.count)
    if not lacking or not pod_set.finished_ranks or not rank_is_slot(pod_set):
        return lacking
    return len(set(range(pod_set.slots)).difference(_finished_ranks(pod_set), slot_by_rank(plan)))


def completed_without_slot(workload: Workload, assignment: Assignment | None) -> int:
    """Return how many pods of a workload have completed and have no slot in its assignment any more, or yet."""
    found = 0
    for pod_set in workload.pod_sets:
        if not rank_is_slot(pod_set):
            found += pod_set.completed
        elif pod_set.finished_ranks:
            plan = assignment.plan_of(pod_set.name) if assignment is not None else PodSetPlan(pod_set.name, ())
            found += len(_finished_ranks(pod_set) - slot_by_rank(plan).keys())
    return found


def completed_in_jobs(gang: Gang) -> int:
    """Return how many pods without a rank have completed in the Jobs of a gang, beside those that its status counts.

    They keep their slots, for a restart of the workload, but are not missing: their Jobs create none in their place.
    """
    found = Counter[str]()
    for pod_set, of_job in _in_jobs(gang):
        if not (of_job.ranked and rank_is_slot(pod_set)):
            found[pod_set.name] += of_job.completed
    return sum(max(0, found[one.name] - one.completed) for one in gang.workload.pod_sets)


def ranks_completed_in_jobs(gang: Gang) -> dict[str, set[int]]:
    """Return the ranks that have completed in the Jobs of a gang, by pod set, as the Jobs say it.

    They keep their slots, for a restart of the workload, until other pods of the gang need the room. They are not
    missing: their Jobs create no pods in their place.
    """
    found: dict[str, set[int]] = {}
    for pod_set, of_job in _in_jobs(gang):
        if of_job.ranked:
            labels = dict(of_job.template.labels)
            for index in _finished_ranks(of_job):
                labels[names.COMPLETION_INDEX] = str(index)
                if (rank := rank_with(labels, pod_set)) is not None:
                    found.setdefault(pod_set.name, set()).add(rank)
    return found


def _in_jobs(gang: Gang) -> Iterator[tuple[PodSet, PodSet]]:
    """Yield the pod sets of the Jobs of a gang, each with that of the gang's workload to which its pods belong."""
    for job in gang.jobs:
        for of_job in job.pod_sets:
            if (pod_set := pod_set_with(of_job.template.labels, gang.workload)) is not None:
                yield pod_set, of_job


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
