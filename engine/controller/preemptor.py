"""Preempts running gangs for waiting ones of higher priority: decides, keeps the hosts, and follows it to its end.

In this order, so that a leader that ends anywhere is continued by the next one: the hosts are kept in memory, what ends
is written into the preemptor's Placement, and only then are victims touched, each by its own reconcile. An intent ends
when its gang is placed, or when it can no longer lead to that; victims that are not touched by then are spared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from engine import metrics
from engine.api.placement import IntendedPod, IntendedVictim, PreemptionIntent, kept_hosts, preemption_intent
from engine.api.pod import Pod
from engine.api.reasons import REASONS
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.reporter import StatusReporter
from engine.controller.term import LeaderTerm, SearchPace
from engine.gang.gang import Gang, fingerprint, host_of, over
from engine.gang.key import is_gang_key, placed_key
from engine.lifecycle.actions import Status
from engine.lifecycle.gang_state import REMOVE_AGAIN
from engine.lifecycle.preemption import (
    LIMIT,
    IntentEnd,
    PreemptedBy,
    after_end,
    end_of_intent,
    preempted_text,
    preempting_status,
    recently_moved,
    resting_text,
)
from engine.lifecycle.status import status_of
from engine.policy.making_room import PreemptionRules
from engine.preemption.budgets import ending_pods
from engine.preemption.movable import cannot_move
from engine.preemption.moves import Defragmentation, Restart
from engine.preemption.preempt import Preemption, all_within_budgets, preemption_for, victims_may_help
from engine.preemption.victims import Victim, may_be_evicted, priority_with, spared
from engine.scheduler.nomination import where_text
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import kept_assignment, schedule_gang
from engine.scheduler.separation import exclusive_hosts
from engine.scheduler.starvation import Nomination

log = logging.getLogger("topogate.controller")

# Seconds from a search that found nobody to the next one for the same gang: doubles from the first to the second value.
SEARCH_FIRST, SEARCH_MOST = 5.0, 60.0
# A search makes many plans while nothing else is decided; after it as many times its duration belong to the others.
SEARCH_REST: Final = 9.0
# Seconds that a gang waits for pods that terminate anyway before others are preempted for it.
ENDING_ANYWAY: Final = 120.0
# Seconds after the last pod of the victims has ended: slots may be kept for pods that could still have been created.
SETTLED: Final = 30.0
# Seconds after a change of the policy, by which the disruption budgets are read.
BUDGETS_KNOWN: Final = 3.0
# The lowest priority of the running gangs is looked up this often (seconds).
_LOWEST_EVERY: Final = 2.0
_MOST_NAMED: Final = 8  # victims in one line of the log


@dataclass(slots=True)
class _Candidate:
    """A waiting gang that may preempt others: when it is searched for next, and how long it rests after that."""

    due: float
    rest: float = SEARCH_FIRST
    seen: int | None = None  # how often the cluster had changed at the last search
    ending_since: float | None = None  # since when pods that terminate anyway make its room


@dataclass(frozen=True, slots=True)
class _ValidIntent:
    """An intent that holds now, and its gang."""

    gang: Gang
    intent: PreemptionIntent
    priority: int
    victims: Mapping[str, IntendedVictim]  # by the uid of their Placement


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far something that is to end for a gang has come.

    `left`: it still holds hosts; `touched`: it has begun to end; `protected`: it may not be made to end any more.
    """

    left: bool = False
    touched: bool = False
    protected: bool = False


