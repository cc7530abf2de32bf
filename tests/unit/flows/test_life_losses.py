"""What becomes of a running gang that loses pods or nodes, from the decision to what is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Node
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.lifecycle.host_health import GONE_AFTER
from engine.lifecycle.running import MISSED_AFTER
from engine.policy.model import Policy, parse_policy
from tests.support.cluster_records import REFUSAL, changed, gpu_nodes, job, pod, shape, spec
from tests.support.gang_oracles import overbooked_hosts, ranks_of
from tests.support.leader import POLICY, Leader, crash


def running(leader: Leader, count: int = 4, name: str = "train", **more: object) -> tuple[Workload, dict[int, Pod]]:
    """A gang of whole hosts, placed and bound."""
    leader.has(job(name, count=count, held=True, **more))
    leader.settle()
    gang = leader.workload(name)
    pods = {rank: pod(gang, rank, host=host) for rank, host in ranks_of(leader.placed(name)).items()}
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status(name) == ("Running", "")
    return gang, pods


def lose(leader: Leader, *pods: Pod) -> None:
    for one in pods:
        leader.stores.pods.apply("DELETED", one)


def dead(leader: Leader, host: str) -> Node:
    """The node is not ready from now on."""
    node = leader.stores.nodes.get(host)
    assert node is not None
    return replace(node, ready=False, settled_at=1_800_000_000.0 + leader.now, resource_version=leader.hands.version())


def cordoned(leader: Leader, host: str) -> Node:
    node = leader.stores.nodes.get(host)
    assert node is not None
    return replace(node, unschedulable=True, resource_version=leader.hands.version())


def gone(leader: Leader, host: str) -> None:
    node = leader.stores.nodes.get(host)
    assert node is not None
    leader.stores.nodes.apply("DELETED", node)


def two_racks(policy: str = "") -> Leader:
    """Two racks of six whole hosts."""
    return Leader(nodes=gpu_nodes(1, 2, 6), policy=POLICY + policy)


BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def with_levels(name: str, *levels: tuple[str, str]) -> Policy:
    """A policy with one topology of these levels, each with its label key."""
    listed = ", ".join(f"{{name: {level}, keys: [{key}]}}" for level, key in levels)
    return parse_policy(f"{POLICY}topologies: [{{name: {name}, levels: [{listed}]}}]\n")


# -- repair ----------------------------------------------------------------------------------------------------------


def test_a_lost_rank_gets_a_slot_in_the_rack_of_the_others() -> None:
    """Its node is gone: another host of the rack, though the other rack is empty; nobody else moves."""
    leader = two_racks()
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    gone(leader, before[2])
    lose(leader, pods[2])
    leader.settle()
    leader.later(MISSED_AFTER)
    after = ranks_of(leader.placed())
    assert leader.hands.of("repair") == ["train"]
    assert {rank: host for rank, host in after.items() if rank != 2} == {
        rank: host for rank, host in before.items() if rank != 2
    }
    assert after[2] not in before.values()
    assert after[2].rpartition("-")[0] == before[0].rpartition("-")[0]


def test_a_lost_slot_goes_to_a_node_once_that_has_settled() -> None:
    """`nodes.settle` holds for a part of a gang as for a whole one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY.replace("settle: 0s", "settle: 15s"))
    _, pods = running(leader)
    lost = ranks_of(leader.placed())[2]
    gone(leader, lost)
    lose(leader, pods[2])
    fresh = replace(gpu_nodes(1, 1, 5)[4], settled_at=1_800_000_000.0 + leader.now)
    leader.has(fresh)
    leader.settle()
    leader.later(14.0)
    assert leader.hands.of("repair") == []
    leader.now += 2.0
    leader.has(replace(fresh, labels={**fresh.labels, "any": "event"}, resource_version=leader.hands.version()))
    leader.settle()
    assert ranks_of(leader.placed())[2] == fresh.name


