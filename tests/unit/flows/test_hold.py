"""Mode hold: nothing new is placed, nothing is let go, what runs goes on, and afterwards the queue is in order."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.objects import Node
from engine.api.pod import Pod
from engine.lifecycle.running import MISSED_AFTER
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, apply, raw_job, review
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.gang_oracles import ranks_of
from tests.support.leader import POLICY, Leader
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

HOLD = POLICY + "mode: hold\n"
ELSEWHERE = POLICY + "namespaces: {modes: [{namespaces: [ml], mode: hold}]}\n"


def running(leader: Leader, name: str = "runs", count: int = 2) -> dict[int, Pod]:
    """Submit a gang, and let its pods run on their slots."""
    leader.has(job(name, count=count, held=True))
    leader.settle()
    slots = ranks_of(leader.placed(name))
    pods = {rank: pod(leader.workload(name), rank, host=host) for rank, host in slots.items()}
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status(name) == ("Running", "")
    return pods


def writes(leader: Leader) -> list[tuple[str, str]]:
    """What was done beside telling."""
    return [call for call in leader.hands.calls if call[0] not in ("tell", "reword")]


def test_a_job_is_accepted_and_held_with_a_warning() -> None:
    """Errors are refused as ever."""
    view = FakeView(policy=parse_policy(HOLD))
    sent = raw_job({names.REQUIRE: "rack"})
    stored = apply(copy.deepcopy(sent), mutate(review(sent), view, 0.0))
    assert stored["spec"]["suspend"] is True
    assert stored["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    answer = validate(review(stored), view, 0.0)
    assert answer.allowed
    assert answer.warnings == (
        "topogate: would wait: the policy's mode is hold; nothing new is placed until that changes",
    )
    wrong = raw_job({names.REQUIRE: "rakc"})
    assert not validate(review(wrong), view, 0.0).allowed


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_waiting_gangs_stay_and_go_on_in_the_order_of_the_queue(order: str) -> None:
    """Free hosts are not used, by those that waited before nor by those that come; a new leader does the same."""
    queue = f"queue: {{order: {order}}}\n"
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=POLICY + queue)
    other = pod(job("other"), 0, host="b0-r0-h0")
    leader.has(other, job("first", count=4, held=True, created=1.0))
    leader.settle()
    leader.view.set_policy(parse_policy(HOLD + queue))
    leader.settle()
    assert leader.status("first") == ("Waiting", "PolicyHold")
    assert dict(leader.hands.notes)["first"] == "the policy's mode is hold; nothing new is placed until that changes"
    before = writes(leader)
    leader.stores.pods.apply("DELETED", other)
    leader.has(job("third", count=2, held=True, created=3.0), job("second", count=3, held=True, created=2.0))
    leader.settle()
    leader.leading = False
    leader.settle()
    leader.leading = True
    leader.later(3600.0)
    assert writes(leader) == before
    assert {leader.status(name) for name in ("first", "second", "third")} == {("Waiting", "PolicyHold")}
    leader.view.set_policy(parse_policy(POLICY + queue))
    leader.settle()
    assert leader.hands.of("place") == ["first"]
    for name, then in (("first", "second"), ("second", "third")):
        done = changed(leader.workload(name), remaining=0)
        leader.has(replace(done, finished=True, resource_version=leader.hands.version()))
        leader.settle()
        assert leader.hands.of("place")[-1] == then


def test_others_do_not_wait_for_a_namespace_on_hold() -> None:
    """Also in strict order, where a gang that waits for capacity is not overtaken."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=f"{ELSEWHERE}queue: {{order: strict, patience: 1m}}\n")
    leader.has(job("held", count=4, held=True, namespace="ml", created=1.0))
    leader.settle()
    leader.later(600.0)
    leader.has(job("train", count=4, held=True, created=2.0))
    leader.settle()
    assert leader.hands.of("place") == ["train"]
    assert leader.status("held") == ("Waiting", "PolicyHold")


def test_time_on_hold_is_no_waiting_time() -> None:
    """Its level is not relaxed at the end of a maintenance that was longer than its user would wait."""
    soft = {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND, names.RELAX_AFTER: "10m"}
    leader = Leader(nodes=gpu_nodes(1, 2, 2), policy=HOLD)
    leader.has(job("train", count=3, held=True, annotations=soft))
    leader.settle()
    leader.later(7200.0)
    assert "waitingSince" not in leader.placed("train").status
    leader.view.set_policy(parse_policy(POLICY))
    leader.settle()
    assert leader.hands.of("relax") == []
    leader.later(601.0)
    assert leader.hands.of("relax") == ["train"]


