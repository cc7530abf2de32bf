"""Decodes cluster objects into records: nodes, quotas, classes, ConfigMaps, Topology objects of Kueue and KAI,
HyperNodes of Volcano, and PodGroups of scheduler-plugins.

All functions take JSON bytes (watch, list, review) or the parsed object (files) and raise only ProjectionError, with a
text that starts with the JSON path.

Topology objects of both groups have `spec.levels[].nodeLabel`, coarse to fine; KAI's levels may have an `alias`. A spec
that cannot be read raises nothing: the record holds the problem, so that a topology reports why it waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Final, Literal

import msgspec

from engine.api.duration import epoch
from engine.api.objects import (
    ConfigMap,
    DaemonSet,
    DisruptionBudget,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodGroupObject,
    PriorityClass,
    Quota,
    RuntimeClass,
    StorageClass,
    Taint,
)
from engine.api.pod import SelectorRequirement, SelectorTerm
from engine.api.resources import nano_to_units
from engine.api.text import sanitize
from engine.decoding import wire
from engine.decoding.pods import amount, amounts, pod_spec, selector_terms, tolerations
from engine.decoding.volume_zones import zone_terms
from engine.decoding.wire import ProjectionError, Source, decode
from engine.topology.hyper_nodes import MAX_MEMBERS as MAX_MEMBERS_OF_HYPER_NODE
from engine.topology.hyper_nodes import HyperNode
from engine.topology.objects import TopologyObject

# The conditions of a failed Job.
_FAILURES: Final = frozenset({"Failed", "FailureTarget"})
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_QUOTA_OF_PODS: Final = ("requests.", "limits.", "hugepages-")
_QUOTA_NAMES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods", "count/pods"})

MAX_LEVELS: Final = 16  # Kueue's and KAI's own limit
_MAX_TEXT: Final = 400  # of a problem
_MAX_OF_BUDGET: Final = 1_000  # keys and values of a selector that pods are compared with
_MAX_MEMBERS: Final = 999_999_999
_LEAST_WAIT: Final = 10  # seconds; as of a schedule-timeout in an annotation


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
        labels=labels_of(meta.labels),
        allocatable=_units(allocatable, f"$.status.{field}", up=False),
        taints=tuple(
            Taint(key=intern(taint.key or ""), value=taint.value or "", effect=intern(taint.effect or ""))
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=ready,
        settled_at=max(epoch(meta.creation_timestamp), since),
        created=epoch(meta.creation_timestamp),
    )


def quota(source: Source) -> Quota:
    """Return a ResourceQuota, by its status where it has one; only names that pods can use."""
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


def disruption_budget(source: Source) -> DisruptionBudget:
    """Return a PodDisruptionBudget; one that its controller has not counted yet allows nothing."""
    raw = decode(wire.DisruptionBudget, source)
    meta, spec, status = raw.metadata or wire.ObjectMeta(), raw.spec, raw.status
    selector = spec.selector if spec is not None else None
    rules = _requirements(selector) if selector is not None else None
    if rules and sum(1 + len(one.values) for one in rules) > _MAX_OF_BUDGET:
        rules = ()  # it may select every pod of its namespace
    return DisruptionBudget(
        namespace=meta.namespace or "",
        name=_name(meta),
        selector=rules,
        allowed=max(0, (status.disruptions_allowed if status is not None else None) or 0),
        resource_version=meta.resource_version or "",
    )


def persistent_volume(source: Source) -> PersistentVolume:
    """Return a PersistentVolume; its zone labels count like its node affinity."""
    raw = decode(wire.PersistentVolume, source)
    meta, affinity = raw.metadata or wire.ObjectMeta(), (raw.spec or wire.PersistentVolumeSpec()).node_affinity
    required = affinity.required if affinity is not None else None
    return PersistentVolume(
        name=_name(meta),
        terms=zone_terms(meta.labels or {}, None if required is None else selector_terms(required)),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def persistent_volume_claim(source: Source) -> PersistentVolumeClaim:
    """Return a PersistentVolumeClaim."""
    raw = decode(wire.PersistentVolumeClaim, source)
    meta, spec = raw.metadata or wire.ObjectMeta(), raw.spec or wire.ClaimSpec()
    return PersistentVolumeClaim(
        namespace=meta.namespace or "",
        name=_name(meta),
        volume=intern(spec.volume_name or ""),
        storage_class=None if spec.storage_class_name is None else intern(spec.storage_class_name),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def storage_class(source: Source) -> StorageClass:
    """Return a StorageClass."""
    raw = decode(wire.StorageClass, source)
    meta = raw.metadata or wire.ObjectMeta()
    return StorageClass(
        name=_name(meta),
        terms=tuple(_allowed(one) for one in raw.allowed_topologies) if raw.allowed_topologies else None,
        default=(meta.annotations or {}).get(_DEFAULT_CLASS) == "true",
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
    )


def _allowed(topology: wire.AllowedTopology) -> SelectorTerm:
    return SelectorTerm(
        expressions=tuple(
            SelectorRequirement(key=one.key or "", operator="In", values=tuple(one.values or ()))
            for one in topology.match_label_expressions or ()
        ),
        fields=(),
    )


def daemon_set(source: Source) -> DaemonSet:
    """Return a DaemonSet."""
    raw = decode(wire.DaemonSet, source)
    meta = raw.metadata or wire.ObjectMeta()
    template = (raw.spec or wire.DaemonSetSpec()).template or wire.Template()
    namespace = meta.namespace or ""
    return DaemonSet(
        namespace=namespace,
        name=_name(meta),
        template=pod_spec(
            template.spec or wire.PodSpec(),
            template.metadata or wire.ObjectMeta(),
            "$.spec.template.spec",
            namespace=namespace,
        ),
        deleting=meta.deletion_timestamp is not None,
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
        preempts=raw.preemption_policy != "Never",
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
        node_selector=labels_of(scheduling.node_selector),
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


def bound_node(source: Source) -> str:
    """Return the node of a Binding; empty when it names none."""
    target = decode(wire.Binding, source).target
    return target.name or "" if target is not None else ""


def _name(meta: wire.ObjectMeta) -> str:
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    return intern(meta.name)


def labels_of(labels: wire.StringMap | None) -> dict[str, str]:
    """Return labels as a dict of interned strings."""
    return {intern(key): intern(value or "") for key, value in labels.items()} if labels else {}


def _units(raw: wire.ResourceList | None, path: str, *, up: bool) -> dict[str, int]:
    return {intern(name): nano_to_units(name, found, up=up) for name, found in amounts(raw, path).items()}


def _quota_units(raw: wire.ResourceList | None, path: str, *, up: bool) -> dict[str, int]:
    """Return units by quota name, without counts of other objects and storage of claims: pods use none of them."""
    units = {}
    for name, quantity in (raw or {}).items():
        if name not in _QUOTA_NAMES and not name.startswith(_QUOTA_OF_PODS):
            continue
        resource = name.removeprefix("requests.").removeprefix("limits.")
        if resource != "storage":
            units[name] = nano_to_units(resource, amount(name, quantity, path), up=up)
    return units


class _Level(wire.Struct):
    node_label: str
    alias: str | None = None


class _Spec(wire.Struct):
    levels: list[_Level]


def topology_object(source: Source) -> TopologyObject:
    """Return the levels of a Topology object of either group. Raises ProjectionError when it is no object."""
    raw = wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    problem = ""
    levels: tuple[tuple[str, str], ...] = ()
    try:
        spec = msgspec.convert(raw.get("spec"), _Spec)
        levels = tuple((level.node_label, level.alias or "") for level in spec.levels)
        if not 0 < len(levels) <= MAX_LEVELS:
            problem, levels = f"spec.levels: must have 1 to {MAX_LEVELS} entries; has {len(levels)}", ()
    except msgspec.ValidationError as error:
        problem = sanitize("spec: " + str(error).replace("`", ""))[:_MAX_TEXT]
    return TopologyObject(meta.name, meta.resource_version or "", levels, problem)


class _Named(wire.Struct):
    name: wire.Name


class _Matched(wire.Struct):
    pattern: wire.Name


class _MemberSelector(wire.Struct):
    exact_match: _Named | None = None
    regex_match: _Matched | None = None
    label_match: wire.LabelSelector | None = None


class _Member(wire.Struct):
    type: Literal["Node", "HyperNode"]
    selector: _MemberSelector


class _HyperNodeSpec(wire.Struct):
    tier: wire.Count = 0  # Go leaves a zero out
    tier_name: str | None = None
    members: list[_Member] | None = None


# Made here, by one thread, as in `wire`.
_CONVERTED: Final = (msgspec.json.Decoder(_Spec), msgspec.json.Decoder(_HyperNodeSpec))


def hyper_node(source: Source) -> HyperNode:
    """Return a HyperNode of Volcano. Raises ProjectionError when it is no object."""
    raw = wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    name = _name(meta)
    version = meta.resource_version or ""
    try:
        spec = msgspec.convert(raw.get("spec"), _HyperNodeSpec)
    except msgspec.ValidationError as error:
        problem = sanitize("spec: " + str(error).replace("`", ""))[:_MAX_TEXT]
        return HyperNode(name, 0, problem=problem, resource_version=version)
    members = spec.members or []
    problem = ""
    if len(members) > MAX_MEMBERS_OF_HYPER_NODE:
        problem = f"spec.members: has {len(members):,}; at most {MAX_MEMBERS_OF_HYPER_NODE:,}"
    for index, one in enumerate(members):
        said = [what for what in _selecting(one.selector) if what is not None]
        if len(said) != 1:
            problem = f"spec.members[{index}].selector: must have one of exactMatch, regexMatch and labelMatch"
        elif one.type == "HyperNode" and one.selector.exact_match is None:
            problem = f"spec.members[{index}].selector: must have exactMatch; members of type HyperNode have no other"
    if problem:
        return HyperNode(name, 0, problem=problem, resource_version=version)
    selectors = [(one.type, one.selector) for one in members]
    return HyperNode(
        name,
        spec.tier,
        tier_name=spec.tier_name or "",
        hyper_nodes=_exact(selectors, "HyperNode"),
        nodes=_exact(selectors, "Node"),
        patterns=tuple(one.regex_match.pattern for _, one in selectors if one.regex_match is not None),
        selectors=tuple(_requirements(one.label_match) for _, one in selectors if one.label_match is not None),
        resource_version=version,
    )


def _selecting(selector: _MemberSelector) -> tuple[object, ...]:
    return (selector.exact_match, selector.regex_match, selector.label_match)


def _exact(selectors: Iterable[tuple[str, _MemberSelector]], kind: str) -> tuple[str, ...]:
    found = (one.exact_match.name for of_kind, one in selectors if of_kind == kind and one.exact_match is not None)
    return tuple(intern(name) for name in found)


def _requirements(selector: wire.LabelSelector) -> tuple[SelectorRequirement, ...]:
    """Return the requirements of a label selector, all of which hold."""
    equal = ((key, "In", (value or "",)) for key, value in (selector.match_labels or {}).items())
    others = ((one.key or "", one.operator or "", tuple(one.values or ())) for one in selector.match_expressions or ())
    return tuple(SelectorRequirement(*one) for one in (*equal, *others))


def pod_group_object(source: Source) -> PodGroupObject:
    """Return a PodGroup of scheduler-plugins. Raises ProjectionError when it is no object."""
    raw = wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    if not meta.name or not meta.namespace:
        raise ProjectionError("$.metadata: name and namespace are required")
    spec = raw.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    least, seconds = _whole(spec.get("minMember")), _whole(spec.get("scheduleTimeoutSeconds"))
    return PodGroupObject(
        meta.namespace,
        meta.name,
        minimum=least,
        timeout=float(max(seconds, _LEAST_WAIT)) if seconds else None,
        problem="" if least else f"spec.minMember: must be a whole number from 1 to {_MAX_MEMBERS}",
        resource_version=meta.resource_version or "",
    )


def _whole(number: object) -> int:
    """Return a number of pods or seconds; 0 for anything else."""
    return number if type(number) is int and 1 <= number <= _MAX_MEMBERS else 0