def test_a_repair_whose_plan_fails_is_planned_again() -> None:
    """A fault of ours, at the first plan and at a later one; nothing else changes in the cluster."""
    leader = two_racks()
    _, pods = running(leader, count=6)
    leader.hands.broken["plan"] = crash
    host = ranks_of(leader.placed())[1]
    gone(leader, host)
    lose(leader, pods[1])
    leader.later(MISSED_AFTER + 1.0)
    leader.hands.broken.clear()
    leader.later(60.0)
    assert leader.status() == ("Incomplete", "Fragmented")
    leader.hands.broken["plan"] = crash
    rack = ranks_of(leader.placed())[0].rpartition("-")[0]
    leader.has(*(one for one in gpu_nodes(1, 2, 7) if one.name == f"{rack}-h6"))
    leader.settle()
    leader.hands.broken.clear()
    leader.later(60.0)
    assert leader.hands.of("repair") == ["train"]


def test_several_lost_nodes_are_one_repair() -> None:
    """Two nodes at once: one new plan, one write."""
    leader = two_racks()
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    for rank in (1, 3):
        gone(leader, before[rank])
        lose(leader, pods[rank])
    leader.settle()
    leader.later(MISSED_AFTER)
    after = ranks_of(leader.placed())
    assert leader.hands.of("repair") == ["train"]
    assert (after[0], after[2]) == (before[0], before[2])
    assert len(set(after.values())) == 4


