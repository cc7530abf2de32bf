"""A placed gang that is to have more pods: scaled up, started with its minimum, or with pods beside it for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.gang.gang import host_of
from engine.gang.key import key_of
from engine.lifecycle.gang_state import EXCLUDE_FIRST
from tests.support.cluster_records import REFUSAL, changed, gpu_nodes, job, pod
from tests.support.families import leader_worker_set, link, replica
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader, unavailable

RACK = "b0-r0"


def slots(leader: Leader, name: str = "train") -> dict[str, int]:
    """Host -> slots of the assignment."""
    placed = leader.placed(name)
    assignment = placed.assignment if placed is not None else None
    plans = assignment.pod_sets if assignment is not None else ()
    return {slot.host: slot.count for plan in plans for slot in plan.slots}


def ranks(leader: Leader, name: str = "train") -> dict[int, str]:
    """Rank -> host."""
    return ranks_of(leader.placed(name))


def run(leader: Leader, name: str = "train") -> dict[int, Pod]:
    """All pods of a gang that was planned are bound."""
    gang = leader.workload(name)
    pods = {rank: pod(gang, rank, host=host) for rank, host in ranks(leader, name).items()}
    leader.has(*pods.values())
    leader.settle()
    return pods


def scaled(leader: Leader, count: int, name: str = "train") -> Workload:
    gang = leader.workload(name)
    return changed(
        gang,
        slots=count,
        total=count,
        remaining=count,
        generation=gang.generation + 1,
        resource_version=leader.hands.version(),
    )


def at_least(gang: Workload, least: int) -> Workload:
    return replace(gang, annotations={**gang.annotations, names.MIN_AVAILABLE: str(least)})


def test_a_gang_that_is_scaled_up_grows_next_to_itself() -> None:
    """Two more ranks in the rack of the others, which keep their hosts; their pods go as soon as they exist."""
    leader = Leader(nodes=gpu_nodes(1, 2, 6))
    leader.has(job(count=3, held=True))
    leader.settle()
    run(leader)
    before = ranks(leader)
    leader.has(scaled(leader, 5))
    leader.settle()
    after = ranks(leader)
    assert leader.hands.of("grow") == ["train"]
    assert {rank: after[rank] for rank in before} == before
    assert {host.rpartition("-")[0] for host in after.values()} == {before[0].rpartition("-")[0]}
    gang = leader.workload()
    leader.has(pod(gang, 3, gated=True), pod(gang, 4, gated=True))
    leader.settle()
    assert leader.hands.of("release") == ["train-3", "train-4"]


@pytest.mark.parametrize("removed", [False, True])
def test_a_gang_grows_though_the_node_of_a_completed_pod_was_removed(removed: bool) -> None:
    """There is room for the new pods alone, and nobody asks for more: the completed one needs no slot any more."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    leader.has(job(count=3, held=True))
    leader.settle()
    pods = run(leader)
    gone = ranks(leader)[0]
    leader.stores.pods.apply("DELETED", pods[0])
    done = changed(leader.workload(), finished_ranks=((0, 0),), remaining=2, resource_version=leader.hands.version())
    leader.has(done)
    leader.later(10.0)
    if removed:
        leader.stores.nodes.apply("DELETED", leader.stores.nodes.get(gone))
        leader.later(10.0)
    leader.has(
        changed(
            done,
            slots=5,
            total=5,
            remaining=4,
            generation=done.generation + 1,
            resource_version=leader.hands.version(),
        )
    )
    leader.later(10.0)
    gang = leader.workload()
    leader.has(pod(gang, 3, gated=True), pod(gang, 4, gated=True))
    leader.later(20.0)
    assert leader.hands.of("release") == ["train-3", "train-4"]


