"""Workloads of every kind in one test's namespace, and the pods that their real controllers make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local.client import Client
from tests.support.eventually import eventually
from tests.support.fleet import Fleet

Json = dict[str, Any]
GATE = {"name": "topogate.dev/placement"}
# group/version/plural, the core group without one.
RESOURCES = {
    "Pod": "v1/pods",
    "Job": "batch/v1/jobs",
    "CronJob": "batch/v1/cronjobs",
    "ReplicaSet": "apps/v1/replicasets",
    "Deployment": "apps/v1/deployments",
    "StatefulSet": "apps/v1/statefulsets",
    "JobSet": "jobset.x-k8s.io/v1alpha2/jobsets",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1/leaderworkersets",
    "PyTorchJob": "kubeflow.org/v1/pytorchjobs",
    "TFJob": "kubeflow.org/v1/tfjobs",
    "XGBoostJob": "kubeflow.org/v1/xgboostjobs",
    "PaddleJob": "kubeflow.org/v1/paddlejobs",
    "JAXJob": "kubeflow.org/v1/jaxjobs",
    "MPIJob": "kubeflow.org/v2beta1/mpijobs",
    "RayCluster": "ray.io/v1/rayclusters",
    "RayJob": "ray.io/v1/rayjobs",
    "RayService": "ray.io/v1/rayservices",
    "TrainingRuntime": "trainer.kubeflow.org/v1alpha1/trainingruntimes",
    "TrainJob": "trainer.kubeflow.org/v1alpha1/trainjobs",
    "VolcanoJob": "batch.volcano.sh/v1alpha1/jobs",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2/sparkapplications",
    "AppWrapper": "workload.codeflare.dev/v1beta2/appwrappers",
}
# The kinds that have another name here than in their group.
KINDS = {"VolcanoJob": "Job"}


class Workloads:
    """Creates workloads in one namespace, whose pods go to the nodes of one test."""

    def __init__(self, client: Client, namespace: str, fleet: Fleet) -> None:
        self.client = client
        self.namespace = namespace
        self.fleet = fleet

    def path(self, kind: str, name: str = "") -> str:
        """The path of a collection, or of one object."""
        return collection(kind, self.namespace) + (f"/{name}" if name else "")

    def create(self, kind: str, name: str, spec: Json, *, annotations: Mapping[str, str] | None = None) -> Json:
        """Create a workload as a user would."""
        version = RESOURCES[kind].rpartition("/")[0]
        metadata = {"name": name, "annotations": dict(annotations or {})}
        body = {"apiVersion": version, "kind": KINDS.get(kind, kind), "metadata": metadata, "spec": spec}
        created: Json = self.client.create(self.path(kind), body)
        return created

    def get(self, kind: str, name: str) -> Json:
        found: Json = self.client.get(self.path(kind, name))
        return found

    def items(self, kind: str) -> list[Json]:
        return self.client.items(self.path(kind))

    def merge(self, kind: str, name: str, spec: Json) -> None:
        """Merge into an object's spec."""
        self.client.patch(self.path(kind, name), {"spec": spec})

    def set(self, kind: str, name: str, changes: Mapping[str, object]) -> None:
        """Set JSON paths of an object, all in one PATCH."""
        patch = [{"op": "add", "path": path, "value": value} for path, value in changes.items()]
        self.client.patch(self.path(kind, name), patch, kind="json")

    def release(self, pod: str) -> None:
        """Take a pod's gates off."""
        self.merge("Pod", pod, {"schedulingGates": None})

    def pods(self) -> dict[str, Json]:
        """Pods by name, without those that are going."""
        return {pod["metadata"]["name"]: pod for pod in self.items("Pod") if "deletionTimestamp" not in pod["metadata"]}

    def wait(self, count: int, *, phase: str = "") -> list[Json]:
        """Wait for exactly `count` pods, all of them in this phase."""

        def there() -> list[Json]:
            found = list(self.pods().values())
            assert len(found) == count, sorted(self.pods())
            assert all(phase in ("", pod["status"]["phase"]) for pod in found), [pod["status"] for pod in found]
            return found

        return eventually(there, message=f"{count} pods {phase}")

    def owner(self, one: Json) -> Json:
        """The controller of an object, read, with its kind."""
        reference = next(ref for ref in one["metadata"]["ownerReferences"] if ref.get("controller"))
        owner = self.get(reference["kind"], reference["name"])
        assert owner["metadata"]["uid"] == reference["uid"]
        return {**owner, "kind": reference["kind"]}

    def owners(self, pod: Json) -> list[tuple[str, str]]:
        """Kind and name of the controllers of a pod, upwards."""
        chain: list[tuple[str, str]] = []
        while pod["metadata"].get("ownerReferences"):
            pod = self.owner(pod)
            chain.append((pod["kind"], pod["metadata"]["name"]))
        return chain

    def template(self, *, gated: bool = False, container: str = "main", **spec: Any) -> Json:
        """A pod template that needs nothing."""
        gates = {"schedulingGates": [GATE]} if gated else {}
        containers = [{"name": container, "image": "example.com/train:1"}]
        return {"spec": {"nodeSelector": self.fleet.selector, "containers": containers, **gates, **spec}}


def collection(kind: str, namespace: str) -> str:
    """The path of one kind's objects in a namespace."""
    version, _, plural = RESOURCES[kind].rpartition("/")
    return f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{namespace}/{plural}"


def labels(pod: Json, *names: str) -> tuple[str, ...]:
    """The values of labels, in this order."""
    return tuple(pod["metadata"]["labels"].get(name, "absent") for name in names)


def held(pods: list[Json]) -> bool:
    """True when our gate, and nothing but it, keeps every pod from being bound."""
    return all(pod["spec"].get("schedulingGates") == [GATE] and not pod["spec"].get("nodeName") for pod in pods)


def uids(pods: Mapping[str, Json]) -> dict[str, str]:
    """Name -> uid."""
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}
