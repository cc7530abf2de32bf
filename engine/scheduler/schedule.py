"""From a gang in the cluster state to its new Placement: check that its pods can be created, plan, build the Placement.

Nothing is written or assumed here. The leader, the forecast at submit time and `simulate` all use this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import msgspec
import numpy as np

from engine.api.names import AUTO
from engine.api.placement import (
    Assignment,
    GangRequest,
    Placement,
    PodSetRequest,
    Separation,
    Slot,
    WorkloadRef,
    named_levels,
)
from engine.api.pod import Pod, Shape
from engine.api.rank import expand_ranks, join_ranks
from engine.api.reasons import REASONS
from engine.api.resources import Requests, at_most, is_claim, less
from engine.api.text import plural
from engine.api.workload import PodSet
from engine.cache.state import ClusterState
from engine.capacity.other_pods import OtherPods
from engine.capacity.pod_preferences import pod_scores
from engine.capacity.pod_rules import PodRules
from engine.decoding.placements import assignment_body
from engine.devices.allocation import devices_of
from engine.gang.gang import Gang, by_pod_set, has_room, host_of, rank_is_slot, rank_of
from engine.gang.key import name_of
from engine.gang.repair import ExtensionRequest, KeptSlot, domains_of, slots_of_kept
from engine.gang.request import PlacementRequest
from engine.gang.reservation import devices_as_held, devices_in, fills
from engine.gang.slots import (
    lowest_rank,
    part_of_ranks,
    ranks_completed_in_jobs,
    ranks_to_place,
    request_to_place,
    with_counts,
)
from engine.planner.tree import Ints64
from engine.scheduler.devices import allocate_devices
from engine.scheduler.limits import (
    HostLimit,
    at_host_limit,
    creation_problem,
    on_hold,
    surely_within_host_limit,
    too_many_waiting,
    within_host_limit,
)
from engine.scheduler.outcome import EffectiveLevels, Never, Outcome, Placed, Waits, with_new_nodes
from engine.scheduler.plan import PlanConditions, effective_levels, plan_placement, with_shared_levels
from engine.scheduler.precedence import goes_first, in_turn, kept_for, precedence_of
from engine.scheduler.separation import Barred, barred_hosts, constrained, pods_around, rules_for, separated
from engine.topology.topology import OUTSIDE_SELECTOR, Topology

# Bytes of an assignment: etcd takes 1.5 MiB at a time, which include the request, status and managed fields.
_LARGEST = 1_400_000
_SURELY_FITS = 1_000  # pods, each on a host of its own, with devices
_NO_SHAPE = Shape(())


def schedule_gang(
    view: ClusterState,
    gang: Gang,
    *,
    kept: Mapping[str, Mapping[int, KeptSlot]] | None = None,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    nominated: frozenset[str] = frozenset(),
    emptied: frozenset[str] = frozenset(),
    creatable: bool = False,
) -> Outcome:
    """Return the outcome for a gang: whether its pods can be created, then the plan. The caller holds the state's lock.

    `kept`: the result of `kept_assignment`, for a caller that has it. `settled_before`, `excluded`, `nominated` and
    `emptied` as in `PlanConditions`; no devices are allocated on emptied hosts. `creatable`: as if all pods could be
    created.
    """
    if not creatable and (problem := creation_problem(view, gang)) is not None:
        return problem
    kept = _with_room(view, gang, kept_assignment(gang) if kept is None else kept)
    request = request_to_place(gang)
    outcome = _planned(
        view,
        gang,
        request,
        ranks=ranks_to_place(gang.workload, gang.request.pod_sets),
        separation=gang.request.separation,
        kept=kept,
        pods=sum(request.first_slots.values()),
        given=PlanConditions(settled_before=settled_before, excluded=excluded, nominated=nominated, emptied=emptied),
    )
    if isinstance(outcome, Placed) and not emptied:
        return _to_write(view, gang, outcome, kept)
    if view.policy.autoscaling.of(gang.request.topology) is not None:
        outcome = _for_nodes(view, gang, outcome)
    return at_host_limit(view, gang, outcome, kept=kept)


def schedule_jointly(
    view: ClusterState,
    gang: Gang,
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    settled_before: float | None,
    excluded: frozenset[str],
    nominated: frozenset[str],
    emptied: frozenset[str],
) -> Outcome:
    """Return the outcome of the joint request of several workloads of a pod group, one of which is `gang`.

    For nominations: devices and limits of the namespace are not looked at. The caller holds the state's lock.
    """
    topology = view.topologies.get(request.topology or "")
    return plan_placement(
        request,
        shapes,
        capacity=view.capacity,
        topology=topology,
        policy=view.policy,
        conditions=PlanConditions(
            settled_before=settled_before,
            excluded=excluded,
            nominated=nominated,
            emptied=emptied,
            barred=barred_hosts(view, gang, None, topology, emptied=emptied),
        ),
    )


def levels_in_force(view: ClusterState, gang: Gang) -> EffectiveLevels:
    """Return the levels that `schedule_gang` requires and prefers for a gang. The caller holds the state's lock."""
    topology = view.topologies.get(gang.request.topology or "")
    kept = _with_room(view, gang, kept_assignment(gang))
    ranks = ranks_to_place(gang.workload, gang.request.pod_sets)
    rules = rules_for(gang, topology, kept=_kept_hosts(kept, ranks), others=pods_around(view, gang))
    part = _PlannedPart.of(request_to_place(gang), kept, ranks, topology)
    return effective_levels(
        part.request,
        gang.shapes,
        capacity=view.capacity,
        topology=topology,
        policy=view.policy,
        conditions=PlanConditions(kept=_kept_hosts(kept, part.ranks), rules=rules or PodRules()),
    )


