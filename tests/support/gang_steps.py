"""What happens to gangs in the tests of their life: what users do with their Jobs, and what others do beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support import raw_pods
from tests.support.eventually import PATIENCE, eventually
from tests.support.gangs import INDEX, Json, Namespace
from tests.support.raw_placements import slots
from tests.support.raw_pods import held


def suspend(gangs: Namespace, job: str) -> None:
    """The user suspends his Job."""
    gangs.client.patch(f"{gangs.jobs_path}/{job}", {"spec": {"suspend": True}})


def resume(gangs: Namespace, job: str) -> None:
    """The user resumes his Job."""
    gangs.client.patch(f"{gangs.jobs_path}/{job}", {"spec": {"suspend": False}})


def delete_job(gangs: Namespace, job: str) -> None:
    """The user deletes his Job; its pods go in the background."""
    gangs.client.delete(f"{gangs.jobs_path}/{job}")


def complete(gangs: Namespace, job: str) -> None:
    """Let every bound pod of a Job end well."""
    raw_pods.complete(gangs.client, gangs.name, gangs.pods(job))


def completed(gangs: Namespace, job: str, timeout: float = PATIENCE) -> None:
    """Wait until a Job is Complete."""
    eventually(lambda: "Complete" in conditions(gangs, job), timeout, lambda: f"{job} ends\n{gangs.describe(job)}")


def conditions(gangs: Namespace, job: str) -> set[str]:
    """The conditions of a Job that are true."""
    listed = gangs.job(job).get("status", {}).get("conditions", [])
    return {condition["type"] for condition in listed if condition["status"] == "True"}


def failures(gangs: Namespace, job: str) -> int:
    """How many pods the Job counts as failed: its user's retries."""
    return int(gangs.job(job).get("status", {}).get("failed", 0))


def live_hosts(gangs: Namespace, job: str) -> list[str]:
    """The hosts of a Job's bound pods that still use them, one entry per pod."""
    return [
        pod["spec"]["nodeName"]
        for pod in gangs.pods(job)
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")
    ]


def assigned(gangs: Namespace, job: str) -> Mapping[str, int]:
    """Host -> number of pods in a gang's assignment; empty while it has none."""
    return slots(gangs.placement(job))


def held_pods(gangs: Namespace, job: str, count: int) -> list[Json]:
    """Wait until `count` pods of a Job exist and our gate holds all of them; the pods."""

    def look() -> list[Json]:
        pods = gangs.pods(job)
        return pods if len(pods) == count and all(map(held, pods)) else []

    return eventually(look, message=lambda: f"{count} pods of {job} exist and are held\n{gangs.describe(job)}")


def pod_of_index(gangs: Namespace, job: str, index: int) -> Json:
    """The newest pod of an index."""
    pods = [pod for pod in gangs.pods(job) if pod["metadata"]["labels"].get(INDEX) == str(index)]
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def replaced(gangs: Namespace, job: str, index: int, uid: str) -> Json:
    """The live pod of an index that is not the one of that uid; empty while there is none."""
    pods = [
        pod
        for pod in gangs.pods(job)
        if pod["metadata"]["labels"].get(INDEX) == str(index)
        and pod["metadata"]["uid"] != uid
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"]["phase"] in ("Pending", "Running")
    ]
    return pods[0] if pods else {}


def occupy(gangs: Namespace, host: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None) -> str:
    """Somebody else's pod takes GPUs of a host past every scheduler; returns its name once the leader knows it.

    For policies under which gangs of this namespace are placed.
    """
    name = raw_pods.occupy(gangs.client, gangs.name, host, gpus=gpus, labels=labels)
    gangs.pods_seen()
    return name


def vacate(gangs: Namespace, name: str) -> None:
    """A pod of `occupy` goes, and is gone."""
    path = f"/api/v1/namespaces/{gangs.name}/pods/{name}"
    gangs.client.delete(path, grace=0)
    eventually(lambda: gangs.client.find(path) is None, message=f"{name} is gone")


def status_of(gangs: Namespace, job: str) -> Mapping[str, Any]:
    """The status of a gang's Placement."""
    found: Mapping[str, Any] = (gangs.placement(job) or {}).get("status") or {}
    return found
