"""A controller's own manifests, made to fit a control plane on which it runs as a process beside the API server.

Its namespace, its custom resources, its account with its own roles and its webhooks stay as its authors wrote them:
also their names (webhooks are called in the order of these) and their object selectors. What would run or serve it in
a container goes, and what pointed to its Service points to a URL.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from local.controllers.catalogue import Controller

DEFINITION: Final = "CustomResourceDefinition"
WEBHOOKS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
ROLES: Final = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
KEPT: Final = {"Namespace", DEFINITION, *ROLES, *WEBHOOKS}


@dataclass(frozen=True, slots=True)
class Fitted:
    """What to apply, and the account (namespace, name) under which the controller is to run."""

    objects: list[dict[str, Any]]
    account: tuple[str, str]

    @property
    def webhooks(self) -> list[str]:
        """The paths of the webhook configurations in the API."""
        group = "/apis/admissionregistration.k8s.io/v1"
        found = [one for one in self.objects if one["kind"] in WEBHOOKS]
        return [f"{group}/{WEBHOOKS[one['kind']]}/{one['metadata']['name']}" for one in found]

    @property
    def definitions(self) -> list[str]:
        """The paths of the custom resource definitions in the API."""
        names = [one["metadata"]["name"] for one in self.objects if one["kind"] == DEFINITION]
        return [f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}" for name in names]


def fit(
    objects: list[dict[str, Any]], controller: Controller, *, url: str, certificates: Mapping[str, bytes]
) -> Fitted:
    """Return what of these manifests to apply, with webhooks that call `url` and trust the ca.crt of `certificates`.

    Raises ValueError where no Deployment says which account the controller has.
    """
    account = next((_account(one) for one in objects if one["kind"] == "Deployment"), None)
    if account is None:
        raise ValueError(f"the manifests of {controller.name} have no Deployment")
    kept = [one for one in objects if one["kind"] in KEPT and one["metadata"]["name"] not in controller.without]
    bundle = base64.b64encode(certificates["ca.crt"]).decode()
    for one in kept:
        for client in _clients(one):
            service = client.pop("service", None)
            if service:
                client["url"] = url + service.get("path", "/")
                client["caBundle"] = bundle
    if controller.secret:
        kept.append(_secret(controller, account[0], certificates))
    return Fitted(kept, account)


def _account(deployment: Mapping[str, Any]) -> tuple[str, str]:
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
    return deployment["metadata"]["namespace"], account


def _clients(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The places of an object that say whom the API server is to call."""
    if one["kind"] in WEBHOOKS:
        return [webhook["clientConfig"] for webhook in one.get("webhooks", [])]
    if one["kind"] == DEFINITION:
        conversion = one["spec"].get("conversion", {}).get("webhook")
        return [conversion["clientConfig"]] if conversion else []
    return []


def _secret(controller: Controller, namespace: str, certificates: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": controller.secret, "namespace": namespace},
        "data": {name: base64.b64encode(content).decode() for name, content in certificates.items()},
    }
