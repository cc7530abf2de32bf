"""How much is looked at to list a few divisions of a minimum among pod sets, and to plan with them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from engine.planner import gang as listing
from engine.planner import plan_gang as planner
from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest, divisions
from engine.planner.plan_gang import plan_gang
from tests.support.small_trees import grow


@pytest.mark.parametrize(
    ("ranges", "needed"),
    [
        pytest.param([range(1, 41)] * 4, 140, id="more of each pod set than the first division has"),
        pytest.param([range(201)] * 8, 1200, id="numbers that no computer lists"),
        pytest.param([range(21)] * 12 + [range(0, 5001, 1000)], 4200, id="one large slice besides single pods"),
        pytest.param([range(21)] * 12 + [range(0, 5001, 1000)], 4500, id="only whole large slices are enough"),
        pytest.param([range(2)] * 3000, 1500, id="thousands of pod sets"),
    ],
)
def test_few_numbers_are_looked_at(ranges: list[range], needed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A division takes at most one look at each number of pods of each pod set, not at all of their combinations."""
    looked = 0
    can_add = listing._can_add

    def counted(sums: int, least: int, below: int) -> bool:
        nonlocal looked
        looked += 1
        return can_add(sums, least, below)

    monkeypatch.setattr(listing, "_can_add", counted)
    found = list(islice(divisions(ranges, needed), 65))
    assert found
    assert looked <= sum(map(len, ranges)) * len(found)


def test_no_division_is_enough() -> None:
    """A minimum above all pods has no division."""
    assert not list(divisions([range(3), range(0, 5, 2)], 7))


def test_no_division_is_listed_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the most even division fits, no other one is looked for."""

    def unwanted(*_: Any) -> None:
        pytest.fail("another division was listed")

    monkeypatch.setattr(planner, "divisions", unwanted)
    tree, slots = grow([[[1] * 10] * 15])
    gang = GangPlanRequest(tuple(PodSetPlanRequest(40, (1,), min_count=1) for _ in range(4)), min_count=140)
    answer = plan_gang(tree, slots[:, None].astype(np.int64), gang)
    assert isinstance(answer, GangPlan)
    assert sum(pods for one in answer.pod_sets for _, pods in one.hosts) == 150


def test_a_division_far_from_even_takes_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minimum that only one of a hundred divisions meets is found after a few plans for each pod set."""
    plans = 0
    assemble = planner.assemble

    def counted(*args: Any) -> Any:
        nonlocal plans
        plans += 1
        return assemble(*args)

    monkeypatch.setattr(planner, "assemble", counted)
    tree, slots = grow([[[8] * 12, [8] * 9]])
    first = np.arange(21) < 12
    pod_sets = (PodSetPlanRequest(200, (1,), eligible=first), PodSetPlanRequest(200, (1,), eligible=~first))
    answer = plan_gang(tree, slots[:, None].astype(np.int64), GangPlanRequest(pod_sets, min_count=165))
    assert isinstance(answer, GangPlan)
    assert [sum(pods for _, pods in one.hosts) for one in answer.pod_sets] == [96, 72]
    assert plans <= 3 + 2 * 8
