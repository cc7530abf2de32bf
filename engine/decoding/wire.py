"""The parts of the API server's objects that we read, as msgspec structs.

Everything else in an object is skipped while parsing. Every optional field may be null, as Go reads it; numbers carry
the bounds of their Go types. `decode` is the only way in, `ProjectionError` the only thing it raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec

from engine.api.resources import Quantity

Source = bytes | bytearray | memoryview | msgspec.Raw | Mapping[str, Any]
T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
StringMap = dict[str, str | None]
ResourceList = dict[str, Quantity | None]

_TEXT_AND_PATH: Final = re.compile(r"(.*) - at `(?:key` in `)?(.*)`", re.DOTALL)
_WORDS: Final = {
    "int": "a whole number",
    "str": "text",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "datetime": "a time",
}
_TYPE: Final = re.compile(r"`(\w+(?: \| \w+)*)`")


# The errors that a decoder raises for bad bytes: JSON, UTF-8 (msgspec passes Python's own error on),
# and nesting within reason.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class ProjectionError(ValueError):
    """An object that cannot be decoded; the text starts with the JSON path of the error."""


def decode(kind: type[T], source: Source) -> T:
    """Return `source` (JSON bytes, or what a JSON or YAML parser made of them) as a `kind`.

    Raises ProjectionError (`$.spec.parallelism: Expected `int`, got `str``).
    """
    try:
        if isinstance(source, Mapping):
            return msgspec.convert(source, kind)
        decoder: msgspec.json.Decoder[T] = _DECODERS[kind]
        return decoder.decode(source)
    except (*UNREADABLE, TypeError) as error:
        raise projection_error(error) from None


def projection_error(error: Exception) -> ProjectionError:
    """Return a decoder's own error with its path in front."""
    found = _TEXT_AND_PATH.fullmatch(str(error))
    text, path = found.groups() if found is not None else (str(error), "$")
    return ProjectionError(f"{path}: {text}")


def in_words(text: str) -> str:
    """Return a decoder's message in words.

    Example: `Expected `int | null`, got `str`` -> `expected a whole number, got text`.
    """
    said = _TYPE.sub(lambda match: _type_in_words(match[1]), text).replace("`", "")
    return said if said[1:2].isupper() else said[:1].lower() + said[1:]  # "JSON is malformed" as it is


def _type_in_words(union: str) -> str:
    types = [one for one in union.split(" | ") if one != "null"] or ["null"]
    if "float" in types:
        types = [one for one in types if one != "int"]
    return " or ".join(_WORDS.get(one, one) for one in types)


def located(error: ProjectionError) -> tuple[str, str]:
    """Return the path (empty for the object itself) and the message of a projection's error."""
    path, _, text = str(error).partition(": ")
    return path.removeprefix("$").removeprefix("."), in_words(text)


class Struct(msgspec.Struct, rename="camel", gc=False):
    """Base of the wire structs: camelCase on the wire, invisible to the garbage collector (they live for one call)."""


class Present(Struct):
    """An object that counts only by its presence."""


class OwnerReference(Struct):
    """metadata.ownerReferences[*]."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class ObjectMeta(Struct):
    """metadata of an object or of a pod template."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: StringMap | None = None
    annotations: StringMap | None = None
    owner_references: list[OwnerReference] | None = None


class Object(Struct):
    """An object of any kind, with its metadata alone."""

    metadata: ObjectMeta | None = None


class Condition(Struct):
    """status.conditions[*] of any kind."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class ResourceRequirements(Struct):
    """resources of a container or of a pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Port(Struct):
    """A container's port."""

    host_port: int | None = None
    container_port: int | None = None
    protocol: str | None = None


class RestartRule(Struct):
    """spec.containers[*].restartPolicyRules[*]."""

    action: str | None = None


class Container(Struct):
    """A container or init container."""

    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    ports: list[Port] | None = None


class Requirement(Struct):
    """A node selector requirement."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class Term(Struct):
    """A node selector term."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(Struct):
    """Terms, ORed."""

    node_selector_terms: list[Term] | None = None


