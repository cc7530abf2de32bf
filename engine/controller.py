"""The leader's loop: what changed -> decide -> plan -> write.

One thread decides; a bounded pool writes. While a gang's write is under way the gang is left alone, and its plan counts
as reserved from the moment it is made. Everything here can be lost at any moment: the next leader rebuilds it from
Placements and pods. A replica that does not lead keeps its view current and decides nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf

from engine import gangs, metrics, names
from engine.cluster.api import ApiFault
from engine.cluster.lease import NotLeader
from engine.cluster.projections import ProjectionError
from engine.device_choice import chosen_anew
from engine.durations import format_duration
from engine.errands import Errands, Outdated
from engine.extension_queue import ExtensionQueue
from engine.gang_keys import placed_key
from engine.gangs import (
    ChooseAnew,
    Decision,
    Extend,
    Gang,
    GiveBack,
    LetGo,
    Release,
    Remove,
    Rest,
    Resume,
    Shrink,
    Status,
    Timers,
)
from engine.gangs import Plan as PlanIt
from engine.members import let_loose
from engine.outcomes import Never, Outcome, Placed, Waits
from engine.patience import KeptRoom, Room, Waiting
from engine.proposal import extended, standing
from engine.queue import Entry, Queue, question_of
from engine.reasons import REASONS
from engine.records import Pod, Slot
from engine.relaxing import relaxes_at
from engine.room import room_for
from engine.rush import Rush
from engine.seats import Refused, moved
from engine.shapes import exclusion
from engine.status import SETTLE, changed, differs, waiting_since
from engine.view import Changes, View
from engine.wording import plural

log = logging.getLogger("topogate.controller")

SWEEP_EVERY = 30.0
IDLE = 5.0  # the loop looks at its timers at least this often
# A burst of changes is taken in together: a turn costs as much as its gangs have pods, so one turn an event would make
# the cost of a gang grow with the square of its size. The first change after a rest is never made to wait; a
# turn that took longer is followed by as long a rest. Seconds; without the Lease a turn only keeps the view current.
TURN_EVERY, FOLLOW_EVERY, LONGEST_REST = 0.02, 0.05, 0.25
# A failed write is tried again after this long, doubling (seconds).
RETRY_FIRST, RETRY_MOST = 0.5, 30.0
# Errands at a time; each waits for the API server most of the time.
WRITERS = 16
# A pod that no gang claims is given this long for its owner to show up in the cache.
UNCLAIMED_AFTER = 10.0
_LATER = "older pods beside it may go to other hosts (nodeSelector, affinity, tolerations, devices) and go first"


@dataclass(slots=True)
class _Memory:
    """What the leader remembers of one gang; lost with the term."""

    timers: Timers = field(default_factory=Timers)
    facts: Placed | None = None
    told: Status | None = None
    telling: tuple[float, Status] | None = None  # due, what
    refused: frozenset[str] = frozenset()  # uids of pods whose Event went out
    wake: float | None = None
    failures: int = 0
    own_trouble: bool = False  # it fits nowhere ever, or its namespace's quota does not take it

    def wake_at(self, when: float | None) -> None:
        """Have the gang looked at by then; None: it needs no look."""
        if when is not None:
            self.wake = when if self.wake is None else min(self.wake, when)

    def back_off(self, now: float) -> None:
        """Take in that something failed: it is tried again after a pause, and told again."""
        self.failures += 1
        self.wake = self.timers.retry_at = now + min(RETRY_FIRST * 2 ** min(self.failures - 1, 10), RETRY_MOST)
        self.told = None


class Controller:
    """Owns the loop; `run` in a thread of its own, `stop` from any."""

    def __init__(
        self,
        view: View,
        errands: Errands,
        *,
        leads: Callable[[], bool],
        begin_term: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pool: Executor | None = None,
    ) -> None:
        """`begin_term` reads the cluster afresh and answers False when that failed (tried again).

        `pool` runs the errands; it is shut down at the end.
        """
        self._view = view
        self._errands = errands
        self._leads = leads
        self._begin_term = begin_term
        self._monotonic = monotonic
        self._wall = wall
        self._pool = pool or ThreadPoolExecutor(max_workers=WRITERS, thread_name_prefix="write")
        self._stop = threading.Event()
        self._in_term = False
        self._counted: set[str] = set()  # reasons that the metrics show gangs for
        self._fenced = threading.Event()  # a write was stopped: the term in which it was decided is over
        self._reset()

    def _reset(self) -> None:
        self._memory: dict[str, _Memory] = {}
        self._busy: set[str] = set()
        self._queue = Queue()
        self._parts = ExtensionQueue()
        self._room = KeptRoom()
        self._rush = Rush()
        self._unclaimed: dict[tuple[str, str], float] = {}
        self._orphans: dict[tuple[str, str], float] = {}
        self._swept_at = float("-inf")
        self._settling = False

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Loop until `stop`; a fault of one turn is logged and the next one starts afresh."""
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
                log.exception("a turn of the controller failed")
                metrics.controller_faults.inc()
                self._in_term = False
                self._stop.wait(1.0)
            ended = self._monotonic()
            rest = max(TURN_EVERY if self._in_term else FOLLOW_EVERY, ended - began)
            not_before = ended + min(rest, LONGEST_REST)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def stop(self) -> None:
        """End the loop after the turn that is under way; writes that have started are finished."""
        self._stop.set()
        self._view.changed.set()

    def turn(self) -> None:
        """One look at everything that changed."""
        if self._fenced.is_set():
            # The Lease was lost, and perhaps won again, since the last turn: what was decided is of an earlier term.
            self._fenced.clear()
            self._in_term = False
        if not self._leads():
            self._in_term = False
            self._view.take_changes()  # and forget them: a term begins with a look at everything
            self._queue = Queue()
            self._count_waiting()
            return
        if not self._in_term:
            if self._busy:
                self._view.take_changes()
                return  # writes of the last term are still under way
            self._reset()
            if not self._begin_term():
                self._stop.wait(0.5)
                return
            self._in_term = True
            self._view.take_changes()
            changes = Changes(everything=True, room=True)
        else:
            changes = self._view.take_changes()
        now = self._monotonic()
        for key in self._due(changes, now):
            self._guarded(key, now, lambda key=key: self._look(key, now))  # type: ignore[misc]
        if changes.everything or changes.room:
            self._queue.room = True
            self._parts.room()
        self._extend_placed(now, growing=False)
        self._plan_queue(now)
        self._extend_placed(now, growing=True)
        self._tell_due(now)
        self._claim(changes, now)
        self._sweep(now)
        self._count_waiting()

    def _guarded(self, key: str, now: float, step: Callable[[], None]) -> None:
        """Do one step for one gang: whatever it raises is that gang's trouble alone, and is tried again later."""
        try:
            step()
        except Exception:
            log.exception("a step for %s failed", key)
            metrics.controller_faults.inc()
            self._memory.setdefault(key, _Memory()).back_off(now)

    def _due(self, changes: Changes, now: float) -> list[str]:
        due = set(self._view.keys()) if changes.everything else set(changes.gangs)
        due |= {key for key, memory in self._memory.items() if memory.wake is not None and memory.wake <= now}
        return sorted(due - self._busy)

    def _pause(self) -> float:
        if not self._in_term:
            return 0.2
        now = self._monotonic()
        times = [now + IDLE]
        for key, memory in self._memory.items():
            if key in self._busy:
                continue  # the end of its errand wakes the loop
            if memory.wake is not None:
                times.append(memory.wake)
            if memory.telling is not None:
                times.append(memory.telling[0])
        settle = self._view.policy.nodes.settle
        if (len(self._queue) or len(self._parts)) and settle:
            with self._view.lock:
                settling = self._view.capacity.unsettled(self._wall() - settle)
            if settling or self._settling:
                times.append(now + 0.25)
                self._parts.room()
                self._queue.room = True  # one more try after the last one has settled
            self._settling = bool(settling)
        if self._unclaimed:
            times.append(now + 1.0)
        return max(0.01, min(times) - now)

    # -- one gang ----------------------------------------------------------------------------------------------------

    def _look(self, key: str, now: float) -> None:
        view = self._view
        with view.lock:
            gang = view.gang(key)
            if gang is None:
                self._memory.pop(key, None)
                self._queue.drop(key)
                self._parts.drop(key)
                return
            memory = self._memory.setdefault(key, _Memory())
            memory.wake = None
            slots = _slots_on(gang)
            decision = gangs.decide(
                gang,
                timers=memory.timers,
                policy=view.policy,
                now=now,
                overbooked=lambda host: self._overbooked(gang, host, slots(host)),
                usable=lambda host: self._usable(gang, host, slots(host)),
                other_devices=lambda: chosen_anew(gang, view.capacity),
                down=self._down,
                wall=self._wall(),
            )
        self._act(key, gang, decision, memory, now)

    def _down(self, host: str) -> float | None:
        """For how long a node is not ready (seconds); None when it is."""
        node = self._view.capacity.node(host)
        if node is None:
            return gangs.GONE
        return None if node.ready else max(0.0, self._wall() - node.settled_at) if node.settled_at else 0.0

    def _overbooked(self, gang: Gang, host: str, slots: Iterable[tuple[str, Slot]]) -> bool:
        """True when others took room that is reserved there for pods of the gang, or devices of theirs."""
        capacity = self._view.capacity
        return capacity.lost_devices(gang.key, host) or any(
            capacity.overbooked(host, gang.shapes[name].requests) for name, _ in slots
        )

    def _usable(self, gang: Gang, host: str, slots: Iterable[tuple[str, Slot]]) -> bool:
        """True when the pods of the gang that were to go there still can."""
        node, placement = self._view.capacity.node(host), gang.placement
        if node is None or placement is None:
            return node is not None
        topology = self._view.topologies.get(placement.topology)
        return not any(
            exclusion(gang.shapes[name], node) is not None or moved(placement, slot, topology, pod_set=name)
            for name, slot in slots
        )

    def _act(self, key: str, gang: Gang, decision: Decision, memory: _Memory, now: float) -> None:
        memory.wake = decision.wake
        if not isinstance(decision.action, PlanIt):
            self._queue.drop(key)
        if not isinstance(decision.action, Extend):
            self._parts.drop(key)
        loose = let_loose(gang.workload, gang.pods) if gang.understanding.ask is not None else []
        known = memory.refused
        refusals = (*decision.refused, *(Refused(pod, _LATER) for pod in gang.later))
        memory.refused = frozenset(pod.uid for pod in (*(refused.pod for refused in refusals), *loose))
        for refused in refusals:
            if refused.pod.uid not in known:
                self._errands.pod_event(refused.pod, "HeldWithoutSlot", refused.why)
        for pod in loose:
            if pod.uid not in known:
                self._errands.pod_event(
                    pod, "GateRemoved", "its gate was not taken off by us; it counts where it lands"
                )
        if decision.status is not None:
            self._tell(key, gang, decision.status, now)
        errands = self._errands
        match decision.action:
            case Rest():
                return
            case PlanIt():
                self._wait(key, gang, decision.wake, now)
            case Resume():
                self._send(key, lambda: errands.resume(gang))
            case GiveBack(suspend=suspend, reason=reason, message=message):
                memory.timers.empty_since = None
                memory.timers.unbound_since.clear()
                memory.timers.retry_at = now + (policy_bind(self._view) / 10 if suspend else 0.0)
                memory.facts = None
                status = Status("Waiting", reason, message)
                self._tell(key, gang, status, now)
                self._send(key, lambda: errands.give_back(gang, suspend=suspend))
            case Shrink(assignment=assignment) | ChooseAnew(assignment=assignment):
                self._send(key, lambda: errands.rewrite(gang, assignment))
            case Extend() as part:
                priority, created = self._view.priority_of(gang.workload), gang.workload.created
                self._parts.add(key, part, priority=priority, created=created, out=memory.timers.hosts_out(now))
                self._tell_part(key, gang, now)
            case Remove(pods=pods, evict=evict, reason=reason, message=message):
                self._send(key, lambda: errands.remove(gang, pods, evict=evict, reason=reason, message=message))
            case Release(seats=seats):
                self._send(key, lambda: errands.release(gang, seats))
            case LetGo(pods=pods, resume=resume, forget=forget, reason=reason):
                log.info("letting go of %s: %s", gang.workload.key, reason)
                self._send(key, lambda: errands.let_go(gang, pods, resume=resume, forget=forget))

    def _send(self, key: str, errand: Callable[[], None]) -> None:
        """Run one errand in the pool; the gang is busy until it is done, then it is looked at again."""
        self._busy.add(key)

        def work() -> None:
            failed = False
            try:
                errand()
            except NotLeader:
                log.info("not the leader any more: a write was left undone")
                self._fenced.set()
            except Outdated as error:
                failed = True
                log.info("somebody was faster: %s", error)
            except (ApiFault, ProjectionError) as error:
                failed = True
                log.warning("a write failed and is tried again: %s", error)
            except Exception:
                failed = True
                log.exception("an errand failed")
                metrics.controller_faults.inc()
            finally:
                self._done(key, failed=failed)

        try:
            self._pool.submit(work)
        except RuntimeError:  # the pool is shut down: we are stopping
            self._busy.discard(key)

    def _done(self, key: str, *, failed: bool) -> None:
        memory = self._memory.get(key)
        if memory is not None and failed:
            memory.back_off(self._monotonic())
        elif memory is not None:
            memory.failures = 0
        # In this order: nobody may look at a gang whose plan is still held without being written, and whoever looks
        # too early, while it counts as busy, is told once more.
        self._view.settle(key, failed=failed)
        self._busy.discard(key)
        if failed:
            self._view.changed.set()
        else:
            self._view.look_again(key)

    # -- the queue ---------------------------------------------------------------------------------------------------

    def _wait(self, key: str, gang: Gang, not_before: float | None, now: float) -> None:
        """Put a gang into the queue, unless it has waited so long that its request is to be relaxed first."""
        workload, policy, memory = gang.workload, self._view.policy, self._memory[key]
        clock = now - self._wall()  # what makes a time of day one of our own
        relaxes = relaxes_at(gang.understanding, gang.placement, policy)
        if relaxes is not None and relaxes + clock <= now:
            self._queue.drop(key)
            self._send(key, lambda: self._errands.relax(gang))
            return
        since = waiting_since(gang.placement.status) if gang.placement is not None else None
        patient_until = since + policy.queue.patience + clock if since is not None else inf
        memory.wake_at(relaxes + clock if relaxes is not None else None)
        memory.wake_at(patient_until if now < patient_until < inf else None)
        self._queue.add(
            key,
            Entry(
                priority=self._view.priority_of(workload),
                created=workload.created,
                name=f"{workload.namespace}/{workload.name}",
                not_before=not_before or 0.0,
                patient_until=patient_until,
            ),
        )

    def _plan_queue(self, now: float) -> None:
        view = self._view
        strict = view.policy.queue.order == "strict"
        self._keep_room(now, strict=strict)
        for key in self._queue.take(now, strict=strict):
            if key in self._busy:
                if strict:
                    self._queue.room = True  # nobody overtakes it: all of them again when it is free
                    break
                continue
            self._guarded(key, now, lambda key=key: self._plan_one(key, now))  # type: ignore[misc]
            if strict and key in self._queue and self._blocks(key):
                self._queue.behind(key)
                for later in self._queue.later_than(key):
                    self._tell_behind(later, key, now)
                break

    def _keep_room(self, now: float, *, strict: bool) -> None:
        """Keep room for gangs that have waited too long; in strict order nobody overtakes them anyway."""
        waiting = []
        for key in [] if strict else self._queue.impatient(now):
            gang, entry = self._view.gang(key), self._queue.entry(key)
            if gang is not None and entry is not None and self._blocks(key):
                waiting.append(Waiting(key, entry.priority, gang.understanding.topology or ""))
        kept = {room.key for room in self._room.kept()}
        if self._room.renew(waiting, now, partial(self._find_room, now)):
            self._queue.room = True
            self._parts.room()
        for room in self._room.kept():
            if room.key not in kept:
                log.info("keeping %s for %s", room.where, room.name)
                self._queue.again(room.key)  # so that it says so
        metrics.rooms_kept.set(len(self._room))

    def _find_room(self, now: float, waiting: Waiting, kept: Room | None, taken: frozenset[str]) -> Room | None:
        view, memory = self._view, self._memory.setdefault(waiting.key, _Memory())
        with view.lock:
            gang, topology = view.gang(waiting.key), view.topologies.get(waiting.topology)
            if gang is None or topology is None or not gang.understanding.count:
                return None
            excluded = memory.timers.hosts_out(now)
            return room_for(
                waiting,
                gang.understanding,
                gang.shapes,
                name=f"{gang.workload.namespace}/{gang.workload.name}",
                kept=kept,
                capacity=view.capacity,
                topology=topology,
                pods=view.stores.pods.values(),
                plan=lambda emptied, out: self._errands.plan(
                    gang, excluded=excluded | out, room_kept=taken, emptied=emptied
                ),
            )

    def _plan_one(self, key: str, now: float) -> None:
        """Plan a queued gang: it leaves the queue when it is placed, or is told why it waits."""
        view = self._view
        with view.lock:
            gang, entry = view.gang(key), self._queue.entry(key)
            if gang is None or entry is None or gang.understanding.ask is None:
                self._queue.drop(key)
                return
            memory = self._memory.setdefault(key, _Memory())
            excluded = memory.timers.hosts_out(now)
            ahead = self._room.before(key, entry.priority)
            room_kept = frozenset[str]().union(*(room.hosts for room in ahead))
            question = question_of(gang.understanding, gang.shapes, excluded, room_kept)
            joins = bool(standing(gang))  # pods that stay make it a question of its own
            miss = None if joins or self._room.of(key) else self._queue.hopeless(question)
            if miss is not None and memory.told is not None and _as_told(miss, memory.told.reason):
                return
            with metrics.plan_seconds.time():
                outcome = self._errands.plan(gang, excluded=excluded, room_kept=room_kept)
                if room_kept and isinstance(outcome, Waits) and outcome.reason != "QuotaExceeded":
                    outcome = self._behind(gang, outcome, excluded, ahead)
            if isinstance(outcome, Placed):
                placement = self._errands.placement(gang, outcome, priority=view.priority_of(gang.workload))
                view.hold(key, placement)
        metrics.plans.labels(type(outcome).__name__).inc()
        if isinstance(outcome, Placed):
            self._queue.drop(key)
            self._rush.placed(now)
            memory.facts = outcome
            memory.telling = None
            self._send(key, lambda: self._errands.place(gang, placement))
            return
        memory.own_trouble = isinstance(outcome, Never) or outcome.reason == "QuotaExceeded"
        self._tell(key, gang, self._why(key, gang, outcome), now)
        if excluded:
            memory.wake_at(memory.timers.next_back(now))  # no event will tell that its hosts count again
        if not joins and outcome.reason not in ("QuotaExceeded", "SearchLimit"):
            self._queue.missed(question, outcome.reason)

    def _behind(self, gang: Gang, outcome: Waits, excluded: frozenset[str], ahead: list[Room]) -> Waits:
        """Why a gang waits for which room may be kept elsewhere: for that, if it would fit there."""
        without = self._errands.plan(gang, excluded=excluded)
        if not isinstance(without, Placed):
            return outcome
        hosts = {slot.host for pods in without.pod_sets for slot in pods.slots}
        room = next((room for room in ahead if not hosts.isdisjoint(room.hosts)), ahead[0])
        first = _named(room.name, gang)
        return Waits("QueuedBehind", f"the room that it needs is kept for {first}, which has waited longer")

    def _why(self, key: str, gang: Gang, outcome: Waits | Never) -> Status:
        """What people read of a gang that was not placed."""
        room = self._room.of(key)
        if room is None or self._memory[key].own_trouble:
            return Status("Waiting", outcome.reason, outcome.message)
        waited = format_duration(self._view.policy.queue.patience)
        pods = plural(gang.understanding.count, "pod")
        return Status("Waiting", "RoomKept", f"has waited for {waited}: {room.where} kept free until {pods} fit")

    def _count_waiting(self) -> None:
        """Tell the metrics who waits, and why: of reason codes there are few."""
        reasons = Counter[str]()
        for key in self._queue:
            memory = self._memory.get(key)
            if memory is not None and memory.told is not None and memory.told.reason in REASONS:
                reasons[memory.told.reason] += 1
        for reason in self._counted - reasons.keys():
            metrics.waiting.labels(reason).set(0)
        for reason, gangs_of in reasons.items():
            metrics.waiting.labels(reason).set(gangs_of)
        self._counted = set(reasons)
        metrics.queued.set(len(self._queue))

    def _blocks(self, key: str) -> bool:
        """True when a gang that was not placed waits for room: what only its own people can mend holds up nobody."""
        memory = self._memory.get(key)
        return memory is None or not memory.own_trouble

    def _tell_behind(self, key: str, first: str, now: float) -> None:
        gang, ahead = self._view.gang(key), self._queue.entry(first)
        if gang is not None and ahead is not None:
            message = f"{_named(ahead.name, gang)} goes first and has no room yet"
            self._tell(key, gang, Status("Waiting", "QueuedBehind", message), now)

    # -- parts of placed gangs ---------------------------------------------------------------------------------------

    def _extend_placed(self, now: float, *, growing: bool) -> None:
        """Find slots for parts of placed gangs: of those that lost some, or of those that are to grow."""
        if growing and self._view.policy.queue.order == "strict" and len(self._queue):
            return  # nobody goes before those who wait
        for key, part in self._parts.take(growing=growing, busy=self._busy):
            self._guarded(key, now, lambda key=key, part=part: self._extend_one(key, part, now))  # type: ignore[misc]

    def _extend_one(self, key: str, part: Extend, now: float) -> None:
        view, extension = self._view, part.extension
        memory = self._memory.setdefault(key, _Memory())
        excluded = memory.timers.hosts_out(now)
        with view.lock:
            gang = view.gang(key)
            if gang is None or gang.placement is None or gang.placement.assignment is None:
                return
            ahead = self._room.before(key, view.priority_of(gang.workload)) if extension.more else []
            room_kept = frozenset[str]().union(*(room.hosts for room in ahead))
            # What the lost slots kept free is free for their successors.
            rest = extension.standing(gang.placement.assignment)
            view.hold(key, replace(gang.placement, assignment=rest))
            outcome: Outcome | None = None
            try:
                with metrics.plan_seconds.time():
                    outcome = self._errands.plan_part(gang, extension, excluded=excluded, room_kept=room_kept)
            finally:
                if isinstance(outcome, Placed):
                    placement = extended(gang, extension, outcome)
                    view.hold(key, placement)
                else:
                    view.drop_hold(key)
        metrics.plans.labels(type(outcome).__name__).inc()
        if isinstance(outcome, Placed):
            self._parts.drop(key)
            memory.facts = outcome
            memory.telling = None  # what was lost is told already, and mended now
            self._send(key, lambda: self._errands.extend(gang, placement, extension, f"{part.why}: {outcome.message}"))
            return
        self._parts.missed(key, outcome)
        self._tell_part(key, gang, now)
        memory.wake_at(memory.timers.next_back(now))

    def _tell_part(self, key: str, gang: Gang, now: float) -> None:
        if (status := self._parts.status(key)) is not None:
            self._tell(key, gang, status, now)

    # -- telling people ----------------------------------------------------------------------------------------------

    def _tell(self, key: str, gang: Gang, status: Status, now: float) -> None:
        memory = self._memory.setdefault(key, _Memory())
        known = memory.told or _status_of(gang)
        if known is not None and not differs(known, status):
            memory.telling = None
            return
        pause = SETTLE.get(status.phase, 0.0) + self._rush.delay(status.phase, now)
        if memory.telling is not None and memory.telling[1].phase == status.phase and pause:
            return
        memory.telling = (now + pause, status)

    def _tell_due(self, now: float) -> None:
        for key, memory in list(self._memory.items()):
            if memory.telling is None or memory.telling[0] > now or key in self._busy:
                continue
            status, memory.telling = memory.telling[1], None
            self._guarded(key, now, lambda key=key, status=status: self._tell_one(key, status))  # type: ignore[misc]

    def _tell_one(self, key: str, status: Status) -> None:
        memory, gang = self._memory[key], self._view.gang(key)
        if gang is None:
            return
        memory.told = status
        if gang.placement is not None and not changed(gang.placement.status, status):
            return
        facts = memory.facts
        self._send(key, lambda: self._errands.tell(gang, status, facts))

    # -- pods and Placements that nobody claims ----------------------------------------------------------------------

    def _claim(self, changes: Changes, now: float) -> None:
        keys = set(changes.unclaimed_pods)
        if changes.everything:
            keys |= {pod.key for pod in self._view.stores.pods.values() if names.GATE in pod.spec.gates}
        for key in keys:
            self._unclaimed.setdefault(key, now)
        for key, since in list(self._unclaimed.items()):
            pod = self._view.stores.pods.get(key)
            if pod is None or pod.finished or pod.deleting or names.GATE not in pod.spec.gates:
                del self._unclaimed[key]
                continue
            if self._view.gang_of(pod) is not None:
                del self._unclaimed[key]  # its gang decides
                continue
            if now - since >= UNCLAIMED_AFTER:
                del self._unclaimed[key]
                self._unclaimed_pod(pod, now)

    def _unclaimed_pod(self, pod: Pod, now: float) -> None:
        why = self._errands.unclaimed(pod)
        if why is not None:
            self._errands.pod_event(pod, "HeldWithoutGang", why)
            return
        self._unclaimed[pod.key] = now  # until the watch shows it free: a lost PATCH is sent again
        self._send(f"pod/{pod.uid}", lambda: self._errands.free_pod(pod))

    def _sweep(self, now: float) -> None:
        """Forget Placements of gangs that are gone (`--cascade=orphan` hides them from the garbage collector)."""
        if now - self._swept_at < SWEEP_EVERY:
            return
        self._swept_at = now
        lost = {
            placement.key: placement
            for placement in self._view.placements()
            if not self._view.knows(placed_key(placement)) and not placement.deleting
        }
        for key in [key for key in self._orphans if key not in lost]:
            del self._orphans[key]
        for key, placement in lost.items():
            if now - self._orphans.setdefault(key, now) >= SWEEP_EVERY:
                self._send(placed_key(placement), lambda placement=placement: self._errands.forget(placement))  # type: ignore[misc]


