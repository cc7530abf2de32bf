"""What the raw workloads of a lagging cluster say: Jobs, PyTorchJobs with a master and workers, and StatefulSets.

A pod's place in its workload is its pod set and its index there. The status of a Job tells which pods have completed,
that of a PyTorchJob only how many. Its controller makes a completed pod that is deleted again. A StatefulSet has no end
and cannot be suspended: its pods are held by their gates.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.api import names
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS, STATEFUL_SETS, TRAINING_JOBS
from tests.support.raw_placements import ranks
from tests.support.raw_pods import gpus

JOB: Final = "Job"
TRAINING_JOB: Final = "PyTorchJob"
STATEFUL_SET: Final = "StatefulSet"
KINDS: Final[Mapping[str, str]] = {JOB: JOBS, TRAINING_JOB: TRAINING_JOBS, STATEFUL_SET: STATEFUL_SETS}

Place = tuple[str, int]

_MAIN: Final = "main"
_TYPE: Final = "training.kubeflow.org/replica-type"
_INDEX: Final = "training.kubeflow.org/replica-index"
_ORDINAL: Final = "apps.kubernetes.io/pod-index"
_ENDS: Final = ("Complete", "Succeeded", "Failed")


def new_workload(kind: str, name: str, annotations: Mapping[str, str], pods: Json, *, count: int, more: int) -> Json:
    """A workload of `count` equal pods, the first one the master of a PyTorchJob; of a Job `more` follow them."""
    metadata: Json = {"name": name, "namespace": "default", "annotations": dict(annotations)}
    template: Json = {"metadata": {}, "spec": pods}
    if kind == JOB:
        sizes = {"parallelism": count, "completions": count + more, "completionMode": "Indexed"}
        spec: Json = {**sizes, "suspend": False, "template": template}
        return {"apiVersion": "batch/v1", "kind": JOB, "metadata": metadata, "spec": spec, "status": {}}
    if kind == STATEFUL_SET:
        template["metadata"] = {"labels": {"app": name}}
        pods["restartPolicy"] = "Always"
        spec = {
            "replicas": count,
            "podManagementPolicy": "Parallel",
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        }
        return {"apiVersion": "apps/v1", "kind": STATEFUL_SET, "metadata": metadata, "spec": spec, "status": {}}
    types: Json = {"Master": {"replicas": 1, "template": template}}
    if count > 1:
        types["Worker"] = {"replicas": count - 1, "template": copy.deepcopy(template)}
    spec = {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": types}
    return {"apiVersion": "kubeflow.org/v1", "kind": TRAINING_JOB, "metadata": metadata, "spec": spec, "status": {}}


def path_of(workload: Json) -> str:
    return f"{KINDS[workload['kind']]}/{workload['metadata']['name']}"


def counts(workload: Json) -> dict[str, int]:
    """The pods that it has at a time, by pod set."""
    if workload["kind"] == JOB:
        return {_MAIN: int(workload["spec"]["parallelism"])}
    if workload["kind"] == STATEFUL_SET:
        return {_MAIN: int(workload["spec"]["replicas"])}
    return {name.lower(): int(one["replicas"]) for name, one in workload["spec"]["pytorchReplicaSpecs"].items()}


def places(workload: Json) -> list[Place]:
    """The places of all pods that have to complete."""
    if workload["kind"] == JOB:
        return [(_MAIN, index) for index in range(workload["spec"]["completions"])]
    return [(name, index) for name, count in counts(workload).items() for index in range(count)]


def sized(workload: Json, count: int) -> Json:
    """The fields of its spec with so many pods; a PyTorchJob keeps its master, and its workers if it has any."""
    if workload["kind"] == JOB:
        return {"parallelism": count, "completions": count}
    if workload["kind"] == STATEFUL_SET:
        return {"replicas": count}
    types = workload["spec"]["pytorchReplicaSpecs"]
    return {"pytorchReplicaSpecs": {"Worker": {"replicas": max(1, count - 1)}} if "Worker" in types else {}}


def template_of(workload: Json, pod_set: str) -> Json:
    """The template of a pod set; a copy."""
    spec = workload["spec"]
    types = spec.get("pytorchReplicaSpecs")
    one = spec["template"] if types is None else types[pod_set.title()]["template"]
    return copy.deepcopy(one)  # type: ignore[no-any-return]


def size_of(workload: Json) -> int:
    """The GPUs of each of its pods."""
    return gpus(template_of(workload, next(iter(counts(workload)))))


def labels_of(workload: Json, place: Place) -> dict[str, str]:
    """What its controller adds to the labels of a pod."""
    pod_set, index = place
    if workload["kind"] == JOB:
        return {names.COMPLETION_INDEX: str(index)}
    if workload["kind"] == STATEFUL_SET:
        return {_ORDINAL: str(index)}
    return {"training.kubeflow.org/job-name": workload["metadata"]["name"], _TYPE: pod_set, _INDEX: str(index)}


def place_of(pod: Json) -> Place:
    labels = pod["metadata"]["labels"]
    if _TYPE in labels:
        return labels[_TYPE], int(labels[_INDEX])
    return _MAIN, int(labels[_ORDINAL if _ORDINAL in labels else names.COMPLETION_INDEX])


def owner_of(pod: Json) -> str:
    """The uid of a pod's workload."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def suspended(workload: Json) -> bool:
    return bool((workload["spec"].get("runPolicy") or workload["spec"]).get("suspend"))


