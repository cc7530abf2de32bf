"""Encodes and decodes the Placement object. Its shape: manifests/base/crd.yaml, docs/concepts/gangs.md.

A pod's devices are [{type, minor, core, memoryRatio, memory}] for GPUs, [{type, minor, share, vfs: [{minor, busID}]}]
for the others; fields that are 0 or not known are left out. The id of a device is not included: a card that was
exchanged keeps its number, and the id is looked up when the pod gets its devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from engine.api import names
from engine.api.device import RDMA_SCOPES, SCOPES, STRATEGIES, DeviceUse, VirtualFunction
from engine.api.duration import epoch
from engine.api.placement import (
    Assignment,
    ConsumedRequest,
    GangRequest,
    Placement,
    PodSetPlan,
    PodSetRequest,
    Separation,
    Slot,
    WorkloadRef,
)
from engine.api.pod import OwnerRef
from engine.api.rank import count_ranks, format_ranks, parse_ranks
from engine.api.resources import QuantityError, Requests, format_bytes, format_units, in_units
from engine.decoding import wire
from engine.decoding.pods import amounts
from engine.decoding.wire import ProjectionError, Source, decode
from engine.resources.names import KINDS, MAX_BYTES, WHOLE, amount, is_kind

_LABELS: Final = (names.WORKLOAD_KIND, names.WORKLOAD_NAME)


def placement(source: Source) -> Placement:
    """Return a Placement object as a record; ProjectionError unless it is whole and consistent with itself.

    A pod set that names no level is unconstrained: nothing else is ever placed without one.
    """
    raw = decode(wire.Placement, source)
    meta, spec = raw.metadata, raw.spec
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    return Placement(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        workload=WorkloadRef(
            api_version=spec.workload.api_version,
            kind=spec.workload.kind,
            name=spec.workload.name,
            uid=spec.workload.uid,
        ),
        topology=spec.topology,
        priority=spec.priority or 0,
        pod_sets=tuple(_request(pod_set) for pod_set in spec.pod_sets),
        assignment=None if spec.assignment is None else _assignment(spec.assignment, spec.pod_sets),
        deleting=meta.deletion_timestamp is not None,
        created=epoch(meta.creation_timestamp),
        gang=None if spec.gang is None else _gang(spec.gang),
        group=spec.group,
        profile=spec.profile,
        separation=_separation(spec.separation),
        generation=meta.generation or 0,
        status=raw.status or {},
        labels={key: value for key in _LABELS if (value := (meta.labels or {}).get(key)) is not None},
        owners=frozenset() if spec.workload.uid else frozenset(one.uid or "" for one in meta.owner_references or ()),
    )


def owner_references(owners: Iterable[OwnerRef]) -> list[dict[str, Any]]:
    """Return the JSON of `metadata.ownerReferences`; none of them blocks the deletion of its owner."""
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": False,
            "blockOwnerDeletion": False,
        }
        for owner in owners
    ]


def placement_body(placement: Placement, *, owners: Iterable[OwnerRef] = ()) -> dict[str, Any]:
    """Return the JSON of the object to write, without status.

    Its owner is the workload, by uid; a gang of plain pods has none and is owned by its member pods (`owners`). No
    owner reference blocks deletion: that would need more rights on some platforms.
    """
    workload = placement.workload
    if workload.uid:
        owners = [OwnerRef(workload.api_version, workload.kind, workload.name, workload.uid, controller=False)]
    metadata: dict[str, Any] = {
        "name": placement.name,
        "namespace": placement.namespace,
        "labels": workload.labels,
    }
    if references := owner_references(owners):
        metadata["ownerReferences"] = references
    spec: dict[str, Any] = {
        "workload": {
            "apiVersion": workload.api_version,
            "kind": workload.kind,
            "name": workload.name,
            "uid": workload.uid,
        },
        "topology": placement.topology,
        "priority": placement.priority,
        "gang": None if placement.gang is None else _gang_body(placement.gang),
        "podSets": [
            {
                "name": pod_set.name,
                "count": pod_set.count,
                "minAvailable": pod_set.min_available,
                "require": pod_set.require,
                "prefer": pod_set.prefer,
                "slices": [{"level": level, "size": size} for level, size in pod_set.slices],
                "colocate": pod_set.colocate,
                **({} if pod_set.device_scope is None else {"deviceScope": pod_set.device_scope}),
                **({} if pod_set.gpu_strategy is None else {"gpuStrategy": pod_set.gpu_strategy}),
                **({} if pod_set.device_selector is None else {"deviceSelector": pod_set.device_selector}),
                **({} if pod_set.rdma_selector is None else {"rdmaSelector": pod_set.rdma_selector}),
                **({} if pod_set.vf_selector is None else {"vfSelector": pod_set.vf_selector}),
                **({} if pod_set.rdma_scope is None else {"rdmaScope": pod_set.rdma_scope}),
                "ranked": pod_set.ranked,
                "shapeHash": pod_set.shape_hash,
                **_relaxed(pod_set),
            }
            for pod_set in placement.pod_sets
        ],
    }
    if placement.group is not None:
        spec["group"] = placement.group
    if placement.profile is not None:
        spec["profile"] = placement.profile
    if (apart := placement.separation) is not None:
        spec["separation"] = {"exclusive": apart.exclusive, "spread": apart.spread, "spreadGroup": apart.group}
    if placement.assignment is not None:
        spec["assignment"] = assignment_body(placement.assignment)
    return {"apiVersion": names.API_VERSION, "kind": names.PLACEMENT_KIND, "metadata": metadata, "spec": spec}


def _separation(raw: wire.PlacementSeparation | None) -> Separation | None:
    if raw is None or (raw.exclusive is None and raw.spread is None):
        return None
    return Separation(raw.exclusive, raw.spread, raw.spread_group)


def assignment_body(assignment: Assignment) -> dict[str, Any]:
    """Return the JSON of `spec.assignment`."""
    consumes = assignment.consumes
    return {
        "revision": assignment.revision,
        # named also where there is none: a merge keeps what it does not name
        "provisioningRequest": None if consumes is None else {"name": consumes.name, "className": consumes.class_name},
        "podSets": [
            {
                "name": plan.name,
                **({} if plan.requests is None else {"requests": _quantities(plan.requests)}),
                "slots": [
                    {
                        "domain": list(slot.domain),
                        "count": slot.count,
                        "ranks": None if slot.ranks is None else format_ranks(slot.ranks),
                        "devices": None if slot.devices is None else [uses_body(uses) for uses in slot.devices],
                    }
                    for slot in plan.slots
                ],
            }
            for plan in assignment.pod_sets
        ],
    }


def uses_body(uses: Iterable[DeviceUse]) -> list[dict[str, Any]]:
    """Return the JSON of one pod's devices."""
    return [_body(use) for use in uses]


