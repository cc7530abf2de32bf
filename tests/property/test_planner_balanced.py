"""Balanced gangs against trying every placement, by code that shares nothing with the planner."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.planner.descent import even_hosts
from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest
from engine.planner.plan import NoFit, Plan, PlanRequest, SlotIndex, plan
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.sums import domain_sums
from tests.support.planner_oracles import depth_of, evenest, evenness, is_whole
from tests.support.small_trees import grow

Placed = dict[tuple[int, ...], int]


def nested(depth: int, *, width: int, most: int) -> st.SearchStrategy[list[Any]]:
    children: st.SearchStrategy[Any] = st.integers(0, most) if depth == 1 else nested(depth - 1, width=width, most=most)
    return st.lists(children, min_size=1, max_size=width)


@st.composite
def balanced(
    draw: st.DrawFn, *, hosts: int = 6, most: int = 4, pods: int = 12, slices: bool = True
) -> tuple[list[Any], PlanRequest]:
    """A small tree, and a gang for it, sliced or not, of at most so many pods."""
    depth = draw(st.integers(1, 4))
    width = {1: hosts, 2: 3, 3: 2, 4: 2}[depth]
    tree = draw(nested(depth, width=width, most=most).filter(lambda one: grow(one)[1].size <= 2 * hosts))
    layers: tuple[Slices, ...] = ()
    if slices and draw(st.booleans()):
        levels = sorted(draw(st.lists(st.integers(0, depth - 1), min_size=1, max_size=2, unique=True)))
        factors = draw(st.lists(st.integers(1, 3), min_size=len(levels), max_size=len(levels)))
        layers = tuple(Slices(level, math.prod(factors[i:])) for i, level in enumerate(levels))
    size = layers[0].size if layers else 1
    room = min(int(grow(tree)[1].sum()) + 1, pods)
    count = size * draw(st.integers(1, max(1, room // size)))
    require = draw(st.none() | st.integers(0, layers[0].level if layers else depth - 1))
    prefer = draw(st.none() | st.integers(0, depth - 1))
    return tree, PlanRequest(count, require=require, prefer=prefer, slices=layers, profile="balanced")


def paths_of(tree: list[Any], path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The hosts of a tree by their path."""
    found: list[tuple[int, ...]] = []
    for i, child in enumerate(tree):
        found += paths_of(child, (*path, i)) if isinstance(child, list) else [(*path, i)]
    return found


def placed_by(tree: list[Any], answer: Plan) -> Placed:
    paths = paths_of(tree)
    return {paths[host]: pods for host, pods in answer.hosts}


def divided_evenly(tree: list[Any], placed: Placed, grain: dict[int, int], level: int = 0) -> bool:
    """Whether every domain with pods divides them among its own domains as well as any placement inside it would."""
    for i, child in enumerate(tree):
        inside = {path[1:]: n for path, n in placed.items() if path[0] == i}
        if inside and isinstance(child, list):
            finer = {at - 1: size for at, size in grain.items() if at}
            best = evenest(child, sum(inside.values()), -1, finer)
            # A part that fits in one finer domain is divided further down.
            if evenness(inside) != best or not divided_evenly(child, inside, finer, level + 1):
                return False
    return True


@given(balanced())
@settings(max_examples=400, deadline=None)
def test_no_placement_is_more_even_with_as_few_domains(case: tuple[list[Any], PlanRequest]) -> None:
    """Fewest domains down to the preferred level, then the most even shares where the gang is divided, in whole slices.

    What is not proven has as few domains all the same.
    """
    tree, request = case
    grain = {one.level: one.size for one in request.slices}
    levelled = bool(request.slices) or request.require is not None or request.prefer is not None
    require = -1 if request.require is None else request.require
    best = evenest(tree, request.count, require, grain, levelled=levelled, prefer=request.prefer)
    answer = plan(*grow(tree), request)
    assert (best is None) == isinstance(answer, NoFit)
    if isinstance(answer, Plan):
        placed = placed_by(tree, answer)
        slots = dict(zip(paths_of(tree), grow(tree)[1].tolist(), strict=True))
        assert sum(placed.values()) == request.count
        assert all(n <= slots[path] for path, n in placed.items())
        assert is_whole(placed, grain)
        found = evenness(placed, levelled=levelled, prefer=request.prefer)
        assert best is not None
        assert found == best if answer.proven else (found[0], found >= best) == (best[0], True)
        event(f"proven {answer.proven}")
        depth = depth_of(tree)
        assert answer.domains_used == tuple(len({path[: level + 1] for path in placed}) for level in range(depth))


