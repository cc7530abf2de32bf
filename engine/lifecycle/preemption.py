"""The steps of a preemption in the life of its gangs: how a victim ends, and what a preemptor's users read. Pure.

A victim that can be suspended is, and its controller ends its pods; of any other the slots go first, so that no pod
that its controller creates gets one of them, and then its pods are evicted as their disruption budgets allow. Both are
read from the Placements: whatever ends a leader halfway, the next one continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api.duration import format_duration, timestamp
from engine.api.placement import PreemptionIntent, moved_at
from engine.api.text import plural
from engine.gang.gang import Gang, can_suspend, fingerprint, host_of, over
from engine.lifecycle.actions import Decision, EvictPods, NoAction, Status, Unplace
from engine.lifecycle.gang_state import REMOVE_AGAIN, Timers
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of

# Seconds from the decision to its end, if the pods of the victims have not ended by then: a grace period is 30 s, and
# disruption budgets mostly allow an eviction a few minutes later, if ever.
LIMIT: Final = 600.0
# Seconds after a decision that led to nothing before the next one: doubles from the first value to the second.
REST_FIRST, REST_MOST = 60.0, 1800.0
# Seconds after a gang was moved, in which it is not moved again, and no other gang is moved for it: gangs of equal
# priority would move each other in turn.
MOVED_REST: Final = 3600.0


@dataclass(frozen=True, slots=True)
class IntentEnd:
    """Why nothing ends any more for a gang: `message` for its users; "" if its status shows that anyway.

    `failed`: victims may have ended in vain, so the gang rests before it preempts again.
    """

    message: str = ""
    failed: bool = False


def end_of_intent(gang: Gang, intent: PreemptionIntent, *, policy: Policy, wall: float) -> IntentEnd | None:
    """Return why an intent in a gang's Placement is over; None while it is valid. `wall`: the time of day.

    All of it is read from the objects: every leader answers the same.
    """
    placement = gang.placement
    if placement is None or placement.assignment is not None or placement.deleting or over(gang.workload):
        return IntentEnd()
    if intent.moves and policy.defragment.mode != "act":
        return IntentEnd("the policy moves no gangs any more")
    if not intent.moves and policy.preemption.mode == "never":
        return IntentEnd("the policy does not preempt any more")
    if not mode_of(gang.workload.namespace, policy).manages or mode_of(gang.workload.namespace, policy).holds:
        return IntentEnd("nothing new is placed in its namespace now")
    # A gang that was placed since and has lost its slots again has another generation.
    if placement.status.get("observedGeneration") != placement.generation or intent.seen != fingerprint(gang):
        return IntentEnd("its request has changed")
    if intent.since is None or wall - intent.since >= LIMIT or intent.since > wall + LIMIT:
        return IntentEnd(f"what was to end for it has not ended within {format_duration(LIMIT)}", failed=True)
    return None


def after_end(intent: PreemptionIntent, end: IntentEnd, *, wall: float) -> PreemptionIntent:
    """Return what is written of an intent that is over: when the gang may preempt again, later every time."""
    if not end.failed:
        return intent.ended()
    rest = min(REST_FIRST * 2.0 ** min(intent.attempts, 10), REST_MOST)
    return PreemptionIntent(attempts=intent.attempts + 1, retry_at=wall + rest, why=end.message)


def resting_text(intent: PreemptionIntent, wall: float) -> str:
    """Return what the message of a gang adds after a preemption that led to nothing, until the next one may begin."""
    if not intent.attempts or intent.retry_at <= wall:
        return ""
    at = timestamp(intent.retry_at)[11:16]
    times = f" ({plural(intent.attempts, 'time')} in a row)" if intent.attempts > 1 else ""
    return f"; other gangs have ended for it in vain{times}: {intent.why}; not again before {at} UTC"


def recently_moved(status: Mapping[str, Any], wall: float) -> bool:
    """Return True for a gang that was moved for another one a short time ago."""
    when = moved_at(status)
    return when is not None and abs(wall - when) < MOVED_REST  # a time to come is none


@dataclass(frozen=True, slots=True)
class PreemptedBy:
    """Why a gang ends: a preemptor names the assignment with this revision; `message` is for the victim's users.

    `moves`: it is to restart elsewhere.
    """

    revision: int
    message: str
    moves: bool = False


def end_of_victim(gang: Gang, by: PreemptedBy, *, timers: Timers, now: float) -> Decision | None:
    """Return the next step that ends a victim; None if it has ended, or has other slots than those that are needed."""
    placement = gang.placement
    assert placement is not None
    if (assignment := placement.assignment) is not None:
        if assignment.revision != by.revision:
            return None
        suspend = can_suspend(gang.workload) and not gang.workload.suspended
        return Decision(Unplace(suspend=suspend, reason="Preempted", message=by.message, moves=by.moves))
    staying = [pod for pod in gang.pods if pod.live and host_of(pod) is not None]
    if not staying:
        return None
    status = Status("Waiting", "Preempted", by.message)
    if gang.workload.suspended:
        return Decision(NoAction(), status)  # its controller ends them; until then it would keep their hosts
    if due := timers.remove(staying, now):
        return Decision(EvictPods(due, evict=True, reason="Preempted", message=by.message), status)
    return Decision(NoAction(), status, wake=min(timers.removed[pod.uid] for pod in staying) + REMOVE_AGAIN)


def preempted_text(gang: Gang, *, namespace: str, workload: str, priority: int, moves: bool = False) -> str:
    """Return why a gang is preempted, for its users: by whom only within their namespace.

    `moves`: it is to start elsewhere.
    """
    whom = workload if namespace == gang.workload.namespace else "a gang of another namespace"
    if moves:
        return f"restarts elsewhere so that {whom} fits (policy defragment); it is queued again at its old age"
    return f"ended for {whom}, which has priority {priority:,} and found no other room; it is queued again"


def preempting_status(intent: PreemptionIntent, hosts: frozenset[str], where: str) -> Status:
    """Return the status of a gang for which others end; `where` describes its hosts in words."""
    kept = f"{where} kept free until it fits"
    pods = sum(one.pods for one in intent.victims) + len(intent.pods)
    gangs = plural(len(intent.victims), "gang") if intent.victims else ""
    others = plural(len(intent.pods), "other pod") if intent.pods else ""
    ending = " and ".join(filter(None, (gangs, others)))
    total = f" ({plural(pods, 'pod')})" if intent.victims else ""
    if intent.moves:
        verb = "restarts" if len(intent.victims) == 1 else "restart"
        message = f"{plural(len(intent.victims), 'running gang')}{total} {verb} elsewhere for it: {kept}"
        return Status("Waiting", "Preempting", message, tuple(sorted(hosts)))
    verb = "ends" if len(intent.victims) + len(intent.pods) == 1 else "end"
    message = f"{ending} of lower priority {verb} for it{total}: {kept}"
    return Status("Waiting", "Preempting", message, tuple(sorted(hosts)))
