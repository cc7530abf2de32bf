"""Records what happens to gangs: Events for their users, and one line per decision in the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from engine.api import names
from engine.api.event_reasons import EventReason, is_warning
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.reasons import Why
from engine.api.text import plural
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cluster.events import Recorder, Regarding
from engine.gang.gang import Gang
from engine.gang.key import name_of
from engine.gang.plain_pods import in_order
from engine.gang.slots import assigned_count
from engine.gang.summary import domains_of, hosts_of, place_text
from engine.history.decision_log import DecisionLog
from engine.history.record import GangEvent, GangName

ACTION: Final = "Place"
# A gang of plain pods has no object but its pods: this many of them get its Events.
REPORTED_PODS: Final = 8


class GangEvents:
    """Publishes Events and writes decision records of gangs. Thread-safe."""

    def __init__(self, view: ClusterState, recorder: Recorder, decisions: DecisionLog) -> None:
        self._view = view
        self._recorder = recorder
        self._decisions = decisions

    def publish(
        self,
        gang: Gang,
        reason: EventReason,
        happened: GangEvent,
        message: str,
        *,
        code: Why = "",
        warning: bool | None = None,
        placement: Placement | None = None,
        **details: Any,
    ) -> None:
        """Record what happened to a gang, with a reason code if there is one, as Events and in the log."""
        self.publish_events(gang, reason, message, warning=warning, placement=placement)
        self.record(gang, happened, message, reason=code, **details)

    def publish_events(
        self,
        gang: Gang,
        reason: EventReason,
        message: str,
        *,
        warning: bool | None = None,
        placement: Placement | None = None,
    ) -> None:
        """Record an Event on the gang's workload or pods, and on its Placement; `warning` overrides the reason's type.

        `placement`: the current one, if it is newer than the gang's.
        """
        warning = is_warning(reason) if warning is None else warning
        workload: Workload = gang.workload
        if workload.handling == "pods":
            for pod in in_order(gang.pods)[:REPORTED_PODS]:
                self._publish_for_pod(pod, reason, message, warning=warning)
        else:
            regarding = Regarding(workload.api_version, workload.kind, workload.namespace, workload.name, workload.uid)
            self._recorder.record(regarding, reason=reason, note=message, action=ACTION, warning=warning)
        if (placement := placement or gang.placement) is not None:
            regarding = Regarding(
                names.API_VERSION, names.PLACEMENT_KIND, placement.namespace, placement.name, placement.uid
            )
            self._recorder.record(regarding, reason=reason, note=message, action=ACTION, warning=warning, spare=True)

    def publish_for_pod(self, pod: Pod, reason: EventReason, message: str) -> None:
        """Record an Event on a pod with the reason why it is held."""
        self._publish_for_pod(pod, reason, message, warning=is_warning(reason))

    def _publish_for_pod(self, pod: Pod, reason: EventReason, message: str, *, warning: bool) -> None:
        regarding = Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)
        self._recorder.record(regarding, reason=reason, note=message, action=ACTION, warning=warning)

    def record(self, gang: Gang, happened: GangEvent, message: str, *, reason: Why = "", **details: Any) -> None:
        """Write one line about a gang into the log, without an Event."""
        self._decisions.gang(gang_name(gang), happened, reason=reason, message=message, **details)

    def record_placed(self, gang: Gang, placement: Placement, waited: float | None) -> None:
        """Record that a gang got slots, where they are, and for how many seconds it was queued."""
        pods, hosts = assigned_count(placement), len(hosts_of(placement.assignment))
        details = self.place_of(placement)
        domain = f" in {details['domain']}" if details["domain"] else ""
        text = f"{plural(pods, 'pod')}{domain} ({plural(hosts, 'host')})"
        seconds = None if waited is None else round(max(0.0, waited), 3)
        gang = replace(gang, placement=placement)
        self.record(gang, "Placed", text, pods=pods, hosts=hosts, waitedSeconds=seconds, **details)

    def record_requeue_by_command(self, gang: Gang, times: int) -> None:
        """Record that somebody else has moved a waiting gang to the end of its priority."""
        self.record(gang, "Requeued", "moved to the end of its priority by a command", requeues=times)

    def record_deleted(self, name: GangName, *, placed: bool) -> None:
        """Record that a gang was deleted before it had ended."""
        text = "its workload was deleted; its slots are free" if placed else "its workload was deleted while it waited"
        self._decisions.gang(name, "Deleted", message=text)

    def record_gates_removed(self, gang: Gang, count: int) -> None:
        """Record that somebody else has released pods of a gang."""
        text = f"someone else removed the scheduling gate of {plural(count, 'pod')}; each counts where it runs"
        self.record(gang, "GateRemoved", text, pods=count)

    def publish_limit(self, gang: Gang, limit: int) -> None:
        """Record an Event on a workload with gangs above the limit of its namespace."""
        message = (
            f"the namespace has reached its limit of {limit:,} gangs (policy queue.maxNamespaceGangs): the others "
            "are held until some have ended; delete waiting gangs, or scale down"
        )
        self.publish(gang, "GangLimitExceeded", "Waiting", message, code="GangLimitExceeded")

    def place_of(self, placement: Placement) -> dict[str, Any]:
        """Return where the slots of a Placement are, in short, and their revision."""
        topology, assignment = self._view.topologies.get(placement.topology), placement.assignment
        above = tuple(level.name for level in topology.levels[:-1]) if topology is not None else ()
        where = place_text(domains_of(assignment), hosts_of(assignment), above)
        return {"domain": where, "revision": assignment.revision if assignment is not None else None}


def gang_name(gang: Gang) -> GangName:
    """Return a gang as records name it."""
    workload = gang.workload
    placement = gang.placement.name if gang.placement is not None else name_of(workload, gang.group)
    return GangName(workload.namespace, f"{workload.kind}/{workload.name}", placement, gang.group or "")
