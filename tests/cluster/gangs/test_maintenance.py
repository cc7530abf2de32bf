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
from tests.support.eventually import PATIENCE, eventually
from tests.support.gangs import Namespace, require


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
        assert running.wait(PATIENCE) == 0
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
    assert "`cluster/nodes.json`: no right to list nodes\n" in found["tenant"]["README.md"]
    assert '"runs"' in found["tenant"]["gangs/workloads.json"]


def test_a_gang_is_suspended_resumed_and_placed_anew(gangs: Namespace, admin: Path) -> None:
    """Its slots are free for another one meanwhile; a waiting gang becomes its user's suspension too."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    gangs.submit("second", pods=2, annotations=require("rack"))
    gangs.waits("second")

    def run(command: str, name: str, *, status: int = 0) -> str:
        done = topogate(admin, command, f"job/{name}", "-n", gangs.name)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def job(name: str) -> tuple[bool, bool]:
        """Whether a Job is suspended, and whether by us."""
        found = gangs.client.get(f"/apis/batch/v1/namespaces/{gangs.name}/jobs/{name}")
        return found["spec"]["suspend"], names.HELD_BY in found["metadata"].get("annotations", {})

    assert "its pods end, and its slots are free" in run("suspend", "first")
    assert "already" in run("suspend", "first")
    gangs.all_bound("second", 2)
    assert "it starts when it has slots" in run("resume", "first")
    gangs.waits("first")
    assert "waits already" in run("resume", "first")
    assert job("first") == (True, True)
    run("suspend", "first")
    assert job("first") == (True, False)
    run("resume", "first")
    gangs.waits("first")
    assert "resumed" in run("requeue", "second")
    gangs.all_bound("first", 2)  # the older one
    gangs.waits("second")
    missing = run("suspend", "nothing", status=2)
    assert "no job" in missing


def test_a_waiting_gang_goes_to_the_end_of_the_queue(
    gangs: Namespace, admin: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """By an admin of the policy; a tenant is told that he may not, in a line."""
    gangs.fleet.grid("1x1x1")
    gangs.submit("runs", pods=1, annotations=require("rack"))
    gangs.all_bound("runs", 1)
    for name in ("first", "second"):
        gangs.submit(name, pods=1, annotations=require("rack"))
        gangs.waits(name)
    rights = [rule("pods"), rule("jobs", group="batch"), rule("placements", group=names.API_GROUP)]
    reads = caller(control_plane, tmp_path, namespace=gangs.name, name="reads", in_namespace=rights)
    without = topogate(reads, "requeue", "job/first", "-n", gangs.name)
    right = f"no right to patch placements.topogate.dev/status in namespace {gangs.name}\n"
    assert (without.returncode, right in without.stderr) == (1, True), without.stderr
    writes = {"apiGroups": [names.API_GROUP], "resources": ["placements/status"], "verbs": ["patch"]}
    config = caller(control_plane, tmp_path, namespace=gangs.name, name="tenant", in_namespace=[*rights, writes])
    refused = topogate(config, "requeue", "job/first", "-n", gangs.name)
    assert (refused.returncode, "only admins of the policy may move a gang back" in refused.stderr) == (1, True)
    moved = topogate(admin, "requeue", "job/first", "-n", gangs.name)
    assert (moved.returncode, "at the end of its priority" in moved.stdout) == (0, True), moved.stderr

    def position() -> bool:
        shown = topogate(admin, "gangs", "-n", gangs.name, "-o", "json")
        places = {one["name"]: one["position"] for one in json.loads(shown.stdout)["gangs"]}
        return (places["second"], places["first"]) == (1, 2)

    eventually(position, message="the other gang goes first")
    gangs.client.delete(f"/apis/batch/v1/namespaces/{gangs.name}/jobs/runs")
    gangs.all_bound("second", 1)
    gangs.waits("first")