def device_uses(raw: Iterable[wire.PlacementDevice], path: str) -> tuple[DeviceUse, ...]:
    """Return one pod's devices; `path` is their JSON path, for errors (ProjectionError)."""
    found: dict[tuple[str, int], DeviceUse] = {}
    for position, one in enumerate(raw):
        where = f"{path}[{position}]"
        use = _use(one, where)
        if (use.kind, use.minor) in found:
            raise ProjectionError(f"{where}: {use.kind} {use.minor} is a duplicate")
        found[use.kind, use.minor] = use
    return tuple(found.values())


def _body(use: DeviceUse) -> dict[str, Any]:
    amounts: dict[str, Any] = {
        "core": use.core,
        "memoryRatio": use.ratio,
        "memory": format_bytes(use.memory) if use.memory else 0,
        "share": use.share,
        "vfs": [{"minor": function.minor, "busID": function.bus} for function in use.functions],
    }
    return {"type": use.kind, "minor": use.minor, **{key: value for key, value in amounts.items() if value}}


def _use(raw: wire.PlacementDevice, where: str) -> DeviceUse:
    if raw.type not in KINDS and not is_kind(raw.type):
        raise ProjectionError(f"{where}.type: {raw.type[:63]!r} is none of {', '.join(sorted(KINDS))}")
    for key, percent in (("core", raw.core), ("memoryRatio", raw.memory_ratio), ("share", raw.share)):
        if percent is not None and percent > WHOLE:
            raise ProjectionError(f"{where}.{key}: {percent:,} is more than {WHOLE}")
    try:
        memory = amount("memory", raw.memory) if raw.memory is not None else 0
    except QuantityError as error:
        raise ProjectionError(f"{where}.memory: {error}") from None
    if not 0 <= memory <= MAX_BYTES:
        raise ProjectionError(f"{where}.memory: must be from 0 to {MAX_BYTES:,} bytes")
    return DeviceUse(
        kind=raw.type,
        minor=raw.minor,
        core=raw.core or 0,
        ratio=raw.memory_ratio or 0,
        memory=memory,
        share=raw.share or 0,
        functions=tuple({one.bus: VirtualFunction(one.minor, one.bus) for one in raw.vfs or ()}.values()),
    )


