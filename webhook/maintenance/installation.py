"""The objects of an installation: those of the manifests, and those that the service makes; found and deleted by name.

An object that the manifests make is only deleted with their label, so that one of somebody else with that name stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from engine.api import names
from engine.cluster.client import ApiError, KubeClient, get_or_none, object_path
from engine.decoding.wire import UNREADABLE
from webhook.configuration.extra_rights import EXTRA_ROLE
from webhook.snapshot.connection import reason_text
from webhook.snapshot.installation import ADMISSION_POLICIES as POLICY_NAMES
from webhook.snapshot.installation import DEFINITION as DEFINITION_NAME
from webhook.snapshot.side_by_side import side_by_side

LABEL: Final = "app.kubernetes.io/part-of"
PART_OF: Final = "topogate"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_TRIES: Final = 3  # of a deletion: what makes an object again does so every time
_RBAC: Final = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class InstalledObject:
    """An object of an installation; `namespaced`: it is in the namespace of the service.

    `labelled`: the manifests make it, and give it their label; else the service or an admin does, by its name.
    """

    api_version: str
    resource: str
    kind: str
    name: str
    namespaced: bool = False
    labelled: bool = True

    @property
    def group(self) -> str:
        """The API group, "" for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def called(self) -> str:
        """The object as people name it: `ClusterRole topogate-view`."""
        return f"{self.kind} {self.name}"

    def path(self, namespace: str) -> str:
        """Return its URL path; `namespace` is that of the service."""
        return object_path(
            self.api_version, self.resource, namespace=namespace if self.namespaced else None, name=self.name
        )