def test_growth_is_all_or_nothing_and_the_gang_runs_on_meanwhile() -> None:
    """Room for one of two more: none of them starts, the status says why, and that it runs."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(job(count=3, held=True))
    leader.settle()
    run(leader)
    before = ranks(leader)
    leader.has(scaled(leader, 5))
    leader.has(pod(leader.workload(), 3, gated=True), pod(leader.workload(), 4, gated=True))
    leader.settle()
    assert ranks(leader) == before
    assert leader.hands.of("release") == []
    assert leader.status() == ("Running", "Fragmented")
    assert "2 more pods to join" in leader.hands.told[-1][1].message
    leader.later(10.0)
    assert leader.hands.pod_events == [("train-3", "HeldWithoutSlot"), ("train-4", "HeldWithoutSlot")]
    assert dict(leader.hands.notes)["train-3"].startswith("the Job train waits for slots (Fragmented): 2 more pods to")


def test_growth_on_a_host_that_is_left_out_for_a_while_is_tried_when_it_counts_again() -> None:
    """No event shows that, and a look at the gang meanwhile, for whatever reason, does not put it off for ever."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(count=3, held=True))
    leader.settle()
    pods = run(leader)
    (free,) = {one.name for one in gpu_nodes(1, 1, 4)} - slots(leader).keys()
    leader.controller._term.of(key_of(leader.workload())).timers.exclude(free, leader.now)
    leader.has(scaled(leader, 4))
    leader.later(EXCLUDE_FIRST / 2)
    assert len(slots(leader)) == 3
    leader.has(replace(pods[0], created=5.0, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(EXCLUDE_FIRST / 2)
    leader.later(1.0)
    assert slots(leader)[free] == 1


def test_what_starts_in_part_is_told_with_its_place_and_with_what_is_missing() -> None:
    """Two of three pods of a Deployment fit: its first Event says both, later ones only what has changed."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    gang = replace(job(count=3), suspendable=False, unit="pod")
    leader.has(gang, *(pod(gang, rank, gated=True) for rank in range(3)))
    leader.settle()
    leader.later(10.0)
    (note,) = [text for name, text in leader.hands.notes if name == "train"]
    assert note.startswith("placed 2 pods in b0 / b0-r0 (2 hosts); 1 more pod to join: ")


def by_an_older_plan(host: str) -> Leader:
    """A gang of three ranks in the rack; a fourth one runs where a replica that is behind has pinned it."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    leader.has(replace(job(count=3), suspendable=False))
    leader.settle()
    run(leader)
    assert {host.rpartition("-")[0] for host in slots(leader)} == {RACK}
    leader.has(pod(leader.workload(), 3, host=host, pin=host))
    leader.has(scaled(leader, 4))
    leader.later(10.0)
    return leader


def test_a_pod_that_runs_by_an_older_plan_gets_its_slot_where_it_is() -> None:
    """Its rank had none: its successor would have no place, and nobody would be told."""
    leader = by_an_older_plan(f"{RACK}-h3")
    assert ranks(leader)[3] == f"{RACK}-h3"
    assert leader.placed().pod_sets[0].count == 4  # type: ignore[union-attr]
    assert leader.hands.of("repair") == ["train"]
    told = f"rank 3 runs on {RACK}-h3, where no slot is: corrected"
    assert any(note.startswith(told) for _, note in leader.hands.notes)
    leader.later(60.0)
    assert leader.hands.of("repair") == ["train"] and leader.status() == ("Running", "")


def test_a_pod_that_runs_by_an_older_plan_outside_of_the_rack_is_told() -> None:
    """It stays, as its work would be lost; its successor gets a slot beside the others."""
    leader = by_an_older_plan("b0-r1-h0")
    placed = leader.placed()
    assert placed is not None and 3 not in ranks(leader)
    assert placed.status["message"] == "4 pods ready; rank 3 runs on b0-r1-h0, where no slot is"
    [wrong] = [one for one in leader.view.gangs.pods_of(key_of(leader.workload())) if host_of(one) == "b0-r1-h0"]
    leader.stores.pods.apply("DELETED", wrong)
    leader.has(pod(leader.workload(), 3, name="train-3-new", gated=True))
    leader.settle()
    assert ranks(leader)[3] == f"{RACK}-h3" and leader.hands.of("release")[-1:] == ["train-3-new"]


def test_growth_that_waits_is_tried_when_room_appears_and_told_once() -> None:
    """The rack gets another host: both pods join."""
    nodes = gpu_nodes(1, 2, 5)
    leader = Leader(nodes=[node for node in nodes if node.name not in ("b0-r0-h4", "b0-r1-h4")])
    leader.has(job(count=3, held=True))
    leader.settle()
    run(leader)
    rack = ranks(leader)[0].rpartition("-")[0]
    leader.has(scaled(leader, 5))
    leader.settle()
    told = len(leader.hands.told)
    for _ in range(3):
        leader.later(5.0)
    assert len(leader.hands.told) == told
    leader.has(next(node for node in nodes if node.name == f"{rack}-h4"))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]


def test_a_gang_that_shrinks_again_asks_for_nothing() -> None:
    """Scaled up without room, then back: it runs, and nothing waits any more."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job(count=4, held=True))
    leader.settle()
    run(leader)
    leader.has(scaled(leader, 6))
    leader.settle()
    assert leader.status() == ("Running", "Fragmented")
    leader.has(scaled(leader, 4))
    leader.settle()
    assert leader.status() == ("Running", "")


def test_growth_does_not_go_before_those_who_wait_in_strict_order() -> None:
    """Nobody overtakes a waiting gang: not by growing either."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6), policy=POLICY + "queue: {order: strict}\n")
    leader.has(job(count=3, held=True))
    leader.settle()
    run(leader)
    leader.has(job("big", count=4, held=True))
    leader.has(scaled(leader, 4))
    leader.settle()
    assert leader.hands.of("grow") == []
    assert leader.status() == ("Running", "QueuedBehind")
    placed = leader.placed()
    assert placed is not None
    assert (
        placed.status["message"]
        == "1 more pod to join: big goes first and does not fit yet (policy queue.order: strict)"
    )
    leader.stores.workloads.apply("DELETED", leader.workload("big"))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]
    run(leader)
    assert leader.status() == ("Running", "")


