"""The form of one record of what the leader decided or saw: about a gang, the policy, or itself. Pure.

A stable API: logs are kept for months, and collectors select by these names. `docs/reference/messages.md` is generated
from here. A reason is a reason code, as in the gang's Event of that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.api.reasons import Phase, Why, reason_of
from engine.api.text import truncate_bytes

GangEvent = Literal[
    "Placed",
    "NotStarted",
    "Starting",
    "Running",
    "Incomplete",
    "Finished",
    "Waiting",
    "LevelRelaxed",
    "Requeued",
    "GivenUp",
    "Grown",
    "Shrunk",
    "Repaired",
    "Moved",
    "NotMoved",
    "DevicesChanged",
    "Evicted",
    "GateRemoved",
    "Preempts",
    "PreemptionEnded",
    "ResumeRefused",
    "SuspendRefused",
    "Unplaced",
    "Unmanaged",
    "Deleted",
    "NodesRequested",
    "NodesAccepted",
    "NodesProvisioned",
    "NodesNotProvisioned",
    "NodesLost",
    "NodesNotNeeded",
]
ServiceEvent = Literal["PolicyTaken", "PolicyRefused", "LeadershipGained", "LeadershipLost"]
RecordedEvent = GangEvent | ServiceEvent

ON_GANGS: Final[Mapping[GangEvent, str]] = {
    "Placed": "The gang's slots are written: `pods`, `hosts`, `domain`, `revision`, and how long it waited for them.",
    "NotStarted": "The gang has its slots, but its pods do not start; the reason says why.",
    "Starting": "The pods are bound; not all of them are ready yet.",
    "Running": "The pods are ready.",
    "Incomplete": "Pods of a gang that has started are missing; the reason says why.",
    "Finished": "The workload has ended, and its slots are free.",
    "Waiting": "The gang waits; written once per change of the reason.",
    "LevelRelaxed": "The gang has waited for `relax-after`; the level that it required is only preferred from now on.",
    "Requeued": "The gang has waited for its schedule-timeout, and is at the end of its priority now.",
    "GivenUp": "The gang is not planned any more, as it has waited or failed for too long.",
    "Grown": "Pods that joined the gang have slots; `pods` of them.",
    "Shrunk": "The workload was scaled down; the slots of `pods` pods are free.",
    "Repaired": "Lost pods (`pods` of them) have new slots, or pods that stayed have theirs there; `hosts` were left.",
    "Moved": "Pods have new slots because the gang's user asks for it: `pods` of them, and `hosts` that they leave.",
    "NotMoved": "The gang's user asks that it is planned anew, and it stays where it is; the message says why.",
    "DevicesChanged": "Future pods get other devices on the same hosts.",
    "Evicted": "Pods that cannot continue on their hosts are evicted or deleted: `pods` of them.",
    "GateRemoved": "Someone else removed the scheduling gate of `pods` pods, such as `topogate release`.",
    "Preempts": "Running gangs end so that it starts (`Unplaced`), or pods outside gangs are evicted: `pods` of them.",
    "PreemptionEnded": "What it preempts does not end any more, and it has not started; the message says why.",
    "ResumeRefused": "The gang has slots, but the API server or another webhook refuses to resume its workload.",
    "SuspendRefused": "The gang must be planned again, but the API server or another webhook refuses to suspend it.",
    "Unplaced": "The gang's slots are given back: suspended by its user, preempted, or to be planned again.",
    "Unmanaged": "Topogate lets the workload go: the reason says whether by the policy or by its user.",
    "Deleted": "The workload was deleted before it had ended.",
    "NodesRequested": "The node autoscaler was asked for nodes for `pods` pods.",
    "NodesAccepted": "The node autoscaler looks for nodes.",
    "NodesProvisioned": "The node autoscaler has requested nodes, or has found them.",
    "NodesNotProvisioned": "The node autoscaler cannot provide nodes, or the request for them was refused.",
    "NodesLost": "The node autoscaler no longer keeps the nodes, or has taken them back; the gang still waits.",
    "NodesNotNeeded": "The request for nodes was deleted: the gang is placed, changed, or waits for something else.",
}
ON_SERVICE: Final[Mapping[ServiceEvent, str]] = {
    "PolicyTaken": "Another policy is in force; `policy` is its hash.",
    "PolicyRefused": "A policy was refused; `policy` is the hash of the one that stays in force.",
    "LeadershipGained": "`replica` leads from now on, and decides.",
    "LeadershipLost": "`replica` does not lead any more. One that crashes writes nothing.",
}

LOGGER: Final = "topogate.decisions"
# Bytes of one text; an Event's note has the same limit. No line has more than some 2,500.
MAX_MESSAGE: Final = 1024
MAX_NAME: Final = 253
MAX_DOMAIN: Final = 512


@dataclass(frozen=True, slots=True)
class GangName:
    """A gang as records name it: `workload` is `Kind/name`, `group` its replica group, "" where there is one gang."""

    namespace: str
    workload: str
    placement: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One record; `at` is seconds since the epoch. What does not apply is "" or None."""

    at: float
    event: str
    gang: GangName | None
    reason: str
    message: str
    pods: int | None = None
    hosts: int | None = None
    domain: str = ""
    revision: int | None = None
    waited: float | None = None
    requeues: int | None = None
    policy: str = ""
    replica: str = ""
    omitted: int | None = None


def event_of(phase: Phase, reason: Why) -> GangEvent:
    """Return the event of a change of status."""
    known = reason_of(reason)
    if phase == "Waiting":
        return "GivenUp" if known is not None and known.gives_up else "Waiting"
    return "NotStarted" if phase == "Placed" else phase


def fields_of_record(
    event: RecordedEvent, gang: GangName | None, *, reason: str, message: str, **details: int | float | str | None
) -> dict[str, Any]:
    """Return the fields of a log line, each of bounded size; details that are None or "" are left out."""
    fields: dict[str, Any] = {"event": event}
    if gang is not None:
        fields["namespace"] = truncate_bytes(gang.namespace, MAX_NAME)
        fields["workload"] = truncate_bytes(gang.workload, 2 * MAX_NAME)
        fields["placement"] = truncate_bytes(gang.placement, MAX_NAME)
        if gang.group:
            fields["group"] = truncate_bytes(gang.group, MAX_NAME)
    fields["reason"] = truncate_bytes(reason, MAX_NAME)
    fields["message"] = truncate_bytes(message, MAX_MESSAGE)
    for name, value in details.items():
        if value is not None and value != "":
            fields[name] = truncate_bytes(value, MAX_DOMAIN) if isinstance(value, str) else value
    return fields
