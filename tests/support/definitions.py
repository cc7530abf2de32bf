"""CustomResourceDefinitions of the tests' own: kinds whose objects a real API server stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from local.client import Client, ClientError
from tests.support.eventually import eventually

Json = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TOO_EARLY = 429


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind, stored in the first of its versions; without a `schema` of its own any field is kept and none checked.

    `status`: with /status as a resource of its own. `short`: other names of its objects for kubectl.
    """

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...] = ("v1",)
    scope: str = "Namespaced"
    schema: Mapping[str, Any] | None = None
    status: bool = False
    short: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where the definition itself stands."""
        return f"{DEFINITIONS}/{self.plural}.{self.group}"

    @property
    def body(self) -> Json:
        """What is sent to create it."""
        version = {"served": True, "schema": {"openAPIV3Schema": self.schema or ANYTHING}}
        if self.status:
            version["subresources"] = {"status": {}}
        return {
            "metadata": {
                "name": f"{self.plural}.{self.group}",
                # The API server asks for it where a group ends as Kubernetes' own do.
                "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
            },
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {"kind": self.kind, "plural": self.plural, "shortNames": list(self.short)},
                "versions": [
                    {**version, "name": name, "storage": not index} for index, name in enumerate(self.versions)
                ],
            },
        }

    def install(self, admin: Client) -> None:
        """Create it where it is missing, and wait until every version is served."""
        self.create(admin)
        for version in self.versions:
            served = partial(self._served, admin, version)
            eventually(served, message=f"{self.plural} of {self.group}/{version} are served")

    def create(self, admin: Client) -> None:
        """Create it where it is missing; one that another test has deleted is served until it is gone."""
        found = admin.find(self.path)
        if found is not None and "deletionTimestamp" in found["metadata"]:
            self._await_gone(admin)
            found = None
        if found is None:
            admin.create(DEFINITIONS, self.body)

    def remove(self, admin: Client) -> None:
        """Delete it with all of its objects, and wait until it is gone."""
        admin.delete(self.path)
        self._await_gone(admin)

    def _await_gone(self, admin: Client) -> None:
        eventually(lambda: admin.find(self.path) is None, message=f"{self.plural} of {self.group} are gone")

    def _served(self, admin: Client, version: str) -> bool:
        try:
            return admin.find(f"/apis/{self.group}/{version}/{self.plural}") is not None
        except ClientError as error:
            assert error.status == TOO_EARLY, error  # its storage is being made
            return False
