"""Which few restarts would let a waiting gang fit, or put a running one that is split into fewer domains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from engine.api.duration import timestamp
from engine.api.placement import PodSetPlan
from engine.api.reasons import REASONS
from engine.api.text import plural
from engine.gang.gang import Gang, over
from engine.gang.slots import part_to_place
from engine.gang.summary import domains_by_level
from engine.preemption.movable import (
    MovableGang,
    movable,
    preferred_level,
    restarts_alone,
)
from engine.preemption.moves import (
    MAX_PLANS,
    Defragmentation,
    MoveLimits,
    moves_for_split,
    moves_for_waiting,
    replan,
)
from engine.preemption.victims import Victim, is_protected, managed
from engine.scheduler.outcome import Never, Outcome, Placed
from engine.scheduler.precedence import Precedence, precedence_of, queued_at
from engine.scheduler.schedule import schedule_gang
from webhook.explanations.fits import pods_by_domain
from webhook.queries import model as output
from webhook.queries.gangs import WaitingGang, queue_of, waiting_gangs
from webhook.queries.names import group_of
from webhook.queries.subject import GangFilter
from webhook.snapshot.snapshot import AnswerProblem, Snapshot, Unread

_MOST_PLANS: Final = 4_000  # of one answer: some ten seconds on 1,000 hosts
_NO_ANSWER: Final = (
    "without that there is no answer; the service sees all: status.proposal in the Placement of a gang that waits "
    "shows whether restarts would help it"
)


def defragment(
    snapshot: Snapshot,
    *,
    namespace: str | None = None,
    only: GangFilter | None = None,
    most_gangs: int | None = None,
    progress: Callable[[int], None] = lambda _plans: None,
) -> output.DefragmentAnswer:
    """Return the restarts that would help gangs of a namespace (None: of all) that `only` takes.

    `most_gangs`: at most so many restarts for one gang; None: as the policy says. `progress` gets the number of plans
    so far. Raises AnswerProblem where free capacity is not known, and for a name that no gang has.
    """
    if not snapshot.capacity_known:
        raise AnswerProblem(_NO_ANSWER, Unread.texts(one for one in snapshot.unread if one.decides))
    search = _Search(snapshot, most_gangs, progress)
    waiting = [one for one in queue_of(snapshot, waiting_gangs(snapshot)) if _is_in(one.gang, namespace)]
    running = [gang for gang in _running(snapshot) if _is_in(gang, namespace)]
    if only is not None:
        if missing := list(only.missing(snapshot, [*(one.gang for one in waiting), *running])):
            raise AnswerProblem(missing[0])
        waiting = [one for one in waiting if only.takes(snapshot, one.gang)]
        running = [gang for gang in running if only.takes(snapshot, gang)]
    for one in waiting:
        search.waiting(one, named=only is not None)
    for gang in running:
        search.running(gang, named=only is not None)
    return output.DefragmentAnswer(
        taken_at=timestamp(snapshot.taken),
        proposals=tuple(search.proposals),
        others=tuple(search.others),
        remarks=(*snapshot.remarks, *search.remarks()),
    )


class _Search:
    """The searches of one answer, with the plans that are left for them."""

    def __init__(self, snapshot: Snapshot, most_gangs: int | None, progress: Callable[[int], None]) -> None:
        self._snapshot = snapshot
        self._view = snapshot.view
        self._rules = self._view.policy.defragment
        self._most_gangs = most_gangs or self._rules.max_gangs
        self._progress = progress
        self._plans = 0
        self._left_out = 0  # gangs for which no plans were left
        self.proposals: list[output.MovesAnswer] = []
        self.others: list[output.UnmovedGang] = []

    def waiting(self, one: WaitingGang, *, named: bool) -> None:
        """Search for a gang that waits."""
        gang, outcome = one.gang, one.forecast.now
        before = precedence_of(self._view, gang, created=queued_at(gang.workload, gang.placement))
        if (why := _not_for_room(one, outcome, before)) is not None:
            if named:
                self._stays(gang, why, waits=True)
            return
        if not self._plans_left():
            return
        hosts = frozenset[str]().union(*(nomination.hosts for nomination in before.nominations))
        found = moves_for_waiting(
            self._view,
            gang,
            plan=self._plan,
            plan_moved=self._replan,
            candidates=self._candidates(gang),
            limits=self._limits,
            left_out=hosts,
        )
        if found is None:
            self._stays(gang, self._no_moves, waits=True)
        else:
            self.proposals.append(self._proposal(gang, found))

    def running(self, gang: Gang, *, named: bool) -> None:
        """Search for a gang that is split."""
        if (why := self._not_split(gang)) is not None:
            if named:
                self._stays(gang, why, waits=False)
            return
        if not self._plans_left():
            return
        found = moves_for_split(
            self._view, gang, plan_moved=self._replan, candidates=self._candidates(gang), limits=self._limits
        )
        if found is not None:
            self.proposals.append(self._proposal(gang, found))
        elif named:
            self._stays(gang, self._no_moves, waits=False)

    def remarks(self) -> Iterator[str]:
        """Yield what was not searched."""
        if self._left_out:
            gangs = plural(self._left_out, "gang")
            yield f"{gangs} more not looked at: the search is bounded; name one with --gang"

    @property
    def _limits(self) -> MoveLimits:
        return MoveLimits(self._most_gangs, min(MAX_PLANS, _MOST_PLANS - self._plans))

    @property
    def _no_moves(self) -> str:
        return f"no place for it was found by restarting up to {plural(self._most_gangs, 'running gang')}"

    def _plans_left(self) -> bool:
        left = self._plans < _MOST_PLANS
        self._left_out += not left
        return left

    def _count(self) -> None:
        self._plans += 1
        self._progress(self._plans)

    def _plan(self, gang: Gang, out: frozenset[str]) -> Outcome:
        self._count()
        settled_before = self._view.settled_before(self._snapshot.taken)
        return schedule_gang(self._view, gang, settled_before=settled_before, excluded=out)

    def _replan(self, gang: Gang, out: frozenset[str]) -> Outcome:
        self._count()
        return replan(self._view, self._view.settled_before(self._snapshot.taken), gang, out)

    def _candidates(self, gang: Gang) -> list[MovableGang]:
        priority, protect = self._view.pod_shapes.priority_of(gang.workload), self._rules.protect
        return list(movable(self._view, priority=priority, protect=protect, now=self._snapshot.taken))

    def _not_split(self, gang: Gang) -> str | None:
        """Return why a gang with slots is not to be put closer together; None if it is to be."""
        topology = self._view.topologies.get(gang.request.topology or "")
        assignment = gang.placement.assignment if gang.placement is not None else None
        if topology is None or topology.waits or assignment is None:
            return "it has no slots"
        level = preferred_level(gang, topology)
        if level is None:
            return "it has slots, and prefers no level"
        domains = list(domains_by_level(part_to_place(gang, assignment), topology).values())
        if domains[level] <= 1:
            return f"it is in one {topology.levels[level].name} already"
        if not restarts_alone(gang):
            return "it cannot be suspended and planned again as a whole"
        if any(is_protected(one, self._rules.protect, self._snapshot.taken) for one in self._victims(gang)):
            return "the policy protects it (defragment.protect)"
        return None

    def _victims(self, gang: Gang) -> list[Victim]:
        return [one for one in managed(self._view) if gang.key in one.keys]

    def _proposal(self, gang: Gang, found: Defragmentation) -> output.MovesAnswer:
        workload, now = gang.workload, self._snapshot.taken
        restarts = [
            output.MovedGang(
                namespace=one.victim.namespace,
                kind=one.victim.kind,
                name=one.victim.name,
                pods=one.pods,
                priority=one.victim.priority,
                running_seconds=_seconds_of(one.victim, now),
                before=_domains(one.before.pod_sets),
                after=_domains(one.placed.pod_sets),
            )
            for one in found.restarts
        ]
        assignment = gang.placement.assignment if gang.placement is not None else None
        if assignment is not None:
            (itself,) = self._victims(gang)
            restarts.insert(
                0,
                output.MovedGang(
                    namespace=workload.namespace,
                    kind=workload.kind,
                    name=workload.name,
                    pods=sum(plan.count for plan in assignment.pod_sets),
                    priority=itself.priority,
                    running_seconds=_seconds_of(itself, now),
                    before=_domains(assignment.pod_sets),
                    after=_domains(found.placed.pod_sets),
                ),
            )
        return output.MovesAnswer(
            namespace=workload.namespace,
            kind=workload.kind,
            name=workload.name,
            group=group_of(workload, gang.key),
            purpose="fits" if assignment is None else "closer",
            pods=sum(plan.count for plan in found.placed.pod_sets),
            priority=self._view.pod_shapes.priority_of(workload),
            assignment=_domains(found.placed.pod_sets),
            restarts=tuple(restarts),
            restarted_pods=sum(one.pods for one in restarts),
            lost_seconds=sum(one.running_seconds * one.pods for one in restarts),
            proven=found.proven,
        )

    def _stays(self, gang: Gang, why: str, *, waits: bool) -> None:
        workload = gang.workload
        self.others.append(
            output.UnmovedGang(
                namespace=workload.namespace,
                kind=workload.kind,
                name=workload.name,
                group=group_of(workload, gang.key),
                waits=waits,
                message=why,
            )
        )


def _seconds_of(victim: Victim, now: float) -> int:
    """Return for how many seconds a gang has run; 0 before its first pod has a host."""
    return int(max(0.0, now - victim.started))


def _not_for_room(one: WaitingGang, outcome: Outcome | None, before: Precedence) -> str | None:
    """Return why restarts cannot help a waiting gang; None if they may."""
    group = one.gang.pod_group
    if group is not None and not group.placed:
        return "it starts together with its pod group, for which no restarts are looked for"
    if isinstance(outcome, Placed):
        return "it fits now"
    if isinstance(outcome, Never):
        return f"it never fits: {outcome.message}"
    if outcome is None or not one.queues:
        return "it does not wait for room"
    if outcome.for_hosts:
        return f"it waits for other hosts: {outcome.message}"
    if before.first is not None or before.limited:
        return f"others go first: {outcome.message}"
    return None if REASONS[outcome.reason].until == "capacity" else f"{outcome.reason}: {outcome.message}"


def _is_in(gang: Gang, namespace: str | None) -> bool:
    return namespace in (None, gang.workload.namespace)


def _running(snapshot: Snapshot) -> list[Gang]:
    """Return the gangs with slots, by name."""
    view = snapshot.view
    found = []
    for key in view.gangs.keys():  # noqa: SIM118 - no mapping
        gang = view.gangs.get(key) if view.gangs.placed(key) else None
        if gang is None or gang.placement is None or gang.placement.assignment is None or over(gang.workload):
            continue
        if gang.status.get("phase") != "Finished":
            found.append(gang)
    return sorted(found, key=lambda gang: (gang.workload.namespace, gang.workload.name, gang.key))


def _domains(pod_sets: Iterable[PodSetPlan]) -> tuple[output.DomainPods, ...]:
    return tuple(output.DomainPods(path=path, pods=count) for path, count in pods_by_domain(pod_sets).items())