@given(balanced(most=3))
@settings(max_examples=300, deadline=None)
def test_every_share_is_divided_in_the_same_way(case: tuple[list[Any], PlanRequest]) -> None:
    """Below the level that divides the gang each domain divides its own share among the fewest of its domains."""
    tree, request = case
    answer = plan(*grow(tree), replace(request, prefer=0))
    grain = {one.level: one.size for one in request.slices}
    if isinstance(answer, Plan):
        assert divided_evenly(tree, placed_by(tree, answer), grain)


@given(nested(2, width=14, most=5).filter(lambda racks: grow(racks)[1].any()), st.sampled_from([1, 1, 2]), st.data())
@settings(max_examples=300, deadline=None)
def test_many_racks_are_divided_at_once_as_one_by_one(racks: list[list[int]], size: int, data: st.DataObject) -> None:
    """In each rack the fewest hosts that hold its pods, which get them in turns, in whole slices."""
    tree, slots = grow(racks)
    state = domain_sums(tree, slots, None, spread=False, grain=(1, size) if size > 1 else None)
    room = [int(one) // size for one in state.slots[0]]
    used = [rack for rack, free in enumerate(room) if free]
    if not used:
        return
    pods = [size * data.draw(st.integers(1, room[rack])) for rack in used]
    hosts, got = even_hosts(state, 0, np.array(used), np.array(pods))
    assert hosts.tolist() == sorted(set(hosts.tolist()))
    for rack, number in zip(used, pods, strict=True):
        first, end = tree.range(0, rack)
        inside = {host: n for host, n in zip(hosts.tolist(), got.tolist(), strict=True) if first <= host < end}
        assert all(n <= slots[host] and not n % size for host, n in inside.items())
        largest = sorted((free // size for free in racks[rack]), reverse=True)[: len(inside)]
        assert sum(largest[:-1]) < number // size
        assert sorted(inside.values()) == [size * n for n in _in_turns(largest, number // size)]


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=5), min_size=2, max_size=6).filter(
        lambda racks: len({sum(rack) for rack in racks}) < len(racks) and any(map(sum, racks))
    ),
    st.integers(0, 2),
)
@settings(max_examples=400, deadline=None)
def test_of_many_racks_the_one_that_divides_the_gang_best_is_taken(racks: list[list[int]], spare: int) -> None:
    """The fewest hosts first, then the most even shares, also where no rack divides the gang quite evenly."""
    tree, slots = grow(racks)
    count = max(1, max(map(sum, racks)) - spare)

    def divided(rack: list[int]) -> tuple[int, list[int]]:
        largest = sorted(rack, reverse=True)
        hosts = next(n for n in range(1, len(rack) + 1) if sum(largest[:n]) >= count)
        return -hosts, _in_turns(largest[:hosts], count)

    answer = plan(tree, slots, PlanRequest(count, require=0, profile="balanced"))
    assert isinstance(answer, Plan)
    shares = sorted(pods for _, pods in answer.hosts)
    assert (-len(shares), shares) == max(divided(rack) for rack in racks if sum(rack) >= count)


def _in_turns(room: list[int], count: int) -> list[int]:
    """Give one after the other to whoever has the fewest and has room."""
    got = [0] * len(room)
    for _ in range(count):
        got[min((n, i) for i, n in enumerate(got) if n < room[i])[1]] += 1
    return sorted(got)


@given(nested(2, width=4, most=4), st.integers(2, 12))
@settings(max_examples=300, deadline=None)
def test_of_equally_even_racks_those_are_taken_that_need_the_fewest_hosts(tree: list[Any], count: int) -> None:
    """With shares that differ by one at most, no other choice of racks for them uses fewer hosts."""
    answer = plan(*grow(tree), PlanRequest(count, prefer=0, profile="balanced"))
    if not isinstance(answer, Plan) or answer.domains_used[0] == 1:
        return
    shares = evenness(placed_by(tree, answer))[1]
    if max(shares) - min(shares) > 1:
        return
    needed = [[_fewest(sorted(rack, reverse=True), -share) for rack in tree] for share in shares]
    assert answer.domains_used[1] == _cheapest(needed, frozenset(range(len(tree))))


def _fewest(descending: list[int], count: int) -> int:
    for taken, slots in enumerate(descending, 1):
        count -= slots
        if count <= 0:
            return taken
    return 1000


def _cheapest(needed: list[list[int]], racks: frozenset[int]) -> int:
    if not needed:
        return 0
    return min(needed[0][rack] + _cheapest(needed[1:], racks - {rack}) for rack in racks)


@given(balanced(slices=False), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 4)), max_size=6))
@settings(max_examples=200, deadline=None)
def test_kept_sums_give_the_same_plan(case: tuple[list[Any], PlanRequest], changes: list[tuple[int, int]]) -> None:
    """After any changes of hosts the plan on kept sums is that on fresh ones."""
    nested_slots, request = case
    tree, slots = grow(nested_slots)
    index = SlotIndex(tree, slots)
    for host, free in changes:
        if host < len(slots):
            index.set(host, free)
            slots[host] = free
    assert index.plan(request) == plan(tree, slots, request)