def _for_nodes(view: ClusterState, gang: Gang, outcome: Outcome) -> Outcome:
    """Return the outcome of a gang for which the policy requests nodes."""
    topology = view.topologies.get(gang.request.topology or "")
    if not isinstance(outcome, Waits) or topology is None or not outcome.for_hosts:
        return with_new_nodes(outcome)
    if topology.waits or topology.tree.hosts or any(why != OUTSIDE_SELECTOR for why in topology.outside.values()):
        return outcome  # nodes that are there lack labels, which their admin has to set
    none = f"the topology {topology.name} has no nodes yet; it waits for new ones"
    return Waits("InsufficientFreeHosts", none, for_hosts=True, shortage=outcome.shortage)


def answer_in_view(view: ClusterState, gang: Gang, *, created: float, settled_before: float | None = None) -> Outcome:
    """Return the leader's outcome for a gang with this creation time, as far as the Placements show what precedes it.

    A gang that never fits is told so while its namespace is on hold or without quota too. The caller holds the state's
    lock.
    """
    if (held := on_hold(gang.workload.namespace, view.policy)) is not None:
        return never_fits(view, gang, settled_before=settled_before) or held
    before = precedence_of(view, gang, created=created)
    if before.limited:
        return too_many_waiting(gang.workload.namespace, view.policy)
    if before.first is not None:
        return goes_first(before.first, gang, before.turn)

    def plan(nominated: frozenset[str]) -> Outcome:
        return schedule_gang(view, gang, settled_before=settled_before, nominated=nominated)

    outcome, first = in_turn(plan, before.nominations)
    if waits_for_creation(outcome):
        return never_fits(view, gang, settled_before=settled_before) or outcome
    return kept_for(first, gang, outcome) if first else outcome


def waits_for_creation(outcome: Outcome) -> bool:
    """Return True if the pods of a gang cannot be created, so that it was not planned."""
    return isinstance(outcome, Waits) and REASONS[outcome.reason].of_creation


