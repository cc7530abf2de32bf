"""The leader ends at the worst moment: what is written down is carried out by the next one, once."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine.api import names as wire
from local.client import Client
from local.service import NAMESPACE, Service
from tests.support.books import Books
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require
from tests.support.obstacles import Obstacle
from tests.support.raw_pods import held

pytestmark = pytest.mark.timeout(150)

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/topogate"
FAILOVER = 9.5  # seconds after a crash: the lease's duration and a retry; 2 s when the leader is told to end
HANDOVER = 2.0
SLACK = 2.0  # for a machine with other work


def holder(client: Client) -> str:
    return str(client.get(LEASE)["spec"].get("holderIdentity") or "")


def planned(gangs: Namespace, job: str) -> dict[str, Any]:
    """Wait until slots are written down for a gang; its Placement."""

    def look() -> dict[str, Any] | None:
        placement = gangs.placement(job)
        return placement if placement and placement["spec"].get("assignment") else None

    found = eventually(look, message=f"{job} is planned")
    assert found is not None
    return found


def test_a_leader_killed_between_plan_and_resume_is_followed(
    gangs: Namespace, service: Service, client: Client
) -> None:
    """kill -9 when the Placement stands and the Job is still suspended: the other replica resumes the same plan."""
    names = gangs.fleet.grid("1x2x2")
    books = Books(client, gangs.fleet)
    with Obstacle(client, gangs.name, "resume"):
        gangs.submit("train", pods=2, annotations=require("rack"))
        before = planned(gangs, "train")
        assert gangs.job("train")["spec"]["suspend"] is True
        leader, was = service.leader(), holder(client)
        assert leader is not None
        leader.kill()
        killed = time.monotonic()
    eventually(lambda: holder(client) not in (was, ""), timeout=60, message="another replica leads")
    assert time.monotonic() - killed < FAILOVER + SLACK
    hosts = gangs.all_bound("train", 2)
    after = gangs.placement("train")
    assert after is not None
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    slots = before["spec"]["assignment"]["podSets"][0]["slots"]
    assert [slot["domain"][-1] for slot in slots] == [hosts[0], hosts[1]]
    assert sorted(hosts.values()) in (names[:2], names[2:])
    assert books.overbooked() == {}


def test_a_leader_killed_while_a_pod_group_starts_leaves_no_half(
    gangs: Namespace, service: Service, client: Client
) -> None:
    """Both Jobs have their slots before any of them is resumed: the other replica resumes both, on these slots."""
    gangs.fleet.grid("1x1x4")
    group = {wire.POD_GROUP: "mesh", wire.MIN_AVAILABLE: "4"}
    with Obstacle(client, gangs.name, "resume"):
        for name in ("first", "second"):
            gangs.submit(name, pods=2, annotations=group)
        before = [planned(gangs, name)["spec"]["assignment"]["podSets"] for name in ("first", "second")]
        assert [gangs.job(name)["spec"]["suspend"] for name in ("first", "second")] == [True, True]
        leader = service.leader()
        assert leader is not None
        leader.kill()
    for name, slots in zip(("first", "second"), before, strict=True):
        gangs.all_bound(name, 2, timeout=60.0)
        assert (gangs.placement(name) or {})["spec"]["assignment"]["podSets"] == slots


def test_after_the_death_of_all_replicas_everything_goes_on(gangs: Namespace, service: Service, client: Client) -> None:
    """kill -9 of both while a gang runs, one is planned with its pods held, one waits: each goes on where it stood."""
    gangs.fleet.grid("1x2x2")
    books = Books(client, gangs.fleet)
    gangs.submit("runs", pods=2, annotations=require("rack"))
    running = gangs.all_bound("runs", 2)
    with Obstacle(client, gangs.name, "release"):
        gangs.submit("held", pods=2, annotations=require("rack"), indexed=False)
        eventually(lambda: len([pod for pod in gangs.pods("held") if held(pod)]) == 2, message="two pods are held")
        gangs.submit("waits", pods=2, annotations=require("rack"))
        gangs.waits("waits")
        before = {job: planned(gangs, job) for job in ("runs", "held")}
        service.kill_all()
    service.start(2)
    assert len(gangs.all_bound("held", 2, timeout=40)) == 2
    assert gangs.bound("runs") == running
    for job, placement in before.items():
        after = gangs.placement(job)
        assert after is not None
        assert after["spec"] == placement["spec"]
    assert books.promised_twice(gangs) == {}
    assert gangs.job("waits")["spec"]["suspend"] is True
    assert gangs.pods("waits") == []
    client.delete(f"{gangs.jobs_path}/runs")
    gangs.all_bound("waits", 2)
    assert books.overbooked() == {}


def test_a_leader_that_is_told_to_end_hands_over_at_once(gangs: Namespace, service: Service, client: Client) -> None:
    """SIGTERM: the Lease is released, another replica leads within a retry (2 s), and gangs go on being placed."""
    gangs.fleet.grid("1x1x2")
    leader, was = service.leader(), holder(client)
    assert leader is not None
    leader.child.process.terminate()
    told = time.monotonic()
    eventually(lambda: holder(client) not in (was, ""), message="another replica leads")
    assert time.monotonic() - told < HANDOVER + SLACK
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    assert leader.child.process.wait(20) == 0