def test_growth_waits_for_nobody_who_does_not_wait_for_capacity_in_strict_order() -> None:
    """The other gang is larger than the cluster: it holds up neither gangs nor growth."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6), policy=POLICY + "queue: {order: strict}\n")
    leader.has(job(count=3, held=True))
    leader.settle()
    run(leader)
    leader.has(job("huge", count=40, held=True))
    leader.settle()
    leader.has(scaled(leader, 4))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]


# -- minimums --------------------------------------------------------------------------------------------------------


def test_a_gang_starts_with_its_minimum_and_the_others_join() -> None:
    """Six pods, four hosts, three needed: four start; when the rack gets more hosts the others follow."""
    nodes = gpu_nodes(1, 1, 6)
    leader = Leader(nodes=nodes[:4])
    leader.has(at_least(job(count=6, held=True), 3))
    leader.settle()
    assert sorted(ranks(leader)) == [0, 1, 2, 3]
    assert not leader.workload().suspended
    before = ranks(leader)
    run(leader)
    leader.has(*(pod(leader.workload(), rank, gated=True) for rank in (4, 5)))
    leader.settle()
    assert leader.status()[0] == "Running"
    assert leader.hands.of("release") == []
    leader.has(nodes[4])
    leader.settle()
    assert leader.hands.of("release") == ["train-4"]
    leader.has(nodes[5])
    leader.settle()
    assert leader.hands.of("release") == ["train-4", "train-5"]
    assert {rank: ranks(leader)[rank] for rank in before} == before


def test_growth_without_room_writes_nothing_while_a_pod_is_bound_to_a_host_that_is_gone() -> None:
    """Its rank has a slot already, on a host that exists: to give it that slot once more is no growth."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(at_least(job(count=3, held=True), 2))
    leader.settle()
    gang = leader.workload()
    there = ranks(leader)
    leader.has(pod(gang, 0, pin="b0-r0-gone"), pod(gang, 1, host=there[1]), pod(gang, 2, gated=True))
    leader.settle()
    assert leader.hands.of("grow") == []
    assert ranks(leader) == there
    leader.stores.nodes.apply("ADDED", gpu_nodes(1, 1, 3)[2])
    leader.later(5.0)
    assert leader.hands.of("grow") == ["train"]
    assert ranks(leader) == {**there, 2: "b0-r0-h2"}


def test_a_gang_waits_for_its_minimum() -> None:
    """Fewer hosts than that: nothing starts."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(at_least(job(count=6, held=True), 3))
    leader.settle()
    assert slots(leader) == {}
    assert leader.status()[0] == "Waiting"


def test_pods_that_stand_for_themselves_start_one_by_one_near_each_other() -> None:
    """A Deployment: as many as there is room for, each of them free to go, the others when there is room."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    gang = _deployment(3)
    leader.has(gang, *(pod(gang, None, gated=True, name=f"web-{n}") for n in range(3)))
    leader.settle()
    assert len(leader.hands.of("release")) == 2
    assert {host.rpartition("-")[0] for host in slots(leader)} in ({"b0-r0"}, {"b0-r1"})


