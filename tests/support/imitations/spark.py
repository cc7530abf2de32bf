"""The Spark operator and the driver, imitated: submission, executors that the driver makes, suspension, new numbers.

Read in internal/controller/sparkapplication of spark-operator 2.5 and in Spark's Kubernetes backend. Left out: retries,
web UI, dynamic allocation (the driver keeps as many executors as it asked for at its start).
"""

from __future__ import annotations

import copy
import hashlib
import secrets
from typing import ClassVar

from local.client import Client
from tests.support.imitations.controller import Imitation, Json
from tests.support.raw_pods import ended

OPERATOR = "sparkoperator.k8s.io"
ROLE, NUMBER = "spark-role", "spark-exec-id"
# What Spark asks for beside the template: one core, 1 GiB and the least overhead.
MEMORY = "1408Mi"


class SparkApplications(Imitation):
    """Driver <app>-driver, owned by the application; executors <app>-<hash>-exec-<number>, owned by the driver."""

    group: ClassVar[str] = OPERATOR
    version: ClassVar[str] = "v1beta2"
    kind: ClassVar[str] = "SparkApplication"
    plural: ClassVar[str] = "sparkapplications"

    def __init__(self, client: Client, namespace: str) -> None:
        super().__init__(client, namespace)
        self._numbers: dict[str, int] = {}  # submission -> the last executor's

    def owns(self, workload: Json, pod: Json) -> bool:
        return bool(pod["metadata"].get("labels", {}).get(f"{OPERATOR}/app-name") == workload["metadata"]["name"])

    def sync(self, workload: Json, pods: list[Json]) -> None:
        spec, status = workload["spec"], workload.get("status") or {}
        state = status.get("applicationState", {}).get("state", "")
        if state in ("COMPLETED", "FAILED"):
            return
        if spec.get("suspend"):
            for pod in pods:
                self.drop(pod)
            self._state(workload, "SUSPENDING" if pods else "SUSPENDED")
            return
        if state in ("", "SUSPENDED", "SUSPENDING"):
            # Each submission has an identity of its own.
            if not pods:
                self.tell(workload, {"applicationState": {"state": "SUBMITTED"}, "submissionID": secrets.token_hex(16)})
            return
        driver = next((pod for pod in pods if _role(pod) == "driver"), None)
        if driver is None:
            # The operator submits once; a driver that is lost is a failed application without a restart policy.
            self._state(workload, "FAILED") if state == "RUNNING" else self.make(self._driver(workload, status))
        elif ended(driver):
            for pod in pods:
                if _role(pod) == "executor":
                    self.drop(pod)
            self._state(workload, "COMPLETED" if driver["status"]["phase"] == "Succeeded" else "FAILED")
        elif driver["status"].get("phase") == "Running":
            self._state(workload, "RUNNING")
            self._executors(workload, driver, [pod for pod in pods if _role(pod) == "executor"])

    def _state(self, workload: Json, state: str) -> None:
        self.tell(workload, {"applicationState": {"state": state}})

    def _driver(self, workload: Json, status: Json) -> Json:
        name = f"{workload['metadata']['name']}-driver"
        pod = self._pod(workload["spec"]["driver"], name, workload, status["submissionID"], "driver")
        pod["metadata"]["ownerReferences"] = [self.reference(workload)]
        return pod

    def _executors(self, workload: Json, driver: Json, pods: list[Json]) -> None:
        """Keep as many as were asked for; a lost one comes back under the next number."""
        alive = [pod for pod in pods if not ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        submission = workload["status"]["submissionID"]
        app = hashlib.sha256(submission.encode()).hexdigest()[:16]
        for _ in range(workload["spec"]["executor"].get("instances", 2) - len(alive)):
            number = self._numbers[submission] = self._numbers.get(submission, 0) + 1
            name = f"{workload['metadata']['name']}-{app}-exec-{number}"
            pod = self._pod(workload["spec"]["executor"], name, workload, submission, "executor")
            pod["metadata"]["labels"][NUMBER] = str(number)
            own = {"apiVersion": "v1", "kind": "Pod", "name": driver["metadata"]["name"]}
            reference = {key: self.reference(workload)[key] for key in ("apiVersion", "kind", "name", "uid")}
            pod["metadata"]["ownerReferences"] = [
                reference,
                {**own, "uid": driver["metadata"]["uid"], "controller": True},
            ]
            self.make(pod)

    def _pod(self, side: Json, name: str, workload: Json, submission: str, role: str) -> Json:
        container = "spark-kubernetes-driver" if role == "driver" else "spark-kubernetes-executor"
        template = copy.deepcopy(side.get("template") or {"spec": {"containers": [{"name": container}]}})
        metadata, spec = template.get("metadata", {}), template["spec"]
        main = spec["containers"][0]
        main.setdefault("image", workload["spec"].get("image", "example.com/spark:4"))
        resources = main.setdefault("resources", {})
        resources["requests"] = {
            **resources.get("requests", {}),
            "cpu": str(side.get("coreRequest", side.get("cores", 1))),
            "memory": MEMORY,
        }
        resources["limits"] = {**resources.get("limits", {}), "memory": MEMORY}
        spec["restartPolicy"] = "Never"
        labels = {
            "spark-app-selector": f"spark-{submission}",
            "spark-app-name": workload["metadata"]["name"],
            ROLE: role,
            f"{OPERATOR}/app-name": workload["metadata"]["name"],
            f"{OPERATOR}/submission-id": submission,
            f"{OPERATOR}/launched-by-spark-operator": "true",
        }
        return {
            "metadata": {
                "name": name,
                "labels": {**metadata.get("labels", {}), **side.get("labels", {}), **labels},
                "annotations": {**metadata.get("annotations", {}), **side.get("annotations", {})},
            },
            "spec": spec,
        }


def _role(pod: Json) -> str:
    return str(pod["metadata"]["labels"].get(ROLE, ""))
