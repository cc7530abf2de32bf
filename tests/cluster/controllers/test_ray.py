"""What the real KubeRay makes of a RayCluster and a RayJob: labels, owners, replicas of several hosts, suspension."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.eventually import always, eventually
from tests.support.fleet import Fleet
from tests.support.workloads import GATE, Json, Workloads, held, labels

pytestmark = pytest.mark.usefixtures("kuberay")
RAY = "ray.io"
TYPE, GROUP = f"{RAY}/node-type", f"{RAY}/group"
REPLICA, HOST = f"{RAY}/worker-group-replica-index", f"{RAY}/replica-host-index"


def ray(workloads: Workloads, *, gated: bool = False, **group: Any) -> Json:
    """A head and one group of workers, two unless said otherwise."""
    template = workloads.template(gated=gated)
    workers = {"groupName": "gpu", "replicas": 2, "minReplicas": 0, "maxReplicas": 9, **group}
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": template},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": template}],
    }


def test_pods_say_head_or_worker_and_which_group(workloads: Workloads) -> None:
    """All of them, head and workers, exist at once and are owned by the RayCluster; workers have a replica index."""
    workloads.create("RayCluster", "serve", ray(workloads))
    pods = workloads.wait(3)
    assert sorted(labels(pod, f"{RAY}/cluster", TYPE, GROUP, REPLICA, HOST) for pod in pods) == [
        ("serve", "head", "headgroup", "absent", "absent"),
        ("serve", "worker", "gpu", "0", "absent"),
        ("serve", "worker", "gpu", "1", "absent"),
    ]
    assert {tuple(workloads.owners(pod)) for pod in pods} == {(("RayCluster", "serve"),)}


def test_a_replica_of_several_hosts_numbers_them(workloads: Workloads) -> None:
    """With numOfHosts each pod knows its replica and its host in it."""
    workloads.create("RayCluster", "serve", ray(workloads, numOfHosts=2))
    workers = [pod for pod in workloads.wait(5) if labels(pod, TYPE) == ("worker",)]
    assert sorted(labels(pod, REPLICA, HOST) for pod in workers) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]


def test_a_gate_in_the_templates_reaches_every_pod(workloads: Workloads, nodes: Fleet) -> None:
    """A held head does not keep the workers from existing."""
    nodes.grid("1x1x1")
    workloads.create("RayCluster", "serve", ray(workloads, gated=True))
    assert held(workloads.wait(3))


def test_a_suspended_one_makes_no_pods_until_it_resumes(workloads: Workloads, nodes: Fleet) -> None:
    """What changed in the templates meanwhile reaches the pods."""
    nodes.grid("1x1x1")
    workloads.create("RayCluster", "serve", {"suspend": True, **ray(workloads)})
    suspended(workloads)
    always(lambda: not workloads.pods(), seconds=0.5)
    workloads.set(
        "RayCluster",
        "serve",
        {
            "/spec/headGroupSpec/template/spec/schedulingGates": [GATE],
            "/spec/workerGroupSpecs/0/template/spec/schedulingGates": [GATE],
            "/spec/suspend": False,
        },
    )
    assert held(workloads.wait(3))


def test_suspending_takes_the_pods_away(workloads: Workloads, nodes: Fleet) -> None:
    """All pods of a running cluster go, and others come at resume."""
    nodes.grid("1x1x1")
    workloads.create("RayCluster", "serve", ray(workloads))
    before = {pod["metadata"]["uid"] for pod in workloads.wait(3, phase="Running")}
    workloads.merge("RayCluster", "serve", {"suspend": True})
    suspended(workloads)
    assert not workloads.pods()
    workloads.merge("RayCluster", "serve", {"suspend": False})
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in workloads.wait(3, phase="Running"))


def test_scaling_a_group_adds_and_takes_workers(workloads: Workloads, nodes: Fleet) -> None:
    """More replicas: new pods beside the old ones, which stay."""
    nodes.grid("1x1x1")
    workloads.create("RayCluster", "serve", ray(workloads))
    before = {pod["metadata"]["name"] for pod in workloads.wait(3, phase="Running")}
    workloads.set("RayCluster", "serve", {"/spec/workerGroupSpecs/0/replicas": 4})
    workloads.wait(5, phase="Running")
    assert before < workloads.pods().keys()


def test_a_ray_job_owns_a_cluster_and_then_a_submitter(workloads: Workloads, nodes: Fleet) -> None:
    """Pod -> RayCluster -> RayJob; the submitter's pod comes when those of the cluster are ready."""
    nodes.grid("1x1x1")
    workloads.create("RayJob", "train", {"entrypoint": "true", "rayClusterSpec": ray(workloads, gated=True)})
    first = workloads.wait(3)
    (cluster,) = workloads.items("RayCluster")
    above = (("RayCluster", cluster["metadata"]["name"]), ("RayJob", "train"))
    assert {tuple(workloads.owners(pod)) for pod in first} == {above}
    always(lambda: len(workloads.pods()) == 3, seconds=0.5)
    for pod in first:
        workloads.release(pod["metadata"]["name"])
    owners = {tuple(workloads.owners(pod)) for pod in workloads.wait(4)}
    assert owners == {above, (("Job", "train"), ("RayJob", "train"))}


def suspended(workloads: Workloads) -> None:
    """Wait until KubeRay says so."""
    eventually(
        lambda: workloads.get("RayCluster", "serve").get("status", {}).get("state") == "suspended",
        message="it is suspended",
    )
