"""Kubernetes' own part: the Job controller, the scheduler, the kubelets, and what collects garbage.

Each sees the truth; that they are late shows in how seldom a life lets them act.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from engine.api import names
from tests.support.cluster_records import REFUSAL
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import JOBS, NODES, PLACEMENTS, PODS
from tests.support.lagging_cluster.objects import (
    bound,
    capacity_of,
    completed,
    deleting,
    done,
    index_of,
    owner_of,
    ready,
)
from tests.support.lagging_cluster.world import World
from tests.support.raw_pods import ended, gpus, host

Create = Callable[[Json], object]
SKIPPED = 0.4  # the part of pods that a hasty Job controller leaves for later
SLOW = 0.5  # the part of ending pods whose kubelet takes longer


class Controllers:
    """They act on one cluster; `create` stores a new pod, through a webhook."""

    def __init__(self, world: World, create: Create) -> None:
        self._world = world
        self._api = world.api
        self._create = create

    def all(self) -> None:
        """Each does everything that it can."""
        self.run_jobs()
        self.schedule()
        self.end_pods()
        self.collect_garbage()

    # -- the Job controller ------------------------------------------------------------------------------------------

    def run_jobs(self, *, some: bool = False) -> None:
        """Delete pods that a Job should not have, create those that it lacks, all or `some`, and end what is done."""
        jobs = {one["metadata"]["uid"]: one for one in self._api.objects(JOBS)}
        there: dict[str, set[int]] = {uid: set() for uid in jobs}
        for pod in self._api.objects(PODS):
            if owner_of(pod) and self._keeps(pod, jobs.get(owner_of(pod))):
                there[owner_of(pod)].add(index_of(pod))
        for uid, job in jobs.items():
            if len(completed(job)) == job["spec"]["completions"]:
                status = {"conditions": [{"type": "Complete", "status": "True"}]}
                self._api.put(f"{JOBS}/{job['metadata']['name']}", status=status)
            elif not job["spec"]["suspend"] and not done(job):
                self._fill_up(job, there[uid], some=some)

    def _keeps(self, pod: Json, job: Json | None) -> bool:
        """True for a pod that counts; others are deleted."""
        path = f"{PODS}/{pod['metadata']['name']}"
        if ended(pod):
            if job is None or pod["status"]["phase"] == "Failed":
                self._api.remove(path)
            return False
        if deleting(pod):
            return False
        if job is None or job["spec"]["suspend"] or index_of(pod) >= job["spec"]["completions"]:
            self._world.note("Job controller deletes", pod["metadata"]["name"])
            self._api.delete_pod(path)
            return False
        return True

    def _fill_up(self, job: Json, there: set[int], *, some: bool) -> None:
        for index in range(job["spec"]["completions"]):
            if len(there) >= job["spec"]["parallelism"]:
                return
            if index in there or index in completed(job) or (some and self._world.rng.random() < SKIPPED):
                continue
            there.add(index)
            self._create(self._pod(job, index))

    def _pod(self, job: Json, index: int) -> Json:
        name, template = job["metadata"]["name"], copy.deepcopy(job["spec"]["template"])
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        labels = {**template["metadata"].get("labels", {}), names.COMPLETION_INDEX: str(index)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}-{self._world.number()}",
                "namespace": "default",
                "labels": labels,
                "annotations": template["metadata"].get("annotations", {}),
                "creationTimestamp": self._world.stamp(),
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }

    # -- the scheduler and the kubelets ------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Bind the pods that nothing holds to the hosts that they are pinned to, or refuse them."""
        for pod in self._api.objects(PODS):
            target = host(pod)
            if target is None or bound(pod) or deleting(pod) or pod["status"]["phase"] != "Pending":
                continue
            if self._fits(pod, target):
                self._world.note("bound", pod["metadata"]["name"], target)
                self._bind(pod, target)
            elif not pod["status"].get("conditions"):
                self._world.note("no room for", pod["metadata"]["name"], target)
                condition = {**self._condition("PodScheduled", "False"), "reason": "Unschedulable", "message": REFUSAL}
                self._api.put(f"{PODS}/{pod['metadata']['name']}", status={"conditions": [condition]})

    def _fits(self, pod: Json, target: str) -> bool:
        node = self._api.get(f"{NODES}/{target}")
        if node is None or node["spec"].get("unschedulable") or not ready(node):
            return False
        others = (one for one in self._api.objects(PODS) if one["spec"].get("nodeName") == target and not ended(one))
        return gpus(pod) + sum(map(gpus, others)) <= capacity_of(node)

    def _bind(self, pod: Json, target: str) -> None:
        conditions = [self._condition("PodScheduled", "True"), self._condition("Ready", "True")]
        path = f"{PODS}/{pod['metadata']['name']}"
        self._api.put(path, spec={"nodeName": target}, status={"phase": "Running", "conditions": conditions})

    def _condition(self, kind: str, status: str) -> Json:
        return {"type": kind, "status": status, "lastTransitionTime": self._world.stamp()}

    def end_pods(self, *, slow: bool = False) -> None:
        """Pods that are being deleted go; if `slow`, only some. Those of a dead host stay."""
        nodes = self._nodes()
        for pod in self._api.objects(PODS):
            node = nodes.get(pod["spec"].get("nodeName", ""))
            dead = node is not None and not ready(node)
            if deleting(pod) and not dead and not (slow and self._world.rng.random() < SLOW):
                self._world.note("gone", pod["metadata"]["name"])
                self._api.remove(f"{PODS}/{pod['metadata']['name']}")

    # -- garbage -----------------------------------------------------------------------------------------------------

    def collect_garbage(self) -> None:
        """Delete the Placements of Jobs that are gone, and the pods of nodes that are gone."""
        jobs = {one["metadata"]["uid"] for one in self._api.objects(JOBS)}
        for placement in self._api.objects(PLACEMENTS):
            owners = {one["uid"] for one in placement["metadata"].get("ownerReferences", [])}
            if owners and not owners & jobs:
                self._world.note("collected", placement["metadata"]["name"])
                self._api.remove(f"{PLACEMENTS}/{placement['metadata']['name']}")
        nodes = self._nodes()
        for pod in self._api.objects(PODS):
            if bound(pod) and pod["spec"]["nodeName"] not in nodes:
                self._world.note("collected", pod["metadata"]["name"])
                self._api.remove(f"{PODS}/{pod['metadata']['name']}")

    def _nodes(self) -> Mapping[str, Json]:
        return {one["metadata"]["name"]: one for one in self._api.objects(NODES)}
