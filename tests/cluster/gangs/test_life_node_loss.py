"""Nodes that die under a running gang, and what the policy says to do."""

from __future__ import annotations

from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.eventually import eventually
from tests.support.gang_steps import failures, pod_of_index, status_of
from tests.support.gangs import Namespace, require

RETRIES = {"backoffLimit": 6}


def _lossy(action: str, *, rest: str = "") -> str:
    return f"{TEST_POLICY}nodeLoss: {action}\ntimeouts: {{node: 2s, recover: 4s}}\n{rest}"


def _moved(gangs: Namespace, job: str, index: int, before: dict[int, str]) -> str | None:
    """The host of the live pod of an index once it is not the old one."""
    host = gangs.bound(job).get(index)
    return host if host not in (None, before[index]) else None


def test_evicted_pods_of_a_dead_node_are_replaced_beside_the_others(gangs: Namespace, policy: PolicyInForce) -> None:
    """NotReady beyond timeouts.node: evicted; the old pod terminates for ever, its rank runs elsewhere in the rack."""
    policy.set(_lossy("evict"))
    gangs.fleet.grid("1x2x4")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 3)
    old = pod_of_index(gangs, "train", 1)["metadata"]["name"]
    gangs.fleet.fail(before[1])
    host = eventually(lambda: _moved(gangs, "train", 1, before), message=lambda: gangs.describe("train"))
    left = gangs.client.get(f"/api/v1/namespaces/{gangs.name}/pods/{old}")
    assert "deletionTimestamp" in left["metadata"]
    after = gangs.bound("train")
    assert (after[0], after[2]) == (before[0], before[2])
    assert gangs.fleet.rack_of(str(host)) == gangs.fleet.rack_of(before[0])
    gangs.fleet.recover(before[1])


def test_two_dead_nodes_are_one_repair(gangs: Namespace, policy: PolicyInForce) -> None:
    """Both ranks get other hosts of the rack; the third stays."""
    policy.set(_lossy("evict"))
    gangs.fleet.grid("1x1x6")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 3)
    for index in (0, 2):
        gangs.fleet.fail(before[index])
    for index in (0, 2):
        eventually(
            lambda index=index: _moved(gangs, "train", index, before),
            message=lambda: gangs.describe("train"),
        )
    assert gangs.bound("train")[1] == before[1]


def test_a_gang_on_a_dead_node_is_restarted_where_the_policy_says_so(gangs: Namespace, policy: PolicyInForce) -> None:
    """Suspended, planned anew without the dead host, resumed: all of it in a rack that holds it, no retry used."""
    policy.set(_lossy("restart"))
    gangs.fleet.grid("1x2x2")
    gangs.submit("train", pods=2, annotations=require("rack"))
    before = gangs.all_bound("train", 2)
    gangs.fleet.fail(before[0])

    def elsewhere() -> bool:
        after = gangs.bound("train")
        return len(after) == 2 and not set(after.values()) & set(before.values())

    eventually(elsewhere, message=lambda: gangs.describe("train"))
    assert failures(gangs, "train") == 0
    gangs.fleet.recover(before[0])


def test_by_default_a_dead_node_is_left_to_kubernetes_and_told(gangs: Namespace, policy: PolicyInForce) -> None:
    """nodeLoss wait: Incomplete with NodeLost, no pod is touched; Running again when the node is back."""
    policy.set(_lossy("wait"))
    gangs.fleet.grid("1x1x3")
    gangs.submit("train", pods=2, annotations=require("rack"))
    before = gangs.all_bound("train", 2)
    gangs.fleet.fail(before[0])
    eventually(lambda: status_of(gangs, "train").get("reason") == "NodeLost", message=lambda: gangs.describe("train"))
    assert status_of(gangs, "train")["phase"] == "Incomplete"
    assert gangs.bound("train") == before
    gangs.fleet.recover(before[0])
    eventually(lambda: gangs.phase("train") == "Running", message=lambda: gangs.describe("train"))


def test_a_deleted_node_is_repaired(gangs: Namespace, policy: PolicyInForce) -> None:
    """nodeLoss evict: its pods are removed after a moment, and their rank runs elsewhere."""
    policy.set(_lossy("evict"))
    gangs.fleet.grid("1x1x4")
    gangs.submit("train", pods=3, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 3)
    gangs.fleet.remove(before[2])
    eventually(lambda: _moved(gangs, "train", 2, before), message=lambda: gangs.describe("train"))
    assert {index: host for index, host in gangs.bound("train").items() if index != 2} == {
        0: before[0],
        1: before[1],
    }


def test_a_gang_that_is_not_whole_again_in_time_is_restarted(gangs: Namespace, policy: PolicyInForce) -> None:
    """incomplete restart: no room in its rack for the lost rank, so all of it moves to another one."""
    policy.set(_lossy("evict", rest="incomplete: restart\n"))
    gangs.fleet.grid("1x2x2")
    gangs.submit("train", pods=2, annotations=require("rack"), spec=RETRIES)
    before = gangs.all_bound("train", 2)
    gangs.fleet.fail(before[0])

    def elsewhere() -> bool:
        after = gangs.bound("train")
        return len(after) == 2 and not set(after.values()) & set(before.values())

    eventually(elsewhere, message=lambda: gangs.describe("train"))
    gangs.fleet.recover(before[0])