MUTATING, VALIDATING = (
    tuple(
        InstalledObject(_ADMISSION, f"{kind.lower()}s", kind, name)
        for name in (names.MUTATING_CONFIGURATION, names.POLICY_CONFIGURATION)
    )
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
# In the order of their deletion: without the mutating ones the validating ones would refuse pods.
WEBHOOKS: Final = (*VALIDATING, *MUTATING)
SERVICE: Final = (InstalledObject("apps/v1", "deployments", "Deployment", names.SERVICE_NAME, namespaced=True),)
ADMISSION_POLICIES: Final = tuple(
    InstalledObject(_ADMISSION, resource, kind, name)
    for resource, kind in (
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    )
    for name in POLICY_NAMES
)
DEFINITION: Final = (
    InstalledObject(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        DEFINITION_NAME,
    ),
)
ROLES: Final = (
    InstalledObject(_RBAC, "clusterrolebindings", "ClusterRoleBinding", "topogate"),
    InstalledObject(_RBAC, "clusterrolebindings", "ClusterRoleBinding", "topogate-workloads"),
    InstalledObject(_RBAC, "clusterrolebindings", "ClusterRoleBinding", EXTRA_ROLE, labelled=False),
    InstalledObject(_RBAC, "clusterroles", "ClusterRole", "topogate"),
    InstalledObject(_RBAC, "clusterroles", "ClusterRole", "topogate-workloads"),
    InstalledObject(_RBAC, "clusterroles", "ClusterRole", EXTRA_ROLE, labelled=False),
    InstalledObject(_RBAC, "clusterroles", "ClusterRole", "topogate-view"),
)
# What the service makes for itself, and no manifest.
MADE_BY_SERVICE: Final = (
    InstalledObject("v1", "secrets", "Secret", names.CA_SECRET_NAME, namespaced=True, labelled=False),
    InstalledObject("coordination.k8s.io/v1", "leases", "Lease", names.LEASE_NAME, namespaced=True, labelled=False),
    InstalledObject("v1", "configmaps", "ConfigMap", names.LAST_GOOD_POLICY_NAME, namespaced=True, labelled=False),
)
IN_NAMESPACE: Final = (
    InstalledObject("v1", "services", "Service", names.SERVICE_NAME, namespaced=True),
    InstalledObject("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "topogate", namespaced=True),
    InstalledObject("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", "topogate", namespaced=True),
    InstalledObject("v1", "resourcequotas", "ResourceQuota", "topogate-critical-pods", namespaced=True),
    InstalledObject(_RBAC, "rolebindings", "RoleBinding", "topogate", namespaced=True),
    InstalledObject(_RBAC, "roles", "Role", "topogate", namespaced=True),
    InstalledObject("v1", "serviceaccounts", "ServiceAccount", names.SERVICE_ACCOUNT, namespaced=True),
    *MADE_BY_SERVICE,
    InstalledObject("v1", "configmaps", "ConfigMap", names.POLICY_NAME, namespaced=True, labelled=False),
)


def service_namespace_object(namespace: str) -> InstalledObject:
    """Return the namespace of the service, as an object."""
    return InstalledObject("v1", "namespaces", "Namespace", namespace)


class _Meta(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str | None] | None = None
    deleted_at: str | None = msgspec.field(name="deletionTimestamp", default=None)


class _Namespaced(msgspec.Struct):
    namespace: str | None = None


class _ClientConfig(msgspec.Struct):
    service: _Namespaced | None = None


class _Webhook(msgspec.Struct):
    client: _ClientConfig | None = msgspec.field(name="clientConfig", default=None)


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    webhooks: list[_Webhook] | None = None
    subjects: list[_Namespaced] | None = None

    @property
    def service_namespaces(self) -> frozenset[str]:
        """The namespaces of the Services that webhooks call, or of the service accounts of a binding."""
        services = (one.client.service for one in self.webhooks or () if one.client is not None)
        named = (one.namespace for one in (*services, *(self.subjects or ())) if one is not None)
        return frozenset(filter(None, named))


_decode: Final = msgspec.json.Decoder(_Object).decode


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object of the installation that exists; `foreign`: it lacks the label of the manifests.

    `service_namespaces`: where the service runs, by what the object says of it; nowhere if it says nothing.
    """

    object: InstalledObject
    uid: str
    foreign: bool
    deleting: bool = False
    service_namespaces: frozenset[str] = frozenset()


def find_objects(api: KubeClient, objects: Iterable[InstalledObject], *, namespace: str) -> tuple[FoundObject, ...]:
    """Return those of the objects that exist, in their order. Raises ApiFault where one cannot be read."""
    found = side_by_side(lambda one: _find(api, one, namespace), tuple(objects))
    return tuple(one for one in found if one is not None)


def _find(api: KubeClient, one: InstalledObject, namespace: str) -> FoundObject | None:
    found = get_or_none(api, one.path(namespace))
    if found is None:
        return None
    try:
        body = _decode(found)
    except UNREADABLE:
        return FoundObject(one, "", foreign=True)
    meta = body.metadata
    foreign = one.labelled and (meta.labels or {}).get(LABEL) != PART_OF
    deleting = meta.deleted_at is not None
    return FoundObject(one, meta.uid, foreign, deleting=deleting, service_namespaces=body.service_namespaces)


def delete_object(api: KubeClient, found: FoundObject, *, namespace: str) -> str:
    """Delete an object and what was made in its place meanwhile, if that is ours too; return "", or why it is left.

    Raises ApiFault if it cannot be read again, ApiUnavailable if there is no answer.
    """
    why = ""
    for _ in range(_TRIES):
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": found.uid},
            "propagationPolicy": "Background",
        }
        try:
            api.request("DELETE", found.object.path(namespace), body=body)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ""
            if error.status != HTTPStatus.CONFLICT:
                return reason_text(error.message)
            why = reason_text(error.message)
        else:
            return ""
        # Another one of that name, or (of namespaces) one that is being deleted already.
        fresh = _find(api, found.object, namespace)
        if fresh is None or fresh.deleting:
            return ""
        if fresh.foreign:
            return f"there is another one now, without the label {LABEL}={PART_OF}"
        found = fresh
    return f"it is still there after {_TRIES} tries: {why}"
