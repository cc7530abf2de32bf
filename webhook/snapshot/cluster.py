"""A cluster from files: the stores and the cluster state of the service, filled once, and the current policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from engine.api import names
from engine.api.device import NodeDevices
from engine.api.objects import Node, PersistentVolumeClaim
from engine.api.pod import Pod
from engine.api.text import sanitize
from engine.api.workload import Owned, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import BUDGETS, Stores
from engine.decoding import devices as cluster_devices
from engine.decoding import objects as cluster_objects
from engine.decoding import placements, pods
from engine.decoding.objects import topology_object
from engine.decoding.wire import ProjectionError, in_words, located, projection_error
from engine.decoding.workloads import owned, workload
from engine.kinds.read import UnreadableWorkload
from engine.kinds.registry import Registry
from engine.policy.model import Policy, PolicyError, default_policy, parse_policy
from engine.topology.hyper_nodes import GROUP as VOLCANO
from engine.topology.hyper_nodes import KIND as HYPER_NODE
from engine.topology.hyper_nodes import PLURAL as HYPER_NODES
from engine.topology.levels import Level
from engine.topology.objects import PLURAL, levels_of
from engine.topology.spec import LevelSpec, TopologySpec
from engine.topology.topology import left_out
from webhook.snapshot.files import MAX_WHY, FileObject, FileProblem

KUBELET_PODS: Final = 110  # the kubelet's default of maxPods, for a Node in a file without a number

STORES: Final[Mapping[tuple[str, str], tuple[str, Callable[[Any], Any]]]] = {
    ("", "Node"): ("nodes", cluster_objects.node),
    ("", "Pod"): ("pods", pods.pod),
    (names.API_GROUP, names.PLACEMENT_KIND): ("placements", placements.placement),
    ("", "ResourceQuota"): ("quotas", cluster_objects.quota),
    ("", "PersistentVolume"): ("persistentvolumes", cluster_objects.persistent_volume),
    ("", "PersistentVolumeClaim"): ("persistentvolumeclaims", cluster_objects.persistent_volume_claim),
    ("storage.k8s.io", "StorageClass"): ("storageclasses", cluster_objects.storage_class),
    ("policy", "PodDisruptionBudget"): (BUDGETS, cluster_objects.disruption_budget),
    ("apps", "DaemonSet"): ("daemonsets", cluster_objects.daemon_set),
    ("scheduling.k8s.io", "PriorityClass"): ("priorityclasses", cluster_objects.priority_class),
    ("scheduling.x-k8s.io", "PodGroup"): ("podgroups", cluster_objects.pod_group_object),
    (VOLCANO, HYPER_NODE): (HYPER_NODES, cluster_objects.hyper_node),
    ("node.k8s.io", "RuntimeClass"): ("runtimeclasses", cluster_objects.runtime_class),
}
DEVICE: Final = ("scheduling.koordinator.sh", "Device")
_CONFIG_MAP: Final = ("", "ConfigMap")
TOPOLOGIES: Final = (("kueue.x-k8s.io", "Topology"), ("kai.scheduler", "Topology"))


@dataclass(frozen=True, slots=True)
class OfflineCluster:
    """The state of a cluster from files; `notes` are lines about input without effect."""

    view: ClusterState
    nodes: int
    notes: tuple[str, ...]


def offline_cluster(
    objects: Iterable[FileObject],
    *,
    policy: Policy | None = None,
    levels: Sequence[str] = (),
    namespace: str = "default",
) -> OfflineCluster:
    """Return the cluster state of the objects in the cluster files; objects of unknown kinds are left out.

    Levels come from `policy`, else from the policy ConfigMap among the objects, else from `levels` (node label keys,
    coarse to fine), else from Topology objects of Kueue or KAI, else from the default policy; HyperNodes are used where
    a workload or the policy names them. Pods without a namespace get `namespace`. Raises FileProblem for an object, a
    policy or a level that cannot be read.
    """
    records: dict[str, list[Any]] = {"devices": [], **{name: [] for name, _ in STORES.values()}}
    notes: list[str] = []
    config_maps: list[FileObject] = []
    others: list[FileObject] = []
    for one in objects:
        if one.what in STORES:
            into, projection = STORES[one.what]
            records[into].append(_completed(_decoded(one, projection), one, namespace))
        elif one.what == DEVICE:
            records["devices"] += _devices(one, notes)
        elif one.what == _CONFIG_MAP:
            config_maps.append(one)
        elif one.what in TOPOLOGIES:
            notes += _topology_notes(one)
            records.setdefault(f"{PLURAL}.{one.group}", []).append(_decoded(one, topology_object))
        else:
            others.append(one)
    asked = _spec("default", levels, where="--levels") if levels else None
    policy = policy or _policy_of(config_maps) or default_policy()
    if policy.topologies:
        if asked is not None:
            notes.append("--levels has no effect: the policy names the topologies")
    elif asked is not None:
        policy = policy.model_copy(update={"topologies": (asked,)})
    records |= _of_registry(others, policy.registry, namespace, notes)
    view = ClusterState(Stores(), policy, grace=0.0, new_daemon_sets=True)
    for name, store in view.stores.all().items():
        store.replace(records.get(name, []))
    view.refresh()
    notes += _disagreements(view)
    notes += [f"topology {name}: {why}" for name, one in view.topologies.items() if (why := left_out(one))]
    return OfflineCluster(view=view, nodes=len(view.stores.nodes), notes=tuple(notes))


def _decoded(one: FileObject, projection: Callable[[Any], Any]) -> Any:
    try:
        return projection(one.source)
    except ProjectionError as error:
        raise FileProblem(f"{one.where}: {one.kind}: {': '.join(filter(None, located(error)))}") from None


def _of_registry(
    objects: Iterable[FileObject], registry: Registry, namespace: str, notes: list[str]
) -> dict[str, list[Any]]:
    """Return workloads and intermediate owners by kind; unreadable objects are left out and noted."""
    workloads: list[Workload] = []
    links: list[Owned] = []
    between = {(ref.group, ref.kind) for entry in registry.entries for ref in entry.owners}
    for one in objects:
        entry = registry.find(one.group, one.kind, one.version)
        if entry is None and one.what in between:
            version = f"{one.group}/{one.version}".removeprefix("/")
            link = _decoded(one, partial(owned, api_version=version, kind=one.kind))
            links.append(replace(link, namespace=link.namespace or namespace))
        elif entry is not None and entry.handling in ("placed", "through"):
            projection = partial(workload, entry=entry, registry=registry, version=one.version)
            try:
                workloads.append(_completed(_decoded(one, projection), one, namespace))
            except UnreadableWorkload as error:
                first = error.errors[0]
                notes.append(f"{one.where}: the {one.kind} is skipped: {first.field}: {first.message}")
    return {"workloads": workloads, "owned": links}


def _devices(one: FileObject, notes: list[str]) -> list[NodeDevices]:
    """Return the devices of a node; unreadable parts are left out, as by the service, and noted."""
    try:
        devices = cluster_devices.node_devices(one.source)
    except ProjectionError as error:
        notes.append(f"{one.where}: the Device is skipped: {': '.join(filter(None, located(error)))}")
        return []
    for fault in devices.faults:
        path, _, text = fault.partition(": ")
        notes.append(f"{one.where}: Device {sanitize(devices.name)} is only partly read: {path}: {in_words(text)}")
    return [devices]


def _disagreements(view: ClusterState) -> list[str]:
    """Return a line for each host where node and Device object disagree, except about parts that are noted already."""
    lines = []
    for devices in view.stores.devices.values():
        notes = [note for note in view.capacity.device_notes(devices.name) if note not in devices.faults]
        if view.stores.nodes.get(devices.name) is None:
            notes.append("node not found")
        lines += [f"Device {sanitize(devices.name)}: {note}" for note in notes]
    return lines


def _completed(record: Any, one: FileObject, namespace: str) -> Any:
    """Return the object with fields that hand-written files omit and real objects always have."""
    match record:
        case Node():
            if "pods" not in record.allocatable:
                record = replace(record, allocatable={**record.allocatable, "pods": KUBELET_PODS})
            return record if record.ready or _has_conditions(one) else replace(record, ready=True)
        case Pod() if not record.name:
            raise FileProblem(f"{one.where}: Pod: metadata.name: is required")
        case Pod() | Workload() | PersistentVolumeClaim() if not record.namespace:
            return replace(record, namespace=namespace)
    return record


class _Status(msgspec.Struct):
    conditions: list[msgspec.Raw] | None = None


class _Reported(msgspec.Struct):
    status: _Status | None = None


_decode_reported: Final = msgspec.json.Decoder(_Reported).decode


def _has_conditions(one: FileObject) -> bool:
    """Return True if the object reports the node's conditions; every kubelet does."""
    if isinstance(one.source, dict):
        status = one.source.get("status")
        return bool(isinstance(status, dict) and status.get("conditions"))
    status = _decode_reported(one.source).status  # type: ignore[arg-type]  # bytes or Raw
    return bool(status is not None and status.conditions)


