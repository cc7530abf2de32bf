"""Pods that somebody has put on hosts by hand, other ones than their slots': the slots follow them if they can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from tests.support.cluster_records import gpu_nodes, job, pod, shape, spec
from tests.support.leader import Leader
from tests.unit.flows.test_large_pods_of_tenants import HOSTS, free, sized


def by_hand(of: Workload, number: int, host: str) -> Pod:
    """A pod of a gang that somebody has put on a host, with or without a rank as its gang has it."""
    one = pod(of, number if of.pod_sets[0].ranked else None, host=host, name=f"{of.name}-{number}")
    return replace(one, spec=replace(one.spec, shape=of.template.shape))


def pair(leader: Leader, *, ranked: bool = True) -> Workload:
    """A gang of two with slots on the first two hosts, before any pod exists."""
    leader.has(job("pair", count=2, held=True, require="rack", ranked=ranked))
    leader.settle()
    assert slots_of_pair(leader) == HOSTS[:2]
    return leader.workload("pair")


def slots_of_pair(leader: Leader) -> list[str]:
    found = leader.placed("pair")
    assert found is not None and found.assignment is not None
    return sorted(slot.host for slot in found.assignment.pod_sets[0].slots for _ in range(slot.count))


@pytest.mark.parametrize("ranked", [True, False])
def test_slots_follow_pods_that_somebody_has_put_on_other_hosts(ranked: bool) -> None:
    """Their old hosts are free for others then, and when the pods go no host has been promised twice."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    gang = pair(leader, ranked=ranked)
    pods = [by_hand(gang, number, HOSTS[number + 4]) for number in range(2)]
    leader.has(*pods)
    leader.settle()
    assert slots_of_pair(leader) == HOSTS[4:6]
    leader.has(replace(job("other", count=6, held=True, require="rack"), namespace="honest"))
    leader.settle()
    assert leader.hands.of("place") == ["pair", "other"]
    for one in pods:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    assert free(leader) == [0] * 8
    leader.later(60)
    assert leader.hands.of("repair") == ["pair"], "it is written once"


@pytest.mark.parametrize("ranked", [True, False])
def test_a_slot_stays_while_its_pod_runs_where_the_host_has_no_room_for_its_successor(ranked: bool) -> None:
    """Another gang runs there. Its pods are replaced where they were, the one that was put beside them on its slot."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    gang = pair(leader, ranked=ranked)
    other = job("other", count=1)
    leader.has(other, pod(other, 0, host=HOSTS[2]))
    leader.has(one := by_hand(gang, 1, HOSTS[2]), pod(gang, 0 if ranked else None, host=HOSTS[0], name="first"))
    leader.settle()
    assert slots_of_pair(leader) == HOSTS[:2]
    found = leader.placed("pair")
    assert found is not None and found.status["message"].endswith(f"on {HOSTS[2]}, where no slot is")
    leader.stores.pods.apply("DELETED", one)
    leader.later(10)
    leader.has(pod(gang, 1 if ranked else None, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("release") == ["again"] and leader.hands.of("repair") == []
    assert leader.view.capacity.free(HOSTS[1])["nvidia.com/gpu"] == 0


@pytest.mark.parametrize("ranked", [True, False])
def test_no_slot_follows_a_pod_out_of_the_required_domain(ranked: bool) -> None:
    """It runs on, and its gang says where; its successor goes back to the rack."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    gang = pair(leader, ranked=ranked)
    leader.has(by_hand(gang, 0, "b0-r0-h0"), one := by_hand(gang, 1, "b0-r1-h0"))
    leader.settle()
    assert slots_of_pair(leader) == HOSTS[:2]
    found = leader.placed("pair")
    assert found is not None and found.status["message"].endswith("on b0-r1-h0, where no slot is")
    leader.stores.pods.apply("DELETED", one)
    leader.has(pod(gang, 1 if ranked else None, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("release") == ["again"]


def test_no_slot_follows_a_pod_with_fewer_processors_to_a_host_where_its_successor_lacks_them() -> None:
    """What runs there of others stays, and the successor has its slot where it was."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    template = spec(shape=shape(cpu=60_000, gpu=2), gates=(names.GATE,), labels={names.MANAGED: "true"})
    leader.has(job("pair", count=2, held=True, require="rack", template=template))
    leader.settle()
    gang, other = leader.workload("pair"), job("other", count=1)
    before = slots_of_pair(leader)
    leader.has(other, sized(pod(other, 0, host=HOSTS[2]), shape(cpu=50_000)))
    leader.has(*(sized(by_hand(gang, rank, HOSTS[2]), shape(cpu=10, gpu=2)) for rank in range(2)))
    leader.settle()
    assert slots_of_pair(leader) == before


@pytest.mark.parametrize("ranked", [True, False])
def test_gangs_whose_pods_have_exchanged_hosts_get_their_slots_where_the_pods_are(ranked: bool) -> None:
    """The gates of both were taken off in an emergency. A pod that is made again goes to the host where it was."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    for name in ("pair", "other"):
        leader.has(job(name, count=2, held=True, require="rack", ranked=ranked))
    leader.settle()
    gang, other = leader.workload("pair"), leader.workload("other")
    leader.has(by_hand(gang, 0, HOSTS[0]), by_hand(gang, 1, HOSTS[3]), by_hand(other, 0, HOSTS[2]))
    leader.has(last := by_hand(other, 1, HOSTS[1]))
    leader.settle()
    leader.later(60)
    assert slots_of_pair(leader) == [HOSTS[0], HOSTS[3]]
    assert free(leader)[:4] == [0] * 4
    leader.stores.pods.apply("DELETED", last)
    leader.settle()
    leader.has(pod(other, 1 if ranked else None, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("release") == ["again"]


@pytest.mark.parametrize("ranked", [True, False])
def test_a_held_pod_gets_its_slot_though_another_of_its_gang_runs_out_of_the_rack(ranked: bool) -> None:
    """And a third one has a slot elsewhere than on its host, which has room for both."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    template = spec(shape=shape(cpu=1_000, gpu=4), gates=(names.GATE,), labels={names.MANAGED: "true"})
    leader.has(job("pair", count=3, held=True, require="rack", ranked=ranked, template=template))
    leader.settle()
    assert slots_of_pair(leader) == [HOSTS[0], HOSTS[0], HOSTS[1]]
    gang = leader.workload("pair")
    leader.has(by_hand(gang, 0, "b0-r1-h0"), by_hand(gang, 2, HOSTS[0]))
    leader.has(pod(gang, 1 if ranked else None, gated=True, name="late"))
    leader.settle()
    leader.later(60)
    assert leader.hands.of("release") == ["late"]
