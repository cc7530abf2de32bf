"""Workloads of several pod sets, as a JobSet has them: their pods tell by a label which one they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.api import names
from engine.api.pod import OwnerRef, Pod, Shape
from engine.api.workload import PodSet, Workload
from tests.support import cluster_records
from tests.support.cluster_records import job, spec

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def pods_of(
    name: str, count: int, *, says: Mapping[str, str] | None = None, shape: Shape | None = None, **more: Any
) -> PodSet:
    """A pod set of ranked pods; `says` are the annotations of its template."""
    template = spec(
        gates=(names.GATE,),
        labels={names.MANAGED: "true", names.POD_SET: name},
        annotations=dict(says or {}),
        **({} if shape is None else {"shape": shape}),
    )
    fields: dict[str, Any] = {"template": template, "selector": ((REPLICATED_JOB, name),)}
    return cluster_records.pod_set(name, count=count, **(fields | more))


def several(*pod_sets: PodSet, says: Mapping[str, str] | None = None, held: bool = False, **more: Any) -> Workload:
    """A JobSet of these pod sets; `says` are its own annotations."""
    placed = tuple(
        replace(one, path=("spec", "replicatedJobs", number, "template", "spec", "template"))
        for number, one in enumerate(pod_sets)
    )
    held_by = {names.HELD_BY: names.HELD_BY_SUSPEND} if held else {}
    fields: dict[str, Any] = {
        "api_version": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "resource": "jobsets",
        "annotations": {**(says or {}), **held_by},
        "pod_sets": placed,
    }
    return replace(job("set", held=held), **(fields | more))


def member(workload: Workload, name: str, rank: int | None, **more: Any) -> Pod:
    """A pod of a pod set; the arguments are those of `cluster_records.pod`."""
    of = next(one for one in workload.pod_sets if one.name == name)
    alone = replace(workload, pod_sets=(of,))
    made = cluster_records.pod(alone, rank, **({"name": f"{workload.name}-{name}-{rank}"} | more))
    owner = OwnerRef(workload.api_version, workload.kind, workload.name, workload.uid, True)
    labels = {**made.spec.labels, REPLICATED_JOB: name}
    return replace(made, owner=owner, spec=replace(made.spec, labels=labels))