class PreferredNodes(Struct):
    """A preferred term of spec.affinity.nodeAffinity."""

    weight: int | None = None
    preference: Term | None = None


class NodeAffinity(Struct):
    """spec.affinity.nodeAffinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredNodes] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class LabelSelector(Struct):
    """A label selector."""

    match_labels: StringMap | None = None
    match_expressions: list[Requirement] | None = None


class PodAffinityTerm(Struct):
    """A term of podAffinity or podAntiAffinity."""

    topology_key: str | None = None
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Struct):
    """A preferred term of podAffinity or podAntiAffinity."""

    weight: int | None = None
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(Struct):
    """spec.affinity.podAffinity and podAntiAffinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Struct):
    """spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct):
    """spec.tolerations[*]."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Gate(Struct):
    """spec.schedulingGates[*]."""

    name: str | None = None


class ClaimSource(Struct):
    """persistentVolumeClaim of a volume."""

    claim_name: str | None = None


class ClaimSpec(Struct):
    """spec of a PersistentVolumeClaim, or of a template for one."""

    volume_name: str | None = None
    storage_class_name: str | None = None


class ClaimTemplate(Struct):
    """volumeClaimTemplate of an ephemeral volume."""

    spec: ClaimSpec | None = None


class Ephemeral(Struct):
    """ephemeral of a volume."""

    volume_claim_template: ClaimTemplate | None = None


class Volume(Struct):
    """spec.volumes[*]: the two sources that tie a pod to nodes."""

    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Ephemeral | None = None


class Spread(Struct):
    """spec.topologySpreadConstraints[*]."""

    when_unsatisfiable: str | None = None
    topology_key: str | None = None
    max_skew: int | None = None
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class PodSpec(Struct):
    """spec of a pod or of a pod template."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: ResourceRequirements | None = None
    overhead: ResourceList | None = None
    node_selector: StringMap | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[Gate] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    runtime_class_name: str | None = None
    active_deadline_seconds: int | None = None
    host_network: bool | None = None
    scheduling_group: Present | None = None
    workload_ref: Present | None = None
    resource_claims: list[Present] | None = None
    topology_spread_constraints: list[Spread] | None = None
    volumes: list[Volume] | None = None


class ContainerWaiting(Struct):
    """state.waiting of a container."""

    reason: str | None = None
    message: str | None = None


class ContainerEnd(Struct):
    """state.terminated of a container."""

    reason: str | None = None
    exit_code: int | None = None
    finished_at: datetime | None = None


class ContainerState(Struct):
    """state or lastState of a container."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerEnd | None = None


class ContainerStatus(Struct):
    """status.containerStatuses[*] and status.initContainerStatuses[*] of a pod."""

    name: str | None = None
    ready: bool | None = None
    restart_count: int | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(Struct):
    """status of a pod."""

    phase: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None
    observed_generation: int | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Struct):
    """v1 Pod."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Allocated(Struct):
    """What a container has, or a pod with resources of its own, whatever its spec says."""

    name: str | None = None  # of a container
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class ResizedStatus(Allocated):
    """status of a pod whose resources are being changed."""

    container_statuses: list[Allocated] | None = None
    init_container_statuses: list[Allocated] | None = None


class Named(Struct):
    """A container of which only the name matters."""

    name: str | None = None


class ContainerNames(Struct):
    """spec of a pod, with the names of its containers alone."""

    containers: list[Named] | None = None
    init_containers: list[Named] | None = None


class ResizedPod(Struct):
    """v1 Pod, with what matters beside wire.Pod while its resources are being changed."""

    spec: ContainerNames | None = None
    status: ResizedStatus | None = None


class PodList(Struct):
    """A list of pods."""

    items: list[Pod] | None = None


class Taint(Struct):
    """spec.taints[*]."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(Struct):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Struct):
    """status of a node."""

    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    conditions: list[Condition] | None = None


class Node(Struct):
    """v1 Node."""

    metadata: ObjectMeta | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Template(Struct):
    """A pod template."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class VolumeAffinity(Struct):
    """spec.nodeAffinity of a PersistentVolume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Struct):
    """spec of a PersistentVolume."""

    node_affinity: VolumeAffinity | None = None


