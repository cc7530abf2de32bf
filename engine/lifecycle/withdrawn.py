"""Finds pods that webhooks released by a plan in the moment in which the leader withdrew it. Pure.

The leader withdraws a plan while no pod of the gang is released. A pod that is created in that moment may still be
pinned by a replica that has not seen the withdrawal: it would run alone, and the gang would be started in part.
"""

from __future__ import annotations

from typing import Final

from engine.api.names import GATE, REVISION
from engine.api.pod import Pod
from engine.api.reasons import Why
from engine.api.text import plural
from engine.gang.gang import Gang, by_pod_set
from engine.lifecycle.actions import Decision, EvictPods
from engine.lifecycle.gang_state import Timers, WithdrawnPlan
from engine.lifecycle.unbound import off_slots

# Seconds. A review answers within three; watches and the queue of the API server may add to that.
SEEN_WITHIN: Final = 30.0


def unused_plan(gang: Gang, reason: Why, now: float) -> WithdrawnPlan | None:
    """Return the plan of a gang, which is withdrawn for this reason, if no pod is seen that is released; else None."""
    assignment = gang.placement.assignment if gang.placement is not None else None
    if assignment is None or any(map(_is_released, gang.pods)):
        return None
    return WithdrawnPlan(assignment.revision, reason, now)


def replace_late(gang: Gang, timers: Timers, now: float) -> Decision | None:
    """Return the decision to replace pods that are on their way by a withdrawn plan; None if there are none.

    Only where that costs nothing, as none of the gang ran when the plan was withdrawn: the pods of other kinds end by
    the suspension of their workload. Pods on hosts where a newer plan has their slots stay.
    """
    withdrawn = timers.withdrawn
    if withdrawn is None:
        return None
    if now - withdrawn.since > SEEN_WITHIN:
        timers.withdrawn = None
        return None
    due = timers.remove(_released_by(withdrawn.revision, gang), now)
    if not due:
        return None
    were, they = ("was", "it is") if len(due) == 1 else ("were", "they are")
    message = f"{plural(len(due), 'pod')} {were} released just as the plan was withdrawn: deleted, {they} created again"
    return Decision(EvictPods(due, evict=False, reason=withdrawn.reason or "NodeLost", message=message))


def _released_by(revision: int, gang: Gang) -> list[Pod]:
    assignment = gang.placement.assignment if gang.placement is not None else None
    if assignment is not None and assignment.revision <= revision:
        return []  # the Placement was deleted and written anew: its revisions begin again
    found: list[Pod] = []
    for pod_set, pods in by_pod_set(gang.workload, gang.pods):
        if pod_set.replace in ("free", "group"):
            late = [one for one in pods if _is_released(one) and one.spec.annotations.get(REVISION) == str(revision)]
            found += late if assignment is None else off_slots(pod_set, assignment.plan_of(pod_set.name), late)
    return found


def _is_released(pod: Pod) -> bool:
    """Return True for a live pod without our gate, bound or not."""
    return pod.live and GATE not in pod.spec.gates
