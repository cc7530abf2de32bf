"""The API server's objects -> records: one pass over the bytes, one function per kind.

All of them take JSON bytes (watch, list, review) or the parsed object (files) and raise only ProjectionError, whose
text starts with the JSON path. The Placement and the Device have their own modules and are offered here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Final

from engine.api.duration import epoch
from engine.api.names import MAIN
from engine.api.objects import ConfigMap, Node, PriorityClass, Quota, RuntimeClass, Taint
from engine.api.pod import OwnerRef, Pod
from engine.api.rank import Ranges, count_ranks, join_ranks, parse_ranks
from engine.api.resources import nano_to_units
from engine.api.workload import TO_ANNOTATIONS, PodSet, Workload
from engine.cluster import wire
from engine.cluster.podspecs import amount, amounts, pod_spec, tolerations
from engine.cluster.wire import ProjectionError, Source, decode

_REFUSALS: Final = ("Unschedulable", "SchedulerError")  # of PodScheduled=False; SchedulingGated is none
_MIRROR: Final = "kubernetes.io/config.mirror"
_JOB_CONTROLLERS: Final = (None, "", "kubernetes.io/job-controller")
_KUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
_OVER: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
# Those of them that say that it went wrong.
_FAILURES: Final = frozenset({"Failed", "FailureTarget"})
_QUOTA_OF_PODS: Final = ("requests.", "limits.", "hugepages-")
_QUOTA_NAMES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods", "count/pods"})


def node(source: Source) -> Node:
    """Return a Node; all of its labels are kept, amounts are rounded down."""
    raw = decode(wire.Node, source)
    meta, spec, status = raw.metadata or wire.ObjectMeta(), raw.spec or wire.NodeSpec(), raw.status or wire.NodeStatus()
    ready, since = False, 0.0
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready, since = condition.status == "True", epoch(condition.last_transition_time)
    # As the API server's own defaulting does: a node that reports only capacity may be used wholly.
    field = "capacity" if status.allocatable is None else "allocatable"
    allocatable = status.capacity if status.allocatable is None else status.allocatable
    return Node(
        name=_name(meta),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=_labels(meta.labels),
        allocatable=_units(allocatable, f"$.status.{field}", up=False),
        taints=tuple(
            Taint(key=intern(taint.key or ""), value=taint.value or "", effect=intern(taint.effect or ""))
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=ready,
        settled_at=max(epoch(meta.creation_timestamp), since),
    )


def pod(source: Source, *, labels: frozenset[str] = frozenset()) -> Pod:
    """Return a Pod, with those labels and annotations that concern us; a pod under creation may lack name and uid.

    `labels` concern us too (`Policy.pod_labels`).
    """
    raw = decode(wire.Pod, source)
    meta, status = raw.metadata or wire.ObjectMeta(), raw.status or wire.PodStatus()
    return Pod(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        spec=pod_spec(raw.spec or wire.PodSpec(), meta, "$.spec", namespace=meta.namespace or "", labels=labels),
        owner=controller_of(meta.owner_references),
        phase=intern(status.phase or "Pending"),
        nominated_node=intern(status.nominated_node_name or ""),
        created=epoch(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        unschedulable=_unschedulable(status.conditions or ()),
        mirror=meta.annotations is not None and _MIRROR in meta.annotations,
    )


def job(source: Source) -> Workload:
    """Return a batch/v1 Job as a Workload.

    Without `completions` (a work queue) as many are missing as run at a time, until the Job is over. An index that
    failed for good (backoffLimitPerIndex) counts as finished: it gets no further pod.
    """
    raw = decode(wire.Job, source)
    meta, spec, status = raw.metadata or wire.ObjectMeta(), raw.spec or wire.JobSpec(), raw.status or wire.JobStatus()
    template = spec.template or wire.Template()
    completed = _indexes(status.completed_indexes, "completedIndexes")
    failed = _indexes(status.failed_indexes, "failedIndexes")
    ends = [one.type for one in status.conditions or () if one.status == "True" and one.type in _OVER]
    finished = bool(ends)
    slots = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        total = slots
        remaining = 0 if finished else slots
    else:
        slots, total = min(slots, spec.completions), spec.completions
        remaining = max(0, total - (status.succeeded or 0) - count_ranks(failed))
    owner = controller_of(meta.owner_references)
    return Workload(
        api_version="batch/v1",
        kind="Job",
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        generation=meta.generation or 0,
        labels=_labels(meta.labels),
        annotations=_labels(meta.annotations),
        pod_sets=(
            PodSet(
                name=MAIN,
                template=pod_spec(
                    template.spec or wire.PodSpec(),
                    template.metadata or wire.ObjectMeta(),
                    "$.spec.template.spec",
                    namespace=meta.namespace or "",
                ),
                slots=slots,
                total=total,
                remaining=remaining,
                ranked=spec.completion_mode == "Indexed",
                finished_ranks=join_ranks((*completed, *failed)),
                missing=missing_steps(template.metadata),
            ),
        ),
        suspended=bool(spec.suspend),
        suspendable=True,
        started=status.start_time is not None,
        finished=finished,
        failed=not _FAILURES.isdisjoint(ends),
        deleting=meta.deletion_timestamp is not None,
        created=epoch(meta.creation_timestamp),
        owner=owner,
        aside=_aside(spec),
    )


def quota(source: Source) -> Quota:
    """Return a ResourceQuota: what the status says where there is one; only names that pods can use."""
    raw = decode(wire.Quota, source)
    meta, spec, status = raw.metadata or wire.ObjectMeta(), raw.spec or wire.QuotaSpec(), raw.status
    status = status or wire.QuotaStatus()
    where, hard = ("$.status.hard", status.hard) if status.hard else ("$.spec.hard", spec.hard)
    selector = (spec.scope_selector.match_expressions if spec.scope_selector is not None else None) or ()
    return Quota(
        namespace=meta.namespace or "",
        name=_name(meta),
        hard=_quota_units(hard, where, up=False),
        used=_quota_units(status.used, "$.status.used", up=True),
        scopes=(
            *((scope, "Exists", ()) for scope in spec.scopes or ()),
            *((one.scope_name or "", one.operator or "", tuple(one.values or ())) for one in selector),
        ),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def priority_class(source: Source) -> PriorityClass:
    """Return a PriorityClass."""
    raw = decode(wire.PriorityClass, source)
    meta = raw.metadata or wire.ObjectMeta()
    return PriorityClass(
        name=_name(meta),
        value=raw.value or 0,
        default=bool(raw.global_default),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def runtime_class(source: Source) -> RuntimeClass:
    """Return a RuntimeClass."""
    raw = decode(wire.RuntimeClass, source)
    scheduling = raw.scheduling or wire.Scheduling()
    overhead = raw.overhead.pod_fixed if raw.overhead is not None else None
    meta = raw.metadata or wire.ObjectMeta()
    return RuntimeClass(
        name=_name(meta),
        overhead=_units(overhead, "$.overhead.podFixed", up=True),
        node_selector=_labels(scheduling.node_selector),
        tolerations=tolerations(scheduling.tolerations),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def config_map(source: Source) -> ConfigMap:
    """Return a ConfigMap's text data."""
    raw = decode(wire.ConfigMap, source)
    meta = raw.metadata or wire.ObjectMeta()
    return ConfigMap(
        namespace=meta.namespace or "",
        name=_name(meta),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        data={key: value or "" for key, value in (raw.data or {}).items()},
    )


