"""Schedules waiting gangs: which is planned when, which hosts are nominated, and why the others wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf
from typing import Final

from engine import metrics
from engine.api.duration import format_duration
from engine.api.placement import kept_hosts, requeues, waiting_since
from engine.api.reasons import REASONS, Code, Why, reason_of
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.mover import Mover
from engine.controller.preemptor import Preemptor
from engine.controller.reporter import TEXT_EVERY, StatusReporter
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang, PodGroupState, can_suspend
from engine.gang.relaxation import relaxed_text, relaxes_at, starts_anew, timeout_text, times_out_at
from engine.gang.repair import KeptSlot
from engine.gang.slots import request_to_place
from engine.lifecycle.actions import Status
from engine.lifecycle.gang_state import QueuedWait
from engine.policy.namespaces import limits_hosts
from engine.scheduler.fairness import Shares, weighted_usage
from engine.scheduler.limits import creation_problem, on_hold, too_many_waiting, waiting_limit
from engine.scheduler.nomination import nominate_hosts
from engine.scheduler.outcome import Never, Outcome, Placed, Waits, unschedulable_alone
from engine.scheduler.pod_group import PlacedGroup, for_minimum, joint_request, schedule_pod_group, with_place
from engine.scheduler.precedence import goes_first, in_turn, kept_for, queued_at
from engine.scheduler.queue import Miss, PlanKey, QueueEntry, plan_key
from engine.scheduler.schedule import (
    kept_assignment,
    never_fits,
    new_placement,
    schedule_gang,
    schedule_jointly,
    waits_for_creation,
)
from engine.scheduler.separation import separation_key
from engine.scheduler.starvation import Nomination, StarvingGang

log = logging.getLogger("topogate.controller")

REQUEUE_EVENT_EVERY: Final = 3600.0  # seconds between two Events about requeues of one gang


class GangScheduler:
    """Plans the gangs of the term's `queue`."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        reporter: StatusReporter,
        *,
        preemptor: Preemptor,
        mover: Mover,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._reporter = reporter
        self._preemptor = preemptor
        self._mover = mover
        self._monotonic = monotonic
        self._wall = wall
        self._refreshed_at = monotonic()
        self._tried_groups: set[GangKey] = set()  # members of pod groups that were planned in this turn

    @property
    def behind(self) -> bool:
        """Return True if postponed gangs should be planned as soon as possible."""
        return self._term.queue.behind

    def add(self, key: GangKey, gang: Gang, not_before: float | None, now: float) -> None:
        """Queue a gang, or relax its request first if it has waited long enough for that."""
        workload, policy, gang_state = gang.workload, self._view.policy, self._term.gang_state[key]
        clock = now - self._wall()  # from time of day to our own clock
        if gang.placement is not None:
            known = gang.placement.status
            gang_state.waiting_since = None if starts_anew(known) else known.get("waitingSince")
        before = gang.status
        self._note_requeues(gang, requeues(before))
        ends = times_out_at(gang.request, {**before, "waitingSince": gang_state.waiting_since})
        if key in self._term.preempting:
            ends = None  # others would have ended in vain; it is reconciled when that is over
        if ends is not None and ends + clock <= now and gang.placement is not None:
            self._term.queue.drop(key)
            self._time_out(key, gang, now)
            return
        if (group := gang.pod_group) is not None and not (group.complete or group.placed):
            self._term.queue.drop(key)
            gang_state.wake_at(ends + clock if ends is not None else None)
            self._reporter.report(key, gang, Status("Waiting", "WaitingForMembers", group.incomplete_text), now)
            return
        relaxes = relaxes_at(gang.request, gang.placement, policy)
        if key in self._term.preempting:
            relaxes = None  # hosts are kept and others end for what it asks now; it is reconciled when that is over
        due = relaxes is not None and relaxes + clock <= now
        since = waiting_since({"waitingSince": gang_state.waiting_since})  # also if the Placement was deleted by hand
        new_here = gang_state.wait is None
        if gang_state.wait is None:
            topology = self._view.topologies.get(gang.request.topology or "")
            levels = [level.name for level in topology.levels] if topology is not None else ()
            began = min(now, since + clock) if since is not None else now
            gang_state.wait = QueuedWait.of(gang.request, levels, began)
        patient_until = since + policy.queue.patience + clock if since is not None else inf
        gang_state.wake_at(relaxes + clock if relaxes is not None and not due else None)
        gang_state.wake_at(ends + clock if ends is not None else None)
        gang_state.wake_at(patient_until if now < patient_until < inf else None)
        entry = QueueEntry(
            priority=self._view.pod_shapes.priority_of(workload),
            created=queued_at(workload, gang.placement),
            name=f"{workload.namespace}/{workload.name}",
            not_before=not_before or 0.0,
            patient_until=patient_until,
            topology=gang.request.topology or "",
        )
        self._term.queue.add(key, entry)
        if new_here and (hosts := frozenset(kept_hosts(before))):
            self._term.nominator.restore(Nomination(key, entry.name, entry.priority, entry.topology, hosts, where=""))
        if due:  # it keeps its place and its hosts meanwhile: the relaxed request is planned before any behind it
            self._term.send(key, lambda: self._executor.relax(gang))

    def _time_out(self, key: GangKey, gang: Gang, now: float) -> None:
        """Requeue a gang that has waited for its schedule-timeout, or give it up, as the policy says."""
        assert gang.placement is not None
        message = timeout_text(gang.request, self._view.policy, gang.placement.status)
        if self._view.policy.queue.on_timeout == "requeue":
            gang_state = self._term.gang_state[key]
            tell = now >= gang_state.requeue_told_at + REQUEUE_EVENT_EVERY
            gang_state.requeue_told_at = now if tell else gang_state.requeue_told_at
            gang_state.requeues = requeues(gang.placement.status) + 1
            self._term.send(key, lambda: self._executor.requeue(gang, message, event=tell))
            return
        status = Status("Waiting", "ScheduleTimeout", message)
        self._term.gang_state[key].end_wait("timed_out", now)
        if gang.workload.suspended or not can_suspend(gang.workload):
            self._reporter.report(key, gang, status, now)
            return
        # Its user had resumed it while it waited: its pods exist and are gated.
        event = self._reporter.reported(key, gang, status, now)
        self._term.send(key, lambda: self._executor.unplace(gang, status, suspend=True, event=event))

    def _note_requeues(self, gang: Gang, times: int) -> None:
        """Record a requeue that was not ours: there is a command for it."""
        gang_state = self._term.gang_state[gang.key]
        if gang_state.requeues is not None and times > gang_state.requeues:
            self._executor.events.record_requeue_by_command(gang, times)
        gang_state.requeues = times

    def plan(self, now: float) -> None:
        """Plan the gangs that are due, in the order of the queue."""
        view = self._view
        strict = view.policy.queue.order == "strict"
        self._term.queue.usage = weighted_usage(view)
        self._nominate(now, strict=strict)
        if self._term.queue.capacity_freed and not strict:
            for key in self._term.queue.for_hosts:  # their numbers may have changed, if not their outcome
                if (gang_state := self._term.gang_state.get(key)) is not None:
                    self._term.numbers.put(key, None, due=max(now, gang_state.reported_at + TEXT_EVERY))
        self._tried_groups.clear()
        keys = self._term.queue.take(now, strict=strict)
        if strict:
            self._plan_in_order(keys, now)
        else:
            self._plan_by_shares([key for key in keys if key not in self._term.busy], now)
        self._refresh_numbers(now)
        self._find_numbers(now, strict=strict)

    def _plan_in_order(self, keys: list[GangKey], now: float) -> None:
        """Plan the gangs one by one up to the first that waits for capacity, which must not be overtaken."""
        queue = self._term.queue
        for key in queue.in_turns(keys):
            if key in self._term.busy:
                queue.capacity_freed = True  # plan all of them again when it is no longer busy
                break
            # Of those that wait for hosts the one that others wait for: its namespace may be why it waits by now.
            if key not in queue.for_hosts or (self._term.blocks(key) and self._has_limits(key)):
                self._term.guarded(key, now, partial(self._plan_one, key, now))
            if key in queue and self._term.blocks(key):
                queue.stop_behind(key)
                for later in queue.later_than(key):
                    if later in self._term.moving:
                        self._plan_moved(later, now)
                    elif later not in self._tried_groups:  # its pod group was planned, and says why all of it waits
                        self._report_behind(later, key, now)
                break

    def _plan_moved(self, key: GangKey, now: float) -> None:
        """Plan a gang that moves for another one, whoever goes before it: its new hosts are kept for it alone."""
        entry = self._term.queue.entry(key)
        if entry is not None and entry.not_before <= now and key not in self._term.busy:
            self._term.guarded(key, now, partial(self._plan_one, key, now))

    def _plan_by_shares(self, keys: list[GangKey], now: float) -> None:
        """Plan gangs in order, within the shares of their namespaces.

        One half of a share goes by the order, the other by the time since postponement: so the first of many gangs are
        tried whenever capacity is freed, and the last ones get their turn too, also if the plan of the first one takes
        longer than the whole share.
        """
        queue = self._term.queue
        namespaces = {key: entry.namespace for key in keys if (entry := queue.entry(key)) is not None}
        rest = self._plan_within(queue.in_turns(keys), namespaces, len(keys), now)
        queue.put_off(self._plan_within(queue.longest_put_off(rest), namespaces, len(keys), now))

    def _plan_within(
        self, keys: Iterable[GangKey], namespaces: Mapping[GangKey, str], due: int, now: float
    ) -> list[GangKey]:
        """Plan gangs until their namespaces have used up half of a share; return the others, in order. `due`: all."""
        with_share = set(namespaces.values())
        shares = Shares(with_share, self._monotonic, due=due, part=0.5)
        rest: list[GangKey] = []
        in_order = iter(keys)
        for key in in_order:
            namespace = namespaces.get(key, "")
            if not shares.left(namespace):
                with_share.discard(namespace)
                rest.append(key)
                if not with_share:
                    rest += in_order  # thousands may be left
                continue
            self._term.queue.planned(key)
            with shares.used_by(namespace):
                self._term.guarded(key, now, partial(self._plan_one, key, now))
        return rest

    def _nominate(self, now: float, *, strict: bool) -> None:
        """Nominate hosts for starving gangs; in strict order they cannot be overtaken anyway."""
        waiting = []
        for key in [] if strict else self._term.queue.impatient(now):
            entry = self._term.queue.entry(key)
            if entry is not None and self._term.blocks(key) and key not in self._term.preempting:
                waiting.append(StarvingGang(key, entry.priority, entry.topology, entry.namespace))
        kept = {nomination.key: nomination for nomination in self._term.nominator.kept()}
        if self._term.nominator.renew(waiting, now, partial(self._find_nomination, now)):
            self._term.retry_waiting()
        for nomination in self._term.nominator.kept():
            if nomination.key not in kept:
                log.info("keeping %s for %s", nomination.where, nomination.name)
            if kept.get(nomination.key) != nomination:
                self._term.queue.requeue(nomination.key)  # so that its status shows the nomination
        for key in kept.keys() - {nomination.key for nomination in self._term.nominator.kept()}:
            self._term.queue.requeue(key)  # so that its status shows none any more, also if only other hosts help it

    def _find_nomination(
        self, now: float, waiting: StarvingGang, kept: Nomination | None, taken: frozenset[str]
    ) -> Nomination | None:
        view = self._view
        with view.lock:
            gang, topology = view.gangs.get(waiting.key), view.topologies.get(waiting.topology)
            if gang is None or topology is None or not request_to_place(gang).count:
                return None
            group, joint, alone = gang.pod_group, None, gang
            if group is not None and not group.placed:
                joint = joint_request(self._in_group(gang), group)
                alone = replace(gang, request=for_minimum(gang.request, group))
            excluded, kept_slots = self._term.of(waiting.key).timers.hosts_out(now), kept_assignment(gang)
            settled_before = view.settled_before(self._wall())
            promised = (*self._term.preempting.values(), *self._term.moving.values())
            taken = taken.union(*(one.hosts for one in promised))

            def plan(emptied: frozenset[str], out: frozenset[str]) -> Outcome:
                if joint is not None:
                    return schedule_jointly(
                        view,
                        gang,
                        joint.request,
                        joint.shapes,
                        settled_before=settled_before,
                        excluded=excluded | out,
                        nominated=taken,
                        emptied=emptied,
                    )
                return schedule_gang(
                    view,
                    alone,
                    kept=kept_slots,
                    settled_before=settled_before,
                    excluded=excluded | out,
                    nominated=taken,
                    emptied=emptied,
                )

            return nominate_hosts(
                waiting,
                request_to_place(alone) if joint is None else joint.request,
                gang.shapes if joint is None else joint.shapes,
                name=f"{gang.workload.namespace}/{gang.workload.name}",
                kept=kept,
                capacity=view.capacity,
                topology=topology,
                pods=view.stores.pods.values(),
                plan=plan,
            )

    def _in_group(self, gang: Gang) -> list[Gang]:
        """Return the queued workloads of a gang's pod group in its topology, it first. The caller holds the lock."""
        members = gang.pod_group.members if gang.pod_group is not None else ()
        queued = [key for key in members if key != gang.key and self._term.queue.entry(key) is not None]
        found = [gang, *(other for key in queued if (other := self._view.gangs.get(key)) is not None)]
        found = [one for one in found if one.request.topology == gang.request.topology]
        return [one for one in found if request_to_place(one).count]

    def _plan_one(self, key: GangKey, now: float, *, alone: bool = False) -> None:
        """Plan a queued gang: it leaves the queue if it is placed, else its status gets the reason.

        A problem that was already answered in this turn is not planned again, unless with `alone`.
        """
        view = self._view
        with view.lock:
            gang, entry = view.gangs.get(key), self._term.queue.entry(key)
            if gang is None or entry is None or gang.request.asked is None:
                self._term.queue.drop(key)
                return
            gang_state = self._term.of(key)
            if (held := on_hold(entry.namespace, view.policy)) is not None:
                self._report(key, gang, Miss(held), now)
                return
            if key not in self._term.moving and self._limited(key, entry, gang, now):
                self._wait_behind_own(key, gang, now)
                return
            if gang.pod_group is not None and not gang.pod_group.placed:
                self._plan_group(gang, gang.pod_group, now)
                return
            gang_state.planned_on = view.capacity.version
            excluded = gang_state.timers.hosts_out(now)
            ahead = self._term.nominations_before(key, entry.priority)
            hosts = frozenset[str]().union(*(nomination.hosts for nomination in ahead))
            classes = tuple(map(view.pod_shapes.missing_class, gang.workload.pod_sets))
            apart = separation_key(view, gang)
            problem = plan_key(request_to_place(gang), gang.shapes, excluded, hosts, classes, apart)
            kept = kept_assignment(gang)
            joins = bool(kept)  # kept pods make it a problem of its own
            if not joins and not alone and not self._term.nominator.of(key) and self._answered(key, gang, problem, now):
                return
            with metrics.plan_seconds.time():
                plan = partial(self._plan_beside, gang, kept, excluded)
                outcome, first = in_turn(plan, ahead)
                if waits_for_creation(outcome) and not self._term.queue.may_fit(key, problem):
                    outcome = self._never_fits(key, gang, problem) or outcome
            if isinstance(outcome, Placed):
                priority = view.pod_shapes.priority_of(gang.workload)
                placement = new_placement(gang, outcome, priority=priority, now=self._wall())
                view.assume(key, placement)
                if self._term.queue.usage is not None:
                    self._term.queue.usage.charge(entry.namespace, view.reserved_usage(key))
        metrics.plans.labels(type(outcome).__name__).inc()
        if isinstance(outcome, Placed):
            self._term.queue.drop(key)
            self._term.bursts.placed(now)
            gang_state.last_plan = outcome
            gang_state.pending_status = None
            waited = self._waited([key]).get(key)
            ended = self._end_waits([key])

            def place() -> None:
                self._executor.place(gang, placement, waited=waited)
                ended()

            self._term.send(key, place)
            return
        miss = Miss(outcome, first)
        self._report(key, gang, miss, now)
        if excluded:
            # no event will show that its excluded hosts count again
            gang_state.wake_at(gang_state.timers.next_back(now))
        if not joins and outcome.for_hosts:
            self._term.queue.waits_for_hosts(key)
        if not joins and REASONS[outcome.reason].shared:
            self._term.queue.record_miss(problem, miss)

    def _plan_group(self, gang: Gang, group: PodGroupState, now: float) -> None:
        """Plan the queued workloads of a pod group together, once a turn: they start in one write, or all wait.

        `gang`: the one whose turn it is. The caller has the state's lock.
        """
        view, queue = self._view, self._term.queue
        if self._tried_groups.intersection(group.members):
            return
        entries = {key: entry for key in group.members if (entry := queue.entry(key)) is not None}
        ready = [key for key, entry in entries.items() if entry.not_before <= now]
        known = [one for key in ready if (one := view.gangs.get(key)) is not None]
        gangs = [one for one in known if one.request.asked is not None]
        leading = {one.key for one in with_place(view, gangs)}
        if leading and gang.key not in leading and (problem := creation_problem(view, gang)) is not None:
            self._report(gang.key, gang, Miss(problem), now)
            return
        self._tried_groups.update(group.members)
        if self._term.busy.intersection(group.members):
            return  # reconciled, and queued again, when the write is done
        coming = sum(request_to_place(one).count for one in gangs)
        if group.problem or coming < group.missing:
            few = f"not all of {plural(group.minimum, 'pod')} of pod group {group.name} can be planned yet"
            outcome: PlacedGroup | Waits | Never = Waits("WaitingForMembers", group.problem or few)
        else:
            with metrics.plan_seconds.time():
                plan = partial(self._plan_member, group, max(entries[key].priority for key in leading), now)
                outcome = schedule_pod_group(view, gangs, group, plan=plan, now=self._wall())
        if not isinstance(outcome, PlacedGroup):
            metrics.plans.labels(type(outcome).__name__).inc()
            for one in gangs:
                self._report(one.key, one, Miss(outcome), now)
                gang_state = self._term.gang_state[one.key]
                gang_state.wake_at(gang_state.timers.next_back(now))
            return
        metrics.plans.labels("Placed").inc(len(outcome.plans))
        for key, (_, placed, _) in outcome.plans.items():
            queue.drop(key)
            self._term.bursts.placed(now)
            gang_state = self._term.of(key)
            gang_state.last_plan, gang_state.pending_status = placed, None
            if queue.usage is not None:
                queue.usage.charge(entries[key].namespace, view.reserved_usage(key))
        first, *others = outcome.plans
        plans = [(gang, placement) for gang, _, placement in outcome.plans.values()]
        waited = self._waited(outcome.plans)
        ended = self._end_waits(outcome.plans)

        def place() -> None:
            self._executor.place_group(plans, waited=waited)
            ended()

        self._term.send(first, place, also=others)

    def _waited(self, keys: Collection[GangKey]) -> dict[GangKey, float]:
        """Return for how many seconds gangs have been queued."""
        now = self._monotonic()
        return {key: now - wait.since for key in keys if (wait := self._term.of(key).wait) is not None}

    def _end_waits(self, keys: Collection[GangKey]) -> Callable[[], None]:
        """End the waits of planned gangs; return what counts them, to be called when their placement is written."""
        waits = [wait for key in keys if (wait := self._term.of(key).wait) is not None]
        for key in keys:
            self._term.of(key).wait = None

        def count() -> None:
            for wait in waits:
                wait.end("placed", self._monotonic())

        return count

    def _plan_member(self, group: PodGroupState, priority: int, now: float, gang: Gang) -> Outcome:
        """Return the outcome of one workload of a pod group, around the hosts nominated for gangs outside of it."""
        before = (nomination for key in group.members for nomination in self._term.nominations_before(key, priority))
        ahead = [nomination for nomination in dict.fromkeys(before) if nomination.key not in group.members]
        excluded = self._term.of(gang.key).timers.hosts_out(now)
        outcome, first = in_turn(partial(self._plan_beside, gang, kept_assignment(gang), excluded), ahead)
        return kept_for(first, gang, outcome) if first else outcome

    def _limited(self, key: GangKey, entry: QueueEntry, gang: Gang, now: float) -> bool:
        """Return True if the limit of waiting gangs of its namespace is reached by gangs ahead of this one.

        Those of its own pod group do not count while they still have to start together, nor any during the pause after
        a failed start.
        """
        limit = waiting_limit(entry.namespace, self._view.policy)
        if limit is None:
            return False
        own = gang.pod_group.members if gang.pod_group is not None and not gang.pod_group.placed else ()
        ahead = self._term.queue.ahead_in_namespace(key, now)
        waiting = (other for other in ahead if other not in own and self._term.blocks(other))
        return sum(1 for _ in islice(waiting, limit)) == limit

    def _wait_behind_own(self, key: GangKey, gang: Gang, now: float) -> None:
        """Keep a gang behind the waiting ones of its namespace; gangs of other namespaces do not wait for it."""
        self._term.queue.limit(key)
        self._term.gang_state[key].unschedulable_alone = True
        self._overtaken(key)
        outcome = too_many_waiting(gang.workload.namespace, self._view.policy)
        self._reporter.report(key, gang, self._why(key, gang, outcome), now)

    def _answered(self, key: GangKey, gang: Gang, problem: PlanKey, now: float) -> bool:
        """Return True if earlier answers of this pass show that a gang does not fit.

        Exactly the same problem has the same answer, with its numbers. If fewer equal pods do not fit either, a gang
        with a reported reason learns its own numbers when there is time for them; so does one in a namespace with a
        quota or a limit of hosts, which come first.
        """
        gang_state, queue = self._term.of(key), self._term.queue
        same, miss = queue.answered(problem), queue.known_miss(problem)
        if miss is not None and miss.outcome.for_hosts:
            queue.waits_for_hosts(key)
        if same is not None and not self._has_limits(key):
            self._report(key, gang, same, now)
            return True
        if (
            miss is None
            or gang_state.reported is None
            or not _already_reported(_reason(miss), gang_state.reported.reason)
        ):
            return False
        self._term.numbers.put(key, None, due=max(now, gang_state.reported_at + TEXT_EVERY))
        return True

    def _has_limits(self, key: GangKey) -> bool:
        """Return True if the namespace of a queued gang has a quota or a limit of hosts."""
        entry = self._term.queue.entry(key)
        namespace = entry.namespace if entry is not None else ""
        return bool(self._view.stores.quotas.get_by(namespace)) or limits_hosts(namespace, self._view.policy)

    def _refresh_numbers(self, now: float) -> None:
        """Find the numbers of waiting gangs again if hosts have changed since: others may have taken what was free.

        Such a change lets no gang start, so nothing else plans them.
        """
        if now < self._refreshed_at + TEXT_EVERY:
            return
        self._refreshed_at = now
        with self._view.lock:
            version = self._view.capacity.version
        for key in self._term.queue.unpaused(now):
            gang_state = self._term.of(key)
            if gang_state.planned_on not in (None, version):
                self._term.numbers.put(key, None, due=max(now, gang_state.reported_at + TEXT_EVERY))

    def _find_numbers(self, now: float, *, strict: bool) -> None:
        """Plan a few of the gangs with possibly outdated numbers, which are known not to fit.

        In strict order only the first: there no gang is planned before its turn.
        """
        first = self._term.queue.first(now, blocks=self._term.blocks) if strict and len(self._term.numbers) else None
        for key, _ in self._term.numbers.take(now, busy=self._term.busy):
            entry = self._term.queue.entry(key)
            if entry is not None and entry.not_before <= now and (not strict or key == first):
                self._term.guarded(key, now, partial(self._plan_one, key, now, alone=True))

    def _plan_beside(
        self,
        gang: Gang,
        kept: Mapping[str, Mapping[int, KeptSlot]],
        excluded: frozenset[str],
        nominated: frozenset[str],
    ) -> Outcome:
        settled_before = self._view.settled_before(self._wall())
        return schedule_gang(
            self._view, gang, kept=kept, settled_before=settled_before, excluded=excluded, nominated=nominated
        )

    def _never_fits(self, key: GangKey, gang: Gang, problem: PlanKey) -> Never | None:
        """Return why a gang never fits, whose pods cannot be created either; not asked again about the same hosts."""
        never = never_fits(self._view, gang, settled_before=self._view.settled_before(self._wall()))
        if never is None:
            self._term.queue.waits_for_pods(key, problem)
        return never

    def _report(self, key: GangKey, gang: Gang, miss: Miss, now: float) -> None:
        gang_state, outcome = self._term.gang_state[key], miss.outcome
        gang_state.unschedulable_alone = unschedulable_alone(outcome)
        if gang_state.unschedulable_alone:
            self._term.queue.retry_limited(gang.workload.namespace)  # it does not wait for capacity
        if miss.first:
            outcome = replace(kept_for(miss.first, gang, outcome), shortage=outcome.shortage)
        gang_state.lacks = outcome.reason
        self._preemptor.missed(key, outcome, now)
        self._mover.missed(key, outcome, now)
        self._reporter.report(key, gang, self._why(key, gang, outcome), now)

    def _why(self, key: GangKey, gang: Gang, outcome: Waits | Never) -> Status:
        """Return the status of a gang that was not placed."""
        return self._preemptor.status(key, gang, self._wait_for_room(key, gang, outcome))

    def _wait_for_room(self, key: GangKey, gang: Gang, outcome: Waits | Never) -> Status:
        nomination = self._term.nominator.of(key)
        if nomination is None or self._term.gang_state[key].unschedulable_alone:
            since = relaxed_text(gang.request, self._view.policy)
            return Status("Waiting", outcome.reason, f"{outcome.message}{since}", shortage=outcome.shortage)
        waited = format_duration(self._view.policy.queue.patience)
        group, count = gang.pod_group, sum(request_to_place(gang).first_slots.values())
        if group is not None and not group.placed:
            count = max(1, group.missing)
        pods = f"{plural(count, 'pod')} {'fits' if count == 1 else 'fit'}"
        where = nomination.where or plural(len(nomination.hosts), "host")
        message = f"has waited for {waited}: {where} kept free until {pods}"
        return Status("Waiting", "RoomKept", message, tuple(sorted(nomination.hosts)), outcome.shortage)

    def _overtaken(self, key: GangKey) -> None:
        """Let nobody end or restart for a gang that others go before, as it would not be planned."""
        self._preemptor.overtaken(key)
        self._mover.overtaken(key)

    def _report_behind(self, key: GangKey, first: GangKey, now: float) -> None:
        with self._view.lock:
            gang, ahead = self._view.gangs.get(key), self._term.queue.turn(first)
        if gang is not None and (held := on_hold(gang.workload.namespace, self._view.policy)) is not None:
            self._report(key, gang, Miss(held), now)  # whoever goes first, and its waiting time does not count
        elif gang is not None and ahead is not None:
            self._overtaken(key)
            outcome_behind = goes_first(ahead, gang, self._term.queue.turn(key))
            self._reporter.report(key, gang, Status("Waiting", outcome_behind.reason, outcome_behind.message), now)


def _reason(miss: Miss) -> Code:
    return "QueuedBehind" if miss.first else miss.outcome.reason


def _already_reported(miss: Code, outcome_behind: Why) -> bool:
    """Return True if a gang with this reason needs no new status.

    Other numbers are no news, but a rank in the queue is, and so is waiting for capacity after waiting for the own
    namespace: from then on others may have to wait for it.
    """
    before = reason_of(outcome_behind)
    if miss == outcome_behind or before is None:
        return miss == outcome_behind or not REASONS[miss].of_order
    return not (REASONS[miss].of_order or before.of_order or before.unschedulable_alone)
