"""Example objects of every workload kind (`tests/data/kinds`), and pods as their controllers label them.

`workload_of` and `pod_of` read objects and labels as the caches do: what holds for them holds for what runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.decoding import pods as cluster_pods
from engine.decoding.workloads import workload
from engine.gang import key as gang_key
from engine.kinds.read import read
from engine.kinds.registry import built_in
from engine.kinds.structure import ParsedWorkload

FILES = sorted((Path(__file__).parents[1] / "data" / "kinds").glob("*.yaml"))
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.com/train"}]}}
Labels = dict[str, str]


@cache
def example(name: str) -> Any:
    """The file of a kind: its object, what is to be read of it, pods and variants."""
    path = next(path for path in FILES if path.stem == name)
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def structure_of(raw: Mapping[str, Any]) -> ParsedWorkload:
    entry = built_in().entry_of(raw)
    assert entry is not None
    return read(entry, raw, registry=built_in())


def workload_of(raw: Mapping[str, Any]) -> Workload:
    """An object as the engine sees it."""
    entry = built_in().entry_of(raw)
    assert entry is not None
    return workload(raw, entry=entry, registry=built_in())


def pod_of(labels: Mapping[str, str]) -> Pod:
    """A pod with these labels as the engine sees it."""
    return cluster_pods.pod({"metadata": {"name": "p", "namespace": "team", "labels": dict(labels)}})


def group_of(pod: Pod, workload: Workload) -> int | None:
    """Which of a workload's gangs a pod joins: 0 where there is one, None for a label that names none of them."""
    key = gang_key.joined_key(workload, pod)
    return int(gang_key.parts(key)[1] or 0) if key in gang_key.keys_of(workload) else None


def merged(raw: Any, patch: Any) -> Any:
    """RFC 7386: mappings are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict) or not isinstance(raw, dict):
        return copy.deepcopy(patch)
    result = dict(raw)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(raw.get(key, {}) if isinstance(value, dict) else None, value)
    return result


def job_pods(pods: int) -> Iterator[Labels]:
    """The Job controller, Indexed."""
    for index in range(pods):
        yield {"batch.kubernetes.io/job-completion-index": str(index)}


def jobset_pods(name: str, replicas: int, pods: int) -> Iterator[Labels]:
    for job in range(replicas):
        for labels in job_pods(pods):
            yield {
                "jobset.sigs.k8s.io/replicatedjob-name": name,
                "jobset.sigs.k8s.io/job-index": str(job),
                **labels,
            }


def lws_pods(groups: int, size: int) -> Iterator[Labels]:
    for group in range(groups):
        for worker in range(size):
            yield {
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
            }


def training_pods(counts: Mapping[str, int]) -> Iterator[Labels]:
    """The training operator, all kinds but MPIJob."""
    for kind, count in counts.items():
        for index in range(count):
            yield {
                "training.kubeflow.org/replica-type": kind.lower(),
                "training.kubeflow.org/replica-index": str(index),
            }


def mpi_pods(workers: int, *, launcher_works: bool) -> Iterator[Labels]:
    """The MPI operator: the launcher has an index only when it works."""
    launcher = {"training.kubeflow.org/job-role": "launcher"}
    yield launcher | ({"training.kubeflow.org/replica-index": "0"} if launcher_works else {})
    for index in range(workers):
        yield {
            "training.kubeflow.org/job-role": "worker",
            "training.kubeflow.org/replica-index": str(index + launcher_works),
        }


def ray_pods(group: str, replicas: int, hosts: int) -> Iterator[Labels]:
    for replica in range(replicas):
        for host in range(hosts):
            index = {"ray.io/worker-group-replica-index": str(replica), "ray.io/replica-host-index": str(host)}
            yield {"ray.io/node-type": "worker", "ray.io/group": group} | (index if hosts > 1 else {})