def _name(meta: wire.ObjectMeta) -> str:
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    return intern(meta.name)


def _labels(labels: wire.StringMap | None) -> dict[str, str]:
    return {intern(key): intern(value or "") for key, value in labels.items()} if labels else {}


def missing_steps(metadata: wire.ObjectMeta | None) -> tuple[str, ...]:
    """What a template with that metadata lacks of `TO_ANNOTATIONS`."""
    if metadata is None:
        return TO_ANNOTATIONS
    return TO_ANNOTATIONS[1:] if metadata.annotations is None else ()


def controller_of(references: Iterable[wire.OwnerReference] | None) -> OwnerRef | None:
    """Return the controller reference; None when there is none."""
    for reference in references or ():
        if reference.controller:
            return OwnerRef(
                api_version=intern(reference.api_version or ""),
                kind=intern(reference.kind or ""),
                name=intern(reference.name or ""),
                uid=intern(reference.uid or ""),
                controller=True,
            )
    return None


def _unschedulable(conditions: Iterable[wire.Condition]) -> str:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason in _REFUSALS:
            return condition.message or condition.reason or ""
    return ""


def _indexes(text: str | None, field: str) -> Ranges:
    try:
        return parse_ranks(text or "")
    except ValueError as error:
        raise ProjectionError(f"$.status.{field}: {error}") from None


def _aside(spec: wire.JobSpec) -> str | None:
    """As the entry of the kind says (`engine.kinds`)."""
    if spec.managed_by == _KUEUE_CONTROLLER:
        return "ManagedByKueue"
    if spec.managed_by not in _JOB_CONTROLLERS:
        return "OtherController"
    return "CoreGang" if spec.scheduling is not None else None


def _units(raw: wire.ResourceList | None, path: str, *, up: bool) -> dict[str, int]:
    return {intern(name): nano_to_units(name, found, up=up) for name, found in amounts(raw, path).items()}


def _quota_units(raw: wire.ResourceList | None, path: str, *, up: bool) -> dict[str, int]:
    """Return units by quota name; counts of other objects and claims' storage are nothing that a pod uses."""
    units = {}
    for name, quantity in (raw or {}).items():
        if name not in _QUOTA_NAMES and not name.startswith(_QUOTA_OF_PODS):
            continue
        resource = name.removeprefix("requests.").removeprefix("limits.")
        if resource != "storage":
            units[name] = nano_to_units(resource, amount(name, quantity, path), up=up)
    return units
