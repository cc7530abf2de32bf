"""People without special rights: the tests' own client is an admin, whom our rules let do more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from tests.support.callers import may
from tests.support.eventually import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def ordinary_user(
    plane: ControlPlane, namespace: str, *, name: str = "user", rules: Sequence[dict[str, Any]] = ()
) -> Client:
    """A user with the role `edit` in one namespace, and with `rules` beside it."""
    admin = plane.client
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    admin.create(accounts, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    for role in ("edit", "own"):
        kind = "ClusterRole" if role == "edit" else "Role"
        body = {
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [subject],
        }
        if role == "own":
            if not rules:
                continue
            admin.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": role}, "rules": list(rules)})
        admin.create(f"{RBAC}/namespaces/{namespace}/rolebindings", body)
    token = admin.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    client = Client(plane.url, token=token, ca_certificate=plane.ca_certificate)

    def able() -> bool:
        try:
            client.get(f"/api/v1/namespaces/{namespace}/pods")
        except ClientError:
            return False
        return all(may(admin, f"system:serviceaccount:{namespace}:{name}", rule, namespace) for rule in rules)

    eventually(able, message=f"{name} may work in {namespace}")
    return client
