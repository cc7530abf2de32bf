"""Allocates devices to the pods of a placed gang: chosen per host after planning, and kept while they last.

And limits what pods of different requests take of a host's devices together, before that. Devices are allocated only
for hosts that report their devices (a Device object); elsewhere the devices cannot be known. A pod without known
devices has an empty allocation: ().
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.api.device import DeviceRequest
from engine.api.placement import Assignment, PodSetPlan, Slot
from engine.api.pod import Pod, Shape
from engine.api.rank import expand_ranks
from engine.api.workload import GangKey, PodSet
from engine.capacity.capacity import Capacity
from engine.devices.allocation import Uses, devices_of
from engine.devices.hosts import allocation_order
from engine.devices.units import unit_of, units_taken
from engine.gang.gang import Gang, by_pod_set, host_of, rank_is_slot, rank_of
from engine.gang.repair import KeptSlot
from engine.planner.tree import Ints64
from engine.scheduler.outcome import Placed
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class GpuUnits:
    """Units of GPUs by host, as the planner's resources: free ones, and those that a pod of each shape requests."""

    free: Ints64
    requests: tuple[int, ...]


def gpu_units(
    shapes: Sequence[Shape], topology: Topology, capacity: Capacity, *, empty: bool, repaired: bool
) -> list[GpuUnits]:
    """Return what pods of these shapes take of the same GPUs, by whatever resource names they request them.

    `empty`: of hosts without pods; `repaired`: those with sick devices have no limit.
    """
    asked = [shape.devices if shape.devices is not None and shape.devices.gpus > 0 else None for shape in shapes]
    if len({shape for shape, request in zip(shapes, asked, strict=True) if request is not None}) < 2:  # noqa: PLR2004
        return []
    found = []
    for unit in dict.fromkeys(unit_of(request) for request in asked if request is not None):
        for whole, free in capacity.gpu_units(unit, topology, empty=empty, sick=not repaired):
            taken = tuple(0 if one is None else units_taken(one, unit, whole=whole) for one in asked)
            if sum(number > 0 for number in taken) > 1:
                found.append(GpuUnits(free, taken))
    return found


@dataclass(frozen=True, slots=True)
class DeviceConflict:
    """A host with resources for all pods planned there, and devices only for fewer.

    `most`: how many pods of each shape fit on its devices beside those of the other shapes, the rarest shape first.
    """

    host: str
    most: Mapping[Shape, int]


def device_conflict(
    planned: Mapping[str, Mapping[Shape, int]], capacity: Capacity, emptied: frozenset[str]
) -> DeviceConflict | None:
    """Return a host whose devices do not suffice for the pods of several shapes planned there; None if all do.

    `planned`: host -> shape -> new pods; `emptied`: hosts that count as empty.
    """
    for host, pods in planned.items():

        def fits(wanted: Mapping[Shape, int], host: str = host) -> bool:
            requests = [(shape.devices, count) for shape, count in wanted.items() if shape.devices is not None]
            return len(requests) < 2 or capacity.devices_fit(host, requests, empty=host in emptied)  # noqa: PLR2004

        if not fits(pods):
            most = {}
            for shape in sorted((one for one in pods if one.devices is not None), key=lambda one: pods[one]):
                fewer = range(pods[shape] - 1, 0, -1)
                most[shape] = next((count for count in fewer if fits({**pods, shape: count})), 0)
            return DeviceConflict(host, most)
    return None


def allocate_devices(
    placed: Placed,
    shapes: Mapping[str, Shape],
    capacity: Capacity,
    kept: Mapping[str, Mapping[int, KeptSlot]],
) -> Placed:
    """Return the plan with the devices of each pod; slots in `kept` (by pod set and rank) keep theirs."""
    given: dict[str, list[Uses]] = {}  # host -> devices allocated in this plan
    plans = {plan.name: plan for plan in placed.pod_sets}

    def order(plan: PodSetPlan) -> int:
        shape = shapes.get(plan.name)
        return 0 if shape is None or shape.devices is None else allocation_order(shape.devices)

    for plan in sorted(placed.pod_sets, key=order):
        shape = shapes.get(plan.name)
        if shape is None or shape.devices is None:
            continue
        staying = kept.get(plan.name, {})
        slots: list[Slot] = []
        for slot in plan.slots:
            if not staying and not capacity.reports_devices(slot.host):
                slots.append(slot)
                continue
            beside = given.setdefault(slot.host, [])
            slots.append(_with_devices(slot, shape.devices, capacity, staying, beside))
        plans[plan.name] = replace(plan, slots=tuple(slots))
    return replace(placed, pod_sets=tuple(plans.values()))


