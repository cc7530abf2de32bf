"""The mode of single namespaces from submission to the leader: what is held there is let go, others are not touched."""

from __future__ import annotations

import copy

import pytest

from engine.api import names
from engine.policy.model import Policy, parse_policy
from tests.support.admission import FakeView, Json, apply, raw_job, raw_pod, review
from tests.support.cluster_records import changed, gpu_nodes, job, pod
from tests.support.leader import POLICY, Leader
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate


def policy(mode: str, *, of: str = "ml", others: str = "enforce") -> Policy:
    return parse_policy(f"{POLICY}mode: {others}\nnamespaces: {{modes: [{{namespaces: [{of}], mode: {mode}}}]}}\n")


def submitted(sent: Json, rules: Policy) -> tuple[Json, tuple[str, ...], int | None]:
    """The object as it is stored, the warnings, and the code of a refusal."""
    view = FakeView(policy=rules)
    made = mutate(review(sent), view, 0.0)
    stored = apply(copy.deepcopy(sent), made)
    checked = validate(review(stored), view, 0.0)
    return stored, (*made.warnings, *checked.warnings), None if checked.allowed else checked.code


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_job_is_left_as_it_is_where_the_mode_says_so(mode: str) -> None:
    """No suspension, no gate, no label; a wrong request passes. Observe warns, off says nothing."""
    for sent in (raw_job({names.REQUIRE: "rack"}), raw_job({names.REQUIRE: "rakc"})):
        stored, warnings, refused = submitted(sent, policy(mode))
        assert (stored, refused) == (sent, None)
        if mode == "off":
            assert warnings == ()
    if mode == "observe":
        assert warnings[0] == "topogate (observe): nothing is held or refused; with mode enforce:"
        assert any('"rakc"' in line for line in warnings)


def test_pods_with_a_request_follow_the_mode_of_their_namespace() -> None:
    """Held or left alone; a pod that lost its marks is refused where pods are held."""
    sent = raw_pod(annotations={names.REQUIRE: "rack"}, gates=())
    assert submitted(sent, policy("observe"))[0] == sent
    held = submitted(sent, policy("enforce", others="off"))[0]
    assert held["spec"]["schedulingGates"] == [{"name": names.GATE}]
    view = FakeView(policy=policy("enforce", others="off"))
    assert not validate(review(sent), view, 0.0).allowed
    assert validate(review(sent), FakeView(policy=policy("off")), 0.0).allowed


def test_a_namespace_is_managed_while_the_policy_is_off_elsewhere() -> None:
    """The first namespace of a rollout."""
    sent = raw_job({names.REQUIRE: "rack"})
    assert submitted(sent, policy("enforce", others="off"))[0]["spec"]["suspend"] is True
    stored, warnings, refused = submitted(sent, policy("enforce", of="web", others="off"))
    assert (stored, warnings, refused) == (sent, (), None)


def test_a_change_of_one_namespace_lets_its_gangs_go_and_says_why() -> None:
    """Waiting ones are resumed, running ones keep their pods; the Event of each names the entry of the policy."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    runs = job("runs", count=2, held=True)
    leader.has(runs)
    leader.settle()
    hosts = [slot.host for one in leader.placed("runs").assignment.pod_sets for slot in one.slots]
    leader.has(*(pod(leader.workload("runs"), rank, host=host) for rank, host in enumerate(hosts)))
    leader.has(job("waits", count=4, held=True), job("beside", count=4, held=True, namespace="ml"))
    leader.settle()
    assert leader.hands.of("place") == ["runs"]
    leader.view.set_policy(policy("observe", of="default"))
    leader.settle()
    assert sorted(leader.hands.of("let go")) == ["runs", "waits"]
    notes = dict(leader.hands.notes)
    where = "the policy's mode is observe in this namespace (namespaces.modes[0])"
    assert notes["waits"] == f"{where}; it is resumed and runs like any other workload"
    assert notes["runs"].startswith(f"{where}; its slots are released: running pods stay where they are")
    assert leader.workload("waits").suspended is False
    beside = leader.stores.workloads.get(("batch", "Job", "ml", "beside"))
    assert beside.suspended
    assert leader.placed("beside") is not None
    leader.view.set_policy(parse_policy(POLICY))
    leader.settle()
    assert "waits" not in leader.hands.of("place")  # it runs: only what comes is managed again


def test_what_was_still_to_be_told_of_a_gang_is_not_told_after_it_was_let_go() -> None:
    """One that was let go while it ran is not placed again, however soon the policy has its old mode again."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job("runs", count=2, held=True))
    leader.settle()
    hosts = [slot.host for one in leader.placed("runs").assignment.pod_sets for slot in one.slots]
    leader.has(*(pod(leader.workload("runs"), rank, host=host) for rank, host in enumerate(hosts)))
    leader.settle()
    assert leader.status("runs") == ("Running", "")
    gang = leader.workload("runs")
    leader.has(changed(gang, slots=1, total=1, remaining=1, generation=2, resource_version=leader.hands.version()))
    leader.settle()
    for mode in ("off", "enforce"):
        leader.view.set_policy(policy(mode, of="default"))
        leader.settle()
    assert leader.hands.of("let go") == ["runs"]
    leader.later(60)
    assert leader.placed("runs") is None
    assert leader.hands.of("place") == ["runs"]
