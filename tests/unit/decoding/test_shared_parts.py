"""Pods of one template share what is equal in them: of 100,000 pods it would be 100 MB."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from engine.api.pod import Pod
from engine.decoding import pods

# Measured: 1.1 kB; without sharing 2.1 kB.
MOST_BYTES = 1_400


def body(rank: int, *, host: str = "host-1", uid: str = "uid-job", **spec: Any) -> bytes:
    """A running pod of a Job, pinned as we pin it; every call makes strings of its own."""
    labels = {
        "batch.kubernetes.io/job-name": "train",
        "batch.kubernetes.io/job-completion-index": str(rank % 8),
        "topogate.dev/managed": "true",
        "topogate.dev/pod-set": "main",
    }
    annotations = {"topogate.dev/domain": f"b1/r1/{host}", "topogate.dev/rank": str(rank % 8)}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    meta = {
        "name": f"train-{rank}",
        "namespace": "default",
        "uid": f"uid-{rank}",
        "resourceVersion": str(1000 + rank),
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "1"}}
    pod_spec = {
        "nodeName": host,
        "nodeSelector": {"example.com/block": "b1", "example.com/rack": "r1"},
        "affinity": {"nodeAffinity": required},
        "containers": [{"name": "main", "resources": resources}],
    }
    return msgspec.json.encode({"metadata": meta, "spec": pod_spec | spec, "status": {"phase": "Running"}})


def test_pods_of_one_template_on_one_host_share_shape_owner_and_texts() -> None:
    one, other = pods.pod(body(0)), pods.pod(body(8))
    assert one.spec.shape is other.spec.shape
    assert one.owner is other.owner
    assert all(one.spec.labels[key] is other.spec.labels[key] for key in one.spec.labels)
    assert all(one.spec.annotations[key] is other.spec.annotations[key] for key in one.spec.annotations)


@pytest.mark.parametrize(
    "different",
    [
        body(0, host="host-2"),
        body(0, nodeSelector={"example.com/block": "b2"}),
        body(0, tolerations=[{"key": "sick", "operator": "Exists"}]),
        body(0, containers=[{"name": "main", "resources": {"requests": {"cpu": "9"}}}]),
    ],
)
def test_pods_that_differ_share_no_shape(different: bytes) -> None:
    assert pods.pod(body(0)).spec.shape != pods.pod(different).spec.shape


def test_what_a_user_can_make_large_is_kept_by_its_pod_alone() -> None:
    """A cache that outlives the pods must not hold megabytes for each of its entries."""
    values = [f"host-{number}" for number in range(1000)]
    term = {"matchExpressions": [{"key": "example.com/host", "operator": "In", "values": values}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    large = [pods.pod(body(rank, affinity=affinity, uid="u" * 10_000)) for rank in (0, 8)]
    assert large[0].spec.shape == large[1].spec.shape
    assert large[0].spec.shape is not large[1].spec.shape
    assert large[0].owner is not large[1].owner


def test_a_pod_takes_little_memory() -> None:
    """With ranks, which make labels and annotations of each pod different."""
    bodies = [body(rank, host=f"host-{rank // 8}") for rank in range(2000)]
    kept: list[Pod] = [pods.pod(bodies[0])]
    gc.collect()
    tracemalloc.start()
    try:
        kept += [pods.pod(one) for one in bodies]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(bodies) < MOST_BYTES
