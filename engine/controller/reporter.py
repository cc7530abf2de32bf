"""Reports a gang's status and Events, delayed if they may change again at once, and the metrics of the queue.

A change of phase or reason is news: a status and an Event. If only the text has changed (mostly its numbers), the
status follows without an Event, some seconds after the last write. A Placement with another request than the workload's
current one is corrected at once.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from engine import metrics
from engine.api import names
from engine.api.reasons import Code
from engine.cache.state import ClusterState
from engine.controller.actions import Status
from engine.controller.executor import TOLD_PODS, ActionExecutor
from engine.controller.gang_state import GangState
from engine.controller.reconcile import request_written
from engine.controller.status import differs, settle, status_of
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang
from engine.gang.plain_pods import in_order

# Minimum time between writes of the text of one gang's status (seconds).
TEXT_EVERY: Final = 10.0
# Pods of one gang that get their Events in one reconcile; the queue of Events holds a thousand.
PODS_AT_A_TIME: Final = 200


class StatusReporter:
    """Takes the status of each reconcile, and writes it when it is due."""

    def __init__(self, view: ClusterState, executor: ActionExecutor, term: LeaderTerm) -> None:
        self._view = view
        self._executor = executor
        self._term = term

    def report(self, key: str, gang: Gang, status: Status, now: float) -> None:
        """Take the status of a gang; a status that its Placement already has is not written."""
        memory = self._term.of(key)
        if self._is_news(memory, gang, status):
            self._term.texts.drop(key)
            pause = settle(status) + self._term.bursts.delay(status.phase, now)
            due = now + pause
            if memory.pending_status is not None and memory.pending_status[1].phase == status.phase and pause:
                due = memory.pending_status[0]
            memory.pending_status = (due, status)
            return
        memory.pending_status = None
        self._report_pods(memory, gang, status, now)
        if not self._request_written(gang):
            memory.pending_status = (now, status)
        elif gang.placement is not None and status_of(gang) != status:
            self._term.texts.put(key, status, due=max(now, memory.reported_at + TEXT_EVERY))
        else:
            self._term.texts.drop(key)

    def _report_pods(self, memory: GangState, gang: Gang, status: Status, now: float) -> None:
        """Record Events on the held pods of a waiting gang, because the pods themselves show no other reason.

        Plain pods that make no gang all get one, as they have neither workload nor Placement; of others the first few.
        """
        plain = gang.workload.handling == "pods"
        if status.phase != "Waiting" or not status.reason or (plain and not gang.understanding.errors):
            memory.reported_pods = {}
            return
        held = [
            pod for pod in in_order(gang.pods) if names.GATE in pod.spec.gates and not (pod.finished or pod.deleting)
        ]
        known = {pod.uid: memory.reported_pods[pod.uid] for pod in held if pod.uid in memory.reported_pods}
        why = status.message
        reason: Code = status.reason
        if not plain:
            held = held[:TOLD_PODS]
            why = f"the {gang.workload.kind} {gang.workload.name} waits for slots ({reason}): {why}"
        unreported = [pod for pod in held if known.get(pod.uid) != reason]
        for pod in unreported[:PODS_AT_A_TIME]:
            known[pod.uid] = reason
            self._executor.pod_event(pod, reason if plain else "HeldWithoutSlot", why)
        if len(unreported) > PODS_AT_A_TIME:
            memory.wake_at(now + 1.0)
        memory.reported_pods = known

    def reported(self, key: str, gang: Gang, status: Status, now: float) -> bool:
        """Record a status that the executor reports with its own write; return True if it deserves an Event."""
        memory = self._term.of(key)
        news = self._is_news(memory, gang, status)
        self._term.texts.drop(key)
        memory.reported, memory.reported_at, memory.pending_status = status, now, None
        return news

    def flush_due(self, now: float) -> None:
        """Write the statuses that are due."""
        for key, memory in list(self._term.memory.items()):
            if memory.pending_status is None or memory.pending_status[0] > now or key in self._term.busy:
                continue
            status, memory.pending_status = memory.pending_status[1], None
            if status.phase == "Waiting" and (later := self._term.report_limiter.wait(memory.namespace, now)):
                memory.pending_status = (now + later, status)
                continue
            self._term.guarded(key, now, partial(self._write_status, key, status, now))
        for key, status in self._term.texts.take(now, busy=self._term.busy):
            self._term.guarded(key, now, partial(self._write_status, key, status, now))

    def _write_status(self, key: str, status: Status, now: float) -> None:
        memory = self._term.memory[key]
        with self._view.lock:
            gang = self._view.gangs.get(key)
        if gang is None:
            return
        known = memory.reported or status_of(gang)
        event = known is None or differs(known, status)
        memory.reported, memory.reported_at = status, now
        written = status_of(gang)
        if written == status and self._request_written(gang):
            return
        facts, since = memory.last_plan, memory.waiting_since
        self._term.send(key, lambda: self._executor.report(gang, status, facts, event=event, since=since))

    def _is_news(self, memory: GangState, gang: Gang, status: Status) -> bool:
        if gang.placement is None and gang.understanding.asked is not None:
            return True  # there is no Placement yet, or it was deleted
        known = memory.reported or status_of(gang)
        return known is None or differs(known, status)

    def _request_written(self, gang: Gang) -> bool:
        return request_written(gang, priority=self._view.pod_shapes.priority_of(gang.workload))


class QueueMetrics:
    """The metrics of waiting gangs; outlives terms, so that values of one term are reset in the next."""

    def __init__(self) -> None:
        self._counted: set[str] = set()  # reasons with a value in the metrics

    def show(self, term: LeaderTerm) -> None:
        """Set the metrics to the number of waiting gangs by reason code; there are few codes."""
        reasons = Counter[str]()
        for key in term.queue:
            memory = term.memory.get(key)
            if memory is not None and memory.reported is not None and memory.reported.reason:
                reasons[memory.reported.reason] += 1
        for reason in self._counted - reasons.keys():
            metrics.waiting.labels(reason).set(0)
        for reason, gangs_of in reasons.items():
            metrics.waiting.labels(reason).set(gangs_of)
        self._counted = set(reasons)
        metrics.queued.set(len(term.queue))
