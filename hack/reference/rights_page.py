"""The page about the service's rights: every rule of its roles, each with its reason.

The reasons stand here, by role, API group and resources. A rule without one, or a reason without a rule, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROLES: Final = ("manifests/base/rbac.yaml", "manifests/base/rbac-workloads.yaml")
WORKLOADS: Final = "topogate-workloads"
_READ: Final = {"get", "list", "watch"}

# (role, API group, first resource, verbs) -> why. One line each, for an admin who may say no.
REASONS: Final[Mapping[tuple[str, str, str, str], str]] = {
    (
        "topogate",
        "",
        "nodes",
        "get list watch",
    ): "The watch caches: labels and capacity of nodes, what pods use, quotas "
    "that a whole gang must fit into, and volumes that tie pods to nodes.",
    ("topogate", "apps", "daemonsets", "get list watch"): "The watch caches: what DaemonSets will take on a new node.",
    (
        "topogate",
        "storage.k8s.io",
        "storageclasses",
        "get list watch",
    ): "The watch caches: where the volumes of pods may be made.",
    ("topogate", "policy", "poddisruptionbudgets", "get list watch"): "Read only while the policy preempts or moves "
    "gangs: those that a budget protects do not end for others. Without both the rule may be removed.",
    ("topogate", "scheduling.k8s.io", "priorityclasses", "get list watch"): "The order of the queue.",
    ("topogate", "node.k8s.io", "runtimeclasses", "get list watch"): "The overhead of pods.",
    ("topogate", "scheduling.koordinator.sh", "devices", "get list watch"): "Which GPUs and other devices nodes have, "
    "where Koordinator is installed.",
    (
        "topogate",
        "kueue.x-k8s.io kai.scheduler",
        "topologies",
        "get list watch",
    ): "Levels that a workload or the policy names as a topology, where Kueue or KAI is installed.",
    ("topogate", "topology.volcano.sh", "hypernodes", "get list watch"): "The same, of Volcano.",
    ("topogate", "scheduling.x-k8s.io", "podgroups", "get list watch"): "How many pods of a group start together.",
    ("topogate", "autoscaling.x-k8s.io", "provisioningrequests", "create delete get list watch"): "Nodes for waiting "
    "gangs, if the policy names a class; only objects with our label are read. Never changed.",
    ("topogate", "", "podtemplates", "create delete"): "What such a request is for. Not read.",
    (
        "topogate",
        "",
        "pods",
        "delete patch",
    ): "Patch: the gate off, the pin and our labels on. Delete: a pod that was released just as its plan was "
    "withdrawn, if a replacement is free, and with `nodeLoss: evict` or `restart` those of a node that is gone. "
    'RBAC cannot say "only pods of gangs": the code does.',
    ("topogate", "", "pods/eviction", "create"): "A pod that waits for its host in vain, if a replacement is free; "
    "with `nodeLoss: evict` or `restart`, preemption, and `topogate.dev/replace`. Disruption budgets count.",
    ("topogate", "topogate.dev", "placements", "create delete get list patch watch"): "The plan of each gang, "
    "which is ours.",
    ("topogate", "topogate.dev", "placements/status", "patch"): "Its status.",
    ("topogate", "events.k8s.io", "events", "create"): "Events for users.",
    (
        "topogate",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "get list patch watch",
    ): "By name: the "
    "CA bundle of the first, all of the second, which holds what a policy adds. No other configuration can be read "
    "or changed.",
    ("topogate (own namespace)", "coordination.k8s.io", "leases", "create get patch update"): "Leader election.",
    ("topogate (own namespace)", "", "configmaps topogate-policy topogate-policy-last-good", "get list watch"): "The "
    "policy, and the last good one. The service cannot change the policy.",
    ("topogate (own namespace)", "", "configmaps topogate-policy-last-good", "create patch"): "To keep the last "
    "good policy over a restart.",
    (
        "topogate (own namespace)",
        "",
        "secrets topogate-ca",
        "get list patch watch",
    ): "The CA. No other Secret can be read.",
    (
        "topogate (own namespace)",
        "",
        "secrets",
        "create",
    ): "To make the CA by POST, so that of several replicas exactly one comes first. A POST has no name when it is "
    "authorized, so any name in this namespace is possible; what is made cannot be read back or changed.",
    ("topogate-view", "topogate.dev", "placements", "get list watch"): "Not the service's: aggregated into `view`, so "
    "that users see the Placements of their namespaces.",
}
_OF_WORKLOADS: Final = {
    False: "The watch caches: these kinds of workloads, or owners between them and pods.",
    True: "The same; patch: suspend and resume, and two annotations on the pod templates at the resume.",
}


def rules(root: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return every rule of the roles in the manifests, with the name of its role."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for path in ROLES:
        for one in yaml.safe_load_all((root / path).read_text(encoding="utf-8")):
            if one["kind"] in ("ClusterRole", "Role"):
                name = one["metadata"]["name"] + (" (own namespace)" if one["kind"] == "Role" else "")
                found += [(name, rule) for rule in one["rules"]]
    return found


def reasons(found: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Return the reason of each rule. Raises LookupError for a rule without one, and for a reason without a rule."""
    told, used = [], set()
    for role, rule in found:
        if role == WORKLOADS:
            told.append(_OF_WORKLOADS[not set(rule["verbs"]) <= _READ])
            continue
        key = _key(role, rule)
        if key not in REASONS:
            raise LookupError(f"hack/reference/rights_page.py has no reason for the rule {key}")
        used.add(key)
        told.append(REASONS[key])
    if unused := REASONS.keys() - used:
        raise LookupError(f"hack/reference/rights_page.py has reasons for rules that are gone: {sorted(unused)}")
    return told


def rights_page(root: Path) -> str:
    """Return `docs/reference/rights.md`."""
    found = rules(root)
    lines = [
        "# The rights of the service",
        "",
        f"<!-- Generated from {' and '.join(ROLES)} by `python -m hack.reference`; do not edit. -->",
        "",
        "Every rule of the roles, each with its reason. Only what stands here is granted; a cluster test asks the API "
        "server for each verb, and for what must be refused. What limits the code beyond it: "
        "[RBAC and security](../tasks/admin/rbac-and-security.md).",
        "",
        "| role | API group | resources | verbs | for |",
        "|---|---|---|---|---|",
    ]
    for (role, rule), why in zip(found, reasons(found), strict=True):
        groups = ", ".join(f"`{group}`" if group else "core" for group in rule["apiGroups"])
        resources = ", ".join(f"`{one}`" for one in rule["resources"])
        if "resourceNames" in rule:
            resources += " named " + ", ".join(f"`{one}`" for one in rule["resourceNames"])
        lines.append(f"| {role} | {groups} | {resources} | {', '.join(rule['verbs'])} | {why} |")
    return "\n".join([*lines, ""])


def _key(role: str, rule: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return what tells a rule from the others of the roles: names too, where two are about one resource."""
    first = str(rule["resources"][0])
    if first in ("configmaps", "secrets") and "resourceNames" in rule:
        first = " ".join([first, *rule["resourceNames"]])
    return role, " ".join(rule["apiGroups"]), first, " ".join(sorted(rule["verbs"]))
