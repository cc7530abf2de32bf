"""When waiting gangs can start, as far as declared deadlines of what runs tell: the queue planned forward in time.

Nothing but `activeDeadlineSeconds` says when something ends, and it may end earlier. So this is what happens if
everything takes its whole time and nothing new goes first: at every known end the gangs that wait are planned again in
the order of the queue, by the leader's own function, and what is placed keeps its slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from engine.api.placement import Placement, kept_hosts
from engine.api.pod import Pod
from engine.api.reasons import REASONS
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, PodGroupState
from engine.gang.key import order_of
from engine.gang.slots import request_to_place
from engine.scheduler.fairness import Turn, in_turns, weighted_usage
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.pod_group import PlacedGroup, group_answer_in_view
from engine.scheduler.precedence import in_queue, queued_at, turn_in
from engine.scheduler.queue import plan_key
from engine.scheduler.schedule import answer_in_view, new_placement
from engine.scheduler.separation import separation_key
from webhook.queries.names import group_of, label_of, workload_label
from webhook.snapshot.snapshot import Snapshot

MAX_PLANS: Final = 2_000  # of one forecast: some six seconds on 10,000 hosts
_PODS_A_PLAN: Final = 50  # that end and are put back: this takes as long as a plan


@dataclass(frozen=True, slots=True)
class Ending:
    """Something that runs and ends at the latest at a time: a gang, or pods of no gang.

    `whole`: the workload itself ends, not the pods of one gang of it.
    """

    at: float
    name: str
    pods: tuple[Pod, ...]
    key: GangKey | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """The answer for one waiting gang: what the planner says now (None: it was not asked), and when the gang fits.

    `by`: seconds since the epoch, None if that is not known. `after`: what has to end until then on its hosts.
    """

    now: Outcome | None
    by: float | None = None
    after: tuple[str, ...] = ()


def endings(snapshot: Snapshot) -> list[Ending]:
    """Return everything that runs with a known end, the first end first; one that is over counts as now."""
    view, ends, found = snapshot.view, snapshot.ends, list[Ending]()
    if not ends:
        return found
    of_gangs: set[tuple[str, str]] = set()
    for key in view.gangs.keys():  # noqa: SIM118 - no mapping
        if not view.gangs.placed(key) or (gang := view.gangs.get(key)) is None:
            continue
        live = tuple(pod for pod in gang.pods if not pod.finished)
        of_gangs.update(pod.key for pod in live)
        own = ends.get(gang.workload.uid)
        of_pods = [_end_of(pod, ends) for pod in live]
        latest = max((end for end in of_pods if end is not None), default=None) if None not in of_pods else None
        at = min((end for end in (own, latest) if end is not None), default=None)
        if at is not None and gang.placement is not None and gang.placement.assignment is not None:
            name = label_of(gang.workload, group_of(gang.workload, key))
            found.append(Ending(max(at, snapshot.taken), name, live, key, whole=own == at))
    others: dict[tuple[float, str], list[Pod]] = {}
    for pod in view.stores.pods.values():
        end = _end_of(pod, ends)  # first: few pods of no gang have one
        if end is not None and not pod.finished and pod.spec.node_name and pod.key not in of_gangs:
            others.setdefault((max(end, snapshot.taken), owner_label(pod)), []).append(pod)
    found += [Ending(at, name, tuple(pods)) for (at, name), pods in others.items()]
    return sorted(found, key=lambda one: (one.at, one.name))


def forecasts(snapshot: Snapshot, waiting: Sequence[Gang], *, plans: int = MAX_PLANS) -> dict[GangKey, Forecast]:
    """Return the forecast of waiting gangs, given in the order of the queue; `plans` bounds the work.

    In a fair order they take the turns that they have by what namespaces use at each moment.
    They are planned as things are before anything ends: what is left of `plans` is for later. The members of a pod
    group that start together are planned together, in the turn of the first of them.
    The state of the snapshot is changed meanwhile, and afterwards as it was before.
    """
    ends = endings(snapshot)  # before plans are assumed, which would be among what runs
    left = [gang for gang in waiting if gang.request.asked is not None]
    with _trial(snapshot.view) as trial:
        queue = _Queue(snapshot.view, trial, at=snapshot.taken, left=left, plans=plans)
        queue.plan()
        for at, ended in groupby(ends, key=lambda one: one.at):
            if queue.over:
                break
            queue.end(at, ended)
            queue.plan()
    return queue.found


@contextmanager
def placed_first(view: ClusterState, plans: Sequence[tuple[Gang, Placed]]) -> Iterator[None]:
    """Reserve the slots of gangs that are placed before another one; the state is afterwards as it was before."""
    with _trial(view) as trial:
        for gang, placed in plans:
            trial.assume(gang, placed)
        view.refresh()
        yield


def plan_now(snapshot: Snapshot, gang: Gang) -> Outcome:
    """Return the outcome of a gang at the moment of the snapshot, as the leader would plan it."""
    return _plan(snapshot.view, gang, at=snapshot.taken)


def _plan(view: ClusterState, gang: Gang, *, at: float) -> Outcome:
    created = queued_at(gang.workload, gang.placement)
    return answer_in_view(view, gang, created=created, settled_before=view.settled_before(at))


@dataclass(slots=True)
class _Queue:
    """The waiting gangs at one moment of a forecast: those that are `left`, and what is `found` so far.

    `ended`: everything that has ended by `at`; `plans`: how many more may be made.
    """

    view: ClusterState
    trial: _Trial
    at: float
    left: list[Gang]
    plans: int
    found: dict[GangKey, Forecast] = field(default_factory=dict)
    ended: list[Ending] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """True when no further plan is made."""
        return not self.left or self.plans <= 0

    def plan(self) -> None:
        """Plan the gangs that are left, in their order; what is placed keeps its slots."""
        misses: dict[tuple[object, ...], int] = {}
        groups: set[GangKey] = set()  # members of pod groups that are planned already
        for gang in self._in_turns():
            if (group := gang.pod_group) is None or group.placed:
                self._plan_alone(gang, misses)
            elif gang.key not in groups:
                groups.update(group.members)
                self._plan_group(group)

    def _in_turns(self) -> Iterator[Gang]:
        """Yield the gangs that are left as the leader takes them: in a fair order what was placed counts at once."""
        usage = weighted_usage(self.view)
        if usage is None:
            yield from list(self.left)
            return

        def turn(gang: Gang) -> Turn:
            return turn_in(self.view, gang, usage)

        for gang in in_turns(sorted(self.left, key=lambda one: (turn(one), order_of(one.key))), turn, usage):
            before = len(self.left)
            yield gang
            if len(self.left) < before:
                usage.update(self.view.usage())

    def end(self, at: float, ended: Iterable[Ending]) -> None:
        """Go on to the moment at which something ends, and take it away."""
        self.at = at
        for one in ended:
            self.ended.append(one)
            self.trial.end(one)
            self.plans -= len(one.pods) // _PODS_A_PLAN
        self.view.refresh()

    def _plan_alone(self, gang: Gang, misses: dict[tuple[object, ...], int]) -> None:
        """Plan a gang, unless it has an answer and no more pods than one like it that did not fit (`misses`)."""
        asked = request_to_place(gang)
        shapes = self.view.pod_shapes
        classes = tuple(map(shapes.missing_class, gang.workload.pod_sets))
        beside = gang.workload.namespace, shapes.priority_of(gang.workload), classes, separation_key(self.view, gang)
        problem = plan_key(asked, gang.shapes, *beside)
        missed = misses.get(problem.about) if not kept_hosts(gang.status) else None  # they are free for it alone
        if self.plans <= 0 or (gang.key in self.found and missed is not None and problem.count >= missed):
            return
        self.plans -= 1
        outcome = _plan(self.view, gang, at=self.at)
        self._note(gang, outcome)
        if isinstance(outcome, Placed):
            self.left.remove(gang)
            self.trial.assume(gang, outcome)
            return
        if REASONS[outcome.reason].shared:
            misses[problem.about] = min(problem.count, misses.get(problem.about, problem.count))
        if outcome.for_hosts:
            self.left.remove(gang)

    def _plan_group(self, group: PodGroupState) -> None:
        """Plan the members of a pod group together; all of them have their answer if it starts."""
        members = _together(group, self.left) if self.plans > 0 else []
        self.plans -= len(members)
        outcomes = _plan_together(self.view, members, group, at=self.at)
        starts = any(isinstance(outcome, Placed) for outcome in outcomes)
        for gang, outcome in zip(members, outcomes, strict=True):
            self._note(gang, outcome)
            if starts:
                self.left.remove(gang)
            if isinstance(outcome, Placed):
                self.trial.assumed(gang.key)

    def _note(self, gang: Gang, outcome: Outcome) -> None:
        """Note the outcome of a gang; its first one is that of now."""
        now = self.found.get(gang.key, Forecast(outcome)).now
        if isinstance(outcome, Placed):
            self.found[gang.key] = Forecast(now, self.at, _after(outcome, self.ended))
        else:
            self.found[gang.key] = Forecast(now)
            self.trial.miss(gang, outcome)


def _together(group: PodGroupState, left: Sequence[Gang]) -> list[Gang]:
    """Return the gangs of a pod group that can start together, in its order; none while they are too few."""
    waiting = {gang.key: gang for gang in left}
    members = [waiting[key] for key in group.members if key in waiting]
    enough = group.complete and sum(request_to_place(gang).count for gang in members) >= group.missing
    return members if enough else []


def _plan_together(view: ClusterState, members: Sequence[Gang], group: PodGroupState, *, at: float) -> list[Outcome]:
    """Return the outcome of each member; the plans are assumed. One without room in a group that starts waits alone."""
    if not members:
        return []
    outcome = group_answer_in_view(view, members, group, now=0.0, settled_before=view.settled_before(at))
    if not isinstance(outcome, PlacedGroup):
        return [outcome] * len(members)
    plans = outcome.plans
    return [plans[gang.key][1] if gang.key in plans else _plan(view, gang, at=at) for gang in members]


def _after(placed: Placed, ended: Sequence[Ending]) -> tuple[str, ...]:
    """Return what has ended on the hosts of a plan."""
    hosts = {slot.host for one in placed.pod_sets for slot in one.slots}
    return tuple(dict.fromkeys(one.name for one in ended if any(pod.spec.node_name in hosts for pod in one.pods)))


def _end_of(pod: Pod, ends: Any) -> float | None:
    """Return the end of a pod: its owner's, or its own if nothing makes it again."""
    end: float | None = ends.get(pod.uid if pod.owner is None else pod.owner.uid)
    return end


