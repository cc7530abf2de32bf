"""From a gang in the view to what would be written: the namespace's quota, then the planner, then the Placement.

Nothing is written or held here. The leader and `simulate` both go this way.
"""

from __future__ import annotations

from dataclasses import replace

from engine import quota
from engine.cluster.placements import name_of
from engine.device_choice import with_devices
from engine.gangs import Gang
from engine.members import by_pod_set, host_of, rank_is_slot, rank_of
from engine.outcomes import Outcome, Placed, Waits
from engine.planning import plan_gang
from engine.records import Assignment, Placement, Pod, WorkloadRef
from engine.view import View


def plan_in_view(
    view: View,
    gang: Gang,
    *,
    settled_before: float | None = None,
    excluded: frozenset[str] = frozenset(),
    room_kept: frozenset[str] = frozenset(),
    emptied: frozenset[str] = frozenset(),
) -> Outcome:
    """The answer for a gang now: its namespace's quota first, then the planner. The caller holds the view's lock.

    `settled_before`, `excluded`, `room_kept` and `emptied` as in `plan_gang`; no devices are chosen on emptied hosts.
    """
    if (missing := _quota_shortfall(view, gang)) is not None:
        return Waits("QuotaExceeded", missing)
    kept = standing(gang)
    hosts = {name: {rank: host_of(pod) or "" for rank, pod in pods.items()} for name, pods in kept.items()}
    outcome = plan_gang(
        gang.understanding,
        gang.shapes,
        capacity=view.capacity,
        topology=view.topologies.get(gang.understanding.topology or ""),
        policy=view.policy,
        settled_before=settled_before,
        excluded=excluded,
        kept=hosts,
        room_kept=room_kept,
        emptied=emptied,
    )
    if isinstance(outcome, Placed) and not emptied:
        return with_devices(outcome, gang.shapes, view.capacity, kept)
    return outcome


def standing(gang: Gang) -> dict[str, dict[int, Pod]]:
    """Pod set -> rank -> live pod that cannot be moved: bound, or pinned and released.

    Where ranks come and go any number will do: only the count per host matters.
    """
    live = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    every: dict[str, dict[int, Pod]] = {}
    for pod_set, pods in by_pod_set(gang.workload, live):
        found: dict[int, Pod] = {}
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid)):
            rank = rank_of(pod, pod_set) if rank_is_slot(pod_set) else len(found)
            if host_of(pod) is not None and rank is not None and rank < pod_set.slots:
                found.setdefault(rank, pod)
        if found:
            every[pod_set.name] = found
    return every


def _quota_shortfall(view: View, gang: Gang) -> str | None:
    """What the namespace's quotas lack for the pods of the gang that do not exist yet."""
    workload = gang.workload
    # Those the quota counts already and that stay: a terminating pod uses quota beside the one that comes after it.
    live = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    wanted = [
        (view.spec_of(workload, pod_set), max(0, pod_set.slots - len(pods)))
        for pod_set, pods in by_pod_set(workload, live)
    ]
    return quota.shortfall(view.stores.quotas.get_by(workload.namespace), wanted, view.pending(gang))


def proposed(gang: Gang, placed: Placed | None, *, priority: int, now: float) -> Placement:
    """The Placement to write: the request as understood and, when placed, the answer.

    The revision is the generation that the write will give the object, so it goes up with every re-plan.
    """
    workload, ask, known = gang.workload, gang.understanding.ask, gang.placement
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
        pod_sets=gang.understanding.asks,
        gang=gang.understanding.gang,
        assignment=assignment,
    )
