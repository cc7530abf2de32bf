"""Gangs that keep a domain for themselves, in a cluster whose nodes come and go."""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.workload import Workload
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import Leader


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