def never_fits(view: ClusterState, gang: Gang, *, settled_before: float | None) -> Never | None:
    """Return why a gang never fits, whether or not its pods can be created. The caller holds the state's lock."""
    outcome = schedule_gang(view, gang, settled_before=settled_before, creatable=True)
    return outcome if isinstance(outcome, Never) else None


def schedule_extension(
    view: ClusterState,
    gang: Gang,
    extension: ExtensionRequest,
    *,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    nominated: frozenset[str] = frozenset(),
) -> Outcome:
    """Return the outcome for an extension of a placed gang: new slots beside the kept ones.

    The caller holds the state's lock. The slot of a pod on a node that is gone is not kept.
    """
    assert gang.placement is not None and gang.placement.assignment is not None
    if (extension.more or extension.on_request) and (held := on_hold(gang.workload.namespace, view.policy)) is not None:
        return held
    whole = all(ask.min_available >= ask.count for ask in extension.pod_sets)
    if whole and extension.missing and (problem := creation_problem(view, gang)) is not None:
        return problem
    kept = {
        name: {rank: one for rank, one in slots.items() if view.capacity.node(one.host) is not None}
        for name, slots in extension.kept.items()
    }
    with_room = _with_room(view, gang, kept)
    if extension.returned and (with_room != kept or not _successors_fit(view, gang, extension.returned)):
        return Waits("Fragmented", "their hosts have no room for such pods beside what is reserved for others")
    kept = with_room
    placement = _as_named_now(gang, gang.placement, view.topologies)
    asks, whole_gang = extension.pod_sets, extension.gang
    if placement is not gang.placement:
        asks, whole_gang = _levels_of(gang.request, asks, whole_gang)
    ranks = ranks_to_place(gang.workload, asks, kept, ranks_completed_in_jobs(gang))
    request = replace(gang.request, pod_sets=asks, gang=whole_gang, topology=placement.topology)
    outcome = _planned(
        view,
        gang,
        with_counts(request, {name: len(own) for name, own in ranks.items()}),
        ranks=ranks,
        separation=placement.separation,
        kept=kept,
        pods=extension.missing,
        limited=extension.more > 0,  # lost slots are replaced in any case
        staying=[one.host for slots in kept.values() for one in slots.values()],
        given=PlanConditions(settled_before=settled_before, excluded=excluded, nominated=nominated),
    )
    if not isinstance(outcome, Placed):
        return outcome
    before = max(sum(map(len, kept.values())), _slots_now(view, gang.placement.assignment, extension, ranks))
    if extension.missing and outcome.count <= before:
        return Waits("Fragmented", f"no room for {plural(extension.missing, 'pod')} more beside the placed ones")
    return _to_write(view, gang, outcome, kept)


def _slots_now(
    view: ClusterState, assignment: Assignment, extension: ExtensionRequest, ranks: Mapping[str, Collection[int]]
) -> int:
    """Return how many slots a gang has that only grows: more than are kept if a pod is pinned to a node that is gone.

    Its rank has another slot by now, and to plan that once more would be an extension without end. `ranks`: pod set ->
    those that need slots, where not all do.
    """
    if not extension.more:
        return 0
    plans = (plan for plan in part_of_ranks(assignment, ranks).pod_sets if extension.kept.get(plan.name))
    return sum(slot.count for plan in plans for slot in plan.slots if view.capacity.node(slot.host) is not None)