def owner_label(pod: Pod) -> str:
    """Return the owner of a pod of no gang as `namespace/kind/name`; the pod itself without one."""
    kind, name = ("Pod", pod.name) if pod.owner is None else (pod.owner.kind, pod.owner.name)
    return f"{pod.namespace}/{workload_label(kind, name)}"


class _Trial:
    """Changes of a state that are taken back."""

    def __init__(self, view: ClusterState) -> None:
        self._view = view
        self._undo: list[Callable[[], None]] = []

    def end(self, ending: Ending) -> None:
        """Take away what ends; the state is refreshed afterwards."""
        stores = self._view.stores
        for pod in ending.pods:
            self._take(stores.pods, pod)
        if ending.key is not None:
            for placement in stores.placements.get_by(ending.key):
                self._take(stores.placements, placement)
            workload = self._view.gangs.workload_of(ending.key)
            stored = stores.workloads.get(workload.key) if workload is not None else None
            if ending.whole and isinstance(stored, Workload):
                self._take(stores.workloads, stored)

    def assume(self, gang: Gang, placed: Placed) -> None:
        """Reserve the slots of a gang."""
        if self._view.gangs.workload_of(gang.key) is None:
            return  # a probe: nothing behind it is planned
        priority = self._view.pod_shapes.priority_of(gang.workload)
        self._view.assume(gang.key, new_placement(gang, placed, priority=priority, now=0.0))
        self.assumed(gang.key)

    def assumed(self, key: GangKey) -> None:
        """Note slots that are reserved already, to give them back."""
        self._undo.append(lambda: self._retract(key))

    def miss(self, gang: Gang, outcome: Waits | Never) -> None:
        """Record why a gang is not placed, as the leader will, if that decides whether others wait for it.

        Not of one that hosts are kept for: they are counted as kept until the leader gives them up.
        """
        for placement in self._view.stores.placements.get_by(gang.key):
            queued = in_queue(gang.workload, placement)
            if queued != REASONS[outcome.reason].queued and not kept_hosts(placement.status):
                self._replace(placement, replace(placement, status={**placement.status, "reason": outcome.reason}))
                self._view.refresh()

    def undo(self) -> None:
        """Take every change back, the last one first."""
        while self._undo:
            self._undo.pop()()
        self._view.refresh()

    def _retract(self, key: GangKey) -> None:
        with self._view.lock:
            self._view.retract(key)

    def _replace(self, before: Placement, after: Placement) -> None:
        placements = self._view.stores.placements
        placements.apply("MODIFIED", after)
        self._undo.append(lambda: placements.apply("MODIFIED", before))

    def _take(self, store: Any, record: Any) -> None:
        store.apply("DELETED", record)
        self._undo.append(lambda: store.apply("ADDED", record))


@contextmanager
def _trial(view: ClusterState) -> Iterator[_Trial]:
    trial = _Trial(view)
    try:
        yield trial
    finally:
        trial.undo()
