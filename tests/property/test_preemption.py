"""The victims of a preemption beside enumeration: no set of gangs is better, and none of them could have stayed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from engine.preemption.search import Preemptible, Victims, choose_victims

Plan = tuple[int, ...]  # the hosts of the waiting gang's pods, sorted


@dataclass(frozen=True)
class Case:
    """Hosts in racks of equal size with free slots; running gangs with slots on hosts; a gang of so many pods."""

    free: tuple[int, ...]
    rack_size: int
    gangs: tuple[tuple[int, float, tuple[int, ...]], ...]  # priority, running time of a pod, hosts of the pods
    pods: int
    one_rack: bool

    @property
    def candidates(self) -> list[Preemptible]:
        return [
            Preemptible(f"gang-{number}", priority, len(hosts), lost * len(hosts), self.racks(hosts))
            for number, (priority, lost, hosts) in enumerate(self.gangs)
        ]

    def racks(self, hosts: Collection[int]) -> frozenset[int]:
        return frozenset(host // self.rack_size for host in hosts)

    def plan(self, gone: Collection[str]) -> Plan | None:
        """On the fewest hosts of the emptiest rack, or of all hosts."""
        free = list(self.free)
        for number, (_, _, hosts) in enumerate(self.gangs):
            for host in hosts if f"gang-{number}" in gone else ():
                free[host] += 1
        whole = range(len(free))
        racks = [whole[first : first + self.rack_size] for first in range(0, len(free), self.rack_size)]
        for scope in sorted(racks, key=lambda rack: -max(free[host] for host in rack)) if self.one_rack else [whole]:
            if sum(free[host] for host in scope) >= self.pods:
                taken = list[int]()
                for host in sorted(scope, key=lambda host: (-free[host], host)):
                    taken += [host] * min(free[host], self.pods - len(taken))
                return tuple(sorted(taken))
        return None


def quality(plan: Plan) -> tuple[int, ...]:
    return (len(set(plan)),)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hosts = draw(st.integers(1, 8))
    gang = st.tuples(
        st.integers(0, 2), st.sampled_from([1.0, 60.0, 3600.0]), st.lists(st.integers(0, hosts - 1), max_size=4)
    )
    gangs = draw(st.lists(gang, max_size=7))
    return Case(
        free=tuple(draw(st.lists(st.integers(0, 1), min_size=hosts, max_size=hosts))),
        rack_size=draw(st.integers(1, 4)),
        gangs=tuple((priority, lost, tuple(sorted(places))) for priority, lost, places in gangs),
        pods=draw(st.integers(1, 10)),
        one_rack=draw(st.booleans()),
    )


def cost(case: Case, gangs: Collection[Preemptible]) -> tuple[object, ...] | None:
    """What is to be as small as possible, in order; None if the waiting gang does not fit without these."""
    plan = case.plan([one.key for one in gangs])
    if plan is None:
        return None
    highest = max((one.priority for one in gangs), default=-1)
    return highest, len(gangs), sum(one.pods for one in gangs), sum(one.lost for one in gangs), quality(plan)


def enumerated(case: Case) -> tuple[object, ...] | None:
    every = [
        found
        for size in range(len(case.gangs) + 1)
        for gangs in combinations(case.candidates, size)
        if (found := cost(case, gangs)) is not None
    ]
    return min(every, default=None)


def chosen(case: Case, most_plans: int) -> Victims[Plan] | None:
    plans = list[frozenset[str]]()

    def plan(gone: frozenset[str]) -> Plan | None:
        plans.append(gone)
        return case.plan(gone)

    found = choose_victims(case.candidates, plan, quality=quality, most_plans=most_plans)
    assert len(plans) == len(set(plans)) <= most_plans
    return found


@given(case=cases())
def test_no_set_of_victims_is_better(case: Case) -> None:
    """Lowest highest priority, fewest gangs, fewest pods, least time lost, best plan: as all sets together show."""
    found = chosen(case, 10_000)
    best = enumerated(case)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.proven
        assert cost(case, found.gangs) == best
        assert found.plan == case.plan([one.key for one in found.gangs])


@given(case=cases(), most_plans=st.integers(1, 40))
def test_with_few_plans_the_victims_are_enough_and_never_called_proven_wrongly(case: Case, most_plans: int) -> None:
    """The waiting gang fits without them; their highest priority is the lowest that is possible, and proven is true."""
    assume(case.plan([]) is None)
    found = chosen(case, most_plans)
    best = enumerated(case)
    if found is None:
        return
    own = cost(case, found.gangs)
    assert own is not None
    assert best is not None
    assert own[0] == best[0]
    assert not found.proven or own == best


@given(case=cases())
def test_every_victim_is_needed(case: Case) -> None:
    """Without one of the victims fewer, the waiting gang does not fit."""
    found = chosen(case, 10_000)
    for spared in found.gangs if found is not None else ():
        others = [one.key for one in found.gangs if one is not spared] if found is not None else []
        assert case.plan(others) is None
