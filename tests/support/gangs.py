"""Jobs that ask for topology, and what became of them, on a real control plane."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from local.client import Client, ClientError
from tests.support.eventually import PATIENCE, eventually
from tests.support.fleet import Fleet
from tests.support.raw_placements import await_waiting, placements_path

INDEX = "batch.kubernetes.io/job-completion-index"
INVALID = 422  # HTTP
Json = dict[str, Any]


def job_body(
    name: str,
    *,
    pods: int,
    gpus: int = 8,
    annotations: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    completions: int | None = None,
    indexed: bool = True,
    spec: Mapping[str, Any] | None = None,
    pod_spec: Mapping[str, Any] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    pod_labels: Mapping[str, str] | None = None,
) -> Json:
    """A Job of sleeping pods; `selector` keeps it on one test's nodes."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "parallelism": pods,
            "completions": pods if completions is None else completions,
            "completionMode": "Indexed" if indexed else "NonIndexed",
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": dict(pod_annotations or {}), "labels": dict(pod_labels or {})},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": dict(selector or {}),
                    "containers": [
                        {
                            "name": "main",
                            "image": "example.com/train:1",
                            "resources": {
                                "requests": {"cpu": "1", "memory": "1Gi"},
                                "limits": {"nvidia.com/gpu": str(gpus)},
                            },
                        }
                    ],
                    **(pod_spec or {}),
                },
            },
            **(spec or {}),
        },
    }


def require(level: str) -> dict[str, str]:
    return {"topogate.dev/require-topology": level}


def prefer(level: str) -> dict[str, str]:
    return {"topogate.dev/prefer-topology": level}


def on_every_replica(answer: Callable[[], bool]) -> bool:
    """Return whether a dry run answers so at every replica.

    Several go at the same time: the API server opens connections for them, which the kernel spreads over the replicas.
    One after the other would go over the same kept connection.
    """
    with ThreadPoolExecutor(8) as pool:
        return all(pool.map(lambda _: answer(), range(8)))


@dataclass
class Namespace:
    """One test's namespace and nodes: makes Jobs and says where their pods are."""

    client: Client
    name: str
    fleet: Fleet
    jobs_path: str = field(init=False)

    def __post_init__(self) -> None:
        self.jobs_path = f"/apis/batch/v1/namespaces/{self.name}/jobs"

    def submit(self, name: str, **options: Any) -> Json:
        """Create a Job on this test's nodes; returns what the API server stored."""
        options.setdefault("selector", self.fleet.selector)
        stored: Json = self.client.create(self.jobs_path, job_body(name, **options))
        return stored

    def job(self, name: str) -> Json:
        found: Json = self.client.get(f"{self.jobs_path}/{name}")
        return found

    def pods(self, job: str) -> list[Json]:
        return self.client.items(f"/api/v1/namespaces/{self.name}/pods", selector=f"batch.kubernetes.io/job-name={job}")

    def placement(self, job: str) -> Json | None:
        """The Placement of a Job, found by the workload that it names."""
        for item in self.client.items(placements_path(self.name)):
            if item["spec"]["workload"]["name"] == job:
                found: Json = item
                return found
        return None

    def bound(self, job: str) -> dict[int, str]:
        """Index -> host of the bound pods that are not being deleted."""
        return {
            int(pod["metadata"]["labels"].get(INDEX, position)): pod["spec"]["nodeName"]
            for position, pod in enumerate(self.pods(job))
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }

    def all_bound(self, job: str, count: int, timeout: float = PATIENCE) -> dict[int, str]:
        """Wait until `count` pods are bound; index -> host."""

        def look() -> dict[int, str] | None:
            bound = self.bound(job)
            return bound if len(bound) == count else None

        found = eventually(look, timeout, lambda: f"{count} pods of {job} bound\n{self.describe(job)}")
        assert found is not None
        return found

    def waits(self, job: str, reason: str | None = None, timeout: float = PATIENCE) -> Json:
        """Wait until the gang's Placement says Waiting (with that reason); the Placement."""
        return await_waiting(
            lambda: self.placement(job),
            reason,
            timeout=timeout,
            message=lambda: f"{job} waits ({reason})\n{self.describe(job)}",
        )

    def phase(self, job: str) -> str:
        return str(((self.placement(job) or {}).get("status") or {}).get("phase", ""))

    def describe(self, job: str) -> str:
        """Everything about a gang, for a failed test."""
        lines = [f"placement: {self.placement(job)}"]
        stored = self.client.find(f"{self.jobs_path}/{job}")
        if stored is not None:
            lines.append(f"job: {stored['metadata'].get('annotations')} suspend={stored['spec'].get('suspend')}")
            lines.append(f"status: {stored.get('status')}")
        for pod in self.pods(job):
            spec = pod["spec"]
            lines.append(
                f"pod {pod['metadata']['name']}: node={spec.get('nodeName')} gates={spec.get('schedulingGates')} "
                f"affinity={spec.get('affinity')} selector={spec.get('nodeSelector')} "
                f"conditions={pod['status'].get('conditions')}"
            )
        return "\n".join(lines)

    def pods_seen(self) -> None:
        """Wait until the leader has seen what became of pods: else a gang may be planned beside those that are gone.

        Its watch of pods is in order, so it is when it tells of a pod that is made now, which no host would take.
        """
        pods, name = f"/api/v1/namespaces/{self.name}/pods", f"seen-{secrets.token_hex(3)}"
        spec = {
            "nodeSelector": {"example.com/nowhere": name},
            "containers": [{"name": "main", "image": "example.com/seen:1"}],
        }
        self.client.create(pods, {"metadata": {"name": name, "annotations": require("host")}, "spec": spec})
        eventually(lambda: self.placement(name), message="the leader has seen the newest pod")
        self.client.delete(f"{pods}/{name}", grace=0)
        eventually(lambda: self.placement(name) is None, message="the leader has seen that this pod is gone")

    def slots_seen(self, job: str) -> None:
        """Wait until every replica has seen the slots of a Job that runs: none lets its request be taken away."""

        def refused() -> bool:
            gone = {"metadata": {"annotations": {"topogate.dev/require-topology": None}}}
            try:
                self.client.patch(f"{self.jobs_path}/{job}", gone, query={"dryRun": "All"})
            except ClientError as error:
                return error.status == INVALID
            return False

        eventually(lambda: on_every_replica(refused), message=f"every replica has seen the slots of {job}")

    def racks(self, hosts: Mapping[int, str]) -> set[tuple[str, str]]:
        """The racks of these hosts."""
        return {self.fleet.rack_of(host) for host in set(hosts.values())}
