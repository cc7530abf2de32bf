"""Volcano's Job controller, imitated: tasks, indexes, dependsOn, restart policies.

Read in pkg/controllers/job of volcano 1.16. Left out: PodGroups (with the default scheduler nobody looks at them, and
pods are made once Volcano's own scheduler has let the group in, which here is at once), plugins, commands, volumes.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from local.client import Client
from tests.support.imitations.controller import Imitation, Json, controlled
from tests.support.raw_pods import ended

VOLCANO = "volcano.sh"
RESTART = "RestartJob"


class VolcanoJobs(Imitation):
    """Pods <job>-<task>-<index>, each owned by the Job."""

    group: ClassVar[str] = "batch.volcano.sh"
    version: ClassVar[str] = "v1alpha1"
    kind: ClassVar[str] = "Job"
    plural: ClassVar[str] = "jobs"

    def __init__(self, client: Client, namespace: str) -> None:
        super().__init__(client, namespace)
        self._seen: dict[tuple[str, int], set[str]] = {}  # uid, version -> the pods that were there

    def owns(self, workload: Json, pod: Json) -> bool:
        return controlled(pod, workload["metadata"]["uid"])

    def sync(self, workload: Json, pods: list[Json]) -> None:
        status = workload.get("status") or {}
        phase = status.get("state", {}).get("phase", "Pending")
        version = status.get("version", 0)
        if phase in ("Completed", "Failed", "Terminated"):
            return
        if phase == "Restarting":
            for pod in pods:
                self.drop(pod)
            if not pods:
                self.tell(workload, {"state": {"phase": "Pending"}})
            return
        current = [pod for pod in pods if pod["metadata"]["annotations"].get(f"{VOLCANO}/job-version") == str(version)]
        there = {pod["metadata"]["name"] for pod in current if "deletionTimestamp" not in pod["metadata"]}
        seen = self._seen.setdefault((workload["metadata"]["uid"], version), set())
        lost = (seen & _names(workload)) - there
        seen.update(there)
        if _restarts(workload, current, lost=bool(lost)):
            retries = status.get("retryCount", 0) + 1
            self.tell(workload, {"state": {"phase": "Restarting"}, "version": version + 1, "retryCount": retries})
            return
        seen.update(self._pods(workload, pods, version))
        self._phase(workload, current)

    def _pods(self, workload: Json, pods: list[Json], version: int) -> set[str]:
        """Make what is missing, delete what is too many; a task waits for those that it depends on. What was made."""
        made: set[str] = set()
        known = {pod["metadata"]["name"]: pod for pod in pods}
        for task in _tasks(workload):
            if _allowed(workload, task, pods):
                for index in range(_replicas(task)):
                    name = f"{workload['metadata']['name']}-{task['name']}-{index}"
                    if name not in known:
                        self.make(self._pod(workload, task, name, index, version))
                        made.add(name)
        for name in known.keys() - _names(workload):
            self.drop(known[name])
        return made

    def _pod(self, workload: Json, task: Json, name: str, index: int, version: int) -> Json:
        job = workload["metadata"]["name"]
        template = copy.deepcopy(task["template"])
        metadata, spec = template.get("metadata", {}), template["spec"]
        if not spec.get("schedulerName"):
            spec["schedulerName"] = workload["spec"].get("schedulerName", "volcano")
        told = {
            f"{VOLCANO}/job-name": job,
            f"{VOLCANO}/task-spec": task["name"],
            f"{VOLCANO}/task-index": str(index),
            f"{VOLCANO}/queue-name": workload["spec"].get("queue", "default"),
        }
        annotations = {
            "scheduling.k8s.io/group-name": f"{job}-{workload['metadata']['uid']}",
            f"{VOLCANO}/job-version": str(version),
            f"{VOLCANO}/template-uid": f"{job}-{task['name']}",
        }
        return {
            "metadata": {
                "name": name,
                "labels": {**metadata.get("labels", {}), **told, f"{VOLCANO}/job-namespace": self.namespace},
                "annotations": {**metadata.get("annotations", {}), **told, **annotations},
                "ownerReferences": [self.reference(workload)],
            },
            "spec": spec,
        }

    def _phase(self, workload: Json, pods: list[Json]) -> None:
        total = sum(_replicas(task) for task in workload["spec"]["tasks"])
        minimum = workload["spec"].get("minAvailable") or total
        phases = [pod["status"].get("phase") for pod in pods]
        succeeded, running = phases.count("Succeeded"), phases.count("Running")
        phase = "Pending"
        if sum(map(ended, pods)) == total:
            phase = "Completed" if succeeded >= minimum else "Failed"
        elif running + succeeded >= minimum:
            phase = "Running"
        counts = {"running": running, "succeeded": succeeded, "failed": phases.count("Failed")}
        self.tell(workload, {"state": {"phase": phase}, "minAvailable": minimum, **counts})


def _tasks(workload: Json) -> list[Json]:
    """The tasks; one without a name is called as Volcano's webhook calls it."""
    tasks = enumerate(workload["spec"]["tasks"])
    return [{**task, "name": task.get("name") or f"default{number}"} for number, task in tasks]


def _names(workload: Json) -> set[str]:
    job = workload["metadata"]["name"]
    return {f"{job}-{task['name']}-{index}" for task in _tasks(workload) for index in range(_replicas(task))}


def _replicas(task: Json) -> int:
    return int(task.get("replicas", 1))


def _allowed(workload: Json, task: Json, pods: list[Json]) -> bool:
    """Whether every task that this one depends on has enough running pods."""
    before = (task.get("dependsOn") or {}).get("name", [])
    for other in (one for one in workload["spec"]["tasks"] if one.get("name") in before):
        running = sum(
            pod["metadata"]["labels"].get(f"{VOLCANO}/task-spec") == other["name"]
            and pod["status"].get("phase") in ("Running", "Succeeded")
            for pod in pods
        )
        if running < other.get("minAvailable", _replicas(other)):
            return False
    return True


def _restarts(workload: Json, pods: list[Json], *, lost: bool) -> bool:
    """Whether a pod's end (PodFailed) or its deletion (PodEvicted) restarts the whole Job by its policies."""
    events = {
        str(event)
        for policy in workload["spec"].get("policies", [])
        if policy.get("action") == RESTART
        for event in (policy.get("event"), *policy.get("events", []))
    }
    failed = any(pod["status"].get("phase") == "Failed" for pod in pods)
    happened = {"PodFailed": failed, "PodEvicted": lost, "*": failed or lost}
    return any(happened.get(event, False) for event in events)
