"""Decodes objects of registered kinds into workloads, and the kinds between them and their pods into owned objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from engine.api.duration import epoch
from engine.api.names import MAIN
from engine.api.pod import PodSpec
from engine.api.rank import Ranges, count_ranks, join_ranks, parse_ranks
from engine.api.reasons import Code
from engine.api.workload import TO_ANNOTATIONS, Owned, PodSet, Workload
from engine.decoding import pods, wire
from engine.decoding.objects import _FAILURES, labels_of
from engine.decoding.pods import KEPT_PREFIXES, annotations_of, controller_of, kept, pod_spec
from engine.decoding.wire import ProjectionError, Source, decode
from engine.kinds import structure as kinds
from engine.kinds.read import read
from engine.kinds.registry import Registry
from engine.kinds.schema import ANY_VERSION, MAX_CLAIM_TEMPLATES, KindEntry
from engine.kinds.structure import ParsedWorkload

_JOB_CONTROLLERS: Final = (None, "", "kubernetes.io/job-controller")
_KUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
_OVER: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})

_JOB: Final = ("batch", "Job")
# An object with a request, to us or to another scheduler, has one of these in a key.
_OF_SIGNALS: Final = frozenset({137, 143})  # exit codes of containers that SIGKILL or SIGTERM has ended
_REQUEST_KEYS: Final = tuple(f'"{prefix}'.encode() for prefix in KEPT_PREFIXES)
_NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})
_STUB_PODS: Final = PodSet(
    MAIN,
    pod_spec(wire.PodSpec(), wire.ObjectMeta(), "$.spec", namespace=""),
    slots=1,
    total=1,
    remaining=1,
    ranked=False,
    templated=False,
)


def job(source: Source) -> Workload:
    """Return a batch/v1 Job as a Workload.

    Without `completions` (a work queue) as many pods remain as run at a time; once one has succeeded, those that are
    active: none takes the place of one that ends, and without any it is complete. An index that failed for good
    (backoffLimitPerIndex) counts as finished: it gets no further pod.
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
        remaining = 0 if finished else min(slots, status.active or 0) if status.succeeded else slots
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
        labels=labels_of(meta.labels),
        annotations=annotations_of(meta.annotations, every=True),  # a mistyped key is told
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
                evictable=_ignores_evictions(spec.pod_failure_policy),
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
        managed_elsewhere=_exemption(spec),
        ends_suspended=spec.completions is None and bool(status.succeeded),
    )


def _ignores_evictions(policy: wire.PodFailurePolicy | None) -> bool:
    """Return True if an evicted pod is no failure of its Job: the first rule that it meets ignores it."""
    for rule in policy.rules or () if policy is not None else ():
        exits = rule.on_exit_codes
        if exits is not None and (exits.operator != "In" or not _OF_SIGNALS.isdisjoint(exits.values or ())):
            return False  # it may count for what its containers end with
        if any(one.type == "DisruptionTarget" and one.status != "False" for one in rule.on_pod_conditions or ()):
            return rule.action == "Ignore"
    return False


def workload(source: Source, *, entry: KindEntry, registry: Registry, version: str = "") -> Workload:
    """Return an object of a registered kind; `version` is used where the object has none of its own (in a list).

    Only labels and annotations that we read are kept. Raises ProjectionError for what is no object of the API server
    (JSON, wrong types of fields that every kind has) and UnreadableWorkload for fields that its entry cannot read.
    """
    if (entry.match.group, entry.match.kind) == _JOB:
        return job(source)
    raw = source if isinstance(source, Mapping) else wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    structure = read(entry, raw, registry=registry)
    namespace = intern(meta.namespace or "")
    gang, suspension = structure.gang, structure.suspension
    by_replica = gang is not None and gang.unit == "replica"
    group, served = entry.match.group, structure.version or version or _named_version(entry)
    return Workload(
        api_version=intern(f"{group}/{served}" if group else served),
        kind=intern(entry.match.kind),
        namespace=namespace,
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        generation=meta.generation or 0,
        labels=kept(meta.labels),
        annotations=annotations_of(meta.annotations),
        pod_sets=tuple(_pod_set(one, structure, namespace=namespace) for one in structure.pod_sets if not one.beside),
        suspended=suspension is not None and suspension.suspended,
        suspendable=suspension is not None and suspension.allowed,
        started=structure.started,
        finished=structure.finished,
        failed=structure.failed,
        deleting=meta.deletion_timestamp is not None,
        created=epoch(meta.creation_timestamp),
        owner=pods.controller_of(meta.owner_references),
        managed_elsewhere=structure.stand_aside,
        resource=intern(entry.match.resource),
        suspend_path=suspension.steps if suspension is not None else None,
        templates_fixed=suspension is not None and suspension.fixed,
        groups=gang.replicas if gang is not None and by_replica else 1,
        group_label=gang.replica_label if gang is not None and by_replica else None,
        minimum=gang.minimum if gang is not None else None,
        unit=gang.unit if gang is not None else "workload",
        handling=entry.handling,
        beside=tuple(one.selector for one in structure.pod_sets if one.beside and one.selector),
    )


