"""Gangs that wait for nodes: new ones are requested, come, and are used; and no others are."""

from __future__ import annotations

from typing import Any

from local.nodes import NODES
from tests.cluster.conftest import StartAutoscaler
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import always, eventually
from tests.support.gang_steps import held_pods, resume, status_of
from tests.support.gangs import Namespace, require
from tests.support.node_pools import ATOMIC, CHECK, POOL, NodePool, pool, requests_path

Json = dict[str, Any]
ON = TEST_POLICY + f"autoscaling: {{provisioningRequest: {{className: {ATOMIC}, after: 0s}}}}\n"
WITH_FALLBACK = TEST_POLICY + (
    f"autoscaling: {{provisioningRequest: {{className: {CHECK}, after: 0s, parameters: {{noRetry: 'true'}}, "
    f"fallbacks: [{{className: {ATOMIC}}}]}}}}\n"
)


def requests(gangs: Namespace) -> list[Json]:
    """The requests in the test's namespace."""
    return gangs.client.items(requests_path(gangs.name))


def templates(gangs: Namespace) -> list[Json]:
    """The templates of requests."""
    return gangs.client.items(f"/api/v1/namespaces/{gangs.name}/podtemplates")


def count(gangs: Namespace, of: NodePool) -> int:
    """How many nodes of a pool there are."""
    return len(gangs.client.items(NODES, selector=f"{POOL}={of.name}"))


def test_a_gang_gets_a_rack_from_nothing(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """No node exists: four are requested with one request, come up in one rack, and run the gang; nothing is left."""
    hosts = pool(gangs.fleet, "rack-a", 6)
    start_autoscaler(hosts)
    policy.set(ON)
    gangs.submit("train", pods=4, annotations=require("rack"))
    bound = gangs.all_bound("train", 4)
    assert len(set(bound.values())) == 4
    assert len(gangs.racks(bound)) == 1
    assert count(gangs, hosts) == 4
    eventually(lambda: not requests(gangs) and not templates(gangs), message="the request is withdrawn")


def test_gated_pods_get_nodes_and_stay_gated_until_these_are_there(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """Somebody resumes the waiting Job: its pods exist, and an autoscaler does not count them; a request does."""
    policy.set(ON)
    gangs.submit("train", pods=3, annotations=require("rack"))
    gangs.waits("train")
    resume(gangs, "train")
    held_pods(gangs, "train", 3)
    hosts = pool(gangs.fleet, "rack-a", 6)
    start_autoscaler(hosts)
    assert len(gangs.racks(gangs.all_bound("train", 3))) == 1
    assert count(gangs, hosts) == 3


def test_a_gang_that_waits_for_quota_gets_no_nodes(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """Nodes would not help it; when the quota has room, they are requested."""
    hosts = pool(gangs.fleet, "rack-a", 6)
    start_autoscaler(hosts)
    quotas = f"/api/v1/namespaces/{gangs.name}/resourcequotas"
    gangs.client.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"requests.nvidia.com/gpu": "16"}}})
    eventually(lambda: gangs.client.get(f"{quotas}/few").get("status", {}).get("hard"), message="the quota counts")
    policy.set(ON)  # the leader knows the quota by now
    gangs.submit("train", pods=4, annotations=require("rack"))
    gangs.waits("train", "QuotaExceeded")
    always(lambda: not requests(gangs) and count(gangs, hosts) == 0, 3.0, "no node is requested")
    gangs.client.patch(f"{quotas}/few", {"spec": {"hard": {"requests.nvidia.com/gpu": "64"}}})
    gangs.all_bound("train", 4)


def test_a_request_that_fails_is_followed_by_one_of_the_next_class(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """There is nothing that a check could find; the fallback orders nodes."""
    hosts = pool(gangs.fleet, "rack-a", 6)
    start_autoscaler(hosts)
    policy.set(WITH_FALLBACK)
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    assert count(gangs, hosts) == 2


def test_free_hosts_in_several_racks_do_not_keep_a_gang_from_a_rack_of_its_own(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """Two free hosts in each of two racks are four for an autoscaler, and no rack for the gang: a third rack comes."""
    free = gangs.fleet.grid("1x2x2")
    hosts = pool(gangs.fleet, "rack-new", 4)
    start_autoscaler(hosts)
    policy.set(ON)
    gangs.submit("train", pods=4, annotations=require("rack"))
    assert not set(gangs.all_bound("train", 4).values()) & set(free)
    assert count(gangs, hosts) == 4


def test_a_gang_whose_nodes_are_ordered_and_never_come_waits_and_says_so(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """The autoscaler says Provisioned, and the hosts do not become ready: nothing of the gang starts."""
    hosts = pool(gangs.fleet, "rack-a", 4, joins=False)
    start_autoscaler(hosts)
    policy.set(ON)
    gangs.submit("train", pods=2, annotations=require("rack"))
    eventually(
        lambda: (status_of(gangs, "train").get("provisioning") or {}).get("state") == "Provisioned",
        message=lambda: f"the gang has heard of its nodes\n{gangs.describe('train')}",
    )
    assert "has provisioned nodes for 2 pods" in gangs.waits("train")["status"]["message"]
    always(lambda: not gangs.pods("train") and len(requests(gangs)) == 1, 3.0, "it waits with one request")


def test_an_expired_booking_is_followed_by_another_request(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """The cloud took the order of the first class and started nothing; the second class finds what is there by then."""
    start_autoscaler(pool(gangs.fleet, "rack-a", 4), booking=2.0, orders=False)
    policy.set(
        TEST_POLICY + f"autoscaling: {{provisioningRequest: {{className: {ATOMIC}, after: 0s, "
        f"parameters: {{ValidUntilSeconds: '600'}}, fallbacks: [{{className: {CHECK}}}]}}}}\n"
    )
    gangs.submit("train", pods=2, annotations=require("rack"))
    eventually(
        lambda: [one["spec"]["provisioningClassName"] for one in requests(gangs)] == [CHECK],
        message=lambda: f"the next class is asked\n{gangs.describe('train')}\n{requests(gangs)}",
    )
    hosts = gangs.fleet.grid("1x1x2")
    assert set(gangs.all_bound("train", 2).values()) == set(hosts)


def test_a_gang_that_no_pool_can_hold_waits_and_says_so(
    gangs: Namespace, policy: PolicyInForce, start_autoscaler: StartAutoscaler
) -> None:
    """It is withdrawn with the gang."""
    hosts = pool(gangs.fleet, "rack-a", 2)
    start_autoscaler(hosts)
    policy.set(ON)
    gangs.submit("train", pods=4, annotations=require("rack"))
    gangs.waits("train")
    eventually(
        lambda: "will try to find it later" in str(status_of(gangs, "train").get("message")),
        message=lambda: f"the message has the autoscaler's\n{gangs.describe('train')}",
    )
    assert gangs.pods("train") == []
    assert count(gangs, hosts) == 0
    gangs.client.delete(f"{gangs.jobs_path}/train")
    eventually(lambda: not requests(gangs) and not templates(gangs), message="the request goes with the gang")
