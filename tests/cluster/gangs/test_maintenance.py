"""Commands that change what the service has done, while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import names
from local.controlplane import ControlPlane
from tests.support.cli import topogate, topogate_running
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def admin(control_plane: ControlPlane) -> Path:
    return control_plane.kubeconfig


def gated(gangs: Namespace, job: str) -> list[bool]:
    """Whether each pod of a Job has our gate."""
    pods = gangs.client.items(f"/api/v1/namespaces/{gangs.name}/pods")
    own = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == job]
    return [{"name": names.GATE} in pod["spec"].get("schedulingGates", []) for pod in own]


def test_one_waiting_gang_is_released_beside_the_service(gangs: Namespace, admin: Path) -> None:
    """It starts in part, as every Job does; the others wait on, and it is told what is held again."""
    gangs.fleet.grid("1x2x2")
    for name in ("first", "second"):
        gangs.submit(name, pods=3, annotations=require("rack"))
        gangs.waits(name)
    with topogate_running(admin, "release", "job/first", "-n", gangs.name, "--follow") as running:
        eventually(lambda: gated(gangs, "first") == [False] * 3, message="the pods of the Job run freely")
        gangs.client.delete(f"/apis/batch/v1/namespaces/{gangs.name}/jobs/first")
        assert running.wait(60) == 0
        said = running.stdout.read() if running.stdout is not None else ""
    assert f"job/first in namespace {gangs.name}: resumed; its template keeps the gate" in said
    assert "the policy's mode is enforce" in said
    second = gangs.client.get(f"/apis/batch/v1/namespaces/{gangs.name}/jobs/second")
    assert second["spec"]["suspend"] is True
    nothing = topogate(admin, "release", "job/secnd", "-n", gangs.name)
    assert (nothing.returncode, 'did you mean "second"' in nothing.stderr) == (2, True)