def _planned(
    view: ClusterState,
    gang: Gang,
    request: PlacementRequest,
    *,
    ranks: Mapping[str, Sequence[int]],
    separation: Separation | None,
    kept: Mapping[str, Mapping[int, KeptSlot]],
    pods: int,
    given: PlanConditions,
    limited: bool = True,
    staying: Collection[str] = (),
) -> Outcome:
    """Return the outcome of a request under all rules and, if `limited`, within its namespace's hosts.

    `ranks`: pod set -> the ranks of its pods in order, where these are not the first ones. `pods`: how many pods a
    message says that there is no room for; `given`: which hosts count; `staying` as in `within_host_limit`.
    """
    topology, emptied = view.topologies.get(request.topology or ""), given.emptied
    barred = barred_hosts(view, gang, separation, topology, emptied=emptied)
    others = pods_around(view, gang, emptied=emptied)
    rules = rules_for(gang, topology, kept=_kept_hosts(kept, ranks), others=others)
    near = _near(gang, topology, others)
    part = _PlannedPart.of(request, kept, ranks, topology)
    hosts = _kept_hosts(kept, part.ranks)
    limit = HostLimit.of(view, gang) if limited else None
    hints = surely_within_host_limit(limit, gang, request.count)
    conditions = replace(given, barred=barred, kept=hosts, rules=rules or PodRules(), near=near, hints=hints)

    def plan(changed: PlanConditions = conditions) -> Outcome:
        found = plan_placement(
            part.request, gang.shapes, capacity=view.capacity, topology=topology, policy=view.policy, conditions=changed
        )
        return part.completed(found, gang) if isinstance(found, Placed) else found

    def plan_beside(barred: Barred) -> Outcome:
        return plan(replace(conditions, barred=barred))

    def plan_within(out: frozenset[str]) -> Outcome:
        return plan(replace(conditions, nominated=given.nominated | out))

    outcome = separated(plan(), plan_beside, gang, barred, separation=separation, topology=topology, pods=pods)
    outcome = constrained(
        outcome, partial(plan, replace(conditions, rules=PodRules())), rules, topology=topology, pods=pods
    )
    out = given.excluded | given.nominated | request.leave_hosts
    room = partial(_room, view, gang, request, barred=barred, out=out, emptied=emptied)
    return within_host_limit(limit, gang, outcome, topology=topology, plan=plan_within, room=room, staying=staying)


@dataclass(frozen=True, slots=True)
class _PlannedPart:
    """The part of a request that is planned: without the slots that stay on nodes outside the topology.

    Those of pods without a required level: then nothing depends on the domain that they are in. `ranks`: pod set -> the
    ranks of its planned pods in order, where these are not the first ones; `apart`: the slots of the others.
    """

    request: PlacementRequest
    ranks: Mapping[str, Sequence[int]]
    apart: Mapping[str, Mapping[int, KeptSlot]]

    @classmethod
    def of(
        cls,
        request: PlacementRequest,
        kept: Mapping[str, Mapping[int, KeptSlot]],
        ranks: Mapping[str, Sequence[int]],
        topology: Topology | None,
    ) -> Self:
        """Return the part of a request that is planned; `kept` and `ranks` as in `_planned`."""
        if topology is None or not topology.outside or (request.gang is not None and request.gang.require is not None):
            return cls(request, ranks, {})
        planned, apart = dict(ranks), dict[str, dict[int, KeptSlot]]()
        asks: list[PodSetRequest] = []
        for ask, levelled in zip(request.pod_sets, with_shared_levels(request.pod_sets), strict=True):
            own = ranks.get(ask.name, range(ask.count))
            slots = kept.get(ask.name, {})
            out = {rank: slots[rank] for rank in own if rank in slots and slots[rank].host in topology.outside}
            if not out or levelled.require is not None or ask.slices:
                asks.append(ask)
                continue
            apart[ask.name], planned[ask.name] = out, tuple(rank for rank in own if rank not in out)
            count, least = ask.count - len(out), max(0, ask.min_available - len(out))
            asks.append(replace(ask, count=count, min_available=least))
        if not apart:
            return cls(request, ranks, {})
        gang = request.gang
        if gang is not None and gang.min_available is not None:
            least = gang.min_available - sum(map(len, apart.values()))
            gang = replace(gang, min_available=least if least > 0 else None)
        return cls(replace(request, pod_sets=tuple(asks), gang=gang), planned, apart)

    def completed(self, placed: Placed, gang: Gang) -> Placed:
        """Return a plan of this part as one of the whole request."""
        placed = _with_ranks(placed, self.ranks) if self.ranks else placed
        if not self.apart:
            return placed
        assignment = gang.placement.assignment if gang.placement is not None else None
        domains = domains_of(assignment) if assignment is not None else {}
        ranked = {ask.name for ask in self.request.pod_sets if ask.ranked}
        plans = []
        for plan in placed.pod_sets:
            stay = slots_of_kept(self.apart.get(plan.name, {}), domains, ranked=plan.name in ranked)
            plans.append(replace(plan, slots=tuple(sorted((*plan.slots, *stay), key=lowest_rank))))
        stays = sum(map(len, self.apart.values()))
        message = f"{placed.message}; {plural(stays, 'pod')} {'stays' if stays == 1 else 'stay'} outside the topology"
        return replace(placed, pod_sets=tuple(plans), message=message)


