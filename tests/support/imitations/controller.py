"""Controllers that cannot run here, imitated: a loop in a thread that makes pods as the real one does.

An imitation reads and writes through the API server as an account of its own, like a real controller, and looks at
one test's namespace. It is deterministic: each turn lists the workloads and the pods, and does what is missing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.callers import may
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.turns import Turns

Json = dict[str, Any]
ACCOUNT = "imitations"
# Made by somebody else meanwhile, changed meanwhile, gone meanwhile, refused: the next turn looks again.
AGAIN = (404, 409, 422, 500)


class Imitation(Turns):
    """One controller for one namespace; a context manager that runs it. `faults` is what stopped it."""

    pause: ClassVar = 0.05
    passing: ClassVar = AGAIN

    group: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[str]
    plural: ClassVar[str]

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.faults: list[str] = []

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        assert not self.faults, self.faults

    def failed(self, fault: str) -> None:
        self.faults.append(fault)

    @abstractmethod
    def sync(self, workload: Json, pods: list[Json]) -> None:
        """Do for one workload what is missing; `pods` are those that have it as an ancestor, also those that go."""

    @abstractmethod
    def owns(self, workload: Json, pod: Json) -> bool:
        """Whether a pod is this workload's."""

    @classmethod
    def header(cls) -> Json:
        """The apiVersion and kind of its objects."""
        return {"apiVersion": f"{cls.group}/{cls.version}", "kind": cls.kind}

    @classmethod
    def definition(cls) -> Definition:
        """The custom resource without a schema: the API server checks nothing that the real one's would."""
        return Definition(cls.group, cls.kind, cls.plural, (cls.version,), status=True)

    @property
    def collection(self) -> str:
        return f"/apis/{self.group}/{self.version}/namespaces/{self.namespace}/{self.plural}"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def reference(self, workload: Json) -> Json:
        """The owner reference of a controller."""
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "name": workload["metadata"]["name"],
            "uid": workload["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def make(self, pod: Json) -> None:
        """Create a pod; that one of its name still goes, or that it is refused, is for the next turn."""
        self._tried(lambda: self.client.create(self.pods, pod))

    def drop(self, pod: Json) -> None:
        """Delete a pod."""
        if "deletionTimestamp" not in pod["metadata"]:
            self._tried(lambda: self.client.delete(f"{self.pods}/{pod['metadata']['name']}"))

    def tell(self, workload: Json, status: Mapping[str, Any]) -> None:
        """Write the status where it differs."""
        if any(workload.get("status", {}).get(name) != value for name, value in status.items()):
            path = f"{self.collection}/{workload['metadata']['name']}/status"
            self._tried(lambda: self.client.patch(path, {"status": dict(status)}))

    def _tried(self, call: Any) -> None:
        try:
            call()
        except ClientError as error:
            if error.status not in AGAIN:
                raise

    def turn(self) -> None:
        # Pods first: a workload that is listed after them is not taken for one whose pods are missing.
        pods = self.client.items(self.pods)
        for workload in self.client.items(self.collection):
            if "deletionTimestamp" not in workload["metadata"]:
                self.sync(workload, [pod for pod in pods if self.owns(workload, pod)])


def account(control_plane: ControlPlane) -> Client:
    """A client with an account of its own, which may do everything that a controller may."""
    admin = control_plane.client
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    if admin.find(f"{accounts}/{ACCOUNT}") is None:
        admin.create(accounts, {"metadata": {"name": ACCOUNT}})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        admin.create(bindings, {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    token = admin.create(f"{accounts}/{ACCOUNT}/token", request)["status"]["token"]
    user, every = f"system:serviceaccount:default:{ACCOUNT}", ["*"]
    everything = {"apiGroups": every, "resources": every, "verbs": every}
    eventually(lambda: may(admin, user, everything, ""), message="the API server has seen the rights of the imitations")
    return Client(control_plane.url, token=token, ca_certificate=control_plane.ca_certificate)


def controlled(pod: Json, uid: str) -> bool:
    """Whether the object with this uid controls a pod."""
    references = pod["metadata"].get("ownerReferences", [])
    return any(one["uid"] == uid and one.get("controller") for one in references)
