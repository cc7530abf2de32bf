"""Executes the leader's actions: each is a few API writes, in an order that survives a crash in between.

Placement before resume: a workload never runs without its slots in a Placement. Suspend before unplacing: a slot is
never free while a pod may still be bound to it. Responses to writes go into the stores at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace
from threading import BoundedSemaphore
from typing import Any, Literal, TypeVar

from engine.api import names
from engine.api.duration import timestamp
from engine.api.placement import (
    Assignment,
    FailedStarts,
    Placement,
    ReplanRecord,
    failed_starts_body,
    replan_body,
    requeues,
)
from engine.api.pod import Pod
from engine.api.reasons import Code, known_code
from engine.api.text import plural, quote, sanitize
from engine.api.workload import GangKey, Workload
from engine.autoscaling.state import consumed
from engine.cache.state import ClusterState
from engine.cluster import writes
from engine.cluster.client import ApiFault, KubeClient, object_path
from engine.cluster.events import Recorder
from engine.cluster.lease import NotLeader
from engine.cluster.writes import Gone, Refused, Result
from engine.controller.gang_events import GangEvents
from engine.controller.node_requests import NodeRequests
from engine.controller.writer import StaleObject, Writer, was_done
from engine.decoding import wire
from engine.decoding.pods import failed_pods
from engine.devices.allocation import allocation, declared_uses
from engine.gang.gang import Gang, pod_set_of
from engine.gang.pin import placed_pod, release_patch
from engine.gang.relaxation import relaxed, relaxing_text
from engine.gang.repair import ExtensionRequest
from engine.gang.slots import SlotAssignment, assigned_count, slots_of
from engine.gang.summary import summary_of
from engine.history.decision_log import DecisionLog
from engine.history.record import GangEvent, event_of
from engine.lifecycle.actions import Status, Unmanage
from engine.lifecycle.moves import kept_record
from engine.lifecycle.reconcile import request_written
from engine.lifecycle.status import details_body, event_text, failures_text, requeued_body, status_body
from engine.policy.namespaces import mode_of
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, rewritten

log = logging.getLogger("topogate.errands")

T = TypeVar("T")

# Failed pods are in no store, and a workload may leave thousands of them, each as large as its user likes: bytes of one
# gang's list, and lists at a time.
MOST_FAILED = 16 * 1024 * 1024
_MAX_REFUSAL = 200  # characters of a refusal that are quoted
_LISTS_OF_FAILED = 4


class ActionExecutor:
    """Executes actions: each method performs the API writes of one action. Thread-safe; one call per gang at a time.

    Raises `ApiFault` if it failed (the caller retries after a delay) and `NotLeader` from `fence` if the Lease is lost:
    then nothing was written.
    """

    def __init__(
        self,
        view: ClusterState,
        api: KubeClient,
        recorder: Recorder,
        *,
        fence: Callable[[], None],
        wall: Callable[[], float],
        decisions: DecisionLog | None = None,
        patchers: int = 16,
    ) -> None:
        self._view = view
        self._api = api
        self._fence = fence
        self._wall = wall
        self.events = GangEvents(view, recorder, decisions or DecisionLog())
        self._writer = Writer(view, api, fence=fence)
        self.node_requests = NodeRequests(view, api, self.events, fence=fence)
        self._lists_of_failed = BoundedSemaphore(_LISTS_OF_FAILED)
        # A pool of its own: an action waits for its pods' PATCHes, and must not hold a thread that one of them needs.
        self._patchers = ThreadPoolExecutor(max_workers=patchers, thread_name_prefix="release")

    def close(self) -> None:
        """Finish the PATCHes that have started; no further action may follow."""
        self._patchers.shutdown(wait=True, cancel_futures=True)

    # -- writes ------------------------------------------------------------------------------------------------------

    def place(self, gang: Gang, placement: Placement, *, waited: float | None = None) -> None:
        """Write the Placement; then, if the workload is held by suspension, resume it.

        `waited`: the seconds that the gang was queued, for the record.
        """
        placement = self._consuming(placement)
        written = self._writer.write_slots(placement, gang)
        self.events.record_placed(gang, placement, waited)
        if gang.workload.suspended:
            self.resume(replace(gang, placement=written))

    def place_group(
        self, plans: Sequence[tuple[Gang, Placement]], *, waited: Mapping[GangKey, float] | None = None
    ) -> None:
        """Write the Placements of all workloads of a pod group; only then resume the first of them.

        If one cannot be written none is resumed, and those that were give their slots back. If one cannot be resumed
        the others are all the same: it has its slots, and is resumed later.
        """
        written: list[Gang] = []
        for gang, plan in plans:
            placement = self._consuming(plan)
            written.append(replace(gang, placement=self._writer.write_slots(placement, gang)))
            self.events.record_placed(gang, placement, (waited or {}).get(gang.key))
        faults: list[Exception] = []
        for gang in written:
            try:
                if gang.workload.suspended:
                    self.resume(gang)
            except (ApiFault, StaleObject) as fault:
                faults.append(fault)
        if faults:
            raise faults[0]

    def resume(self, gang: Gang) -> None:
        """Resume a held workload with one PATCH that also names the Placement for its pods."""
        placement = gang.placement
        assert placement is not None and placement.assignment is not None
        revision = placement.assignment.revision

        def attempt(workload: Workload) -> Result:
            return writes.resume_workload(
                self._api, workload, placement=placement.name, revision=revision, fence=self._fence
            )

        if isinstance(result := self._writer.on_newest(gang.workload, attempt), Refused):
            self.events.publish(gang, "ResumeRefused", "ResumeRefused", f"cannot be resumed: {result.message}")
            raise writes.WriteRefused(result.message)
        was_done(result, gang.workload.name)

    def unplace(
        self,
        gang: Gang,
        status: Status,
        *,
        suspend: bool,
        event: bool,
        failed: FailedStarts | None = None,
        moves: bool = False,
    ) -> None:
        """Remove the assignment; with `suspend`, only after the workload is suspended again. Then report the reason.

        A failed start, and that it moves for another gang, are recorded first: whatever ends this halfway, the next
        leader knows of it.
        """
        body: dict[str, Any] = {} if failed is None else {"failedStarts": failed_starts_body(failed)}
        if moves:
            body["movedAt"] = timestamp(self._wall())
        if body and gang.placement is not None:
            result = writes.patch_placement_status(self._api, gang.placement, body, fence=self._fence)
            if not isinstance(result, Gone):
                gang = replace(gang, placement=self._writer.took_placement(result))
        if suspend and not gang.workload.suspended:
            self._suspend(gang)
        assert gang.placement is not None
        lost = gang.placement.assignment
        written = self._writer.write(replace(gang.placement, assignment=None), gang)
        happened = event_of(status.phase, status.reason)
        happened = "Unplaced" if happened == "Waiting" else happened
        if event:
            self._write_status(replace(gang, placement=written), written, status, None, happened=happened)
            return
        # Not news for its user, but its slots are gone all the same.
        self._write_status(replace(gang, placement=written), written, status, None)
        if lost is not None:
            self.events.record(gang, happened, status.message, reason=status.reason)

    def extend(self, gang: Gang, placement: Placement, extension: ExtensionRequest, message: str) -> None:
        """Write the new slots of a part of the gang with the kept ones; then delete the pods to be replaced."""
        self._writer.write_slots(placement, gang)
        known = gang.placement.assignment if gang.placement is not None else None
        left = extension.lost_hosts(known) if known is not None else frozenset[str]()
        happened: Literal["Grown", "Moved", "Repaired"] = "Grown" if extension.more else "Repaired"
        happened = "Moved" if extension.on_request else happened
        details = {"pods": extension.missing, "hosts": len(left) or None, **self.events.place_of(placement)}
        self.events.publish(gang, happened, happened, message, **details)
        self._in_parallel(self._delete_pod, extension.replaced)

    def record_replan(self, gang: Gang, record: ReplanRecord | None) -> None:
        """Write the answer to a request to plan a gang anew, and report that it stays or has moved."""
        gang = self._write_replan(gang, record)
        if record is None or gang.placement is None:
            return
        if record.outcome == "Kept":
            self.events.publish(gang, "NotMoved", "NotMoved", record.message)
        elif record.outcome == "Moved":
            details = {"pods": assigned_count(gang.placement), **self.events.place_of(gang.placement)}
            self.events.publish(gang, "Moved", "Moved", record.message, **details)

    def restart(self, gang: Gang, record: ReplanRecord) -> None:
        """Write that a gang restarts elsewhere, then suspend it; its slots stay reserved until it has other ones."""
        gang = self._write_replan(gang, record)
        try:
            self._suspend(gang)
        except writes.WriteRefused as refusal:
            # Asked for again and again, it would get neither its pods released nor lost slots repaired meanwhile.
            why = f"its suspension was refused: {sanitize(str(refusal), _MAX_REFUSAL)}"
            self.record_replan(gang, kept_record(gang, why, wall=self._wall()))
            return
        self.events.record(gang, "NotStarted", record.message, reason="Moving")

    def move(self, gang: Gang, placement: Placement, record: ReplanRecord) -> None:
        """Write the new slots of a gang that was suspended for them, report that, and resume it."""
        moved = replace(gang, placement=self._writer.write_slots(placement, gang))
        self.record_replan(moved, record)
        self.resume(moved)

    def remove(self, gang: Gang, pods: tuple[Pod, ...], *, evict: bool, reason: Code, message: str) -> None:
        """Evict or delete pods, bound ones at once. A refusal by a disruption budget is reported, and retried later."""
        self.events.publish(gang, reason, "Evicted", message, code=reason, pods=len(pods))
        self._in_parallel(self._evict_pod if evict else self._delete_pod, pods)

    def evict_others(self, gang: Gang, pods: Sequence[Pod], message: str) -> None:
        """Evict pods that are not managed for a gang, each as its disruption budgets allow."""
        for pod in pods:
            self.events.publish_for_pod(pod, "Preempted", message)
        evicts = f"evicts {plural(len(pods), 'pod')} that Topogate does not manage"  # not those of the gang itself
        self.events.record(gang, "Preempts", evicts, reason="Preempting", pods=len(pods))
        self._in_parallel(self._evict_pod, pods)

    def rewrite(self, gang: Gang, assignment: Assignment) -> None:
        """Write another assignment of a gang: for a scaled-down workload, a smaller template, or other devices."""
        assert gang.placement is not None and gang.placement.assignment is not None
        self._writer.write(rewritten(gang, assignment), gang)
        fewer = assigned_count(gang.placement) - assignment.count
        if fewer > 0:
            completed = any(pod_set.needed < pod_set.slots for pod_set in gang.workload.pod_sets)
            freed = f"{'pods have completed' if completed else 'scaled down'}: {plural(fewer, 'slot')} fewer"
            self.events.record(gang, "Shrunk", freed, pods=fewer, revision=assignment.revision)
        elif slots_of(assignment) != slots_of(gang.placement.assignment):
            text = "its future pods get other devices on the same hosts"
            self.events.record(gang, "DevicesChanged", text, revision=assignment.revision)

    def release(self, gang: Gang, assignments: tuple[SlotAssignment, ...]) -> None:
        """Bind and release held pods, in parallel, one PATCH each."""
        placement = gang.placement
        assert placement is not None
        self._writer.own(placement, gang, (one.pod for one in assignments))
        topology = self._view.topologies.get(placement.topology)

        def release_one(assigned: SlotAssignment) -> None:
            pod = assigned.pod
            host = assigned.slot.host
            kinds = self._view.policy.device_kinds
            uses = declared_uses(assigned.devices, kinds)
            devices = allocation(uses, self._view.stores.devices.get(host), kinds) if uses else None
            if uses and devices is None:
                raise StaleObject(f"a device of {host} planned for {pod.name} was not found")
            placed = placed_pod(
                pod,
                assigned.slot,
                placement=placement,
                pod_set=_pod_set_name(gang, pod),
                rank=assigned.rank,
                pin_labels=topology.pin_labels(host) if topology is not None else {},
                devices=devices,
                minors=self._view.policy.gpu.env == "minor",
            )
            body = release_patch(pod, placed)
            self._writer.took_pod(pod, writes.release_pod(self._api, pod, body, fence=self._fence))

        self._in_parallel(release_one, assignments)

    def unmanage(self, gang: Gang, let: Unmanage) -> None:
        """Stop managing a workload: free its pods, resume it, delete its Placement, and report it."""
        pods, resume, forget = let.pods, let.resume, let.forget
        self._in_parallel(self.free_pod, pods)
        if resume:
            result = self._writer.on_newest(
                gang.workload, lambda workload: writes.resume_workload(self._api, workload, fence=self._fence)
            )
            if isinstance(result, Refused):
                raise writes.WriteRefused(result.message)
            was_done(result, gang.workload.name)
        if forget and gang.placement is not None:
            self.forget(gang.placement)
            gang = replace(gang, placement=None)
        self.events.publish(gang, let.reason, "Unmanaged", let.message, code=let.reason, warning=let.loses)

    def free_pod(self, pod: Pod) -> None:
        """Remove our gate from a pod without placing it."""
        self._writer.took_pod(pod, writes.free_pod(self._api, pod, fence=self._fence))

    def forget(self, placement: Placement) -> None:
        """Delete a Placement."""
        match writes.delete_placement(self._api, placement, fence=self._fence):
            case Refused(message=message):
                raise writes.WriteRefused(message)
            case _:
                # If a finalizer keeps it, the watch shows it again, as one that is being deleted.
                self._view.stores.placements.apply("DELETED", placement)

    def take_slots(self, placement: Placement) -> None:
        """Take the slots of a replica that was scaled away; if it is there again by now, it is planned anew."""
        self._writer.take_slots(placement)

    def report(
        self, gang: Gang, status: Status, placed: Placed | None, *, event: bool, since: str | None = None
    ) -> None:
        """Write a gang's status, with `event` also one Event, and its Placement if that is missing or outdated.

        `since`: since when the gang waits (RFC 3339), for a Placement that has lost that.
        """
        placement, asks = gang.placement, gang.request.asked is not None
        priority = self._view.pod_shapes.priority_of(gang.workload)
        if asks and (placement is None or not request_written(gang, priority=priority)):
            placement = self._writer.write(new_placement(gang, None, priority=priority, now=self._wall()), gang)
        happened = event_of(status.phase, status.reason) if event else None
        self._write_status(gang, placement, status, placed, happened=happened, since=since)

    def failures(self, gang: Gang) -> str:
        """Return the sentence about the pods that have failed since a gang's last status; "" if they cannot be read."""
        placement = gang.placement
        if placement is None:
            return ""
        query = {
            "labelSelector": f"{names.GANG}={placement.name}",
            "fieldSelector": "status.phase=Failed",
            "resourceVersion": "0",
        }
        path = object_path("v1", "pods", namespace=placement.namespace)
        try:
            with self._lists_of_failed:
                found = failed_pods(self._api.request("GET", path, query=query, most=MOST_FAILED))
        except (ApiFault, wire.ProjectionError) as error:
            log.info("the failed pods of %s were not read: %s", placement.name, error)
            return ""
        return failures_text(found, placement.status)

    def relax(self, gang: Gang) -> None:
        """Write a Placement in which the required level is preferred from now on, and report it."""
        assert gang.placement is not None
        text = relaxing_text(gang.request, self._view.policy)
        softer = replace(gang, request=relaxed(gang.request))
        priority = self._view.pod_shapes.priority_of(gang.workload)
        written = self._writer.write(new_placement(softer, None, priority=priority, now=self._wall()), gang)
        status = Status("Waiting", known_code(gang.placement.status.get("reason")), text)
        body = self.status_of(gang, replace(written, status=gang.placement.status), status, None)
        result = writes.patch_placement_status(self._api, written, body, fence=self._fence)
        if not isinstance(result, Gone):
            self._writer.took_placement(result)
        self.events.publish(gang, "LevelRelaxed", "LevelRelaxed", text)

    def requeue(self, gang: Gang, message: str, *, event: bool) -> None:
        """Write that a waiting gang is requeued at the end of its priority, with `event` also one Event."""
        assert gang.placement is not None
        body = requeued_body(gang.placement.status, self._wall())
        result = writes.patch_placement_status(self._api, gang.placement, body, fence=self._fence)
        if not isinstance(result, Gone):
            self._writer.took_placement(result)
        if event:
            self.events.publish_events(gang, "ScheduleTimeout", message)
        self.events.record(
            gang, "Requeued", message, reason="ScheduleTimeout", requeues=requeues(gang.placement.status) + 1
        )

    def orphan_reason(self, pod: Pod) -> str | None:
        """Return why an orphaned pod stays held; None if nothing requires it."""
        if not mode_of(pod.namespace, self._view.policy).manages:
            return None
        claim = self._view.owners.owner_of(pod)
        if (missing := claim.missing) is not None:
            name = quote(f"{missing.kind} {missing.name}")
            return f"its owner {name} was not found in this namespace or cannot be read: it joins no gang"
        if (workload := claim.workload) is not None:
            if workload.group_label is None:
                return f"its owner is not a replica of {workload.kind} {workload.name}: it joins no gang"
            label = f"{workload.group_label}={quote(pod.spec.labels.get(workload.group_label or '', ''))}"
            return f"{label} is not a replica of {workload.kind} {workload.name}: it joins no gang"
        return None

    def status_of(
        self, gang: Gang, placement: Placement, status: Status, placed: Placed | None, *, since: str | None = None
    ) -> dict[str, Any]:
        """Return the `status` to merge into the Placement of a gang."""
        summary = summary_of(replace(gang, placement=placement), self._view.topologies.get(placement.topology))
        return status_body(
            {"waitingSince": since} | dict(placement.status),
            status,
            placed=placed,
            now=self._wall(),
            details=details_body(summary, status.shortage, status.place, status.provisioning, status.restarts),
            generation=placement.generation,
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _suspend(self, gang: Gang) -> None:
        result = self._writer.on_newest(
            gang.workload, lambda workload: writes.suspend_workload(self._api, workload, fence=self._fence)
        )
        if isinstance(result, Refused):
            self.events.publish(gang, "SuspendRefused", "SuspendRefused", f"cannot be suspended: {result.message}")
            raise writes.WriteRefused(result.message)
        was_done(result, gang.workload.name)

    def _write_replan(self, gang: Gang, record: ReplanRecord | None) -> Gang:
        """Write the answer to a request to plan a gang anew into its status; return the gang with it."""
        assert gang.placement is not None
        body = {"replan": replan_body(record) if record is not None else None}
        result = writes.patch_placement_status(self._api, gang.placement, body, fence=self._fence)
        return gang if isinstance(result, Gone) else replace(gang, placement=self._writer.took_placement(result))

    def _write_status(
        self,
        gang: Gang,
        placement: Placement | None,
        status: Status,
        placed: Placed | None,
        *,
        happened: GangEvent | None = None,
        since: str | None = None,
    ) -> None:
        """Write the status of a gang; `happened`: it deserves an Event, and a record of this name."""
        if placement is not None:
            if not placement.labelled:
                result = writes.label_placement(self._api, placement, fence=self._fence)
                placement = placement if isinstance(result, Gone) else self._writer.took_placement(result)
            body = self.status_of(gang, placement, status, placed, since=since)
            result = writes.patch_placement_status(self._api, placement, body, fence=self._fence)
            if not isinstance(result, Gone):
                self._writer.took_placement(result)
        if happened is None:
            return
        note, reason = event_text(status, placed, before=gang.placement), status.reason or status.phase
        self.events.publish_events(gang, reason, note, placement=placement)
        if status.phase != "Placed" or status.reason:
            # Where its slots are is in the record of the placement; this one is about its pods.
            self.events.record(gang, happened, status.message, reason=status.reason)

    def _consuming(self, placement: Placement) -> Placement:
        """Return a Placement to write, whose pods use the nodes that were provisioned for the gang, if any were."""
        requests = self._view.stores.provisioning_requests.get_by(placement.key)
        if placement.assignment is None or not requests:
            return placement
        return replace(placement, assignment=replace(placement.assignment, consumes=consumed(requests)))

    def _in_parallel(self, do: Callable[[T], None], items: Iterable[T]) -> None:
        """Run one function for many items in parallel; a failure stops no other. Raises the most severe exception."""
        futures: list[Future[None]] = []
        faults: list[Exception] = []
        for item in items:
            try:
                futures.append(self._patchers.submit(do, item))
            except RuntimeError:  # closed meanwhile
                faults.append(NotLeader("stopping"))
                break
        for future in futures:
            try:
                future.result()
            except CancelledError:
                faults.append(NotLeader("stopping"))
            except Exception as fault:
                faults.append(fault)
        if faults:
            raise min(faults, key=_retry_priority)

    def _evict_pod(self, pod: Pod) -> None:
        match writes.evict_pod(self._api, pod, fence=self._fence):
            case Refused(message=message):
                self.events.publish_for_pod(pod, "EvictionRefused", f"cannot be evicted: {message}")
            case _:
                return

    def _delete_pod(self, pod: Pod) -> None:
        # No disruption budget protects a pod that is not bound, and an eviction tells its Job that it was disrupted: a
        # Job that ignores disruptions counts a deleted one as a failure.
        remove = writes.delete_pod if pod.spec.node_name else writes.evict_pod
        if isinstance(result := remove(self._api, pod, fence=self._fence), Refused):
            raise writes.WriteRefused(result.message)


def _retry_priority(fault: Exception) -> int:
    """Return the rank of an exception: first those that end the term, then those that a new reconcile cannot solve."""
    return 0 if isinstance(fault, NotLeader) else 2 if isinstance(fault, StaleObject) else 1


def _pod_set_name(gang: Gang, pod: Pod) -> str:
    """Return the name of a pod's pod set; a pod that is placed alone has its own label for it."""
    found = None if gang.workload.unit == "pod" else pod_set_of(pod, gang.workload)
    return found.name if found is not None else pod.spec.labels.get(names.POD_SET, names.MAIN)
