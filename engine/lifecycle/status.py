"""The status of a Placement: which changes are news, the body to write, and delays during a burst of placements. Pure.

Reporting costs the API server two writes a gang (a status, an Event), as much as placing it. While a crowd of gangs is
placed, those that still wait for their slots have precedence. Measured with 100 gangs of 4 pods at once:
docs/benchmarks.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from engine.api.duration import timestamp
from engine.api.event_reasons import ON_PHASES
from engine.api.placement import (
    Placement,
    kept_hosts,
    last_transition,
    preemption_body,
    preemption_intent,
    requeues,
)
from engine.api.pod import FailedPod
from engine.api.reasons import known_code, known_phase, reason_of
from engine.api.text import plural, sanitize
from engine.gang.gang import Gang
from engine.gang.relaxation import starts_anew
from engine.gang.summary import GangSummary
from engine.lifecycle.actions import RestartProposal, Status
from engine.lifecycle.preemption import IntentEnd, after_end
from engine.scheduler.outcome import Placed, Proposal, Shortage
from engine.scheduler.queue import QueuePlace

# This many placements within this many seconds are a burst: a handful of gangs of one user is none, and a crowd, which
# comes at some twelve a second on two processors, is one from its second second on.
MANY: Final = 16
WITHIN: Final = 2.0
# Good news during a burst is reported this much later (seconds), and while the burst goes on up to so much later still;
# it is looked again this often whether it does.
LATER: Final = 5.0
LATER_STILL: Final = 5.0
BURST_CHECK: Final = 1.0
_MOST_REQUEUES: Final = 1_000_000  # that are counted
# Seconds. A failed pod counts if it failed after the gang was ready (times are in whole seconds). If the status says
# already that the gang is not, it counts if it failed shortly before: a missing pod is reported after five seconds.
_SECOND, _FAILED_BEFORE = 1.0, 15.0
# Pods that fail because another one did mostly take no longer (seconds).
_FAILED_TOGETHER: Final = 60.0
_MAX_HOW: Final = 200
GOOD: Final = frozenset({"Placed", "Starting", "Running"})


class BurstDetector:
    """Detects bursts from the times of the last placements."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=MANY)

    def placed(self, now: float) -> None:
        """Record that a gang was placed at this time (monotonic seconds)."""
        self._last.append(now)

    def delay(self, phase: str, now: float) -> float:
        """Return how many seconds a status may wait: 0 if users must act on it."""
        return LATER if phase in GOOD and self.lasts(now) else 0.0

    def lasts(self, now: float) -> bool:
        """Return True during a burst."""
        return len(self._last) == MANY and now - self._last[0] <= WITHIN

    def extension(self, phase: str, since: float, now: float) -> float:
        """Return how many seconds a status that was due at `since` may wait further; 0 if it is to be reported now."""
        if not self.delay(phase, now):
            return 0.0
        return max(0.0, min(BURST_CHECK, since + LATER_STILL - now))


_CONDITIONS = ("Placed", "Released", "Complete", "Ready")


def settle(status: Status) -> float:
    """Return how many seconds a status has to last before it is reported."""
    reason = reason_of(status.reason)
    return max(ON_PHASES[status.phase].settles, reason.settles if reason is not None else 0.0)


def status_of(gang: Gang) -> Status | None:
    """Return the status in a gang's Placement; None if it has none yet."""
    status = gang.status
    phase = known_phase(status.get("phase"))
    if phase is None:
        return None
    message = str(status.get("message") or "")
    return Status(phase, known_code(status.get("reason")), message, kept_hosts(status))


def differs(known: Status, status: Status) -> bool:
    """Return True if a status is news after another: another phase or reason, but not other numbers."""
    if (known.phase, known.reason) != (status.phase, status.reason):
        return True
    reason = reason_of(status.reason)
    return reason is not None and reason.text_is_news and known.message != status.message


