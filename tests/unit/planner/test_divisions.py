"""How much is looked at to list a few divisions of a minimum among pod sets, and to plan with them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from engine.planner import gang as listing
from engine.planner import plan_gang as planner
from engine.planner.gang import GangPlan, GangPlanRequest, PodSetPlanRequest, divisions
from engine.planner.plan import NoFit
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


@pytest.mark.parametrize("shared", [False, True])
def test_a_minimum_that_no_division_meets_is_refused(shared: bool) -> None:
    """168 pods fit; of 400 pods 169 can be divided in more ways than are tried, and all of them are too many."""
    tree, slots = grow([[[8] * 12, [8] * 9]])
    first = np.arange(21) < 12
    pod_sets = (
        PodSetPlanRequest(200, (1, 0), eligible=None if shared else first),
        PodSetPlanRequest(200, (1, 1), eligible=None if shared else ~first),
    )
    free = np.column_stack((slots, slots)).astype(np.int64)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=169)), NoFit)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=168)), GangPlan)


def test_parts_of_hosts_that_no_pod_can_use_do_not_count() -> None:
    """Each host of 8 takes two pods of 3, whichever pod sets they are of: 80 in all, though 320 / 3 are 106."""
    tree, slots = grow([[[8] * 40]])
    free = np.column_stack((slots, slots)).astype(np.int64)
    pod_sets = (PodSetPlanRequest(100, (3, 0)), PodSetPlanRequest(100, (3, 1)))
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=81)), NoFit)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=80)), GangPlan)


def test_large_pods_that_must_start_leave_less_for_the_others() -> None:
    """Ten pods of 8 of a pod set have to start: that leaves 88 of 168 for pods of 1."""
    tree, slots = grow([[[8] * 12, [8] * 9]])
    pod_sets = (PodSetPlanRequest(100, (8,), min_count=10), PodSetPlanRequest(200, (1,)))
    free = slots[:, None].astype(np.int64)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=99)), NoFit)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, min_count=98)), GangPlan)


def test_a_required_level_bounds_a_minimum() -> None:
    """The largest rack takes 96 pods of both pod sets together."""
    tree, slots = grow([[[8] * 12, [8] * 9]])
    free = np.column_stack((slots, slots)).astype(np.int64)
    pod_sets = (PodSetPlanRequest(200, (1, 0)), PodSetPlanRequest(200, (1, 1)))
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, require=1, min_count=97)), NoFit)
    assert isinstance(plan_gang(tree, free, GangPlanRequest(pod_sets, require=1, min_count=96)), GangPlan)
