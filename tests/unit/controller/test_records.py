"""What the leader writes into its log about gangs: with the write that it is about, and in the words of its Event."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.cluster.client import ApiError, ApiFault
from engine.decoding.placements import placement_body
from engine.gang.repair import ExtensionRequest
from engine.history.record import LOGGER
from engine.lifecycle.actions import Status
from engine.lifecycle.moves import kept_record
from engine.lifecycle.status import requeued_body
from tests.support.cluster_records import gpu_nodes, job, placement, pod
from tests.support.leader import POLICY, Leader
from tests.unit.controller.test_executor import WAITS, Desk, desk, going, job_json, known_gang  # noqa: F401 - fixtures

Records = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Records:
    """The records so far."""
    caplog.set_level(logging.INFO, LOGGER)
    return lambda: [vars(one)["decision"] for one in caplog.records if one.name == LOGGER]


def stored(desk: Desk, known: Any, **fields: Any) -> None:  # noqa: F811
    """Let the server answer every write of a Placement, and every one of its Job."""
    body = placement_body(fields.get("placement") or known.placement)
    body["metadata"] |= {"uid": "uid", "resourceVersion": "99999999", "generation": 2}

    def answer(method: str, path: str) -> bytes:
        if method == "DELETE" or "/pods/" in path:
            return b"{}"
        return job_json(known.workload) if "/jobs/" in path else json.dumps(body).encode()

    desk.server.answer = answer


def test_a_placement_is_recorded_with_where_how_large_and_how_long_it_waited(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    assert known.placement is not None
    stored(desk, known)
    desk.executor.place(replace(known, placement=None), known.placement, waited=12.3456)
    (found,) = records()
    assert found == {
        "event": "Placed",
        "namespace": known.workload.namespace,
        "workload": f"Job/{known.workload.name}",
        "placement": known.placement.name,
        "reason": "",
        "message": "2 pods in b0/b0-r0 (1 host)",
        "pods": 2,
        "hosts": 1,
        "domain": "b0/b0-r0",
        "revision": 1,
        "waitedSeconds": 12.346,
    }


def test_a_placement_that_could_not_be_written_is_not_recorded(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    assert known.placement is not None

    def answer(_method: str, _path: str) -> bytes:
        raise ApiError(409, "Conflict", "the object has been modified")

    desk.server.answer = answer
    with pytest.raises(ApiFault):
        desk.executor.place(known, known.placement, waited=1.0)
    assert records() == []


def test_a_gang_of_512_pods_is_one_short_line(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    large = placement(known.workload, {f"b0-r0-h{place}": 8 for place in range(64)})
    stored(desk, known, placement=large)
    desk.executor.place(replace(known, placement=None), large)
    (found,) = records()
    assert (found["pods"], found["hosts"], found["domain"]) == (512, 64, "b0/b0-r0")
    assert len(json.dumps(found)) < 400


def test_event_and_record_of_a_status_say_the_same(desk: Desk, records: Records) -> None:  # noqa: F811
    """Both or neither: what is no news to the gang's user is none to the admin."""
    known = known_gang(desk)
    stored(desk, known)
    desk.executor.report(known, WAITS, None, event=False)
    assert (desk.events, records()) == ([], [])
    desk.executor.report(known, WAITS, None, event=True)
    (found,) = records()
    assert desk.events == ["NodeLost"]
    assert (found["event"], found["reason"], found["message"]) == ("Waiting", "NodeLost", "a host is gone")
    desk.executor.report(known, Status("Running", "", "2 pods ready"), None, event=True)
    desk.executor.report(known, Status("Placed", "SchedulerRefused", "no room"), None, event=True)
    assert [(one["event"], one["reason"]) for one in records()[1:]] == [
        ("Running", ""),
        ("NotStarted", "SchedulerRefused"),
    ]


def test_a_status_that_repeats_the_placement_has_an_event_alone(desk: Desk, records: Records) -> None:  # noqa: F811
    """The record was written with the slots."""
    known = known_gang(desk)
    stored(desk, known)
    desk.executor.report(known, Status("Placed", "", "2 pods to be bound"), None, event=True)
    assert (desk.events, records()) == (["Placed"], [])


