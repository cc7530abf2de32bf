"""The leader ends at the worst moment: what is written down is carried out by the next one, once."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from engine.api import names as wire
from local.client import Client
from local.service import NAMESPACE, Service
from tests.support.books import Books
from tests.support.eventually import PATIENCE, eventually
from tests.support.gangs import Namespace, require
from tests.support.obstacles import Obstacle
from tests.support.raw_pods import held

pytestmark = pytest.mark.core

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/topogate"


def holder_of(lease: dict[str, Any]) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


def holder(client: Client) -> str:
    return holder_of(client.get(LEASE))


def holders_since(client: Client, lease: dict[str, Any]) -> list[str]:
    """Who has held the Lease since it was read, one after the other; "" where it was released."""
    query = {"watch": "1", "resourceVersion": lease["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    collection, _, name = LEASE.rpartition("/")
    lines = str(client.get(collection, query=query | {"fieldSelector": f"metadata.name={name}"})).splitlines()
    found = [holder_of(lease), *(holder_of(json.loads(line)["object"]) for line in lines)]
    return [one for one, _ in groupby(found)]


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
        leader, was = eventually(service.leader, message="a replica leads"), holder(client)
        leader.kill()
    eventually(lambda: holder(client) not in (was, ""), message="another replica leads")
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
        leader = eventually(service.leader, message="a replica leads")
        leader.kill()
    for name, slots in zip(("first", "second"), before, strict=True):
        gangs.all_bound(name, 2)
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
    assert len(gangs.all_bound("held", 2)) == 2
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
    """SIGTERM: the Lease is released and not waited out, another replica leads, and gangs go on being placed."""
    gangs.fleet.grid("1x1x2")
    leader, lease = eventually(service.leader, message="a replica leads"), client.get(LEASE)
    leader.child.process.terminate()
    eventually(lambda: holder(client) not in (holder_of(lease), ""), message="another replica leads")
    # A watch of a second may end before it has told of all changes.
    eventually(
        lambda: holders_since(client, lease) == [holder_of(lease), "", holder(client)],
        message=lambda: f"released, then taken: {holders_since(client, lease)}",
    )
    gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.all_bound("train", 2)
    assert leader.child.process.wait(PATIENCE) == 0
