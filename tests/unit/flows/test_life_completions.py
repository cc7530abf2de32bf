"""A gang of which some pods have completed: planned anew it needs room for the others, which keep their ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.kinds import workload_of
from tests.support.leader import POLICY, Leader
from tests.unit.controller import test_pod_group_gangs as groups
from tests.unit.flows.test_life_growth import at_least, run, scaled
from tests.unit.flows.test_life_minimums import busy
from tests.unit.flows.test_life_replans import answer, ask, bind, ends, message, preferring, racks, start

ODD = ((0, 0), (2, 2), (4, 4), (6, 6))  # of eight ranks


def half_done(finished: tuple[tuple[int, int], ...] = ODD, **more: Any) -> Workload:
    """A held Job of eight pods, of which these indexes have completed."""
    left = 8 - sum(last - first + 1 for first, last in finished)
    return job(count=8, held=True, remaining=left, finished_ranks=finished, **more)


def completes(leader: Leader, pods: dict[int, Pod], *finished: tuple[int, int], name: str = "train") -> None:
    """Indexes complete: their pods are removed, and the Job's status counts them."""
    for first, last in finished:
        for rank in range(first, last + 1):
            leader.stores.pods.apply("DELETED", pods[rank])
    gang = leader.workload(name)
    left = gang.slots - sum(last - first + 1 for first, last in finished)
    leader.has(changed(gang, remaining=left, finished_ranks=finished, resource_version=leader.hands.version()))
    leader.settle()


def waits_with(leader: Leader) -> str:
    placed = leader.placed()
    return str(placed.status.get("message")) if placed is not None else ""


@pytest.mark.parametrize("ranked", [True, False])
def test_the_rest_of_a_job_needs_no_more_room_than_it_has_pods(ranked: bool) -> None:
    """Four of eight indexes have completed, and four hosts are free."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(half_done() if ranked else job(count=8, held=True, remaining=4, ranked=False))
    leader.settle()
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None, waits_with(leader)
    assert placed.assignment.count == 4
    assert placed.pod_sets[0].count == 8  # the request is that of the Job
    if ranked:
        assert ranks_of(placed) == {1: "b0-r0-h0", 3: "b0-r0-h1", 5: "b0-r0-h2", 7: "b0-r0-h3"}


def test_the_rest_runs_with_its_ranks_and_gets_no_further_slots() -> None:
    """Their pods are released to the slots of their ranks; nothing is planned besides."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(half_done())
    leader.settle()
    leader.has(*(pod(leader.workload(), rank, gated=True) for rank in (1, 3, 5, 7)))
    leader.settle()
    assert leader.hands.of("release") == [f"train-{rank}" for rank in (1, 3, 5, 7)]
    bind(leader)
    leader.later(600)
    assert leader.hands.of("grow") == leader.hands.of("repair") == leader.hands.of("shrink") == []


def test_a_message_tells_of_the_rest() -> None:
    """Three hosts for the last four pods of eight."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(replace(pod(job("other"), None, host="b0-r0-h0", name="x"), owner=None), half_done())
    leader.settle()
    assert "needs 4 hosts in one rack; best is b0-r0 with 3" in waits_with(leader)


def test_a_minimum_is_no_more_than_the_rest() -> None:
    """Six of eight pods were enough; of the last four all have to start."""
    nodes = gpu_nodes(1, 1, 4)
    leader = Leader(nodes=nodes[:3])
    gang = half_done()
    leader.has(replace(gang, annotations={**gang.annotations, names.MIN_AVAILABLE: "6"}))
    leader.settle()
    assert leader.hands.of("place") == []
    leader.has(nodes[3])
    leader.later(60)
    assert set(ranks_of(leader.placed())) == {1, 3, 5, 7}


@pytest.mark.parametrize(
    ("finished", "ranks"),
    [
        (((0, 3),), {4, 5, 6, 7}),
        (((4, 7),), {0, 1, 2, 3}),
        (((0, 3), (5, 5)), {4, 5, 6, 7}),
        (((1, 1), (5, 5)), set(range(8))),
    ],
)
def test_a_slice_is_planned_whole_or_not_at_all(finished: tuple[tuple[int, int], ...], ranks: set[int]) -> None:
    """Slices of four: one of which all ranks have completed needs no room."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    gang = half_done(finished, require=None)
    says = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}
    leader.has(replace(gang, annotations={**gang.annotations, **says}))
    leader.settle()
    found = ranks_of(leader.placed())
    assert set(found) == ranks
    for first in {rank - rank % 4 for rank in ranks}:
        assert len({found[rank].rpartition("-")[0] for rank in range(first, first + 4)}) == 1


