"""Pods that turn out larger than their template, as those of Spark do: what is planned with them is planned anew."""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from tests.support.cluster_records import gpu_nodes, shape
from tests.support.leader import Leader
from tests.support.pod_sets import member, pods_of, several

SMALL, LARGE = shape(cpu=1000), shape(cpu=80_000)


def application() -> Workload:
    """A driver and two executors whose templates ask for next to nothing: all three fit one host."""
    driver = pods_of("driver", 1, shape=SMALL)
    executors = pods_of("executor", 2, shape=SMALL, ranked=False)
    return several(driver, executors, says={names.REQUIRE: "rack"}, held=True)


def hosts_of(leader: Leader, pod_set: str) -> list[str]:
    (placed,) = leader.view.gangs.placements()
    assert placed.assignment is not None
    return [slot.host for slot in placed.assignment.plan_of(pod_set).slots for _ in range(slot.count)]


def running(one: Workload, *, racks: int = 1, hosts: int) -> tuple[Leader, Workload]:
    """The driver runs, as Spark starts it first."""
    leader = Leader(nodes=gpu_nodes(1, racks, hosts))
    leader.has(one)
    leader.settle()
    (host,) = hosts_of(leader, "driver")
    live = leader.stores.workloads.get(one.key)
    assert live is not None
    leader.has(member(live, "driver", 0, host=host))
    leader.settle()
    return leader, live


def large(of: Workload, number: int) -> Pod:
    pod = replace(member(of, "executor", None, gated=True), name=f"executor-{number}")
    return replace(pod, spec=replace(pod.spec, shape=LARGE))


def test_a_plan_by_the_templates_is_made_anew_for_the_pods_as_they_are() -> None:
    """80 of 96 CPUs each: the first shows what all need, and each gets a host of its own."""
    leader, live = running(application(), hosts=3)
    assert len(set(hosts_of(leader, "executor"))) == 1
    for number in range(2):
        leader.has(large(live, number))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["executor-0", "executor-1"]
    assert len(set(hosts_of(leader, "executor"))) == 2


def test_without_room_for_them_as_they_are_no_host_is_overbooked() -> None:
    """One rack of one host: one of them goes, the other one waits and says so."""
    leader, live = running(application(), racks=2, hosts=1)
    for number in range(2):
        leader.has(large(live, number))
    leader.settle()
    leader.later(10)
    assert len(leader.hands.of("release")) <= 1
    (placed,) = leader.view.gangs.placements()
    assert placed.status.get("phase") == "Incomplete"