def test_a_requeued_gang_keeps_its_place() -> None:
    """Whoever waited for its time-out went to the end of its priority; hold does not bring it to the front."""
    timeout = {names.REQUIRE: "rack", names.HELD_BY: names.HELD_BY_SUSPEND, names.SCHEDULE_TIMEOUT: "10m"}
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(pod(job("other"), 0, host="b0-r0-h0"), job("train", count=2, held=True, annotations=timeout))
    leader.settle()
    leader.later(601.0)
    assert leader.hands.of("requeue") == ["train"]
    at = leader.placed("train").status["requeuedAt"]
    for mode in (HOLD, POLICY):
        leader.view.set_policy(parse_policy(mode))
        leader.settle()
        assert leader.placed("train").status["requeuedAt"] == at


def node_of(leader: Leader, host: str) -> Node:
    node = leader.stores.nodes.get(host)
    assert node is not None
    return node


def test_a_running_gang_gets_its_lost_pod_back() -> None:
    """In its rack, as ever: its slot is not new."""
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    pods = running(leader)
    before = ranks_of(leader.placed("runs"))
    leader.view.set_policy(parse_policy(HOLD))
    leader.settle()
    leader.stores.nodes.apply("DELETED", node_of(leader, before[1]))
    leader.stores.pods.apply("DELETED", pods[1])
    leader.settle()
    leader.later(MISSED_AFTER)
    after = ranks_of(leader.placed("runs"))
    assert leader.hands.of("repair") == ["runs"]
    assert after[1] not in before.values()
    leader.has(pod(leader.workload("runs"), 1, name="again", gated=True))
    leader.settle()
    assert leader.hands.of("release") == ["again"]


def test_a_running_gang_grows_after_the_hold() -> None:
    """Until then the pods that exist run on, and the new ones say why they wait."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    running(leader)
    leader.view.set_policy(parse_policy(HOLD))
    leader.settle()
    grown = changed(leader.workload("runs"), slots=3, total=3, remaining=3)
    leader.has(replace(grown, generation=grown.generation + 1, resource_version=leader.hands.version()))
    leader.settle()
    leader.later(30.0)
    assert leader.hands.of("grow") == []
    assert leader.status("runs") == ("Running", "PolicyHold")
    leader.view.set_policy(parse_policy(POLICY))
    leader.settle()
    assert leader.hands.of("grow") == ["runs"]


@pytest.mark.parametrize("more", ["incomplete: restart\n", "nodeLoss: restart\n"])
def test_no_running_gang_is_stopped_that_could_not_start_again(more: str) -> None:
    """A restart by the policy waits for the end of the hold."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2), policy=POLICY + more)
    pods = running(leader)
    leader.view.set_policy(parse_policy(HOLD + more))
    leader.settle()
    node = node_of(leader, ranks_of(leader.placed("runs"))[0])
    since = 1_800_000_000.0 + leader.now
    leader.has(replace(node, ready=False, settled_at=since, resource_version=leader.hands.version()))
    if more.startswith("incomplete"):
        leader.stores.pods.apply("DELETED", pods[0])
    leader.settle()
    for _ in range(4):
        leader.later(600.0)
    assert leader.hands.of("suspend") == []
    assert leader.status("runs")[0] == "Incomplete"
    leader.view.set_policy(parse_policy(POLICY + more))
    leader.settle()
    assert leader.hands.of("suspend") == ["runs"]


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_a_gang_of_a_namespace_on_hold_waits_for_that_alone(order: str) -> None:
    """Whoever goes before it: the time is no waiting time, so its level is not relaxed."""
    policy = POLICY + f"queue: {{order: {order}}}\n"
    leader = Leader(nodes=gpu_nodes(1, 1, 4), policy=policy)
    running(leader, count=3)
    leader.has(job("first", count=2, held=True))
    leader.settle()
    held = job("held", count=2, held=True, namespace="ml")
    leader.has(replace(held, annotations={**held.annotations, names.RELAX_AFTER: "10m"}))
    leader.settle()
    leader.view.set_policy(parse_policy(policy + "namespaces: {modes: [{namespaces: [ml], mode: hold}]}\n"))
    leader.later(20)
    assert leader.status("held") == ("Waiting", "PolicyHold")
    leader.later(3600)
    leader.later(20)
    assert leader.status("held") == ("Waiting", "PolicyHold")
    assert leader.placed("held").pod_sets[0].require == "rack"
