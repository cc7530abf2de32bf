"""Kubernetes objects as people write them into files, and `simulate` over them, for tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api import names
from engine.policy.model import Policy
from webhook.simulate.model import Simulation
from webhook.simulate.run import Simulated, facts, simulate
from webhook.snapshot.cluster import offline_cluster
from webhook.snapshot.files import FileObject, read_objects

Json = dict[str, Any]
BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def node(name: str, labels: Mapping[str, str], *, gpus: int = 8, **spec: Any) -> Json:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def grid(blocks: int, racks: int, hosts: int) -> list[Json]:
    """Nodes b0-r0-h0 .. with the demo labels."""
    return [
        node(f"b{block}-r{rack}-h{host}", {BLOCK: f"b{block}", RACK: f"b{block}-r{rack}"})
        for block in range(blocks)
        for rack in range(racks)
        for host in range(hosts)
    ]


def job(name: str, pods: int, asks: Mapping[str, str] | None = None, *, gpus: int = 8, **spec: Any) -> Json:
    """A Job of `pods` pods; `asks` maps the short name of an annotation (require, prefer) or a key to its value."""
    short = {"require": names.REQUIRE, "prefer": names.PREFER, "unconstrained": names.UNCONSTRAINED}
    annotations = {short.get(key, key): value for key, value in (asks or {}).items()}
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


def pod(name: str, host: str, *, gpus: int = 8, phase: str = "Running", **metadata: Any) -> Json:
    """A pod that is bound to a host."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "others", **metadata},
        "spec": {"nodeName": host, "containers": [container]},
        "status": {"phase": phase},
    }


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def policy_map(text: str, *, namespace: str = names.NAMESPACE) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.POLICY_NAME, "namespace": namespace},
        "data": {names.POLICY_KEY: text},
    }


def topology(name: str, *keys: str, group: str = "kueue.x-k8s.io") -> Json:
    levels = [{"nodeLabel": key} for key in keys]
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": levels},
    }


def objects(found: Sequence[Json], *, name: str) -> list[FileObject]:
    return read_objects(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(found)}).encode(), name=name)


def simulated(
    cluster: Sequence[Json],
    workloads: Sequence[Json],
    *,
    policy: Policy | None = None,
    levels: Sequence[str] = (),
    now: float = 0.0,
    **options: Any,
) -> list[Simulated]:
    offline = offline_cluster(objects(cluster, name="cluster.json"), policy=policy, levels=levels)
    ticks = itertools.count(step=180_000)
    return simulate(offline, objects(workloads, name="jobs.json"), clock=lambda: next(ticks), now=now, **options)


def answer(cluster: Sequence[Json], workloads: Sequence[Json], **options: Any) -> Json:
    """What `-o json` prints, with a clock that ticks 180 microseconds; options as of `simulated`."""
    found = simulated(cluster, workloads, **options)
    offline = offline_cluster(
        objects(cluster, name="cluster.json"), policy=options.get("policy"), levels=options.get("levels", ())
    )
    whole = Simulation(workloads=tuple(one.gang for one in found), cluster=facts(offline))
    result: Json = json.loads(whole.model_dump_json(by_alias=True))
    return result


def verdicts(cluster: Sequence[Json], workloads: Sequence[Json], **options: Any) -> list[tuple[str, str, str | None]]:
    """Name, verdict and reason of every workload, in the order of the answer."""
    found = answer(cluster, workloads, **options)["workloads"]
    return [(one["name"], one["verdict"], one["reason"]) for one in found]
