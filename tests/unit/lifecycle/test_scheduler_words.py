"""A refusal that is about the pod is told from one that is about hosts, and a gang does not hold room for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.lifecycle.gang_state import PAUSE_FIRST, PAUSE_MOST
from engine.lifecycle.unbound import about_the_pod
from tests.support.cluster_records import REFUSAL, gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader

NO_CLAIM = (
    '0/8 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/8 nodes are available: '
    "8 Preemption is not helpful for scheduling."
)
BIND = 30.0


@pytest.mark.parametrize(
    ("words", "about_pod"),
    [
        (NO_CLAIM, True),
        ("0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", True),
        ('0/4 nodes are available: resourceclaim "gpus" not found.', True),
        (REFUSAL, False),
        ("0/4 nodes are available: 1 Insufficient cpu, 3 node(s) had volume node affinity conflict.", False),
        ("0/4 nodes are available: node(s) didn't satisfy plugin NodeAffinity.", False),
        ('running PreBind plugin "VolumeBinding": binding volumes: timed out waiting for the condition', False),
        ("no nodes available to schedule pods", False),
        ("0/4 nodes are available: ", False),
        ("", False),
    ],
)
def test_words_without_a_number_of_hosts_are_about_the_pod(words: str, about_pod: bool) -> None:
    """The scheduler counts the hosts that a reason is about; what is said of the pod as such has no number."""
    assert about_the_pod(words) is about_pod


def refused(leader: Leader, words: str) -> list[Pod]:
    """The pods of the gang as they were placed, not bound in time, with the scheduler's words on one of them."""
    gang = leader.workload()
    pods = [
        pod(gang, rank, pin=host, unschedulable=words if rank == 0 else "")
        for rank, host in ranks_of(leader.placed()).items()
    ]
    leader.has(*pods)
    leader.settle()
    leader.later(BIND)
    for one in pods:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    return pods


def test_a_gang_whose_pod_is_at_fault_gives_its_room_back_and_waits_longer_every_time() -> None:
    """Every other host is as good; in the pause others may go, and room is kept for nobody in vain."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + "queue: {patience: 10s}\n")
    leader.has(job(held=True))
    leader.settle()
    first = set(ranks_of(leader.placed()).values())
    pause = PAUSE_FIRST
    for _ in range(6):
        refused(leader, NO_CLAIM)
        assert leader.workload().suspended
        assert leader.status() == ("Waiting", "SchedulerRefused")
        leader.later(pause - 1)
        assert not ranks_of(leader.placed())
        assert leader.status() == ("Waiting", "SchedulerRefused")
        leader.later(1)
        assert set(ranks_of(leader.placed()).values()) == first
        pause = min(2 * pause, PAUSE_MOST)
    assert pause == PAUSE_MOST


def test_a_gang_that_a_host_does_not_take_goes_elsewhere_soon() -> None:
    """What is about a host is no reason to wait."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(job(held=True))
    leader.settle()
    first = set(ranks_of(leader.placed()).values())
    refused(leader, REFUSAL)
    leader.later(BIND / 10)
    assert ranks_of(leader.placed())
    assert set(ranks_of(leader.placed()).values()) != first


@pytest.mark.parametrize("queue", ["{order: strict}", "{patience: 1s}"])
def test_others_get_the_room_meanwhile(queue: str) -> None:
    """One rack: a gang whose pods are right goes while the other one waits for its claim, however patiently."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=f"{POLICY}queue: {queue}\n")
    leader.has(job(held=True))
    leader.settle()
    refused(leader, NO_CLAIM)
    leader.later(10)
    leader.has(job("other", held=True, created=2000.0))
    leader.settle()
    assert ranks_of(leader.placed("other"))


def test_pods_that_never_come_hold_no_room_for_long() -> None:
    """Nothing makes them (a quota that nobody knew of, a webhook): the second hold begins after a pause."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + "timeouts: {hold: 20s}\n")
    leader.has(job(held=True))
    leader.settle()
    leader.later(20)
    leader.settle()
    assert leader.status() == ("Waiting", "HoldExpired")
    leader.later(PAUSE_FIRST - 1)
    assert not ranks_of(leader.placed())
    leader.later(1)
    assert ranks_of(leader.placed())


def test_whoever_suspends_and_resumes_it_has_it_tried_at_once() -> None:
    """He has made the claim."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(held=True))
    leader.settle()
    refused(leader, NO_CLAIM)
    known = leader.workload()
    for said in ({names.REQUIRE: "rack"}, known.annotations):
        version = leader.hands.version()
        leader.has(replace(known, annotations=said, resource_version=version))
        leader.settle()
    assert ranks_of(leader.placed())
    again_after(leader, PAUSE_FIRST)


def again_after(leader: Leader, pause: float) -> None:
    """The gang is refused once more, and tried again after a pause."""
    refused(leader, NO_CLAIM)
    leader.later(pause - 1)
    assert not ranks_of(leader.placed())
    leader.later(1)
    assert ranks_of(leader.placed())


def test_a_gang_that_has_run_begins_with_the_shortest_pause() -> None:
    """What was wrong then is over."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(held=True))
    leader.settle()
    again_after(leader, PAUSE_FIRST)
    again_after(leader, 2 * PAUSE_FIRST)
    pods = [pod(leader.workload(), rank, host=host) for rank, host in ranks_of(leader.placed()).items()]
    leader.has(*pods)
    leader.settle()
    for one in pods:
        leader.stores.pods.apply("DELETED", one)
    leader.settle()
    again_after(leader, PAUSE_FIRST)


def test_a_pod_at_fault_is_not_replaced_elsewhere() -> None:
    """Of a kind whose pods cost nothing, which is never suspended: another host would not take it either."""
    leader = Leader(nodes=gpu_nodes(1, 2, 1))
    gang = job(count=1, suspendable=False)
    gang = replace(gang, pod_sets=(replace(gang.pod_sets[0], replace="free"),))
    leader.has(gang, pod(gang, 0, gated=True))
    leader.settle()
    (released,) = leader.stores.pods.values()
    for words, deleted in ((NO_CLAIM, 0), (REFUSAL, 1)):
        late = replace(released, unschedulable=words, resource_version=leader.hands.version())
        leader.has(late)
        leader.settle()
        leader.later(BIND)
        assert len(leader.hands.of("delete")) == deleted
