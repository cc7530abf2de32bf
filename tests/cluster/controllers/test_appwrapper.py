"""What the real AppWrapper controller makes of its components, and how it suspends them."""

from __future__ import annotations

import pytest

from local.client import ClientError
from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import Json, Workloads, labels

pytestmark = pytest.mark.usefixtures("appwrapper")
WRAPPER = "workload.codeflare.dev/appwrapper"


def job(workloads: Workloads, name: str, pods: int, **template: object) -> Json:
    """A component: an Indexed Job."""
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": workloads.template(restartPolicy="Never"),
    }
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return {"template": {**body, **template}}


def test_components_are_owned_and_their_pods_labelled(workloads: Workloads, nodes: Fleet) -> None:
    """Pod -> Job -> AppWrapper; objects and pods carry the wrapper's name."""
    nodes.grid("1x1x1")
    workloads.create("AppWrapper", "wrap", {"components": [job(workloads, "a", 2), job(workloads, "b", 1)]})
    pods = workloads.wait(3, phase="Running")
    owners = sorted(tuple(workloads.owners(pod)) for pod in pods)
    above = ("AppWrapper", "wrap")
    assert owners == [(("Job", "a"), above), (("Job", "a"), above), (("Job", "b"), above)]
    assert {labels(pod, WRAPPER) for pod in pods} == {("wrap",)}
    assert workloads.get("Job", "a")["metadata"]["labels"][WRAPPER] == "wrap"


def test_a_suspended_one_has_no_components_until_it_resumes(workloads: Workloads, nodes: Fleet) -> None:
    """Its webhook keeps them as they are meanwhile: a resume tells them nothing but that they may run."""
    nodes.grid("1x1x1")
    workloads.create("AppWrapper", "wrap", {"suspend": True, "components": [job(workloads, "a", 2)]})
    eventually(
        lambda: workloads.get("AppWrapper", "wrap").get("status", {}).get("phase") == "Suspended",
        message="it is suspended",
    )
    always(lambda: not workloads.items("Job"), seconds=0.5)
    path = "/spec/components/0/template/spec/template/metadata"
    with pytest.raises(ClientError, match="attempt to change immutable field"):
        workloads.set("AppWrapper", "wrap", {path: {"annotations": {"added": "annotation"}}, "/spec/suspend": False})
    workloads.merge("AppWrapper", "wrap", {"suspend": False})
    workloads.wait(2, phase="Running")


def test_suspending_deletes_the_components(workloads: Workloads, nodes: Fleet) -> None:
    """And resuming makes others."""
    nodes.grid("1x1x1")
    workloads.create("AppWrapper", "wrap", {"components": [job(workloads, "a", 2)]})
    before = {pod["metadata"]["uid"] for pod in workloads.wait(2, phase="Running")}
    workloads.merge("AppWrapper", "wrap", {"suspend": True})
    eventually(lambda: not workloads.pods() and not workloads.items("Job"), message="they are gone")
    workloads.merge("AppWrapper", "wrap", {"suspend": False})
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in workloads.wait(2, phase="Running"))
