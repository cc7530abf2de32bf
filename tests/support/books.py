"""Bookkeeping from outside: what the hosts of a test carry and what Placements promise, read from the API server."""

from __future__ import annotations

from collections import Counter
from typing import Any

from local.client import Client
from tests.support.fleet import Fleet
from tests.support.gangs import GATE, Namespace

GPU = "nvidia.com/gpu"
PER_HOST = 8
OVER = ("Succeeded", "Failed")


def gpus(pod: dict[str, Any]) -> int:
    """The GPUs of a pod."""
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def host(pod: dict[str, Any]) -> str | None:
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


def held(pod: dict[str, Any]) -> bool:
    """True when our gate is on."""
    return any(one["name"] == GATE for one in pod["spec"].get("schedulingGates", []))


class Books:
    """The pods and Placements of all namespaces on the hosts of one test."""

    def __init__(self, client: Client, fleet: Fleet) -> None:
        self._client = client
        self._hosts = frozenset(fleet.names)

    def overbooked(self) -> dict[str, int]:
        """Hosts on which bound and pinned pods ask for more GPUs than there are: one list, so one moment."""
        asked: Counter[str] = Counter()
        for pod in self._client.items("/api/v1/pods"):
            where = host(pod)
            if where in self._hosts and pod["status"].get("phase") not in OVER:
                asked[where] += gpus(pod)
        return {name: count for name, count in asked.items() if count > PER_HOST}

    def promised_twice(self, gangs: Namespace) -> dict[str, int]:
        """Hosts of which the Placements of the namespace's Jobs promise more GPUs than there are."""
        promised: Counter[str] = Counter()
        jobs = {job["metadata"]["uid"]: job for job in self._client.items(gangs.jobs_path)}
        path = f"/apis/topogate.dev/v1alpha1/namespaces/{gangs.name}/placements"
        for placement in self._client.items(path):
            job = jobs.get(placement["spec"]["workload"]["uid"])
            if job is None:
                continue
            each = gpus(job["spec"]["template"])
            for name, count in slots(placement).items():
                promised[name] += count * each
        return {name: count for name, count in promised.items() if count > PER_HOST}


def slots(placement: dict[str, Any]) -> Counter[str]:
    """Host -> number of slots of a Placement; empty without an assignment."""
    found: Counter[str] = Counter()
    for pod_set in (placement["spec"].get("assignment") or {}).get("podSets", []):
        for slot in pod_set["slots"]:
            found[slot["domain"][-1]] += slot["count"]
    return found
