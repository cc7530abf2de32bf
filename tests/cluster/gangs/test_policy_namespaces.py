"""Rules for namespaces on a running service."""

from __future__ import annotations

import pytest

from engine.api import names
from local.client import ClientError
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, occupy, vacate
from tests.support.gangs import Namespace, prefer, require


def rules(gangs: Namespace, rule: str, *, more: str = "") -> str:
    return f"{TEST_POLICY}namespaces: {{rules: [{{namespaces: [{gangs.name}], {rule}}}]}}\n{more}"


def refused(gangs: Namespace, name: str, **job: object) -> str:
    with pytest.raises(ClientError) as refusal:
        gangs.submit(name, **job)
    assert refusal.value.status == 403
    return str(refusal.value)


def test_a_rule_refuses_with_the_path_and_the_field_of_the_policy(gangs: Namespace, policy: PolicyInForce) -> None:
    """Levels under every key, sizes, and requests at all; what asks for nothing runs."""
    gangs.fleet.grid("1x2x2")
    policy.set(rules(gangs, "levels: [rack, host], maxGangPods: 2"))
    block = refused(gangs, "block", pods=2, annotations=require("block"))
    assert 'metadata.annotations[topogate.dev/require-topology]: Forbidden: "block" is a level that' in block
    assert "allowed: rack, host (policy namespaces.rules[0].levels)" in block
    foreign = {"kueue.x-k8s.io/podset-preferred-topology": "block"}
    assert "kueue.x-k8s.io/podset-preferred-topology" in refused(gangs, "foreign", pods=2, annotations=foreign)
    large = refused(gangs, "large", pods=3, annotations=require("rack"))
    assert "spec.parallelism" in large
    assert "a gang has at most 2 pods (policy namespaces.rules[0].maxGangPods)" in large
    policy.set(rules(gangs, "exclusive: false"))
    alone = refused(gangs, "alone", pods=1, annotations={**require("rack"), names.EXCLUSIVE: "rack"})
    assert "metadata.annotations[topogate.dev/exclusive-topology]: Forbidden: gangs of this namespace may not" in alone
    assert "(policy namespaces.rules[0].exclusive)" in alone
    gangs.submit("train", pods=2, annotations=require("auto"))
    gangs.all_bound("train", 2)
    policy.set(rules(gangs, "allow: false"))
    closed = refused(gangs, "closed", pods=1, annotations=prefer("rack"))
    assert "metadata.annotations[topogate.dev/prefer-topology]: Forbidden: this namespace may not request" in closed
    gangs.submit("plain", pods=1)
    gangs.all_bound("plain", 1)
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))


def test_a_gang_that_a_later_rule_forbids_waits_until_it_is_allowed(gangs: Namespace, policy: PolicyInForce) -> None:
    """It is not failed, and nobody submits it again."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train", "InsufficientFreeGPUs")
    policy.set(rules(gangs, "allow: false"))
    gangs.waits("train", "NamespaceNotAllowed")
    vacate(gangs, other)
    assert gangs.job("train")["metadata"]["annotations"][names.HELD_BY] == names.HELD_BY_SUSPEND
    policy.set(TEST_POLICY)
    gangs.all_bound("train", 2)


def test_a_gang_waits_behind_those_of_its_namespace_and_goes_on(gangs: Namespace, policy: PolicyInForce) -> None:
    """At the limit of waiting gangs, and at the limit of hosts: each goes on when the number falls."""
    hosts = gangs.fleet.grid("1x1x3")
    policy.set(rules(gangs, "maxWaitingGangs: 1, maxReservedHosts: 2"))
    others = [occupy(gangs, host) for host in hosts]
    gangs.submit("first", pods=1, annotations=require("rack"))
    gangs.waits("first", "InsufficientFreeGPUs")
    gangs.submit("second", pods=2, annotations=require("rack"))
    gangs.waits("second", "WaitingGangsLimit")
    vacate(gangs, others[0])
    gangs.all_bound("first", 1)
    waits = gangs.waits("second", "ReservedHostsLimit")
    assert waits["status"]["message"].startswith("needs at least 2 more hosts; its namespace has slots on 1 host")
    for other in others[1:]:
        vacate(gangs, other)

    def needs_two() -> bool:
        status = gangs.waits("second", "ReservedHostsLimit")["status"]
        return bool(status["message"].startswith("needs 2 more hosts; its namespace has slots on 1 host"))

    eventually(needs_two, message="with room on every host the limit alone is in the way")
    delete_job(gangs, "first")
    gangs.all_bound("second", 2)


@pytest.mark.parametrize("order", ["best-effort", "strict"])
def test_two_namespaces_share_a_small_cluster(
    gangs: Namespace, beside: Namespace, policy: PolicyInForce, order: str
) -> None:
    """One has older gangs for the whole cluster: as its gangs end, those of the other start, until both have half."""
    gangs.fleet.grid("1x1x4")
    policy.set(f"{TEST_POLICY}queue: {{order: {order}, fairness: {{mode: namespaces}}}}\n")
    for number in range(4):
        gangs.submit(f"first{number}", pods=1, annotations=require("rack"))
    for number in range(4):
        gangs.all_bound(f"first{number}", 1)
    for number in range(3):
        gangs.submit(f"older{number}", pods=1, annotations=require("rack"))
        gangs.waits(f"older{number}")
    for number in range(3):
        beside.submit(f"newer{number}", pods=1, annotations=require("rack"))
        beside.waits(f"newer{number}")
    for number in range(2):
        delete_job(gangs, f"first{number}")
        beside.all_bound(f"newer{number}", 1)
    delete_job(gangs, "first2")
    gangs.all_bound("older0", 1)
    assert beside.phase("newer2") == gangs.phase("older1") == "Waiting"
    delete_job(beside, "newer0")
    beside.all_bound("newer2", 1)
    assert gangs.phase("older1") == "Waiting"
