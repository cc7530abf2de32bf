"""One gang of four pods of every kind, as its users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.api import names
from tests.support.gangs import require
from tests.support.kind_gangs import Gangs
from tests.support.workloads import Json

PODS = 4
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


@dataclass(frozen=True)
class KindCase:
    """A kind: the controllers that it needs, and how a gang of `sets` (pod set -> pods) is submitted."""

    entry: str  # the name of the registry's entry
    kind: str  # its name in RESOURCES of tests.support.workloads
    controllers: tuple[str, ...]
    sets: Mapping[str, int]
    spec: Callable[[Gangs], Json]
    ranked: bool = True
    prepare: Callable[[Gangs], None] | None = None
    held: Mapping[str, int] | None = field(default=None)  # by the gate: pods that exist while it waits, where not all

    def submit(
        self, gangs: Gangs, name: str = "train", annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> Json:
        """Create it; asks for a rack unless said otherwise."""
        if self.prepare is not None:
            self.prepare(gangs)
        asked = require("rack") if annotations is None else annotations
        return gangs.create(self.kind, name, {**self.spec(gangs), **spec}, annotations=asked)

    @property
    def param(self) -> Any:
        return pytest.param(self, id=self.entry, marks=pytest.mark.controllers(*self.controllers))


def job(gangs: Gangs, *, pods: int = PODS, **spec: Any) -> Json:
    template = gangs.template(restartPolicy="Never")
    fields = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}
    return {**fields, "template": template, **spec}


def jobset(gangs: Gangs, **spec: Any) -> Json:
    return {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job(gangs, pods=2)}}], **spec}


def leader_worker_set(gangs: Gangs, *, replicas: int = 1, size: int = PODS, **template: Any) -> Json:
    return {
        "replicas": replicas,
        "leaderWorkerTemplate": {"size": size, "workerTemplate": gangs.template(), **template},
    }


def apps(gangs: Gangs, *, pods: int = PODS, **spec: Any) -> Json:
    """A StatefulSet or a Deployment."""
    labels = {"app": "train"}
    template = gangs.template()
    template["metadata"] = {"labels": labels, **template.get("metadata", {})}
    return {"replicas": pods, "selector": {"matchLabels": labels}, "template": template, **spec}


def kubeflow(field_name: str, container: str, first: str, second: str) -> Callable[[Gangs], Json]:
    """One pod of the first type and three of the second."""

    def spec(gangs: Gangs) -> Json:
        template = gangs.template(container=container)
        types = {second: {"replicas": 3 if first else PODS, "template": template}}
        return {field_name: {**({first: {"replicas": 1, "template": template}} if first else {}), **types}}

    return spec


def mpi(gangs: Gangs, **spec: Any) -> Json:
    template = gangs.template()
    types = {"Launcher": {"replicas": 1, "template": template}, "Worker": {"replicas": 3, "template": template}}
    return {"mpiReplicaSpecs": types, **spec}


def runtime(gangs: Gangs) -> None:
    """A training runtime `torch` of one replicated job."""
    labels = {STEP: "trainer"}
    node = {"metadata": {"labels": labels}, "spec": {"template": gangs.template(container="node")}}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": node}]}}
    path, metadata = gangs.path("TrainingRuntime"), {"name": "torch", "labels": {"trainer.kubeflow.org/framework": "x"}}
    if gangs.client.find(f"{path}/torch") is None:
        version, spec = "trainer.kubeflow.org/v1alpha1", {"mlPolicy": {"numNodes": 1}, "template": template}
        body = {"apiVersion": version, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}
        gangs.client.create(path, body)


def train_job(gangs: Gangs, *, nodes: int = PODS) -> Json:
    return {"runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}, "trainer": {"numNodes": nodes}}


def ray(gangs: Gangs, *, workers: int = PODS - 1, **group: Any) -> Json:
    """A head and a group `gpu` of workers."""
    template = gangs.template()
    fields = {"groupName": "gpu", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "rayStartParams": {}}
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": template},
        "workerGroupSpecs": [{**fields, "template": template, **group}],
    }


def ray_job(gangs: Gangs, **spec: Any) -> Json:
    return {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": ray(gangs), **spec}


def ray_service(gangs: Gangs) -> Json:
    return {"rayClusterConfig": ray(gangs)}


def volcano(gangs: Gangs, **spec: Any) -> Json:
    template = gangs.template(restartPolicy="Never")
    tasks = [
        {"name": "master", "replicas": 1, "template": template},
        {"name": "worker", "replicas": 3, "template": template},
    ]
    return {"schedulerName": "default-scheduler", "minAvailable": PODS, "tasks": tasks, **spec}


def spark(gangs: Gangs, **spec: Any) -> Json:
    driver, executor = (gangs.template(container=f"spark-kubernetes-{role}") for role in ("driver", "executor"))
    return {
        "type": "Python",
        "driver": {"cores": 1, "template": driver},
        "executor": {"cores": 1, "instances": 3, "template": executor},
        **spec,
    }


def app_wrapper(gangs: Gangs, *components: Json) -> Json:
    inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": job(gangs)}
    return {"components": [{"template": one} for one in (components or (inner,))]}


def plain_pods(gangs: Gangs, name: str = "train", count: int = PODS, size: int = PODS, **annotations: str) -> None:
    """Pods with the same gang-name and gang-size, one after the other."""
    asked = {**require("rack"), names.GANG_NAME: name, names.GANG_SIZE: str(size), **annotations}
    for number in range(count):
        template = gangs.template(restartPolicy="Never", annotations=asked)
        body = {"metadata": {"name": f"{name}-{number}", **template["metadata"]}, "spec": template["spec"]}
        gangs.client.create(gangs.path("Pod"), body)


ALL = (
    KindCase("job", "Job", (), {"main": 4}, job),
    KindCase("jobset", "JobSet", ("jobset",), {"workers": 4}, jobset),
    KindCase("leaderworkerset", "LeaderWorkerSet", ("lws",), {"worker": 4}, leader_worker_set),
    KindCase(
        "statefulset",
        "StatefulSet",
        (),
        {"main": 4},
        lambda gangs: apps(gangs, serviceName="train", podManagementPolicy="Parallel"),
    ),
    KindCase(
        "pytorchjob",
        "PyTorchJob",
        ("training-operator",),
        {"master": 1, "worker": 3},
        kubeflow("pytorchReplicaSpecs", "pytorch", "Master", "Worker"),
    ),
    KindCase(
        "tfjob",
        "TFJob",
        ("training-operator",),
        {"ps": 1, "worker": 3},
        kubeflow("tfReplicaSpecs", "tensorflow", "PS", "Worker"),
    ),
    KindCase(
        "xgboostjob",
        "XGBoostJob",
        ("training-operator",),
        {"master": 1, "worker": 3},
        kubeflow("xgbReplicaSpecs", "xgboost", "Master", "Worker"),
    ),
    KindCase(
        "paddlejob",
        "PaddleJob",
        ("training-operator",),
        {"master": 1, "worker": 3},
        kubeflow("paddleReplicaSpecs", "paddle", "Master", "Worker"),
    ),
    KindCase(
        "jaxjob", "JAXJob", ("training-operator",), {"worker": 4}, kubeflow("jaxReplicaSpecs", "jax", "", "Worker")
    ),
    KindCase("mpijob", "MPIJob", ("mpi-operator",), {"launcher": 1, "worker": 3}, mpi),
    KindCase("trainjob", "TrainJob", ("trainer",), {"node": 4}, train_job, prepare=runtime),
    KindCase("raycluster", "RayCluster", ("kuberay",), {"headgroup": 1, "gpu": 3}, ray, ranked=False),
    KindCase("rayjob", "RayJob", ("kuberay",), {"headgroup": 1, "gpu": 3}, ray_job, ranked=False),
    KindCase("rayservice", "RayService", ("kuberay",), {"headgroup": 1, "gpu": 3}, ray_service, ranked=False),
    KindCase("volcano-job", "VolcanoJob", ("volcano",), {"master": 1, "worker": 3}, volcano),
    KindCase("sparkapplication", "SparkApplication", ("spark",), {"driver": 1, "executor": 3}, spark, ranked=False),
    KindCase("appwrapper", "AppWrapper", ("appwrapper",), {"0-main": 4}, app_wrapper),
)
CASES = {case.entry: case for case in ALL}
