"""A pod's claims out of its spec: host ports, and the wish to be apart from its like."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from engine.api import names, resources
from engine.cluster import wire


def claims_of(spec: wire.PodSpec, labels: Mapping[str, str | None], namespace: str) -> set[str]:
    """Return the claims of a pod with these labels in this namespace."""
    found = set(_ports(spec))
    for term in anti_affinity(spec):
        if (selector := selector_of(term, labels, namespace)) is not None:
            found.add(resources.apart(namespace, selector))
    return found


def anti_affinity(spec: wire.PodSpec) -> Sequence[wire.PodAffinityTerm]:
    """Return the required terms."""
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return ()
    return spec.affinity.pod_anti_affinity.required or ()


def selector_of(term: wire.PodAffinityTerm, labels: Mapping[str, str | None], namespace: str) -> str | None:
    """Return the selector, in one spelling, of a term that keeps pods with these labels off each other's host.

    None for every other term: of another level, about other pods, about other namespaces, or with label keys that the
    API server merges into it only when the pod is created.
    """
    selector = term.label_selector
    if term.topology_key != names.HOSTNAME or selector is None or term.namespace_selector is not None:
        return None
    if term.match_label_keys or term.mismatch_label_keys or set(term.namespaces or [namespace]) != {namespace}:
        return None
    rules = [(key, "In", [value or ""]) for key, value in (selector.match_labels or {}).items()]
    rules += [(one.key or "", one.operator or "", one.values or []) for one in selector.match_expressions or ()]
    if not all(_holds(labels, *rule) for rule in rules):
        return None
    return json.dumps(sorted((key, operator, sorted(values)) for key, operator, values in rules))


def _holds(labels: Mapping[str, str | None], key: str, operator: str, values: list[str]) -> bool:
    value = labels[key] or "" if key in labels else None
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _ports(spec: wire.PodSpec) -> Iterator[str]:
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            # On the host's network every port of a container is one of the host.
            number = port.host_port or (port.container_port if spec.host_network else None)
            if number:
                yield resources.host_port(number, port.protocol or "TCP")
