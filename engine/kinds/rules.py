"""The RBAC and webhook rules for the kinds of a registry, from which manifests are generated and tested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.kinds.expressions import IntExpression
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry

READ: Final = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a ClusterRole and of a webhook entry for workloads, as in manifests, in a stable order."""

    cluster_role: tuple[Mapping[str, Any], ...]
    webhook: tuple[Mapping[str, Any], ...]


def rules(registry: Registry) -> Rules:
    """Return the rules for all kinds of a registry.

    They allow reading every kind but pods, PATCH of kinds that can be suspended, and the `rbac` of entries; the
    webhook gets CREATE and UPDATE in every version. Pods have entries of their own.
    """
    granted: dict[tuple[str, str], set[str]] = {}
    sent: dict[str, set[str]] = {}
    for entry in registry.entries:
        if entry.handling == "pods":
            continue
        key = (entry.match.group, entry.match.resource)
        granted.setdefault(key, set()).update(_verbs(entry))
        sent.setdefault(entry.match.group, set()).add(entry.match.resource)
        for permission in entry.rbac:
            for resource in permission.resources:
                granted.setdefault((permission.group, resource), set()).update(permission.verbs)
    return Rules(cluster_role=_cluster_role(granted), webhook=_webhook(sent))


def label_keys(registry: Registry) -> frozenset[str]:
    """Return the keys of all pod labels that the kinds of a registry read."""
    found: set[str | None] = set()
    for entry in registry.entries:
        found |= {entry.owner_labels.name, entry.owner_labels.uid}
        found.add(entry.gang.replica_label if entry.gang is not None else None)
        for spec in entry.pod_sets:
            found |= spec.selector.keys()
            found |= set(_labels(spec.rank)) if spec.rank is not None else set()
    return frozenset(key for key in found if key is not None)


def _labels(expression: IntExpression) -> Iterator[str]:
    if expression.label is not None:
        yield expression.label
    for _, part in expression.parts():
        yield from _labels(part)


def _verbs(entry: KindEntry) -> tuple[str, ...]:
    return READ if entry.suspend is None else (*READ, "patch")


def _cluster_role(granted: Mapping[tuple[str, str], set[str]]) -> tuple[Mapping[str, Any], ...]:
    """Return one rule for each group and set of verbs."""
    by_verbs: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in sorted(granted.items()):
        by_verbs.setdefault((group, tuple(sorted(verbs))), []).append(resource)
    return tuple(
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
        for (group, verbs), resources in by_verbs.items()
    )


def _webhook(sent: Mapping[str, set[str]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "resources": sorted(resources),
            "operations": ["CREATE", "UPDATE"],
            "scope": "Namespaced",
        }
        for group, resources in sorted(sent.items())
    )