def test_a_lost_slot_may_come_back_where_its_own_reservation_was() -> None:
    """Another pod takes half of a host: one of the two lost ranks still fits there, and only there."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    half = shape(gpu=4)
    others = [
        pod(job(name), None, name=name, spec=spec(shape=half, node_name=host), owner=None)
        for name, host in (("early", "b0-r0-h2"), ("late", "b0-r0-h1"))
    ]
    leader.has(others[0])
    _, pods = running(leader, template=spec(gates=(names.GATE,), shape=half))
    before = ranks_of(leader.placed())
    assert [before[rank] for rank in range(4)] == ["b0-r0-h0", "b0-r0-h0", "b0-r0-h1", "b0-r0-h1"]
    lose(leader, pods[2], pods[3])
    leader.has(others[1])
    leader.settle()
    leader.later(MISSED_AFTER)
    after = ranks_of(leader.placed())
    assert [after[rank] for rank in (0, 1)] == ["b0-r0-h0", "b0-r0-h0"]
    assert sorted(after[rank] for rank in (2, 3)) == ["b0-r0-h1", "b0-r0-h2"]


def test_the_replacement_pod_is_released_into_the_new_slot() -> None:
    """It was held, as its old host takes nobody: after the repair it goes."""
    leader = two_racks()
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(cordoned(leader, before[1]))
    lose(leader, pods[1])
    leader.has(pod(gang, 1, gated=True, name="train-1-b"))
    leader.settle()
    assert leader.hands.of("release") == ["train-1-b"]
    assert ranks_of(leader.placed())[1] != before[1]


@pytest.mark.parametrize("trouble", ["cordon", "flap"])
def test_a_cordon_or_a_flap_moves_nobody(trouble: str) -> None:
    """The pods run on: nothing is planned and nothing written."""
    leader = two_racks()
    running(leader)
    before, calls = ranks_of(leader.placed()), list(leader.hands.calls)
    node = leader.stores.nodes.get(before[0])
    assert node is not None
    leader.has(cordoned(leader, before[0]) if trouble == "cordon" else dead(leader, before[0]))
    leader.later(20.0)
    leader.has(replace(node, resource_version=leader.hands.version()))
    leader.later(20.0)
    assert ranks_of(leader.placed()) == before
    assert leader.hands.calls == calls


def test_a_pod_that_fails_on_a_sound_host_keeps_its_slot() -> None:
    """The host takes its replacement: the slot stays."""
    leader = two_racks()
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    lose(leader, pods[2])
    leader.settle()
    assert ranks_of(leader.placed()) == before
    leader.has(pod(gang, 2, gated=True, name="train-2-b"))
    leader.settle()
    assert leader.hands.of("repair") == []
    assert leader.hands.of("release") == ["train-2-b"]


def test_a_pod_that_fails_keeps_its_slot_though_the_policy_has_its_level_no_more() -> None:
    """Its host is as sound as before: the replacement goes there, and no labels are missed."""
    leader = two_racks()
    leader.has(*(replace(node, labels={**node.labels, "row": node.name}) for node in gpu_nodes(1, 2, 6)))
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.view.set_policy(with_levels("default", ("block", BLOCK), ("row", "row")))
    lose(leader, pods[1])
    leader.later(MISSED_AFTER + 5.0)
    leader.has(pod(gang, 1, gated=True, name="again"))
    leader.later(10.0)
    assert leader.hands.of("release") == ["again"]
    assert ranks_of(leader.placed()) == before
    assert leader.status() == ("Incomplete", "WaitingForMembers")


@pytest.mark.parametrize(
    ("require", "name", "levels"),
    [
        ("rack", "training", (("block", BLOCK), ("rack", RACK))),
        (RACK, "default", (("zone", BLOCK), ("shelf", RACK))),
        (RACK, "training", (("shelf", RACK),)),
    ],
)
def test_a_lost_rank_gets_a_slot_though_the_policy_has_renamed_the_topology_or_the_level(
    require: str, name: str, levels: tuple[tuple[str, str], ...]
) -> None:
    """The request is as valid as before and means the same rack: the gang is not incomplete for ever."""
    leader = two_racks()
    gang, pods = running(leader, require=require)
    before = ranks_of(leader.placed())
    leader.view.set_policy(with_levels(name, *levels))
    gone(leader, before[2])
    lose(leader, pods[2])
    leader.settle()
    leader.later(MISSED_AFTER)
    leader.has(pod(gang, 2, gated=True, name="again"))
    leader.later(10.0)
    after, placed = ranks_of(leader.placed()), leader.placed()
    assert leader.hands.of("release") == ["again"]
    assert after[2] not in before.values()
    assert after[2].rpartition("-")[0] == before[0].rpartition("-")[0]
    assert placed is not None
    assert (placed.topology, placed.pod_sets[0].require) == (name, levels[-1][0])


def test_a_pod_that_terminates_for_ever_gives_its_rank_to_another_host() -> None:
    """Its node is dead, so its end is never seen; the replacement goes elsewhere, beside the others."""
    leader = two_racks()
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(dead(leader, before[3]))
    leader.has(replace(pods[3], deleting=True, resource_version=leader.hands.version()))
    leader.has(pod(gang, 3, gated=True, name="train-3-b"))
    leader.settle()
    after = ranks_of(leader.placed())
    assert after[3] != before[3]
    assert leader.hands.of("release") == ["train-3-b"]
    assert leader.view.capacity.reserved_by("uid-train").get("main", 0) == 1


def test_a_gang_without_room_for_its_lost_rank_says_so_and_is_repaired_when_there_is_some() -> None:
    """Incomplete with what is missing; the other rack is no way out; a host that comes back is."""
    leader = Leader(nodes=[*gpu_nodes(1, 2, 4)])
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    node = leader.stores.nodes.get(before[1])
    assert node is not None
    leader.has(cordoned(leader, before[1]))
    lose(leader, pods[1])
    leader.has(pod(gang, 1, gated=True, name="train-1-b"))
    leader.settle()
    leader.later(10.0)
    assert ranks_of(leader.placed()) == before
    assert leader.status() == ("Incomplete", "Fragmented")
    assert "1 pod" in leader.hands.told[-1][1].message
    assert before[1] in leader.hands.told[-1][1].message
    leader.has(replace(node, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("release") == ["train-1-b"]


def test_a_repair_goes_before_gangs_that_have_not_started() -> None:
    """The one free host of the rack is the running gang's, not that of the gang with the higher priority."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    gone(leader, before[0])
    lose(leader, pods[0])
    leader.has(pod(gang, 0, gated=True, name="train-0-b"))
    eager = job("eager", count=1, held=True)
    leader.has(changed(eager, template=replace(eager.template, priority=10)))
    leader.settle()
    assert leader.hands.of("repair") == ["train"]
    assert leader.hands.of("place") == ["train"]


