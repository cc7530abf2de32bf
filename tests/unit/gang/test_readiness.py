"""Which pods of a gang are not ready, why, and whether the others are enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.placement import GangRequest
from engine.api.pod import Pod, Readiness
from engine.gang.gang import STEADY_AFTER, Gang, at_fault, enough_ready, not_ready, why_not_ready
from engine.gang.request import PlacementRequest
from tests.support.cluster_records import job, placement, pod

WAITS = Readiness(ready=False, since=100.0, restarts=0, container="main", waiting="ContainerCreating")
PULLS = replace(WAITS, waiting="ImagePullBackOff", message='Back-off pulling image "a/b:1"')
LOOPS = replace(WAITS, waiting="CrashLoopBackOff", ended="exit code 1, Error", restarts=3)
STEADY = Readiness(ready=True, since=100.0, restarts=1)


def members(*readiness: Readiness | None) -> list[Pod]:
    gang = job(count=len(readiness))
    return [pod(gang, rank, host=f"h{rank}", readiness=one) for rank, one in enumerate(readiness)]


def test_faults_come_before_pods_that_only_take_their_time() -> None:
    """One message names one pod: the one with the cause."""
    pods = members(WAITS, None, PULLS)
    assert [one.name for one in not_ready(pods, 200.0)] == ["train-2", "train-0"]


def test_ended_terminating_and_unbound_pods_are_not_among_them() -> None:
    """Other rules are about those."""
    first, second, third = members(PULLS, PULLS, PULLS)
    unbound = replace(third, spec=replace(third.spec, node_name=""))
    assert not_ready([replace(first, phase="Failed"), replace(second, deleting=True), unbound], 200.0) == []


@pytest.mark.parametrize(("after", "ready"), [(STEADY_AFTER - 1, False), (STEADY_AFTER, True)])
def test_a_restarted_pod_is_ready_when_it_has_been_for_a_while(after: float, ready: bool) -> None:
    """A container that crashes after some seconds is ready in between."""
    assert (not_ready(members(STEADY), 100.0 + after) == []) is ready


@pytest.mark.parametrize(
    ("one", "fault"), [(WAITS, False), (PULLS, True), (LOOPS, True), (STEADY, True), (None, False)]
)
def test_a_slow_start_is_no_fault(one: Readiness | None, fault: bool) -> None:
    """A large image, a volume that is being attached."""
    assert at_fault(members(one)[0]) is fault


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (WAITS, "container main: ContainerCreating"),
        (PULLS, 'container main: ImagePullBackOff: Back-off pulling image "a/b:1"'),
        (LOOPS, "container main: CrashLoopBackOff (exit code 1, Error, 3 restarts)"),
        (replace(WAITS, waiting=""), "container main runs, but is not ready"),
        (replace(WAITS, waiting="", container=""), "its containers have not been started"),
        (STEADY, "ready again for a moment only, 1 restart"),
        (replace(PULLS, message="a\nb" + "x" * 500), "container main: ImagePullBackOff: a\\nb" + "x" * 194 + "..."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_a_pod_is_not_ready(one: Readiness, text: str) -> None:
    """The kubelet's words, in one line, shortened and escaped."""
    assert why_not_ready(members(one)[0]) == text


@pytest.mark.parametrize(
    ("least", "of_gang", "unready", "enough"),
    [
        (4, None, 0, True),
        (4, None, 1, False),
        (3, None, 1, True),
        (3, None, 2, False),
        (0, 2, 2, True),
        (0, 2, 3, False),
    ],
)
def test_the_minimum_has_to_be_ready(least: int, of_gang: int | None, unready: int, enough: bool) -> None:
    """All pods, the minimum of their pod set, or that of the whole gang."""
    workload = job(count=4)
    placed = placement(workload, {"h0": 2, "h1": 2})
    asks = tuple(replace(ask, min_available=least) for ask in placed.pod_sets)
    whole = GangRequest(None, None, of_gang) if of_gang is not None else None
    placed = replace(placed, pod_sets=asks, gang=whole)
    gang = Gang(workload, PlacementRequest(), placed, (), shapes={})
    assert enough_ready(gang, members(PULLS, PULLS, PULLS)[:unready]) is enough
