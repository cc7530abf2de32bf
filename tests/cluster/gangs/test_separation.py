"""Gangs that are kept apart from others: exclusive ones beside shared ones, and gangs of one spread group."""

from __future__ import annotations

import pytest

from engine.api import names
from local.client import ClientError
from tests.support.eventually import always, eventually
from tests.support.gang_steps import complete, completed, delete_job
from tests.support.gangs import Namespace, require

ALONE = {**require("rack"), names.EXCLUSIVE: "rack"}
WEB = {**require("rack"), names.SPREAD: "rack", names.SPREAD_GROUP: "web"}


def _scale(gangs: Namespace, job: str, pods: int) -> None:
    gangs.client.patch(f"{gangs.jobs_path}/{job}", {"spec": {"parallelism": pods, "completions": pods}})


def _message(gangs: Namespace, job: str) -> str:
    return str((gangs.placement(job) or {}).get("status", {}).get("message", ""))


def test_an_exclusive_gang_waits_for_a_rack_without_others_and_keeps_it(gangs: Namespace) -> None:
    """Both racks have room and a gang; it starts when one of them is empty, and the next gang when it has ended."""
    gangs.fleet.grid("1x2x4")
    for name in ("left", "right"):
        gangs.submit(name, pods=3, annotations=require("rack"))
    left, right = (gangs.racks(gangs.all_bound(name, 3)) for name in ("left", "right"))
    assert left.isdisjoint(right)
    gangs.submit("alone", pods=1, annotations=ALONE)
    gangs.waits("alone", "ExclusiveDomains")
    assert "needs room for 1 pod in racks without other gangs; " in _message(gangs, "alone")
    assert "2 with other gangs" in _message(gangs, "alone")
    delete_job(gangs, "left")
    assert gangs.racks(gangs.all_bound("alone", 1)) == left
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next", "ExclusiveDomains")
    always(lambda: not gangs.bound("next"), seconds=1.0)
    complete(gangs, "alone")
    completed(gangs, "alone")
    assert gangs.racks(gangs.all_bound("next", 2)) == left


def test_growth_keeps_to_it_on_both_sides(gangs: Namespace) -> None:
    """The exclusive gang grows in its own rack; its neighbour, which may use the whole block, does not grow into it."""
    gangs.fleet.grid("1x2x3")
    gangs.submit("alone", pods=1, annotations=ALONE)
    gangs.submit("wide", pods=3, annotations=require("block"))
    mine = gangs.racks(gangs.all_bound("alone", 1))
    theirs = gangs.racks(gangs.all_bound("wide", 3))
    assert mine.isdisjoint(theirs)
    _scale(gangs, "wide", 4)
    eventually(
        lambda: "outside the domains of exclusive gangs" in _message(gangs, "wide"),
        message=lambda: gangs.describe("wide"),
    )
    assert len(gangs.bound("wide")) == 3
    _scale(gangs, "alone", 2)
    assert gangs.racks(gangs.all_bound("alone", 2)) == mine
    delete_job(gangs, "alone")
    gangs.all_bound("wide", 4)


def test_jobs_of_a_spread_group_run_in_different_racks(gangs: Namespace) -> None:
    """Three Jobs, two racks: the third waits until one of the others is gone, and none may leave the group."""
    gangs.fleet.grid("1x2x4")
    for name in ("a", "b"):
        gangs.submit(name, pods=1, annotations=WEB)
    a, b = (gangs.racks(gangs.all_bound(name, 1)) for name in ("a", "b"))
    assert a.isdisjoint(b)
    gangs.submit("c", pods=1, annotations=WEB)
    gangs.waits("c", "SpreadDomains")
    with pytest.raises(ClientError) as refusal:
        gangs.client.patch(f"{gangs.jobs_path}/a", {"metadata": {"annotations": {names.SPREAD_GROUP: "other"}}})
    assert refusal.value.status == 422
    assert f"metadata.annotations[{names.SPREAD_GROUP}]: Forbidden: the gang is placed and running" in str(
        refusal.value
    )
    delete_job(gangs, "b")
    assert gangs.racks(gangs.all_bound("c", 1)) == b
