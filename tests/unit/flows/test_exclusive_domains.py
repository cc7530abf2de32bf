"""Gangs that keep a domain for themselves, in a cluster whose nodes come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.workload import Workload
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.leader import Leader
from tests.support.preempting import PreemptingCluster


def exclusive(name: str = "alone", *, count: int = 1) -> Workload:
    gang = job(name, count=count, held=True, created=5000.0)
    return replace(gang, annotations={**gang.annotations, names.EXCLUSIVE: "rack"})


def hosts(leader: Leader, name: str) -> set[str]:
    placed = leader.placed(name)
    return set(placed.assignment.hosts) if placed is not None and placed.assignment is not None else set()


def with_a_gang(nodes: int) -> Leader:
    """A gang of one pod runs on the first host of the first of two racks."""
    leader = Leader(nodes=gpu_nodes(1, 2, nodes))
    leader.has(job(count=1, held=True))
    leader.settle()
    leader.has(pod(leader.workload(), 0, host=next(iter(hosts(leader, "train")))))
    leader.settle()
    return leader


def rack(host: str) -> str:
    return host.rpartition("-")[0]


def forget(leader: Leader, host: str) -> None:
    """The node of a host is deleted; its pods are still there."""
    node = leader.stores.nodes.get(host)
    assert node is not None
    leader.stores.nodes.apply("DELETED", node)
    leader.settle()


def test_an_exclusive_gang_keeps_away_from_a_rack_with_a_gang_on_a_host_that_is_not_registered() -> None:
    """Its node may be registered again a moment later, with the pod still on it."""
    leader = with_a_gang(2)
    (used,) = hosts(leader, "train")
    forget(leader, used)
    leader.has(exclusive())
    leader.settle()
    (found,) = hosts(leader, "alone")
    assert rack(found) != rack(used)


def test_with_no_other_rack_it_waits_until_the_pod_on_that_host_is_gone() -> None:
    leader = with_a_gang(2)
    (used,) = hosts(leader, "train")
    for node in gpu_nodes(1, 2, 2):
        if rack(node.name) != rack(used):
            leader.stores.nodes.apply("DELETED", node)
    forget(leader, used)
    leader.has(exclusive())
    leader.settle()
    assert leader.status("alone") == ("Waiting", "ExclusiveDomains")
    gang = leader.workload()
    leader.stores.workloads.apply("DELETED", gang)
    for one in list(leader.stores.pods.values()):
        leader.stores.pods.apply("DELETED", one)
    placement = leader.placed()
    if placement is not None:
        leader.stores.placements.apply("DELETED", placement)
    leader.settle()
    leader.later(60.0)
    assert {rack(host) for host in hosts(leader, "alone")} == {rack(used)}


ALONE = {names.EXCLUSIVE: "rack"}


def of_two_pods(*, racks: int = 1) -> PreemptingCluster:
    """An exclusive gang of two whole hosts runs in the first rack."""
    cluster = PreemptingCluster(racks=racks)
    cluster.submit("alone", 2, annotations=ALONE)
    cluster.go_on()
    assert cluster.runs("alone")
    return cluster


def end_first(cluster: PreemptingCluster) -> None:
    """The first of the pods of the exclusive gang that terminate is gone."""
    first = next(one for one in cluster.pods("alone") if one.deleting)
    cluster.leader.stores.pods.apply("DELETED", first)
    cluster.go_on()


@pytest.mark.parametrize("suspendable", [True, False])
def test_the_rack_of_a_preempted_gang_is_given_to_others_when_its_last_pod_has_ended(suspendable: bool) -> None:
    """Its slots are gone at once; until then it would not be alone."""
    cluster = PreemptingCluster(racks=1)
    cluster.submit("alone", 2, annotations=ALONE, suspendable=suspendable)
    cluster.go_on()
    cluster.lingering = True
    cluster.submit("urgent", 1, priority=10)
    cluster.wait(30)
    assert not hosts(cluster.leader, "alone")
    assert {one.deleting for one in cluster.pods("alone") if one.spec.node_name} == {True}
    end_first(cluster)
    assert not hosts(cluster.leader, "urgent")
    assert cluster.leader.status("urgent")[0] == "Waiting"
    cluster.lingering = False
    cluster.wait(30)
    assert cluster.runs("urgent")


@pytest.mark.parametrize("led_anew", [False, True])
def test_the_rack_of_a_gang_that_its_user_suspends_is_kept_until_its_last_pod_has_ended(led_anew: bool) -> None:
    """The same gang is no obstacle to itself, and a new leader knows it from the Placement and the pods."""
    cluster = of_two_pods()
    cluster.lingering = True
    cluster.leader.hands._change(cluster.workload("alone"), suspended=True, held=False)
    cluster.go_on()
    assert not hosts(cluster.leader, "alone")
    end_first(cluster)
    if led_anew:
        cluster.another_leader()
    cluster.submit("next", 1)
    cluster.wait(30)
    assert cluster.reason("next") == "ExclusiveDomains"
    cluster.lingering = False
    cluster.wait(30)
    assert cluster.runs("next")


def test_terminating_pods_do_not_keep_their_own_gang_out_of_its_rack() -> None:
    """Resumed while one of its pods terminates, it gets the hosts that are free there."""
    cluster = of_two_pods()
    cluster.lingering = True
    cluster.leader.hands._change(cluster.workload("alone"), suspended=True, held=False)
    cluster.go_on()
    end_first(cluster)
    cluster.leader.hands._change(changed(cluster.workload("alone"), slots=1, total=1, remaining=1), held=True)
    cluster.wait(30)
    assert hosts(cluster.leader, "alone")


@pytest.mark.parametrize("there", [False, True])
def test_a_gang_that_is_being_deleted_keeps_only_the_domains_with_its_pods(there: bool) -> None:
    """A finalizer may keep its workload for ever."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(exclusive())
    leader.settle()
    if there:
        leader.has(pod(leader.workload("alone"), 0, host=next(iter(hosts(leader, "alone")))))
        leader.settle()
    leader.has(replace(leader.workload("alone"), deleting=True, resource_version=leader.hands.version()))
    leader.settle()
    leader.has(job(count=1, held=True, created=6000.0))
    leader.later(5)
    assert leader.status()[1] == ("ExclusiveDomains" if there else "")
    if there:
        leader.stores.pods.apply("DELETED", leader.stores.pods.get(("default", "alone-0")))
        leader.settle()
    assert hosts(leader, "train")
