"""Holds the leader up between two of its writes, so that a test can end it there: the API server refuses the second."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from local.client import Client, ClientError
from tests.support.eventually import eventually

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MESSAGE = "held up by a test"
REFUSED = 422


class Obstacle:
    """While entered, nobody resumes or suspends a Job (`resume`, `suspend`) or takes a gate off a pod (`release`).

    In one namespace.
    """

    def __init__(self, client: Client, namespace: str, what: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = f"{namespace}-{what}"
        self._suspended = what != "suspend"  # the probe
        self._group, self._resource, self._rule = {
            "resume": ("batch", "jobs", "!(oldObject.spec.suspend && !object.spec.suspend)"),
            "suspend": ("batch", "jobs", "oldObject.spec.suspend || !object.spec.suspend"),
            "release": ("", "pods", "!has(oldObject.spec.schedulingGates) || has(object.spec.schedulingGates)"),
        }[what]

    def __enter__(self) -> Self:
        self._client.create(f"{ADMISSION}/validatingadmissionpolicies", self._policy())
        binding = {
            "metadata": {"name": self._name},
            "spec": {"policyName": self._name, "validationActions": ["Deny"]},
        }
        self._client.create(f"{ADMISSION}/validatingadmissionpolicybindings", binding)
        probe = self._probe()
        eventually(lambda: self._refuses(probe), message=f"the API server refuses to {self._name}")
        self._client.delete(probe, grace=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        probe = self._probe()
        self._client.delete(f"{ADMISSION}/validatingadmissionpolicybindings/{self._name}")
        self._client.delete(f"{ADMISSION}/validatingadmissionpolicies/{self._name}")
        eventually(lambda: not self._refuses(probe), message=f"nothing refuses to {self._name} any more")
        self._client.delete(probe, grace=0)

    def _policy(self) -> dict[str, Any]:
        return {
            "metadata": {"name": self._name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
                    "resourceRules": [
                        {
                            "apiGroups": [self._group],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": [self._resource],
                        }
                    ],
                },
                "validations": [{"expression": self._rule, "message": MESSAGE}],
            },
        }

    def _probe(self) -> str:
        """An object on which nobody but the test acts; its path."""
        container = {"name": "probe", "image": "example.com/probe:1"}
        pod = {"containers": [container], "restartPolicy": "Never"}
        metadata = {"generateName": "probe-"}
        if self._resource == "jobs":
            collection = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
            body: dict[str, Any] = {"metadata": metadata, "spec": {"suspend": self._suspended, "parallelism": 0}}
            body["spec"]["template"] = {"spec": pod}
        else:
            collection = f"/api/v1/namespaces/{self._namespace}/pods"
            body = {"metadata": metadata, "spec": {**pod, "schedulingGates": [{"name": "example.com/probe"}]}}
        return f"{collection}/{self._client.create(collection, body)['metadata']['name']}"

    def _refuses(self, probe: str) -> bool:
        change = {"suspend": not self._suspended} if self._resource == "jobs" else {"schedulingGates": None}
        return refused(lambda: self._client.patch(probe, {"spec": change}, query={"dryRun": "All"}))


def refused(write: Callable[[], object]) -> bool:
    """True when the API server answers 422 because of an obstacle."""
    try:
        write()
    except ClientError as error:
        if error.status != REFUSED or MESSAGE not in error.message:
            raise
        return True
    return False