def test_a_repair_says_how_many_pods_left_how_many_hosts(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    wanted = replace(placement(known.workload, {"b0-r0-h0": 1, "b0-r0-h1": 1}), generation=2)
    stored(desk, known, placement=wanted)
    lost = ExtensionRequest((), None, {}, lost={"main": (1,)})
    desk.executor.extend(known, wanted, lost, "b0-r0-h0 was lost: 1 pod moves to b0-r0-h1")
    (found,) = records()
    assert (found["event"], found["pods"], found["hosts"]) == ("Repaired", 1, 1)
    assert found["message"] == "b0-r0-h0 was lost: 1 pod moves to b0-r0-h1"
    desk.executor.extend(known, wanted, ExtensionRequest((), None, {}, more=3), "3 more pods to join")
    assert (records()[1]["event"], records()[1]["pods"], "hosts" in records()[1]) == ("Grown", 3, False)


@pytest.mark.parametrize("event", [True, False])
def test_slots_that_are_given_back_are_recorded_also_when_the_reason_is_no_news(
    desk: Desk,  # noqa: F811
    records: Records,
    event: bool,
) -> None:
    known = known_gang(desk)
    stored(desk, known)
    desk.executor.unplace(known, WAITS, suspend=False, event=event)
    (found,) = records()
    assert (found["event"], found["reason"], found["message"]) == ("Unplaced", "NodeLost", "a host is gone")
    assert desk.events == (["NodeLost"] if event else [])


def test_other_actions_are_recorded_by_their_names(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    stored(desk, known)
    smaller = placement(known.workload, {"b0-r0-h0": 1}).assignment
    assert smaller is not None and known.placement is not None and known.placement.assignment is not None
    [plan] = known.placement.assignment.pod_sets
    late = pod(known.workload, 0, host="b0-r0-h0")
    desk.executor.rewrite(known, smaller)
    desk.executor.rewrite(
        known, replace(smaller, pod_sets=(replace(plan, slots=(replace(plan.slots[0], devices=((),)),)),))
    )
    desk.executor.rewrite(known, replace(smaller, pod_sets=(replace(plan, requests=()),)))  # no news for anybody
    desk.executor.remove(known, (late,), evict=True, reason="NodeLost", message="1 pod on b0-r0-h0")
    desk.executor.unmanage(known, going())
    desk.executor.events.publish_limit(known, 3)
    told = [(one["event"], one["reason"], one.get("pods")) for one in records()]
    assert told == [
        ("Shrunk", "", 1),
        ("DevicesChanged", "", None),
        ("Evicted", "NodeLost", 1),
        ("Unmanaged", "NoTopologyRequested", None),
        ("Waiting", "GangLimitExceeded", None),
    ]


def test_a_gang_for_which_pods_of_others_are_evicted_has_no_record_of_an_eviction(
    desk: Desk,  # noqa: F811
    records: Records,
) -> None:
    """It waits, and has no pods that could be; the pods have the Event."""
    known = known_gang(desk)
    other = pod(job("web"), 0, host="b0-r0-h0")
    desk.executor.evict_others(known, (other,), "evicted for a gang with priority 100 that found no other room")
    (found,) = records()
    assert (found["event"], found["reason"], found["pods"]) == ("Preempts", "Preempting", 1)
    assert found["message"] == "evicts 1 pod that Topogate does not manage"
    assert desk.events == ["Preempted"]


def test_a_move_that_is_answered_later_is_recorded_with_the_place_of_today(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    stored(desk, known)
    moved = replace(kept_record(known, "", wall=0.0), outcome="Moved", message="has other slots")
    desk.executor.record_replan(known, moved)
    (found,) = records()
    assert (found["event"], found["message"], found["pods"]) == ("Moved", "has other slots", 2)
    assert (found["domain"], desk.events) == ("b0/b0-r0", ["Moved"])


def test_each_requeue_is_recorded_and_its_event_once_an_hour(desk: Desk, records: Records) -> None:  # noqa: F811
    known = known_gang(desk)
    stored(desk, known)
    desk.executor.requeue(known, "has waited for 1m", event=True)
    desk.executor.requeue(known, "has waited for 2m", event=False)
    assert desk.events == ["ScheduleTimeout"]
    assert [(one["event"], one["requeues"]) for one in records()] == [("Requeued", 1), ("Requeued", 1)]


def held(name: str = "train", count: int = 4) -> Any:
    return job(name, count=count, held=True)


def test_a_placed_gang_has_waited_since_it_was_queued(records: Records) -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    other = pod(job("other"), 0, host="b0-r0-h0")
    leader.has(other, held(count=2))
    leader.settle()
    leader.later(30)
    leader.stores.pods.apply("DELETED", other)
    leader.settle()
    placed = [one for one in records() if one["event"] == "Placed"]
    assert [(one["workload"], one["waitedSeconds"]) for one in placed] == [("Job/train", 30.0)]


@pytest.mark.parametrize(
    ("hosts", "message"),
    [(4, "its workload was deleted; its slots are free"), (1, "its workload was deleted while it waited")],
)
def test_a_gang_that_is_deleted_before_its_end_is_recorded(records: Records, hosts: int, message: str) -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    leader.has(held())
    leader.settle()
    leader.stores.workloads.apply("DELETED", leader.workload("train"))
    leader.settle()
    last = records()[-1]
    assert (last["event"], last["workload"], last["message"]) == ("Deleted", "Job/train", message)
    assert last["placement"].startswith("job-train-")


def test_a_workload_that_has_ended_is_not_recorded_as_deleted(records: Records) -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(held())
    leader.settle()
    ended = replace(leader.workload("train"), finished=True, resource_version=leader.hands.version())
    leader.has(ended)
    leader.settle()
    leader.stores.workloads.apply("DELETED", ended)
    leader.settle()
    assert "Deleted" not in [one["event"] for one in records()]


def test_a_requeue_by_a_command_is_recorded_and_our_own_is_not_taken_for_one(records: Records) -> None:
    """`topogate requeue` writes the status; the leader sees a requeue that it has not made."""
    leader = Leader(nodes=gpu_nodes(1, 1, 1), policy=POLICY)
    gang = held()
    leader.has(replace(gang, annotations={**gang.annotations, names.SCHEDULE_TIMEOUT: "1m"}))
    leader.settle()
    leader.later(61)
    assert leader.hands.of("requeue") == ["train"]
    assert "Requeued" not in [one["event"] for one in records()]
    known = leader.placed("train")
    status = {**known.status, **requeued_body(known.status, 1_800_000_000.0 + leader.now)}
    leader.hands.put(replace(known, status=status), spec=False)
    leader.settle()
    last = records()[-1]
    assert (last["event"], last["requeues"], last["reason"]) == ("Requeued", 2, "")


def test_gates_that_others_removed_are_one_record_of_the_gang(records: Records) -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(held(count=9))
    leader.settle()
    gang = leader.workload("train")
    leader.has(*(pod(gang, rank) for rank in range(3)))
    leader.settle()
    leader.settle()
    found = [one for one in records() if one["event"] == "GateRemoved"]
    assert [one["pods"] for one in found] == [3]
