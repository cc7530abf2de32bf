"""The way out by hand, as docs/tasks/admin/failure-and-emergency.md tells it, on an API server without the service.

On a control plane of its own: the session's one may run the controllers of these kinds.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from local.controlplane import ControlPlane
from tests.support.definitions import Definition
from tests.support.gangs import job_body
from tests.support.pages import pages
from tests.support.raw_pods import GATE

HELD = {"topogate.dev/held-by": "suspend"}


@pytest.fixture
def kubeflow(plane: ControlPlane) -> None:
    """PyTorchJobs can be stored; nobody acts on them."""
    Definition("kubeflow.org", "PyTorchJob", "pytorchjobs").install(plane.client)


@pytest.fixture
def shell(plane: ControlPlane, programs: dict[str, Path], tmp_path: Path) -> dict[str, str]:
    """The environment of an admin's shell: `kubectl` reaches the control plane."""
    return {
        "PATH": f"{programs['kubectl'].parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(tmp_path),
    }


def script() -> str:
    """The block that frees what is held."""
    page = pages()["docs/tasks/admin/failure-and-emergency.md"]
    (found,) = [block.text for block in page.blocks if "held-by" in block.text]
    return found


def test_the_commands_of_the_page_free_everything_that_is_held(
    shell: dict[str, str], plane: ControlPlane, kubeflow: None
) -> None:
    """Workloads at the field of their kind, pods by their gate; what its user suspended stays; missing kinds disturb
    nothing."""
    client, namespace = plane.client, "stuck"
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    torch = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    jobs, pods = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"
    client.create(jobs, job_body("held", pods=1, annotations=HELD, spec={"suspend": True}))
    client.create(jobs, job_body("his-own", pods=1, spec={"suspend": True}))
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "torch", "annotations": HELD}}
    client.create(torch, {**body, "spec": {"runPolicy": {"suspend": True}}})
    template = job_body("x", pods=1)["spec"]["template"]["spec"]
    client.create(pods, {"metadata": {"name": "gated"}, "spec": {**template, "schedulingGates": [{"name": GATE}]}})
    command = ["bash", "-c", script()]
    done = subprocess.run(command, check=False, env=shell, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    held, own = client.get(f"{jobs}/held"), client.get(f"{jobs}/his-own")
    assert (held["spec"]["suspend"], own["spec"]["suspend"]) == (False, True)
    assert "topogate.dev/held-by" not in held["metadata"].get("annotations", {})
    assert client.get(f"{torch}/torch")["spec"]["runPolicy"]["suspend"] is False
    assert not client.get(f"{pods}/gated")["spec"].get("schedulingGates")
