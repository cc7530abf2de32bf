"""Gangs that wait for their `schedule-timeout`: requeued or given up, as the policy says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.placement import requeued_at, requeues, waiting_since
from engine.api.workload import Workload
from engine.gang.relaxation import times_out_at
from engine.gang.request import PlacementRequest
from engine.lifecycle.status import requeued_body
from engine.policy.model import parse_policy
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import POLICY, Leader

GIVE_UP = POLICY + "queue: {onTimeout: giveUp}\n"
MESSAGE = "has waited for 1m without a placement: "


def impatient(name: str = "train", *, count: int = 4, **more: object) -> Workload:
    """A held Job that waits for a minute at most."""
    gang = job(name, count=count, held=True, **more)
    return replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "1m"})


def full(policy: str = POLICY) -> Leader:
    """A leader of a rack of four hosts, on which a Job of one pod runs."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=policy)
    other = job("other", count=1, held=True)
    leader.has(other)
    leader.settle()
    leader.has(pod(leader.workload("other"), 0, host="b0-r0-h0"))
    leader.settle()
    return leader


def edited(leader: Leader, name: str = "train", **annotations: str | None) -> None:
    gang = leader.workload(name)
    every = {**gang.annotations, **{f"topogate.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}}
    kept = {key: text for key, text in every.items() if text is not None}
    leader.has(replace(gang, annotations=kept, resource_version=leader.hands.version()))
    leader.settle()


def notes(leader: Leader) -> list[str]:
    return [note.removeprefix(MESSAGE) for name, note in leader.hands.notes if note.startswith(MESSAGE)]


def test_a_gang_whose_time_is_over_goes_behind_its_equals() -> None:
    """Told in an Event of its own; then it waits as if just submitted, and its waiting time starts again."""
    leader = full(POLICY + "queue: {order: strict}\n")
    leader.has(impatient())
    leader.settle()
    leader.later(59)
    assert leader.hands.of("requeue") == []
    leader.later(1)
    assert leader.hands.of("requeue") == ["train"]
    assert notes(leader) == ["it goes to the end of its priority in the queue, and again after 2m"]
    found = leader.placed()
    assert found is not None
    assert waiting_since(found.status) == requeued_at(found.status) == 1_800_000_000.0 + leader.now
    assert leader.status()[0] == "Waiting"
    leader.has(job("late", count=3, held=True, created=1_800_000_000.0 + leader.now - 30))
    leader.settle()
    assert leader.hands.of("place") == ["other", "late"]
    leader.later(119)
    assert leader.hands.of("requeue") == ["train"]
    leader.later(1)
    assert leader.hands.of("requeue") == ["train", "train"]


def test_each_requeue_lasts_twice_as_long_up_to_an_hour() -> None:
    """Ten seconds would be a write and an Event every ten seconds, for each gang and for ever."""
    leader = full()
    gang = impatient()
    leader.has(replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "10s"}))
    leader.settle()
    began, at = leader.now, []
    while leader.now < began + 6 * 3600:
        before = len(leader.hands.of("requeue"))
        leader.later(10)
        at += [leader.now - began] * (len(leader.hands.of("requeue")) - before)
    waits = [later - earlier for earlier, later in zip([0.0, *at], at, strict=False)]
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600, 3600]
    told = [note for name, note in leader.hands.notes if name == "train" and "goes to the end" in note]
    assert len(told) == 6  # at most one an hour
    assert told[0].startswith("has waited for 10s without a placement")
    assert told[-1] == (
        "has waited for 1h without a placement: it goes to the end of its priority in the queue, and again after 1h"
    )


@pytest.mark.parametrize(("policy", "relaxes"), [(POLICY, True), (GIVE_UP, False)])
def test_a_gang_is_relaxed_in_the_first_wait_that_is_long_enough(policy: str, relaxes: bool) -> None:
    """Requeued after 10 and 20 seconds it waits for 40, longer than its relax-after of 30; given up it never is."""
    leader = full(policy)
    gang = impatient()
    asked = {names.SCHEDULE_TIMEOUT: "10s", names.RELAX_AFTER: "30s"}
    leader.has(replace(gang, annotations={**gang.annotations, **asked}))
    leader.settle()
    for _ in range(7):
        leader.later(10)
    assert leader.hands.of("relax") == (["train"] if relaxes else [])


def test_a_time_out_above_an_hour_stays_as_it_is() -> None:
    leader = full()
    gang = impatient()
    leader.has(replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "2h"}))
    leader.settle()
    for expected in (1, 2, 3):
        leader.later(7200)
        assert len(leader.hands.of("requeue")) == expected


def test_the_number_of_requeues_survives_a_change_of_the_leader_and_ends_with_the_wait() -> None:
    """It is in the Placement; a suspension by the user, or a placement, begins anew."""
    leader = full()
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.later(119)
    assert len(leader.hands.of("requeue")) == 1
    leader.later(1)
    assert len(leader.hands.of("requeue")) == 2
    found = leader.placed()
    assert found is not None
    assert requeues(found.status) == 2
    leader.has(*gpu_nodes(1, 2, 4))
    leader.settle()
    assert leader.hands.of("place")[-1] == "train"
    leader.later(10)
    found = leader.placed()
    assert found is not None
    assert (found.status["phase"], requeues(found.status)) == ("Placed", 0)


