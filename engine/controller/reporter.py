"""Reports a gang's status and Events, delayed if they may change again at once, and the metrics of the queue.

A change of phase or reason is news: a status and an Event. If only the text has changed (mostly its numbers), the
status follows without an Event, some seconds after the last write. A Placement with another request than the workload's
current one is corrected at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine import metrics
from engine.api.event_reasons import ON_PHASES
from engine.api.reasons import Code, reason_of
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.gang_events import REPORTED_PODS
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang
from engine.gang.plain_pods import in_order
from engine.gang.summary import summary_of
from engine.lifecycle.actions import Status
from engine.lifecycle.gang_state import GangState
from engine.lifecycle.reconcile import request_written
from engine.lifecycle.status import (
    details_body,
    differs,
    has_details,
    may_have_failed,
    settle,
    status_of,
    with_failures,
    written_failures,
)
from engine.scheduler.queue import QueuePlace, written_place

# Minimum time between writes of the text of one gang's status (seconds).
TEXT_EVERY: Final = 10.0
# The longest wait for the first status of a Placement (seconds): as long as `Placed` has to last.
FIRST_STATUS: Final = ON_PHASES["Placed"].settles
# Pods of one gang that get their Events in one reconcile; the queue of Events holds a thousand.
PODS_AT_A_TIME: Final = 200


class StatusReporter:
    """Takes the status of each reconcile, and writes it when it is due."""

    def __init__(self, view: ClusterState, executor: ActionExecutor, term: LeaderTerm) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._moved_at = float("-inf")
        self._places: dict[GangKey, QueuePlace | None] = {}

    def report(self, key: GangKey, gang: Gang, status: Status, now: float) -> None:
        """Take the status of a gang; a status that its Placement already has is not written."""
        gang_state = self._term.of(key)
        gang_state.plain_status = status
        status = _with_notes(gang_state, self._with_failures(gang_state, gang, status))
        gang_state.current = status
        if not gang_state.place_known and gang.placement is not None:
            gang_state.place, gang_state.place_known = written_place(gang.placement.status), True
        if self._is_news(gang_state, gang, status):
            self._term.texts.drop(key)
            # A Placement without any phase says nothing at all: it gets its first one soon, whatever happens meanwhile,
            # and a reason that may pass is reported later.
            first = gang.placement is not None and gang_state.reported is None and status_of(gang) is None
            if first and settle(status) > FIRST_STATUS:
                gang_state.reason_due = gang_state.reason_due or (now + settle(status), status.reason)
                status = replace(status, reason="")
            pause = min(settle(status), FIRST_STATUS) if first else settle(status)
            pause += self._term.bursts.delay(status.phase, now)
            due, pending = now + pause, gang_state.pending_status
            if pending is not None and pause and (first or pending[1].phase == status.phase):
                due = min(due, pending[0]) if first else pending[0]
            if gang_state.reason_due is not None and status.reason == gang_state.reason_due[1]:
                due = min(due, gang_state.reason_due[0])
            elif not first:
                gang_state.reason_due = None
            gang_state.pending_status = (due, status)
            return
        gang_state.pending_status = gang_state.reason_due = None
        self._report_pods(gang_state, gang, status, now)
        if not self._request_written(gang):
            gang_state.pending_status = (now, status)
        elif gang.placement is not None and not self._is_written(gang_state, gang, status):
            self._term.texts.put(key, status, due=max(now, gang_state.reported_at + TEXT_EVERY))
        else:
            self._term.texts.drop(key)

    def _with_failures(self, gang_state: GangState, gang: Gang, status: Status) -> Status:
        """Return a status with what is known of failed pods; what is not is read when the status is written."""
        if not may_have_failed(gang, status):
            gang_state.failed_pods = None
        elif gang_state.failed_pods is None or gang_state.failed_pods_for != status.message:
            known = written_failures(gang.placement.status, status) if gang.placement is not None else None
            gang_state.failed_pods, gang_state.failed_pods_for = known, status.message
        return status if gang_state.failed_pods is None else with_failures(status, gang_state.failed_pods)

    def _report_pods(self, gang_state: GangState, gang: Gang, status: Status, now: float) -> None:
        """Record Events on the held pods of a gang that waits, or of which more pods wait for slots.

        The pods themselves show no other reason. Plain pods that make no gang all get one, as they have neither
        workload nor Placement; of others the first few.
        """
        plain, reason_now = gang.workload.handling == "pods", reason_of(status.reason)
        waits = status.phase == "Waiting" or (reason_now is not None and reason_now.of_room)
        if not waits or not status.reason or (plain and not gang.request.errors):
            gang_state.reported_pods = {}
            return
        held = [pod for pod in in_order(gang.pods) if pod.held]
        known = {pod.uid: gang_state.reported_pods[pod.uid] for pod in held if pod.uid in gang_state.reported_pods}
        why = status.message
        reason: Code = status.reason
        if not plain:
            held = held[:REPORTED_PODS]
            why = f"the {gang.workload.kind} {gang.workload.name} waits for slots ({reason}): {why}"
        unreported = [pod for pod in held if known.get(pod.uid) != reason]
        for pod in unreported[:PODS_AT_A_TIME]:
            known[pod.uid] = reason
            self._executor.events.publish_for_pod(pod, reason if plain else "HeldWithoutSlot", why)
        if len(unreported) > PODS_AT_A_TIME:
            gang_state.wake_at(now + 1.0)
        gang_state.reported_pods = known

    def reported(self, key: GangKey, gang: Gang, status: Status, now: float) -> bool:
        """Record a status that the executor reports with its own write; return True if it deserves an Event."""
        gang_state = self._term.of(key)
        news = self._is_news(gang_state, gang, status)
        self._term.texts.drop(key)
        gang_state.reported, gang_state.reported_at, gang_state.pending_status = status, now, None
        gang_state.current, gang_state.details = status, None
        gang_state.place, gang_state.place_known = None, True
        return news

    def drop(self, key: GangKey) -> None:
        """Drop the status of a gang that is not managed any more: were it written later, its Placement would be new."""
        gang_state = self._term.of(key)
        gang_state.pending_status = gang_state.reason_due = gang_state.current = gang_state.reported = None
        self._term.texts.drop(key)
        self._term.places.drop(key)

    def flush_due(self, now: float) -> None:
        """Write the statuses that are due."""
        for key, gang_state in list(self._term.gang_state.items()):
            if gang_state.pending_status is None or gang_state.pending_status[0] > now or key in self._term.busy:
                continue
            (due, status), gang_state.pending_status = gang_state.pending_status, None
            since = due if gang_state.due_since is None else gang_state.due_since
            if later := self._term.bursts.extension(status.phase, since, now):
                gang_state.pending_status, gang_state.due_since = (now + later, status), since
                continue
            gang_state.due_since = None
            if status.phase == "Waiting" and (later := self._term.report_limiter.wait(gang_state.namespace, now)):
                gang_state.pending_status = (now + later, status)
                continue
            self._term.guarded(key, now, partial(self._write_status, key, status, now))
        for key, status in self._term.texts.take(now, busy=self._term.busy):
            self._term.guarded(key, now, partial(self._write_status, key, status, now))
        if now >= self._moved_at + TEXT_EVERY:
            self._moved_at = now
            self._find_moved(now)
        for key, _ in self._term.places.take(now, busy=self._term.busy):
            gang_state = self._term.of(key)
            if gang_state.current is not None and gang_state.pending_status is None:
                self._term.guarded(key, now, partial(self._write_status, key, gang_state.current, now, moved=True))

    def _find_moved(self, now: float) -> None:
        """Have the status written of gangs whose place in the queue has changed by much."""
        self._places = self._term.queue.places(self._queues)
        for key, place in self._places.items():
            gang_state = self._term.of(key)
            if gang_state.place_known and _moved(gang_state.place, place):
                self._term.places.put(key, None, due=max(now, gang_state.reported_at + TEXT_EVERY))

    def _queues(self, key: GangKey) -> bool:
        """Return True if a gang waits for room, so that it has a place in the queue."""
        current = self._term.of(key).current
        reason = reason_of(current.reason) if current is not None else None
        return reason is None or reason.queued

    def _place(self, key: GangKey, status: Status) -> QueuePlace | None:
        """Return the place of a gang in the queue; all places are found again if it is new there."""
        if status.phase != "Waiting" or key not in self._term.queue or not self._queues(key):
            return None
        if self._places.get(key) is None:
            self._places = self._term.queue.places(self._queues)
        return self._places[key]

    def _write_status(self, key: GangKey, status: Status, now: float, *, moved: bool = False) -> None:
        """Write a status unless its Placement has it; with `moved` also for another place in the queue alone."""
        gang_state = self._term.gang_state[key]
        with self._view.lock:
            gang = self._view.gangs.get(key)
        if gang is None:
            return
        known = gang_state.reported or status_of(gang)
        event = known is None or differs(known, status)
        gang_state.reported, gang_state.reported_at = status, now
        place = self._place(key, status)
        moved = moved and _moved(gang_state.place, place)
        if not moved and self._is_written(gang_state, gang, status) and self._request_written(gang):
            return
        gang_state.details = self._details(gang, status)
        gang_state.place, gang_state.place_known = place, True
        self._term.places.drop(key)
        told, placed, since = replace(status, place=place), gang_state.last_plan, gang_state.waiting_since

        def report() -> None:
            explained = told
            if may_have_failed(gang, told) and gang_state.failed_pods is None:
                gang_state.failed_pods, gang_state.failed_pods_for = self._executor.failures(gang), told.message
                explained = with_failures(told, gang_state.failed_pods)
            self._executor.report(gang, explained, placed, event=event, since=since)

        self._term.send(key, report)

    def _is_news(self, gang_state: GangState, gang: Gang, status: Status) -> bool:
        if gang.placement is None and gang.request.asked is not None:
            return True  # there is no Placement yet, or it was deleted
        known = gang_state.reported or status_of(gang)
        return known is None or differs(known, status)

    def _is_written(self, gang_state: GangState, gang: Gang, status: Status) -> bool:
        """Return True if the Placement of a gang has its status, with the numbers and labels of today.

        Numbers that were written before and are not there have been dropped by the API server, whose CRD is older.
        """
        if gang.placement is None or status_of(gang) != status or not gang.placement.labelled:
            return False
        details = self._details(gang, status)
        if details == gang_state.details:
            return True
        # the place in the queue has a pace of its own
        at_place = self._details(gang, replace(status, place=written_place(gang.placement.status)))
        return has_details(gang.placement, at_place[1])

    def _details(self, gang: Gang, status: Status) -> tuple[int, dict[str, Any]]:
        """Return the generation of a gang's Placement, and the numbers of its status."""
        placement = gang.placement
        if placement is None:
            return 0, {}
        topology = self._view.topologies.get(placement.topology)
        return placement.generation, details_body(
            summary_of(gang, topology), status.shortage, status.place, status.provisioning, status.restarts
        )

    def _request_written(self, gang: Gang) -> bool:
        return request_written(gang, priority=self._view.pod_shapes.priority_of(gang.workload))