def test_a_pod_that_is_pinned_beside_its_new_slot_goes_there_while_another_rank_has_no_room() -> None:
    """It was created in the moment of the repair of its rank: it must not wait until the other rank is repaired."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang = job(count=3, suspendable=False)
    gang, pods = running(leader, 3, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets))
    before = ranks_of(leader.placed())
    leader.has(cordoned(leader, before[1]))
    lose(leader, pods[1])
    leader.settle()
    leader.later(MISSED_AFTER)
    assert leader.hands.of("repair") == ["train"]
    leader.has(cordoned(leader, before[2]))
    lose(leader, pods[2])
    leader.has(pod(gang, 1, pin=before[1], name="late", unschedulable=REFUSAL), pod(gang, 2, gated=True, name="held"))
    leader.settle()
    leader.later(40.0)
    assert leader.hands.of("delete") == ["late"]
    assert leader.status() == ("Incomplete", "Fragmented")


def relabelled(leader: Leader, host: str, rack: str | None) -> Node:
    """The node with another label of its rack, or without one."""
    node = leader.stores.nodes.get(host)
    assert node is not None
    labels = {key: value for key, value in node.labels.items() if key != RACK}
    if rack is not None:
        labels[RACK] = rack
    return replace(node, labels=labels, resource_version=leader.hands.version())


@pytest.mark.parametrize("level", [{names.UNCONSTRAINED: "true"}, {names.PREFER: "rack"}])
@pytest.mark.parametrize("ranked", [True, False])
def test_a_pod_outside_the_topology_keeps_its_slot_while_the_gang_is_repaired_and_grows(
    level: dict[str, str], ranked: bool
) -> None:
    """No level is required: nothing depends on the rack of a node that lost its label. It is used by nobody twice."""
    leader = two_racks()
    gang = job(count=3, require=None, ranked=ranked, suspendable=False, held=True)
    leader.has(replace(gang, annotations={**gang.annotations, **level}))
    leader.settle()
    first = [slot.host for slot in leader.placed().assignment.pod_sets[0].slots]
    pods = [pod(leader.workload(), rank if ranked else None, host=host) for rank, host in enumerate(first)]
    leader.has(*pods)
    leader.later(10.0)
    leader.has(relabelled(leader, first[0], None), cordoned(leader, first[2]))
    lose(leader, pods[2])
    leader.has(pod(leader.workload(), 2 if ranked else None, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("repair") == ["train"]
    slots = {slot.host: slot for slot in leader.placed().assignment.pod_sets[0].slots}
    assert len(slots) == 3
    assert set(slots) & set(first) == set(first[:2])
    assert slots[first[0]].domain == ("b0", "b0-r0", first[0])
    (new,) = set(slots) - set(first)
    lose(leader, leader.stores.pods.get(("default", "again")))
    leader.has(pod(leader.workload(), 2 if ranked else None, host=new))
    grown = changed(leader.workload(), slots=5, total=5, remaining=5)
    leader.has(replace(grown, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    now = leader.placed().assignment.hosts
    assert len(now) == 5
    assert now > set(slots)
    assert not overbooked_hosts(leader.view, "nvidia.com/gpu")
    leader.has(relabelled(leader, first[0], "b0-r0"), job("other", count=6, require="block", held=True))
    leader.settle()
    assert not leader.placed("other").assignment.hosts & {*now, *first}


def test_what_helps_a_gang_with_a_pod_outside_the_topology_is_told() -> None:
    """Its level is required: the other pods cannot join one of no rack, until that one has left its node."""
    leader = two_racks()
    gang = job(count=3, suspendable=False)
    gang, pods = running(leader, 3, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets))
    before = ranks_of(leader.placed())
    leader.has(relabelled(leader, before[0], None), cordoned(leader, before[2]))
    lose(leader, pods[2])
    leader.has(pod(gang, 2, gated=True, name="again"))
    leader.settle()
    leader.later(40.0)
    assert leader.status() == ("Incomplete", "NodesExcluded")
    _, why = leader.placed().status["message"].split(": ", 1)
    assert why == (
        f"a pod of the gang is on {before[0]}, outside the topology (no label rack): "
        "bring that node back into it, or move the pod (topogate.dev/replace) or the gang (topogate.dev/replan)"
    )
    gang = leader.workload()
    asked = {**gang.annotations, names.REPLACE: before[0]}
    leader.has(replace(gang, annotations=asked, resource_version=leader.hands.version()))
    leader.settle()
    after = ranks_of(leader.placed())
    assert after[1] == before[1]
    assert not {after[0], after[2]} & set(before.values())
    assert leader.hands.of("evict") == [pods[0].name]


def test_a_refused_pod_that_is_pinned_by_labels_which_its_node_has_no_more_is_created_again() -> None:
    """Only its host has room, and would take a pod with a pin of now."""
    leader = Leader(nodes=gpu_nodes(1, 2, 1))
    gang = job(count=2, require=None, suspendable=False, held=True)
    gang = replace(gang, annotations={**gang.annotations, names.UNCONSTRAINED: "true"})
    leader.has(replace(gang, pod_sets=tuple(replace(one, replace="free") for one in gang.pod_sets)))
    leader.settle()
    gang, hosts = leader.workload(), ranks_of(leader.placed())
    late = pod(gang, 1, pin=hosts[1], name="late")
    selector = ((RACK, leader.stores.nodes.get(hosts[1]).labels[RACK]),)
    late = replace(late, spec=replace(late.spec, shape=replace(late.spec.shape, node_selector=selector)))
    leader.has(pod(gang, 0, host=hosts[0]), late)
    leader.settle()
    leader.has(replace(late, unschedulable=REFUSAL, resource_version=leader.hands.version()))
    leader.settle()
    assert leader.hands.of("delete") == []
    leader.has(relabelled(leader, hosts[1], "b0-r9"))
    leader.settle()
    assert leader.hands.of("delete") == ["late"]
    lose(leader, late)
    leader.has(pod(gang, 1, gated=True, name="again"))
    leader.settle()
    assert leader.hands.of("release") == ["again"]
    assert ranks_of(leader.placed()) == hosts


def test_a_gang_of_which_nothing_runs_any_more_may_go_to_another_rack() -> None:
    """The whole rack is lost: nothing has to be joined."""
    leader = two_racks()
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    for host in {f"{before[0].rpartition('-')[0]}-h{number}" for number in range(6)}:
        gone(leader, host)
    leader.has(*(replace(one, phase="Failed", resource_version=leader.hands.version()) for one in pods.values()))
    leader.has(*(pod(gang, rank, gated=True, name=f"train-{rank}-b") for rank in range(4)))
    leader.settle()
    after = ranks_of(leader.placed())
    assert not set(after.values()) & set(before.values())
    assert len(leader.hands.of("release")) == 4


def test_pods_that_end_one_after_the_other_on_hosts_without_a_kubelet_are_not_lost() -> None:
    """A pod that has ended well is out of sight before its Job counts it: nothing is planned anew for its rank."""
    leader = two_racks()
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(dead(leader, before[0]), dead(leader, before[1]))
    lose(leader, pods[0])
    leader.settle()
    leader.later(MISSED_AFTER - 1.0)
    assert leader.controller._pause() <= 1.0
    leader.has(changed(gang, finished_ranks=((0, 0),), remaining=3, resource_version=leader.hands.version()))
    leader.later(MISSED_AFTER)
    assert leader.hands.of("repair") == []
    assert ranks_of(leader.placed()) == before


def test_pods_without_ranks_that_end_on_a_dead_host_are_not_lost_either() -> None:
    """The same where any slot is as good as another; a replacement that is held gets a slot at once."""
    leader = two_racks()
    leader.has(job(count=2, held=True, ranked=False))
    leader.settle()
    gang, placed = leader.workload(), leader.placed()
    assert placed is not None
    assert placed.assignment is not None
    pods = [pod(gang, None, host=slot.host) for slot in placed.assignment.pod_sets[0].slots]
    leader.has(*pods)
    leader.settle()
    leader.has(dead(leader, pods[0].spec.node_name))
    lose(leader, pods[0])
    leader.settle()
    assert leader.hands.of("repair") == []
    leader.has(pod(gang, None, gated=True, name="train-b"))
    leader.settle()
    assert leader.hands.of("repair") == ["train"]
    assert leader.hands.of("release") == ["train-b"]


@pytest.mark.parametrize("back", [True, False], ids=["comes back", "stays away"])
def test_nothing_moves_while_a_pod_lives_on_a_node_that_is_not_there(back: bool) -> None:
    """It may be registered again with the pod on it, in its old rack: others wait for that, or for the pod's end."""
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    gang, pods = running(leader, 2)
    before = ranks_of(leader.placed())
    node = leader.stores.nodes.get(before[0])
    assert node is not None
    gone(leader, before[0])
    leader.has(cordoned(leader, before[1]))
    lose(leader, pods[1])
    leader.has(pod(gang, 1, gated=True, name="train-1-b"))
    leader.later(10.0)
    leader.later(10.0)
    assert ranks_of(leader.placed()) == before
    if back:
        leader.has(replace(node, resource_version=leader.hands.version()))
        leader.later(10.0)
        leader.later(10.0)
        assert ranks_of(leader.placed()) == before  # there is no room in its rack
        assert leader.status() == ("Incomplete", "Fragmented")
    else:
        lose(leader, pods[0])
        leader.later(10.0)
        leader.later(10.0)
        assert not set(ranks_of(leader.placed()).values()) & set(before.values())