def workload_or_stub(source: Source, *, entry: KindEntry, registry: Registry, version: str = "") -> Workload:
    """Return an object as `workload` does, or a stub of it: identity and owner alone.

    A stub replaces an object of a kind that is only placed and that has no key for us: a cluster has many Deployments
    and few with a request. The pod set of a stub is not the object's own.
    """
    placed_only = entry.suspend is None and entry.scheduler is None and not entry.stand_aside
    if isinstance(source, Mapping) or not placed_only:
        return workload(source, entry=entry, registry=registry, version=version)
    text = bytes(source)
    if any(prefix in text for prefix in _REQUEST_KEYS):
        return workload(text, entry=entry, registry=registry, version=version)
    meta = wire.decode(wire.Object, text).metadata or wire.ObjectMeta()
    group, served = entry.match.group, version or _named_version(entry)
    return Workload(
        api_version=intern(f"{group}/{served}" if group else served),
        kind=intern(entry.match.kind),
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        generation=meta.generation or 0,
        labels=_NO_KEYS,
        annotations=_NO_KEYS,
        pod_sets=(_STUB_PODS,),
        suspended=False,
        suspendable=False,
        started=False,
        finished=False,
        deleting=meta.deletion_timestamp is not None,
        created=epoch(meta.creation_timestamp),
        owner=pods.controller_of(meta.owner_references),
        managed_elsewhere=None,
        resource=intern(entry.match.resource),
        suspend_path=None,
        unit=entry.gang.unit if entry.gang is not None else "workload",
        handling=entry.handling,
    )


def owned(source: Source, *, api_version: str, kind: str) -> Owned:
    """Return an object as a link between its pods and its workload; api version and kind are those of its collection.

    Raises ProjectionError.
    """
    meta = wire.decode(wire.Object, source).metadata or wire.ObjectMeta()
    return Owned(
        api_version=api_version,
        kind=kind,
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        owner=pods.controller_of(meta.owner_references),
    )


def missing_steps(metadata: wire.ObjectMeta | None) -> tuple[str, ...]:
    """Return which steps of `TO_ANNOTATIONS` a template with that metadata lacks."""
    if metadata is None:
        return TO_ANNOTATIONS
    return TO_ANNOTATIONS[1:] if metadata.annotations is None else ()


def _indexes(text: str | None, field: str) -> Ranges:
    try:
        return parse_ranks(text or "")
    except ValueError as error:
        raise ProjectionError(f"$.status.{field}: {error}") from None


def _exemption(spec: wire.JobSpec) -> Code | None:
    """Return the reason code why a Job is exempt, by the same rules as its kind's entry (`engine.kinds`)."""
    if spec.managed_by == _KUEUE_CONTROLLER:
        return "ManagedByKueue"
    if spec.managed_by not in _JOB_CONTROLLERS:
        return "OtherController"
    return "CoreGang" if spec.scheduling is not None else None


def _pod_set(found: kinds.ParsedPodSet, structure: ParsedWorkload, *, namespace: str) -> PodSet:
    template, missing = _template(found, namespace=namespace)
    claims = found.claims
    if claims.templates:
        template = _with_claims(template, claims)
    if structure.scheduler is not None:
        template = replace(template, scheduler_name=intern(structure.scheduler))
    return PodSet(
        name=intern(found.name),
        template=template,
        slots=found.count,
        total=found.total,
        remaining=0 if structure.finished else max(0, min(found.count, found.total) - found.succeeded),
        ranked=found.ranked,
        path=found.steps,
        rank=found.rank,
        selector=found.selector,
        ordered=found.ordered,
        replace=found.replace,
        minimum=found.minimum if found.minimum < found.count else None,
        replica=found.replica,
        counted=found.counted,
        templated=found.template is not None,
        missing=missing,
        claim_series=tuple(f"{name}-{claims.owner}" for name, _ in claims.templates)
        if claims.first is not None
        else (),
        first_ordinal=claims.first or 0,
    )


def _with_claims(template: PodSpec, claims: kinds.ParsedClaims) -> PodSpec:
    """Return the template with the StorageClasses of the claims that each pod gets of its own."""
    wanted = (None if one is None else intern(one) for _, one in claims.templates)
    beyond = (f"claim templates beyond {MAX_CLAIM_TEMPLATES}",) if claims.more else ()
    return replace(
        template,
        volume_classes=tuple(dict.fromkeys((*template.volume_classes, *wanted))),
        unmodelled=(*template.unmodelled, *beyond),
    )


def _template(found: kinds.ParsedPodSet, *, namespace: str) -> tuple[PodSpec, tuple[str, ...]]:
    """Return the template, and which steps of `TO_ANNOTATIONS` it lacks."""
    raw: Mapping[str, Any] = found.template if found.template is not None else {}
    if found.claims.templates:
        raw = _without_volumes(raw, {name for name, _ in found.claims.templates})
    where = f"$.{found.field}" if found.steps else "$"
    try:
        template = wire.decode(wire.Template, raw)
    except ProjectionError as error:
        raise ProjectionError(f"{where}{str(error).removeprefix('$')}") from None
    meta = template.metadata or wire.ObjectMeta()
    spec = pod_spec(template.spec or wire.PodSpec(), meta, f"{where}.spec", namespace=namespace)
    return spec, missing_steps(template.metadata)


def _without_volumes(template: Mapping[str, Any], replaced: Collection[str]) -> Mapping[str, Any]:
    """Return a template without the volumes that the claims of the same names replace."""
    spec = template.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(volumes := spec.get("volumes"), list):
        return template
    left = [one for one in volumes if _name_of(one) not in replaced]
    return template if len(left) == len(volumes) else {**template, "spec": {**spec, "volumes": left}}


def _name_of(volume: object) -> str:
    name = volume.get("name") if isinstance(volume, Mapping) else None
    return name if isinstance(name, str) else ""


def _named_version(entry: KindEntry) -> str:
    return next((version for version in entry.match.versions if version != ANY_VERSION), "v1")