def _gang(raw: wire.PlacementGang) -> GangRequest:
    return GangRequest(raw.require, raw.prefer, raw.min_available, raw.relaxed)


def _gang_body(gang: GangRequest) -> dict[str, Any]:
    return {
        "require": gang.require,
        "prefer": gang.prefer,
        "minAvailable": gang.min_available,
        **_relaxed(gang),
    }


def _relaxed(request: PodSetRequest | GangRequest) -> dict[str, str]:
    return {} if request.relaxed is None else {"relaxed": request.relaxed}


def _request(pod_set: wire.PlacementPodSet) -> PodSetRequest:
    return PodSetRequest(
        name=pod_set.name,
        count=pod_set.count,
        min_available=pod_set.count if pod_set.min_available is None else pod_set.min_available,
        require=pod_set.require,
        prefer=pod_set.prefer,
        ranked=bool(pod_set.ranked),
        shape_hash=pod_set.shape_hash or "",
        unconstrained=pod_set.require is None and pod_set.prefer is None,
        slices=tuple((one.level, one.size) for one in pod_set.slices or ()),
        colocate=pod_set.colocate,
        relaxed=pod_set.relaxed,
        device_scope=pod_set.device_scope if pod_set.device_scope in SCOPES else None,
        gpu_strategy=pod_set.gpu_strategy if pod_set.gpu_strategy in STRATEGIES else None,
        device_selector=pod_set.device_selector,
        rdma_selector=pod_set.rdma_selector,
        vf_selector=pod_set.vf_selector,
        rdma_scope=pod_set.rdma_scope if pod_set.rdma_scope in RDMA_SCOPES else None,
    )


def _assignment(raw: wire.PlacementAssignment, pod_sets: list[wire.PlacementPodSet]) -> Assignment:
    known = {pod_set.name for pod_set in pod_sets}
    plans: dict[str, PodSetPlan] = {}
    for position, plan in enumerate(raw.pod_sets):
        path = f"$.spec.assignment.podSets[{position}]"
        if plan.name not in known or plan.name in plans:
            raise ProjectionError(f"{path}.name: {plan.name[:63]!r} is not one of spec.podSets, or is a duplicate")
        plans[plan.name] = _plan(plan, path)
    used = raw.provisioning_request
    consumes = ConsumedRequest(used.name, used.class_name) if used is not None else None
    return Assignment(revision=raw.revision, pod_sets=tuple(plans.values()), consumes=consumes)


def _plan(raw: wire.PlacementPlan, path: str) -> PodSetPlan:
    slots: list[Slot] = []
    hosts: set[str] = set()
    taken: list[tuple[int, int]] = []
    for position, slot in enumerate(raw.slots):
        where = f"{path}.slots[{position}]"
        ranges = None
        if slot.ranks is not None:
            try:
                ranges = parse_ranks(slot.ranks)
            except ValueError as error:
                raise ProjectionError(f"{where}.ranks: {error}") from None
            if count_ranks(ranges) != slot.count:
                raise ProjectionError(f"{where}.ranks: {count_ranks(ranges)} ranks for {slot.count} pods")
            taken.extend(ranges)
        domain = tuple(slot.domain)
        if domain[-1] in hosts:
            raise ProjectionError(f"{where}.domain: host {domain[-1][:253]!r} is a duplicate")
        hosts.add(domain[-1])
        devices = None
        if slot.devices is not None:
            if len(slot.devices) != slot.count:
                raise ProjectionError(f"{where}.devices: of {len(slot.devices)} pods, but there are {slot.count}")
            devices = tuple(device_uses(uses, f"{where}.devices[{pod}]") for pod, uses in enumerate(slot.devices))
        slots.append(Slot(domain=domain, count=slot.count, ranks=ranges, devices=devices))
    taken.sort()
    for (_, last), (first, _) in pairwise(taken):
        if first <= last:
            raise ProjectionError(f"{path}.slots: rank {first} is a duplicate")
    return PodSetPlan(
        name=raw.name,
        slots=tuple(slots),
        requests=None if raw.requests is None else in_units(amounts(raw.requests, f"{path}.requests")),
    )


def _quantities(requests: Requests) -> dict[str, str]:
    return {name: format_units(name, amount) for name, amount in requests}