def _near(gang: Gang, topology: Topology | None, others: OtherPods) -> Mapping[str, Ints64]:
    """Return what the pods of a gang prefer of the pods near them, by pod set, as `PlanConditions` has it."""
    if topology is None or topology.waits:
        return {}
    return pod_scores(
        [one for one in gang.workload.pod_sets if one.name in gang.shapes],
        gang.shapes,
        others,
        namespace=gang.workload.namespace,
        topology=topology,
    )


def _room(
    view: ClusterState,
    gang: Gang,
    request: PlacementRequest,
    topology: Topology,
    *,
    barred: Barred,
    out: frozenset[str],
    emptied: frozenset[str],
) -> Ints64:
    """Return how many pods of a gang each host has room for, at most as many as it has; `out`: hosts without any."""
    index = topology.tree.index
    vacated = [index[host] for host in emptied if host in index]
    total = np.zeros(len(topology.tree.hosts), dtype=np.int64)
    for ask in request.pod_sets:
        if ask.count:
            counted = view.capacity.count(gang.shapes[ask.name], topology)
            slots = counted.free.copy()
            slots[vacated] = counted.empty[vacated]
            total += np.clip(slots, 0, ask.count)
    for hosts in barred.values():
        total[hosts] = 0
    total[[index[host] for host in out if host in index]] = 0
    return total


def _kept_hosts(
    kept: Mapping[str, Mapping[int, KeptSlot]], ranks: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, str]]:
    """Return the hosts of slots by pod set and place of their rank; `ranks` as in `_planned`."""
    return _hosts({name: _in_order(slots, ranks.get(name)) for name, slots in kept.items()})


def _in_order(slots: Mapping[int, KeptSlot], ranks: Sequence[int] | None) -> Mapping[int, KeptSlot]:
    """Return slots by the place of their rank among `ranks`; without those of other ranks."""
    if ranks is None:
        return slots
    return {place: slots[rank] for place, rank in enumerate(ranks) if rank in slots}


def _with_ranks(placed: Placed, ranks: Mapping[str, Sequence[int]]) -> Placed:
    """Return a plan of the first ranks as one of `ranks`, in the same order."""

    def ranked(slot: Slot, own: Sequence[int]) -> Slot:
        if slot.ranks is None:
            return slot
        return replace(slot, ranks=join_ranks([(own[place], own[place]) for place in expand_ranks(slot.ranks)]))

    plans = [
        replace(plan, slots=tuple(ranked(slot, ranks[plan.name]) for slot in plan.slots))
        if plan.name in ranks
        else plan
        for plan in placed.pod_sets
    ]
    return replace(placed, pod_sets=tuple(plans))