def test_a_pod_beyond_the_wanted_number_has_a_slot_of_its_own_while_it_lives() -> None:
    """A rollout's surge: one more slot beside the others, gone when an old pod is."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = _deployment(2)
    first = [pod(gang, None, gated=True, name=f"web-{n}") for n in range(2)]
    leader.has(gang, *first)
    leader.settle()
    bound = _bind(leader)
    leader.has(pod(gang, None, gated=True, name="web-new"))
    leader.settle()
    assert sum(slots(leader).values()) == 3
    assert leader.hands.of("release")[-1] == "web-new"
    new = leader.stores.pods.get(("default", "web-new"))
    assert new is not None
    _bind(leader)
    leader.stores.pods.apply("DELETED", bound[0])
    leader.settle()
    assert sum(slots(leader).values()) == 2
    assert bound[0].spec.node_name not in slots(leader)


def test_a_pod_beyond_the_wanted_number_that_is_not_bound_gets_another_slot() -> None:
    """A rollout's surge: the rollout goes on only when it runs, and no old pod ends before that."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = _deployment(2)
    gang = replace(gang, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets))
    leader.has(gang, *(pod(gang, None, gated=True, name=f"web-{n}") for n in range(2)))
    leader.settle()
    old = {one.spec.node_name for one in _bind(leader)}
    leader.has(pod(gang, None, gated=True, name="web-new"))
    leader.settle()
    (first,) = slots(leader).keys() - old
    new = leader.stores.pods.get(("default", "web-new"))
    assert new is not None
    leader.has(replace(new, unschedulable=REFUSAL, resource_version=leader.hands.version()))
    leader.later(40.0)
    assert leader.hands.of("delete") == ["web-new"]
    leader.has(pod(gang, None, gated=True, name="web-newer"))
    leader.settle()
    assert leader.hands.of("release")[-1] == "web-newer"
    _bind(leader)
    assert sum(slots(leader).values()) == 3
    assert first not in slots(leader)
    assert slots(leader).keys() >= old


def _deployment(count: int) -> Workload:
    gang = job(count=count, ranked=False)
    return replace(gang, suspendable=False, unit="pod")


def _bind(leader: Leader) -> list[Pod]:
    """Every pod that was let go gets to its host."""
    bound = []
    for one in list(leader.stores.pods.values()):
        if not one.spec.gates and not one.spec.node_name:
            terms = one.spec.shape.affinity or ()
            host = terms[0].fields[0].values[0]
            spec = replace(one.spec, node_name=host)
            bound.append(replace(one, spec=spec, phase="Running", resource_version=leader.hands.version()))
    leader.has(*bound)
    leader.settle()
    return bound


