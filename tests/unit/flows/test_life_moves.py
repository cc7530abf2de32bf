"""What becomes of a running gang whose user asks that pods leave a host, from the annotation to what is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.lifecycle.gang_state import REMOVE_AGAIN
from tests.support.cluster_records import gpu_nodes, job, pod, pod_set
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader, crash, not_leader, unavailable


def movable(name: str = "train", *, count: int = 4, cost: str = "free", **more: object) -> Workload:
    """A held gang of whole hosts in one rack; deleting one of its pods costs `cost`."""
    gang = job(name, count=count, held=True, **more)
    return replace(gang, pod_sets=tuple(replace(one, replace=cost) for one in gang.pod_sets))


def running(leader: Leader, gang: Workload | None = None) -> dict[int, Pod]:
    """The pods of a gang that is placed and bound, by rank."""
    leader.has(gang or movable())
    leader.settle()
    name = gang.name if gang is not None else "train"
    pods = {rank: pod(leader.workload(name), rank, host=host) for rank, host in ranks_of(leader.placed(name)).items()}
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status(name) == ("Running", "")
    return pods


def ask(leader: Leader, name: str = "train", **annotations: str | None) -> None:
    """The user annotates his workload; None removes."""
    gang = leader.workload(name)
    every = {**gang.annotations, **{f"topogate.dev/{key}": text for key, text in annotations.items()}}
    kept = {key: text for key, text in every.items() if text is not None}
    leader.has(replace(gang, annotations=kept, resource_version=leader.hands.version()))
    leader.settle()


def ends(leader: Leader, one: Pod) -> None:
    leader.stores.pods.apply("DELETED", one)
    leader.settle()


def two_racks(hosts: int = 6, policy: str = "") -> Leader:
    """Two racks of whole hosts."""
    return Leader(nodes=gpu_nodes(1, 2, hosts), policy=POLICY + policy)


def runs(leader: Leader, *, by_rank: bool) -> list[str]:
    """Let a gang be placed and run, its slots by rank or not; returns its hosts."""
    gang = movable()
    leader.has(gang if by_rank else replace(gang, pod_sets=tuple(replace(one, ranked=False) for one in gang.pod_sets)))
    leader.settle()
    hosts = slots_of_train(leader)
    leader.has(*(pod(leader.workload(), rank, host=host, pin=host) for rank, host in enumerate(hosts)))
    leader.later(10.0)
    return hosts


def slots_of_train(leader: Leader) -> list[str]:
    """The hosts of the slots that it has now."""
    return sorted(slot.host for plan in leader.placed().assignment.pod_sets for slot in plan.slots)  # type: ignore[union-attr]


@pytest.mark.parametrize("by_rank", [True, False])
def test_a_new_slot_is_reserved_while_the_old_pod_still_runs(by_rank: bool) -> None:
    """Its eviction may take long, or be refused: meanwhile no other gang gets the host."""
    leader = two_racks(hosts=5)
    hosts = runs(leader, by_rank=by_rank)
    assert leader.status() == ("Running", "")
    leader.hands.deaf = True
    ask(leader, replace=hosts[2])
    assert leader.hands.of("move") == ["train"]
    [new] = set(slots_of_train(leader)) - set(hosts)
    assert leader.view.capacity.free(new)["nvidia.com/gpu"] == 0
    leader.has(job("other", count=1, held=True, require="host"))
    leader.settle()
    [other] = ranks_of(leader.placed("other")).values()
    assert other != new


@pytest.mark.parametrize("other_host", [True, False])
@pytest.mark.parametrize("by_rank", [True, False])
def test_a_new_slot_is_reserved_until_it_is_given_back(by_rank: bool, other_host: bool) -> None:
    """The old pod could not be evicted, and is not to leave its host any more: the Placement says so a moment later."""
    leader = two_racks(hosts=5)
    hosts = runs(leader, by_rank=by_rank)
    leader.hands.deaf = True
    ask(leader, replace=hosts[2])
    [new] = set(slots_of_train(leader)) - set(hosts)
    gang = leader.workload()
    annotations = {**gang.annotations, names.REPLACE: hosts[1]} if other_host else {}
    leader.has(replace(gang, annotations=annotations, resource_version=leader.hands.version()))
    leader.turn()
    assert new in slots_of_train(leader)
    assert leader.view.capacity.free(new)["nvidia.com/gpu"] == 0


@pytest.mark.parametrize("by_rank", [True, False])
def test_the_quota_of_a_pod_that_leaves_is_that_of_the_next_one(by_rank: bool) -> None:
    """Its new slot is reserved beside it; of the quota both need one pod: the next one comes when it is gone."""
    leader = two_racks(hosts=6)
    hosts = runs(leader, by_rank=by_rank)
    leader.hands.deaf = True
    ask(leader, replace=hosts[2])
    assert leader.hands.of("move") == ["train"]
    leader.stores.quotas.apply("ADDED", Quota("default", "pods", {"pods": 5}, {"pods": 4}, ()))
    leader.has(*(job(name, count=1, held=True, require="host") for name in ("one", "two")))
    leader.settle()
    assert leader.hands.of("place") == ["train", "one"]


def test_a_pod_leaves_a_host_for_another_one_of_the_rack() -> None:
    """First its new slot is written, then it is evicted; its successor goes to the new slot, nobody else moves."""
    leader = two_racks()
    pods = running(leader)
    before = ranks_of(leader.placed())
    ask(leader, replace=before[2])
    after = ranks_of(leader.placed())
    assert [call for call, _ in leader.hands.calls if call in ("move", "evict")] == ["move", "evict"]
    assert leader.hands.of("evict") == [pods[2].name]
    assert after[2] not in before.values()
    assert after[2].rpartition("-")[0] == before[0].rpartition("-")[0]
    assert {rank: host for rank, host in after.items() if rank != 2} == {
        rank: host for rank, host in before.items() if rank != 2
    }
    told = f"rank 2 leaves {before[2]} (topogate.dev/replace): new slot on {after[2]}; "
    assert any(note.startswith(told) for _, note in leader.hands.notes)
    ends(leader, pods[2])
    again = pod(leader.workload(), 2, gated=True)
    leader.has(again)
    leader.settle()
    assert leader.hands.of("release") == [again.name]
    assert ranks_of(leader.placed()) == after
    leader.has(
        pod(
            leader.workload(), 2, host=after[2], name=again.name, uid=again.uid, resource_version=leader.hands.version()
        )
    )
    leader.later(10.0)
    assert leader.status() == ("Running", "")
    leader.later(3600.0)
    assert leader.hands.of("evict") == [pods[2].name]


def test_without_a_free_host_in_the_rack_nobody_is_evicted_and_the_message_says_what_lacks() -> None:
    """The gang runs on; when a host is there, the pod moves."""
    leader = two_racks(hosts=4)
    pods = running(leader)
    host = ranks_of(leader.placed())[1]
    ask(leader, replace=host)
    leader.later(30.0)
    assert leader.hands.of("evict") == leader.hands.of("move") == []
    assert leader.status()[0] == "Running"
    placed = leader.placed()
    assert placed is not None
    message = placed.status["message"]
    assert message.startswith(f"rank 1 leaves {host} (topogate.dev/replace): needs room for 1 more pod in the rack")
    fresh = gpu_nodes(1, 2, 5)
    leader.has(*[node for node in fresh if node.name == f"{host.rpartition('-')[0]}-h4"])
    leader.settle()
    assert leader.hands.of("move") == ["train"]
    assert leader.hands.of("evict") == [pods[1].name]


def test_a_lost_node_is_told_while_a_pod_finds_no_room_to_leave_its_host() -> None:
    """Both the node and what lacks for the move are in the message, and the reason is that of the more urgent one."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    running(leader)
    hosts = ranks_of(leader.placed())
    ask(leader, replace=hosts[2])
    node = leader.stores.nodes.get(hosts[0])
    assert node is not None
    since = 1_800_000_000.0 + leader.now
    leader.has(replace(node, ready=False, settled_at=since, resource_version=leader.hands.version()))
    leader.later(70.0)
    leader.later(70.0)  # its text follows after a while
    assert leader.status() == ("Incomplete", "NodeLost")
    placed = leader.placed()
    assert placed is not None
    assert f"{hosts[0]} is not ready for 60 s" in placed.status["message"]
    assert f"rank 2 leaves {hosts[2]} (topogate.dev/replace): needs room" in placed.status["message"]