def test_only_hosts_of_lost_ranks_are_named() -> None:
    """Not those of ranks that have ended, nor those that others of the gang run on."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(changed(gang, finished_ranks=((0, 0),), remaining=3, resource_version=leader.hands.version()))
    for rank in (0, 1):
        gone(leader, before[rank])
        lose(leader, pods[rank])
    leader.has(pod(gang, 1, gated=True, name="train-1-b"))
    leader.later(10.0)
    leader.later(10.0)
    placed = leader.placed()
    assert placed is not None
    assert before[1] in placed.status["message"]
    assert before[0] not in placed.status["message"]


# -- nodes that are lost ---------------------------------------------------------------------------------------------


def test_wait_leaves_a_dead_node_to_kubernetes_and_says_so() -> None:
    """nodeLoss wait: beyond timeouts.node the gang is Incomplete, and nothing is removed."""
    leader = two_racks()
    running(leader)
    leader.has(dead(leader, ranks_of(leader.placed())[0]))
    leader.later(59.0)
    assert leader.status() == ("Running", "")
    leader.later(2.0)
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "NodeLost")
    assert leader.hands.of("evict") == leader.hands.of("delete") == []


def test_evict_asks_for_the_eviction_of_the_pods_on_a_dead_node_and_repairs() -> None:
    """nodeLoss evict: the pods of that node alone, once; their ranks get new slots."""
    leader = two_racks("nodeLoss: evict\n")
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(dead(leader, before[1]))
    leader.later(61.0)
    assert leader.hands.of("evict") == [pods[1].name]
    assert ranks_of(leader.placed())[1] != before[1]
    leader.later(120.0)
    assert leader.hands.of("evict") == [pods[1].name]


def test_an_eviction_that_has_no_effect_is_asked_for_again_after_a_pause() -> None:
    """A disruption budget may allow it later: not in every turn, and not never."""
    leader = two_racks("nodeLoss: evict\n")
    running(leader)
    leader.hands.deaf = True
    leader.has(dead(leader, ranks_of(leader.placed())[1]))
    leader.later(61.0)
    leader.later(1.0)
    assert len(leader.hands.of("evict")) == 1
    leader.later(30.0)
    assert len(leader.hands.of("evict")) == 2


def test_pods_whose_node_is_gone_are_removed_at_once_where_the_policy_evicts() -> None:
    """No kubelet will ever end them; a node that registers again within seconds keeps them."""
    leader = two_racks("nodeLoss: evict\n")
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    gone(leader, before[0])
    leader.settle()
    leader.later(GONE_AFTER - 1.0)
    assert leader.hands.of("delete") == []
    leader.later(1.5)
    assert leader.hands.of("delete") == [pods[0].name]
    leader.later(MISSED_AFTER)
    assert ranks_of(leader.placed())[0] != before[0]


def test_restart_suspends_the_gang_and_plans_it_anew() -> None:
    """nodeLoss restart: suspended, its slots given back, planned without the dead host, resumed."""
    leader = two_racks("nodeLoss: restart\n")
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    leader.has(dead(leader, before[1]))
    leader.now += 61.0
    leader.turn()
    leader.work()
    assert leader.hands.of("suspend") == ["train"]
    lose(leader, *pods.values())
    leader.later(10.0)
    assert before[1] not in ranks_of(leader.placed()).values()
    assert not leader.workload().suspended


# -- not whole again -------------------------------------------------------------------------------------------------


def test_a_gang_that_is_not_whole_again_in_time_is_restarted_where_the_policy_says_so() -> None:
    """incomplete restart: after timeouts.recover it is suspended and goes where all of it has room."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + "incomplete: restart\ntimeouts: {recover: 5m}\n")
    _, pods = running(leader)
    before = ranks_of(leader.placed())
    gone(leader, before[1])
    lose(leader, pods[1])
    leader.settle()
    leader.later(10.0)
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "Fragmented")
    leader.later(250.0)
    assert leader.hands.of("suspend") == []
    leader.now += 60.0
    leader.turn()
    leader.work()
    assert leader.hands.of("suspend") == ["train"]
    lose(leader, *(one for rank, one in pods.items() if rank != 1))
    leader.later(10.0)
    after = ranks_of(leader.placed())
    assert not set(after.values()) & set(before.values())