def test_it_restarts_after_the_loss_of_a_node() -> None:
    """Another gang has taken the hosts of those that have completed."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8), policy=POLICY + "nodeLoss: restart\n")
    leader.has(job(count=8, held=True))
    leader.settle()
    pods, hosts = run(leader), ranks_of(leader.placed())
    completes(leader, pods, (0, 3))
    leader.has(job("next", count=4, held=True))
    leader.settle()
    lost = next(node for node in leader.stores.nodes.values() if node.name == hosts[5])
    late = replace(lost, ready=False, settled_at=1_800_000_000.0 + leader.now, resource_version=leader.hands.version())
    leader.has(late)
    leader.settle()
    leader.later(61)
    assert leader.hands.of("suspend") == ["train"]
    ends(leader, {rank: pods[rank] for rank in range(4, 8)})
    leader.has(replace(lost, resource_version=leader.hands.version()))
    leader.later(60)
    assert leader.hands.of("place") == ["train", "next", "train"], waits_with(leader)
    assert set(ranks_of(leader.placed())) == {4, 5, 6, 7}


def test_the_rest_moves_where_that_makes_its_place_better() -> None:
    """Of six pods in three racks with two free hosts each two are left, in two racks."""
    leader = Leader(nodes=gpu_nodes(1, 3, 4))
    busy = [f"b0-r{rack}-h{host}" for rack in range(3) for host in range(2)]
    leader.has(*(replace(pod(job("other"), None, host=host, name=host), owner=None) for host in busy))
    pods = start(leader, preferring(count=6))
    hosts = ranks_of(leader.placed())
    assert len(racks(leader)) == 3
    completes(leader, pods, (0, 0), (2, 4))
    ask(leader, replan="1")
    assert answer(leader) == ("1", "Restarting"), message(leader)
    assert message(leader).endswith("1 rack instead of 2")
    ends(leader, {1: pods[1], 5: pods[5]})
    assert answer(leader) == ("1", "Moved")
    after = ranks_of(leader.placed())
    assert set(after) == {1, 5}
    assert len(racks(leader)) == 1
    assert after != {rank: hosts[rank] for rank in (1, 5)}


def test_the_rest_stays_where_only_completed_pods_were_elsewhere() -> None:
    """Two racks were in use; what is left is in one of them."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    busy = [f"b0-r{rack}-h{host}" for rack in range(2) for host in range(2)]
    leader.has(*(replace(pod(job("other"), None, host=host, name=host), owner=None) for host in busy))
    pods = start(leader, preferring(count=4))
    assert len(racks(leader)) == 2
    completes(leader, pods, (0, 1))
    ask(leader, replan="1")
    assert answer(leader) == ("1", "Kept")
    assert message(leader).endswith("it uses 1 block, 1 rack, 2 hosts")


def test_a_lost_slot_is_replaced_and_none_is_added() -> None:
    """Ranks 1, 3, 5 and 7 run; the host of one is lost."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(half_done())
    leader.settle()
    pods, before = run(leader), ranks_of(leader.placed())
    [lost] = [node for node in leader.stores.nodes.values() if node.name == before[3]]
    leader.has(replace(lost, unschedulable=True, resource_version=leader.hands.version()))
    leader.stores.pods.apply("DELETED", pods[3])
    leader.has(replace(pod(leader.workload(), 3, gated=True), name="again", uid="again"))
    leader.settle()
    after = ranks_of(leader.placed())
    assert leader.hands.of("repair") == ["train"]
    assert after == {**before, 3: after[3]}
    assert after[3] not in before.values()
    assert leader.hands.of("release") == ["again"]


def test_it_grows_by_the_new_ranks_alone() -> None:
    """Eight ranks, of which four have completed, become ten."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8))
    leader.has(half_done())
    leader.settle()
    run(leader)
    before = ranks_of(leader.placed())
    leader.has(changed(scaled(leader, 10), remaining=6, finished_ranks=ODD))
    leader.settle()
    after = ranks_of(leader.placed())
    assert leader.hands.of("grow") == ["train"]
    assert set(after) == {1, 3, 5, 7, 8, 9}
    assert {rank: after[rank] for rank in before} == before
    leader.later(60)
    assert leader.hands.of("grow") == ["train"]