def loses_rank_0(leader: Leader, pods: dict[int, Pod]) -> None:
    """Its host is cordoned, its pod ends, and the next one is held."""
    node = leader.stores.nodes.get(pods[0].spec.node_name)
    assert node is not None
    leader.has(replace(node, unschedulable=True, resource_version=leader.hands.version()))
    ends(leader, pods[0])
    leader.has(pod(leader.workload(), 0, gated=True, name="again"))
    leader.later(10.0)


def test_a_lost_rank_and_the_last_pod_that_leaves_its_host_go_to_another_rack_together() -> None:
    """Alone the lost one would have to join the other, in a rack that is full."""
    leader = two_racks(hosts=2)
    pods = running(leader, movable(count=2))
    loses_rank_0(leader, pods)
    assert leader.status()[0] == "Incomplete"
    before = set(ranks_of(leader.placed()).values())
    ask(leader, replace=pods[1].spec.node_name)
    assert leader.hands.of("move") == ["train"]
    assert leader.hands.of("release") == ["again"]
    assert leader.hands.of("evict") == [pods[1].name]
    assert not set(ranks_of(leader.placed()).values()) & before


def test_a_lost_rank_gets_the_only_host_while_a_pod_finds_no_room_to_leave_its_own() -> None:
    """The user asks for the move while there is no room; then there is room for one of them."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    pods = running(leader, movable(count=2))
    loses_rank_0(leader, pods)
    ask(leader, replace=pods[1].spec.node_name)
    leader.has(*[one for one in gpu_nodes(1, 1, 3) if one.name == "b0-r0-h2"])
    leader.settle()
    assert ranks_of(leader.placed()) == {0: "b0-r0-h2", 1: pods[1].spec.node_name}
    assert leader.hands.of("repair") == ["train"]
    assert leader.hands.of("evict") == leader.hands.of("move") == []


def test_a_further_host_to_be_left_moves_no_pod_back_that_has_its_new_slot() -> None:
    """Neither may be evicted for now: each has its slot, and nothing more is written."""
    leader = two_racks()
    pods = running(leader)
    leader.hands.deaf = True
    ask(leader, replace=pods[1].spec.node_name)
    first = ranks_of(leader.placed())
    ask(leader, replace=f"{pods[1].spec.node_name},{pods[2].spec.node_name}")
    leader.later(REMOVE_AGAIN)
    assert leader.hands.of("move") == ["train", "train"]
    assert ranks_of(leader.placed()) == {**first, 2: "b0-r0-h5"}


@pytest.mark.parametrize("by_rank", [True, False])
def test_a_move_that_is_taken_back_before_its_pod_has_left_gives_it_its_slot_again(by_rank: bool) -> None:
    """Its eviction is refused. When it ends, its successor goes where it was, and nobody else has got that host."""
    leader = two_racks(hosts=5)
    hosts = runs(leader, by_rank=by_rank)
    leader.hands.deaf = True
    ask(leader, replace=hosts[2])
    assert slots_of_train(leader) != hosts
    ask(leader, replace=None)
    leader.later(60.0)
    assert slots_of_train(leader) == hosts
    assert leader.status() == ("Running", "")
    assert len(leader.hands.of("evict")) == 1
    leader.has(job("other", count=1, held=True, require="host"))
    [last] = [one for one in leader.stores.pods.values() if one.spec.node_name == hosts[2]]
    ends(leader, last)
    assert hosts[2] not in ranks_of(leader.placed("other")).values()
    leader.has(pod(leader.workload(), 2 if by_rank else None, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("release") == ["again"]
    assert slots_of_train(leader) == hosts


def test_a_lost_node_is_told_while_a_pod_that_stayed_cannot_have_its_slot_again() -> None:
    """The move to another rack is taken back when one pod has followed its slot; then the host of that one is lost."""
    leader = two_racks(hosts=2)
    pods = running(leader, movable(count=2))
    leader.hands.deaf = True
    ask(leader, replace=",".join(one.spec.node_name for one in pods.values()))
    new = ranks_of(leader.placed())
    ends(leader, pods[0])
    leader.has(pod(leader.workload(), 0, host=new[0], name="again"))
    ask(leader, replace=None)
    leader.later(10.0)
    beside = f"rank 1 runs on {pods[1].spec.node_name}, where no slot is"
    assert leader.status() == ("Running", "")
    assert leader.placed().status["message"].endswith(beside)
    node = leader.stores.nodes.get(new[0])
    assert node is not None
    dead = 1_800_000_000.0 + leader.now
    leader.has(replace(node, ready=False, settled_at=dead, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(70.0)
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "NodeLost")
    assert leader.placed().status["message"].endswith(beside)


def test_pods_of_several_hosts_leave_together_or_not_at_all() -> None:
    """Two hosts to be left, one free host: nobody moves. With two free ones both move by one write."""
    leader = two_racks(hosts=5)
    pods = running(leader)
    hosts = ranks_of(leader.placed())
    ask(leader, replace=f"{hosts[0]}, {hosts[3]}")
    leader.later(30.0)
    assert leader.hands.of("move") == leader.hands.of("evict") == []
    leader.has(*[one for one in gpu_nodes(1, 2, 6) if one.name == f"{hosts[0].rpartition('-')[0]}-h5"])
    leader.settle()
    assert leader.hands.of("move") == ["train"]
    assert sorted(leader.hands.of("evict")) == sorted([pods[0].name, pods[3].name])


def test_a_request_that_is_taken_back_moves_nobody_any_more() -> None:
    """It waits for room; without the annotation the gang runs as before, also when there is room."""
    leader = two_racks(hosts=4)
    running(leader)
    host = ranks_of(leader.placed())[1]
    ask(leader, replace=host)
    leader.later(30.0)
    ask(leader, replace=None)
    leader.has(*gpu_nodes(1, 2, 6))
    leader.later(30.0)
    assert leader.hands.of("move") == leader.hands.of("evict") == []
    assert leader.status() == ("Running", "")


@pytest.mark.parametrize("cost", ["retry", "group", "workload", "lost"])
def test_pods_that_cost_more_than_their_work_stay(cost: str) -> None:
    """Submitted while no webhook was there: its request is refused, and a running gang runs on."""
    leader = two_racks()
    running(leader, movable(cost=cost))
    ask(leader, replace=ranks_of(leader.placed())[2])
    leader.later(60.0)
    assert leader.hands.of("move") == leader.hands.of("evict") == []
    assert leader.status()[0] == "Running"


def test_a_host_without_pods_of_the_gang_changes_nothing() -> None:
    """Also a name that no node has."""
    leader = two_racks()
    running(leader)
    calls = len(leader.hands.calls)
    ask(leader, replace="b0-r1-h5,nowhere")
    leader.later(60.0)
    assert len(leader.hands.calls) == calls


def test_a_pod_that_may_not_be_evicted_keeps_its_place_and_is_asked_again() -> None:
    """A disruption budget: its new slot is kept, and the status says why it has not moved."""
    leader = two_racks()
    running(leader)
    leader.hands.deaf = True
    host = ranks_of(leader.placed())[2]
    ask(leader, replace=host)
    assert len(leader.hands.of("evict")) == 1
    leader.later(REMOVE_AGAIN - 1)
    assert len(leader.hands.of("evict")) == 1
    assert leader.status() == ("Running", "Moving")
    placed = leader.placed()
    assert placed is not None
    assert f"rank 2 leaves {host} (topogate.dev/replace); evicted again every 30 s" in placed.status["message"]
    leader.later(1.0)
    assert len(leader.hands.of("evict")) == 2
    assert leader.hands.of("move") == ["train"]


def test_the_host_is_not_used_again_while_the_request_stands() -> None:
    """A lost rank goes elsewhere, and so does a gang that is planned anew."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6))
    pods = running(leader)
    before = ranks_of(leader.placed())
    ask(leader, replace=before[2])
    ends(leader, pods[2])
    leader.has(pod(leader.workload(), 2, host=ranks_of(leader.placed())[2]))
    leader.settle()
    node = leader.stores.nodes.get(before[1])
    assert node is not None
    leader.has(replace(node, unschedulable=True, resource_version=leader.hands.version()))
    ends(leader, pods[1])
    leader.later(10.0)
    assert before[2] not in ranks_of(leader.placed()).values()
    leader.has(replace(movable("next", count=1), annotations={names.REQUIRE: "host", names.REPLACE: before[2]}))
    leader.later(10.0)
    assert leader.placed("next") is None or before[2] not in ranks_of(leader.placed("next")).values()


