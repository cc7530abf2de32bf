"""Which workloads can be suspended, what is sent, and what is said where nothing is to be done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.workload import Workload
from tests.support.fake_api import Answer, FakeApi
from tests.support.snapshots import snapshot, waiting_placement
from tests.unit.maintenance.conftest import held_job
from webhook.maintenance.releaser import Releaser
from webhook.maintenance.suspension import Suspender, why_not

JOB = "/apis/batch/v1/namespaces/alice/jobs/held"
NOW = 1_767_227_400.0


def workload(body: dict[str, Any]) -> Workload:
    (found,) = snapshot([body]).view.stores.workloads.values()
    return found


def deployment(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": "alice", "uid": "d"},
        "spec": {"replicas": 1, "template": held_job()["spec"]["template"], **changes},
    }


def test_what_cannot_be_suspended_says_what_to_do() -> None:
    """By kind, by owner, and when it is over."""
    assert why_not(workload(held_job())) == ""
    assert why_not(workload(deployment())) == (
        "deployment/serve in namespace alice cannot be suspended, as its kind has no field for that: "
        "scale it to 0 replicas instead"
    )
    child = held_job()
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": True}
    ]
    assert why_not(workload(child)) == "job/held in namespace alice belongs to jobset/set: name that instead"
    assert why_not(replace(workload(held_job()), finished=True)) == "job/held in namespace alice has ended"
    assert why_not(replace(workload(held_job()), deleting=True)).endswith("is being deleted")


@pytest.mark.parametrize("owner", ["", "CronJob"])
def test_a_job_that_a_suspension_would_complete_is_not_suspended(owner: str) -> None:
    """Without `completions` its controller takes a Job without active pods for complete once a pod has succeeded."""
    job = held_job()
    job["spec"].pop("completions", None)
    job["spec"]["suspend"] = False
    job["status"] = {"succeeded": 1, "active": 1}
    if owner:
        job["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": owner, "name": "nightly", "uid": "c", "controller": True}
        ]
    assert why_not(workload(job)) == (
        "job/held in namespace alice cannot be suspended: a pod has succeeded, so it would count as complete"
    )


def test_one_that_is_suspended_with_a_completed_pod_may_be_resumed() -> None:
    job = held_job(held=False)
    job["spec"].pop("completions", None)
    job["status"] = {"succeeded": 1}
    assert why_not(workload(job)) == ""


@pytest.fixture
def suspender(releaser: Releaser) -> Suspender:
    return Suspender(releaser, wall=lambda: NOW)


def stored(server: FakeApi, body: dict[str, Any]) -> Workload:
    """The Job as the server has it."""
    kept = server.put(JOB, **{key: value for key, value in body.items() if key not in ("apiVersion", "kind")})
    return workload({"apiVersion": "batch/v1", "kind": "Job", **kept})


def state(server: FakeApi) -> tuple[bool, str | None]:
    found = server.get(JOB) or {}
    return found["spec"]["suspend"], (found["metadata"].get("annotations") or {}).get(names.HELD_BY)


def test_a_job_is_suspended_for_its_user(server: FakeApi, suspender: Suspender) -> None:
    running = held_job(held=False)
    running["spec"]["suspend"] = False
    outcome = suspender.suspend(stored(server, running))
    assert outcome.text == "job/held in namespace alice: suspended: its pods end, and its slots are free"
    assert state(server) == (True, None)


def test_a_suspension_of_ours_becomes_the_users(server: FakeApi, suspender: Suspender) -> None:
    outcome = suspender.suspend(stored(server, held_job()))
    assert outcome.text == "job/held in namespace alice: suspended: it is not planned until it is resumed"
    assert state(server) == (True, None)


def test_only_a_users_suspension_is_resumed(server: FakeApi, suspender: Suspender) -> None:
    own = stored(server, held_job(held=False))
    assert suspender.suspend(own).text.endswith("is suspended by its user already")
    assert suspender.resume(own).done
    assert state(server) == (False, None)
    assert "waits already" in suspender.resume(workload(held_job())).text
    assert suspender.resume(replace(own, suspended=False)).text.endswith("is not suspended")
    assert sum(one.method == "PATCH" for one in server.requests) == 1


def test_a_waiting_gang_gets_a_new_turn(server: FakeApi, suspender: Suspender) -> None:
    """Its Placement says since when; without one, or without the right, that is told."""
    path = "/apis/topogate.dev/v1alpha1/namespaces/alice/placements/job-held"
    body = waiting_placement("held", requeues=1)
    held = workload(held_job())
    assert not suspender.move_back(held, []).done
    server.put(path, **{key: value for key, value in body.items() if key not in ("apiVersion", "kind")})
    (known,) = snapshot([body]).view.stores.placements.values()
    assert suspender.move_back(held, [known]).done
    status = (server.get(path) or {})["status"]
    assert (status["requeuedAt"], status["requeues"]) == ("2026-01-01T00:30:00Z", 2)
    server.fault(Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "placements are topogate's"}))
    refused = suspender.move_back(held, [known])
    assert (refused.done, "placements are topogate's" in refused.text) == (False, True)
