"""`topogate release` on an API server without the service: real rights, and webhooks that nobody answers.

On a control plane of its own: on the others a leader would hold the objects again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from local.client import ClientError
from local.controlplane import ControlPlane
from tests.support.callers import caller, rule
from tests.support.cli import topogate, topogate_running
from tests.support.eventually import PATIENCE, eventually
from tests.support.gangs import job_body, require
from tests.support.installed import render
from tests.support.raw_pods import GATE

pytestmark = pytest.mark.core

HELD = {names.HELD_BY: names.HELD_BY_SUSPEND}
NAMESPACE = "let-go"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


def gated(body: dict[str, Any], *others: str) -> dict[str, Any]:
    """The workload with our gate in its template, and others."""
    body["spec"]["template"]["spec"]["schedulingGates"] = [{"name": one} for one in (GATE, *others)]
    return body


@pytest.fixture(scope="module")
def held(plane: ControlPlane) -> None:
    """What Topogate holds, what a user has suspended himself, and webhooks in force that nobody answers."""
    client = plane.client
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    client.create(JOBS, gated(job_body("held", pods=2, annotations=HELD, spec={"suspend": True}), "example.com/mine"))
    client.create(JOBS, gated(job_body("his-own", pods=1, spec={"suspend": True})))
    template = gated(job_body("x", pods=1))["spec"]["template"]
    template["spec"].pop("restartPolicy", None)
    labels = {"app": "serve"}
    body = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {**template, "metadata": {"labels": labels}},
    }
    client.create(DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": body})
    eventually(lambda: len(client.items(PODS)) == 2, message="the pods of the Deployment")
    plane.kubectl("apply", "-f", "-", input=render(plane, "overlays/local").replace(":PORT", ":1"))

    def refused() -> bool:
        try:
            client.create(JOBS, job_body("asks", pods=1, annotations=require("rack")), dry_run=True)
        except ClientError as error:
            return "failed calling webhook" in error.message
        return False

    eventually(refused, message="the webhooks are in force")


@pytest.mark.usefixtures("held")
def test_everything_is_released_without_the_service(plane: ControlPlane, tmp_path: Path) -> None:
    """First by somebody without rights, then while webhooks are in the way, then without them; then nothing is left."""
    client, admin = plane.client, plane.kubeconfig
    shown = topogate(admin, "release", "--all", "--dry-run")
    assert shown.returncode == 1
    assert f"job/held in namespace {NAMESPACE}: would be resumed" in shown.stdout

    read = [rule("pods"), rule("jobs", group="batch")]
    tenant = caller(plane, tmp_path, namespace=NAMESPACE, name="tenant", in_namespace=read)
    by_tenant = topogate(tenant, "release", "--all", "-n", NAMESPACE, "--follow")
    assert by_tenant.returncode == 1
    missing = f"job/held in namespace {NAMESPACE}: not done: no right to patch jobs.batch in namespace {NAMESPACE}"
    assert f"{missing}\n" in by_tenant.stderr
    assert f"{missing}; given up after 3 tries\n" in by_tenant.stderr
    assert ("cannot patch" in by_tenant.stderr, "Traceback" in by_tenant.stderr) == (False, False)
    assert client.get(f"{JOBS}/held")["spec"]["suspend"] is True

    in_the_way = topogate(admin, "release", "--all")
    assert in_the_way.returncode == 1
    assert f"job/held in namespace {NAMESPACE}: not done" in in_the_way.stderr
    assert "--delete-webhooks" in in_the_way.stderr
    assert all(GATE not in gates(pod) for pod in client.items(PODS))

    done = topogate(admin, "release", "--all", "--delete-webhooks", "--templates")
    assert (done.returncode, "nothing is held any more" in done.stdout) == (0, True), done.stderr
    job, own = client.get(f"{JOBS}/held"), client.get(f"{JOBS}/his-own")
    assert (job["spec"]["suspend"], own["spec"]["suspend"]) == (False, True)
    assert names.HELD_BY not in job["metadata"].get("annotations", {})
    assert gates(job["spec"]["template"]) == ["example.com/mine"]
    assert not gates(own["spec"]["template"])
    assert not gates(client.get(f"{DEPLOYMENTS}/serve")["spec"]["template"])
    pods = eventually(
        lambda: [pod for pod in client.items(PODS) if "job-name" in pod["metadata"]["labels"]],
        message="the pods of the Job",
    )
    assert gates(pods[0]) == ["example.com/mine"]

    again = topogate(admin, "release", "--all", "--delete-webhooks")
    assert (again.returncode, again.stdout) == (0, "nothing is held any more\n")
    after = client.get(f"{JOBS}/his-own")
    kept = ("generation", "annotations", "labels")  # the Job controller may write the status meanwhile
    assert after["spec"] == own["spec"]
    assert [after["metadata"].get(key) for key in kept] == [own["metadata"].get(key) for key in kept]


def gates(holder: dict[str, Any]) -> list[str]:
    """The gates of a pod or template."""
    return [one["name"] for one in holder["spec"].get("schedulingGates", [])]


def test_pods_to_come_are_released_until_their_workload_has_ended(plane: ControlPlane) -> None:
    """With --follow: a running Job keeps its template, and so every pod that it makes has the gate."""
    client = plane.client
    namespace = "to-come"
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    client.create(jobs, gated(job_body("runs", pods=2, spec={"backoffLimit": 6})))
    eventually(lambda: len(client.items(pods)) == 2, message="the pods of the Job")
    once = topogate(plane.kubeconfig, "release", "job/runs", "-n", namespace)
    assert once.returncode == 0
    assert "1 workload with the gate in a template: job/runs (to-come)" in once.stdout

    assert not any(GATE in gates(pod) for pod in client.items(pods))
    client.delete(f"{pods}/{client.items(pods)[0]['metadata']['name']}", grace=0)
    held_again = "the lost pod is made again, and held"
    eventually(lambda: any(GATE in gates(pod) for pod in client.items(pods)), message=held_again)
    with topogate_running(plane.kubeconfig, "release", "job/runs", "-n", namespace, "--follow") as run:
        eventually(
            lambda: len(found := client.items(pods)) == 2 and not any(GATE in gates(pod) for pod in found),
            message="the new pod is released",
        )
        client.delete(f"{jobs}/runs")
        assert run.wait(PATIENCE) == 0
