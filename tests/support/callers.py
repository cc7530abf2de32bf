"""Callers of the API server with rights of their own: a ServiceAccount, its rules, and a kubeconfig with its token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from local.client import Client
from local.controlplane import ControlPlane
from local.credentials import kubeconfig
from tests.support.eventually import eventually

Rule = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def rule(*resources: str, group: str = "") -> Rule:
    """The right to read resources of one API group."""
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["get", "list", "watch"]}


def caller(
    plane: ControlPlane,
    folder: Path,
    *,
    namespace: str,
    name: str = "reader",
    in_namespace: Sequence[Rule] = (),
    everywhere: Sequence[Rule] = (),
) -> Path:
    """Make a ServiceAccount, wait until it has these rights, and return its kubeconfig."""
    client: Client = plane.client
    client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    if in_namespace:
        _grant(client, f"{RBAC}/namespaces/{namespace}", "Role", name=name, rules=in_namespace, subject=subject)
    if everywhere:
        _grant(client, RBAC, "ClusterRole", name=f"{namespace}-{name}", rules=everywhere, subject=subject)
    user = f"system:serviceaccount:{namespace}:{name}"
    for rules, where in ((in_namespace, namespace), (everywhere, "")):
        eventually(
            lambda rules=rules, where=where: not rules or may(client, user, rules[0], where),
            message=f"the API server has seen the rights of {user}",
        )
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = client.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    file = folder / f"{name}.kubeconfig"
    config = json.loads(kubeconfig(plane.client.url, ca_certificate=plane.ca_certificate, user=name, token=token))
    config["contexts"][0]["context"]["namespace"] = namespace
    file.write_text(json.dumps(config))
    return file


def _grant(client: Client, path: str, kind: str, *, name: str, rules: Sequence[Rule], subject: dict[str, str]) -> None:
    client.create(f"{path}/{kind.lower()}s", {"metadata": {"name": name}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    client.create(f"{path}/{kind.lower()}bindings", body)


def may(client: Client, user: str, rule: Rule, namespace: str) -> bool:
    """Return whether the API server grants the first right of a rule: it grants all rules of a role at once."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "verb": rule["verbs"][0]}
    names = rule.get("resourceNames")
    attributes = {**asked, "namespace": namespace, **({"name": names[0]} if names else {})}
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    return bool(client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])
