"""Objects that own each other, and the pods below them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Owned, Workload
from tests.support import cluster_records
from tests.support.cluster_records import job, pod_set, spec
from tests.support.pod_sets import REPLICATED_JOB

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"


def owner_of(above: Workload | Owned | Pod, **lies: Any) -> OwnerRef:
    """A controller reference to an object; `lies` are other fields of it."""
    version = "v1" if isinstance(above, Pod) else above.api_version
    kind = "Pod" if isinstance(above, Pod) else above.kind
    return replace(OwnerRef(version, kind, above.name, above.uid, True), **lies)


def below(one: Any, above: Workload | Owned | Pod, **lies: Any) -> Any:
    """The record with a controller reference to what is above it."""
    return replace(one, owner=owner_of(above, **lies))


def link(api_version: str, kind: str, name: str, above: Workload | Owned | Pod | None = None, **more: Any) -> Owned:
    """An object between pods and their workload."""
    fields: dict[str, Any] = {"namespace": "default", "uid": f"uid-{kind}-{name}", "resource_version": "1"}
    owner = None if above is None else owner_of(above)
    return Owned(api_version=api_version, kind=kind, name=name, owner=owner, **(fields | more))


def jobset(name: str = "set", *, pods: int = 4, require: str | None = "rack", held: bool = False) -> Workload:
    """A JobSet of one pod set, `workers`."""
    workers = pod_set("workers", count=pods, selector=((REPLICATED_JOB, "workers"),), path=("spec", "x"))
    made = job(name, require=require, held=held)
    return replace(made, api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", resource="jobsets", pod_sets=(workers,))


def child_job(above: Workload, number: int = 0, *, count: int = 4) -> Workload:
    """A Job of a JobSet, which copies nothing of what the JobSet asks."""
    return replace(job(f"{above.name}-workers-{number}", count=count, require=None), owner=owner_of(above))


def worker(of: Workload, rank: int, **more: Any) -> Pod:
    """A pod of a Job of a JobSet."""
    made = cluster_records.pod(of, rank, **more)
    labels = {**made.spec.labels, REPLICATED_JOB: "workers"}
    return replace(made, spec=replace(made.spec, labels=labels))


def leader_worker_set(name: str = "serve", *, groups: int = 2, size: int = 2, require: str = "rack") -> Workload:
    """A LeaderWorkerSet: a gang per replica; its pods are held by the gate."""
    return replace(
        job(name, count=size, require=require),
        api_version="leaderworkerset.x-k8s.io/v1",
        kind="LeaderWorkerSet",
        resource="leaderworkersets",
        suspend_path=None,
        suspendable=False,
        groups=groups,
        group_label=GROUP_INDEX,
        unit="replica",
    )


def replica(of: Workload, group: str | None, rank: int, above: Owned | Pod | Workload, **more: Any) -> Pod:
    """A held pod of a replica of a LeaderWorkerSet, made by a StatefulSet."""
    made = cluster_records.pod(of, rank, gated=True, name=f"{of.name}-{group}-{rank}", **more)
    labels = {**made.spec.labels, **({} if group is None else {GROUP_INDEX: group})}
    return replace(made, owner=owner_of(above), spec=replace(made.spec, labels=labels))


def plain(
    name: str, *, gang: str = "mesh", size: str | None = "2", says: dict[str, str] | None = None, **more: Any
) -> Pod:
    """A held pod without an owner that names its gang."""
    annotations = {names.GANG_NAME: gang, **(says if says is not None else {names.REQUIRE: "rack"})}
    if size is not None:
        annotations[names.GANG_SIZE] = size
    made = cluster_records.pod(job(count=1), None, name=name, gated=True)
    labels = {names.MANAGED: "true", names.POD_SET: "main"}
    held = spec(shape=made.spec.shape, labels=labels, gates=(names.GATE,), annotations=annotations)
    return replace(made, **({"owner": None, "spec": held} | more))
