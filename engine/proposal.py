"""From a gang in the view to what would be written: the namespace's quota, then the planner, then the Placement.

Nothing is written or held here. The leader and `simulate` both go this way.
"""

from __future__ import annotations

from dataclasses import replace

from engine import quota
from engine.cluster.placements import placement_name
from engine.device_choice import with_devices
from engine.gangs import Gang
from engine.outcomes import Outcome, Placed, Waits
from engine.planning import plan_gang
from engine.records import Assignment, Placement, Pod, WorkloadRef
from engine.seats import host_of, rank_is_slot, rank_of
from engine.view import View


def plan_in_view(
    view: View, gang: Gang, *, settled_before: float | None = None, excluded: frozenset[str] = frozenset()
) -> Outcome:
    """The answer for a gang now: its namespace's quota first, then the planner. The caller holds the view's lock.

    `settled_before` and `excluded` as in `plan_gang`.
    """
    workload, ask = gang.workload, gang.understanding.ask
    assert ask is not None, "only a gang that asks is planned"
    # Those the quota counts already and that stay: a terminating pod uses quota beside the one that comes after it.
    alive = sum(1 for pod in gang.pods if not pod.finished and not pod.deleting)
    missing = quota.shortfall(
        view.stores.quotas.get_by(workload.namespace),
        view.spec_of(workload),
        ask.count - alive,
        view.pending(workload),
    )
    if missing is not None:
        return Waits("QuotaExceeded", missing)
    kept = standing(gang)
    outcome = plan_gang(
        gang.understanding,
        gang.shape,
        capacity=view.capacity,
        topology=view.topologies.get(gang.understanding.topology or ""),
        policy=view.policy,
        settled_before=settled_before,
        excluded=excluded,
        kept={rank: host for rank, pod in kept.items() if (host := host_of(pod)) is not None},
    )
    if isinstance(outcome, Placed):
        return with_devices(outcome, gang.shape.devices, view.capacity, kept)
    return outcome


def standing(gang: Gang) -> dict[int, Pod]:
    """Rank -> live pod that cannot be moved: bound, or pinned and released.

    Where ranks come and go any number will do: only the count per host matters.
    """
    pods = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    found: dict[int, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid)):
        host = host_of(pod)
        rank = rank_of(pod, gang.workload) if rank_is_slot(gang.workload) else len(found)
        if host is not None and rank is not None and rank < gang.workload.slots:
            found.setdefault(rank, pod)
    return found


def proposed(gang: Gang, placed: Placed | None, *, priority: int, now: float) -> Placement:
    """The Placement to write: the request as understood and, when placed, the answer.

    The revision is the generation that the write will give the object, so it goes up with every re-plan.
    """
    workload, ask, known = gang.workload, gang.understanding.ask, gang.placement
    assert ask is not None, "only a gang that asks has a Placement"
    base = known or Placement(
        namespace=workload.namespace,
        name=placement_name(workload.kind, workload.name, workload.uid),
        uid="",
        resource_version="",
        workload=WorkloadRef(workload.api_version, workload.kind, workload.name, workload.uid),
        topology="",
        priority=0,
        pod_sets=(),
        assignment=None,
        deleting=False,
        created=now,
    )
    assignment = None
    if placed is not None:
        assignment = Assignment(revision=(known.generation if known else 0) + 1, pod_sets=placed.pod_sets)
    return replace(
        base,
        topology=gang.understanding.topology or "",
        priority=priority,
        pod_sets=(ask,),
        assignment=assignment,
    )
