"""Moves of whole gangs beside enumeration: what is proposed is possible, and fewer moves are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from hypothesis import event, given
from hypothesis import strategies as st

from engine.api import names
from engine.api.placement import Assignment, PodSetPlan, Separation, Slot
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.making_room import Protect
from engine.preemption.movable import movable
from engine.preemption.moves import Defragmentation, MoveLimits, moves_for_waiting, replan
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape

GPUS = 8


@dataclass(frozen=True)
class Runs:
    """A running gang: the GPUs of each pod, the hosts of its pods, and whether they have to share a rack.

    `exclusive`: it keeps that rack for itself.
    """

    gpus: int
    hosts: tuple[int, ...]
    one_rack: bool
    priority: int = 0
    pods_exist: bool = True
    exclusive: bool = False


@dataclass(frozen=True)
class Racks:
    """Those with a gang, and those that exclusive gangs keep."""

    used: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()

    def take(self, racks: frozenset[int], *, exclusive: bool) -> bool:
        return not (racks & (self.used if exclusive else self.kept))

    def taken(self, racks: frozenset[int], *, exclusive: bool) -> Racks:
        return Racks(self.used | racks, self.kept | racks if exclusive else self.kept)


@dataclass(frozen=True)
class Case:
    racks: int
    rack_size: int
    gangs: tuple[Runs, ...]
    pods: int
    gpus: int
    most: int
    exclusive: bool = False

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

    def taken(self, without: Sequence[int] = ()) -> Racks:
        """The racks of the running gangs."""
        found = Racks()
        for number, gang in enumerate(self.gangs):
            if number not in without:
                found = found.taken(self.racks_of(gang.hosts), exclusive=gang.exclusive)
        return found

    def racks_of(self, hosts: Iterable[int]) -> frozenset[int]:
        return frozenset(host // self.rack_size for host in hosts)

    def possible(self, moved: Sequence[int]) -> bool:
        """Whether the waiting gang and these fit in some way beside the others."""
        wanted = [Runs(self.gpus, (0,) * self.pods, True, exclusive=self.exclusive)]
        wanted += [self.gangs[number] for number in moved]
        return self._fit(self.free(moved), self.taken(moved), wanted)

    def _fit(self, free: list[int], racks: Racks, wanted: Sequence[Runs]) -> bool:
        if not wanted:
            return True
        gang, *rest = wanted
        for scope in self.scopes(one_rack=gang.one_rack):
            for hosts in self._ways(free, list(scope), len(gang.hosts), gang.gpus):
                own = self.racks_of(host for host, count in hosts.items() if count)
                left = list(free)
                for host, count in hosts.items():
                    left[host] -= count * gang.gpus
                if racks.take(own, exclusive=gang.exclusive) and self._fit(
                    left, racks.taken(own, exclusive=gang.exclusive), rest
                ):
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
    """Racks with gangs on most hosts, some of which keep theirs, and a gang that could take a rack."""
    racks, rack_size = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    gpus = draw(st.sampled_from([4, 8]))
    most_pods = rack_size * GPUS // gpus
    pods, most = draw(st.integers(max(1, most_pods - 2), most_pods)), draw(st.integers(1, 3))
    keep = draw(st.booleans())
    case = Case(racks, rack_size, (), pods, gpus, most, exclusive=keep and draw(st.integers(0, 3)) == 0)
    for host in draw(st.permutations(range(case.hosts))):
        if draw(st.integers(0, 9)) < 3:
            continue
        size, one_rack, free = draw(st.sampled_from([2, 4, 8])), draw(st.booleans()), case.free()
        exclusive = keep and one_rack and draw(st.booleans())
        closed = case.taken().used if exclusive else case.taken().kept
        free = [0 if case.racks_of([at]) & closed else left for at, left in enumerate(free)]
        scope = next(one for one in case.scopes(one_rack=one_rack) if host in one)
        slots = [host] * (free[host] // size)
        slots += [other for other in scope if other != host for _ in range(free[other] // size)]
        if slots:
            hosts = tuple(sorted(slots[: draw(st.integers(1, 3))]))
            priority, exists = draw(st.sampled_from([0, 0, 0, -1, 1])), draw(st.booleans())
            case = replace(case, gangs=(*case.gangs, Runs(size, hosts, one_rack, priority, exists, exclusive)))
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
            workload = self._job(f"gang-{number}", gang)
            self.stores.workloads.apply("ADDED", workload)
            counts = Counter(gang.hosts)
            plan = placement(workload, {self.names[host]: count for host, count in counts.items()})
            slots = tuple(self._slot(gang, host, count) for host, count in counts.items())
            plan = replace(plan, priority=gang.priority, assignment=Assignment(1, (PodSetPlan("main", slots),)))
            plan = replace(plan, separation=Separation(exclusive="rack") if gang.exclusive else None)
            self.stores.placements.apply("ADDED", plan)
            for rank, host in enumerate(gang.hosts if gang.pods_exist else ()):
                self.stores.pods.apply("ADDED", pod(workload, rank, host=self.names[host]))
            self.keys.append(key_of(workload))
        asked = Runs(case.gpus, (0,) * case.pods, True, exclusive=case.exclusive)
        waiting = self._job("waiting", asked, held=True)
        self.stores.workloads.apply("ADDED", waiting)
        self.view.refresh()
        found = self.view.gangs.get(key_of(waiting))
        assert found is not None
        self.gang: Gang = found

    def _slot(self, gang: Runs, host: int, count: int) -> Slot:
        rack, first = host // self.case.rack_size, gang.hosts.index(host)
        return Slot(("b0", f"b0-r{rack}", self.names[host]), count, ((first, first + count - 1),))

    @staticmethod
    def _job(name: str, gang: Runs, *, held: bool = False) -> Workload:
        workload = job(name, count=len(gang.hosts), require="rack" if gang.one_rack else None, held=held)
        more = {} if gang.one_rack else {names.UNCONSTRAINED: "true"}
        more |= {names.EXCLUSIVE: "rack"} if gang.exclusive else {}
        workload = replace(workload, annotations={**workload.annotations, **more})
        return changed(
            workload, template=replace(workload.template, shape=shape(gpu=gang.gpus), priority=gang.priority)
        )

    def free(self) -> list[int]:
        return [self.view.capacity.free(host).get("nvidia.com/gpu", 0) for host in self.names]

    def moves(self, plans: int, places: int) -> Defragmentation | None:
        view = self.view
        candidates = list(movable(view, priority=0, protect=Protect(), now=0.0))
        return moves_for_waiting(
            view,
            self.gang,
            plan=lambda gang, out: schedule_gang(view, gang, excluded=out),
            plan_moved=partial(replan, view, None),
            candidates=candidates,
            limits=MoveLimits(self.case.most, plans, places),
        )

    def carried_out(self, found: Defragmentation) -> bool:
        """Whether all fit when a person has them restart: the waiting gang first, then one after the other."""
        view, keys = self.view, [one.key for one in found.restarts]
        with view.lock, view.without(keys, [pod for key in keys for pod in view.gangs.pods_of(key)]):
            for key in (self.gang.key, *keys):
                gang = view.gangs.get(key)
                assert gang is not None
                ended = replace(gang, pods=(), placement=None)
                outcome = schedule_gang(view, gang) if key == self.gang.key else replan(view, None, ended, frozenset())
                if not isinstance(outcome, Placed):
                    return False
                view.assume_anew(key, new_placement(gang, outcome, priority=0, now=0.0))
        return True

    def fits(self) -> bool:
        return isinstance(schedule_gang(self.view, self.gang), Placed)


@given(case=cases(), plans=st.sampled_from([400, 400, 20, 3]), places=st.sampled_from([1, 3]))
def test_a_proposed_move_is_possible_and_no_fewer_gangs_are_enough(case: Case, plans: int, places: int) -> None:
    """All slots exist after the moves, every gang keeps its rack, none has a higher priority; proven means fewest.

    With the first choice of the waiting gang alone, all get their slots by themselves.
    """
    world = World(case)
    assert world.free() == case.free()
    if world.fits():
        return
    found = world.moves(plans, places)
    assert world.free() == case.free(), "the search has left something in the state"
    fewest = case.fewest()
    if found is None:
        kept = case.exclusive or any(one.exclusive for one in case.gangs)
        assert kept or plans < 400 or places == 1 or fewest is None, "nothing was found"
        return
    event(f"found {len(found.restarts)} (proven {found.proven}, fewest {fewest})")
    assert places > 1 or world.carried_out(found), "a gang has no place by itself"
    moved = [world.keys.index(one.key) for one in found.restarts]
    assert len(set(moved)) == len(moved) <= case.most
    assert all(case.gangs[number].priority <= 0 for number in moved)
    free, racks = case.free(moved), case.taken(moved)
    plans_of = [(found.placed, Runs(case.gpus, (0,) * case.pods, True, exclusive=case.exclusive))]
    plans_of += [(one.placed, case.gangs[number]) for number, one in zip(moved, found.restarts, strict=True)]
    for placed, gang in plans_of:
        hosts = [world.names.index(slot.host) for slot in placed.pod_sets[0].slots for _ in range(slot.count)]
        assert len(hosts) == len(gang.hosts)
        own = case.racks_of(hosts)
        assert not gang.one_rack or len(own) == 1
        assert racks.take(own, exclusive=gang.exclusive), "a gang is beside an exclusive one"
        racks = racks.taken(own, exclusive=gang.exclusive)
        for host in hosts:
            free[host] -= gang.gpus
    assert min(free) >= 0, "double booking"
    assert fewest is not None
    assert len(moved) >= fewest
    assert not found.proven or len(moved) == fewest