def _to_write(
    view: ClusterState, gang: Gang, placed: Placed, kept: Mapping[str, Mapping[int, KeptSlot]]
) -> Placed | Never:
    """Return a plan with the devices and requests of its pods; Never if no Placement can hold it."""
    placed = allocate_devices(placed, gang.shapes, view.capacity, kept)
    members = {pod_set.name: (pod_set, pods) for pod_set, pods in by_pod_set(gang.workload, gang.pods)}

    def planned(pod_set: str) -> Requests | None:
        shape = gang.shapes.get(pod_set, _NO_SHAPE)  # the pod set may be gone from the workload
        requests = tuple(one for one in shape.requests if not is_claim(one[0]))
        if slots := kept.get(pod_set):
            return _planned_beside(gang, pod_set, slots, requests)
        return devices_as_held(requests, *members[pod_set]) if pod_set in members else requests

    plans = [replace(one, requests=planned(one.name)) for one in placed.pod_sets]
    return _within_object_size(replace(placed, pod_sets=tuple(plans)))


def _planned_beside(gang: Gang, pod_set: str, kept: Mapping[int, KeptSlot], requests: Requests) -> Requests | None:
    """Return what the slots of a pod set are planned for of what its pods request, where some of them are kept.

    No room was looked for on the hosts of these: what they were not planned for they do not have, nor the processors
    that the pods do not request that they follow. Of those that an earlier version has written it stays unknown.
    """
    if gang.placement is not None and gang.placement.assignment is not None:
        known = gang.placement.assignment.plan_of(pod_set).requests
        if known is None:
            return None
        requests = at_most(requests, known)
    follows = [one.follows.spec.shape.requests for one in kept.values() if one.follows is not None]
    for of_pod in () if devices_in(requests) else follows:
        requests = at_most(requests, of_pod)
    return requests


def _within_object_size(placed: Placed) -> Placed | Never:
    """Return the plan, or Never if its slots are too many for one object: the write would be refused every time."""
    pods = placed.count
    if pods < _SURELY_FITS or len(msgspec.json.encode(assignment_body(Assignment(1, placed.pod_sets)))) <= _LARGEST:
        return placed
    hosts = sum(len(plan.slots) for plan in placed.pod_sets)
    slots = f"the slots of {plural(pods, 'pod')} on {plural(hosts, 'host')}"
    return Never("GangLimitExceeded", f"{slots} are too many for one Placement; split it into several gangs")


def extended_placement(
    gang: Gang, extension: ExtensionRequest, placed: Placed, *, topologies: Mapping[str, Topology]
) -> Placement:
    """Return the Placement to write for a planned extension; growth also adopts the current request."""
    assert gang.placement is not None and gang.placement.assignment is not None
    placement, asked = _as_named_now(gang, gang.placement, topologies), gang.request
    assignment = Assignment(revision=placement.generation + 1, pod_sets=placed.pod_sets)
    grown = replace(placement, assignment=assignment)
    if assignment.count <= gang.placement.assignment.count and not extension.more:
        return grown
    return replace(grown, pod_sets=asked.pod_sets, gang=asked.gang)


def _as_named_now(gang: Gang, placement: Placement, topologies: Mapping[str, Topology]) -> Placement:
    """Return the Placement of a gang with slots, by whose request it is extended.

    It is that which the slots were planned for. If the policy has its topology or a level of it no more, but the
    workload's request is valid, it has the names that this request has today.
    """
    topology, asked = topologies.get(placement.topology), gang.request
    named = named_levels(placement.pod_sets, placement.gang, placement.separation)
    if topology is not None and (
        topology.waits or all(level == AUTO or topology.level_index(level) is not None for level in named)
    ):
        return placement
    if not asked.pod_sets or asked.topology is None:
        return placement
    asks, whole = _levels_of(asked, placement.pod_sets, placement.gang)
    return replace(placement, topology=asked.topology, pod_sets=asks, gang=whole, separation=asked.separation)


def _levels_of(
    asked: PlacementRequest, asks: tuple[PodSetRequest, ...], whole: GangRequest | None
) -> tuple[tuple[PodSetRequest, ...], GangRequest | None]:
    """Return the request of a gang with the levels of another one, and its own numbers of pods."""
    levels = {ask.name: ask for ask in asked.pod_sets}
    named = tuple(
        replace(ask, require=one.require, prefer=one.prefer, slices=one.slices, unconstrained=one.unconstrained)
        if (one := levels.get(ask.name)) is not None
        else ask
        for ask in asks
    )
    if whole is not None and asked.gang is not None:
        whole = replace(whole, require=asked.gang.require, prefer=asked.gang.prefer)
    return named, whole


