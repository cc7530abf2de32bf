"""The ClusterRole for kinds that a policy adds, which an admin applies beside the manifests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.api import names
from engine.kinds.registry import built_in
from engine.kinds.rules import rules
from engine.policy.model import Policy

_WIDTH: Final = 118
EXTRA_ROLE: Final = "topogate-policy-kinds"


def extra_rights_page(policy: Policy) -> str:
    """Return the manifest of the rights that a policy's kinds need beyond the manifests; empty if none."""
    have = {
        (group, resource, verb)
        for rule in rules(built_in()).cluster_role
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    missing = [
        {**rule, "resources": resources}
        for rule in rules(policy.registry).cluster_role
        if (
            resources := [
                resource
                for resource in rule["resources"]
                if any((group, resource, verb) not in have for group in rule["apiGroups"] for verb in rule["verbs"])
            ]
        )
    ]
    if not missing:
        return ""
    about = comment_lines("What the service may do with the kinds that the policy adds.")
    return "\n".join([*about, *role_lines(missing, name=EXTRA_ROLE)]) + "\n"


def role_lines(granted: Sequence[Mapping[str, Any]], *, name: str) -> list[str]:
    """Return a ClusterRole with these rules and its binding to the service account, as lines of YAML."""
    role = "rbac.authorization.k8s.io"
    lines = [f"apiVersion: {role}/v1", "kind: ClusterRole", "metadata:", f"  name: {name}", "rules:"]
    for rule in granted:
        lines += [
            f"- apiGroups: {flow_list(rule['apiGroups'])}",
            f"  resources: {flow_list(rule['resources'])}",
            f"  verbs: {flow_list(rule['verbs'])}",
        ]
    return [
        *lines,
        "---",
        f"apiVersion: {role}/v1",
        "kind: ClusterRoleBinding",
        "metadata:",
        f"  name: {name}",
        "roleRef:",
        f"  apiGroup: {role}",
        "  kind: ClusterRole",
        f"  name: {name}",
        "subjects:",
        "- kind: ServiceAccount",
        f"  name: {names.SERVICE_ACCOUNT}",
        f"  namespace: {names.NAMESPACE}",
    ]


def comment_lines(*paragraphs: str, indent: int = 0) -> list[str]:
    """Return paragraphs as lines of YAML comment."""
    start = " " * indent + "#"
    lines = []
    for text in paragraphs:
        lines += [f"{start} {line}" for line in textwrap.wrap(text, _WIDTH - indent)] or [start]
    return lines


def flow_list(values: Iterable[str]) -> str:
    """Return a YAML list in flow style, on one line."""
    return (
        f"[{', '.join(value if value and value != '*' else repr(value).replace(chr(39), chr(34)) for value in values)}]"
    )
