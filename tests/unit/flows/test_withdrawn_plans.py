"""Pods that a replica releases by a plan in the moment in which the leader withdraws it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.grace import GRACE_SECONDS
from engine.lifecycle.withdrawn import SEEN_WITHIN
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import Leader


def held_by_the_gate(cost: str = "free", *, count: int = 2) -> Workload:
    """A workload that nobody can suspend; what it costs to replace a pod of it."""
    gang = replace(job(count=count), suspendable=False)
    return replace(gang, pod_sets=(replace(gang.pod_sets[0], replace=cost),))


def by_plan(gang: Workload, rank: int, revision: int, **more: Any) -> Pod:
    """A pod as a webhook releases it by this revision of the plan."""
    one = pod(gang, rank, **more)
    return replace(one, spec=replace(one.spec, annotations={names.REVISION: str(revision)}))


def ranks(leader: Leader) -> dict[int, str]:
    placed = leader.placed()
    assert placed is not None
    slots = [slot for plan in placed.assignment.pod_sets for slot in plan.slots] if placed.assignment else []
    return {rank: slot.host for slot in slots for first, last in slot.ranks or () for rank in range(first, last + 1)}


def withdrawn(gang: Workload, *, hosts: int = 3) -> tuple[Leader, dict[int, str], int]:
    """The gang got slots; a pod is held, as its host was cordoned, and there is no room for a plan without it."""
    leader = Leader(nodes=gpu_nodes(1, 1, hosts))
    leader.has(gang)
    leader.settle()
    placed, before = leader.placed(), ranks(leader)
    assert placed is not None and placed.assignment is not None and len(set(before.values())) == 2
    for number in range(hosts):
        if (name := f"b0-r0-h{number}") != before[0]:
            node = leader.stores.nodes.get(name)
            assert node is not None
            leader.has(replace(node, unschedulable=True, resource_version=leader.hands.version()))
    leader.has(pod(gang, 1, gated=True))
    leader.settle()
    assert ranks(leader) == {}
    return leader, before, placed.assignment.revision


@pytest.mark.parametrize("where", ["pin", "host"])
@pytest.mark.parametrize("cost", ["free", "group"])
def test_a_pod_that_was_released_as_its_plan_was_withdrawn_is_replaced(cost: str, where: str) -> None:
    """It would run alone, and keep the others near itself; held again, it starts with them."""
    gang = held_by_the_gate(cost)
    leader, before, revision = withdrawn(gang)
    leader.has(by_plan(gang, 0, revision, **{where: before[0]}))
    leader.settle()
    assert leader.hands.of("delete") == ["train-0"]
    leader.has(pod(gang, 0, gated=True))
    leader.settle()
    assert leader.hands.of("release") == []
    assert leader.status()[0] == "Waiting"


def test_where_a_replacement_costs_a_retry_such_a_pod_stays() -> None:
    gang = held_by_the_gate("retry")
    leader, before, revision = withdrawn(gang)
    leader.has(by_plan(gang, 0, revision, pin=before[0]))
    leader.settle()
    assert leader.hands.of("delete") == []


def test_a_pod_of_another_plan_stays() -> None:
    """The Placement was lost while the pod ran, and its revisions began again."""
    gang = held_by_the_gate()
    leader, before, revision = withdrawn(gang)
    leader.has(by_plan(gang, 0, revision + 7, host=before[0]))
    leader.settle()
    assert leader.hands.of("delete") == []


def test_a_pod_that_appears_long_after_the_plan_stays() -> None:
    gang = held_by_the_gate()
    leader, before, revision = withdrawn(gang)
    leader.later(SEEN_WITHIN + 1.0)
    leader.has(by_plan(gang, 0, revision, host=before[0]))
    leader.settle()
    assert leader.hands.of("delete") == []


@pytest.mark.parametrize(("lost", "late", "moved"), [(0, 1, True), (1, 0, False)], ids=["moved", "where it was"])
def test_of_a_newer_plan_only_a_pod_without_its_slot_is_replaced(lost: int, late: int, moved: bool) -> None:
    """Planned anew before the late pod was seen: where it runs on its slot all the same, it stays."""
    gang = held_by_the_gate()
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    leader.has(gang)
    leader.settle()
    before, placed = ranks(leader), leader.placed()
    assert placed is not None and placed.assignment is not None
    node = leader.stores.nodes.get(before[lost])
    assert node is not None
    leader.has(replace(node, unschedulable=True, resource_version=leader.hands.version()))
    leader.has(pod(gang, lost, gated=True))
    leader.settle()
    leader.later(GRACE_SECONDS + 1.0)
    after = ranks(leader)
    assert len(after) == 2
    assert (after[late] != before[late]) is moved
    leader.has(by_plan(gang, late, placed.assignment.revision, host=before[late]))
    leader.settle()
    assert leader.hands.of("delete") == ([f"train-{late}"] if moved else [])


def test_a_gang_whose_user_takes_back_his_suspension_before_its_pods_end_gets_its_slots_again() -> None:
    """Its Job never ended a pod, as it saw only the last of both changes; the status must not tell of a suspension."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    leader.has(job(count=2, held=True))
    leader.settle()
    gang, before = leader.workload(), ranks(leader)
    leader.has(*(pod(gang, rank, host=host) for rank, host in before.items()))
    leader.later(10.0)
    assert leader.status() == ("Running", "")
    leader.hands._change(leader.workload(), suspended=True, held=False)
    leader.settle()
    assert leader.status() == ("Waiting", "Suspended")
    assert ranks(leader) == {}
    leader.hands._change(leader.workload(), suspended=False, held=False)
    leader.later(10.0)
    assert ranks(leader) == before
    assert leader.status() == ("Running", "")
    assert leader.hands.of("suspend") == []
