"""The planner against a brute force and an exact DP that share no code with it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.plan import NoFit, Plan, PlanRequest, plan
from engine.planner.tree import build_tree
from tests.support.planner_oracles import brute_force, depth_of, exact
from tests.support.small_trees import grow


def nested(depth: int, *, width: int, slots: st.SearchStrategy[int]) -> st.SearchStrategy[list[Any]]:
    """Ragged trees of `depth` levels with free slots as leaves."""
    children: st.SearchStrategy[Any] = slots if depth == 1 else nested(depth - 1, width=width, slots=slots)
    return st.lists(children, min_size=1, max_size=width)


def trees(*, width: int, most: int) -> st.SearchStrategy[list[Any]]:
    slots = st.integers(-1, most)
    return st.integers(1, 4).flatmap(lambda depth: nested(depth, width=width if depth < 4 else 2, slots=slots))


@st.composite
def decisions(draw: st.DrawFn, *, width: int, most: int) -> tuple[list[Any], PlanRequest]:
    tree = draw(trees(width=width, most=most))
    depth = depth_of(tree)
    _, slots = grow(tree)
    room = int(slots.clip(0).sum())
    count = draw(st.integers(1, room + 1))
    require = draw(st.none() | st.integers(0, depth - 1))
    prefer = draw(st.none() | st.integers(0, depth - 1)) if require is not None else draw(st.integers(0, depth - 1))
    profile = draw(st.sampled_from(["pack", "spread"]))
    return tree, PlanRequest(count, require=require, prefer=prefer, profile=profile)


def _used(answer: Plan | NoFit) -> tuple[int, ...] | None:
    return answer.domains_used if isinstance(answer, Plan) else None


@given(decisions(width=2, most=2))
@settings(max_examples=300, deadline=None)
def test_as_good_as_trying_every_placement(decision: tuple[list[Any], PlanRequest]) -> None:
    """On a tiny tree the plan exists exactly when some placement does, and uses the fewest domains, coarsest first."""
    tree, request = decision
    require = -1 if request.require is None else request.require
    assert _used(plan(*grow(tree), request)) == brute_force(tree, request.count, require)


@given(decisions(width=4, most=9))
@settings(max_examples=300, deadline=None)
def test_proven_means_optimal(decision: tuple[list[Any], PlanRequest]) -> None:
    """Feasibility always equals the exact DP's, and so do the numbers of domains whenever they are called proven."""
    tree, request = decision
    answer = plan(*grow(tree), request)
    best = exact(tree, request.count, -1 if request.require is None else request.require)
    assert (best is None) == isinstance(answer, NoFit)
    if isinstance(answer, Plan):
        assert best is not None
        assert answer.domains_used == best if answer.proven else answer.domains_used >= best


@given(decisions(width=4, most=9))
@settings(max_examples=150, deadline=None)
def test_without_steps_the_best_found_is_still_honest(decision: tuple[list[Any], PlanRequest]) -> None:
    """With no steps for the exact search the gang is placed all the same, and nothing wrong is called proven."""
    tree, request = decision
    answer = plan(*grow(tree), PlanRequest(request.count, require=request.require, prefer=request.prefer, steps=0))
    best = exact(tree, request.count, -1 if request.require is None else request.require)
    assert (best is None) == isinstance(answer, NoFit)
    if isinstance(answer, Plan) and answer.proven:
        assert answer.domains_used == best


@given(trees(width=4, most=9), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_an_unconstrained_gang_gets_the_fewest_hosts(tree: list[Any], count: int) -> None:
    """The fewest hosts of the whole topology, largest first, are what an unconstrained gang uses."""
    grown, slots = grow(tree)
    answer = plan(grown, slots, PlanRequest(count))
    largest = sorted(slots.clip(0).tolist(), reverse=True)
    needed = next((n for n in range(len(largest) + 1) if sum(largest[:n]) >= count), None)
    assert (answer.domains_used[-1] if isinstance(answer, Plan) else None) == needed


def test_nearly_every_decision_is_proven() -> None:
    """At least 99.5 % of random decisions on 12 racks of ragged, partly used hosts are proven minimal."""
    chance = random.Random(7)
    proven = total = 0
    for _ in range(800):
        tree = [
            [[chance.choice((0, 0, 1, 3, 4, 8)) for _ in range(chance.randint(2, 8))] for _ in range(4)]
            for _ in range(3)
        ]
        grown, slots = grow(tree)
        count = chance.randint(2, max(2, int(slots.sum())))
        answer = plan(grown, slots, PlanRequest(count, prefer=1))
        if isinstance(answer, Plan):
            total += 1
            proven += answer.proven
    assert total > 700
    assert proven >= 0.995 * total


@pytest.mark.parametrize("above", range(7))
def test_nearly_every_decision_is_proven_on_deep_ragged_trees(above: int) -> None:
    """So is at least that share on trees of up to six levels above the host, some of whose domains hold one other."""
    chance = random.Random(above)
    proven = total = 0
    for _ in range(20):
        hosts = chance.choice((30, 100, 300, 1000))
        width = [chance.randint(2, 5) * (1 + hosts // 100) for _ in range(above)]
        paths = [(*(f"d{chance.randrange(some)}" for some in width), f"h{host}") for host in range(hosts)]
        most = chance.choice((1, 4, 8, 40))
        slots = np.array([chance.choice((0, chance.randint(0, most))) for _ in range(hosts)], dtype=np.int64)
        tree = build_tree(tuple(f"l{level}" for level in range(above + 1)), paths)
        count = chance.randint(1, max(1, int(slots.sum()) // chance.choice((1, 2, 4, 10))))
        answer = plan(tree, slots, PlanRequest(count, prefer=chance.randint(0, above)))
        if isinstance(answer, Plan):
            total += 1
            proven += answer.proven
    assert total >= 15
    assert proven >= 0.995 * total