def _slots_on(gang: Gang) -> Callable[[str], list[tuple[str, Slot]]]:
    """What tells the gang's slots on a host, with the names of their pod sets; read once, when it is first asked."""

    @cache
    def by_host() -> dict[str, list[tuple[str, Slot]]]:
        assignment = gang.placement.assignment if gang.placement is not None else None
        found: dict[str, list[tuple[str, Slot]]] = {}
        for plan in assignment.pod_sets if assignment is not None else ():
            for slot in plan.slots if plan.name in gang.shapes else ():
                found.setdefault(slot.host, []).append((plan.name, slot))
        return found

    return lambda host: by_host().get(host, [])


def policy_bind(view: View) -> float:
    """How long a pod may take to be bound (seconds)."""
    return view.policy.timeouts.bind


def _named(name: str, gang: Gang) -> str:
    """Another gang's workload (namespace/name), named only to those who may see it anyway."""
    namespace, _, own = name.partition("/")
    return own if namespace == gang.workload.namespace else "a gang of another namespace"


def _as_told(miss: str, told: str) -> bool:
    """True when a gang that meets the same answer as another need not be told: numbers are no news, a rank is."""
    return miss == told or {"QueuedBehind", "RoomKept"}.isdisjoint((miss, told))


def _status_of(gang: Gang) -> Status | None:
    status = gang.placement.status if gang.placement is not None else {}
    phase = status.get("phase")
    return Status(str(phase), str(status.get("reason") or ""), str(status.get("message") or "")) if phase else None