def _policy_of(config_maps: Iterable[FileObject]) -> Policy | None:
    """Return the policy of the ConfigMap with that name; one in our namespace has precedence."""
    policies = []
    for one in config_maps:
        config = _decoded(one, cluster_objects.config_map)
        if config.name == names.POLICY_NAME:
            policies.append((config.namespace != names.NAMESPACE, one.where, config))
    if not policies:
        return None
    _, where, config = min(policies, key=lambda item: item[:2])
    text = config.data.get(names.POLICY_KEY)
    if text is None:
        raise FileProblem(f"{where}: the ConfigMap has no data[{names.POLICY_KEY}]")
    return policy_of(text, where=where)


def policy_of(text: str, *, where: str) -> Policy:
    """Return the parsed policy. Raises FileProblem with its first error and the number of errors."""
    try:
        return parse_policy(text)
    except PolicyError as error:
        first, count = error.errors[0], len(error.errors)
        more = f" (and {count - 1} more: topogate policy check)" if count > 1 else ""
        text = f"{first.field}: {first.message}" if first.field else first.message
        raise FileProblem(f"{where}: the policy is refused: {text}{more}") from None


class _TopologyLevel(msgspec.Struct, rename="camel"):
    node_label: str
    alias: str | None = None


class _TopologyObjectSpec(msgspec.Struct):
    levels: list[_TopologyLevel]


