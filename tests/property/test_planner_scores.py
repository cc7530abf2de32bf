"""Scores of hosts: they decide between equals, against an enumeration, and never cost a domain."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest
from engine.planner.plan import NoFit, Plan, PlanRequest, SlotIndex, plan
from engine.planner.plan_gang import plan_gang
from engine.planner.slices import Slices
from engine.planner.sums import MAX_SCORES, HostScores
from engine.planner.tree import Tree
from tests.property.test_planner_optimal import trees
from tests.support.planner_oracles import depth_of
from tests.support.small_trees import grow

SLOTS = 3  # of every free host, where an enumeration is compared


@st.composite
def scored(draw: st.DrawFn) -> tuple[Tree, np.ndarray, PlanRequest, np.ndarray]:
    """Any ragged tree, request and scores."""
    nested = draw(trees(width=4, most=4))
    tree, slots = grow(nested)
    depth, room = depth_of(nested), int(slots.clip(0).sum())
    require = draw(st.none() | st.integers(0, depth - 1))
    prefer = draw(st.none() | st.integers(0, depth - 1))
    size = draw(st.sampled_from([1, 1, 2]))
    count = draw(st.integers(1, room // size + 1)) * size
    slices = (Slices(draw(st.integers(0, depth - 1)), size),) if size > 1 else ()
    profile = draw(st.sampled_from(["pack", "spread", "balanced"]))
    steps = draw(st.sampled_from([0, 200_000]))
    scores = draw(st.lists(st.integers(0, 3), min_size=len(slots), max_size=len(slots)))
    request = PlanRequest(count, require=require, prefer=prefer, profile=profile, slices=slices, steps=steps)
    return tree, slots, request, np.array(scores, dtype=np.int64)


@given(scored())
@settings(max_examples=400, deadline=None)
def test_scores_never_cost_a_domain_nor_a_plan(case: tuple[Tree, np.ndarray, PlanRequest, np.ndarray]) -> None:
    """A gang fits with them exactly where it fits without, and on no more domains, coarsest first."""
    tree, slots, request, values = case
    scores = HostScores.of(values)
    plain, found = plan(tree, slots, request), plan(tree, slots, request, None, scores)
    assert isinstance(plain, NoFit) == isinstance(found, NoFit)
    if isinstance(plain, Plan) and isinstance(found, Plan):
        assert found.domains_used <= plain.domains_used
        if (
            plain.proven
            and (request.require is not None or request.prefer is not None)
            and request.profile != "balanced"
        ):
            assert found.domains_used == plain.domains_used
        assert sum(pods for _, pods in found.hosts) == request.count
        assert all(0 < pods <= slots[host] for host, pods in found.hosts)
    assert SlotIndex(tree, slots).plan(request, scores) == found


@given(scored(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_gang_of_pod_sets_is_as_large_and_near_with_scores(
    case: tuple[Tree, np.ndarray, PlanRequest, np.ndarray], data: st.DataObject
) -> None:
    """Of several pod sets, with a minimum and with pods that run already."""
    tree, slots, request, values = case
    free = slots.clip(0)[:, None].astype(np.int64)
    kept = {0: data.draw(st.integers(0, len(slots) - 1))} if data.draw(st.booleans()) else {}
    pod_sets = (
        PodSetPlanRequest(request.count, (1,), require=request.require, prefer=request.prefer, kept=kept),
        PodSetPlanRequest(1, (2,), min_count=data.draw(st.sampled_from([None, 0]))),
    )
    gang = GangPlanRequest(pod_sets, min_count=data.draw(st.none() | st.integers(1, request.count)), steps=2_000)
    plain, found = plan_gang(tree, free, gang), plan_gang(tree, free, gang, None, HostScores.of(values))
    assert type(plain) is type(found) or isinstance(found, GangPlan)
    if isinstance(plain, GangPlan) and isinstance(found, GangPlan):

        def pods(answer: GangPlan) -> int:
            return sum(number for one in answer.pod_sets for _, number in one.hosts)

        assert (-pods(found), found.domains_used) <= (-pods(plain), plain.domains_used)


@st.composite
def racks(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Racks of hosts that are free (with the same number of slots) or full, and a score for each host."""
    found = draw(st.lists(st.lists(st.sampled_from([0, SLOTS, SLOTS]), min_size=1, max_size=4), min_size=1, max_size=4))
    hosts = sum(map(len, found))
    return found, draw(st.lists(st.integers(0, 3), min_size=hosts, max_size=hosts))


def best_of_equals(tree: list[list[int]], scores: list[int], count: int) -> int | None:
    """The highest score of any placement in the tightest racks, on the fewest hosts; None: no rack is enough."""
    hosts: list[list[int]] = []
    first = 0
    for rack in tree:
        hosts.append([scores[first + at] for at, slots in enumerate(rack) if slots])
        first += len(rack)
    needed = -(-count // SLOTS)
    fitting = [rack for rack in hosts if len(rack) >= needed]
    if not fitting:
        return None
    if needed == 1:  # one host: the racks whose free slots have the fewest binary digits come first
        digits = min((len(rack) * SLOTS).bit_length() for rack in fitting)
        fitting = [rack for rack in fitting if (len(rack) * SLOTS).bit_length() == digits]
    else:
        tight = min(map(len, fitting))
        fitting = [rack for rack in fitting if len(rack) == tight]
    spare = needed * SLOTS - count
    return max(SLOTS * sum(chosen) - spare * min(chosen) for rack in fitting for chosen in combinations(rack, needed))


@given(racks(), st.integers(1, 4 * SLOTS))
@settings(max_examples=500, deadline=None)
def test_of_equally_good_plans_the_one_with_the_highest_score(
    cluster: tuple[list[list[int]], list[int]], count: int
) -> None:
    """Where free hosts are alike: pods times the score of their host, over every rack and every choice of hosts."""
    nested, values = cluster
    request = PlanRequest(count, require=0)
    answer = plan(*grow(nested), request, None, HostScores.of(np.array(values, dtype=np.int64)))
    best = best_of_equals(nested, values, count)
    assert (best is None) == isinstance(answer, NoFit)
    if isinstance(answer, Plan):
        assert sum(pods * values[host] for host, pods in answer.hosts) == best


@given(st.lists(st.integers(-5, 1_000), max_size=30))
def test_scores_keep_the_order_of_their_values(values: list[int]) -> None:
    """Up to as many steps as are told apart; beyond, neighbours may become equal, but never change places."""
    found = HostScores.of(np.array(values, dtype=np.int64))
    if found is None:
        assert len(set(values)) <= 1
        return
    assert len(found.steps) <= MAX_SCORES
    assert sorted({*found.steps, 0}, reverse=True) == sorted(set(found.values.tolist()), reverse=True)
    exact = len(set(values)) <= MAX_SCORES + 1
    for a, b in combinations(range(len(values)), 2):
        if values[a] < values[b]:
            assert found.values[a] <= found.values[b]
            assert found.values[a] < found.values[b] or not exact


def test_the_whole_scale_survives() -> None:
    """The best and the worst are told apart however many there are between."""
    found: Any = HostScores.of(np.arange(1_000, dtype=np.int64))
    assert found.values[0] == 0 < found.values[-1] == found.steps[0]