def test_pods_without_ranks_leave_one_by_one_slot() -> None:
    """As many are evicted as have got slots elsewhere; those on other hosts stay."""
    leader = two_racks()
    gang = movable(ranked=False)
    leader.has(gang)
    leader.settle()
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None
    hosts = [slot.host for slot in placed.assignment.pod_sets[0].slots]
    pods = [pod(leader.workload(), None, host=host) for host in hosts]
    leader.has(*pods)
    leader.later(10.0)
    ask(leader, replace=f"{hosts[0]},{hosts[1]}")
    assert leader.hands.of("move") == ["train"]
    assert sorted(leader.hands.of("evict")) == sorted([pods[0].name, pods[1].name])
    after = leader.placed()
    assert after is not None and after.assignment is not None
    assert not {hosts[0], hosts[1]} & {slot.host for slot in after.assignment.pod_sets[0].slots}
    assert {hosts[2], hosts[3]} <= {slot.host for slot in after.assignment.pod_sets[0].slots}


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("by_rank", [True, False])
def test_a_pod_of_a_gang_with_fewer_slots_than_pods_leaves_its_host(by_rank: bool, held: int) -> None:
    """Only its minimum has slots: no pod that waits for one gets the new slot before a pod has left for it."""
    nodes = gpu_nodes(1, 1, 5)
    leader = Leader(nodes=nodes[:4])
    gang = movable(count=6, ranked=by_rank)
    leader.has(replace(gang, annotations={**gang.annotations, names.MIN_AVAILABLE: "4"}))
    leader.settle()
    hosts = slots_of_train(leader)
    pods = [
        pod(leader.workload(), rank if by_rank else None, host=host, pin=host, name=f"train-{rank}", uid=f"uid-{rank}")
        for rank, host in enumerate(hosts)
    ]
    waiting = [
        pod(leader.workload(), rank if by_rank else None, gated=True, name=f"train-{rank}", uid=f"uid-{rank}")
        for rank in (4, 5)[:held]
    ]
    leader.has(*pods, *waiting)
    leader.later(10.0)
    ask(leader, replace=hosts[1])
    leader.has(nodes[4])
    leader.settle()
    leader.later(10.0)
    assert leader.hands.of("move") == ["train"]
    assert leader.hands.of("evict") == ["train-1"]
    assert slots_of_train(leader) == sorted({*hosts, nodes[4].name} - {hosts[1]})
    ends(leader, pods[1])
    again = pod(leader.workload(), 1 if by_rank else None, gated=True, name="again", uid="uid-again")
    leader.has(again)
    leader.settle()
    steps = [call for call, _ in leader.hands.calls if call in ("move", "evict", "release")]
    assert steps == ["move", "evict", "release"]
    assert leader.hands.of("release") == ["train-4" if held and not by_rank else "again"]


