"""From a gang in the view to what would be written: can its pods be created, then the planner, then the Placement.

Nothing is written or held here. The leader, the forecast at submit time and `simulate` all go this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from engine.api.placement import Assignment, Placement, WorkloadRef
from engine.api.text import did_you_mean, plural, quote
from engine.api.workload import PodSet
from engine.cache import quota
from engine.cache.state import ClusterState
from engine.cluster.placements import assignment_body
from engine.devices.allocation import devices_of
from engine.gang.gang import Gang, by_pod_set, host_of, rank_is_slot, rank_of
from engine.gang.key import name_of
from engine.gang.repair import ExtensionRequest, KeptSlot
from engine.scheduler.devices import allocate_devices
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.plan import plan_placement
from engine.scheduler.precedence import goes_first, in_turn, kept_for, precedence_of

# Bytes of an assignment: etcd takes 1.5 MiB at a time, for the request, status and managed fields too.
_LARGEST = 1_400_000
_SURELY_FITS = 1_000  # pods, each on a host of its own, with devices


def schedule_gang(
    view: ClusterState,
    gang: Gang,
    *,
    kept: Mapping[str, Mapping[int, KeptSlot]] | None = None,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    room_kept: frozenset[str] = frozenset(),
    emptied: frozenset[str] = frozenset(),
) -> Outcome:
    """The answer for a gang now: whether its pods can be created, then the planner. The caller holds the view's lock.

    `kept`: the answer of `standing`, for a caller that has it. `settled_before`, `excluded`, `room_kept` and `emptied`
    as in `plan_gang`; no devices are chosen on emptied hosts.
    """
    if (trouble := _uncreatable(view, gang)) is not None:
        return trouble
    kept = kept_assignment(gang) if kept is None else kept
    outcome = plan_placement(
        gang.understanding,
        gang.shapes,
        capacity=view.capacity,
        topology=view.topologies.get(gang.understanding.topology or ""),
        policy=view.policy,
        settled_before=settled_before,
        excluded=excluded,
        kept=_hosts(kept),
        room_kept=room_kept,
        emptied=emptied,
    )
    if isinstance(outcome, Placed) and not emptied:
        return _writable(allocate_devices(outcome, gang.shapes, view.capacity, kept))
    return outcome


def answer_in_view(view: ClusterState, gang: Gang, *, created: float, settled_before: float | None = None) -> Outcome:
    """What the leader would answer for a gang that was created then, as far as the Placements tell what goes before it.

    The caller holds the view's lock.
    """
    before = precedence_of(view, gang, created=created)
    if before.first:
        return goes_first(before.first, gang)

    def plan(room_kept: frozenset[str]) -> Outcome:
        return schedule_gang(view, gang, settled_before=settled_before, room_kept=room_kept)

    outcome, first = in_turn(plan, before.rooms)
    return kept_for(first, gang) if first else outcome


def schedule_extension(
    view: ClusterState,
    gang: Gang,
    extension: ExtensionRequest,
    *,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    room_kept: frozenset[str] = frozenset(),
) -> Outcome:
    """The answer for a part of a placed gang: new slots beside those that stay. The caller holds the view's lock.

    A pod whose node is not there any more has no place that could be kept.
    """
    assert gang.placement is not None and gang.placement.assignment is not None
    whole = all(ask.min_available >= ask.count for ask in extension.asks)
    if whole and (trouble := _uncreatable(view, gang)) is not None:
        return trouble
    kept = {
        name: {rank: one for rank, one in slots.items() if view.capacity.node(one.host) is not None}
        for name, slots in extension.kept.items()
    }
    topology = gang.placement.topology
    outcome = plan_placement(
        replace(gang.understanding, pod_sets=extension.asks, gang=extension.gang, topology=topology),
        gang.shapes,
        capacity=view.capacity,
        topology=view.topologies.get(topology),
        policy=view.policy,
        settled_before=settled_before,
        excluded=excluded,
        kept=_hosts(kept),
        room_kept=room_kept,
    )
    if not isinstance(outcome, Placed):
        return outcome
    if sum(slot.count for plan in outcome.pod_sets for slot in plan.slots) <= sum(map(len, kept.values())):
        return Waits("Fragmented", f"no room for {plural(extension.missing, 'pod')} more beside those that are placed")
    return _writable(allocate_devices(outcome, gang.shapes, view.capacity, kept))


def _writable(outcome: Outcome) -> Outcome:
    """The answer, unless its slots are too many for one object: that would be refused, and tried again, for ever."""
    if not isinstance(outcome, Placed):
        return outcome
    pods = sum(slot.count for plan in outcome.pod_sets for slot in plan.slots)
    if pods < _SURELY_FITS or len(msgspec.json.encode(assignment_body(Assignment(1, outcome.pod_sets)))) <= _LARGEST:
        return outcome
    hosts = sum(len(plan.slots) for plan in outcome.pod_sets)
    slots = f"the slots of {plural(pods, 'pod')} on {plural(hosts, 'host')}"
    return Never("GangLimitExceeded", f"{slots} are too many for one Placement; make it several gangs")


def extended_placement(gang: Gang, extension: ExtensionRequest, placed: Placed) -> Placement:
    """The Placement to write when a part of the gang was planned: growth takes over the request as it is read today."""
    placement, asked = gang.placement, gang.understanding
    assert placement is not None
    assignment = Assignment(revision=placement.generation + 1, pod_sets=placed.pod_sets)
    grown = replace(placement, assignment=assignment)
    if not extension.more:
        return grown
    return replace(grown, pod_sets=asked.pod_sets, gang=asked.gang)


def rewritten(gang: Gang, assignment: Assignment) -> Placement:
    """The Placement to write with another assignment of the same gang: of one that was scaled down with fewer pods."""
    placement = gang.placement
    assert placement is not None
    counts = {ask.name: ask.count for ask in gang.understanding.pod_sets}
    pod_sets = []
    for known in placement.pod_sets:
        count = min(known.count, counts.get(known.name, known.count))
        pod_sets.append(replace(known, count=count, min_available=min(known.min_available, count)))
    fresh = replace(assignment, revision=placement.generation + 1)
    return replace(placement, assignment=fresh, pod_sets=tuple(pod_sets))


def _hosts(kept: Mapping[str, Mapping[int, KeptSlot]]) -> dict[str, dict[int, str]]:
    return {name: {rank: one.host for rank, one in slots.items()} for name, slots in kept.items()}


def kept_assignment(gang: Gang) -> dict[str, dict[int, KeptSlot]]:
    """Pod set -> rank -> where a live pod is that cannot be moved: bound, or pinned and released.

    Where ranks come and go any number will do: only the count per host matters.
    """
    live = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    every: dict[str, dict[int, KeptSlot]] = {}
    for pod_set, pods in by_pod_set(gang.workload, live):
        found: dict[int, KeptSlot] = {}
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid)):
            rank = rank_of(pod, pod_set) if rank_is_slot(pod_set) else len(found)
            host = host_of(pod)
            if host is not None and rank is not None and rank < pod_set.slots:
                found.setdefault(rank, KeptSlot(host, devices_of(pod) or ()))
        if found:
            every[pod_set.name] = found
    return every


def _uncreatable(view: ClusterState, gang: Gang) -> Waits | None:
    """Why pods of the gang that do not exist yet could not be created, wherever there is room."""
    coming = _coming(gang)
    for pod_set, _ in coming:
        if (name := view.coming.missing_class(pod_set)) is not None:
            hint = did_you_mean(name, view.coming.known_classes())
            return Waits("PriorityClassMissing", f"no PriorityClass {quote(name)}: no pod can be created{hint}")
    missing = _quota_shortfall(view, gang, coming)
    return None if missing is None else Waits("QuotaExceeded", missing)


def _coming(gang: Gang) -> list[tuple[PodSet, int]]:
    """How many pods of every pod set have to be created before the gang can start."""
    # A quota counts those that exist and stay; a terminating pod uses quota beside the one that comes after it.
    live = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    least = {ask.name: ask.min_available for ask in gang.understanding.pod_sets}
    found = [
        (pod_set, min(pod_set.slots, least.get(pod_set.name, 0)) - len(pods))
        for pod_set, pods in by_pod_set(gang.workload, live)
    ]
    return [(pod_set, count) for pod_set, count in found if count > 0]


def _quota_shortfall(view: ClusterState, gang: Gang, coming: list[tuple[PodSet, int]]) -> str | None:
    """What the namespace's quotas lack for the pods of the gang that do not exist yet."""
    workload = gang.workload
    quotas = view.stores.quotas.get_by(workload.namespace)
    if not quotas:
        return None  # what other gangs will still use is looked for among all that are placed
    wanted = [(view.coming.spec_of(workload, pod_set), count) for pod_set, count in coming]
    return quota.shortfall(quotas, wanted, view.gangs.pending(gang, view.capacity))


def new_placement(gang: Gang, placed: Placed | None, *, priority: int, now: float) -> Placement:
    """The Placement to write: the request as understood and, when placed, the answer.

    The revision is the generation that the write will give the object, so it goes up with every re-plan.
    """
    workload, ask, known = gang.workload, gang.understanding.asked, gang.placement
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
        topology=gang.understanding.topology or "",
        priority=priority,
        pod_sets=gang.understanding.pod_sets,
        gang=gang.understanding.gang,
        assignment=assignment,
    )