def _with_notes(gang_state: GangState, status: Status) -> Status:
    """Return the status of a gang that waits with what was requested for it, and which restarts would help.

    While others end for it, it waits for them alone: that status is read back as it was written.
    """
    reason = reason_of(status.reason)
    if status.phase != "Waiting" or (reason is not None and reason.preempts):
        return status
    if (nodes := gang_state.nodes) is not None:
        status = replace(status, message=f"{status.message}; {nodes.text}", provisioning=nodes.body)
    if (restarts := gang_state.restarts) is not None:
        status = replace(status, message=f"{status.message}; {restarts.text}", restarts=restarts)
    return status


def _moved(before: QueuePlace | None, now: QueuePlace | None) -> bool:
    """Return True if another place in the queue is worth a write."""
    return before != now if before is None or now is None else not before.is_near(now)


class QueueMetrics:
    """The metrics of waiting gangs; outlives terms, so that values of one term are reset in the next."""

    def __init__(self) -> None:
        self._counted: set[str] = set()  # reasons with a value in the metrics

    def show(self, term: LeaderTerm, now: float) -> None:
        """Set the metrics to the waiting gangs by reason code, of which there are few, and to the rooms kept."""
        reasons = Counter[str]()
        oldest: dict[str, float] = {}
        for key in term.queue:
            gang_state = term.gang_state.get(key)
            if gang_state is not None and gang_state.reported is not None and gang_state.reported.reason:
                reason = gang_state.reported.reason
                reasons[reason] += 1
                if gang_state.wait is not None:
                    oldest[reason] = max(oldest.get(reason, 0.0), now - gang_state.wait.since)
        for code in self._counted | reasons.keys():
            metrics.waiting.labels(code).set(reasons[code])
            metrics.oldest_wait.labels(code).set(oldest.get(code, 0.0))
        self._counted = set(reasons)
        metrics.queued.set(len(term.queue))
        metrics.nominations.set(len(term.nominator))
