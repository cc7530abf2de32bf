"""The stream of gangs that the benchmark's churn sends."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bench.churn import LEVELS, SIZES, Churn
from engine.api import names
from local.client import Client


class Jobs:
    """Takes Jobs; each ends as soon as somebody looks. `peak` is the most pods at a time."""

    def __init__(self) -> None:
        self.live: dict[str, int] = {}
        self.ended: list[dict[str, Any]] = []
        self.peak = 0

    def create(self, _path: str, body: dict[str, Any]) -> None:
        self.live[body["metadata"]["name"]] = body["spec"]["parallelism"]
        self.peak = max(self.peak, sum(self.live.values()))
        self.ended.append({**body, "status": {"succeeded": body["spec"]["completions"]}})

    def items(self, _path: str) -> list[dict[str, Any]]:
        self.live.clear()
        return self.ended


def test_every_run_has_the_same_gangs() -> None:
    """And the floor the same pods, without any request."""
    gangs, floor = Churn().bodies(gang=True), Churn().bodies(gang=False)
    assert gangs == Churn().bodies(gang=True)
    assert [one["spec"] for one in gangs] == [one["spec"] for one in floor]
    assert not any(one["metadata"]["annotations"] for one in floor)
    assert sum(one["spec"]["parallelism"] for one in gangs) == Churn().total


def test_the_gangs_are_mixed() -> None:
    """Every size and every kind of request; a required level always has room for the gang in an empty domain."""
    drawn = Churn().drawn
    assert {pods for pods, _, _ in drawn} == set(SIZES)
    assert {key for _, request, _ in drawn for key in request} == {names.REQUIRE, names.PREFER, names.UNCONSTRAINED}
    assert all(pods <= LEVELS[request[names.REQUIRE]] for pods, request, _ in drawn if names.REQUIRE in request)


def test_the_load_is_never_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits until enough have ended."""
    monkeypatch.setattr("bench.churn.CHECK_EVERY", 0.0)
    jobs, churn = Jobs(), Churn()
    sent = churn.submit(cast(Client, jobs), "", churn.bodies(gang=True), hosts=200)
    assert len(sent) == churn.gangs
    assert 100 < jobs.peak <= 180


def test_a_gang_larger_than_the_load_is_an_error() -> None:
    """It would wait for ever."""
    churn = Churn()
    with pytest.raises(TimeoutError, match="larger grid"):
        churn.submit(cast(Client, Jobs()), "", churn.bodies(gang=True), hosts=16)
