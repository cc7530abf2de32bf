"""Gangs that end so that others of higher priority start, with the real controllers, scheduler and API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from local.client import Client
from local.service import Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.books import Books
from tests.support.eventually import always, eventually
from tests.support.gang_steps import complete, completed, failures, live_hosts, status_of
from tests.support.gangs import Json, Namespace, job_body, require
from tests.support.obstacles import Obstacle

pytestmark = pytest.mark.core

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PREEMPTS = TEST_POLICY + "preemption: {mode: lower-priority, after: 1s}\n"


@pytest.fixture
def urgent(client: Client, namespace: str) -> Iterator[Mapping[str, Any]]:
    """What the pods of an urgent gang name: a PriorityClass of this test's own."""
    name = f"{namespace}-urgent"
    client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    yield {"priorityClassName": name}
    client.delete(f"{PRIORITY_CLASSES}/{name}")


def notes(gangs: Namespace, name: str, reason: str) -> list[str]:
    """What the Events of one reason say about an object."""
    events = gangs.client.items(f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events")
    return [one["note"] for one in events if (one["regarding"]["name"], one["reason"]) == (name, reason)]


def gone(gangs: Namespace, job: str) -> None:
    eventually(lambda: live_hosts(gangs, job) == [], message=lambda: f"{job} has ended\n{gangs.describe(job)}")


def test_a_job_ends_for_an_urgent_one_and_starts_again_after_it(
    gangs: Namespace, policy: PolicyInForce, client: Client, urgent: Mapping[str, Any]
) -> None:
    """It is suspended, waits at its old place, and has lost none of its user's retries."""
    policy.set(PREEMPTS)
    gangs.fleet.grid("1x1x2")
    books = Books(client, gangs.fleet)
    gangs.submit("batch", pods=2, annotations=require("rack"))
    gangs.all_bound("batch", 2)
    gangs.submit("urgent", pods=2, annotations=require("rack"), pod_spec=urgent)
    gangs.all_bound("urgent", 2)
    assert gangs.job("batch")["spec"]["suspend"] is True
    assert gangs.waits("batch")["spec"].get("assignment") is None
    (said,) = eventually(lambda: notes(gangs, "batch", "Preempted"), message="the victim's user is told")
    assert said == "ended for Job/urgent, which has priority 1,000 and found no other room; it is queued again"
    (said,) = eventually(lambda: notes(gangs, "urgent", "Preempting"), message="the preemptor's user is told")
    assert said.startswith("1 gang of lower priority ends for it (2 pods): ")
    eventually(lambda: status_of(gangs, "urgent").get("phase") == "Running", message=lambda: gangs.describe("urgent"))
    assert status_of(gangs, "urgent").get("preemption") is None
    assert status_of(gangs, "urgent").get("keptHosts") is None
    complete(gangs, "urgent")
    completed(gangs, "urgent")
    gangs.all_bound("batch", 2)
    assert failures(gangs, "batch") == 0
    complete(gangs, "batch")
    completed(gangs, "batch")
    assert books.overbooked() == {}


def test_the_next_leader_ends_what_the_last_one_has_only_written_down(
    gangs: Namespace, policy: PolicyInForce, service: Service, urgent: Mapping[str, Any]
) -> None:
    """kill -9 between the intent and the suspension: the same victim ends, once."""
    policy.set(PREEMPTS)
    gangs.fleet.grid("1x2x2")
    for name in ("first", "second"):
        gangs.submit(name, pods=2, annotations=require("rack"))
        gangs.all_bound(name, 2)
    with Obstacle(gangs.client, gangs.name, "suspend"):
        gangs.submit("urgent", pods=2, annotations=require("rack"), pod_spec=urgent)
        gangs.waits("urgent", "Preempting")
        intent = status_of(gangs, "urgent")["preemption"]
        assert len(intent["victims"]) == 1
        assert [len(gangs.bound(name)) for name in ("first", "second")] == [2, 2]
        leader = eventually(service.leader, message="a replica leads")
        leader.kill()
    gangs.all_bound("urgent", 2)
    uids = {(gangs.placement(name) or {})["metadata"]["uid"]: name for name in ("first", "second")}
    victim = uids.pop(intent["victims"][0]["uid"])
    (other,) = uids.values()
    gone(gangs, victim)
    always(lambda: len(gangs.bound(other)) == 2, seconds=1.0)
    assert gangs.job(other)["spec"].get("suspend") in (None, False)


def test_a_disruption_budget_protects_a_deployment_from_an_urgent_gang(
    gangs: Namespace, policy: PolicyInForce, urgent: Mapping[str, Any]
) -> None:
    """While it allows nothing, nothing ends; without it the pods are evicted, and new ones wait for the gang."""
    policy.set(PREEMPTS)
    gangs.fleet.grid("1x1x2")
    template = job_body("serve", pods=2, selector=gangs.fleet.selector)["spec"]["template"]
    template["spec"]["restartPolicy"] = "Always"
    template["metadata"]["labels"] = {"app": "serve"}
    deployments = f"/apis/apps/v1/namespaces/{gangs.name}/deployments"
    budgets = f"/apis/policy/v1/namespaces/{gangs.name}/poddisruptionbudgets"
    chosen = {"matchLabels": {"app": "serve"}}
    body = {"replicas": 2, "selector": chosen, "template": template}
    gangs.client.create(deployments, {"metadata": {"name": "serve", "annotations": require("rack")}, "spec": body})

    def serving() -> list[Json]:
        pods = gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods", selector="app=serve")
        return [one for one in pods if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]]

    eventually(lambda: len(serving()) == 2, message="the Deployment runs")
    gangs.client.create(budgets, {"metadata": {"name": "serve"}, "spec": {"minAvailable": 2, "selector": chosen}})
    eventually(
        lambda: "disruptionsAllowed" in gangs.client.get(f"{budgets}/serve").get("status", {}), message="it counts"
    )
    before = {one["metadata"]["uid"] for one in serving()}
    gangs.submit("urgent", pods=2, annotations=require("rack"), pod_spec=urgent)
    gangs.waits("urgent", "InsufficientFreeGPUs")
    always(lambda: {one["metadata"]["uid"] for one in serving()} == before, seconds=4.0)
    gangs.client.delete(f"{budgets}/serve")
    gangs.all_bound("urgent", 2)
    assert serving() == []
    complete(gangs, "urgent")
    completed(gangs, "urgent")
    eventually(lambda: len(serving()) == 2, message="the Deployment runs again")
    assert {one["metadata"]["uid"] for one in serving()}.isdisjoint(before)