@given(balanced())
@settings(max_examples=150, deadline=None)
def test_a_gang_of_one_pod_set_is_divided_like_equal_pods(case: tuple[list[Any], PlanRequest]) -> None:
    """As evenly by either entry of the planner, also where fewer pods are enough to start."""
    nested_slots, request = case
    tree, slots = grow(nested_slots)
    levelled = bool(request.slices) or request.require is not None or request.prefer is not None
    pods = PodSetPlanRequest(
        request.count, (1,), require=request.require, prefer=request.prefer, slices=request.slices, min_count=0
    )
    alone = plan(tree, slots, request)
    gang = plan_gang(tree, np.array(slots)[:, None], GangPlanRequest((pods,), profile="balanced"))
    if isinstance(alone, Plan) and alone.proven:
        assert isinstance(gang, GangPlan)
        placed = Plan(gang.pod_sets[0].hosts, gang.domains_used, gang.proven)
        of_gang, of_pods = (
            evenness(placed_by(nested_slots, one), levelled=levelled, prefer=request.prefer) for one in (placed, alone)
        )
        assert (of_gang, gang.proven) == (of_pods, True)


@given(balanced(pods=8), st.data())
@settings(max_examples=200, deadline=None)
def test_lost_pods_of_a_balanced_gang_join_the_rest(case: tuple[list[Any], PlanRequest], data: st.DataObject) -> None:
    """Ranks that lost their host are placed again in whole slices and in the required domain; the others stay."""
    nested_slots, request = case
    tree, slots = grow(nested_slots)
    answer = plan(tree, slots, request)
    if not isinstance(answer, Plan):
        return
    ranks = [host for host, number in answer.hosts for _ in range(number)]
    lost = data.draw(st.sets(st.integers(0, request.count - 1), min_size=1))
    kept = {rank: host for rank, host in enumerate(ranks) if rank not in lost}
    free = slots - np.bincount([*kept.values()], minlength=len(slots)).astype(np.int64)
    pods = PodSetPlanRequest(
        request.count, (1,), require=request.require, prefer=request.prefer, slices=request.slices, kept=kept
    )
    again = plan_gang(tree, free[:, None], GangPlanRequest((pods,), profile="balanced"))
    assert isinstance(again, GangPlan)
    after = again.pod_sets[0].ranks
    assert all(after[rank] == host for rank, host in kept.items())
    for one in request.slices:
        domains = [tree.domain_of(one.level, host) for host in after]
        assert all(len(set(domains[first : first + one.size])) == 1 for first in range(0, request.count, one.size))
    if request.require is not None:
        assert len({tree.domain_of(request.require, host) for host in after}) == 1


@pytest.mark.parametrize(
    ("prefer", "shares"), [(0, [[7, 7, 6], [7, 7, 6], []]), (1, [[8, 8], [8, 8, 8], []])], ids=["rack", "host"]
)
def test_a_finer_preferred_level_comes_before_even_shares(prefer: int, shares: list[list[int]]) -> None:
    """Forty pods on racks of four hosts for eight: even racks on six hosts, or on five as even as these allow."""
    tree, slots = grow([[8] * 4] * 3)
    answer = plan(tree, slots, PlanRequest(40, prefer=prefer, profile="balanced"))
    assert isinstance(answer, Plan)
    assert [[n for host, n in answer.hosts if host // 4 == rack] for rack in range(3)] == shares
