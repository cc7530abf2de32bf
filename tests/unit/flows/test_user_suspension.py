"""A gang that its user suspends, and resumes before the leader has taken its slots."""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.pod import Pod
from engine.cache.grace import GRACE_SECONDS
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import Leader, unavailable

HOSTS = {"b0-r0-h0", "b0-r0-h1"}


def hosts_of(leader: Leader, name: str) -> set[str]:
    placed = leader.placed(name)
    plans = placed.assignment.pod_sets if placed is not None and placed.assignment is not None else ()
    return {slot.host for plan in plans for slot in plan.slots}


def suspend(leader: Leader, *, held: bool = False) -> None:
    """Suspend `train` as its user; `held`: as the webhook leaves it when its user resumes it."""
    one = leader.workload()
    says = {**one.annotations, names.HELD_BY: names.HELD_BY_SUSPEND} if held else one.annotations
    leader.has(replace(one, suspended=True, annotations=says, resource_version=leader.hands.version()))


def running_beside_a_waiting_one() -> tuple[Leader, list[Pod]]:
    """`train` runs on both hosts; `next` needs both."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(job(count=2, held=True))
    leader.settle()
    assert hosts_of(leader, "train") == HOSTS
    pods = [pod(leader.workload(), rank, host=host) for rank, host in enumerate(sorted(HOSTS))]
    leader.has(*pods)
    leader.has(job("next", count=2, held=True))
    leader.settle()
    assert hosts_of(leader, "next") == set()
    return leader, pods


def end(leader: Leader, pods: list[Pod]) -> None:
    for one in pods:
        leader.stores.pods.apply("DELETED", one)


def test_slots_go_to_others_only_when_the_placement_has_lost_them() -> None:
    """Else they would stand in two Placements, and its user could resume it with them."""
    leader, pods = running_beside_a_waiting_one()
    leader.hands.broken["give back"] = unavailable
    suspend(leader)
    end(leader, pods)
    leader.later(2 * GRACE_SECONDS)
    assert hosts_of(leader, "train") == HOSTS
    assert hosts_of(leader, "next") == set()
    del leader.hands.broken["give back"]
    leader.later(60)
    assert hosts_of(leader, "train") == set()
    assert hosts_of(leader, "next") == HOSTS


def test_a_gang_that_is_resumed_before_it_has_lost_its_slots_starts_with_them() -> None:
    """No other gang was given its hosts meanwhile."""
    leader, pods = running_beside_a_waiting_one()
    leader.hands.broken["give back"] = unavailable
    suspend(leader)
    end(leader, pods)
    leader.later(2 * GRACE_SECONDS)
    suspend(leader, held=True)
    leader.settle()
    assert not leader.workload().suspended
    assert hosts_of(leader, "train") == HOSTS
    assert hosts_of(leader, "next") == set()


def test_a_gang_that_is_resumed_in_time_gets_its_slots_back_when_there_is_room_again() -> None:
    """Another gang has got the slot of a pod of it that was lost meanwhile."""
    leader, pods = running_beside_a_waiting_one()
    leader.stores.workloads.apply("DELETED", leader.workload("next"))
    suspend(leader)
    leader.settle()
    end(leader, pods[1:])
    leader.has(job("other", count=1, held=True))
    leader.later(2 * GRACE_SECONDS)
    assert len(hosts_of(leader, "other")) == 1
    leader.has(replace(leader.workload(), suspended=False, resource_version=leader.hands.version()))
    leader.settle()
    assert hosts_of(leader, "train") == set()
    leader.stores.workloads.apply("DELETED", leader.workload("other"))
    leader.later(2 * GRACE_SECONDS)
    leader.later(10)
    assert hosts_of(leader, "train") == HOSTS