# -- pods that are late ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "deleted"),
    [
        ({"replace": "free"}, ["train-1"]),
        ({"replace": "retry"}, []),
        ({"replace": "retry", "evictable": True}, ["train-1"]),
        ({"replace": "group"}, []),
    ],
)
def test_a_late_pod_of_a_started_gang_is_replaced_only_where_that_is_free(
    cost: dict[str, Any], deleted: list[str]
) -> None:
    """Free: a new slot is written down, then the pod goes; else it waits for its room, and the gang says so."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = job(count=2, held=True)
    leader.has(replace(gang, pod_sets=(replace(gang.pod_sets[0], **cost),)))
    leader.settle()
    before = ranks(leader)
    gang = leader.workload()
    leader.has(pod(gang, 0, host=before[0]), pod(gang, 1, pin=before[1], unschedulable=REFUSAL))
    leader.settle()
    leader.later(31.0)
    leader.later(10.0)
    assert leader.hands.of("delete") == deleted
    assert (ranks(leader)[1] != before[1]) is bool(deleted)
    assert leader.hands.of("suspend") == []
    if not deleted:
        assert leader.status() == ("Incomplete", "SchedulerRefused")


def test_a_late_pod_stays_until_there_is_another_slot_for_its_successor() -> None:
    """Its host may still take it; a new pod would only wait for the same host."""
    nodes = gpu_nodes(1, 1, 3)
    leader = Leader(nodes=nodes[:2])
    gang = job(count=2, held=True)
    leader.has(replace(gang, pod_sets=(replace(gang.pod_sets[0], replace="free"),)))
    leader.settle()
    before, gang = ranks(leader), leader.workload()
    leader.has(pod(gang, 0, host=before[0]), pod(gang, 1, pin=before[1], unschedulable=REFUSAL))
    leader.settle()
    for _ in range(20):
        leader.later(10.0)
    assert leader.hands.of("delete") == []
    leader.has(nodes[2])
    leader.settle()
    leader.later(5.0)
    assert leader.hands.of("delete") == ["train-1"]
    assert ranks(leader) == {0: before[0], 1: "b0-r0-h2"}


@pytest.mark.parametrize(("cost", "replaced"), [("free", True), ("group", True), ("retry", False)])
def test_late_pods_of_which_none_runs_are_replaced_where_no_retry_is_lost(cost: str, replaced: bool) -> None:
    """The gang cannot be suspended; starting its group again costs nothing as nothing of it runs. Then other hosts."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = replace(job(count=2), suspendable=False)
    gang = replace(gang, pod_sets=(replace(gang.pod_sets[0], replace=cost),))
    leader.has(gang)
    leader.settle()
    before = ranks(leader)
    leader.has(*(pod(gang, rank, pin=before[rank], unschedulable=REFUSAL) for rank in (0, 1)))
    leader.settle()
    leader.later(31.0)
    leader.later(10.0)
    assert leader.hands.of("delete") == (["train-0", "train-1"] if replaced else [])
    assert leader.hands.of("suspend") == []
    if not replaced:
        assert leader.status() == ("Placed", "SchedulerRefused")
    else:
        leader.has(pod(gang, 0, gated=True), pod(gang, 1, gated=True))
        leader.settle()
        assert not set(ranks(leader).values()) & set(before.values())


def without_pods() -> Leader:
    """A gang of two that cannot be suspended, for which no pod was created within timeouts.hold."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(replace(job(count=2), suspendable=False))
    leader.settle()
    assert len(slots(leader)) == 2
    leader.later(601.0)
    leader.later(1.0)
    return leader


def test_a_gang_without_pods_that_is_scaled_to_nothing_misses_none_any_more() -> None:
    """Its Placement says so, or it would be told for ever that its pods are not created."""
    leader = without_pods()
    assert leader.status() == ("Waiting", "HoldExpired")
    leader.has(scaled(leader, 0))
    leader.settle()
    leader.later(60.0)
    assert leader.status() == ("Placed", "")
    leader.has(scaled(leader, 2))
    leader.settle()
    assert len(slots(leader)) == 2


def test_a_gang_that_cannot_be_suspended_and_has_no_pods_gives_its_slots_back_until_one_appears() -> None:
    """timeouts.hold is over: the room is others'; the first held pod has it planned again."""
    leader = without_pods()
    gang = leader.workload()
    assert slots(leader) == {}
    assert leader.status() == ("Waiting", "HoldExpired")
    leader.later(60.0)
    assert slots(leader) == {}
    leader.has(pod(gang, 0, gated=True))
    leader.settle()
    assert len(slots(leader)) == 2


def sliced(count: int) -> Workload:
    """A held gang in slices of four, each in one rack."""
    gang = job(count=count, held=True, require=None)
    says = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}
    return replace(gang, annotations={**gang.annotations, **says})


def lose(leader: Leader, pods: dict[int, Pod], *lost: int) -> None:
    """The hosts of ranks are cordoned, their pods deleted and made again."""
    for rank in lost:
        node = leader.stores.nodes.get(ranks(leader)[rank])
        assert node is not None
        leader.has(replace(node, unschedulable=True, resource_version=leader.hands.version()))
    for rank in lost:
        one = pods[rank]
        leader.stores.pods.apply("DELETED", one)
        leader.has(replace(pod(leader.workload(), rank, gated=True), name=f"again-{rank}", uid=f"again-{rank}"))
    leader.settle()


