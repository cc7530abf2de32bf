"""Commands that change what the service has done, while it runs."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from engine.api import names
from local.controlplane import ControlPlane
from tests.support.callers import caller, rule
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


def test_a_support_bundle_has_the_gangs_and_no_secret(
    gangs: Namespace, admin: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """By an admin and by a tenant; what a user has planted in his Job is in neither archive."""
    gangs.fleet.grid("1x1x2")
    secret = "p1ant3d-S3cr3t"
    container = {"name": "main", "image": "example.com/train:1", "env": [{"name": "TOKEN", "value": secret}]}
    notes = {"example.com/token": secret}
    gangs.submit(
        "runs",
        pods=2,
        annotations={**require("rack"), **notes},
        pod_annotations=notes,
        pod_spec={"containers": [{**container, "args": [secret]}]},
    )
    gangs.all_bound("runs", 2)
    own = [rule("pods"), rule("jobs", group="batch"), rule("placements", group=names.API_GROUP)]
    tenant = caller(control_plane, tmp_path, namespace=gangs.name, name="bundler", in_namespace=own)
    found: dict[str, dict[str, str]] = {}
    for who, config, status in (("admin", admin, 0), ("tenant", tenant, 1)):
        done = topogate(config, "support-bundle", "-o", str(tmp_path / f"{who}.tar.gz"))
        assert done.returncode == status, done.stderr
        with tarfile.open(tmp_path / f"{who}.tar.gz") as archive:
            files = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive.getmembers()}
            found[who] = {name: stream.read().decode() for name, stream in files.items() if stream is not None}
        assert secret not in "".join(found[who].values())
    every = found["admin"]
    pods = [one for one in json.loads(every["gangs/pods.json"]) if one["metadata"]["namespace"] == gangs.name]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(gangs.all_bound("runs", 2).values())
    placements = json.loads(every["gangs/placements.json"])
    (placement,) = [one for one in placements if one["metadata"]["namespace"] == gangs.name]
    assert placement["spec"]["assignment"]
    assert json.loads(every["service/leases.json"])[0]["spec"]["holderIdentity"]
    assert "topologies:" in json.loads(every["policy/topogate-policy.json"])["data"][names.POLICY_KEY]
    assert "sha256 " in every["admission/mutatingwebhookconfigurations-topogate.json"]
    assert "`cluster/nodes.json`: 403 Forbidden" in found["tenant"]["README.md"]
    assert '"runs"' in found["tenant"]["gangs/workloads.json"]