class Preemptor:
    """Preempts in one leader term; called by the thread that decides."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        reporter: StatusReporter,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._reporter = reporter
        self._monotonic = monotonic
        self._wall = wall
        self._candidates: dict[GangKey, _Candidate] = {}
        self._valid: dict[GangKey, _ValidIntent] = {}
        self._over: dict[GangKey, PreemptionIntent] = {}  # what is left of intents that are over, to be written
        self._ended_at: dict[GangKey, float] = {}  # since when no pod of the victims is left
        self._evicted: dict[str, float] = {}  # uid of a pod that is not managed -> when it was evicted last
        self._decided: dict[GangKey, tuple[Victim, ...]] = {}  # of intents that are just being written
        self._pace = SearchPace(monotonic, rest=SEARCH_REST)
        self._changes = 0  # of the cluster, in passes
        self._rules: PreemptionRules | None = None  # of the policy in force
        self._on_since: float | None = None  # since when the policy preempts by them
        self._watches_since: float | None = None  # since when disruption budgets are watched
        self._lowest: tuple[float, float] = (-inf, inf)  # looked up when, the lowest priority

    # -- intents in Placements ---------------------------------------------------------------------------------------

    def refresh(self, changes: Changes, now: float) -> None:
        """Read the intents in the Placements: which are valid, which hosts are kept for them, which are over."""
        anything = changes.gangs or changes.everything or changes.capacity_freed or changes.hosts or changes.budgets
        self._changes += bool(anything)
        if (rules := self._view.policy.preemption) is not self._rules:
            self._rules, self._candidates = rules, {}
            self._on_since = None if rules.mode == "never" else now
        if not self._view.policy.heeds_budgets:
            self._watches_since = None
        elif self._watches_since is None:
            self._watches_since = now
        term, view = self._term, self._view
        if not (term.preempting or self._valid or self._over or self._decided or len(view.gangs.intents)):
            return
        wall, before, self._valid = self._wall(), self._valid, {}
        with view.lock:
            intents = dict(view.gangs.intents.active())
            named = {one.uid for intent in intents.values() for one in intent.pods}
            alone = {pod.uid: pod for pod in view.stores.pods.values() if pod.uid in named} if named else {}
            for key, intent in intents.items():
                self._look(key, intent, alone, now, wall)
        for key in before.keys() - self._valid.keys():
            self._count_end(key, moves=before[key].intent.moves)
        for key in [key for key in term.preempting if key not in self._valid and key not in term.busy]:
            del term.preempting[key]
            term.retry_waiting()
        for key in [key for key in self._over if key not in intents]:
            del self._over[key]  # it is written
        for key in self._ended_at.keys() - self._valid.keys():
            del self._ended_at[key]
        named = {one.uid for found in self._valid.values() for one in found.intent.pods}
        self._evicted = {uid: when for uid, when in self._evicted.items() if uid in named}
        self._decided = {key: victims for key, victims in self._decided.items() if self._is_pending(key)}

    def _look(self, key: GangKey, intent: PreemptionIntent, alone: Mapping[str, Pod], now: float, wall: float) -> None:
        """Look at one intent; `alone`: the pods that intents name, by uid."""
        view = self._view
        gang = view.gangs.get(key)
        if gang is None or gang.placement is None:
            return
        end = end_of_intent(gang, intent, policy=view.policy, wall=wall)
        if end is None:
            pods = [pod for one in intent.pods if (pod := alone.get(one.uid)) is not None]
            end = self._spoiled(key, gang, intent, pods, now)
        if end is None and key not in self._over:
            priority = view.pod_shapes.priority_of(gang.workload)
            by_uid = {one.uid: one for one in intent.victims}
            self._valid[key] = _ValidIntent(gang, intent, priority, by_uid)
            if key not in self._term.preempting:
                hosts = frozenset(kept_hosts(gang.placement.status))
                self._term.preempting[key] = _nomination(gang, priority, hosts, plural(len(hosts), "host"))
            return
        if end is not None and end.message and key not in self._over:
            self._executor.events.record(gang, "PreemptionEnded", end.message, reason="Preempting")
            self._over[key] = after_end(intent, end, wall=wall)
            self._term.queue.requeue(key)

    def _spoiled(
        self, key: GangKey, gang: Gang, intent: PreemptionIntent, alone: Sequence[Pod], now: float
    ) -> IntentEnd | None:
        """Return why an intent can no longer lead to a start: victims that are spared now, or hosts of another one."""
        view = self._view
        priority = view.pod_shapes.priority_of(gang.workload)
        own = frozenset(kept_hosts(gang.status))
        for other in self._term.preempting.values():
            if other.key != key and other.priority > priority and not own.isdisjoint(other.hosts):
                return IntentEnd("a gang of higher priority needs its hosts", failed=True)
        seen = [self._pods_to_end(alone, priority), *(self._victim(one, intent, priority) for one in intent.victims)]
        if any(one.protected for one in seen):
            touched = any(one.touched for one in seen)
            return IntentEnd("what was to end for it is protected now", failed=touched)
        if any(one.left for one in seen):
            self._ended_at.pop(key, None)
            return None
        since = self._ended_at.setdefault(key, now)
        if now - since < SETTLED:
            return None
        return IntentEnd("what has ended for it does not suffice any more", failed=True)

    def _pods_to_end(self, pods: Sequence[Pod], priority: int) -> _Progress:
        """Return how far pods outside of gangs have ended; `priority`: of the gang that waits for them."""
        ending = [pod.deleting or pod.finished for pod in pods]
        others = (pod for pod, ends in zip(pods, ending, strict=True) if not ends)
        protected = any(not may_be_evicted(self._view, pod, below=priority) for pod in others)
        return _Progress(left=bool(pods), touched=any(ending), protected=protected)

    def _victim(self, victim: IntendedVictim, intent: PreemptionIntent, priority: int) -> _Progress:
        """Return how far a victim has ended; `priority`: of the gang that waits for it."""
        view = self._view
        placement = view.gangs.intents.placement_of(victim.uid)
        workload = view.gangs.workload_of(placed_key(placement)) if placement is not None else None
        if placement is None or workload is None:
            return _Progress()
        pods = view.gangs.pods_of(placed_key(placement))
        if placement.assignment is None or over(workload):
            left = any(not pod.finished and host_of(pod) is not None for pod in pods)
            return _Progress(left=left, touched=True)
        if placement.assignment.revision != victim.revision:  # it starts elsewhere already, and its old pods still end
            left = any(pod.deleting and not pod.finished and host_of(pod) is not None for pod in pods)
            return _Progress(left=left, touched=True)
        own_priority = priority_with(view, placement, workload, pods)
        protected = own_priority > priority or (own_priority == priority and not intent.moves)
        protected = protected or spared(view, workload, pods, moves=intent.moves)
        if intent.moves and not protected:
            gang = view.gangs.get(placed_key(placement))
            protected = gang is None or bool(cannot_move(view, gang))
        return _Progress(left=True, protected=protected)

    def _is_pending(self, key: GangKey) -> bool:
        """Return True while the intent of a gang was decided and is not known to be written."""
        return key in self._term.preempting and key not in self._valid

    def _count_end(self, key: GangKey, *, moves: bool) -> None:
        """Count an intent that is not valid any more."""
        with self._view.lock:
            plan = self._view.gangs.plan_of(key)
        placed = plan is not None and plan.assignment is not None
        counter = metrics.moves if moves else metrics.preemptions
        counter.labels("placed" if placed else "ended").inc()

    def preempted(self, gang: Gang) -> PreemptedBy | None:
        """Return by whom a gang is preempted; None if nobody needs its slots, or it is spared."""
        if not self._valid or gang.placement is None:
            return None
        uid = gang.placement.uid
        for key in self._view.gangs.intents.naming(uid):
            if (found := self._valid.get(key)) is None or key == gang.key or uid not in found.victims:
                continue
            workload = found.gang.workload
            text = preempted_text(
                gang,
                namespace=workload.namespace,
                workload=f"{workload.kind}/{workload.name}",
                priority=found.priority,
                moves=found.intent.moves,
            )
            return PreemptedBy(found.victims[uid].revision, text, found.intent.moves)
        return None

    def status(self, key: GangKey, gang: Gang, base: Status) -> Status:
        """Return the status of a gang that was not placed: while others end for it, what it waits for."""
        if key in self._valid and (known := status_of(gang)) is not None and known.reason:
            if REASONS[known.reason].preempts:
                return replace(known, shortage=base.shortage)
            return base
        left = self._over.get(key)
        rest = resting_text(preemption_intent(gang.status) if left is None else left, self._wall())
        return base if left is None and not rest else replace(base, message=f"{base.message}{rest}", preemption=left)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def missed(self, key: GangKey, outcome: Outcome, now: float) -> None:
        """Note a gang that was planned and waits for room: others may be preempted for it from a certain time on."""
        rules, gang_state = self._view.policy.preemption, self._term.of(key)
        settled = key not in self._term.preempting and key not in self._over
        if rules.mode == "never" or not victims_may_help(outcome) or not settled or gang_state.wait is None:
            self._candidates.pop(key, None)
            return
        if key in self._candidates:
            return
        with self._view.lock:
            gang = self._view.gangs.get(key)
            if gang is None or not self._view.pod_shapes.may_preempt(gang.workload) or gang.shares_group:
                return
            retry_at = preemption_intent(gang.status).retry_at
        clock = now - self._wall()
        due = max(gang_state.wait.since + rules.after, retry_at + clock if retry_at else 0.0)
        self._candidates[key] = _Candidate(due)

    def overtaken(self, key: GangKey) -> None:
        """Note a gang that is not planned before others in the queue: whoever ended for it would end in vain."""
        self._candidates.pop(key, None)

    def next(self) -> float | None:
        """Return when `plan` or `refresh` should be called next; None if nothing is due at any time."""
        earliest = max(self._pace.opens, (self._on_since or 0.0) + BUDGETS_KNOWN)
        due = (self._due(one) for key, one in self._candidates.items() if key not in self._term.busy)
        times = [max(one, earliest) for one in due if one < inf]
        clock = self._monotonic() - self._wall()
        for key, found in self._valid.items():
            if found.intent.since is not None:
                times.append(found.intent.since + LIMIT + clock)
            if key in self._ended_at:
                times.append(self._ended_at[key] + SETTLED)
            times += [self._evicted[one.uid] + REMOVE_AGAIN for one in found.intent.pods if one.uid in self._evicted]
        return min(times, default=None)

    def plan(self, now: float) -> None:
        """Search victims for the first gang that may preempt now, one in a pass; evict pods that are not managed."""
        if not self._candidates and not self._valid:
            return
        for key, found in self._valid.items():
            if found.intent.pods and key not in self._term.busy:
                self._evict(key, found, now)
        term = self._term
        for key in [key for key in self._candidates if key not in term.queue or key in term.preempting]:
            del self._candidates[key]
        if self._on_since is None or now < max(self._pace.opens, self._on_since + BUDGETS_KNOWN):
            return
        due = {key: one for key, one in self._candidates.items() if self._due(one) <= now and key not in term.busy}
        if due and self._view.policy.preemption.victims == "managed":
            self._rest_below(due, now)
        if (first := term.first_in_queue(key for key, one in due.items() if one.due <= now)) is not None:
            self._pace.run(partial(term.guarded, first, now, partial(self._search, first, now)))

    def _due(self, one: _Candidate) -> float:
        """Return when a gang is searched for next; infinite if only after a change of the cluster."""
        return one.due if one.seen != self._changes else inf

    def _rest_below(self, due: Mapping[GangKey, _Candidate], now: float) -> None:
        """Let those rest for which no running gang is low enough: all in one pass, however many wait."""
        with self._view.lock:
            lowest = self._lowest_priority(now)
        for key, one in due.items():
            if (entry := self._term.queue.entry(key)) is not None and entry.priority <= lowest:
                one.due = now + one.rest

    def _search(self, key: GangKey, now: float) -> None:
        view, candidate = self._view, self._candidates[key]
        candidate.due = now + candidate.rest  # also if it fails
        with view.lock:
            gang, entry = view.gangs.get(key), self._term.queue.entry(key)
            if gang is None or entry is None or gang.request.asked is None or entry.not_before > now:
                return
            priority = view.pod_shapes.priority_of(gang.workload)
            candidate.seen = self._changes
        found = self._found(gang, candidate, priority, now)
        if found is None:
            candidate.rest = min(2 * candidate.rest, SEARCH_MOST)
            metrics.preemptions.labels("none").inc()
            return
        self.decide(key, gang, found, now)

    def may_move(self, gang: Gang, found: Defragmentation, now: float) -> bool:
        """Return True if gangs may restart elsewhere for a waiting one now, as planned: for one gang at a time.

        Not while a preemption of it rests, nor for a gang whose PriorityClass preempts none.
        """
        view, wall, victims = self._view, self._wall(), [one.victim for one in found.restarts]
        if self._watches_since is None or now < self._watches_since + BUDGETS_KNOWN:
            return False
        if self._term.moving or gang.key in self._term.preempting or gang.key in self._over or not victims:
            return False
        with view.lock:
            if any(intent.moves for _, intent in view.gangs.intents.active()):
                return False
            if preemption_intent(gang.status).retry_at > wall or recently_moved(gang.status, wall):
                return False
            if not view.pod_shapes.may_preempt(gang.workload):
                return False
            if not all_within_budgets(view, victims, beside=self.ending()):
                return False
            return all(self._can_end(one.victim) and self._unchanged(one) for one in found.restarts)

    def _unchanged(self, restart: Restart) -> bool:
        """Return True if a gang to restart still has the slots that it was planned with."""
        plan = self._view.gangs.plan_of(restart.key)
        return plan is not None and plan.assignment == restart.before

    def _found(self, gang: Gang, candidate: _Candidate, priority: int, now: float) -> Preemption | None:
        """Return the victims for a gang; None also while pods that terminate anyway make its room."""
        view, rules, wall = self._view, self._view.policy.preemption, self._wall()
        taken = [one.hosts for one in self._term.nominations_before(gang.key, priority)]
        out = self._term.of(gang.key).timers.hosts_out(now)
        plan = partial(
            schedule_gang,
            view,
            gang,
            kept=kept_assignment(gang),
            settled_before=view.settled_before(wall),
            excluded=out,
            nominated=frozenset[str]().union(*taken),
        )
        ending = [pod for pod in view.stores.pods.values() if pod.deleting and not pod.finished]
        with view.lock, view.without((), ending):
            enough = bool(ending) and isinstance(plan(), Placed)
        since = candidate.ending_since = (candidate.ending_since or now) if enough else None
        if since is not None and now - since < ENDING_ANYWAY:
            candidate.seen = None  # they may never end, and nothing else change
            return None
        if out or taken:
            candidate.seen = None  # that ends with the time alone
        return preemption_for(
            view,
            gang,
            plan=plan,
            others=rules.victims == "all",
            protect=rules.protect,
            own_namespace=view.own_namespace,
            now=wall,
            allowed=self._can_end,
            beside=self.ending(),
        )

    def ending(self) -> list[Pod]:
        """Return the pods that end for other gangs: they use the disruption budgets before these show it."""
        decided = [pod for victims in self._decided.values() for one in victims for pod in one.pods]
        with self._view.lock:
            return ending_pods(self._view, [found.intent for found in self._valid.values()], decided)

    def _can_end(self, victim: Victim) -> bool:
        """Return True unless a victim is just being written, or is known by its Placement alone."""
        if not victim.keys:
            return True
        return all(
            is_gang_key(key) and key not in self._term.busy and self._view.gangs.workload_of(key) is not None
            for key in victim.keys
        )

    def decide(self, key: GangKey, gang: Gang, found: Preemption, now: float, *, moves: bool = False) -> None:
        """Keep the hosts of a plan, and write what ends for it; `moves`: to restart elsewhere."""
        view, wall = self._view, self._wall()
        victims, pods = [], []
        with view.lock:
            priority = view.pod_shapes.priority_of(gang.workload)
            topology = view.topologies[gang.request.topology or ""]
            for one in found.victims:
                if not one.keys:
                    pods += [IntendedPod(pod.uid, host_of(pod) or "") for pod in one.pods if not pod.finished]
                elif (plan := view.gangs.plan_of(GangKey(one.keys[0]))) is not None and plan.assignment is not None:
                    victims.append(IntendedVictim(plan.uid, plan.assignment.revision, one.count, one.priority))
            hosts = exclusive_hosts(found.placed.hosts, gang.request.separation, topology)
            where = where_text(found.placed, topology)
        attempts = preemption_intent(gang.status).attempts
        intent = PreemptionIntent(wall, tuple(victims), tuple(pods), fingerprint(gang), attempts, moves=moves)
        nomination = _nomination(gang, priority, hosts, where)
        status = preempting_status(intent, nomination.hosts, where)
        self._term.preempting[key] = nomination
        self._decided[key] = found.victims
        self._candidates.pop(key, None)
        (metrics.moves if moves else metrics.preemptions).labels("decided").inc()
        event = self._reporter.reported(key, gang, replace(status, preemption=intent), now)
        since, ending = self._term.of(key).waiting_since, _named_victims(found.victims)
        count = sum(one.count for one in found.victims)
        done = f"restarts elsewhere: {ending}" if moves else f"ends {ending}"
        log.info("for %s %s", nomination.name, done)

        def write() -> None:
            self._executor.report(gang, replace(status, preemption=intent), None, event=event, since=since)
            self._executor.events.record(gang, "Preempts", done, reason="Preempting", pods=count)

        # Busy until it is written: the intent names the revisions of their slots, which must not change before.
        to_end = [GangKey(one) for victim in found.victims for one in victim.keys if is_gang_key(one)]
        self._term.send(key, write, also=to_end)

    def _lowest_priority(self, now: float) -> float:
        """Return the lowest priority of a gang with slots, as of a moment ago; infinite if there is none."""
        if now >= self._lowest[0] + _LOWEST_EVERY:
            running = (plan.priority for plan in self._view.gangs.plans() if plan.assignment is not None)
            self._lowest = (now, min(running, default=inf))
        return self._lowest[1]

    def _evict(self, key: GangKey, found: _ValidIntent, now: float) -> None:
        """Evict the pods of an intent that Topogate does not manage; what a budget protects is tried again later."""
        uids = {one.uid for one in found.intent.pods if now - self._evicted.get(one.uid, -inf) >= REMOVE_AGAIN}
        if not uids:
            return
        pods: list[Pod] = [pod for pod in self._view.stores.pods.values() if pod.uid in uids and pod.live]
        self._evicted |= dict.fromkeys(uids, now)
        if not pods:
            return
        message = f"evicted for a gang with priority {found.priority:,} that found no other room"
        self._term.send(key, lambda: self._executor.evict_others(found.gang, pods, message))


def _nomination(gang: Gang, priority: int, hosts: frozenset[str], where: str) -> Nomination:
    return Nomination(gang.key, _name(gang), priority, gang.request.topology or "", hosts, where)


def _name(gang: Gang) -> str:
    return f"{gang.workload.namespace}/{gang.workload.name}"


def _named_victims(victims: tuple[Victim, ...]) -> str:
    """Return who ends, for the log: with names, as only admins read it."""
    named = [f"{one.kind} {one.namespace}/{one.name} ({plural(one.count, 'pod')})" for one in victims[:_MOST_NAMED]]
    more = len(victims) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")
