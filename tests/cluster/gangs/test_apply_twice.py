"""The same file applied again changes nothing, whoever merges it and whatever the gang is doing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.support.eventually import eventually
from tests.support.gang_steps import conditions, held_pods, occupy, vacate
from tests.support.gangs import Json, Namespace, job_body, require

pytestmark = pytest.mark.core

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def _manifest(gangs: Namespace, **spec: object) -> str:
    body = job_body("train", pods=2, annotations=require("rack"), selector=gangs.fleet.selector, spec=spec)
    del body["spec"]["template"]["metadata"]  # an empty map is not stored: kubectl would add it again and again
    return json.dumps(body)


def _settled(gangs: Namespace, phase: str, ready: int) -> Json:
    """Wait until nobody has anything left to write about the Job; the Job."""

    def look() -> Json | None:
        job = gangs.job("train")
        right = gangs.phase("train") == phase and job.get("status", {}).get("ready", 0) == ready
        if phase == "Waiting":  # what the Job controller writes of a suspended Job, and writes last
            right = right and "Suspended" in conditions(gangs, "train")
        return job if right and job.get("status", {}).get("active", 0) == ready else None

    found = eventually(look, message=lambda: f"train is {phase} and quiet\n{gangs.describe('train')}")
    assert found is not None
    return found


@pytest.mark.parametrize("merge", ["client", "server"])
def test_applied_again_while_the_gang_waits_nothing_changes(gangs: Namespace, kubectl: Kubectl, merge: str) -> None:
    """Our suspension, marks and gate stay: "unchanged", the same resourceVersion, and the gang still starts later."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    options = ["--server-side"] if merge == "server" else []
    kubectl("apply", *options, "-f", "-", input=_manifest(gangs))
    gangs.waits("train")
    before = _settled(gangs, "Waiting", 0)
    answer = kubectl("apply", *options, "-f", "-", input=_manifest(gangs))
    if merge == "client":
        assert answer.stdout.strip() == "job.batch/train unchanged"
    assert gangs.job("train") == before  # the resourceVersion and all the rest
    vacate(gangs, other)
    gangs.all_bound("train", 2)


@pytest.mark.parametrize("merge", ["client", "server"])
def test_applied_again_while_the_gang_runs_nothing_changes(gangs: Namespace, kubectl: Kubectl, merge: str) -> None:
    """The pods go on, the assignment stands, and the Job has the same resourceVersion."""
    gangs.fleet.grid("1x1x2")
    options = ["--server-side"] if merge == "server" else []
    kubectl("apply", *options, "-f", "-", input=_manifest(gangs))
    gangs.all_bound("train", 2)
    before = _settled(gangs, "Running", 2)
    pods = {pod["metadata"]["uid"] for pod in gangs.pods("train")}
    placement = gangs.placement("train")
    answer = kubectl("apply", *options, "-f", "-", input=_manifest(gangs))
    if merge == "client":
        assert answer.stdout.strip() == "job.batch/train unchanged"
    assert gangs.job("train") == before  # the resourceVersion and all the rest
    assert {pod["metadata"]["uid"] for pod in gangs.pods("train")} == pods
    after = gangs.placement("train")
    assert placement is not None and after is not None
    assert (after["metadata"]["uid"], after["spec"]) == (placement["metadata"]["uid"], placement["spec"])


def test_a_file_with_an_explicit_suspend_false_resumes_a_waiting_job_into_the_gate(
    gangs: Namespace, kubectl: Kubectl
) -> None:
    """The one exception: applied again it resumes the Job, whose pods the gate then holds until there is room."""
    hosts = gangs.fleet.grid("1x1x2")
    other = occupy(gangs, hosts[0])
    manifest = _manifest(gangs, suspend=False)
    kubectl("apply", "-f", "-", input=manifest)
    gangs.waits("train")
    assert gangs.job("train")["spec"]["suspend"] is True
    kubectl("apply", "-f", "-", input=manifest)
    held_pods(gangs, "train", 2)
    assert kubectl("apply", "-f", "-", input=manifest).stdout.strip() == "job.batch/train unchanged"
    vacate(gangs, other)
    gangs.all_bound("train", 2)


def test_a_changed_label_in_the_file_reaches_a_running_job(gangs: Namespace, kubectl: Kubectl) -> None:
    """What Kubernetes allows on a live Job goes through us: nothing else of the object moves."""
    gangs.fleet.grid("1x1x2")
    body = json.loads(_manifest(gangs))
    kubectl("apply", "-f", "-", input=json.dumps(body))
    gangs.all_bound("train", 2)
    before = _settled(gangs, "Running", 2)
    body["metadata"]["labels"] = {"example.com/owner": "team-a"}
    assert kubectl("apply", "-f", "-", input=json.dumps(body)).stdout.strip() == "job.batch/train configured"
    after = gangs.job("train")
    assert after["metadata"]["labels"]["example.com/owner"] == "team-a"
    assert after["spec"] == before["spec"]