def test_by_default_a_gang_that_is_not_whole_again_is_kept() -> None:
    """incomplete keep: it goes on trying, and is never suspended."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    _, pods = running(leader)
    gone(leader, ranks_of(leader.placed())[1])
    lose(leader, pods[1])
    leader.settle()
    leader.later(10.0)
    leader.later(3600.0)
    assert leader.hands.of("suspend") == []
    assert leader.status() == ("Incomplete", "Fragmented")


def test_a_kind_that_cannot_be_suspended_is_never_restarted() -> None:
    """incomplete restart has no way there: the gang is kept and says so."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4), policy=POLICY + "incomplete: restart\n")
    gang = job(count=4)
    gang = replace(gang, suspendable=False)
    leader.has(gang, *(pod(gang, rank, gated=True) for rank in range(4)))
    leader.settle()
    placed = ranks_of(leader.placed())
    pods = [
        replace(one, spec=replace(one.spec, node_name=placed[rank]), phase="Running") for rank, one in _ranked(leader)
    ]
    leader.has(*(replace(one, resource_version=leader.hands.version()) for one in pods))
    leader.later(10.0)
    gone(leader, placed[1])
    lose(leader, pods[1])
    leader.later(10.0)
    leader.later(3600.0)
    assert leader.hands.of("suspend") == leader.hands.of("give back") == []
    assert leader.status()[0] == "Incomplete"


