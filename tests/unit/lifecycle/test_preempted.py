"""How the victim of a preemption ends, step by step, and what its users read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.duration import timestamp
from engine.api.placement import IntendedPod, IntendedVictim, Placement, PreemptionIntent
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.capacity.capacity import Capacity
from engine.gang.gang import Gang
from engine.lifecycle.actions import Decision, Enqueue, EvictPods, NoAction, Unplace
from engine.lifecycle.gang_state import REMOVE_AGAIN, Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.preemption import MOVED_REST, PreemptedBy, preempted_text, preempting_status, recently_moved
from engine.lifecycle.reconcile import reconcile
from engine.policy.model import default_policy
from tests.support.cluster_records import changed, job, placement, pod
from tests.unit.lifecycle.test_reconcile import understood

BY = PreemptedBy(1, "ended for Job/urgent")


def look(
    workload: Workload,
    placed: Placement,
    pods: tuple[Pod, ...] = (),
    *,
    by: PreemptedBy | None = BY,
    timers: Timers | None = None,
    now: float = 0.0,
) -> Decision:
    gang = Gang(workload, understood(workload), placed, pods, {"main": workload.template.shape})
    return reconcile(
        gang,
        timers=timers or Timers(),
        policy=default_policy(),
        now=now,
        hosts=HostHealth(gang, Capacity(), {}, now=0.0),
        preempted=by,
    )


def unsuspendable(count: int) -> Workload:
    return replace(job(count=count, suspended=False), suspendable=False)


def evicting(decision: Decision) -> list[str]:
    assert isinstance(decision.action, EvictPods)
    assert decision.action.evict
    return [one.name for one in decision.action.pods]


def test_a_gang_that_can_be_suspended_is() -> None:
    """Its controller ends the pods, and counts no failure."""
    workload = job(count=2, suspended=False)
    found = look(workload, placement(workload, {"h0": 2}))
    assert found.action == Unplace(suspend=True, reason="Preempted", message=BY.message)


def test_a_gang_that_moves_is_suspended_and_noted() -> None:
    """So that it is not moved again at once."""
    workload = job(count=2, suspended=False)
    found = look(workload, placement(workload, {"h0": 2}), by=replace(BY, moves=True))
    assert found.action == Unplace(suspend=True, reason="Preempted", message=BY.message, moves=True)


@pytest.mark.parametrize(
    ("status", "recent"),
    [
        ({}, False),
        ({"movedAt": None}, False),
        ({"movedAt": "soon"}, False),
        ({"movedAt": 5}, False),
        ({"movedAt": timestamp(1_800_000_000.0)}, True),
        ({"movedAt": timestamp(1_800_000_000.0 - MOVED_REST)}, False),
        ({"movedAt": timestamp(1_800_000_000.0 + 10 * MOVED_REST)}, False),
    ],
    ids=str,
)
def test_a_gang_was_moved_recently_for_an_hour(status: dict[str, object], recent: bool) -> None:
    """What is not readable, or a time far in the future, keeps nobody from being moved."""
    assert recently_moved(status, 1_800_000_000.0) is recent


def test_a_suspended_one_only_loses_its_slots() -> None:
    """The last leader ended between the two writes, or it was not resumed yet."""
    workload = job(count=2, held=True)
    found = look(workload, placement(workload, {"h0": 2}))
    assert found.action == Unplace(suspend=False, reason="Preempted", message=BY.message)


def test_other_slots_than_the_named_ones_are_kept() -> None:
    """It was preempted, and started again elsewhere: that is another assignment."""
    workload = job(count=2, suspended=False)
    found = look(workload, placement(workload, {"h0": 2}), by=PreemptedBy(7, "ended for Job/urgent"))
    assert not isinstance(found.action, Unplace)


def test_the_slots_go_before_the_pods_where_it_cannot_be_suspended() -> None:
    """Pods that replace evicted ones must find no slot."""
    workload = unsuspendable(2)
    placed = placement(workload, {"h0": 2})
    pods = tuple(pod(workload, rank, host="h0") for rank in range(2))
    assert look(workload, placed, pods).action == Unplace(suspend=False, reason="Preempted", message=BY.message)
    unplaced = replace(placed, assignment=None)
    assert evicting(look(workload, unplaced, pods)) == [one.name for one in pods]


def test_an_eviction_is_repeated_after_a_while() -> None:
    """A disruption budget may have refused it; until then nothing of the gang is planned."""
    workload, timers = unsuspendable(2), Timers()
    placed = replace(placement(workload, {"h0": 2}), assignment=None)
    pods = tuple(pod(workload, rank, host="h0") for rank in range(2))
    assert len(evicting(look(workload, placed, pods, timers=timers))) == 2
    rest = look(workload, placed, pods[1:], timers=timers, now=1.0)
    assert (rest.action, rest.wake) == (NoAction(), REMOVE_AGAIN)
    assert evicting(look(workload, placed, pods[1:], timers=timers, now=REMOVE_AGAIN)) == [pods[1].name]


def test_it_is_queued_when_its_pods_are_on_their_way_out() -> None:
    """Those that end are not evicted again, and their replacements are planned as a new gang."""
    workload = unsuspendable(2)
    placed = replace(placement(workload, {"h0": 2}), assignment=None)
    ending = tuple(replace(pod(workload, rank, host="h0"), deleting=True) for rank in range(2))
    fresh = tuple(replace(pod(workload, rank, gated=True), uid=f"new-{rank}", name=f"new-{rank}") for rank in range(2))
    assert isinstance(look(workload, placed, (*ending, *fresh)).action, Enqueue)


def test_what_still_runs_when_nothing_needs_to_end_any_more_gets_its_slots_back() -> None:
    """The preemptor went away while a disruption budget protected the victim."""
    workload = unsuspendable(2)
    status = {"phase": "Waiting", "reason": "Preempted"}
    placed = replace(placement(workload, {"h0": 2}), assignment=None, status=status)
    pods = tuple(pod(workload, rank, host="h0") for rank in range(2))
    assert isinstance(look(workload, placed, pods, by=None).action, Enqueue)


@pytest.mark.parametrize("fields", [{"finished": True}, {"deleting": True}, {"suspended": True}], ids=str)
def test_what_is_over_anyway_is_not_preempted(fields: dict[str, bool]) -> None:
    """It has ended, is being deleted, or its user has suspended it."""
    workload = changed(job(count=2, suspended=False), **fields)
    action = look(workload, placement(workload, {"h0": 2})).action
    assert not isinstance(action, Unplace) or action.reason != "Preempted"


def test_the_victim_reads_who_preempts_it_only_within_its_namespace() -> None:
    """Another tenant's workload is not named."""
    workload = job(count=2)
    gang = Gang(workload, understood(workload), None, (), {})
    text = preempted_text(gang, namespace=workload.namespace, workload="Job/urgent", priority=1000)
    assert text == "ended for Job/urgent, which has priority 1,000 and found no other room; it is queued again"
    text = preempted_text(gang, namespace="elsewhere", workload="Job/secret", priority=1000)
    assert "secret" not in text
    assert text.startswith("ended for a gang of another namespace, which has priority 1,000")


def test_the_preemptor_reads_what_ends_for_it_and_where() -> None:
    """In numbers, without a name."""
    victims = (IntendedVictim("a", 1, 8), IntendedVictim("b", 1, 4))
    status = preempting_status(PreemptionIntent(1.0, victims), frozenset({"h1", "h0"}), "r1 (2 hosts)")
    assert (status.phase, status.reason, status.hosts) == ("Waiting", "Preempting", ("h0", "h1"))
    assert status.message == "2 gangs of lower priority end for it (12 pods): r1 (2 hosts) kept free until it fits"
    status = preempting_status(PreemptionIntent(1.0, (), (IntendedPod("p", "h0"),)), frozenset({"h0"}), "h0")
    assert status.message == "1 other pod of lower priority ends for it: h0 kept free until it fits"