def test_only_pods_that_cost_nothing_leave_where_others_are_on_the_host_too() -> None:
    """The launcher stays: deleting it is a failure of the workload."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = job("train", count=1, held=True)
    launcher = replace(pod_set("launcher", count=1), selector=(("role", "launcher"),))
    workers = replace(pod_set("workers", count=2), selector=(("role", "worker"),), replace="free")
    gang = replace(gang, pod_sets=(launcher, workers))
    leader.has(gang)
    leader.settle()
    placed = leader.placed()
    assert placed is not None and placed.assignment is not None
    pods: list[Pod] = []
    for plan, role in zip(placed.assignment.pod_sets, ("launcher", "worker"), strict=True):
        for slot in plan.slots:
            for first, _ in slot.ranks or ():
                one = pod(leader.workload(), first, host=slot.host, name=f"{role}-{first}")
                pods.append(replace(one, spec=replace(one.spec, labels={**one.spec.labels, "role": role})))
    leader.has(*pods)
    leader.later(10.0)
    ask(leader, replace=",".join(sorted({one.spec.node_name for one in pods if one.name != "worker-1"})))
    assert leader.hands.of("evict") == ["worker-0"]


def test_nothing_moves_on_hold() -> None:
    """The admin is about to drain hosts: nothing new is placed."""
    leader = two_racks(policy="mode: enforce\n")
    running(leader)
    host = ranks_of(leader.placed())[2]
    leader.view.set_policy(two_racks(policy="mode: hold\n").view.policy)
    ask(leader, replace=host)
    leader.later(30.0)
    assert leader.hands.of("move") == []
    assert leader.status() == ("Running", "PolicyHold")


@pytest.mark.parametrize("call", ["move", "evict"])
@pytest.mark.parametrize("fault", [unavailable, not_leader, crash])
def test_a_leader_that_ends_at_any_step_is_continued_by_the_next(call: str, fault: object) -> None:
    """The step fails, the leader goes, another one comes: the pod moves once, and no other is touched."""
    leader = two_racks()
    pods = running(leader)
    before = ranks_of(leader.placed())
    leader.hands.broken[call] = fault  # type: ignore[assignment]
    ask(leader, replace=before[2])
    del leader.hands.broken[call]
    leader.leading = False
    leader.turn()
    leader.leading = True
    leader.hands.calls.clear()
    leader.later(2 * REMOVE_AGAIN)
    assert leader.hands.of("move") == (["train"] if call == "move" else [])
    assert leader.hands.of("evict") == [pods[2].name]
    assert ranks_of(leader.placed())[2] != before[2]