class _Named(msgspec.Struct):
    name: str


class _TopologyObject(msgspec.Struct):
    metadata: _Named
    spec: _TopologyObjectSpec


_TOPOLOGY_OBJECT: Final = msgspec.json.Decoder(_TopologyObject)


def _topology_notes(one: FileObject) -> Iterator[str]:
    """Yield why a Topology object gives no topology, as the service does not use it either."""
    try:
        found = msgspec.convert(one.decoded(), _TOPOLOGY_OBJECT.type)
        levels_of([(level.node_label, level.alias or "") for level in found.spec.levels])
    except msgspec.ValidationError as error:
        why = ": ".join(filter(None, located(projection_error(error))))
        yield f"{one.where}: Topology is not used: {sanitize(why, MAX_WHY)}"
    except ValueError as error:
        yield f"{one.where}: Topology is not used: {error}"


def _spec(name: str, keys: Sequence[str], *, where: str) -> TopologySpec:
    """Return a topology with these label keys; a level's alias is the part of its key after the slash."""
    levels = _levels([(key, "") for key in keys], where=where)
    # Constructed, not validated: an alias from a key may contain dots and capitals, a policy's level name may not.
    specs = tuple(LevelSpec.model_construct(name=level.name, keys=level.keys) for level in levels[:-1])
    return TopologySpec.model_construct(name=name, levels=specs)


def _levels(keys: Sequence[tuple[str, str]], *, where: str) -> tuple[Level, ...]:
    try:
        return levels_of(keys)
    except ValueError as error:
        raise FileProblem(f"{where}: {error}") from None