def rewritten(gang: Gang, assignment: Assignment) -> Placement:
    """Return the Placement to write with another assignment of the same gang, with fewer pods if it was scaled down."""
    placement = gang.placement
    assert placement is not None
    # An invalid request has no numbers: `kubectl scale` may go below the minimum.
    counts = {one.name: one.slots for one in gang.workload.pod_sets}
    counts |= {ask.name: ask.count for ask in gang.request.pod_sets}
    pod_sets = []
    for known in placement.pod_sets:
        count = min(known.count, counts.get(known.name, known.count))
        pod_sets.append(replace(known, count=count, min_available=min(known.min_available, count)))
    fresh = replace(assignment, revision=placement.generation + 1)
    return replace(placement, assignment=fresh, pod_sets=tuple(pod_sets))


def _hosts(kept: Mapping[str, Mapping[int, KeptSlot]]) -> dict[str, dict[int, str]]:
    return {name: {rank: one.host for rank, one in slots.items()} for name, slots in kept.items()}


def kept_assignment(gang: Gang) -> dict[str, dict[int, KeptSlot]]:
    """Return the hosts of live pods that cannot be moved (bound, or released to a host): pod set -> rank -> slot.

    Where ranks come and go the numbers are arbitrary: only the count per host matters. Pods that no capacity counts are
    left out (`unreserved_pods`), such as those that the scheduler has refused: what they would take is free, and the
    plan may use it once.
    """
    live = [pod for pod in gang.pods if pod.live and has_room(pod)]
    every: dict[str, dict[int, KeptSlot]] = {}
    for pod_set, pods in by_pod_set(gang.workload, live):
        found: dict[int, KeptSlot] = {}
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid)):
            rank = rank_of(pod, pod_set) if rank_is_slot(pod_set) else len(found)
            host = host_of(pod)
            if host is not None and rank is not None and rank < pod_set.slots:
                found.setdefault(rank, KeptSlot(host, devices_of(pod) or (), pod))
        if found:
            every[pod_set.name] = found
    return every


def _with_room(
    view: ClusterState, gang: Gang, kept: Mapping[str, Mapping[int, KeptSlot]]
) -> dict[str, dict[int, KeptSlot]]:
    """Return the kept slots without those that follow a pod to a host where its successor has no room.

    Anybody may put pods with a workload as their controller on hosts, small ones too. What is reserved there for others
    is not given out again. The devices that a slot has beyond its pod stay reserved, so they have to be free. Admission
    may give a pod fewer processors, and its successor as many: of a template without devices these need no more room.
    The slot of a plain pod ends with it.
    """
    every = sum(pod_set.needed for pod_set in gang.workload.pod_sets)
    if sum(map(len, kept.values())) >= every:
        found = _followed(view, gang, kept, others=False)
        if sum(map(len, found.values())) >= every:
            return found
    return _followed(view, gang, kept, others=True)


