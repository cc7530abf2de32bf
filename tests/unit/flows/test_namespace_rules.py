"""Rules for namespaces from submission to the leader: new requests are refused, what exists stays or waits."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, Json, apply, edited, live, rack_job, raw_job, raw_pod, review
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.leader import POLICY, Leader
from tests.support.simulation import answer as simulated
from tests.support.simulation import grid
from tests.support.simulation import job as simulated_job
from webhook.admission.review import Response
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

RULES = """
namespaces:
  rules:
  - {namespaces: [ml], levels: [rack, host], maxGangPods: 4}
"""
CLOSED = parse_policy("namespaces: {rules: [{namespaces: [ml], allow: false}]}")
SMALL = parse_policy("namespaces: {rules: [{namespaces: [ml], maxGangPods: 4}]}")


def answered(new: Json, *, policy: str = RULES) -> Response:
    return validate(review(new), FakeView(policy=parse_policy(policy)), 0.0)


def test_a_refusal_by_a_rule_is_the_policys() -> None:
    """403 with the path of the annotation, as for other limits of the policy."""
    refused = answered(raw_job({names.REQUIRE: "block"}))
    assert (refused.allowed, refused.code) == (False, 403)
    assert refused.message == (
        'metadata.annotations[topogate.dev/require-topology]: Forbidden: "block" is a level that this namespace may '
        "not request; allowed: rack, host (policy namespaces.rules[0].levels)"
    )


def test_pod_group_labels_are_a_request_too() -> None:
    """Their user wrote no annotation: the message names the labels."""
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    view, sent = FakeView(policy=CLOSED), raw_job(labels=labels, template_labels=labels)
    refused = validate(review(apply(sent, mutate(review(sent), view, 0.0))), view, 0.0)
    assert refused.code == 403
    assert "remove the pod-group labels, or use another namespace" in refused.message


def test_plain_pods_follow_the_rules() -> None:
    """A pod with a request of its own is a gang of its namespace."""
    view, sent = FakeView(policy=CLOSED), raw_pod(annotations={names.REQUIRE: "rack"}, gates=())
    refused = validate(review(apply(sent, mutate(review(sent), view, 0.0))), view, 0.0)
    assert refused.code == 403
    assert "this namespace may not request a topology or a gang" in refused.message
    assert validate(review(raw_pod(gates=())), view, 0.0).allowed


def test_in_mode_observe_a_rule_only_warns() -> None:
    """The warning says what would be refused."""
    told = answered(raw_job({names.REQUIRE: "block"}), policy=f"mode: observe\n{RULES}")
    assert told.allowed
    assert any("would be refused" in line for line in told.warnings)


def test_a_scaled_up_gang_is_refused_and_a_scaled_down_one_is_not() -> None:
    """The limit is for what is asked anew: a gang above it may be changed otherwise, and may shrink."""
    view = FakeView(policy=SMALL)
    four, six, eight = (live(rack_job(parallelism=pods, completions=8)) for pods in (4, 6, 8))
    grown = validate(review(six, old=four), view, 0.0)
    assert grown.code == 403
    assert "spec.parallelism: Invalid value" in grown.message
    assert not validate(review(eight, old=six), view, 0.0).allowed
    assert validate(review(six, old=eight), view, 0.0).allowed
    labelled = copy.deepcopy(eight)
    labelled["metadata"]["labels"] = {"team": "a"}
    assert validate(review(labelled, old=eight), view, 0.0).allowed


def test_a_request_that_a_later_rule_forbids_does_not_block_other_changes() -> None:
    """Only a change of the request itself is refused again."""
    old = live(raw_job({names.REQUIRE: "rack"}))
    assert validate(review(edited(old, backoffLimit=3), old=old), FakeView(policy=CLOSED), 0.0).allowed
    other = live(raw_job({names.PREFER: "rack"}))
    assert validate(review(other, old=old), FakeView(policy=CLOSED), 0.0).code == 403


def test_a_namespace_without_requests_gets_no_default_and_no_warning() -> None:
    """Those who ask for nothing are left alone."""
    policy = "namespaces: {defaults: [{namespaces: ['*'], annotations: {topogate.dev/prefer-topology: rack}}], "
    view = FakeView(policy=parse_policy(policy + "rules: [{namespaces: [ml], allow: false}]}"))
    job = raw_job()
    made = mutate(review(job), view, 0.0)
    assert (made.patch, made.warnings) == ((), ())
    assert validate(review(apply(job, made)), view, 0.0).allowed


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("namespaces: {rules: [{namespaces: [default], allow: false}]}\n", "NamespaceNotAllowed"),
        ("namespaces: {rules: [{namespaces: [default], levels: [host]}]}\n", "LevelNotAllowed"),
        ("namespaces: {rules: [{namespaces: [default], maxGangPods: 3}]}\n", "GangLimitExceeded"),
        ("namespaces: {rules: [{namespaces: [default], exclusive: false}]}\n", "ExclusiveNotAllowed"),
    ],
)
def test_a_waiting_gang_waits_with_the_reason_of_a_later_rule_and_goes_on_without_it(policy: str, reason: str) -> None:
    """Nobody has to submit it again."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    other = pod(job("other"), 0, host="b0-r0-h0")
    train = job("train", count=4, held=True)
    leader.has(other, replace(train, annotations={**train.annotations, names.EXCLUSIVE: "host"}))
    leader.settle()
    assert leader.status()[0] == "Waiting"
    leader.view.set_policy(parse_policy(POLICY + policy))
    leader.settle()
    assert leader.status() == ("Waiting", reason)
    leader.view.set_policy(parse_policy(POLICY))
    leader.stores.pods.apply("DELETED", other)
    leader.settle()
    assert leader.hands.of("place") == ["train"]


