"""The workloads that ask Topogate for something, as a bundle shows them: numbers and marks, no specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.api import names
from engine.api.duration import timestamp
from engine.api.workload import PodSet, Workload
from engine.cache.state import ClusterState
from webhook.bundle.excerpts import known_keys
from webhook.bundle.reading import BundleFile, as_json


def workloads_member(view: ClusterState) -> BundleFile:
    """Return the file about the workloads with a request, or with marks of ours."""
    found = [_workload(one) for one in view.stores.workloads.values() if _concerns_us(one)]
    return BundleFile("gangs/workloads.json", as_json(sorted(found, key=lambda one: (one["namespace"], one["name"]))))


def _concerns_us(workload: Workload) -> bool:
    templates = [one.template for one in workload.pod_sets]
    keys: list[Mapping[str, str]] = [workload.annotations, *(one.annotations for one in templates)]
    return any(map(known_keys, keys)) or any(names.GATE in one.gates for one in templates)


def _workload(workload: Workload) -> dict[str, Any]:
    return {
        "kind": workload.kind,
        "apiVersion": workload.api_version,
        "namespace": workload.namespace,
        "name": workload.name,
        "uid": workload.uid,
        "generation": workload.generation,
        "created": timestamp(workload.created),
        "owner": None if workload.owner is None else f"{workload.owner.kind}/{workload.owner.name}",
        "suspended": workload.suspended,
        "started": workload.started,
        "finished": workload.finished,
        "deleting": workload.deleting,
        "annotations": known_keys(workload.annotations),
        "podSets": [_pod_set(one) for one in workload.pod_sets],
    }


def _pod_set(found: PodSet) -> dict[str, Any]:
    return {
        "name": found.name,
        "slots": found.slots,
        "total": found.total,
        "remaining": found.remaining,
        "ranked": found.ranked,
        "gates": list(found.template.gates),
        "annotations": known_keys(found.template.annotations),
        "requests": dict(found.template.shape.requests),
    }