def details_body(
    summary: GangSummary,
    shortage: Shortage | None = None,
    place: QueuePlace | None = None,
    provisioning: Mapping[str, Any] | None = None,
    restarts: RestartProposal | None = None,
) -> dict[str, Any]:
    """Return the numbers to merge into a Placement's status; None removes one of an earlier write."""
    return {
        **_shortage_body(shortage),
        "proposal": _proposal_body(shortage, restarts),
        "provisioning": provisioning,
        "queuePosition": None if place is None else place.position,
        "queueLength": None if place is None else place.length,
        "pods": {"bound": summary.bound, "wanted": summary.wanted},
        "gpus": summary.gpus,
        "columns": {
            "pods": f"{summary.bound:,}/{summary.wanted:,}",
            "place": summary.place or None,
            "queue": None if place is None else f"{place.position:,} of {place.length:,}",
            "level": summary.level or None,
        },
    }


def _shortage_body(short: Shortage | None) -> dict[str, Any]:
    if short is None:
        return dict.fromkeys(("needed", "have", "best", "podSet"))
    return {
        "needed": short.needed,
        "have": short.have,
        "best": [{"level": one.level, "domain": "/".join(one.path), "pods": one.pods} for one in short.best],
        "podSet": short.pod_set,
    }


def _proposal_body(short: Shortage | None, restarts: RestartProposal | None) -> dict[str, Any] | None:
    """Return the changes with each of which alone the gang would fit."""
    proposal = short.proposal if short is not None else None
    if proposal is None and restarts is None:
        return None
    return {**asdict(proposal or Proposal()), "restarts": restarts.body if restarts is not None else None}


def has_details(placement: Placement, details: Mapping[str, Any]) -> bool:
    """Return True if a Placement's status has these numbers, and is about its current spec."""
    known = placement.status
    return known.get("observedGeneration") == placement.generation and all(
        known.get(key) == _without_none(value) for key, value in details.items()
    )


def _without_none(value: Any) -> Any:
    """Return a value as a merge patch leaves it."""
    if not isinstance(value, Mapping):
        return value
    return {key: _without_none(one) for key, one in value.items() if one is not None}


def status_body(
    before: Mapping[str, Any],
    status: Status,
    *,
    placed: Placed | None,
    now: float,
    details: Mapping[str, Any] | None = None,
    generation: int = 0,
) -> dict[str, Any]:
    """Return the `status` to merge into a Placement of this generation; `placed` adds the planner's results."""
    stamp = timestamp(now)
    truth = {
        "Placed": status.phase not in ("Waiting",),
        "Released": status.phase in ("Starting", "Running", "Incomplete", "Finished"),
        "Complete": status.phase in ("Starting", "Running", "Finished"),
        "Ready": status.phase in ("Running", "Finished"),
    }
    old = {item.get("type"): item for item in before.get("conditions") or () if isinstance(item, Mapping)}
    conditions = []
    for kind in _CONDITIONS:
        value = "True" if truth[kind] else "False"
        known = old.get(kind, {})
        since = known.get("lastTransitionTime") if known.get("status") == value else None
        conditions.append(
            {
                "type": kind,
                "status": value,
                "reason": status.reason or status.phase,
                "message": status.message,
                "lastTransitionTime": since or stamp,
                # `kubectl wait` takes no condition that is about an earlier generation
                "observedGeneration": generation,
            }
        )
    reason = reason_of(status.reason)
    waits, over = _waits_for_us(status), reason is not None and reason.gives_up
    queued = status.phase == "Waiting" and not (reason is not None and reason.by_user)
    known = {} if starts_anew(before) and not over else before
    body: dict[str, Any] = {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "conditions": conditions,
        "keptHosts": list(status.hosts) or None,
        "preemption": _preemption_body(before, status, now),
        "waitingSince": (known.get("waitingSince") or stamp) if waits else None,
        "requeuedAt": known.get("requeuedAt") if queued else None,
        "requeues": known.get("requeues") if queued else None,
        "readyAt": _ready_at(before, status, stamp),
        "replan": before.get("replan"),
        "movedAt": before.get("movedAt"),
        "failedStarts": None if _forgets_starts(status) else before.get("failedStarts"),
        "observedGeneration": generation,
        **(details or {}),
    }
    if placed is not None:
        body["domainsUsed"] = dict(placed.domains_used)
        body["proven"] = placed.proven
    elif status.phase == "Waiting":
        body["domainsUsed"] = None
        body["proven"] = None
    return body


