"""Each invariant fails on a snapshot that breaks it, and on none that does not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from engine.api.names import REVISION
from tests.support.gangs import Json
from tests.support.invariants import Invariants
from tests.support.raw_pods import GATE
from tests.support.scene_objects import job_of, placement_of, pod_of, scene_of, waiting
from tests.support.sights import Sight


def moment(*sights: Sight, others: tuple[Json, ...] = ()) -> list[str]:
    return Invariants().moment(scene_of(*sights, others=others))


def rest(*sights: Sight, submitted: Collection[str] = ()) -> list[str]:
    return Invariants().rest(scene_of(*sights), submitted)


def runs(*hosts: str, says: str = "Running", slots: tuple[str, ...] = (), **status: str) -> Sight:
    """A gang "a" of two pods, bound on these hosts; its Placement has these slots, or those where it is."""
    placement = placement_of(*(slots or hosts), count=2, phase=says, **status)
    return Sight(job_of("a", pods=2), placement, tuple(pod_of("a", n, bound=host) for n, host in enumerate(hosts)))


def test_a_gang_that_runs_in_its_slots_breaks_nothing() -> None:
    """All pods bound, Placement and phase agree; beside one that waits, and one that its user suspended."""
    waits = Sight(job_of("b", pods=2, suspend=True), waiting(2), ())
    own = job_of("c", pods=1, suspend=True)
    own["metadata"]["annotations"] = {}
    assert rest(runs("host-0", "host-1"), waits, Sight(own, None, ()), submitted=["a", "b", "c"]) == []


def test_a_pod_that_is_going_shares_its_slot_with_its_replacement() -> None:
    """Its rank counts once on the host of both."""
    going = pod_of("a", 0, bound="host-0", deletionTimestamp="2026-11-21T00:00:00Z")
    assert moment(Sight(job_of("a", pods=1), placement_of("host-0"), (going,))) == []
    coming = pod_of("a", 0, pinned="host-0")
    assert moment(Sight(job_of("a", pods=1), placement_of("host-0"), (going, coming))) == []
    bound = {**coming, "spec": {**coming["spec"], "nodeName": "host-0"}}
    assert len(moment(Sight(job_of("a", pods=1), placement_of("host-0"), (going, bound)))) == 1


def test_a_pod_that_goes_before_it_was_bound_needs_no_room() -> None:
    """A finalizer keeps it, but nobody can bind it any more."""
    going = pod_of("a", 0, pinned="host-0", deletionTimestamp="2026-11-21T00:00:00Z")
    assert moment(Sight(job_of("b", pods=1), placement_of("host-0"), (pod_of("b", 0, bound="host-0"), going))) == []


@pytest.mark.parametrize(("revision", "breaches"), [("1", 0), ("2", 1), (None, 1)])
def test_a_pod_of_a_plan_that_was_just_withdrawn_is_no_start(revision: str | None, breaches: int) -> None:
    """The replica that released it had not seen the withdrawal; of kinds that nobody can suspend."""
    late = pod_of("a", 0, pinned="host-0")
    late["metadata"]["annotations"] = {REVISION: revision} if revision else {}
    placement = {**waiting(2), "metadata": {"generation": 2}}
    body = job_of("a", pods=2)
    assert len(moment(Sight(body, placement, (late,)))) == 1
    del body["spec"]["suspend"]
    assert len(moment(Sight(body, placement, (late,)))) == breaches


def test_two_reservations_of_one_host_are_a_breach() -> None:
    """Two gangs are to be resumed to the same host."""
    found = moment(*(Sight(job_of(name, pods=1, suspend=True), placement_of("host-0"), ()) for name in ("a", "b")))
    assert found == ["host-0: 0 GPUs used, 16 reserved, by ['a', 'b']"]


def test_a_bound_pod_and_a_reservation_of_its_host_are_a_breach() -> None:
    """The pod of a deleted gang is still there, and somebody else is promised its room."""
    waiting = Sight(job_of("b", pods=1, suspend=True), placement_of("host-0"), ())
    leaving = Sight({**job_of("a", pods=1), "metadata": {"name": "a", "uid": "a", "deletionTimestamp": "x"}}, None, ())
    leaving = Sight(leaving.workload, None, (pod_of("a", 0, bound="host-0"),))
    assert moment(waiting, leaving) == ["host-0: 8 GPUs used, 8 reserved, by ['b', 'a']"]


@pytest.mark.parametrize("slots", [None, placement_of("host-0", count=2)], ids=["none", "one of two"])
def test_a_gang_that_starts_without_all_its_slots_is_a_breach(slots: Json | None) -> None:
    """A pod is let go while the gang as a whole has no room."""
    found = moment(Sight(job_of("a", pods=2), slots, (pod_of("a", 0, pinned="host-0"), pod_of("a", 1, held=True))))
    assert len(found) == 1
    assert found[0].startswith("a: starts with")


def test_a_pod_that_is_let_go_without_a_pin_is_a_breach() -> None:
    """It may land anywhere."""
    assert moment(Sight(job_of("a", pods=1), placement_of("host-0"), (pod_of("a", 0),))) == [
        "a: released without a pin: ['a-0']"
    ]


def test_a_rank_in_two_slots_is_a_breach() -> None:
    """Two hosts are promised to one pod."""
    twice = placement_of("host-0", "host-1")
    for slot in twice["spec"]["assignment"]["podSets"][0]["slots"]:
        slot["ranks"] = "0"
    (found,) = moment(Sight(job_of("a", pods=2, suspend=True), twice, ()))
    assert found.startswith("a: two slots for ranks [0]")


def test_two_live_pods_of_one_rank_are_a_breach() -> None:
    """Unless one of them is going, has ended, or is held until the other is gone."""
    first = pod_of("a", 0, bound="host-0", gpus=4)
    for second, wrong in (
        (pod_of("a", 0, bound="host-0", gpus=4), True),
        (pod_of("a", 0, bound="host-0", gpus=4, deletionTimestamp="x"), False),
        (pod_of("a", 0, held=True, gpus=4), False),
        ({**pod_of("a", 0, bound="host-0", gpus=4), "status": {"phase": "Failed"}}, False),
    ):
        found = moment(Sight(job_of("a", pods=1, gpus=4), placement_of("host-0"), (first, second)))
        assert [line[:26] for line in found] == ["a: two pods for ranks [0]:"] * wrong


def test_a_mark_on_the_pod_of_a_daemon_set_is_a_breach() -> None:
    """Nobody made it by hand."""
    pod_of_daemon_set = {"metadata": {"name": "agent-x", "labels": {"app": "agent"}}, "spec": {}, "status": {}}
    assert moment(others=(pod_of_daemon_set,)) == []
    marked = {**pod_of_daemon_set, "spec": {"schedulingGates": [{"name": GATE}]}}
    assert moment(others=(marked,)) == ["agent-x is not ours and was changed"]


def test_a_pod_outside_its_placement_is_a_breach() -> None:
    """On a host without a slot, or as the second pod of one slot."""
    (elsewhere,) = rest(runs("host-0", "host-3", slots=("host-0", "host-1")))
    assert elsewhere.startswith("a: bound outside its Placement, on {'host-3': 1}")
    small = tuple(pod_of("a", n, bound="host-0", gpus=4) for n in range(2))
    placement = placement_of("host-0", "host-1", phase="Running")
    (crowded,) = rest(Sight(job_of("a", pods=2, gpus=4), placement, small))
    assert crowded.startswith("a: bound outside its Placement, on {'host-0': 1}")


def test_a_gang_that_stays_bound_in_part_is_a_breach() -> None:
    """Half of it has hosts at rest; a gang that lost a pod and says so breaks nothing."""
    half = Sight(
        job_of("a", pods=2),
        placement_of("host-0", "host-1", phase="Placed"),
        (pod_of("a", 0, bound="host-0"), pod_of("a", 1, held=True)),
    )
    (found,) = rest(half)
    assert found.startswith("a: 1 pods are bound, 2 start together")
    told: dict[str, Any] = {"phase": "Incomplete", "reason": "NoCapacity", "message": "lost a host"}
    assert rest(Sight(half.workload, placement_of("host-0", "host-1", **told), half.pods)) == []


@pytest.mark.parametrize(
    ("sight", "says"),
    [
        (runs("host-0", "host-1", says="Waiting", reason="Fragmented", message="waits"), "Waiting"),
        (runs("host-0", "host-1", says="Finished"), "Finished"),
        (runs("host-0", "host-1", says="Incomplete"), "Incomplete"),
        (Sight(job_of("a", pods=2, suspend=True), waiting(2, reason=""), ()), "Waiting"),
        (Sight(job_of("a", pods=2), placement_of("host-0", "host-1", phase="Running"), ()), "Running"),
    ],
    ids=[
        "waits and is bound",
        "has ended and is bound",
        "is incomplete for no reason",
        "waits for no reason",
        "no pod",
    ],
)
def test_a_phase_that_the_pods_contradict_is_a_breach(sight: Sight, says: str) -> None:
    """What a user reads in `kubectl get tgp` is so."""
    (found,) = rest(sight)
    assert found.startswith(f"a: says {says}")


def test_a_gang_that_is_gone_is_a_breach() -> None:
    """It was submitted, and nobody deleted it."""
    assert rest(submitted=["a"]) == ["a: it was submitted, and is gone"]


@pytest.mark.parametrize("suspend", [True, False], ids=["suspended by us", "running"])
def test_a_gang_that_nobody_takes_care_of_is_a_breach(suspend: bool) -> None:
    """Without a Placement it would wait for ever."""
    (found,) = rest(Sight(job_of("a", pods=1, suspend=suspend), None, ()))
    assert found.startswith("a: it has no Placement")
