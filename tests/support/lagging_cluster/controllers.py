"""Kubernetes' own part: the controllers of workloads, the scheduler, the kubelets, and what collects garbage.

Each sees the truth; that they are late shows in how seldom a life lets them act.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tests.support.cluster_records import REFUSAL
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import NODES, PLACEMENTS, PODS
from tests.support.lagging_cluster.job_set_controller import JobSetController
from tests.support.lagging_cluster.kinds import Place
from tests.support.lagging_cluster.objects import bound, capacity_of, controller_of, deleting, maker_of, ready
from tests.support.lagging_cluster.workloads import at_a_time, done, failed, kind_of, path_of, place_of, suspended
from tests.support.lagging_cluster.world import World
from tests.support.raw_pods import ended, gpus, host

Create = Callable[[Json], object]
SKIPPED = 0.4  # the part of pods that a hasty controller leaves for later
SLOW = 0.5  # the part of ending pods whose kubelet takes longer


class Controllers:
    """They act on one cluster; `create` stores a new pod, through a webhook."""

    def __init__(self, world: World, create: Create) -> None:
        self._world = world
        self._api = world.api
        self._create = create
        self._job_sets = JobSetController(world)
        self._removed: set[str] = set()  # uids of pods that the controllers of their workloads have deleted

    def all(self) -> None:
        """Each does everything that it can."""
        self.run_workloads()
        self.schedule()
        self.end_pods()
        self.collect_garbage()

    # -- the controllers of workloads ---------------------------------------------------------------------------------

    def run_workloads(self, *, some: bool = False) -> None:
        """Delete pods that no workload should have, create those that one lacks, all or `some`, end what is done."""
        self._run_job_sets(some=some)
        workloads = {one["metadata"]["uid"]: one for one in self._world.makers() if not deleting(one)}
        workloads = {uid: self._failed(one) for uid, one in workloads.items()}
        there: dict[str, set[Place]] = {uid: set() for uid in workloads}
        unwanted = self._unwanted(workloads)
        for pod in self._api.objects(PODS):
            if maker_of(pod) and self._keeps(pod, workloads.get(maker_of(pod)), unwanted):
                there[maker_of(pod)].add(place_of(pod))
        for uid, workload in workloads.items():
            kind = kind_of(workload)
            ends = kind.completed(workload, self._api.objects(PODS))
            if kind.ends and not kind.counts_at_once and not done(workload):
                self._count(workload, ends)
            if kind.all_completed(workload, ends, there[uid]):
                self._api.put(path_of(workload), status={"conditions": [kind.ending()]})
            elif not suspended(workload) and not done(workload):
                self._fill_up(workload, there[uid], ends, some=some)
            if status := kind.with_active(workload, len(there[uid])):
                self._api.put(path_of(workload), status=status)

    def _run_job_sets(self, *, some: bool) -> None:
        """Reconcile every JobSet, or `some`, and let the Jobs go that are deleted, after their pods."""
        for one in self._world.workloads():
            if not kind_of(one).makes_pods and not (some and self._world.rng.random() < SKIPPED):
                self._job_sets.run(one)
        in_use = {maker_of(pod) for pod in self._api.objects(PODS)}
        for one in self._world.makers():
            if deleting(one) and one["metadata"]["uid"] not in in_use:
                self._world.note("gone", one["metadata"]["name"])
                self._api.remove(path_of(one))

    def _failed(self, workload: Json) -> Json:
        """The workload; a Job that retries nothing fails with a pod that fails or is deleted by somebody else."""
        if workload["spec"].get("backoffLimit") != 0 or suspended(workload) or done(workload):
            return workload
        uid, ends = workload["metadata"]["uid"], kind_of(workload).completed(workload, ())
        lost = (
            pod["status"]["phase"] == "Failed" or (deleting(pod) and pod["metadata"]["uid"] not in self._removed)
            for pod in self._api.objects(PODS)
            if maker_of(pod) == uid and pod["status"]["phase"] != "Succeeded" and place_of(pod) not in ends
        )
        if not any(lost):
            return workload
        self._world.note("has failed", workload["metadata"]["name"])
        return self._api.put(path_of(workload), status={"conditions": [{"type": "Failed", "status": "True"}]})

    def _unwanted(self, workloads: Mapping[str, Json]) -> set[str]:
        """The uids of active pods that are too many for their workloads."""
        active: dict[str, list[Json]] = {uid: [] for uid in workloads}
        for pod in self._api.objects(PODS):
            if maker_of(pod) in active and not ended(pod) and not deleting(pod):
                active[maker_of(pod)].append(pod)
        return {
            pod["metadata"]["uid"]
            for uid, pods in active.items()
            for pod in kind_of(workloads[uid]).unwanted(workloads[uid], pods)
        }

    def _keeps(self, pod: Json, workload: Json | None, unwanted: Collection[str]) -> bool:
        """True for a pod that counts; others are deleted."""
        path = f"{PODS}/{pod['metadata']['name']}"
        if ended(pod):
            cleans = workload is not None and kind_of(workload).cleans
            forgets = cleans and suspended(workload) and not done(workload)
            if workload is None or forgets or pod["status"]["phase"] == "Failed":
                self._api.remove(path)
            return False
        if deleting(pod):
            return workload is not None and kind_of(workload).same_names
        over = workload is not None and done(workload) and (kind_of(workload).cleans or failed(workload))
        if workload is None or suspended(workload) or over or pod["metadata"]["uid"] in unwanted:
            self._removed.add(pod["metadata"]["uid"])
            self._world.note("its controller deletes", pod["metadata"]["name"])
            self._api.delete_pod(path)
            return False
        return True

    def _count(self, workload: Json, ends: set[Place]) -> None:
        """Write how many pods have completed, if that is news; while it is suspended this stays as it was."""
        status: Json = {"conditions": [{"type": "Suspended", "status": str(suspended(workload))}]}
        if not suspended(workload):
            status |= kind_of(workload).counted(workload, ends)
            status["startTime"] = workload["status"].get("startTime", self._world.stamp())
        if workload["status"] != {**workload["status"], **status}:
            self._api.put(path_of(workload), status=status)

    def _fill_up(self, workload: Json, there: set[Place], ends: set[Place], *, some: bool) -> None:
        for place in kind_of(workload).lacking(workload, there, ends):
            if len(there) >= at_a_time(workload):
                return
            if some and self._world.rng.random() < SKIPPED:
                continue
            there.add(place)
            self._create(self._pod(workload, place))

    def _pod(self, workload: Json, place: Place) -> Json:
        kind = kind_of(workload)
        template = kind.template(workload, place[0])
        owner = {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": workload["metadata"]["name"]}
        labels = {**template["metadata"].get("labels", {}), **kind.labels(workload, place)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": kind.pod_name(workload, place, self._world.number),
                "namespace": "default",
                "labels": labels,
                "annotations": template["metadata"].get("annotations", {}),
                "creationTimestamp": self._world.stamp(),
                "ownerReferences": [{**owner, "uid": workload["metadata"]["uid"], "controller": True}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }

    # -- the scheduler and the kubelets ------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Bind the pods that nothing holds to the hosts that they are pinned to, or refuse them.

        A refused pod whose workload is suspended is deleted before the scheduler tries it again.
        """
        leaving = {one["metadata"]["uid"] for one in self._world.makers() if suspended(one)}
        for pod in self._api.objects(PODS):
            target = host(pod)
            if target is None or bound(pod) or deleting(pod) or pod["status"]["phase"] != "Pending":
                continue
            if pod["status"].get("conditions") and maker_of(pod) in leaving:
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
        """Delete the Placements of workloads that are gone, and the pods of nodes that are gone."""
        uids = {one["metadata"]["uid"] for one in self._world.workloads()}
        for placement in self._api.objects(PLACEMENTS):
            owners = {one["uid"] for one in placement["metadata"].get("ownerReferences", [])}
            if owners and not owners & uids:
                self._world.note("collected", placement["metadata"]["name"])
                self._api.remove(f"{PLACEMENTS}/{placement['metadata']['name']}")
        for one in self._world.makers():
            if controller_of(one) and controller_of(one)["uid"] not in uids:
                self._world.note("collected", one["metadata"]["name"])
                self._api.remove(path_of(one))
        nodes = self._nodes()
        for pod in self._api.objects(PODS):
            if bound(pod) and pod["spec"]["nodeName"] not in nodes:
                self._world.note("collected", pod["metadata"]["name"])
                self._api.remove(f"{PODS}/{pod['metadata']['name']}")

    def _nodes(self) -> Mapping[str, Json]:
        return {one["metadata"]["name"]: one for one in self._api.objects(NODES)}