@pytest.mark.parametrize("completed", [2, 3])
def test_pods_beyond_the_minimum_need_not_join_those_that_have_completed(completed: int) -> None:
    """Three of six ran in one rack, which others use since; the other rack has room. While one runs, the rest stays."""
    first, second = [f"b0-r0-h{number}" for number in range(3)], [f"b0-r1-h{number}" for number in range(3)]
    leader = Leader(nodes=gpu_nodes(1, 2, 3))
    others = busy(second)
    leader.has(*others, at_least(job(count=6, held=True), 3))
    leader.settle()
    assert ranks_of(leader.placed()) == dict(enumerate(first))
    pods = run(leader)
    leader.has(*(pod(leader.workload(), rank, gated=True) for rank in (3, 4, 5)))
    leader.settle()
    for one in others:
        leader.stores.pods.apply("DELETED", one)
    leader.has(*busy(first[:completed]))
    completes(leader, pods, (0, completed - 1))
    leader.later(60)
    assert leader.hands.of("release") == ([] if completed == 2 else ["train-3", "train-4", "train-5"])
    if completed == 3:
        assert ranks_of(leader.placed()) == dict(enumerate(second, start=3))


def test_a_pod_beyond_the_minimum_gets_the_host_of_one_that_has_completed() -> None:
    """Two of three run on the two hosts of the rack, then one completes."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(at_least(job(count=3, held=True), 1))
    leader.settle()
    pods = run(leader)
    leader.has(pod(leader.workload(), 2, gated=True))
    leader.settle()
    assert (len(pods), leader.hands.of("release")) == (2, [])
    completes(leader, pods, (0, 0))
    leader.later(10)
    assert leader.hands.of("release") == ["train-2"]
    assert ranks_of(leader.placed()) == {1: pods[1].spec.node_name, 2: pods[0].spec.node_name}


@pytest.mark.parametrize("hosts", [5, 6])
def test_the_completed_pods_of_a_pod_group_count_as_started(hosts: int) -> None:
    """Two Jobs of four, all eight of which start together; two indexes of one had completed before."""
    first = groups.member("a", remaining=2, finished_ranks=((1, 2),))
    leader = groups.led(first, groups.member("b"), hosts=hosts)
    assert leader.hands.of("place") == ([] if hosts == 5 else ["a", "b"])
    if hosts == 6:
        assert set(ranks_of(leader.placed("a"))) == {0, 3}
        leader.later(60)
        assert leader.hands.of("give back") == []


def work_queue(version: str, **status: Any) -> Workload:
    """A Job of three pods without completions, held while it has no status."""
    suspend = not status
    held = {names.HELD_BY: names.HELD_BY_SUSPEND} if suspend else {}
    container = {"name": "main", "image": "example.com/train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {
        "metadata": {"labels": {names.MANAGED: "true"}},
        "spec": {"schedulingGates": [{"name": names.GATE}], "containers": [container]},
    }
    metadata = {"name": "train", "namespace": "default", "uid": "uid-train", "resourceVersion": version}
    metadata |= {"annotations": {names.REQUIRE: "rack", **held}, "generation": 1 if suspend else 2}
    return workload_of(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"parallelism": 3, "suspend": suspend, "template": template},
            "status": status,
        }
    )


def after_first_success(policy: str) -> Leader:
    """A leader under a policy whose work queue of three pods runs on three hosts; one pod has succeeded."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=POLICY + policy)
    leader.has(work_queue("1"))
    leader.settle()
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None
    pods = [pod(leader.workload(), None, host=slot.host) for slot in placed.assignment.pod_sets[0].slots]
    leader.has(*pods)
    leader.later(10.0)
    leader.stores.pods.apply("DELETED", pods[0])
    leader.has(work_queue(leader.hands.version(), startTime="2026-11-29T00:00:00Z", succeeded=1, active=2))
    leader.settle()
    return leader


def test_a_work_queue_misses_no_pod_after_the_first_has_succeeded() -> None:
    """Its controller creates none any more: nothing is kept for it, and it is not restarted for that."""
    leader = after_first_success("incomplete: restart\n")
    for _ in range(15):
        leader.later(60.0)
    assert leader.status() == ("Running", "")
    assert dict(leader.view.capacity.reserved_by("uid-train")) == {}
    assert leader.hands.of("suspend") == []


def test_a_work_queue_is_not_suspended_after_the_first_has_succeeded() -> None:
    """It would count as complete, with the work of its other pods undone."""
    leader = after_first_success("nodeLoss: restart\n")
    failing, other = leader.stores.pods.values()
    lost = next(node for node in leader.stores.nodes.values() if node.name == failing.spec.node_name)
    since = 1_800_000_000.0 + leader.now
    leader.has(replace(lost, ready=False, settled_at=since, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(61)
    assert leader.hands.of("suspend") == []
    assert (leader.hands.of("evict"), failing.name == other.name) == ([failing.name], False)
    leader.stores.pods.apply("DELETED", failing)
    ask(leader, replan="1")
    assert answer(leader) == ("1", "Kept")
    assert "this Job cannot be suspended: a pod has succeeded, so it would count as complete" in message(leader)
    assert leader.hands.of("suspend") == []