class PersistentVolume(Struct):
    """v1 PersistentVolume."""

    metadata: ObjectMeta | None = None
    spec: PersistentVolumeSpec | None = None


class PersistentVolumeClaim(Struct):
    """v1 PersistentVolumeClaim."""

    metadata: ObjectMeta | None = None
    spec: ClaimSpec | None = None


class LabelValues(Struct):
    """A requirement of an allowed topology: the label has one of the values."""

    key: str | None = None
    values: list[str] | None = None


class AllowedTopology(Struct):
    """allowedTopologies[*] of a StorageClass: all requirements hold."""

    match_label_expressions: list[LabelValues] | None = None


class StorageClass(Struct):
    """storage.k8s.io/v1 StorageClass."""

    metadata: ObjectMeta | None = None
    allowed_topologies: list[AllowedTopology] | None = None


class DaemonSetSpec(Struct):
    """spec of a DaemonSet."""

    template: Template | None = None


class DaemonSet(Struct):
    """apps/v1 DaemonSet."""

    metadata: ObjectMeta | None = None
    spec: DaemonSetSpec | None = None


class ConditionPattern(Struct):
    """A rule's onPodConditions[*]."""

    type: str | None = None
    status: str | None = None


class ExitCodes(Struct):
    """A rule's onExitCodes."""

    operator: str | None = None
    values: list[int] | None = None


class FailureRule(Struct):
    """spec.podFailurePolicy.rules[*] of a Job."""

    action: str | None = None
    on_pod_conditions: list[ConditionPattern] | None = None
    on_exit_codes: ExitCodes | None = None


class PodFailurePolicy(Struct):
    """spec.podFailurePolicy of a Job."""

    rules: list[FailureRule] | None = None


class JobSpec(Struct):
    """spec of a Job."""

    parallelism: Count | None = None
    completions: Count | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    scheduling: Present | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    template: Template | None = None


class JobStatus(Struct):
    """status of a Job."""

    active: Count | None = None
    succeeded: Count | None = None
    start_time: datetime | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None
    conditions: list[Condition] | None = None


class Job(Struct):
    """batch/v1 Job."""

    metadata: ObjectMeta | None = None
    spec: JobSpec | None = None
    status: JobStatus | None = None


class ScopeRequirement(Struct):
    """spec.scopeSelector.matchExpressions[*] of a ResourceQuota."""

    scope_name: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class ScopeSelector(Struct):
    """spec.scopeSelector of a ResourceQuota."""

    match_expressions: list[ScopeRequirement] | None = None


class QuotaSpec(Struct):
    """spec of a ResourceQuota."""

    hard: ResourceList | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class QuotaStatus(Struct):
    """status of a ResourceQuota."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class Quota(Struct):
    """v1 ResourceQuota."""

    metadata: ObjectMeta | None = None
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class DisruptionBudgetSpec(Struct):
    """spec of a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class DisruptionBudgetStatus(Struct):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: Int32 | None = None


class DisruptionBudget(Struct):
    """policy/v1 PodDisruptionBudget."""

    metadata: ObjectMeta | None = None
    spec: DisruptionBudgetSpec | None = None
    status: DisruptionBudgetStatus | None = None


class PriorityClass(Struct):
    """scheduling.k8s.io/v1 PriorityClass."""

    metadata: ObjectMeta | None = None
    value: Int32 | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


class Overhead(Struct):
    """overhead of a RuntimeClass."""

    pod_fixed: ResourceList | None = None


class Scheduling(Struct):
    """scheduling of a RuntimeClass."""

    node_selector: StringMap | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(Struct):
    """node.k8s.io/v1 RuntimeClass."""

    metadata: ObjectMeta | None = None
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


class Target(Struct):
    """target of a Binding: the node."""

    name: str | None = None


class Binding(Struct):
    """v1 Binding."""

    target: Target | None = None