def _preemption_body(before: Mapping[str, Any], status: Status, now: float) -> dict[str, Any] | None:
    """Return what a status leaves of a preemption: all while its gang waits for that, how often it failed meanwhile.

    A gang that loses its slots before it has started has preempted in vain.
    """
    reason = reason_of(status.reason)
    if status.phase not in ("Waiting", "Placed") or (reason is not None and (reason.by_user or reason.gives_up)):
        return None
    intent = preemption_intent(before) if status.preemption is None else status.preemption
    if status.phase == "Placed":
        return preemption_body(intent.placed())
    if intent.unproven:
        return preemption_body(after_end(intent, IntentEnd("its pods did not start", failed=True), wall=now))
    return preemption_body(intent if reason is not None and reason.preempts else intent.ended())


def requeued_body(before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return the `status` to merge into the Placement of a gang that is requeued; `before`: its status until then."""
    times = min(requeues(before) + 1, _MOST_REQUEUES)
    return {"waitingSince": timestamp(now), "requeuedAt": timestamp(now), "requeues": times}


def event_text(status: Status, placed: Placed | None, *, before: Placement | None) -> str:
    """Return the note of a status's Event: where a healthy gang has its slots, once that is new, else the message.

    `before` is its Placement until now.
    """
    untold = before is None or before.status.get("phase") in (None, "Waiting")
    if placed is None or status.phase not in GOOD or not untold:
        return status.message
    return f"{placed.message}; {status.message}" if status.reason else placed.message


def _ready_at(before: Mapping[str, Any], status: Status, stamp: str) -> str | None:
    """Return when the gang was ready for the first time since it was placed; None while it was not."""
    reason = reason_of(status.reason)
    restarts = status.phase == "Placed" and reason is not None and reason.moves
    if status.phase == "Waiting" or restarts:
        return None
    known = before.get("readyAt")
    return known if isinstance(known, str) else stamp if status.phase in ("Running", "Finished") else None


def _forgets_starts(status: Status) -> bool:
    """Return True if failed starts count no more: the gang was ready, or its user has suspended it."""
    reason = reason_of(status.reason)
    return status.phase in ("Running", "Finished") or (reason is not None and reason.by_user)


def _waits_for_us(status: Status) -> bool:
    """Return True for a wait that counts for the patience; one that its user or the policy's mode causes does not."""
    reason = reason_of(status.reason)
    return status.phase == "Waiting" and (reason is None or reason.patient)


def may_have_failed(gang: Gang, status: Status) -> bool:
    """Return True for a status about pods that are missing, perhaps because they have failed, or a failed workload."""
    if status.phase == "Finished":
        return gang.workload.failed
    reason = reason_of(status.reason)
    return status.phase == "Incomplete" and reason is not None and reason.until == "members"


def with_failures(status: Status, text: str) -> Status:
    """Return a status that begins with the sentence about failed pods; unchanged without one."""
    return replace(status, message=f"{text}; {status.message}") if text else status


def written_failures(known: Mapping[str, Any], status: Status) -> str | None:
    """Return the sentence about failed pods that a written status has before the message of a current one."""
    message = known.get("message")
    end = f"; {status.message}"
    same = known.get("phase") == status.phase and isinstance(message, str) and message.endswith(end)
    return str(message).removesuffix(end) if same else None


def failures_text(pods: Sequence[FailedPod], before: Mapping[str, Any]) -> str:
    """Return which pods of a gang have failed since its last status changed, and how the first of them did.

    Of those that failed last the first one counts: the others often fail because it did. "" if there is none. `pods`
    are in the order in which they failed.
    """
    since = (last_transition(before) or 0.0) - (_SECOND if before.get("phase") == "Running" else _FAILED_BEFORE)
    found = [pod for pod in pods if pod.at >= since]
    found = [pod for pod in found if pod.at >= found[-1].at - _FAILED_TOGETHER]
    if not found:
        return ""
    first = found[0]
    who = sanitize(first.name) if first.rank is None else f"rank {first.rank:,}"
    where = f" on {sanitize(first.host)}" if first.host else ""
    how = f" ({sanitize(first.how, _MAX_HOW)})" if first.how else ""
    if len(found) == 1:
        return f"{who} failed{where}{how}"
    return f"{plural(len(found), 'pod')} failed, {who}{where} first{how}"
