"""Pods as the API server shows them: what they ask for, where they are, what holds them; and pods in the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from local.client import NOT_FOUND, Client, ClientError
from local.kubelets import complete_pod
from tests.support.eventually import eventually

GATE = "topogate.dev/placement"
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def gpus(pod: Json) -> int:
    """The GPUs of a pod, or of a template."""
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def host(pod: Json) -> str | None:
    """Where a pod is bound, or must go because it is pinned and nothing holds it."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    if spec.get("schedulingGates"):
        return None
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    for term in (required or {}).get("nodeSelectorTerms", []):
        for one in term.get("matchFields", []):
            return str(one["values"][0])
    return None


def held(pod: Json) -> bool:
    """True when our gate is on."""
    return any(one["name"] == GATE for one in pod["spec"].get("schedulingGates", []))


def ended(pod: Json) -> bool:
    """True when its kubelet is through with it."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def complete(client: Client, namespace: str, pods: Iterable[Json]) -> None:
    """Let those that are bound end well."""
    for pod in pods:
        if pod["spec"].get("nodeName"):
            try:
                complete_pod(client, namespace, pod["metadata"]["name"])
            except ClientError as error:
                if error.status != NOT_FOUND:  # it went while we looked
                    raise


def occupy(client: Client, namespace: str, host: str, *, gpus: int, labels: Mapping[str, str] | None = None) -> str:
    """A pod takes GPUs of a host past every scheduler; returns its name once it runs."""
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    name = f"other-{host}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    client.create(
        path,
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {
                "nodeName": host,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "example.com/other:1", "resources": resources}],
            },
        },
    )
    eventually(lambda: client.get(f"{path}/{name}")["status"]["phase"] == "Running", message=f"{name} runs")
    return name
