"""Proposes restarts, or carries them out: which few running gangs start elsewhere so that a waiting one fits.

A gang is looked at when it has waited for room for a while, and again only when the cluster has changed. One search at
a time, seldom, and with few plans: it is a proposal, and nothing waits for it.

Carried out (policy `defragment.mode: act`) it is a preemption: what restarts is written into the Placement of the
waiting gang first, and followed by the Preemptor. There is one in the cluster at a time, and the new hosts of the gangs
that restart are kept for them until they are placed. A gang that was moved is left alone for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from engine import metrics
from engine.api.reasons import REASONS
from engine.api.workload import GangKey
from engine.cache.state import Changes, ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.preemptor import Preemptor
from engine.controller.reporter import StatusReporter
from engine.controller.term import LeaderTerm, SearchPace
from engine.gang.gang import Gang
from engine.lifecycle.actions import RestartProposal
from engine.lifecycle.preemption import recently_moved
from engine.preemption.budgets import jointly_within_budgets
from engine.preemption.movable import MovableGang, cannot_move, movable, room_in_total
from engine.preemption.moves import Defragmentation, MoveLimits, Restart, moves_for_waiting, replan
from engine.preemption.preempt import Preemption, in_group
from engine.scheduler.nomination import where_text
from engine.scheduler.outcome import Outcome, Waits
from engine.scheduler.schedule import kept_assignment, schedule_gang
from engine.scheduler.separation import exclusive_hosts
from engine.scheduler.starvation import Nomination

log = logging.getLogger("topogate.controller")

# Seconds from a search to the next one of the same gang: doubles from the first to the second value, or to the third
# while there is a proposal, which may have become wrong.
SEARCH_FIRST, SEARCH_MOST, CHECK_MOST = 15.0, 300.0, 60.0
# After a search as many times its duration belong to everything else; and at least so many seconds.
SEARCH_REST, SEARCH_EVERY = 19.0, 2.0
MOST_PLANS: Final = 100  # of one search: some 0.3 s on 1,000 hosts
# Of the waiting gang, tried for one set of gangs where these are kept their new hosts.
MOST_PLACES: Final = 3
# Seconds from the decision, for which the new hosts of gangs that restart are kept for them at most.
KEEP_PLACES: Final = 300.0


@dataclass(slots=True)
class _Waiting:
    """A gang that waits for room: when it is searched for next, and how long it rests after that."""

    due: float
    rest: float = SEARCH_FIRST
    seen: int | None = None  # how often the cluster had changed at the last search
    again: float = inf  # when it is searched for although nothing has changed


@dataclass(frozen=True, slots=True)
class _Moving:
    """A gang that restarts for another one (`waiting`): the revision of its old slots, and when its hosts are free."""

    waiting: GangKey
    revision: int
    until: float


class Mover:
    """Proposes restarts, and carries them out, in one leader term; called by the thread that decides."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        reporter: StatusReporter,
        preemptor: Preemptor,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._reporter = reporter
        self._preemptor = preemptor
        self._wall = wall
        self._waiting: dict[GangKey, _Waiting] = {}
        self._moving: dict[GangKey, _Moving] = {}
        self._pace = SearchPace(monotonic, rest=SEARCH_REST, least=SEARCH_EVERY)
        self._changes = 0  # of the cluster, in passes

    def refresh(self, changes: Changes, now: float) -> None:
        """Note that the cluster has changed; release the hosts of moved gangs that need them no longer."""
        self._changes += bool(changes.gangs or changes.everything or changes.capacity_freed or changes.hosts)
        done = [key for key, one in self._moving.items() if self._has_moved(key, one, now)]
        for key in done:
            del self._moving[key]
            self._term.moving.pop(key, None)
        if done:
            self._changes += 1  # others may be moved now
            self._term.retry_waiting()

    def _has_moved(self, key: GangKey, moving: _Moving, now: float) -> bool:
        """Return True for a gang whose new hosts need not be kept: it is placed, gone, or stays where it is."""
        with self._view.lock:
            plan = self._view.gangs.plan_of(key)
        if plan is None or now >= moving.until:
            return True
        if plan.assignment is None:
            return False
        return plan.assignment.revision != moving.revision or moving.waiting not in self._term.preempting

    def missed(self, key: GangKey, outcome: Outcome, now: float) -> None:
        """Note a gang that was planned and does not fit: restarts of others may help it from a certain time on."""
        rules, gang_state = self._view.policy.defragment, self._term.of(key)
        of_room = isinstance(outcome, Waits) and REASONS[outcome.reason].until == "capacity" and not outcome.for_hosts
        if rules.mode == "never" or not of_room or key in self._term.preempting or gang_state.wait is None:
            self.overtaken(key)
            return
        if key not in self._waiting:
            self._waiting[key] = _Waiting(gang_state.wait.since + rules.after)

    def overtaken(self, key: GangKey) -> None:
        """Note a gang that is not planned before others in the queue: no restart would let it start."""
        self._waiting.pop(key, None)
        self._term.of(key).restarts = None  # what is reported next is without it

    def next(self) -> float | None:
        """Return when `plan` should be called next; None if nothing is due before the cluster changes."""
        busy = self._term.busy
        due = [self._due(one) for key, one in self._waiting.items() if key not in busy]
        first = min((*(one.until for one in self._moving.values()), max(self._pace.opens, min(due, default=inf))))
        return first if first < inf else None

    def _due(self, one: _Waiting) -> float:
        """Return when a gang is searched for next; infinite if only after a change of the cluster."""
        return one.due if one.seen != self._changes else one.again

    def plan(self, now: float) -> None:
        """Search for the first gang that is due, in the order of the queue: one in a pass."""
        if not self._waiting:
            return
        term = self._term
        for key in [key for key in self._waiting if key not in term.queue]:
            del self._waiting[key]
            if (gang_state := term.gang_state.get(key)) is not None:
                gang_state.restarts, gang_state.restarts_reported = None, False
        if now < self._pace.opens:
            return
        due = (key for key, one in self._waiting.items() if self._due(one) <= now and key not in term.busy)
        if (first := term.first_in_queue(due)) is not None:
            self._pace.run(partial(term.guarded, first, now, partial(self._search, first, now)))

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
        acts = view.policy.defragment.mode == "act"
        # Some of what keeps a gang where it is ends with the time alone.
        waiting.again = now + SEARCH_MOST if acts else inf
        if acts and found is not None and self._preemptor.may_move(gang, found, now):
            self._move(key, gang, found, now)
        else:
            self._note(key, gang, found, now)

    def _move(self, key: GangKey, gang: Gang, found: Defragmentation, now: float) -> None:
        """Have the gangs of a plan restart, and keep their new hosts for them."""
        self._term.of(key).restarts = None
        log.info("%s/%s: %s", gang.workload.namespace, gang.workload.name, _named(found))
        victims = tuple(one.victim for one in found.restarts)
        self._preemptor.decide(key, gang, Preemption(found.placed, victims, found.proven), now, moves=True)
        used = [found.placed.hosts, *(one.placed.hosts for one in found.restarts)]
        for one in found.restarts:
            own = one.placed.hosts
            # A host that several of them use is kept for none, as each would wait for the other.
            alone = frozenset(host for host in own if sum(host in hosts for hosts in used) == 1)
            self._moving[one.key] = _Moving(key, one.before.revision, now + KEEP_PLACES)
            with self._view.lock:
                self._term.moving[one.key] = self._nomination(one, alone, moves_for=key)

    def _nomination(self, restart: Restart, hosts: frozenset[str], *, moves_for: GangKey) -> Nomination:
        view, victim = self._view, restart.victim
        gang = view.gangs.get(restart.key)
        topology, where = (gang.request.topology or "") if gang is not None else "", "some hosts"
        if gang is not None and (known := view.topologies.get(topology)) is not None:
            where = where_text(restart.placed, known)
            hosts |= exclusive_hosts(hosts & known.tree.index.keys(), gang.request.separation, known)
        name = f"{victim.namespace}/{victim.name}"
        return Nomination(restart.key, name, victim.priority, topology, hosts, where, moves_for)

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
            limits = MoveLimits(rules.max_gangs, MOST_PLANS)
            if rules.mode == "act":
                candidates = [one for one in candidates if self._may_restart(one, wall)]
                pods = {str(one.key): one.victim.pods for one in candidates}
                together = jointly_within_budgets(view, pods, beside=self._preemptor.ending())
                candidates = [one for one in candidates if together([one.key])]
                limits = replace(limits, places=MOST_PLACES, together=together)
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
            limits=limits,
            left_out=nominated,
        )

    def _may_restart(self, one: MovableGang, wall: float) -> bool:
        """Return True for a gang that may be moved without asking its owner, if its budgets allow it.

        The caller holds the state's lock.
        """
        gang = self._view.gangs.get(one.key)
        return gang is not None and not recently_moved(gang.status, wall) and not cannot_move(self._view, gang)

    def _uid(self, key: GangKey) -> str:
        plan = self._view.gangs.plan_of(key)
        return plan.uid if plan is not None else ""

    def _note(self, key: GangKey, gang: Gang, found: Defragmentation | None, now: float) -> None:
        """Have the status of a gang show a proposal, or no longer; the first one since it waits gets an Event."""
        gang_state = self._term.of(key)
        proposal = None
        if found is not None:
            proposal = RestartProposal(tuple((self._uid(one.key), one.pods) for one in found.restarts))
        if gang_state.restarts_reported is None:
            gang_state.restarts_reported = _was_reported(gang.status)
        if proposal is not None and found is not None and not gang_state.restarts_reported:
            gang_state.restarts_reported = True
            text = f"it {proposal.text}"
            self._executor.events.publish_events(gang, "RestartsProposed", f"{text} (admins: topogate defragment)")
            log.info("%s/%s: %s: %s", gang.workload.namespace, gang.workload.name, text, _named(found))
        if gang_state.restarts == proposal:
            return
        gang_state.restarts = proposal
        if (plain := gang_state.plain_status) is not None and plain.phase == "Waiting":
            self._reporter.report(key, gang, plain, now)


def _was_reported(status: Mapping[str, object]) -> bool:
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