@pytest.mark.parametrize("garbage", ["x", -1, True, None, [], 1e300, 2**70])
def test_garbage_in_the_number_of_requeues_is_none(garbage: object) -> None:
    """Somebody wrote into the status: the time-out never ends before the annotation's time, nor later than an hour."""
    status = {"waitingSince": "2027-01-15T08:00:00Z", "requeues": garbage}
    since = waiting_since(status)
    assert since is not None
    ends = times_out_at(PlacementRequest(schedule_timeout=60.0), status)
    assert ends is not None
    assert since + 60 <= ends <= since + 3600
    assert 1 <= requeued_body(status, 0.0)["requeues"] <= 1_000_000


def test_the_place_in_the_queue_survives_a_change_of_the_leader() -> None:
    """Both times are in the Placement: neither starts again in a new term."""
    leader = full(POLICY + "queue: {order: strict}\n")
    leader.has(impatient())
    leader.settle()
    leader.later(30)
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.later(30)
    assert leader.hands.of("requeue") == ["train"]
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.has(job("late", count=3, held=True, created=1_800_000_000.0 + leader.now - 30))
    leader.settle()
    assert leader.hands.of("place") == ["other", "late"]


def test_a_gang_that_is_given_up_is_not_planned_again() -> None:
    """Not in the next term, and not when there is room; it stays suspended, and holds up no other."""
    leader = full(GIVE_UP.replace("queue: {", "queue: {order: strict, "))
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    assert leader.status() == ("Waiting", "ScheduleTimeout")
    assert notes(leader) == ["it is given up; change its request or resume it to try again"]
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.has(*gpu_nodes(1, 2, 4))
    leader.later(600)
    assert leader.workload().suspended
    assert leader.status() == ("Waiting", "ScheduleTimeout")
    leader.has(job("late", count=2, held=True))
    leader.settle()
    assert leader.hands.of("place") == ["other", "late"]
    assert len(notes(leader)) == 1


@pytest.mark.parametrize(
    "change", [{"require_topology": "block"}, {"schedule_timeout": "10m"}, {"schedule_timeout": None}]
)
def test_a_change_of_its_request_tries_again(change: dict[str, str | None]) -> None:
    """Another level, more time, or no end; what it waits counts anew."""
    leader = full(GIVE_UP)
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    leader.later(30)
    edited(leader, **change)
    assert leader.status() == ("Waiting", "InsufficientFreeGPUs")
    found = leader.placed()
    assert found is not None
    assert waiting_since(found.status) == 1_800_000_000.0 + leader.now
    leader.has(*gpu_nodes(1, 2, 4))
    leader.settle()
    assert leader.hands.of("place") == ["other", "train"]


def test_who_resumes_it_gets_the_same_time_again() -> None:
    """Its pods are held by the gate; when the time is over once more it is suspended."""
    leader = full(GIVE_UP)
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    annotations = {key: text for key, text in leader.workload().annotations.items() if key != names.HELD_BY}
    resumed = replace(leader.workload(), suspended=False, annotations=annotations)
    leader.has(replace(resumed, resource_version=leader.hands.version()))
    leader.has(*(pod(leader.workload(), rank) for rank in range(4)))
    leader.settle()
    assert leader.status() == ("Waiting", "InsufficientFreeGPUs")
    leader.later(59)
    assert leader.status() == ("Waiting", "InsufficientFreeGPUs")
    leader.later(1)
    assert leader.status() == ("Waiting", "ScheduleTimeout")
    assert leader.workload().suspended


def test_a_suspension_by_the_user_is_no_waiting() -> None:
    leader = full(GIVE_UP)
    gang = impatient()
    annotations = {key: text for key, text in gang.annotations.items() if key != names.HELD_BY}
    leader.has(replace(gang, annotations=annotations))
    leader.settle()
    leader.later(3600)
    assert leader.status()[1] != "ScheduleTimeout"


def test_a_policy_that_requeues_plans_again_what_was_given_up() -> None:
    """Its user did nothing, but the admin has changed his mind."""
    leader = full(GIVE_UP)
    leader.has(impatient())
    leader.settle()
    leader.later(60)
    leader.view.set_policy(parse_policy(POLICY))
    leader.settle()
    assert leader.status() == ("Waiting", "InsufficientFreeGPUs")


@pytest.mark.parametrize(("policy", "reason"), [(POLICY, "WaitingForMembers"), (GIVE_UP, "ScheduleTimeout")])
def test_the_time_runs_while_a_pod_group_lacks_pods(policy: str, reason: str) -> None:
    """Whoever else is in it may never come."""
    leader = full(policy)
    gang = impatient(require=None)
    group = {names.POD_GROUP: "g", names.MIN_AVAILABLE: "8"}
    leader.has(replace(gang, annotations={**gang.annotations, **group}))
    leader.settle()
    leader.later(5)
    assert leader.status() == ("Waiting", "WaitingForMembers")
    leader.later(61)
    assert leader.status() == ("Waiting", reason)
    assert len(leader.hands.of("requeue")) == (1 if policy == POLICY else 0)