def _followed(
    view: ClusterState, gang: Gang, kept: Mapping[str, Mapping[int, KeptSlot]], *, others: bool
) -> dict[str, dict[int, KeptSlot]]:
    """Return the kept slots as `_with_room` does.

    `others`: the gang gets further slots, which must not take the devices that a slot has beyond its pod: the planner
    counts them as free.
    """
    more: dict[str, Counter[str]] = {}

    def fits(one: KeptSlot, planned: Requests) -> bool:
        if one.follows is None or gang.workload.handling == "pods":
            return True
        if one.follows.spec.node_name and view.capacity.reserved_resource(one.follows, one.host) is not None:
            return False
        if one.follows.spec.shape.requests == planned:
            return True  # most pods
        devices = devices_in(planned)
        rest = more.get(one.host, Counter[str]()) + _beyond(one.follows, devices or planned)
        if devices and rest:
            free = view.capacity.free(one.host)
            left = {name: amount - rest[name] for name, amount in free.items()}
            if any(left.get(name, 0) < 0 for name in rest):
                return False
            if others and any(_slots_in(free, shape) > _slots_in(left, shape) for shape in gang.shapes.values()):
                return False
        if view.capacity.takes_reserved(rest, one.host):
            return False
        more[one.host] = rest
        return True

    found = {name: dict(slots) for name, slots in kept.items()}
    for pod_set in gang.workload.pod_sets:
        if slots := kept.get(pod_set.name):
            planned = _planned_for(view, gang, pod_set)
            found[pod_set.name] = {rank: _as_planned(one, planned) for rank, one in slots.items() if fits(one, planned)}
    return found


def _successors_fit(view: ClusterState, gang: Gang, pods: Collection[Pod]) -> bool:
    """Return whether pods like their template have room where these run; on a full host not even these do."""
    more: dict[str, Counter[str]] = {}
    for pod_set, members in by_pod_set(gang.workload, pods):
        planned = _planned_for(view, gang, pod_set)
        for pod in members:
            of_host = more.setdefault(pod.spec.node_name, Counter({name: 0 for name, amount in planned if amount > 0}))
            of_host.update(_beyond(pod, planned))
    return not any(n > view.capacity.free(host).get(name, 0) for host, rest in more.items() for name, n in rest.items())


def _beyond(pod: Pod, planned: Requests) -> Counter[str]:
    """Return what a slot has beyond the pod in it."""
    return Counter({name: n for name, n in less(planned, pod.spec.shape.requests) if not is_claim(name)})


def _planned_for(view: ClusterState, gang: Gang, pod_set: PodSet) -> Requests:
    """Return what the slots of a pod set are for."""
    assignment = gang.placement.assignment if gang.placement is not None else None
    known = assignment.plan_of(pod_set.name).requests if assignment is not None else None
    return view.pod_shapes.shapes_of_slots(gang.workload, pod_set, known)[0].requests


def _slots_in(free: Mapping[str, int], shape: Shape) -> int:
    """Return how many pods of a shape fit into what is free."""
    return min((free.get(name, 0) // amount for name, amount in shape.requests if amount > 0), default=0)


def _as_planned(one: KeptSlot, planned: Requests) -> KeptSlot:
    """Return a kept slot without the devices of a pod that has fewer than its successor needs."""
    smaller = one.follows is not None and not fills(one.follows.spec.shape.requests, planned)
    return replace(one, devices=()) if smaller else one


def new_placement(gang: Gang, placed: Placed | None, *, priority: int, now: float) -> Placement:
    """Return the Placement to write: the parsed request and, if placed, the assignment.

    The revision is the generation that the write will give the object, so it increases with every new plan.
    """
    workload, ask, known = gang.workload, gang.request.asked, gang.placement
    assert ask is not None, "only a gang that asks has a Placement"
    base = known or Placement(
        namespace=workload.namespace,
        name=name_of(workload, gang.group),
        uid="",
        resource_version="",
        workload=WorkloadRef(workload.api_version, workload.kind, workload.name, workload.uid),
        topology="",
        priority=0,
        pod_sets=(),
        assignment=None,
        deleting=False,
        created=now,
        group=gang.group,
    )
    assignment = None
    if placed is not None:
        assignment = Assignment(revision=(known.generation if known else 0) + 1, pod_sets=placed.pod_sets)
    return replace(
        base,
        topology=gang.request.topology or "",
        priority=priority,
        pod_sets=gang.request.pod_sets,
        gang=gang.request.gang,
        profile=gang.request.profile,
        separation=gang.request.separation,
        assignment=assignment,
    )