@pytest.mark.parametrize("rule", ["allow: false", "levels: [block]", "exclusive: false", "maxGangPods: 1"])
def test_a_running_gang_stays_and_its_lost_pod_comes_back(rule: str) -> None:
    """A rule is for what is asked anew: a replaced pod is released to its slot as before."""
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    train = job("train", count=2, held=True)
    leader.has(replace(train, annotations={**train.annotations, names.EXCLUSIVE: "host"}))
    leader.settle()
    placement = leader.placed()
    assert placement is not None and placement.assignment is not None
    hosts = [slot.host for slot in placement.assignment.pod_sets[0].slots]
    leader.has(*(pod(leader.workload(), rank, host=host) for rank, host in enumerate(hosts)))
    leader.settle()
    leader.view.set_policy(parse_policy(f"{POLICY}namespaces: {{rules: [{{namespaces: [default], {rule}}}]}}\n"))
    leader.settle()
    assert leader.status()[0] == "Running"
    lost = next(one for one in leader.stores.pods.values() if one.name.endswith("1"))
    leader.stores.pods.apply("DELETED", lost)
    leader.has(pod(leader.workload(), 1, name="train-again", gated=True))
    leader.settle()
    assert leader.hands.of("release") == ["train-again"]
    assert leader.hands.of("suspend") == []


def test_auto_stands_for_the_lowest_allowed_level_in_plans() -> None:
    """Two pods fit on a rack; where only blocks may be named they stay in one block."""
    policy = parse_policy(
        "topologies: [{name: default, preset: demo}]\nnamespaces: {rules: [{namespaces: [default], levels: [block]}]}"
    )
    asked = [simulated_job("auto", 2, {names.REQUIRE: "auto"}), simulated_job("wide", 5, {names.REQUIRE: "auto"})]
    found = simulated(grid(2, 2, 4), asked, policy=policy)["workloads"]
    assert [one["podSets"][0]["require"] for one in found] == ["block", "block"]
    assert [one["podSets"][0]["require"] for one in simulated(grid(2, 2, 4), asked)["workloads"]] == ["rack", "block"]
