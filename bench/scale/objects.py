"""Nodes and pods as large as those of real clusters, in the form in which the API server stores them as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from local import nodes
from local.nodes import Grid

NAMESPACES: Final = 40
# Bytes. A node of a cloud has some 30 labels and the names of 50 images, a pod the environment of its containers.
NODE_BYTES: Final = 8_000
POD_BYTES: Final = 3_400
CREATED: Final = "2026-01-01T00:00:00Z"
FILL: Final = "topogate-bench/fill"


def node_items(grid: Grid) -> Iterator[tuple[str, bytes]]:
    """Yield the key in etcd and the value of every node of a grid."""
    for number, body in enumerate(nodes.grid_nodes(grid)):
        yield node_item(number, body)


def pod_items(grid: Grid, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield the key in etcd and the value of so many running pods, spread over the nodes of a grid."""
    hosts = [body["metadata"]["name"] for body in nodes.grid_nodes(grid)]
    for number in range(count):
        yield pod_item(pod(number, host=hosts[number % len(hosts)]))


def node_item(number: int, body: dict[str, Any]) -> tuple[str, bytes]:
    """Return the key and the value of the node of that number in a grid."""
    meta = body["metadata"]
    meta |= {"uid": f"00000000-0000-4000-8000-{number:012x}", "creationTimestamp": CREATED}
    return f"/registry/minions/{meta['name']}", _filled(body, NODE_BYTES)


def pod_item(body: dict[str, Any]) -> tuple[str, bytes]:
    """Return the key and the value of a pod."""
    meta = body["metadata"]
    return f"/registry/pods/{meta['namespace']}/{meta['name']}", _filled(body, POD_BYTES)


def pod(number: int, *, host: str, life: int = 0, ready: bool = True, since: str = CREATED) -> dict[str, Any]:
    """Return a running pod of a ReplicaSet of 50, as its kubelet and the scheduler leave it.

    `life` counts the pods that were there before in its place; `since` is when it became ready, or ceased to be.
    """
    group = number // 50
    changed = {"ContainersReady", "Ready"}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"web-{group}",
        "uid": f"00000000-0000-4000-9000-{group:012x}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    started = {"running": {"startedAt": CREATED}}
    status = {"name": "main", "ready": ready, "restartCount": 0, "state": started, "image": "web", "imageID": ""}
    away = [f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{group}-{number:06}" + (f"-{life}" if life else ""),
            "namespace": f"scale-{group % NAMESPACES}",
            "uid": f"00000000-0000-4000-{0xA000 + life:04x}-{number:012x}",
            "creationTimestamp": CREATED,
            "labels": {"app": f"web-{group}", "pod-template-hash": f"{group:08x}", "tier": "front"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": host,
            "containers": [{"name": "main", "image": "web", "resources": resources}],
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in away
            ],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "priority": 0,
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.0.0.1",
            "startTime": CREATED,
            "conditions": [
                {
                    "type": kind,
                    "status": str(ready or kind not in changed),
                    "lastTransitionTime": since if kind in changed else CREATED,
                }
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [status],
            "qosClass": "Burstable",
        },
    }


def _filled(body: dict[str, Any], size: int) -> bytes:
    """Return the object as JSON of that many bytes: the rest stands for what nobody reads."""
    meta = body["metadata"]
    meta["annotations"] = {FILL: ""}
    missing = size - len(json.dumps(body, separators=(",", ":")))
    meta["annotations"][FILL] = "x" * max(0, missing)
    return json.dumps(body, separators=(",", ":")).encode()
