"""What the real MPI operator makes of an MPIJob v2beta1: launcher, workers, ranks, order and suspension."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import GATE, Json, Workloads, held, labels

pytestmark = pytest.mark.usefixtures("mpi_operator")
KUBEFLOW = "training.kubeflow.org"
ROLE, INDEX = f"{KUBEFLOW}/job-role", f"{KUBEFLOW}/replica-index"


def mpi(workloads: Workloads, *, gated: bool = False, **spec: Any) -> Json:
    """A launcher and two workers."""
    template = workloads.template(gated=gated)
    return {
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": template, "restartPolicy": "Never"},
            "Worker": {"replicas": 2, "template": template},
        },
        **spec,
    }


def test_workers_are_owned_directly_and_the_launcher_through_a_job(workloads: Workloads) -> None:
    """Worker -> MPIJob; launcher -> Job <name>-launcher -> MPIJob; only workers have an index."""
    workloads.create("MPIJob", "train", mpi(workloads))
    found = {labels(pod, f"{KUBEFLOW}/job-name", ROLE, INDEX): workloads.owners(pod) for pod in workloads.wait(3)}
    assert found == {
        ("train", "launcher", "absent"): [("Job", "train-launcher"), ("MPIJob", "train")],
        ("train", "worker", "0"): [("MPIJob", "train")],
        ("train", "worker", "1"): [("MPIJob", "train")],
    }


def test_a_launcher_that_works_is_index_zero(workloads: Workloads) -> None:
    """With runLauncherAsWorker workers begin at 1."""
    workloads.create("MPIJob", "train", mpi(workloads, runLauncherAsWorker=True))
    found = sorted(labels(pod, ROLE, INDEX) for pod in workloads.wait(3))
    assert found == [("launcher", "0"), ("worker", "1"), ("worker", "2")]


def test_a_gate_in_the_templates_reaches_every_pod(workloads: Workloads, nodes: Fleet) -> None:
    """Launcher and workers are there at once, held (launcherCreationPolicy AtStartup, the default)."""
    nodes.grid("1x1x1")
    workloads.create("MPIJob", "train", mpi(workloads, gated=True))
    assert held(workloads.wait(3))


def test_a_launcher_may_come_after_its_workers(workloads: Workloads, nodes: Fleet) -> None:
    """WaitForWorkersReady: held workers have no launcher, so who waits for all pods waits for ever."""
    nodes.grid("1x1x1")
    workloads.create("MPIJob", "train", mpi(workloads, gated=True, launcherCreationPolicy="WaitForWorkersReady"))
    workers = {pod["metadata"]["name"] for pod in workloads.wait(2)}
    always(lambda: workloads.pods().keys() == workers, seconds=0.5)
    for worker in workers:
        workloads.release(worker)
    workloads.wait(3)


def test_a_suspended_one_makes_no_pods_until_it_resumes(workloads: Workloads, nodes: Fleet) -> None:
    """A gate put in meanwhile reaches the workers and, through its suspended Job, the launcher."""
    nodes.grid("1x1x1")
    workloads.create("MPIJob", "train", mpi(workloads, runPolicy={"suspend": True}))
    eventually(
        lambda: [job["spec"]["suspend"] for job in workloads.items("Job")] == [True],
        message="the launcher's Job exists, suspended",
    )
    always(lambda: not workloads.pods(), seconds=0.5)
    template = "/spec/mpiReplicaSpecs/{}/template/spec/schedulingGates"
    changes: dict[str, object] = {template.format(role): [GATE] for role in ("Launcher", "Worker")}
    workloads.set("MPIJob", "train", {**changes, "/spec/runPolicy/suspend": False})
    assert held(workloads.wait(3))
