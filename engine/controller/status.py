"""The status of a Placement: what in it is news, the body to write, and when a burst of placements delays it. Pure.

Telling people costs the API server two writes a gang (a status, an Event), as much as placing it. While a crowd is
being placed, whoever is still waiting for his slots goes first. Measured with 100 gangs of 4 pods at once:
docs/benchmarks.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from engine.api.duration import timestamp
from engine.api.event_reasons import PHASES_TOLD
from engine.api.placement import kept_hosts
from engine.api.reasons import known_code, known_phase, reason_of
from engine.controller.actions import Status
from engine.gang.gang import Gang
from engine.scheduler.outcome import Placed

# So many placements within so many seconds are a rush: a handful of gangs of one person is none, and a crowd, which
# comes at some twelve a second on two processors, is one from its second second on.
MANY: Final = 16
WITHIN: Final = 2.0
# Good news of a rush is told this much later (seconds).
LATER: Final = 5.0
GOOD: Final = frozenset({"Placed", "Running"})


class BurstDetector:
    """Remembers the last few placements."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=MANY)

    def placed(self, now: float) -> None:
        """A gang was placed at this time (monotonic seconds)."""
        self._last.append(now)

    def delay(self, phase: str, now: float) -> float:
        """How many seconds a status may wait; what people must act on never does."""
        rushing = len(self._last) == MANY and now - self._last[0] <= WITHIN
        return LATER if rushing and phase in GOOD else 0.0


_CONDITIONS = ("Placed", "Released", "Complete")


def settle(status: Status) -> float:
    """How many seconds a status has to last until it is told."""
    reason = reason_of(status.reason)
    return max(PHASES_TOLD[status.phase].settles, reason.settles if reason is not None else 0.0)


def status_of(gang: Gang) -> Status | None:
    """What a gang's Placement says; None when it says nothing yet."""
    status = gang.placement.status if gang.placement is not None else {}
    phase = known_phase(status.get("phase"))
    if phase is None:
        return None
    message = str(status.get("message") or "")
    return Status(phase, known_code(status.get("reason")), message, kept_hosts(status))


def differs(known: Status, status: Status) -> bool:
    """True when one status is news after another: another phase or reason. Numbers alone are none."""
    if (known.phase, known.reason) != (status.phase, status.reason):
        return True
    reason = reason_of(status.reason)
    return reason is not None and reason.text_is_news and known.message != status.message


def status_body(before: Mapping[str, Any], status: Status, *, facts: Placed | None, now: float) -> dict[str, Any]:
    """The `status` to merge into a Placement; `facts` adds what only the planner knows."""
    stamp = timestamp(now)
    truth = {
        "Placed": status.phase not in ("Waiting",),
        "Released": status.phase in ("Running", "Incomplete", "Finished"),
        "Complete": status.phase in ("Running", "Finished"),
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
            }
        )
    body: dict[str, Any] = {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "conditions": conditions,
        "keptHosts": list(status.hosts) or None,
        "waitingSince": (before.get("waitingSince") or stamp) if _waits_for_us(status) else None,
    }
    if facts is not None:
        body["domainsUsed"] = dict(facts.domains_used)
        body["proven"] = facts.proven
    elif status.phase == "Waiting":
        body["domainsUsed"] = None
        body["proven"] = None
    return body


def event_text(status: Status, facts: Placed | None) -> str:
    """The note of a status's Event: of a gang that is on its way, and of which nothing is wrong, where it goes."""
    if facts is not None and status.phase in ("Placed", "Running") and not status.reason:
        return facts.message
    return status.message


def _waits_for_us(status: Status) -> bool:
    """True while it is not the user who keeps the gang from starting: that time counts for no patience."""
    reason = reason_of(status.reason)
    return status.phase == "Waiting" and (reason is None or reason.patient)
