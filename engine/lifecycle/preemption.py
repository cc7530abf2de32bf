"""The steps of a preemption in the life of its gangs: how a victim ends, and what a preemptor's users read. Pure.

A victim that can be suspended is, and its controller ends its pods; of any other the slots go first, so that no pod
that its controller creates gets one of them, and then its pods are evicted as their disruption budgets allow. Both are
read from the Placements: whatever ends a leader halfway, the next one continues.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.placement import PreemptionIntent
from engine.api.text import plural
from engine.gang.gang import Gang, can_suspend, host_of
from engine.lifecycle.actions import Decision, EvictPods, NoAction, Status, Unplace
from engine.lifecycle.gang_state import REMOVE_AGAIN, Timers


@dataclass(frozen=True, slots=True)
class PreemptedBy:
    """Why a gang ends: a preemptor names the assignment with this revision; `message` is for the victim's users."""

    revision: int
    message: str


def end_of_victim(gang: Gang, by: PreemptedBy, *, timers: Timers, now: float) -> Decision | None:
    """Return the next step that ends a victim; None if it has ended, or has other slots than those that are needed."""
    placement = gang.placement
    assert placement is not None
    if (assignment := placement.assignment) is not None:
        if assignment.revision != by.revision:
            return None
        suspend = can_suspend(gang.workload) and not gang.workload.suspended
        return Decision(Unplace(suspend=suspend, reason="Preempted", message=by.message))
    staying = [pod for pod in gang.pods if pod.live and host_of(pod) is not None]
    if not staying or gang.workload.suspended:
        return None
    status = Status("Waiting", "Preempted", by.message)
    if due := timers.remove(staying, now):
        return Decision(EvictPods(due, evict=True, reason="Preempted", message=by.message), status)
    return Decision(NoAction(), status, wake=min(timers.removed[pod.uid] for pod in staying) + REMOVE_AGAIN)


def preempted_text(gang: Gang, *, namespace: str, workload: str, priority: int) -> str:
    """Return why a gang is preempted, for its users: by whom only within their namespace."""
    whom = workload if namespace == gang.workload.namespace else "a gang of another namespace"
    return f"ended for {whom}, which has priority {priority:,} and found no other room; it is queued again"


def preempting_status(intent: PreemptionIntent, hosts: frozenset[str], where: str) -> Status:
    """Return the status of a gang for which others end; `where` describes its hosts in words."""
    pods = sum(one.pods for one in intent.victims) + len(intent.pods)
    gangs = plural(len(intent.victims), "gang") if intent.victims else ""
    others = plural(len(intent.pods), "other pod") if intent.pods else ""
    ending = " and ".join(filter(None, (gangs, others)))
    total = f" ({plural(pods, 'pod')})" if intent.victims else ""
    verb = "ends" if len(intent.victims) + len(intent.pods) == 1 else "end"
    message = f"{ending} of lower priority {verb} for it{total}: {where} kept free until it fits"
    return Status("Waiting", "Preempting", message, tuple(sorted(hosts)))
