"""Reports a gang's status and Events, delayed where they may change again at once, and the metrics of the queue.

A change of phase or reason is news: a status and an Event. Where only the text has changed (its numbers, mostly), the
status follows without an Event, some seconds after it was written last. A Placement that says another request than the
workload makes now is corrected at once.
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

# The text of one gang's status is written again no sooner than this after it was written last (seconds).
TEXT_EVERY: Final = 10.0
# Pods of one gang that get their Events at one look; the queue of Events holds a thousand.
PODS_AT_A_TIME: Final = 200


class StatusReporter:
    """Takes in what each look found, and writes it when it is due."""

    def __init__(self, view: ClusterState, errands: ActionExecutor, term: LeaderTerm) -> None:
        self._view = view
        self._errands = errands
        self._term = term

    def report(self, key: str, gang: Gang, status: Status, now: float) -> None:
        """Take in how a gang stands; nothing is written of what its Placement says already."""
        memory = self._term.of(key)
        if self._is_news(memory, gang, status):
            self._term.texts.drop(key)
            pause = settle(status) + self._term.rush.delay(status.phase, now)
            due = now + pause
            if memory.pending_status is not None and memory.pending_status[1].phase == status.phase and pause:
                due = memory.pending_status[0]
            memory.pending_status = (due, status)
            return
        memory.pending_status = None
        self._tell_pods(memory, gang, status, now)
        if not self._request_written(gang):
            memory.pending_status = (now, status)
        elif gang.placement is not None and status_of(gang) != status:
            self._term.texts.put(key, status, due=max(now, memory.reported_at + TEXT_EVERY))
        else:
            self._term.texts.drop(key)

    def _tell_pods(self, memory: GangState, gang: Gang, status: Status, now: float) -> None:
        """Tell the held pods of a gang that waits why they are: whoever looks at a pod finds nothing else there.

        Of plain pods that make no gang each one, as they have neither workload nor Placement; of others the first few.
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
        untold = [pod for pod in held if known.get(pod.uid) != reason]
        for pod in untold[:PODS_AT_A_TIME]:
            known[pod.uid] = reason
            self._errands.pod_event(pod, reason if plain else "HeldWithoutSlot", why)
        if len(untold) > PODS_AT_A_TIME:
            memory.wake_at(now + 1.0)
        memory.reported_pods = known

    def reported(self, key: str, gang: Gang, status: Status, now: float) -> bool:
        """Take in what an errand tells by itself; True when that is worth an Event."""
        memory = self._term.of(key)
        news = self._is_news(memory, gang, status)
        self._term.texts.drop(key)
        memory.reported, memory.reported_at, memory.pending_status = status, now, None
        return news

    def flush_due(self, now: float) -> None:
        """Write what has lasted long enough to be told."""
        for key, memory in list(self._term.memory.items()):
            if memory.pending_status is None or memory.pending_status[0] > now or key in self._term.busy:
                continue
            status, memory.pending_status = memory.pending_status[1], None
            if status.phase == "Waiting" and (later := self._term.pace.wait(memory.namespace, now)):
                memory.pending_status = (now + later, status)
                continue
            self._term.guarded(key, now, partial(self._tell_one, key, status, now))
        for key, status in self._term.texts.take(now, busy=self._term.busy):
            self._term.guarded(key, now, partial(self._tell_one, key, status, now))

    def _tell_one(self, key: str, status: Status, now: float) -> None:
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
        self._term.send(key, lambda: self._errands.tell(gang, status, facts, event=event, since=since))

    def _is_news(self, memory: GangState, gang: Gang, status: Status) -> bool:
        if gang.placement is None and gang.understanding.asked is not None:
            return True  # none is there yet, or somebody has deleted it
        known = memory.reported or status_of(gang)
        return known is None or differs(known, status)

    def _request_written(self, gang: Gang) -> bool:
        return request_written(gang, priority=self._view.coming.priority_of(gang.workload))


class QueueMetrics:
    """Outlives terms: what was shown of one is taken back in the next."""

    def __init__(self) -> None:
        self._counted: set[str] = set()  # reasons that the metrics show gangs for

    def show(self, term: LeaderTerm) -> None:
        """Tell the metrics who waits, and why: of reason codes there are few."""
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
