"""When victims are searched for, which budgets count then, and what is remembered of a preemption."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.decoding.objects import disruption_budget
from tests.support.preempting import MOVES, PREEMPTS, PreemptingCluster

OTHERS = "preemption: {mode: lower-priority, after: 10s, victims: all}\n"


def two_running(*, policy: str = PREEMPTS, priority: int = 0) -> PreemptingCluster:
    """Two racks with a running gang each: `low-0` and `low-1`."""
    cluster = PreemptingCluster(policy=policy)
    for number in range(2):
        cluster.submit(f"low-{number}", 2, priority=priority)
        cluster.go_on(60)
    assert cluster.runs("low-0", "low-1")
    return cluster


def allow(cluster: PreemptingCluster, disruptions: int) -> None:
    """A disruption budget for all pods allows so many to end."""
    raw = {
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": disruptions},
    }
    cluster.leader.stores.disruption_budgets.replace([disruption_budget(json.dumps(raw).encode())])


@pytest.mark.parametrize(("disruptions", "ended"), [(2, 1), (4, 2)])
def test_two_preemptions_at_once_share_a_disruption_budget(disruptions: int, ended: int) -> None:
    """A suspension asks no budget, and the budget shows only later that pods of the first victim end."""
    cluster = two_running()
    allow(cluster, disruptions)
    for number in range(2):
        cluster.submit(f"high-{number}", 2, priority=100)
    for _ in range(30):
        cluster.leader.later(1.0)  # the victims' pods are still there
    assert len(cluster.ended()) == ended


def test_the_budget_of_a_preemption_that_is_being_written_is_used() -> None:
    """The second search comes while the first intent is on its way to the API server."""
    cluster = two_running()
    allow(cluster, 2)
    for number in range(2):
        cluster.submit(f"high-{number}", 2, priority=100)
    leader = cluster.leader
    leader.now += 11
    for _ in range(40):
        leader.turn()
        leader.now += 0.1
    leader.settle()
    assert sum(cluster.intent(f"high-{number}").active for number in range(2)) == 1


@pytest.mark.parametrize(("disruptions", "ended"), [(2, ["suspend low"]), (3, ["suspend low", "suspend piece-1"])])
def test_a_preemption_and_a_move_share_a_disruption_budget(disruptions: int, ended: list[str]) -> None:
    """A gang restarts elsewhere for another one only if the budget allows that beside the pods that end anyway."""
    cluster = PreemptingCluster(policy=PREEMPTS + MOVES, racks=4)
    cluster.submit("low", 2, priority=-1)
    cluster.submit("block", 2, priority=100)
    for rack in range(2):
        cluster.submit(f"piece-{rack}", 1, require=None, priority=50)
        cluster.submit(f"fill-{rack}", 1, require=None, priority=50)
        cluster.go_on(60)
    for rack in range(2):
        cluster.delete(f"fill-{rack}")
    cluster.go_on()
    hosts = [*cluster.hosts("piece-0"), *cluster.hosts("piece-1")]
    assert len({host.rpartition("-")[0] for host in hosts}) == 2
    allow(cluster, disruptions)
    cluster.submit("high", 2, priority=100)
    cluster.submit("wide", 2, priority=50)
    for _ in range(60):
        cluster.leader.later(1.0)
    assert sorted(cluster.ended()) == ended


def test_pods_that_never_end_are_not_waited_for_for_ever_where_nothing_else_happens() -> None:
    """Those on a dead node terminate without an end, and no event follows: in the end others end."""
    cluster = two_running()
    cluster.lingering = True
    cluster.delete("low-1")
    cluster.submit("high", 2, priority=100)
    cluster.go_on()
    for _ in range(20):
        cluster.leader.later(5.0)
    assert cluster.ended() == []
    for _ in range(20):
        cluster.leader.later(5.0)
    assert cluster.ended() == ["suspend low-0"]


def test_a_crowd_for_which_nobody_ends_does_not_keep_the_leader_busy() -> None:
    """One search in a pass, and passes without an end: dozens of gangs of the same priority as what runs."""
    cluster = two_running(priority=10)
    for number in range(60):
        cluster.submit(f"high-{number}", 2, priority=10)
    cluster.go_on(60)
    leader = cluster.leader
    for _ in range(100):
        leader.later(1.0)
    turns, end = 0, leader.now + 60
    while leader.now < end:
        leader.now += max(0.05, leader.controller._pause())
        leader.settle()
        turns += 1
    assert turns < 60


def test_evictions_are_forgotten_with_their_preemption() -> None:
    """Also while another one goes on: somewhere there always is one."""
    cluster = PreemptingCluster(policy=OTHERS)
    pods = {host: cluster.outsider(f"web-{host}", host, priority=-1) for host in ("b0-r0-h0", "b0-r0-h1", "b0-r1-h0")}
    cluster.leader.hands.deaf = True
    for number in range(2):
        cluster.submit(f"high-{number}", 2, priority=100)
    cluster.wait(20)
    memory = cluster.leader.controller._preemptor
    assert {*memory._evicted} == {one.uid for one in pods.values()}
    cluster.leader.stores.pods.apply("DELETED", pods["b0-r1-h0"])
    cluster.wait(20)
    assert {*memory._evicted} == {pods["b0-r0-h0"].uid, pods["b0-r0-h1"].uid}


def test_room_that_comes_anyway_is_waited_for_again() -> None:
    """Pods that never ended were waited for in vain an hour ago; other pods make room now."""
    cluster = PreemptingCluster(racks=3)
    for name, priority in (("low", 0), ("stuck", 0), ("done", 100)):
        cluster.submit(name, 2, priority=priority)
        cluster.go_on(60)
    allow(cluster, 0)
    cluster.lingering = True
    lost = cluster.hosts("stuck")
    stuck = cluster.pods("stuck")
    cluster.delete("stuck")
    cluster.submit("high", 2, priority=100)
    cluster.wait(200)
    for host in lost:
        node = cluster.leader.stores.nodes.get(host)
        assert node is not None
        cluster.leader.has(replace(node, unschedulable=True, resource_version=cluster.leader.hands.version()))
    for one in stuck:
        cluster.leader.stores.pods.apply("DELETED", one)
    cluster.wait(100)
    assert cluster.ended() == []
    cluster.delete("done")
    allow(cluster, 2)
    cluster.wait(100)
    assert cluster.ended() == []
    cluster.lingering = False
    cluster.wait(10)
    assert cluster.runs("low", "high")