@pytest.mark.parametrize(("count", "lost"), [(6, (1,)), (6, (4,)), (6, (4, 5)), (5, (4,)), (3, (0,))])
def test_a_gang_that_was_scaled_to_a_part_of_a_slice_is_repaired(count: int, lost: tuple[int, ...]) -> None:
    """`kubectl scale` does not pass admission. The last slice is smaller then, and still in one rack."""
    leader = Leader(nodes=gpu_nodes(1, 2, 9))
    leader.has(sliced(8))
    leader.settle()
    pods, before = run(leader), ranks(leader)
    leader.has(scaled(leader, count))
    leader.settle()
    for rank in range(count, 8):
        leader.stores.pods.apply("DELETED", pods[rank])
    leader.settle()
    lose(leader, pods, *lost)
    after = ranks(leader)
    assert leader.hands.of("repair") == ["train"]
    assert leader.hands.of("release") == [f"again-{rank}" for rank in lost]
    assert set(after) == set(range(count))
    assert all((after[rank] != before[rank]) == (rank in lost) for rank in after)
    for first in range(0, count, 4):
        assert len({after[rank].rpartition("-")[0] for rank in range(first, min(first + 4, count))}) == 1


def test_without_any_pod_a_gang_of_a_part_of_a_slice_waits_for_its_user() -> None:
    """Nothing stays to be repaired: it is a new gang, which would be refused at submit."""
    leader = Leader(nodes=gpu_nodes(1, 3, 8))
    leader.has(sliced(8))
    leader.settle()
    pods = run(leader)
    leader.has(scaled(leader, 6))
    leader.settle()
    for rank in (6, 7):
        leader.stores.pods.apply("DELETED", pods[rank])
    lose(leader, pods, *range(6))
    leader.later(30)
    assert leader.status() == ("Waiting", "SegmentNotDivisor")
    leader.has(scaled(leader, 8))
    leader.later(30)
    assert leader.hands.of("place") == ["train", "train"]


def test_pods_that_make_no_whole_slice_cannot_join() -> None:
    """At submit the number would be refused; here the gang runs on, and its Placement says what to do."""
    leader = Leader(nodes=gpu_nodes(1, 2, 12))
    leader.has(sliced(8))
    leader.settle()
    run(leader)
    leader.has(scaled(leader, 10))
    leader.has(*(pod(leader.workload(), rank, gated=True) for rank in (8, 9)))
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert leader.status() == ("Running", "SegmentNotDivisor")
    why = f"metadata.annotations[{names.SLICE_SIZE}]: 4 must divide the 10 pods of the gang (spec.parallelism)"
    assert placed.status["message"] == f"8 pods ready; 2 more pods cannot join: {why}; use 1, 2, 5 or 10"
    leader.has(scaled(leader, 12))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]


def test_of_pods_without_an_index_all_are_told_about_that_cannot_join() -> None:
    """One of eight has completed, and the Job is scaled to ten: two have no slots, and the completed one needs none."""
    leader = Leader(nodes=gpu_nodes(1, 2, 12))
    gang = sliced(8)
    leader.has(replace(gang, pod_sets=job(count=8, ranked=False).pod_sets))
    leader.settle()
    live = [pod(gang, None, host=host, name=f"p{host}", uid=host) for host in slots(leader)]
    leader.has(*live)
    leader.stores.pods.apply("DELETED", live[0])
    leader.has(changed(leader.workload(), remaining=7, resource_version=leader.hands.version()))
    leader.settle()
    leader.has(changed(scaled(leader, 10), remaining=9))
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert "7 pods ready; 2 more pods cannot join" in placed.status["message"]


def test_a_longer_job_that_gets_as_many_pods_as_completions_grows_beside_the_pod_in_its_slot() -> None:
    """Its slot was of no rank, and has the pod of index 1: index 0, whose slot it is from now on, gets another one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    leader.has(changed(job(count=1, held=True), total=3, remaining=3))
    leader.settle()
    (host,) = ranks(leader).values()
    leader.has(pod(leader.workload(), 1, host=host))
    leader.settle()
    leader.has(scaled(leader, 3))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]
    assert sorted(slots(leader).values()) == [1, 1, 1]
    assert ranks(leader)[1] == host


@pytest.mark.parametrize("lost", [False, True], ids=["growth", "repair"])
def test_a_refused_pod_that_is_pinned_to_the_host_of_another_gang_gets_no_slot_there(lost: bool) -> None:
    """Nothing counts it there, so that the host would be promised twice: its rank keeps the slot that it has."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    leader.has(job("other", count=1, held=True))
    leader.settle()
    (taken,) = ranks(leader, "other").values()
    leader.has(job(count=2, held=True))
    leader.settle()
    there = ranks(leader)
    gang = leader.workload()
    leader.has(pod(gang, 0, host=there[0]), pod(gang, 1, pin=taken, unschedulable=REFUSAL))
    leader.settle()
    leader.has(scaled(leader, 3))
    leader.settle()
    assert leader.hands.of("grow") == ["train"]
    if lost:
        grown = ranks(leader)
        leader.stores.nodes.apply("DELETED", next(one for one in gpu_nodes(1, 1, 5) if one.name == grown[2]))
        leader.has(pod(leader.workload(), 2, gated=True))
        leader.later(60.0)
    assert ranks(leader)[1] == there[1]
    assert taken not in slots(leader)


