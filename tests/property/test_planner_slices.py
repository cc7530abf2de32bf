"""Slices against a brute force and an exact DP that share no code with the planner."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.planner.plan import NoFit, Plan, PlanRequest, plan
from engine.planner.slices import Slices
from tests.support.planner_oracles import brute_force, exact
from tests.support.small_trees import grow


def nested(depth: int, *, width: int, most: int) -> st.SearchStrategy[list[Any]]:
    children: st.SearchStrategy[Any] = st.integers(0, most) if depth == 1 else nested(depth - 1, width=width, most=most)
    return st.lists(children, min_size=1, max_size=width)


@st.composite
def sliced(draw: st.DrawFn, *, width: int, most: int) -> tuple[list[Any], PlanRequest]:
    """A tree, and a gang of whole slices on up to three of its levels."""
    depth = draw(st.integers(2, 4))
    tree = draw(nested(depth, width=width if depth < 4 else 2, most=most))
    levels = sorted(draw(st.lists(st.integers(0, depth - 1), min_size=1, max_size=3, unique=True)))
    factors = draw(st.lists(st.integers(1, 3), min_size=len(levels), max_size=len(levels)))
    slices = tuple(Slices(level, math.prod(factors[i:])) for i, level in enumerate(levels))
    room = int(grow(tree)[1].sum())
    count = slices[0].size * draw(st.integers(1, max(1, room // slices[0].size + 1)))
    require = draw(st.none() | st.integers(0, levels[0]))
    prefer = draw(st.none() | st.integers(0, depth - 1))
    profile = draw(st.sampled_from(["pack", "spread"]))
    return tree, PlanRequest(count, require=require, prefer=prefer, slices=slices, profile=profile)


def _whole(tree: list[Any], request: PlanRequest, answer: Plan) -> bool:
    grown, slots = grow(tree)
    pods = dict(answer.hosts)
    by_rank = [host for host, n in answer.hosts for _ in range(n)]
    return (
        len(by_rank) == request.count
        and all(n <= slots[host] for host, n in pods.items())
        and all(
            len({grown.domain_of(one.level, host) for host in by_rank[first : first + one.size]}) == 1
            for one in request.slices
            for first in range(0, request.count, one.size)
        )
    )


@given(sliced(width=2, most=4))
@settings(max_examples=200, deadline=None)
def test_slices_as_good_as_trying_every_placement(case: tuple[list[Any], PlanRequest]) -> None:
    """Sliced gangs fit exactly when some placement of whole slices does, with the fewest domains, coarsest first."""
    tree, request = case
    grain = {one.level: one.size for one in request.slices}
    require = -1 if request.require is None else request.require
    answer = plan(*grow(tree), request)
    best = brute_force(tree, request.count, require, grain) if request.count <= 12 else None
    if best is None:
        best = exact(tree, request.count, require, grain)
    assert (answer.domains_used if isinstance(answer, Plan) else None) == best


@given(sliced(width=4, most=9))
@settings(max_examples=300, deadline=None)
def test_sliced_gangs_are_decided_and_proven_means_optimal(case: tuple[list[Any], PlanRequest]) -> None:
    """Consecutive ranks of a slice share its domain; feasibility is exact, and so are domains that are proven."""
    tree, request = case
    grain = {one.level: one.size for one in request.slices}
    answer = plan(*grow(tree), request)
    best = exact(tree, request.count, -1 if request.require is None else request.require, grain)
    assert (best is None) == isinstance(answer, NoFit)
    if isinstance(answer, Plan):
        assert _whole(tree, request, answer)
        assert best is not None
        assert answer.domains_used == best if answer.proven else answer.domains_used >= best


@given(sliced(width=4, most=9))
@settings(max_examples=100, deadline=None)
def test_slices_need_no_steps_to_be_placed(case: tuple[list[Any], PlanRequest]) -> None:
    """Without steps for the exact search whole slices are placed all the same."""
    tree, request = case
    grain = {one.level: one.size for one in request.slices}
    hasty = PlanRequest(request.count, require=request.require, slices=request.slices, steps=0)
    answer = plan(*grow(tree), hasty)
    best = exact(tree, request.count, -1 if request.require is None else request.require, grain)
    assert (best is None) == isinstance(answer, NoFit)
    assert isinstance(answer, NoFit) or _whole(tree, hasty, answer)
