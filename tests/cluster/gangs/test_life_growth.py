"""Elastic gangs: scaled up while they run, and gangs that start with less than all of their pods."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, pod_of_index, status_of
from tests.support.gangs import Namespace, require
from tests.support.raw_pods import held

pytestmark = pytest.mark.core


def _scale(gangs: Namespace, job: str, pods: int) -> None:
    gangs.client.patch(f"{gangs.jobs_path}/{job}", {"spec": {"parallelism": pods, "completions": pods}})


def test_a_running_gang_that_is_scaled_up_grows_next_to_itself(gangs: Namespace) -> None:
    """Two more pods in the rack of the others, though the other rack is empty; those that run stay."""
    gangs.fleet.grid("1x2x4")
    gangs.submit("train", pods=2, annotations=require("rack"))
    before = gangs.all_bound("train", 2)
    _scale(gangs, "train", 4)
    after = gangs.all_bound("train", 4)
    assert {index: after[index] for index in before} == before
    assert len(gangs.racks(after)) == 1
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))


def test_growth_without_room_for_all_of_it_waits_and_the_gang_runs_on(gangs: Namespace) -> None:
    """Room for one of two: none starts, the Placement says why; both start when another gang leaves."""
    gangs.fleet.grid("1x1x4")
    gangs.submit("train", pods=2, annotations=require("rack"))
    before = gangs.all_bound("train", 2)
    gangs.submit("other", pods=1, annotations=require("host"))
    gangs.all_bound("other", 1)
    _scale(gangs, "train", 4)

    def told() -> bool:
        status = status_of(gangs, "train")
        return status.get("phase") == "Running" and "more pods to join" in status["message"]

    eventually(told, message=lambda: gangs.describe("train"))
    eventually(lambda: len(gangs.pods("train")) == 4, message="all pods exist")
    assert all(held(pod_of_index(gangs, "train", index)) for index in (2, 3))
    assert gangs.bound("train") == before
    delete_job(gangs, "other")
    gangs.all_bound("train", 4)


def test_a_gang_starts_with_its_minimum_and_the_others_join_it(gangs: Namespace) -> None:
    """Four pods, room for two, which are enough; a host more, and the third one joins."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("train", pods=4, annotations={**require("rack"), "topogate.dev/min-available": "2"})
    before = gangs.all_bound("train", 2)
    eventually(lambda: len(gangs.pods("train")) == 4, message="all pods exist")
    assert sum(map(held, gangs.pods("train"))) == 2
    gangs.fleet.host("host-extra", block="block-0", rack="rack-00")
    after = gangs.all_bound("train", 3)
    assert {index: after[index] for index in before} == before
