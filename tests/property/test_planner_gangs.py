"""Gangs of several pod sets against trying every placement."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from engine.planner.feasibility import most_pods
from engine.planner.gang import GangPlan, GangPlanRequest, HostCapacity, PodSetPlanRequest, Undecided
from engine.planner.plan import NoFit
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.tree import Tree, build_tree
from tests.support.gang_oracles import brute_force_gang, one_more, opened, valid

Free = list[list[int]]
LEVELS = ("block", "rack", "host")


@st.composite
def rooms(draw: st.DrawFn, hosts: int) -> tuple[Tree, Free]:
    """Up to `hosts` hosts in ragged racks, with free cpu and gpu."""
    places = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=hosts))
    tree = build_tree(LEVELS, [(f"b{block}", f"r{rack}", f"n{i}") for i, (block, rack) in enumerate(places)])
    return tree, [[draw(st.integers(0, 4)), draw(st.integers(0, 2))] for _ in places]


@st.composite
def pod_sets(draw: st.DrawFn, tree: Tree, *, most: int, slices: bool = False, kept: bool = False) -> PodSetPlanRequest:
    hosts = len(tree.hosts)
    require = draw(st.none() | st.integers(0, 2))
    sliced: tuple[Slices, ...] = ()
    count = draw(st.integers(1, most))
    if slices and draw(st.booleans()):
        size = draw(st.sampled_from([2, 2, 3]))
        count = draw(st.sampled_from([size, size, 2 * size, size + 1]))
        sliced = (Slices(draw(st.integers(0, 2)), size),)
    staying: dict[int, int] = {}
    if kept:
        ranks = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count))
        staying = {rank: draw(st.integers(0, hosts - 1)) for rank in ranks}
    return PodSetPlanRequest(
        count,
        draw(st.sampled_from([(1, 0), (2, 0), (1, 1), (0, 1), (2, 1)])),
        eligible=draw(st.none() | st.lists(st.booleans(), min_size=hosts, max_size=hosts).map(np.array)),
        require=require,
        prefer=draw(st.none() | st.integers(0, 2)),
        slices=sliced,
        remnant=any(count % one.size for one in sliced),
        colocate=draw(st.sampled_from([None, None, "a"])),
        per_host=draw(st.sampled_from([None, None, None, 1])),
        kept=staying,
    )


@st.composite
def gangs(
    draw: st.DrawFn, *, hosts: int, sets: int, most: int, slices: bool = False, kept: bool = False
) -> tuple[Tree, Free, GangPlanRequest]:
    tree, free = draw(rooms(hosts))
    chosen = [draw(pod_sets(tree, most=most, slices=slices, kept=kept)) for _ in range(draw(st.integers(1, sets)))]
    levels = {pods.require for pods in chosen if pods.colocate and pods.require is not None}
    assume(len(levels) < 2)
    level = draw(st.sampled_from([None, None, None, 0, 1, 2]))
    prefer = draw(st.sampled_from([None, None, None, 1]))
    profile = draw(st.sampled_from(["pack", "spread"]))
    return tree, free, GangPlanRequest(tuple(chosen), require=level, prefer=prefer, profile=profile)


def _right(tree: Tree, free: Free, gang: GangPlanRequest, steps: bool = True) -> None:
    try:
        answer = plan_gang(tree, np.array(free, dtype=np.int64), gang)
    except ValueError as error:
        assume(not str(error).startswith("kept:"))
        raise
    best = brute_force_gang(tree, free, gang)
    event(type(answer).__name__)
    if isinstance(answer, GangPlan):
        placed = [seats.ranks for seats in answer.pod_sets]
        assert valid(tree, free, gang, placed)
        assert best is not None
        cost = opened(tree, gang, placed)
        assert cost == best if answer.proven and gang.profile != "balanced" else cost >= best
        event(f"proven {answer.proven}")
    else:
        assert (isinstance(answer, NoFit) and best is None) or (isinstance(answer, Undecided) and not steps)


@given(gangs(hosts=6, sets=2, most=3))
@settings(max_examples=250, deadline=None)
def test_two_pod_sets_as_good_as_trying_every_placement(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """Pod sets of a gang fit exactly when some placement of all does; proven plans open the fewest domains."""
    _right(*case)


@given(gangs(hosts=4, sets=3, most=2))
@settings(max_examples=150, deadline=None)
def test_three_pod_sets_as_good_as_trying_every_placement(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """The same for three."""
    _right(*case)


@given(gangs(hosts=4, sets=2, most=2, slices=True))
@settings(max_examples=150, deadline=None)
def test_sliced_pod_sets_as_good_as_trying_every_placement(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """Slices of several pod sets each stay in one domain of their level."""
    _right(*case)


@given(gangs(hosts=4, sets=2, most=3, slices=True, kept=True))
@settings(max_examples=250, deadline=None)
def test_repair_as_good_as_trying_every_placement(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """Lost pods go where their slice, their pod set and their gang are, and open the fewest domains besides."""
    _right(*case)


@given(gangs(hosts=4, sets=2, most=2, slices=True, kept=True))
@settings(max_examples=150, deadline=None)
def test_balanced_pod_sets_fit_where_any_do(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """Even shares cost no gang its place, new or grown, and break no rule."""
    tree, free, gang = case
    _right(tree, free, replace(gang, profile="balanced"))


@given(gangs(hosts=5, sets=2, most=3))
@settings(max_examples=150, deadline=None)
def test_without_steps_nothing_feasible_is_refused(case: tuple[Tree, Free, GangPlanRequest]) -> None:
    """With no steps at all the answer is a right plan, a certain no, or that it is undecided."""
    tree, free, gang = case
    _right(tree, free, GangPlanRequest(gang.pod_sets, require=gang.require, profile=gang.profile, steps=0), steps=False)


@given(gangs(hosts=4, sets=3, most=3), st.data())
@settings(max_examples=150, deadline=None)
def test_a_minimum_is_met_where_a_division_fits(case: tuple[Tree, Free, GangPlanRequest], data: st.DataObject) -> None:
    """A gang starts exactly when some numbers of its pods that are enough fit; those that are placed keep its rules."""
    tree, free, gang = case
    own = [data.draw(st.none() | st.integers(0, pods.count), label="own minimum") for pods in gang.pod_sets]
    least = data.draw(st.integers(1, sum(pods.count for pods in gang.pod_sets)), label="minimum")
    pod_sets = tuple(replace(pods, min_count=low) for pods, low in zip(gang.pod_sets, own, strict=True))
    answer = plan_gang(tree, np.array(free, dtype=np.int64), replace(gang, pod_sets=pod_sets, min_count=least))
    enough = [
        counts
        for counts in product(*(range(low or 0, pods.count + 1) for low, pods in zip(own, gang.pod_sets, strict=True)))
        if sum(counts) >= least
    ]
    event(type(answer).__name__)
    if isinstance(answer, GangPlan):
        placed = [tuple(host for host in seats.ranks if host >= 0) for seats in answer.pod_sets]
        counts = tuple(map(len, placed))
        assert counts in enough
        assert valid(tree, free, _of(gang, counts), placed)
        event(f"whole {counts == enough[-1]}")
    else:
        assert isinstance(answer, NoFit)
        assert all(brute_force_gang(tree, free, _of(gang, counts)) is None for counts in enough)


@given(gangs(hosts=5, sets=2, most=4, slices=True, kept=True))
@settings(max_examples=250, deadline=None)
def test_no_pod_that_fits_waits_for_others_of_a_gang_with_its_minimum(
    case: tuple[Tree, Free, GangPlanRequest],
) -> None:
    """Lost pods of a slice join those that stay, whether there is room for those of another slice or pod set or not."""
    tree, free, gang = case
    pod_sets = tuple(replace(pods, min_count=len(pods.kept)) for pods in gang.pod_sets)
    gang = replace(gang, pod_sets=pod_sets, min_count=max(1, sum(len(pods.kept) for pods in pod_sets)))
    assume(any(pods.kept for pods in pod_sets))
    try:
        answer = plan_gang(tree, np.array(free, dtype=np.int64), gang)
    except ValueError as error:
        assume(not str(error).startswith("kept:"))
        raise
    assert isinstance(answer, GangPlan)
    placed = [seats.ranks for seats in answer.pod_sets]
    assert all(
        hosts[rank] == host for one, hosts in zip(pod_sets, placed, strict=True) for rank, host in one.kept.items()
    )
    assert one_more(tree, free, gang, placed) is None
    event(f"waiting {sum(hosts.count(-1) for hosts in placed)}")


@given(gangs(hosts=5, sets=3, most=2, slices=True, kept=True), st.data())
@settings(max_examples=200, deadline=None)
def test_no_plan_has_more_pods_than_the_bound(case: tuple[Tree, Free, GangPlanRequest], data: st.DataObject) -> None:
    """What fits is never more than the upper bound, of each pod set and of all together."""
    tree, free, gang = case
    amounts = np.array(free, dtype=np.int64)
    try:
        answer = plan_gang(tree, amounts, gang)
    except ValueError as error:
        assume(not str(error).startswith("kept:"))
        raise
    event(type(answer).__name__)
    if not isinstance(answer, GangPlan):
        return
    least = [data.draw(st.integers(len(pods.kept), pods.count), label="minimum") for pods in gang.pod_sets]
    bound = most_pods(HostCapacity(tree, amounts), gang, least)
    counts = [pods.count for pods in gang.pod_sets]
    assert all(most >= count for most, count in zip(bound.of_sets, counts, strict=True))
    assert bound.in_all >= sum(counts)
    event(f"slack {min(bound.in_all - sum(counts), 3)}")


def _of(gang: GangPlanRequest, counts: tuple[int, ...]) -> GangPlanRequest:
    return replace(gang, pod_sets=tuple(replace(pods, count=n) for pods, n in zip(gang.pod_sets, counts, strict=True)))
