"""A required level becomes a preferred one after the gang has waited long enough for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.duration import timestamp
from engine.api.placement import GangRequest, Placement, PodSetRequest, waiting_since
from engine.gang.relaxation import effective_request, relaxed, relaxes_at, relaxing_text
from engine.gang.request import PlacementRequest
from engine.lifecycle.actions import Status
from engine.lifecycle.status import status_body
from engine.policy.model import default_policy, parse_policy
from engine.scheduler.schedule import new_placement
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.leader import Leader

SINCE = 1_800_000_000.0
SHARED = {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND, names.RELAX_AFTER: "10m"}


def asking(require: str | None = "rack", *, prefer: str | None = None, after: float | None = 600.0) -> PlacementRequest:
    ask = PodSetRequest("main", 4, 4, require, prefer, True, "h", slices=(("rack", 2),))
    return PlacementRequest(pod_sets=(ask,), topology="default", relax_after=after)


def waiting(request: PlacementRequest, *, since: object = timestamp(SINCE), **more: object) -> Placement:
    leader = Leader(nodes=gpu_nodes(1, 1, 1))
    leader.has(job(held=True))
    leader.view.refresh()
    gang = leader.view.gangs.get("uid-train")
    assert gang is not None
    made = new_placement(replace(gang, request=request), None, priority=0, now=SINCE)
    return replace(made, status={"phase": "Waiting", "waitingSince": since}, **more)  # type: ignore[arg-type]


def test_what_is_required_becomes_preferred_and_slices_stay() -> None:
    """The level moves from require to prefer; a finer one that was preferred already stays; `auto` means the hosts."""
    (ask,) = relaxed(asking()).pod_sets
    assert (ask.require, ask.prefer, ask.relaxed, ask.slices) == (None, "rack", "rack", (("rack", 2),))
    assert relaxed(asking("block", prefer="rack")).pod_sets[0].prefer == "rack"
    assert relaxed(asking("auto")).pod_sets[0].prefer == "host"


def test_the_level_of_the_whole_gang_is_relaxed_too() -> None:
    """Where several pod sets share a level, that one and their own are preferred."""
    gang = GangRequest("block", None, None)
    softer = relaxed(replace(asking(), gang=gang)).gang
    assert softer == GangRequest(None, "block", None, relaxed="block")


def test_the_time_runs_from_the_moment_that_the_placement_names() -> None:
    """The Placement is the memory: a new leader reads the same moment."""
    request = asking()
    assert relaxes_at(request, waiting(request), default_policy()) == SINCE + 600
    assert relaxes_at(request, None, default_policy()) is None


def test_the_annotation_goes_before_the_policy() -> None:
    """`timeouts.relaxAfter` is for those who say nothing."""
    policy = parse_policy("timeouts: {relaxAfter: 1h}")
    assert relaxes_at(asking(), waiting(asking()), policy) == SINCE + 600
    silent = asking(after=None)
    assert relaxes_at(silent, waiting(silent), policy) == SINCE + 3600
    assert relaxes_at(silent, waiting(silent), default_policy()) is None


@pytest.mark.parametrize("since", [None, 7, "", "soon", "9999-99-99T00:00:00Z"])
def test_a_moment_that_nobody_can_read_relaxes_nothing(since: object) -> None:
    """A status is for people, and the time starts when we write one."""
    assert relaxes_at(asking(), waiting(asking(), since=since), default_policy()) is None


def test_nothing_required_is_never_relaxed() -> None:
    """A gang that prefers has nothing to give up."""
    soft = asking(None, prefer="rack")
    assert relaxes_at(soft, waiting(soft), default_policy()) is None


def test_a_relaxed_request_stays_relaxed_until_it_changes() -> None:
    """The Placement says so; another level asked for since is another request."""
    written = waiting(relaxed(asking()))
    assert effective_request(asking(), written, default_policy()) == relaxed(asking())
    assert effective_request(asking("block"), written, default_policy()) == asking("block")
    assert effective_request(asking(), waiting(asking()), default_policy()) == asking()


def test_who_takes_the_annotation_away_requires_the_level_again() -> None:
    """While the gang waits; one that has slots keeps them."""
    leader = rack_with_a_stranger()
    leader.later(1.0)
    leader.later(600.0)
    placed = leader.placed()
    assert placed is not None
    assert placed.assignment is not None
    silent = asking(after=None)
    same = replace(placed, pod_sets=relaxed(silent).pod_sets)
    assert effective_request(silent, same, default_policy()) == relaxed(silent)
    assert effective_request(silent, replace(same, assignment=None), default_policy()) == silent


def test_people_read_the_time_and_the_level() -> None:
    """The sentence of the Event and of the Placement."""
    assert relaxing_text(asking(), default_policy()) == (
        "has waited for 10m: rack is preferred from now on, not required"
    )


def test_the_time_that_a_user_keeps_it_suspended_is_no_waiting() -> None:
    """Only while it is ours to start it the moment stands in the status."""
    ours = status_body({}, Status("Waiting", "Fragmented", ""), placed=None, now=SINCE)
    assert waiting_since(ours) == SINCE
    assert waiting_since(status_body(ours, Status("Waiting", "QueuedBehind", ""), placed=None, now=SINCE + 9)) == SINCE
    assert waiting_since(status_body(ours, Status("Waiting", "Suspended", ""), placed=None, now=SINCE)) is None


# -- the leader ------------------------------------------------------------------------------------------------------


def rack_with_a_stranger() -> Leader:
    """Two racks of four hosts, one host taken in each: a gang of four fits no rack."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(pod(job("a"), 0, host="b0-r0-h0"), pod(job("b"), 0, host="b0-r1-h0"))
    leader.has(replace(job(count=4), annotations=SHARED, suspended=True, started=False))
    leader.settle()
    return leader


