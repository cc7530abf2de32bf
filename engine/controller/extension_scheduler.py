"""Schedules extensions of placed gangs: replacements for lost slots, and growth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine import metrics
from engine.api.placement import Placement, slots_by_host
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.reporter import StatusReporter
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang
from engine.lifecycle.actions import Extend
from engine.lifecycle.host_health import named
from engine.scheduler.outcome import Never, Placed, Waits
from engine.scheduler.precedence import goes_first
from engine.scheduler.schedule import extended_placement, schedule_extension


class ExtensionScheduler:
    """Plans the extensions in the term's `extensions`."""

    def __init__(
        self,
        view: ClusterState,
        executor: ActionExecutor,
        term: LeaderTerm,
        reporter: StatusReporter,
        *,
        wall: Callable[[], float],
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._reporter = reporter
        self._wall = wall

    def add(self, key: GangKey, gang: Gang, action: Extend, now: float) -> None:
        """Queue an extension of a gang."""
        priority, created = self._view.pod_shapes.priority_of(gang.workload), gang.workload.created
        gang_state = self._term.of(key)
        out = gang_state.timers.hosts_out(now)
        self._term.extensions.add(key, action, priority=priority, created=created, out=out)
        if out:
            gang_state.wake_at(gang_state.timers.next_back(now))  # no event will show that they count again
        self._report_status(key, gang, now)

    def plan(self, now: float, *, growing: bool) -> None:
        """Plan the due extensions: growth, or the replacement of lost slots."""
        if growing and self._view.policy.queue.order == "strict" and self._waits_behind(now):
            return
        for key, action in self._term.extensions.take(growing=growing, busy=self._term.busy):
            self._term.guarded(key, now, partial(self._extend_one, key, action, now))

    def _waits_behind(self, now: float) -> bool:
        """Return True if growth would overtake a waiting gang, and report that; in strict order nothing may."""
        growing = self._term.extensions.growing(busy=self._term.busy)
        first = self._term.queue.first(now, blocks=self._term.blocks) if growing else None
        turn = self._term.queue.turn(first) if first is not None else None
        if turn is None:
            return False
        for key in growing:
            with self._view.lock:
                gang = self._view.gangs.get(key)
            if gang is not None:
                self._term.extensions.missed(key, goes_first(turn, gang, None))
                self._report_status(key, gang, now)
        return True

    def _extend_one(self, key: GangKey, action: Extend, now: float) -> None:
        """Write an extension for which there is room: the one that goes first, or else this one."""
        if action.first is not None and self._missed(key, action.first, now) is None:
            return
        if (missed := self._missed(key, action, now)) is not None:
            gang, outcome = missed
            self._term.extensions.missed(key, outcome)
            self._report_status(key, gang, now)

    def _missed(self, key: GangKey, action: Extend, now: float) -> tuple[Gang, Waits | Never] | None:
        """Plan an extension and, if it fits, begin to write it; else return the gang and why it does not."""
        view, extension = self._view, action.extension
        gang_state = self._term.of(key)
        excluded = gang_state.timers.hosts_out(now)
        with view.lock:
            gang = view.gangs.get(key)
            if gang is None or gang.placement is None or gang.placement.assignment is None:
                return None
            ahead = (
                self._term.nominations_before(key, view.pod_shapes.priority_of(gang.workload))
                if extension.more or extension.on_request
                else []
            )
            nominated = frozenset[str]().union(*(nomination.hosts for nomination in ahead))
            # The capacity of lost slots is free for their replacements.
            with view.release_slots(key, stays=extension.kept_part(gang.placement.assignment)):
                with metrics.plan_seconds.time():
                    outcome = schedule_extension(
                        view,
                        gang,
                        extension,
                        settled_before=view.settled_before(self._wall()),
                        excluded=excluded,
                        nominated=nominated,
                    )
                if isinstance(outcome, Placed):
                    placement = extended_placement(gang, extension, outcome, topologies=view.topologies)
                    view.assume(key, placement, moves=extension.on_request or bool(extension.returned))
        metrics.plans.labels(type(outcome).__name__).inc()
        if not isinstance(outcome, Placed):
            return gang, outcome
        self._term.extensions.drop(key)
        gang_state.last_plan = outcome
        gang_state.pending_status = None  # the loss was reported already, and is repaired now
        message = f"{extended_text(action, gang.placement, placement)}; {outcome.message}"
        self._term.send(key, lambda: self._executor.extend(gang, placement, extension, message))
        return None

    def _report_status(self, key: GangKey, gang: Gang, now: float) -> None:
        if (status := self._term.extensions.status(key)) is not None:
            self._reporter.report(key, gang, status, now)


def extended_text(action: Extend, before: Placement, after: Placement) -> str:
    """Return what an extension has done: the pods that joined, or the slots that were lost, and the new hosts."""
    assert before.assignment is not None and after.assignment is not None
    kept = action.extension.kept_part(before.assignment)
    new = slots_by_host(after.assignment.pod_sets) - slots_by_host(kept.pod_sets)
    if action.extension.more:
        return f"{plural(new.total(), 'pod')} joined on {named(new)}"
    if action.extension.returned:
        return f"{action.why}: corrected"
    return f"{action.why}: new {'slot' if new.total() == 1 else 'slots'} on {named(new)}"
