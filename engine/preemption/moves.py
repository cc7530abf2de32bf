"""Plans which running gangs restart elsewhere so that a waiting gang fits, or a running one gets fewer domains.

A plan is the state of the cluster after all moves: the gang in question planned first, then every moved one beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from engine.api.placement import Assignment
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang
from engine.gang.slots import part_to_place, request_to_place
from engine.gang.summary import domains_by_level
from engine.preemption.movable import (
    MovableGang,
    as_close,
    need_of,
    preferred_level,
    required_level,
    restarts_alone,
    room_in_total,
)
from engine.preemption.move_search import MoveCost, NoPlace, NoRoom, OutOfPlansError, SlotNeed, choose_moves
from engine.preemption.scopes import has_host_limit
from engine.preemption.victims import Victim
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from engine.topology.topology import Topology

MAX_PLANS: Final = 400


@dataclass(frozen=True, slots=True)
class Restart:
    """A running gang that restarts elsewhere, and its plan there; `before`: the slots that it has now."""

    key: GangKey
    victim: Victim
    pods: int
    before: Assignment
    placed: Placed


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """The plan of a gang, and of those that restart elsewhere for it; `proven`: with fewer restarts it does not fit.

    `restarts` in the order in which they are planned; without the gang itself, which restarts too if it runs.
    """

    placed: Placed
    restarts: tuple[Restart, ...]
    proven: bool


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """How many gangs may be moved for one, how many plans the search may make, and what else bounds it.

    `places` of the gang in question that are tried for one set of moved gangs: only its first choice where nobody keeps
    it off the hosts of the others, as when a person has them restart. `together`: whether the gangs of some keys may
    restart together; if not, no others may with them.
    """

    gangs: int = 4
    plans: int = MAX_PLANS
    places: int = 1
    together: Callable[[Iterable[str]], bool] = lambda _keys: True


PlanAgain = Callable[[Gang, frozenset[str]], Outcome]
"""Plans a gang on the current state, without some hosts."""


def moves_for_waiting(
    view: ClusterState,
    gang: Gang,
    *,
    plan: PlanAgain,
    plan_moved: PlanAgain,
    candidates: Sequence[MovableGang],
    limits: MoveLimits,
    left_out: Collection[str] = (),
) -> Defragmentation | None:
    """Return the fewest running gangs to restart elsewhere so that a waiting gang fits; None if none were found.

    `plan` plans the waiting gang, `plan_moved` a moved one; `left_out`: hosts that neither uses. The state's lock is
    held for one attempt at a time, so that others go on in between.
    """
    out = frozenset(left_out)
    search = _Moves(view, gang, plan=plan, plan_moved=plan_moved, candidates=candidates, limits=limits, left_out=out)
    return search.for_waiting()


def moves_for_split(
    view: ClusterState,
    gang: Gang,
    *,
    plan_moved: PlanAgain,
    candidates: Sequence[MovableGang],
    limits: MoveLimits,
    left_out: Collection[str] = (),
) -> Defragmentation | None:
    """Return the fewest gangs to restart with a running gang so that it uses fewer domains; None if none were found.

    It is planned anew alone; if that does not help, others are moved so that one domain takes all of it.
    """
    out = frozenset(left_out)
    search = _Moves(
        view, gang, plan=plan_moved, plan_moved=plan_moved, candidates=candidates, limits=limits, left_out=out
    )
    return search.for_split() if restarts_alone(gang) else None


def replan(view: ClusterState, settled_before: float | None, gang: Gang, left_out: frozenset[str]) -> Outcome:
    """Plan a moved gang anew, as if none of its pods existed: its quota is its own."""
    return schedule_gang(view, gang, kept={}, settled_before=settled_before, excluded=left_out, creatable=True)


def _restarted(gang: Gang) -> Gang:
    """Return a running gang as it is once it has ended: without pods and slots, nor the right to their domains."""
    placement = replace(gang.placement, assignment=None) if gang.placement is not None else None
    return replace(gang, pods=(), later=(), placement=placement)


class _Moves:
    """One search, for one gang."""

    def __init__(
        self,
        view: ClusterState,
        gang: Gang,
        *,
        plan: PlanAgain,
        plan_moved: PlanAgain,
        candidates: Sequence[MovableGang],
        limits: MoveLimits,
        left_out: frozenset[str],
    ) -> None:
        self._view = view
        self._gang = gang
        self._plan = plan
        self._plan_moved = plan_moved
        self._movable = {str(one.key): one for one in candidates if one.key != gang.key}
        self._limits = limits
        self._plans = limits.plans
        self._left_out = left_out
        assignment = gang.placement.assignment if gang.placement is not None else None
        self._now = assignment  # of a running gang

    def for_waiting(self) -> Defragmentation | None:
        """Return the moves with which the gang fits."""
        with self._view.lock:
            topology = self._topology(self._gang)
            if topology is None or not request_to_place(self._gang).count:
                return None
            if not room_in_total(self._view, self._gang, topology):
                return None
            need = self._need(self._gang, topology, self._level)
        return self._search(need)

    def for_split(self) -> Defragmentation | None:
        """Return the moves with which the gang uses fewer domains; none if it restarts alone."""
        with self._view.lock:
            topology = self._topology(self._gang)
            level = preferred_level(self._gang, topology) if topology is not None else None
            if topology is None or level is None or self._now is None or not request_to_place(self._gang).count:
                return None
            alone = self._attempt(())
            if isinstance(alone, Defragmentation):
                return replace(alone, proven=True)
            with self._without((self._gang.key,)):
                need = self._need(self._gang, topology, level)
        return self._search(need)

    def _search(self, need: SlotNeed) -> Defragmentation | None:
        limits = self._limits
        costs = [MoveCost(key, one.pods, -one.started * one.pods) for key, one in self._movable.items()]
        found = choose_moves(costs, need, self._attempt, most_gangs=limits.gangs, together=limits.together)
        if found is None:
            return None
        with self._view.lock:
            return replace(found.plan, proven=found.proven and not has_host_limit(self._view, self._gang))

    def _attempt(self, keys: tuple[str, ...]) -> Defragmentation | NoRoom | NoPlace:
        """Plan the gang and the moved ones on the cluster without them."""
        moved = [self._movable[key] for key in sorted(keys, key=lambda key: (-self._movable[key].pods, key))]
        with self._view.lock, self._without((self._gang.key, *(one.key for one in moved))):
            out = self._left_out
            stuck: NoRoom | NoPlace = NoRoom()
            for _ in range(self._limits.places):
                placed = self._placed(self._gang, self._plan, out, self._now, better=self._now is not None)
                if placed is None:
                    return stuck
                self._assume(self._gang, placed)
                answer = self._beside(moved)
                if not isinstance(answer, NoPlace):
                    return Defragmentation(placed, answer, proven=False)
                self._view.retract_anew(self._gang.key)
                stuck, out = answer, out | self._domains(placed)
            return stuck

    def _beside(self, moved: Sequence[MovableGang]) -> tuple[Restart, ...] | NoPlace:
        """Plan the moved gangs one after the other, the largest first; one that finds no place goes first then."""
        order, went_first = list(moved), set[GangKey]()
        while True:
            done: dict[GangKey, Restart] = {}
            for one in order:
                gang = self._view.gangs.get(one.key)
                before = gang.placement.assignment if gang is not None and gang.placement is not None else None
                if gang is None or before is None:
                    break  # it has ended meanwhile
                placed = self._placed(gang, self._plan_moved, self._left_out, before)
                if placed is None:
                    break
                self._assume(gang, placed)
                done[one.key] = Restart(one.key, one.victim, one.pods, before, placed)
            else:
                return tuple(done.values())
            need = self._need_beside(one, moved)
            for key in done:
                self._view.retract_anew(key)
            if one is order[0] or one.key in went_first:
                return NoPlace(need)
            went_first.add(one.key)
            order.remove(one)
            order.insert(0, one)

    def _placed(
        self, gang: Gang, plan: PlanAgain, out: frozenset[str], now: Assignment | None, *, better: bool = False
    ) -> Placed | None:
        """Return a plan of a gang; of one that runs only with as many pods, and no further apart than now.

        `better`: in fewer domains than now.
        """
        if not self._plans:
            raise OutOfPlansError
        self._plans -= 1
        topology = self._topology(gang)
        outcome = plan(gang if now is None else _restarted(gang), out)
        if not isinstance(outcome, Placed) or topology is None:
            return None
        if now is None:
            return outcome
        now = part_to_place(gang, now)
        level, domains = preferred_level(gang, topology), domains_by_level(now, topology)
        few = outcome.count < now.count
        if few or (level is not None and not as_close(outcome.domains_used, domains, down_to=level)):
            return None
        if better and (level is None or as_close(domains, outcome.domains_used, down_to=level)):
            return None
        return outcome

    def _need_beside(self, one: MovableGang, moved: Sequence[MovableGang]) -> SlotNeed:
        gang = self._view.gangs.get(one.key)
        topology = self._topology(gang) if gang is not None else None
        if gang is None or topology is None:
            return SlotNeed(0, {}, {})
        return self._need(gang, topology, required_level(self._view, gang, topology), moved)

    def _need(self, gang: Gang, topology: Topology, level: int, moved: Sequence[MovableGang] = ()) -> SlotNeed:
        others = [one for one in self._movable.values() if one not in moved]
        return need_of(self._view, gang, others, topology, level=level, left_out=self._left_out)

    def _domains(self, placed: Placed) -> frozenset[str]:
        """Return the hosts of the domain that takes a plan; its own hosts if no domain has to."""
        hosts = placed.hosts
        topology, level = self._topology(self._gang), self._level
        if topology is None or level < 0:
            return hosts
        tree = topology.tree
        ranges = {tree.range(level, tree.domain_of(level, tree.index[host])) for host in hosts}
        return frozenset(host for first, end in ranges for host in tree.hosts[first:end])

    @cached_property
    def _level(self) -> int:
        """The level of which one domain takes the gang in question; -1 if none does."""
        topology = self._topology(self._gang)
        return required_level(self._view, self._gang, topology) if topology is not None else -1

    def _topology(self, gang: Gang) -> Topology | None:
        found = self._view.topologies.get(gang.request.topology or "")
        return None if found is None or found.waits else found

    @contextmanager
    def _without(self, keys: Sequence[GangKey]) -> Iterator[None]:
        """Take gangs away with the pods that they have at this moment; of a waiting one none runs."""
        gone = [key for key in keys if key != self._gang.key or self._now is not None]
        pods = [pod for key in gone for pod in self._view.gangs.pods_of(key)]
        with self._view.without(keys, pods):
            yield

    def _assume(self, gang: Gang, placed: Placed) -> None:
        priority = self._view.pod_shapes.priority_of(gang.workload)
        self._view.assume_anew(gang.key, new_placement(gang, placed, priority=priority, now=0.0))
