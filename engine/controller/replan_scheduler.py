"""Plans gangs with slots anew whose users ask for that: a gang restarts only if its place becomes better."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine import metrics
from engine.api import names
from engine.api.placement import Assignment, Placement, ReplanRecord
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.controller.executor import ActionExecutor
from engine.controller.term import LeaderTerm
from engine.gang.gang import Gang
from engine.gang.slots import part_to_place, slots_of
from engine.gang.summary import domains_by_level
from engine.lifecycle.host_health import HostHealth, named
from engine.lifecycle.moves import kept_record
from engine.preemption.movable import not_creatable
from engine.scheduler.limits import on_hold, past_host_limit
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from engine.topology.topology import Topology


class ReplanScheduler:
    """Answers `topogate.dev/replan`."""

    def __init__(
        self, view: ClusterState, executor: ActionExecutor, term: LeaderTerm, *, wall: Callable[[], float]
    ) -> None:
        self._view = view
        self._executor = executor
        self._term = term
        self._wall = wall

    def plan(self, key: GangKey, gang: Gang, now: float) -> None:
        """Plan a gang without its own pods and slots; act if its place becomes better, else record why it stays.

        A running gang is suspended, one that is suspended for this gets its new slots and is resumed.
        """
        view, wall = self._view, self._wall()
        with view.lock:
            found = self._better(gang, now)
            if isinstance(found, str):
                record = kept_record(gang, found, wall=wall)
            else:
                record, placement = self._move(gang, *found, wall=wall)
                if gang.workload.suspended:
                    view.assume(key, placement, moves=True)
        if isinstance(found, str):
            self._term.send(key, lambda: self._executor.record_replan(gang, record))
        elif not gang.workload.suspended:
            self._term.send(key, lambda: self._executor.restart(gang, record))
        else:
            gang_state = self._term.of(key)
            gang_state.last_plan, gang_state.pending_status = found[0], None
            self._term.send(key, lambda: self._executor.move(gang, placement, record))

    def _move(self, gang: Gang, placed: Placed, gain: str, *, wall: float) -> tuple[ReplanRecord, Placement]:
        """Return the answer that a gang moves, and its Placement with the new slots."""
        view = self._view
        placement = new_placement(gang, placed, priority=view.pod_shapes.priority_of(gang.workload), now=wall)
        where = self._executor.events.place_of(placement)["domain"]
        moves = "moved to" if gang.workload.suspended else "restarts in"
        answer = kept_record(gang, "", wall=wall)
        outcome = replace(answer, outcome="Moved" if gang.workload.suspended else "Restarting")
        return replace(outcome, message=f"{moves} {where} ({names.REPLAN}): {gain}"), placement

    def _better(self, gang: Gang, now: float) -> tuple[Placed, str] | str:
        """Return a better plan and what is better, or why there is none. The caller holds the state's lock."""
        view = self._view
        if (held := on_hold(gang.workload.namespace, view.policy)) is not None:
            return held.message
        if why := not_creatable(view, gang):
            return why
        topology = view.topologies.get(gang.request.topology or "")
        if topology is None or topology.waits:
            return "its topology is not there now"
        ahead = self._term.nominations_before(gang.key, view.pod_shapes.priority_of(gang.workload))
        out = self._term.of(gang.key).timers.hosts_out(now)
        out |= frozenset[str]().union(*(nomination.hosts for nomination in ahead))
        with metrics.plan_seconds.time(), view.without((gang.key,), view.gangs.pods_of(gang.key)):
            outcome = schedule_gang(
                view,
                replace(gang, pods=(), later=()),
                kept={},
                settled_before=view.settled_before(self._wall()),
                excluded=out,
                creatable=True,
            )
        metrics.plans.labels(type(outcome).__name__).inc()
        if not isinstance(outcome, Placed):
            return outcome.message
        assert gang.placement is not None and gang.placement.assignment is not None
        current = part_to_place(gang, gang.placement.assignment)
        past_limit = past_host_limit(view, gang, current.hosts, topology)
        if gain := self._gain(gang, current, outcome, topology, past_limit=past_limit):
            return outcome, gain
        kept = f"no place is better now: {_domains_text(current, topology)}"
        return f"{kept}; {past_limit}, within which fewer of its pods fit" if past_limit else kept

    def _gain(self, gang: Gang, now: Assignment, placed: Placed, topology: Topology, *, past_limit: str) -> str:
        """Return what is better in a new plan, in words; "" if nothing is, or something worse comes first.

        First all pods that have slots get some, then no pod is on a host that takes no more pods of the gang, then
        its namespace keeps its limit of hosts, as every new plan does, then there are fewer domains, from the coarsest
        level down.
        """
        new = replace(now, pod_sets=placed.pod_sets)
        if new.count != now.count:
            more = new.count - now.count
            return f"{plural(more, 'more pod')} fit there" if more > 0 else ""
        bad = self._bad_hosts(gang, now.hosts)
        pods = sum(slot.count for slot in slots_of(now) if slot.host in bad)
        if pods:
            verb = "has its slot" if pods == 1 else "have slots"
            return f"{plural(pods, 'pod')} {verb} on {named(bad)}, no longer accepting pods of it"
        if past_limit:
            return past_limit
        if any(len(slot.domain) != len(topology.levels) for slot in slots_of(now)):
            return "the levels of the topology have changed since it was placed"
        before, after = domains_by_level(now, topology), domains_by_level(new, topology)
        for level in before:
            if after[level] != before[level]:
                fewer = f"{plural(after[level], level)} instead of {before[level]:,}"
                return fewer if after[level] < before[level] else ""
        return ""

    def _bad_hosts(self, gang: Gang, hosts: Iterable[str]) -> set[str]:
        """Return those of a gang's hosts on which its pods could not be placed any more."""
        health = HostHealth(gang, self._view.capacity, self._view.topologies, now=self._wall())
        return {
            host
            for host in hosts
            if host in gang.request.leave_hosts or not health.usable(host) or health.overcommitted(host)
        }


def _domains_text(assignment: Assignment, topology: Topology) -> str:
    """Return how many domains of each level a gang uses."""
    used = domains_by_level(assignment, topology)
    return "it uses " + ", ".join(plural(count, level) for level, count in used.items())