def test_a_gang_that_is_scaled_below_its_minimum_needs_no_more_pods_than_it_has() -> None:
    """`kubectl scale` does not pass admission: the request is invalid, and the Placement has numbers of its own."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(at_least(job(count=4, held=True), 3))
    leader.settle()
    run(leader)
    leader.has(scaled(leader, 2))
    leader.settle()
    placed = leader.placed()
    assert placed is not None
    assert set(ranks(leader)) == {0, 1}
    assert [(one.count, one.min_available) for one in placed.pod_sets] == [(2, 2)]


@pytest.mark.parametrize("away", [0.0, 5.0, 20.0])
def test_a_replica_that_is_scaled_away_and_back_does_not_get_slots_again_that_others_have_by_then(away: float) -> None:
    """Its Placement is there for a while; a Job got the host meanwhile, so the replica waits."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    serve = leader_worker_set(groups=2, size=1)
    sets = link("apps/v1", "StatefulSet", serve.name, serve)
    leader.has(serve, sets, *[replica(serve, group, 0, sets) for group in "01"])
    leader.settle()
    for one in leader.stores.pods.values():
        bound = replace(one.spec, node_name=host_of(one))
        leader.has(replace(one, spec=bound, phase="Running", resource_version=leader.hands.version()))
    leader.settle()
    leader.has(replace(serve, groups=1, generation=2, resource_version=leader.hands.version()))
    leader.stores.pods.apply("DELETED", leader.stores.pods.get(("default", "serve-1-0")))
    leader.later(away)
    leader.has(job("train", count=2, held=True))
    leader.later(5)
    assert sorted(slots(leader)) == ["b0-r0-h1", "b0-r0-h2"]
    again = replace(serve, groups=2, generation=3, resource_version=leader.hands.version())
    leader.has(again, *(pod(leader.workload("train"), rank, gated=True) for rank in range(2)))
    for step in (leader.view.refresh, leader.settle):
        step()
        free = [leader.view.capacity.free(one.name)["nvidia.com/gpu"] for one in leader.stores.nodes.values()]
        assert min(free) == 0  # no slot is promised twice, not for a moment
    leader.has(replica(again, "1", 0, sets, created=2.0))
    leader.later(5)
    assert sorted(slots(leader)) == ["b0-r0-h1", "b0-r0-h2"]
    assert not leader.workload("train").suspended
    assert next(one for one in leader.stores.placements.values() if one.group == "1").assignment is None


def test_taking_the_slots_of_a_replica_is_tried_again_after_a_while() -> None:
    """Not at once and again and again, while the API server fails."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    serve = leader_worker_set(groups=2, size=1)
    sets = link("apps/v1", "StatefulSet", serve.name, serve)
    leader.has(serve, sets, *[replica(serve, group, 0, sets) for group in "01"])
    leader.settle()
    leader.hands.broken = {"take slots": unavailable}
    leader.has(replace(serve, groups=1, generation=2, resource_version=leader.hands.version()))
    leader.settle(100)
    assert len(leader.hands.of("take slots")) == 1
    leader.hands.broken = {}
    leader.later(5)
    assert next(one for one in leader.stores.placements.values() if one.group == "1").assignment is None


def test_in_strict_order_every_replica_that_waits_is_told_why() -> None:
    """Priority, age and name are the same for all of them."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3), policy=POLICY + "queue: {order: strict}\n")
    serve = leader_worker_set(groups=3, size=2)
    sets = link("apps/v1", "StatefulSet", serve.name, serve)
    leader.has(serve, sets, *[replica(serve, group, rank, sets) for group in "012" for rank in range(2)])
    leader.later(60)
    told = {one.group: one.status.get("reason", "") for one in leader.stores.placements.values()}
    assert told == {"0": "", "1": "InsufficientFreeGPUs", "2": "QueuedBehind"}
