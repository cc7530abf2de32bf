"""What the real Kubeflow Trainer makes of a TrainJob: a JobSet of its name, suspended and resumed with it."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.workloads import Json, Workloads, labels

pytestmark = pytest.mark.usefixtures("trainer")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
JOBSET = "jobset.sigs.k8s.io"
INDEX = "batch.kubernetes.io/job-completion-index"


def runtime(workloads: Workloads) -> None:
    """A runtime `torch` of one replicated job."""
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {STEP: "trainer"}},
            "spec": {"template": workloads.template(container="node")},
        },
    }
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}}
    path = workloads.path("TrainingRuntime")
    version = "trainer.kubeflow.org/v1alpha1"
    metadata = {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    workloads.client.create(
        path, {"apiVersion": version, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}
    )


def train(workloads: Workloads, *, nodes: int, suspend: bool = False) -> Json:
    runtime(workloads)
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "trainer": {"numNodes": nodes}}
    return workloads.create("TrainJob", "train", {**spec, "suspend": suspend})


def test_its_pods_are_those_of_a_jobset_of_its_name(workloads: Workloads, nodes: Fleet) -> None:
    """Pod -> Job -> JobSet -> TrainJob; one Job of as many indexed pods as it has nodes."""
    nodes.grid("1x1x1")
    train(workloads, nodes=2)
    pods = workloads.wait(2, phase="Running")
    above = (("Job", "train-node-0"), ("JobSet", "train"), ("TrainJob", "train"))
    assert {tuple(workloads.owners(pod)) for pod in pods} == {above}
    names = (f"{JOBSET}/jobset-name", f"{JOBSET}/replicatedjob-name", f"{JOBSET}/job-index", INDEX)
    assert sorted(labels(pod, *names) for pod in pods) == [("train", "node", "0", "0"), ("train", "node", "0", "1")]


def test_annotations_of_a_trainjob_do_not_reach_its_jobset(workloads: Workloads) -> None:
    """What a TrainJob asks for is to be read on the TrainJob itself."""
    runtime(workloads)
    spec = {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}}
    metadata = {"name": "train", "annotations": {"example.com/own": "1"}}
    version = "trainer.kubeflow.org/v1alpha1"
    body = {"apiVersion": version, "kind": "TrainJob", "metadata": metadata, "spec": spec}
    workloads.client.create(workloads.path("TrainJob"), body)
    (jobset,) = eventually(lambda: workloads.items("JobSet"), message="the JobSet")
    assert "example.com/own" not in jobset["metadata"].get("annotations", {})


def test_a_suspended_one_has_a_suspended_jobset_until_it_resumes(workloads: Workloads, nodes: Fleet) -> None:
    """Its JobSet exists before it resumes."""
    nodes.grid("1x1x1")
    train(workloads, nodes=2, suspend=True)
    (jobset,) = eventually(lambda: workloads.items("JobSet"), message="the JobSet")
    assert (jobset["spec"]["suspend"], workloads.pods()) == (True, {})
    workloads.merge("TrainJob", "train", {"suspend": False})
    workloads.wait(2, phase="Running")


def test_suspending_takes_the_pods_away(workloads: Workloads, nodes: Fleet) -> None:
    """By suspending the JobSet."""
    nodes.grid("1x1x1")
    train(workloads, nodes=2)
    workloads.wait(2, phase="Running")
    workloads.merge("TrainJob", "train", {"suspend": True})
    eventually(lambda: not workloads.pods(), message="they are gone")
    assert workloads.get("JobSet", "train")["spec"]["suspend"] is True