def test_a_gang_is_placed_across_racks_once_it_has_waited_long_enough() -> None:
    """Not a second before; then the Placement says which level was required."""
    leader = rack_with_a_stranger()
    leader.later(1.0)
    leader.later(590.0)
    assert leader.hands.of("place") == []
    leader.later(10.0)
    assert (leader.hands.of("relax"), leader.hands.of("place")) == (["train"], ["train"])
    placed = leader.placed()
    assert placed is not None
    assert [(one.require, one.prefer, one.relaxed) for one in placed.pod_sets] == [(None, "rack", "rack")]
    assert not leader.workload().suspended


def test_a_fail_over_in_between_starts_no_time_anew() -> None:
    """Another leader reads in the Placement since when the gang waits."""
    leader = rack_with_a_stranger()
    leader.later(400.0)
    leader.leading = False
    leader.later(1.0)
    leader.leading = True
    leader.later(1.0)
    leader.later(200.0)
    assert leader.hands.of("place") == ["train"]


def test_a_gang_that_still_finds_no_room_is_relaxed_once() -> None:
    """One write, however often it is planned afterwards; with room it goes."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    leader.has(replace(job(count=4), annotations=SHARED, suspended=True, started=False))
    leader.settle()
    for _ in range(4):
        leader.later(601.0)
    assert (leader.hands.of("relax"), leader.hands.of("place")) == (["train"], [])
    leader.has(gpu_nodes(1, 2, 1)[1])
    leader.settle()
    assert leader.hands.of("place") == ["train"]


def test_a_placed_gang_that_was_relaxed_is_not_stale() -> None:
    """Its slots answer the relaxed request: nothing gives them back."""
    leader = rack_with_a_stranger()
    leader.later(1.0)
    leader.later(600.0)
    leader.later(30.0)
    assert "give back" not in [what for what, _ in leader.hands.calls]
    leader.has(changed(leader.workload(), labels={"x": "y"}, resource_version=leader.hands.version()))
    leader.settle()
    assert "give back" not in [what for what, _ in leader.hands.calls]
