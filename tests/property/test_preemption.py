"""The victims of a preemption beside enumeration: no set of gangs is better, and none of them could have stayed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.planner.tree import Bools
from engine.preemption.search import Preemptible, Scope, SearchLimits, SearchResult, choose_victims

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
            Preemptible(f"gang-{number}", priority, len(hosts), lost * len(hosts))
            for number, (priority, lost, hosts) in enumerate(self.gangs)
        ]

    @property
    def racks(self) -> list[range]:
        return [self.hosts[first : first + self.rack_size] for first in range(0, len(self.free), self.rack_size)]

    @property
    def hosts(self) -> range:
        return range(len(self.free))

    def scope(self, hosts: range, *, counts: bool) -> Scope:
        """The gangs on some hosts; with `counts` their slots are counted."""
        own = [
            one
            for one, (_, _, places) in zip(self.candidates, self.gangs, strict=True)
            if not set(places).isdisjoint(hosts)
        ]
        return Scope(own, Slots(self, own, hosts) if counts else Anything())

    def plan(self, gone: Collection[str]) -> Plan | None:
        """On the fewest hosts of the emptiest rack, or of all hosts."""
        free = list(self.free)
        for number, (_, _, hosts) in enumerate(self.gangs):
            for host in hosts if f"gang-{number}" in gone else ():
                free[host] += 1
        racks = sorted(self.racks, key=lambda rack: -max(free[host] for host in rack))
        for scope in racks if self.one_rack else [self.hosts]:
            if sum(free[host] for host in scope) >= self.pods:
                taken = list[int]()
                for host in sorted(scope, key=lambda host: (-free[host], host)):
                    taken += [host] * min(free[host], self.pods - len(taken))
                return tuple(sorted(taken))
        return None


class Anything:
    """Room that excludes nothing."""

    def fits(self, gone: Bools) -> bool:
        return True

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        return True


class Slots:
    """The slots of hosts, and those that each gang has of them."""

    def __init__(self, case: Case, gangs: Collection[Preemptible], hosts: range) -> None:
        self.lacking = case.pods - sum(case.free[host] for host in hosts)
        places = [case.gangs[int(one.key.removeprefix("gang-"))][2] for one in gangs]
        self.held = np.array([sum(host in hosts for host in own) for own in places], dtype=np.int64)

    def fits(self, gone: Bools) -> bool:
        return bool(self.held[gone].sum() >= self.lacking)

    def reachable(self, gone: Bools, rest: Bools, more: int) -> bool:
        return sum(self.held[gone].tolist()) + sum(sorted(self.held[rest].tolist())[-more:]) >= self.lacking


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


@dataclass(frozen=True)
class Search:
    """How a search begins: by rack or not, with all gangs together or not, with slots that are counted or not."""

    by_rack: bool
    whole: bool
    counts: bool

    def __call__(self, case: Case, most_plans: int) -> SearchResult[Plan] | None:
        plans = list[frozenset[str]]()

        def plan(gone: frozenset[str]) -> Plan | None:
            plans.append(gone)
            return case.plan(gone)

        everything = case.scope(case.hosts, counts=self.counts and not case.one_rack)
        scopes = [case.scope(rack, counts=self.counts) for rack in case.racks]
        found = choose_victims(
            scopes if self.by_rack and (case.one_rack or self.whole) else [everything],
            plan,
            quality=quality,
            whole=everything if self.whole else None,
            limits=SearchLimits(most_plans, seconds=60.0),
        )
        assert len(plans) == len(set(plans)) <= most_plans
        return found


searches = st.builds(Search, st.booleans(), st.booleans(), st.booleans())


@given(case=cases(), search=searches)
def test_no_set_of_victims_is_better(case: Case, search: Search) -> None:
    """Lowest highest priority, fewest gangs, fewest pods, least time lost, best plan: as all sets together show."""
    assume(case.plan([]) is None)
    found = search(case, 10_000)
    best = enumerated(case)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.proven
        assert cost(case, found.gangs) == best
        assert found.plan == case.plan([one.key for one in found.gangs])


@given(case=cases(), search=searches, most_plans=st.integers(1, 40))
def test_with_few_plans_the_victims_are_enough_and_never_called_proven_wrongly(
    case: Case, search: Search, most_plans: int
) -> None:
    """The waiting gang fits without them; their highest priority is the lowest that is possible, and proven is true."""
    assume(case.plan([]) is None)
    found = search(case, most_plans)
    best = enumerated(case)
    if found is None:
        return
    own = cost(case, found.gangs)
    assert own is not None
    assert best is not None
    assert own[0] == best[0]
    assert not found.proven or own == best


@given(case=cases(), search=searches)
def test_every_victim_is_needed(case: Case, search: Search) -> None:
    """Without one of the victims fewer, the waiting gang does not fit."""
    assume(case.plan([]) is None)
    found = search(case, 10_000)
    for spared in found.gangs if found is not None else ():
        others = [one.key for one in found.gangs if one is not spared] if found is not None else []
        assert case.plan(others) is None


@given(case=cases(), search=searches)
def test_a_search_without_time_returns_nothing_that_it_has_not_planned(case: Case, search: Search) -> None:
    """Its clock has run out at every possible step."""
    for steps in range(1, 60):
        ticks = iter([0.0] * steps)
        limits = SearchLimits(seconds=0.5, clock=lambda ticks=ticks: next(ticks, 1.0))
        found = choose_victims([case.scope(case.hosts, counts=False)], case.plan, quality=quality, limits=limits)
        if found is not None:
            assert found.plan == case.plan([one.key for one in found.gangs])
            assert found.proven <= (cost(case, found.gangs) == enumerated(case))
