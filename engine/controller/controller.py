"""The leader's control loop: changes -> reconcile -> plan -> write.

One thread decides; a bounded pool writes. While a gang's write is in progress the gang is left alone, and its plan
counts as reserved from the moment it is made. All state here can be lost at any moment: the next leader rebuilds it
from Placements and pods. A replica that does not lead keeps its cluster state current and decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from engine import metrics
from engine.api.workload import GangKey
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.extension_scheduler import ExtensionScheduler
from engine.controller.gang_events import gang_name
from engine.controller.gang_scheduler import GangScheduler
from engine.controller.mover import Mover
from engine.controller.orphans import OrphanCollector
from engine.controller.preemptor import Preemptor
from engine.controller.provisioner import Provisioner
from engine.controller.replan_scheduler import ReplanScheduler
from engine.controller.reporter import QueueMetrics, StatusReporter
from engine.controller.term import WRITERS, LeaderTerm
from engine.gang.gang import Gang, ungated_pods
from engine.gang.slots import Unassigned
from engine.lifecycle import reconcile
from engine.lifecycle.actions import (
    Decision,
    Enqueue,
    EvictPods,
    Extend,
    NoAction,
    ReassignDevices,
    RecordReplan,
    Release,
    Replan,
    Resume,
    Shrink,
    Status,
    Unmanage,
    Unplace,
)
from engine.lifecycle.gang_state import GangState
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.withdrawn import unused_plan
from engine.scheduler.fairness import Shares
from engine.scheduler.queue import GangQueue
from engine.scheduler.schedule import rewritten
from engine.scheduler.starvation import Nominator

log = logging.getLogger("topogate.controller")

IDLE = 5.0  # the loop checks its timers at least this often
# Seconds. A burst of changes is handled in one turn: a turn costs as much as its gangs have pods, so one turn per event
# would make the cost of a gang grow with the square of its size. The first change after a rest is never delayed; a turn
# that took longer is followed by as long a rest. Without the Lease a turn only keeps the cluster state current.
TURN_EVERY, FOLLOW_EVERY, LONGEST_REST = 0.05, 0.2, 0.25
# A gang is reconciled again after this many times the duration of its last reconcile: while hundreds of its pods come
# one by one, most reconciles would find nothing to do yet. While many gangs are placed, a placed one that needs nothing
# rests for the longest time: the gangs that still wait go first.
GANG_REST = 9.0
# Gangs above the limit of their namespace are reconciled again after this long (seconds).
LIMIT_CHECK = 30.0
_LATER = "older pods of its controller with other eligible hosts (nodeSelector, affinity, devices, ...) go first"


class Controller:
    """Owns the control loop; call `run` in a thread of its own, `stop` from any."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        *,
        leads: Callable[[], bool],
        begin_term: Callable[[], bool],
        hidden: Callable[[], AbstractSet[tuple[str, str]]] = frozenset,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pool: Executor | None = None,
    ) -> None:
        """Take callbacks: `begin_term` refreshes the caches and returns False if that failed (it is retried).

        `hidden` returns the kinds of workloads, by group and name, that may not be read: their absence proves nothing.
        `pool` runs the writes; it is shut down at the end.
        """
        self._view = view
        self._executor = executor
        self._leads = leads
        self._begin_term = begin_term
        self._hidden = hidden
        self._monotonic = monotonic
        self._wall = wall
        self._pool = pool or ThreadPoolExecutor(max_workers=WRITERS, thread_name_prefix="write")
        self._stop = threading.Event()
        self._in_term = False
        self._queue_metrics = QueueMetrics()
        self._fenced = threading.Event()  # a write was stopped because its term is over
        self._reset()

    def _reset(self) -> None:
        self._term = LeaderTerm(self._view, self._pool, monotonic=self._monotonic, fenced=self._fenced.set)
        self._reporter = StatusReporter(self._view, self._executor, self._term)
        clocks = {"monotonic": self._monotonic, "wall": self._wall}
        self._preemptor = Preemptor(self._view, self._executor, self._term, self._reporter, **clocks)
        self._mover = Mover(self._view, self._executor, self._term, self._reporter, self._preemptor, **clocks)
        self._gangs = GangScheduler(
            self._view,
            self._executor,
            self._term,
            self._reporter,
            preemptor=self._preemptor,
            mover=self._mover,
            **clocks,
        )
        self._extensions = ExtensionScheduler(self._view, self._executor, self._term, self._reporter, wall=self._wall)
        self._provisioner = Provisioner(self._view, self._executor, self._term, self._reporter, wall=self._wall)
        self._replans = ReplanScheduler(self._view, self._executor, self._term, wall=self._wall)
        self._orphans = OrphanCollector(self._view, self._executor, self._term, hidden=self._hidden)
        self._settling = False
        # Gangs to reconcile that were postponed, as their namespace had used its share.
        self._behind: dict[GangKey, None] = {}

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Loop until `stop`; an exception in a pass is logged, and the next pass starts a new term."""
        not_before = float("-inf")
        while not self._stop.is_set():
            began = self._monotonic()
            try:
                self._view.changed.wait(timeout=self._pause())
                self._stop.wait(max(0.0, not_before - self._monotonic()))
                if self._stop.is_set():
                    break
                began = self._monotonic()
                self.turn()
            except Exception:
                log.exception("a pass of the controller failed")
                metrics.controller_faults.inc()
                self._in_term = False
                self._stop.wait(1.0)
            ended = self._monotonic()
            rest = max(TURN_EVERY if self._in_term else FOLLOW_EVERY, ended - began)
            not_before = ended + min(rest, LONGEST_REST)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End the loop after the current pass; started writes are finished."""
        self._stop.set()
        self._view.changed.set()

    def turn(self) -> None:
        """Run one pass: reconcile the changed gangs, plan, report."""
        if self._fenced.is_set():
            # The Lease was lost, and perhaps won again, since the last turn: decisions are of an earlier term.
            self._fenced.clear()
            self._in_term = False
        if not self._leads():
            self._in_term = False
            self._view.take_changes()  # and drop them: a term begins by reconciling everything
            self._term.queue, self._term.nominator = GangQueue(), Nominator()
            self._queue_metrics.show(self._term, self._monotonic())
            return
        begins = False
        if not self._in_term:
            if self._term.busy:
                self._view.take_changes()
                return  # writes of the last term are still in progress
            self._reset()
            if not self._begin_term():
                self._stop.wait(0.5)
                return
            self._in_term = True
            self._view.begin_term()
            self._view.take_changes()
            changes = Changes(everything=True, capacity_freed=True, hosts=True)
            begins = True
        else:
            changes = self._view.take_changes()
        now = self._monotonic()
        self._preemptor.refresh(changes, now)
        self._mover.refresh(changes, now)
        self._reconcile_all(self._due(changes, now), now, all_of_them=begins)
        if changes.hosts:
            self._term.queue.hosts_changed()
        if changes.everything or changes.capacity_freed:
            self._term.retry_waiting()
        self._extensions.plan(now, growing=False)
        self._gangs.plan(now)
        self._extensions.plan(now, growing=True)
        self._preemptor.plan(now)
        self._mover.plan(now)
        self._provisioner.plan(now, changed=bool(changes.gangs or changes.everything or changes.hosts))
        self._reporter.flush_due(now)
        self._orphans.pods(changes, now)
        self._orphans.placements(now)
        self._queue_metrics.show(self._term, self._monotonic())

    def _due(self, changes: Changes, now: float) -> list[GangKey]:
        due = changes.gangs | self._behind.keys()
        if changes.everything:
            with self._view.lock:
                due |= set(self._view.gangs.keys())
        for key, gang_state in self._term.gang_state.items():
            if gang_state.wake is not None and gang_state.wake <= now:
                due.add(key)
            if key in due and gang_state.rests_until > now:
                due.remove(key)
                gang_state.wake = gang_state.rests_until
        return sorted(due - self._term.busy)

    def _reconcile_all(self, keys: list[GangKey], now: float, *, all_of_them: bool) -> None:
        """Reconcile gangs within the shares of their namespaces; those postponed longest go first in the next pass.

        At the beginning of a term all gangs have to be in the queue before the first of them is planned.
        """
        with self._view.lock:
            namespaces = {key: self._view.gangs.namespace_of(key) for key in keys}
        shares = Shares(set(namespaces.values()), self._monotonic, due=len(keys))
        # In the order of their postponement: else those with news all the time would keep others from their turn.
        behind, self._behind = {key: place for place, key in enumerate(self._behind)}, {}
        for key in sorted(keys, key=lambda key: behind.get(key, len(behind))):
            namespace = namespaces[key]
            if not all_of_them and not shares.left(namespace):
                self._behind[key] = None
                continue
            with shares.used_by(namespace):
                self._term.guarded(key, now, partial(self._reconcile_one, key, now))

    def _pause(self) -> float:
        if not self._in_term:
            return 0.2
        now = self._monotonic()
        times = [now + IDLE]
        if self._behind or self._gangs.behind:
            times.append(now)
        waits = (self._view.grace_until(), self._preemptor.next(), self._mover.next())
        times += [one for one in waits if one is not None]
        for key, gang_state in self._term.gang_state.items():
            if key in self._term.busy:
                continue  # the end of its write wakes the loop
            if gang_state.wake is not None:
                times.append(gang_state.wake)
            if gang_state.pending_status is not None:
                times.append(gang_state.pending_status[0])
        busy = self._term.busy
        times += [
            due
            for queue in (self._term.texts, self._term.places, self._term.numbers)
            if (due := queue.next(busy=busy)) is not None
        ]
        if len(self._term.queue) or len(self._term.extensions):
            with self._view.lock:
                settling = self._view.unsettled(self._wall())
            if settling or self._settling:
                times.append(now + 0.25)
                self._term.retry_waiting()  # one more try after the last node has settled
            self._settling = bool(settling)
        if len(self._orphans):
            times.append(now + 1.0)
        if (due := self._provisioner.due) is not None:
            times.append(due)
        return max(0.01, min(times) - now)

    # -- one gang ----------------------------------------------------------------------------------------------------

    def _reconcile_one(self, key: GangKey, now: float) -> None:
        view = self._view
        began = self._monotonic()
        with view.lock:
            gang = view.gangs.get(key)
            if gang is None:
                self._let_go(key)
                return
            if view.gangs.is_idle(key):
                self._forget(key)  # no news of its workload reaches it any more
                return
            gang_state = self._term.of(key)
            gang_state.namespace = gang.workload.namespace
            if gang_state.name is None and gang.request.asked is not None:
                gang_state.name = gang_name(gang)
            gang_state.wake = None
            wall = self._wall()
            hosts = HostHealth(gang, view.capacity, view.topologies, now=wall)
            decision = reconcile.reconcile(
                gang,
                timers=gang_state.timers,
                policy=view.policy,
                now=now,
                wall=wall,
                hosts=hosts,
                preempted=self._preemptor.preempted(gang),
            )
        self._act(key, gang, decision, gang_state, now)
        ended = self._monotonic()
        rest = GANG_REST * (ended - began)
        if gang.placement is not None and isinstance(decision.action, NoAction) and self._term.bursts.lasts(now):
            rest = LONGEST_REST
        gang_state.rests_until = ended + min(rest, LONGEST_REST)

    def _let_go(self, key: GangKey) -> None:
        """Forget a gang that is gone, and take the slots of a replica that was scaled away.

        They are free for others: it must not have them again when it is scaled up before its Placement is deleted. The
        caller holds the state's lock.
        """
        known, gangs = self._term.gang_state.get(key), self._view.gangs
        left = gangs.placement_of(key) if gangs.is_scaled_away(key) else None
        self._forget(key)
        if left is not None and left.assignment is not None and not left.deleting:
            fresh = self._term.of(key)  # until it is written: a write that fails is tried again after a while
            fresh.namespace, fresh.failures = left.namespace, known.failures if known is not None else 0
            self._term.send(key, partial(self._executor.take_slots, left))

    def _forget(self, key: GangKey) -> None:
        """Forget a gang that is gone; record that, if it had not ended."""
        known = self._term.gang_state.get(key)
        self._term.forget(key)
        if known is None or known.name is None or known.current is None or known.current.phase == "Finished":
            return
        self._executor.events.record_deleted(known.name, placed=known.current.phase != "Waiting")

    def _below_limit(self, key: GangKey, gang: Gang) -> bool:
        """Return False if the gang's namespace already has as many gangs as the policy allows."""
        limit = self._view.policy.queue.max_namespace_gangs
        namespace = gang.workload.namespace
        known = max(self._term.counted[namespace], self._view.gangs.in_namespace(namespace))
        return self._term.gang_state[key].counts or known < limit

    def _wait_for_limit(self, key: GangKey, gang: Gang, now: float) -> None:
        """Do not place a gang above the limit of its namespace; it has no Placement, and is reconciled again later.

        Its submission was not refused: replicas were scaled up, or many came at once.
        """
        self._term.queue.drop(key)
        gang_state, of = self._term.gang_state[key], (gang.workload.namespace, gang.workload.uid)
        gang_state.wake, gang_state.above_limit = now + LIMIT_CHECK, of
        reported = of in self._term.limit_reported
        self._term.limit_reported.setdefault(of, set()).add(key)
        if not reported:
            self._executor.events.publish_limit(gang, self._view.policy.queue.max_namespace_gangs)

    def _act(self, key: GangKey, gang: Gang, decision: Decision, gang_state: GangState, now: float) -> None:
        gang_state.wake = decision.wake
        waits = isinstance(decision.action, Enqueue)
        if waits and gang.placement is None and not self._below_limit(key, gang):
            self._wait_for_limit(key, gang, now)
            return
        ends = gang.workload.finished or gang.workload.deleting
        self._term.count(key, not ends and (gang.placement is not None or waits))
        if not waits:
            self._term.queue.drop(key)
            self._term.numbers.drop(key)
            gang_state.waiting_since = None
            gang_state.end_wait("withdrawn", now)
        if not isinstance(decision.action, Extend):
            self._term.extensions.drop(key)
        self._tell_about_pods(gang, decision, gang_state)
        if decision.status is not None:
            self._reporter.report(key, gang, decision.status, now)
        self._perform(key, gang, decision, gang_state, now)

    def _tell_about_pods(self, gang: Gang, decision: Decision, gang_state: GangState) -> None:
        """Publish an Event for each pod that gets no slot, or whose gate somebody else has removed: once."""
        ungated = ungated_pods(gang.workload, gang.pods) if gang.request.asked is not None else []
        refusals = (*decision.refused, *(Unassigned(pod, _LATER) for pod in gang.later))
        known = gang_state.refused
        gang_state.refused = frozenset(pod.uid for pod in (*(refused.pod for refused in refusals), *ungated))
        events = self._executor.events
        for refused in refusals:
            if refused.pod.uid not in known:
                events.publish_for_pod(refused.pod, "HeldWithoutSlot", refused.why)
        fresh = [pod for pod in ungated if pod.uid not in known]
        for pod in fresh:
            message = "someone else removed its scheduling gate; it counts on the node where it runs"
            events.publish_for_pod(pod, "GateRemoved", message)
        if fresh:
            events.record_gates_removed(gang, len(fresh))

    def _perform(self, key: GangKey, gang: Gang, decision: Decision, gang_state: GangState, now: float) -> None:
        """Begin the action of a decision: a place in a queue, or a write."""
        executor = self._executor
        match decision.action:
            case NoAction():
                return
            case Enqueue():
                self._gangs.add(key, gang, decision.wake, now)
            case Resume():
                self._term.send(key, lambda: executor.resume(gang))
            case Unplace() as lost:
                self._unplace(key, gang, lost, gang_state, now)
            case Shrink(assignment=assignment):
                self._term.send(key, lambda: executor.rewrite(gang, assignment))
            case ReassignDevices(assignment=assignment):
                # Reserved from now on: another gang that looks for devices meanwhile must not find the same ones.
                self._view.assume(key, rewritten(gang, assignment))
                self._term.send(key, lambda: executor.rewrite(gang, assignment))
            case Extend() as action:
                self._extensions.add(key, gang, action, now)
            case EvictPods() as gone:
                self._term.send(
                    key,
                    lambda: executor.remove(
                        gang, gone.pods, evict=gone.evict, reason=gone.reason, message=gone.message
                    ),
                )
            case Release(assignments=assignments):
                self._term.send(key, lambda: executor.release(gang, assignments))
            case Replan():
                self._replans.plan(key, gang, now)
            case RecordReplan(record=record):
                self._term.send(key, lambda: executor.record_replan(gang, record))
            case Unmanage() as let:
                gang_state.name = None
                self._reporter.drop(key)
                self._term.send(key, lambda: executor.unmanage(gang, let))

    def _unplace(self, key: GangKey, gang: Gang, lost: Unplace, gang_state: GangState, now: float) -> None:
        """Begin to remove the assignment of a gang."""
        gang_state.last_plan = None
        status = Status("Waiting", lost.reason, lost.message)
        # Reported with the write, not after it: the next plan, and its own reason, may come a moment later.
        event = self._reporter.reported(key, gang, status, now)
        unused = None if lost.suspend else unused_plan(gang, lost.reason, now)

        def unplace() -> None:
            self._executor.unplace(
                gang, status, suspend=lost.suspend, event=event, failed=lost.failed, moves=lost.moves
            )
            # A failed write does not end the waiting times: it is retried after the ordinary back-off.
            rest = self._view.policy.timeouts.bind / 10 if lost.suspend else 0.0
            gang_state.timers.given_back(now, rest=rest, unused=unused)
            if lost.pause and (lost.suspend or gang.workload.suspended):
                gang_state.timers.pause(now)

        self._term.send(key, unplace)