def reallocate_devices(gang: Gang, capacity: Capacity) -> Assignment | None:
    """Return the assignment with other devices on the same hosts, where devices of future pods are no longer available.

    For example a device turned unhealthy, or another pod took it. None if all are available, or if a host has no
    others.
    """
    placement = gang.placement
    if placement is None or placement.assignment is None:
        return None
    if all(shape.devices is None for shape in gang.shapes.values()):
        return None
    assignment = placement.assignment
    members = {pod_set.name: (pod_set, pods) for pod_set, pods in by_pod_set(gang.workload, gang.pods)}
    for number, plan in enumerate(assignment.pod_sets):
        shape = gang.shapes.get(plan.name)
        if shape is None or shape.devices is None or plan.name not in members:
            continue
        pod_set, pods = members[plan.name]
        slots = tuple(
            _with_fresh_devices(slot, shape.devices, capacity, gang=gang.key, pod_set=pod_set, pods=pods)
            if slot.devices is not None and capacity.lost_devices(gang.key, slot.host, pod_set=plan.name)
            else slot
            for slot in plan.slots
        )
        if slots != plan.slots:
            # One pod set at a time: the next one's choice depends on this one's result.
            plans = list(assignment.pod_sets)
            plans[number] = replace(plan, slots=slots)
            return replace(assignment, pod_sets=tuple(plans))
    return None


def _with_devices(
    slot: Slot, request: DeviceRequest, capacity: Capacity, kept: Mapping[int, KeptSlot], beside: list[Uses]
) -> Slot:
    staying = {rank: one for rank, one in kept.items() if one.host == slot.host}
    ranks: list[int | None] = [*expand_ranks(slot.ranks)]
    if slot.ranks is None:
        ranks = [*sorted(staying), *([None] * slot.count)][: slot.count]
    # A pod says which devices it has, and not how much it takes of each.
    known = {
        rank: _without_ids(capacity.with_amounts(slot.host, request, one.devices))
        for rank, one in staying.items()
        if rank in ranks
    }
    fresh = capacity.choose(slot.host, request, slot.count - len(known), beside=beside)
    beside.extend(fresh or ())
    if fresh is None and not any(known.values()):
        return slot
    rest = iter(fresh or ())
    devices = tuple(known[rank] if rank in known else _without_ids(next(rest, ())) for rank in ranks)
    return replace(slot, devices=devices)


def _with_fresh_devices(
    slot: Slot, request: DeviceRequest, capacity: Capacity, *, gang: GangKey, pod_set: PodSet, pods: list[Pod]
) -> Slot:
    """Return the slot with fresh devices for its future pods; its live pods keep theirs."""
    live = [pod for pod in pods if pod.live and host_of(pod) == slot.host]
    old = slot.devices or ()
    if slot.ranks is not None and rank_is_slot(pod_set):
        there = {rank_of(pod, pod_set) for pod in live}
        open_ = [place for place, rank in enumerate(expand_ranks(slot.ranks)) if rank not in there]
    else:
        held = [_without_ids(uses) for pod in live if (uses := devices_of(pod)) is not None]
        open_ = [place for place, uses in enumerate(old) if not _remove_match(held, uses)]
        open_ = open_[: max(0, slot.count - len(live))]
    coming = [
        capacity.with_amounts(slot.host, request, uses)
        for pod in live
        if not pod.spec.node_name and (uses := devices_of(pod)) is not None
    ]
    fresh = capacity.choose(slot.host, request, len(open_), instead=(gang, pod_set.name), beside=coming)
    if fresh is None:
        return slot
    devices = list(old)
    for place, uses in zip(open_, fresh, strict=True):
        devices[place] = _without_ids(uses)
    return replace(slot, devices=tuple(devices))


def _remove_match(held: list[Uses], uses: Uses) -> bool:
    """Remove the entry with the same devices from `held`; return False if there is none."""
    which = {use.identity for use in uses}
    for one in held:
        if {use.identity for use in one} == which:
            held.remove(one)
            return True
    return False


def _without_ids(uses: Uses) -> Uses:
    """Return the uses without ids: a Placement stores the numbers, the id is looked up when a pod gets its devices."""
    return tuple(replace(use, id="") for use in uses)
