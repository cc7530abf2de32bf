"""The way out by hand, as docs/tasks/admin/failure-and-emergency.md tells it, on an API server without the service.

On a control plane of its own: the session's one may run the controllers of these kinds.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import parse_policy
from local.client import ClientError
from local.controlplane import ControlPlane
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gangs import job_body, require
from tests.support.installed import HOOKS, render
from tests.support.pages import pages
from tests.support.raw_pods import GATE
from webhook.configuration.policy_webhooks import RESOURCES, entries

HELD = {"topogate.dev/held-by": "suspend"}
OTHER_GATE = "example.com/mine"


@pytest.fixture
def kubeflow(plane: ControlPlane) -> None:
    """PyTorchJobs can be stored; nobody acts on them."""
    Definition("kubeflow.org", "PyTorchJob", "pytorchjobs").install(plane.client)


@pytest.fixture(scope="module", autouse=True)
def stuck(plane: ControlPlane) -> None:
    """The namespace of the tests."""
    plane.client.create("/api/v1/namespaces", {"metadata": {"name": "stuck"}})


@pytest.fixture
def shell(plane: ControlPlane, programs: dict[str, Path], tmp_path: Path) -> dict[str, str]:
    """The environment of an admin's shell: `kubectl` reaches the control plane."""
    return {
        "PATH": f"{programs['kubectl'].parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(tmp_path),
    }


def script(word: str) -> str:
    """The block of the page with this word."""
    page = pages()["docs/tasks/admin/failure-and-emergency.md"]
    (found,) = [block.text for block in page.blocks if word in block.text]
    return found


def run(shell: dict[str, str], word: str) -> None:
    """Run the block of the page with this word; it says nothing to worry about."""
    done = subprocess.run(
        ["bash", "-c", script(word)], check=False, env=shell, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def nobody_answers(plane: ControlPlane) -> None:
    """The manifests stand with what a policy adds, and no replica runs."""
    plane.kubectl("apply", "-f", "-", input=render(plane, "overlays/local").replace(":PORT", ":1"))
    policy = parse_policy(
        "namespaces: {defaults: [{namespaces: [stuck], annotations: {topogate.dev/prefer-topology: auto}}]}"
    )
    for resource in RESOURCES:
        added = entries(resource, policy, whole=(), own_username="us", own_namespace=names.NAMESPACE)
        call = {"clientConfig": {"url": "https://127.0.0.1:1/mutate"}}
        plane.client.patch(f"{HOOKS}/{resource}/topogate-policy", {"webhooks": [{**one, **call} for one in added]})


@pytest.mark.usefixtures("nobody_answers")
def test_the_first_command_of_the_page_lets_everything_in(shell: dict[str, str], plane: ControlPlane) -> None:
    """Also what is asked for by a policy's default, which stands in the second pair of configurations."""
    client, jobs = plane.client, "/apis/batch/v1/namespaces/stuck/jobs"
    bodies = [job_body("asks", pods=1, annotations=require("rack")), job_body("plain", pods=1)]

    def refused(body: dict[str, Any]) -> bool:
        try:
            client.create(jobs, body, dry_run=True)
        except ClientError as error:
            assert "failed calling webhook" in error.message
            return True
        return False

    for body in bodies:
        eventually(lambda: refused(body), message="the webhooks are in force")  # noqa: B023 - called at once
    run(shell, "delete validatingwebhookconfiguration")
    for body in bodies:
        eventually(lambda: not refused(body), message="nobody is asked any more")  # noqa: B023 - called at once


def test_the_commands_of_the_page_free_everything_that_is_held(
    shell: dict[str, str], plane: ControlPlane, kubeflow: None
) -> None:
    """Workloads at the field of their kind, pods by their gate; what its user suspended stays, and so does a gate of
    others; missing kinds disturb nothing."""
    client, namespace = plane.client, "stuck"
    torch = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    client.create(jobs, job_body("held", pods=1, annotations=HELD, spec={"suspend": True}))
    client.create(jobs, job_body("his-own", pods=1, spec={"suspend": True}))
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "torch", "annotations": HELD}}
    client.create(torch, {**body, "spec": {"runPolicy": {"suspend": True}}})
    template = job_body("x", pods=1)["spec"]["template"]["spec"]
    for name, gates in {"gated": [GATE], "twice": [OTHER_GATE, GATE], "not-ours": [OTHER_GATE]}.items():
        spec = {**template, "schedulingGates": [{"name": gate} for gate in gates]}
        client.create(pods, {"metadata": {"name": name}, "spec": spec})
    run(shell, "held-by")
    held, own = client.get(f"{jobs}/held"), client.get(f"{jobs}/his-own")
    assert (held["spec"]["suspend"], own["spec"]["suspend"]) == (False, True)
    assert "topogate.dev/held-by" not in held["metadata"].get("annotations", {})
    assert client.get(f"{torch}/torch")["spec"]["runPolicy"]["suspend"] is False
    assert not client.get(f"{pods}/gated")["spec"].get("schedulingGates")
    for name in ("twice", "not-ours"):
        assert client.get(f"{pods}/{name}")["spec"]["schedulingGates"] == [{"name": OTHER_GATE}]