class ConfigMap(Struct):
    """v1 ConfigMap."""

    metadata: ObjectMeta | None = None
    data: StringMap | None = None


class DeviceSpec(Struct):
    """spec of a Device; its entries are read one by one, so that a faulty one does not hide the others."""

    devices: list[Any] | None = None


class Device(Struct):
    """scheduling.koordinator.sh/v1alpha1 Device: the devices of the node of that name."""

    metadata: ObjectMeta | None = None
    spec: DeviceSpec | None = None


class PlacementWorkload(Struct):
    """spec.workload of a Placement."""

    api_version: str
    kind: Name
    name: Name
    uid: str


class PlacementSlice(Struct):
    """spec.podSets[*].slices[*] of a Placement."""

    level: Name
    size: Positive


class PlacementPodSet(Struct):
    """spec.podSets[*] of a Placement."""

    name: Name
    count: Count
    min_available: Count | None = None
    require: str | None = None
    prefer: str | None = None
    slices: list[PlacementSlice] | None = None
    colocate: str | None = None
    device_scope: str | None = None
    gpu_strategy: str | None = None
    device_selector: str | None = None
    rdma_selector: str | None = None
    vf_selector: str | None = None
    rdma_scope: str | None = None
    relaxed: str | None = None
    ranked: bool | None = None
    shape_hash: str | None = None


class PlacementGang(Struct):
    """spec.gang of a Placement."""

    require: str | None = None
    prefer: str | None = None
    min_available: Count | None = None
    relaxed: str | None = None


class PlacementFunction(Struct):
    """One virtual function of a device of a pod of a slot."""

    minor: Count
    bus: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = msgspec.field(name="busID")


class PlacementDevice(Struct):
    """One device of a pod of a slot."""

    type: str
    minor: Count
    core: Count | None = None
    memory_ratio: Count | None = None
    memory: Quantity | None = None
    share: Count | None = None
    vfs: list[PlacementFunction] | None = None


class PlacementSlot(Struct):
    """spec.assignment.podSets[*].slots[*] of a Placement."""

    domain: Annotated[list[Name], msgspec.Meta(min_length=1)]
    count: Positive
    ranks: str | None = None
    devices: list[list[PlacementDevice]] | None = None


class PlacementPlan(Struct):
    """spec.assignment.podSets[*] of a Placement."""

    name: Name
    slots: list[PlacementSlot]
    requests: ResourceList | None = None


class PlacementConsumed(Struct):
    """spec.assignment.provisioningRequest of a Placement."""

    name: Name
    class_name: Name


class PlacementAssignment(Struct):
    """spec.assignment of a Placement."""

    revision: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    pod_sets: list[PlacementPlan]
    provisioning_request: PlacementConsumed | None = None


class PlacementSeparation(Struct):
    """spec.separation of a Placement."""

    exclusive: str | None = None
    spread: str | None = None
    spread_group: str | None = None


class PlacementSpec(Struct):
    """spec of a Placement."""

    workload: PlacementWorkload
    topology: str
    pod_sets: list[PlacementPodSet]
    priority: Int32 | None = None
    group: str | None = None
    gang: PlacementGang | None = None
    profile: str | None = None
    separation: PlacementSeparation | None = None
    assignment: PlacementAssignment | None = None


class Placement(Struct):
    """topogate.dev/v1alpha1 Placement."""

    metadata: ObjectMeta
    spec: PlacementSpec
    status: dict[str, Any] | None = None


# Made while one thread imports this: msgspec reads a struct's fields when it is first used, and a second thread that
# decodes a struct which is half read crashes the process.
_KINDS: Final[tuple[type[Any], ...]] = (
    *(Node, Pod, PodList, Job, DaemonSet, Quota, PriorityClass, RuntimeClass, Binding, ConfigMap, Device, Placement),
    *(PersistentVolume, PersistentVolumeClaim, StorageClass, DisruptionBudget),
    *(Object, Template, ResizedPod, dict),
)
_DECODERS: Final[Mapping[type[Any], msgspec.json.Decoder[Any]]] = {kind: msgspec.json.Decoder(kind) for kind in _KINDS}
