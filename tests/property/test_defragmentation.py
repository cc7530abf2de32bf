"""Moves of whole gangs beside enumeration: what is proposed is possible, and fewer moves are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from hypothesis import event, given
from hypothesis import strategies as st

from engine.api import names
from engine.api.placement import Assignment, PodSetPlan, Slot
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.making_room import Protect
from engine.preemption.movable import movable
from engine.preemption.moves import Defragmentation, MoveLimits, moves_for_waiting, replan
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape

GPUS = 8


@dataclass(frozen=True)
class Runs:
    """A running gang: the GPUs of each pod, the hosts of its pods, and whether they have to share a rack."""

    gpus: int
    hosts: tuple[int, ...]
    one_rack: bool
    priority: int = 0
    pods_exist: bool = True


@dataclass(frozen=True)
class Case:
    racks: int
    rack_size: int
    gangs: tuple[Runs, ...]
    pods: int
    gpus: int
    most: int

    @property
    def hosts(self) -> int:
        return self.racks * self.rack_size

    def free(self, without: Sequence[int] = ()) -> list[int]:
        free = [GPUS] * self.hosts
        for number, gang in enumerate(self.gangs):
            for host in gang.hosts if number not in without else ():
                free[host] -= gang.gpus
        return free

    def scopes(self, *, one_rack: bool) -> list[range]:
        whole = range(self.hosts)
        if not one_rack:
            return [whole]
        return [whole[first : first + self.rack_size] for first in range(0, self.hosts, self.rack_size)]

    def possible(self, moved: Sequence[int]) -> bool:
        """Whether the waiting gang and these fit in some way beside the others."""
        wanted = [(self.pods, self.gpus, True)]
        wanted += [(len(one.hosts), one.gpus, one.one_rack) for one in (self.gangs[number] for number in moved)]
        return self._fit(self.free(moved), wanted)

    def _fit(self, free: list[int], wanted: list[tuple[int, int, bool]]) -> bool:
        if not wanted:
            return True
        (pods, gpus, one_rack), *rest = wanted
        for scope in self.scopes(one_rack=one_rack):
            for hosts in self._ways(free, list(scope), pods, gpus):
                left = list(free)
                for host, count in hosts.items():
                    left[host] -= count * gpus
                if self._fit(left, rest):
                    return True
        return False

    def _ways(self, free: list[int], scope: list[int], pods: int, gpus: int) -> Iterator[dict[int, int]]:
        if not pods:
            yield {}
        elif scope:
            host, *rest = scope
            for count in range(min(pods, free[host] // gpus) + 1):
                for way in self._ways(free, rest, pods - count, gpus):
                    yield {host: count, **way}

    def fewest(self) -> int | None:
        """How many of the gangs that may be moved have to be; None if no number up to the most is enough."""
        may = [number for number, one in enumerate(self.gangs) if one.priority <= 0]
        for size in range(1, self.most + 1):
            if any(self.possible(moved) for moved in combinations(may, size)):
                return size
        return None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Racks with gangs on most hosts, and a gang that could take a rack."""
    racks, rack_size = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    gpus = draw(st.sampled_from([4, 8]))
    most_pods = rack_size * GPUS // gpus
    case = Case(
        racks, rack_size, (), draw(st.integers(max(1, most_pods - 2), most_pods)), gpus, draw(st.integers(1, 3))
    )
    for host in draw(st.permutations(range(case.hosts))):
        if draw(st.integers(0, 9)) < 3:
            continue
        size, one_rack, free = draw(st.sampled_from([2, 4, 8])), draw(st.booleans()), case.free()
        scope = next(one for one in case.scopes(one_rack=one_rack) if host in one)
        slots = [host] * (free[host] // size)
        slots += [other for other in scope if other != host for _ in range(free[other] // size)]
        if slots:
            hosts = tuple(sorted(slots[: draw(st.integers(1, 3))]))
            priority, exists = draw(st.sampled_from([0, 0, 0, -1, 1])), draw(st.booleans())
            case = replace(case, gangs=(*case.gangs, Runs(size, hosts, one_rack, priority, exists)))
    return case


class World:
    """A case as a cluster state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        nodes = gpu_nodes(1, case.racks, case.rack_size)
        self.names = [one.name for one in nodes]
        self.stores.nodes.replace(nodes)
        self.keys: list[GangKey] = []
        for number, gang in enumerate(case.gangs):
            workload = self._job(f"gang-{number}", len(gang.hosts), gang.gpus, gang.one_rack, gang.priority)
            self.stores.workloads.apply("ADDED", workload)
            counts = Counter(gang.hosts)
            plan = placement(workload, {self.names[host]: count for host, count in counts.items()})
            slots = tuple(self._slot(gang, host, count) for host, count in counts.items())
            plan = replace(plan, priority=gang.priority, assignment=Assignment(1, (PodSetPlan("main", slots),)))
            self.stores.placements.apply("ADDED", plan)
            for rank, host in enumerate(gang.hosts if gang.pods_exist else ()):
                self.stores.pods.apply("ADDED", pod(workload, rank, host=self.names[host]))
            self.keys.append(key_of(workload))
        waiting = self._job("waiting", case.pods, case.gpus, True, 0, held=True)
        self.stores.workloads.apply("ADDED", waiting)
        self.view.refresh()
        found = self.view.gangs.get(key_of(waiting))
        assert found is not None
        self.gang: Gang = found

    def _slot(self, gang: Runs, host: int, count: int) -> Slot:
        rack, first = host // self.case.rack_size, gang.hosts.index(host)
        return Slot(("b0", f"b0-r{rack}", self.names[host]), count, ((first, first + count - 1),))

    @staticmethod
    def _job(name: str, count: int, gpus: int, one_rack: bool, priority: int, *, held: bool = False) -> Workload:
        workload = job(name, count=count, require="rack" if one_rack else None, held=held)
        if not one_rack:
            workload = replace(workload, annotations={**workload.annotations, names.UNCONSTRAINED: "true"})
        return changed(workload, template=replace(workload.template, shape=shape(gpu=gpus), priority=priority))

    def free(self) -> list[int]:
        return [self.view.capacity.free(host).get("nvidia.com/gpu", 0) for host in self.names]

    def moves(self, plans: int = 400) -> Defragmentation | None:
        view = self.view
        candidates = list(movable(view, priority=0, protect=Protect(), now=0.0))
        return moves_for_waiting(
            view,
            self.gang,
            plan=lambda gang, out: schedule_gang(view, gang, excluded=out),
            plan_moved=partial(replan, view, None),
            candidates=candidates,
            limits=MoveLimits(self.case.most, plans),
        )

    def fits(self) -> bool:
        return isinstance(schedule_gang(self.view, self.gang), Placed)


@given(case=cases(), plans=st.sampled_from([400, 400, 20, 3]))
def test_a_proposed_move_is_possible_and_no_fewer_gangs_are_enough(case: Case, plans: int) -> None:
    """All slots exist after the moves, every gang keeps its rack, none has a higher priority; proven means fewest."""
    world = World(case)
    assert world.free() == case.free()
    if world.fits():
        return
    found = world.moves(plans)
    assert world.free() == case.free(), "the search has left something in the state"
    fewest = case.fewest()
    if found is None:
        assert plans < 400 or fewest is None, "nothing was found"
        return
    event(f"found {len(found.restarts)} (proven {found.proven}, fewest {fewest})")
    moved = [world.keys.index(one.key) for one in found.restarts]
    assert len(set(moved)) == len(moved) <= case.most
    assert all(case.gangs[number].priority <= 0 for number in moved)
    free = case.free(moved)
    plans_of = [(found.placed, case.pods, case.gpus, True)]
    for number, one in zip(moved, found.restarts, strict=True):
        gang = case.gangs[number]
        plans_of.append((one.placed, len(gang.hosts), gang.gpus, gang.one_rack))
    for placed, pods, gpus, one_rack in plans_of:
        hosts = [world.names.index(slot.host) for slot in placed.pod_sets[0].slots for _ in range(slot.count)]
        assert len(hosts) == pods
        assert not one_rack or len({host // case.rack_size for host in hosts}) == 1
        for host in hosts:
            free[host] -= gpus
    assert min(free) >= 0, "double booking"
    assert fewest is not None
    assert len(moved) >= fewest
    assert not found.proven or len(moved) == fewest
