"""One gang of each kind, as large as one likes, and the controllers that make its pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.jobs import job_spec, template

Json = dict[str, Any]
REPLICA = 8  # the pods of one Job of a JobSet, and of one replica of a Ray cluster
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


@dataclass(frozen=True, slots=True)
class Specimen:
    """A kind: `resource` is "group/version/plural", `spec` makes its spec for a number of pods.

    `needs` are what stands in the namespace before it ("group/version/plural" -> body). `beyond` are the pods that it
    has besides that number, `held_by` is how it waits.
    """

    kind: str
    resource: str
    spec: Callable[[int], Json]
    controllers: tuple[str, ...] = ()
    needs: Mapping[str, Json] = field(default_factory=dict)
    beyond: int = 0
    held_by: str = "suspend"

    def path(self, namespace: str, resource: str = "") -> str:
        """The path of its collection in a namespace, or of another resource's."""
        version, _, plural = (resource or self.resource).rpartition("/")
        return f"/apis/{version}/namespaces/{namespace}/{plural}"

    def body(self, pods: int, annotations: Mapping[str, str]) -> Json:
        """The workload `train`."""
        return {
            "apiVersion": self.resource.rpartition("/")[0],
            "kind": self.kind,
            "metadata": {"name": "train", "annotations": dict(annotations)},
            "spec": self.spec(pods),
        }


def _jobset(pods: int) -> Json:
    jobs = {"name": "workers", "replicas": pods // REPLICA, "template": {"spec": job_spec(REPLICA)}}
    return {"replicatedJobs": [jobs]}


def _kubeflow(field_name: str, container: str, first: str) -> Callable[[int], Json]:
    """One pod of the first type, and workers; workers only without a first type."""

    def spec(pods: int) -> Json:
        pod = template(container=container)
        leading = {first: {"replicas": 1, "template": pod}} if first else {}
        return {field_name: {**leading, "Worker": {"replicas": pods - len(leading), "template": pod}}}

    return spec


def _ray(pods: int) -> Json:
    """A head beside replicas of several hosts each."""
    group = {
        "groupName": "slices",
        "replicas": pods // REPLICA,
        "minReplicas": 0,
        "maxReplicas": pods,
        "numOfHosts": REPLICA,
        "rayStartParams": {},
        "template": template(),
    }
    return {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group]}


def _ray_job(pods: int) -> Json:
    return {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": _ray(pods)}


def _train_job(pods: int) -> Json:
    return {"runtimeRef": {"kind": "TrainingRuntime", "name": "bench"}, "trainer": {"numNodes": pods}}


def _runtime() -> Json:
    node = {"metadata": {"labels": {STEP: "trainer"}}, "spec": {"template": template(container="node")}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "bench", "labels": {"trainer.kubeflow.org/framework": "bench"}},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": node}]}},
        },
    }


def _app_wrapper(pods: int) -> Json:
    inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": job_spec(pods)}
    return {"components": [{"template": inner}]}


def _stateful_set(pods: int) -> Json:
    labels = {"app": "train"}
    return {
        "replicas": pods,
        "serviceName": "train",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, **template()},
    }


def _leader_worker_set(pods: int) -> Json:
    return {"replicas": 1, "leaderWorkerTemplate": {"size": pods, "workerTemplate": template()}}


TRAINING, KUBERAY = ("training-operator",), ("kuberay",)
SPECIMENS = {
    one.kind: one
    for one in (
        Specimen("Job", "batch/v1/jobs", job_spec),
        Specimen("JobSet", "jobset.x-k8s.io/v1alpha2/jobsets", _jobset, ("jobset",)),
        Specimen(
            "TrainJob",
            "trainer.kubeflow.org/v1alpha1/trainjobs",
            _train_job,
            ("trainer",),
            needs={"trainer.kubeflow.org/v1alpha1/trainingruntimes": _runtime()},
        ),
        Specimen(
            "PyTorchJob", "kubeflow.org/v1/pytorchjobs", _kubeflow("pytorchReplicaSpecs", "pytorch", "Master"), TRAINING
        ),
        Specimen("TFJob", "kubeflow.org/v1/tfjobs", _kubeflow("tfReplicaSpecs", "tensorflow", "PS"), TRAINING),
        Specimen(
            "XGBoostJob", "kubeflow.org/v1/xgboostjobs", _kubeflow("xgbReplicaSpecs", "xgboost", "Master"), TRAINING
        ),
        Specimen(
            "PaddleJob", "kubeflow.org/v1/paddlejobs", _kubeflow("paddleReplicaSpecs", "paddle", "Master"), TRAINING
        ),
        Specimen("JAXJob", "kubeflow.org/v1/jaxjobs", _kubeflow("jaxReplicaSpecs", "jax", ""), TRAINING),
        Specimen(
            "MPIJob", "kubeflow.org/v2beta1/mpijobs", _kubeflow("mpiReplicaSpecs", "mpi", "Launcher"), ("mpi-operator",)
        ),
        Specimen("RayCluster", "ray.io/v1/rayclusters", _ray, KUBERAY, beyond=1),
        Specimen("RayJob", "ray.io/v1/rayjobs", _ray_job, KUBERAY, beyond=1),
        Specimen("AppWrapper", "workload.codeflare.dev/v1beta2/appwrappers", _app_wrapper, ("appwrapper",)),
        Specimen("StatefulSet", "apps/v1/statefulsets", _stateful_set, held_by="gate"),
        Specimen(
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io/v1/leaderworkersets",
            _leader_worker_set,
            ("lws",),
            held_by="gate",
        ),
    )
}