def suspending(workload: Json, suspend: bool) -> Json:
    """The fields of its spec that suspend or resume it."""
    return {"suspend": suspend} if workload["kind"] == JOB else {"runPolicy": {"suspend": suspend}}


def suspended_by_user(workload: Json) -> bool:
    return suspended(workload) and names.HELD_BY not in workload["metadata"]["annotations"]


def done(workload: Json) -> bool:
    conditions: list[dict[str, Any]] = workload["status"].get("conditions", [])
    return any(one["type"] in _ENDS and one["status"] == "True" for one in conditions)


def completed(workload: Json, pods: Iterable[Json]) -> set[Place]:
    """The places of its completed pods; `pods`: all there are."""
    if workload["kind"] == JOB:
        return {(_MAIN, index) for index in ranks(workload["status"].get("completedIndexes"))}
    if workload["kind"] == STATEFUL_SET:
        return set()
    uid = workload["metadata"]["uid"]
    ends = [pod for pod in pods if owner_of(pod) == uid and pod["status"].get("phase") == "Succeeded"]
    return {place_of(pod) for pod in ends} & set(places(workload))


def counted(workload: Json, ends: Iterable[Place]) -> Json:
    """Its status when these pods have completed."""
    ends = set(ends)
    if workload["kind"] == JOB:
        indexes = sorted(index for _, index in ends)
        return {"completedIndexes": ",".join(map(str, indexes)), "succeeded": len(indexes)}
    by_type = {name: sum(pod_set == name for pod_set, _ in ends) for name in counts(workload)}
    return {"replicaStatuses": {name.title(): {"succeeded": number} for name, number in by_type.items()}}


def all_completed(workload: Json, ends: Iterable[Place]) -> bool:
    """True when these completed pods end it: all of a Job, the master of a PyTorchJob."""
    if workload["kind"] == JOB:
        return set(places(workload)) <= set(ends)
    return workload["kind"] == TRAINING_JOB and ("master", 0) in set(ends)


def ending(workload: Json) -> Json:
    """The condition of one that has ended well."""
    return {"type": "Complete" if workload["kind"] == JOB else "Succeeded", "status": "True"}


def elastic(workload: Json) -> bool:
    """True for a Job that has more completions than pods at a time."""
    return len(places(workload)) > sum(counts(workload).values())
