"""Proposes restarts: which few running gangs would have to start elsewhere so that a waiting one fits.

A gang is looked at when it has waited for room for a while, and again only when the cluster has changed. One search at
a time, seldom, and with few plans: it is a proposal, and nothing waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from engine import metrics
from engine.api.reasons import REASONS
from engine.api.workload import GangKey
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.reporter import StatusReporter
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang
from engine.lifecycle.actions import RestartProposal
from engine.preemption.movable import movable, room_in_total
from engine.preemption.moves import Defragmentation, MoveLimits, moves_for_waiting, replan
from engine.preemption.preempt import in_group
from engine.scheduler.outcome import Outcome, Waits
from engine.scheduler.schedule import kept_assignment, schedule_gang

log = logging.getLogger("topogate.controller")

# Seconds from a search to the next one of the same gang: doubles from the first to the second value, or to the third
# while there is a proposal, which may have become wrong.
SEARCH_FIRST, SEARCH_MOST, CHECK_MOST = 15.0, 300.0, 60.0
# After a search as many times its duration belong to everything else; and at least so many seconds.
SEARCH_REST, SEARCH_EVERY = 19.0, 2.0
MOST_PLANS: Final = 100  # of one search: some 0.3 s on 1,000 hosts


@dataclass(slots=True)
class _Waiting:
    """A gang that waits for room: when it is searched for next, and how long it rests after that."""

    due: float
    rest: float = SEARCH_FIRST
    seen: int | None = None  # how often the cluster had changed at the last search


class Mover:
    """Proposes restarts in one leader term; called by the thread that decides."""

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
        self._waiting: dict[GangKey, _Waiting] = {}
        self._search_at = -inf
        self._changes = 0  # of the cluster, in passes

    def refresh(self, changes: Changes) -> None:
        """Note that the cluster has changed."""
        self._changes += bool(changes.gangs or changes.everything or changes.capacity_freed or changes.hosts)

    def missed(self, key: GangKey, outcome: Outcome, now: float) -> None:
        """Note a gang that was planned and does not fit: restarts of others may help it from a certain time on."""
        rules, gang_state = self._view.policy.defragment, self._term.of(key)
        of_room = isinstance(outcome, Waits) and REASONS[outcome.reason].until == "capacity" and not outcome.for_hosts
        if rules.mode == "never" or not of_room or key in self._term.preempting or gang_state.wait is None:
            self._waiting.pop(key, None)
            gang_state.restarts = None  # what is reported next is without it
            return
        if key not in self._waiting:
            self._waiting[key] = _Waiting(gang_state.wait.since + rules.after)

    def next(self) -> float | None:
        """Return when `plan` should be called next; None if nothing is due before the cluster changes."""
        busy = self._term.busy
        due = [one.due for key, one in self._waiting.items() if one.seen != self._changes and key not in busy]
        return max(self._search_at, min(due)) if due else None

    def plan(self, now: float) -> None:
        """Search for the first gang that is due, in the order of the queue: one in a pass."""
        if not self._waiting:
            return
        term = self._term
        for key in [key for key in self._waiting if key not in term.queue]:
            del self._waiting[key]
            if (gang_state := term.gang_state.get(key)) is not None:
                gang_state.restarts, gang_state.restarts_told = None, False
        if now < self._search_at:
            return
        due = [
            key
            for key, one in self._waiting.items()
            if one.due <= now and one.seen != self._changes and key not in term.busy
        ]
        first = min(due, key=lambda key: term.queue.turn(key) or (), default=None)
        if first is None:
            return
        began = self._monotonic()
        term.guarded(first, now, partial(self._search, first, now))
        ended = self._monotonic()
        self._search_at = ended + max(SEARCH_EVERY, SEARCH_REST * (ended - began))

    def _search(self, key: GangKey, now: float) -> None:
        view, waiting = self._view, self._waiting[key]
        waiting.due, waiting.seen = now + waiting.rest, self._changes
        with view.lock:
            gang = view.gangs.get(key)
            if gang is None or gang.request.asked is None or in_group(gang):
                return
        found = self._found(gang, now)
        waiting.rest = min(2 * waiting.rest, SEARCH_MOST if found is None else CHECK_MOST)
        metrics.proposals.labels("none" if found is None else "found").inc()
        self._note(key, gang, found, now)

    def _found(self, gang: Gang, now: float) -> Defragmentation | None:
        view, rules, wall = self._view, self._view.policy.defragment, self._wall()
        settled_before, out_for_gang = view.settled_before(wall), self._term.of(gang.key).timers.hosts_out(now)
        with view.lock:
            topology = view.topologies.get(gang.request.topology or "")
            if topology is None or topology.waits or not room_in_total(view, gang, topology):
                return None  # before all gangs are looked at: most often the cluster is full
            priority = view.pod_shapes.priority_of(gang.workload)
            found = movable(view, priority=priority, protect=rules.protect, now=wall, spared=self._term.busy)
            ending = view.gangs.intents
            candidates = [one for one in found if not (len(ending) and ending.naming(self._uid(one.key)))]
        nominated = frozenset[str]().union(*(one.hosts for one in self._term.nominations_before(gang.key, priority)))

        def plan(one: Gang, out: frozenset[str]) -> Outcome:
            return schedule_gang(
                view, one, kept=kept_assignment(one), settled_before=settled_before, excluded=out | out_for_gang
            )

        return moves_for_waiting(
            view,
            gang,
            plan=plan,
            plan_moved=partial(replan, view, settled_before),
            candidates=candidates,
            limits=MoveLimits(rules.max_gangs, MOST_PLANS),
            left_out=nominated,
        )

    def _uid(self, key: GangKey) -> str:
        plan = self._view.gangs.plan_of(key)
        return plan.uid if plan is not None else ""

    def _note(self, key: GangKey, gang: Gang, found: Defragmentation | None, now: float) -> None:
        """Have the status of a gang show a proposal, or no longer; the first one since it waits gets an Event."""
        gang_state = self._term.of(key)
        proposal = None
        if found is not None:
            proposal = RestartProposal(tuple((self._uid(one.key), one.pods) for one in found.restarts))
        if gang_state.restarts_told is None:
            gang_state.restarts_told = _was_told(gang.status)
        if proposal is not None and found is not None and not gang_state.restarts_told:
            gang_state.restarts_told = True
            text = f"it {proposal.text}"
            self._executor.events.publish_events(gang, "RestartsProposed", f"{text} (admins: topogate defragment)")
            log.info("%s/%s: %s: %s", gang.workload.namespace, gang.workload.name, text, _named(found))
        if gang_state.restarts == proposal:
            return
        gang_state.restarts = proposal
        if (plain := gang_state.plain_status) is not None and plain.phase == "Waiting":
            self._reporter.report(key, gang, plain, now)


def _was_told(status: Mapping[str, object]) -> bool:
    """Return True if an earlier leader has written a proposal."""
    known = status.get("proposal")
    return isinstance(known, Mapping) and bool(known.get("restarts"))


def _named(found: Defragmentation) -> str:
    """Return who would restart where, for the log: with names, as only admins read it."""
    names = []
    for one in found.restarts:
        slots = [slot for plan in one.placed.pod_sets for slot in plan.slots]
        paths = list(dict.fromkeys("/".join(slot.domain[:-1] or slot.domain) for slot in slots))
        victim = one.victim
        names.append(f"{victim.kind} {victim.namespace}/{victim.name} -> {', '.join(paths)}")
    return "; ".join(names)