def _ranked(leader: Leader) -> list[tuple[int, Pod]]:
    pods = {int(one.spec.labels[names.COMPLETION_INDEX]): one for one in leader.stores.pods.values()}
    return sorted(pods.items())


# -- kinds whose pods have fixed names -------------------------------------------------------------------------------


def test_a_pod_that_blocks_its_own_replacement_is_named() -> None:
    """Its node is dead and its object stays: nobody makes another of that name, and the message says what helps."""
    leader = two_racks()
    _, pods = running(leader)
    host = ranks_of(leader.placed())[3]
    leader.has(dead(leader, host), replace(pods[3], deleting=True, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "WaitingForMembers")
    message = leader.hands.told[-1][1].message
    assert f"1 pod cannot terminate on {host}: delete with --force if the node is dead" in message


def test_a_pod_that_cannot_end_is_no_trouble_once_its_successor_has_completed() -> None:
    """A Job makes another pod of that rank at once: when it has completed, nobody waits for the old one."""
    leader = two_racks()
    gang, pods = running(leader)
    host = ranks_of(leader.placed())[3]
    leader.has(dead(leader, host), replace(pods[3], deleting=True, resource_version=leader.hands.version()))
    leader.has(changed(gang, finished_ranks=((3, 3),), remaining=3, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    assert leader.status()[0] == "Running"


def test_a_pod_beyond_the_size_of_its_gang_that_cannot_end_is_not_missed() -> None:
    """The gang was scaled down: all pods that it is to have are ready."""
    leader = two_racks()
    gang, pods = running(leader)
    host = ranks_of(leader.placed())[3]
    leader.has(dead(leader, host), replace(pods[3], deleting=True, resource_version=leader.hands.version()))
    leader.has(changed(gang, slots=3, total=3, remaining=3, generation=2, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    assert leader.status() == ("Running", "")


def test_a_pod_that_ends_on_a_sound_node_is_no_trouble() -> None:
    """It will be gone in a moment: the slot is shared with its replacement, and nothing is told."""
    leader = two_racks()
    _, pods = running(leader)
    told = len(leader.hands.told)
    leader.has(replace(pods[3], deleting=True, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    assert len(leader.hands.told) == told
    assert leader.hands.of("repair") == []


def test_a_rank_that_has_ended_needs_no_slot_in_a_repair() -> None:
    """Its host is gone, and nothing will go there again: only the rank that is lost wants room."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    gang, pods = running(leader, 3)
    before = ranks_of(leader.placed())
    leader.has(
        changed(gang, finished_ranks=((0, 0),), remaining=2, resource_version=leader.hands.version()),
    )
    for rank in (0, 1):
        gone(leader, before[rank])
        lose(leader, pods[rank])
    leader.settle()
    leader.later(MISSED_AFTER)
    after = ranks_of(leader.placed())
    assert leader.hands.of("repair") == ["train"]
    assert (after[1] not in before.values(), after[2]) == (True, before[2])
    assert leader.view.capacity.reserved("uid-train") == {after[1]: 1}


# -- what is told ----------------------------------------------------------------------------------------------------


def test_a_gang_that_has_lost_all_its_pods_says_so() -> None:
    """Its slots are kept, but it is not on its way: what is awaited is the Job's back-off."""
    leader = two_racks()
    _, pods = running(leader, 3)
    for rank, host in ranks_of(leader.placed()).items():
        leader.has(cordoned(leader, host))
        lose(leader, pods[rank])
    leader.settle()
    leader.later(10.0)
    assert leader.status() == ("Incomplete", "WaitingForMembers")
    assert leader.hands.notes[-1] == (
        "train",
        "3 pods lost; the Job creates new ones after its back-off of up to 6 min",
    )
    assert not [status for _, status in leader.hands.told if status.phase == "Placed"]


def test_a_gang_between_its_last_pod_and_its_end_is_not_placed_anew() -> None:
    """All ranks have ended well and the Job does not say so yet."""
    leader = two_racks()
    gang, pods = running(leader, 2)
    leader.has(*(replace(one, phase="Succeeded", resource_version=leader.hands.version()) for one in pods.values()))
    leader.has(changed(gang, remaining=0, finished_ranks=((0, 1),), resource_version=leader.hands.version()))
    leader.settle()
    leader.later(10.0)
    assert [status.phase for _, status in leader.hands.told] == ["Running"]


@pytest.mark.parametrize("phase", ["Placed", "Starting", "Running", "Incomplete", "Waiting"])
def test_a_running_gang_that_has_lost_its_slots_gets_them_back(phase: str) -> None:
    """The leader ended after it took them, before or after it reported that, and its pods were never ended."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    gang = replace(job(count=2), suspendable=False)
    leader.has(gang)
    leader.settle()
    before = ranks_of(leader.placed("train"))
    leader.has(*(pod(gang, rank, host=host, phase="Running") for rank, host in before.items()))
    leader.settle()
    placed = leader.placed("train")
    assert placed is not None
    status = {**placed.status, "phase": phase, "reason": ""}
    lost = replace(placed, assignment=None, status=status, resource_version=leader.hands.version())
    leader.stores.placements.apply("MODIFIED", lost)
    leader.settle()
    leader.later(5)
    assert ranks_of(leader.placed("train")) == before


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_pod_gets_the_slot_that_it_had_and_not_that_of_a_completed_one(lost: int) -> None:
    """Without indexes any slot would do; but another gang has got that of the pod that has completed."""
    leader = Leader(nodes=gpu_nodes(1, 1, 3))
    asked = {names.UNCONSTRAINED: "true", names.HELD_BY: names.HELD_BY_SUSPEND}
    leader.has(job(count=3, held=True, require=None, ranked=False, annotations=asked))
    leader.settle()
    gang = leader.workload()
    hosts = [f"b0-r0-h{number}" for number in range(3)]
    pods = [pod(gang, None, host=host, pin=host, name=f"p-{host}", phase="Running") for host in hosts]
    leader.has(*pods)
    leader.settle()
    leader.stores.pods.apply("DELETED", pods[0])
    leader.has(changed(gang, remaining=2, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(6)
    leader.has(job("other", count=1, held=True, require=None, annotations=asked, created=5000.0))
    leader.settle()
    assert ranks_of(leader.placed("other")) == {0: hosts[0]}
    leader.stores.pods.apply("DELETED", pods[lost])
    leader.settle()
    leader.has(pod(gang, None, gated=True, name="again"))
    leader.settle()
    leader.later(6)
    assert leader.hands.of("release") == ["again"]
    placed = leader.placed("train")
    assert placed is not None
    assert placed.assignment is not None
    assert placed.assignment.hosts == set(hosts[1:])
