"""Builds the answer for one gang as `topogate simulate` prints it, from the results of admission and planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.api.device import Device, DeviceUse, NodeDevices
from engine.api.field import FieldError, render
from engine.api.names import MAIN
from engine.api.placement import Assignment, PodSetRequest, Slot
from engine.api.rank import expand_ranks, format_ranks, slice_index
from engine.api.reasons import REASONS, Code
from engine.api.resources import format_bytes
from engine.api.text import plural
from engine.cache.state import ClusterState
from engine.gang.gang import Gang
from engine.preemption.victims import Victim
from engine.scheduler.outcome import Never, Outcome, Placed
from engine.scheduler.schedule import levels_in_force
from webhook.simulate import model as output


@dataclass(frozen=True, slots=True)
class About:
    """The workload, or the group of it, that an answer is about, with the warnings of admission."""

    kind: str
    namespace: str
    name: str
    warnings: tuple[str, ...] = ()
    group: str | None = None


def planned(
    about: About,
    gang: Gang,
    outcome: Outcome,
    view: ClusterState,
    *,
    microseconds: int = 0,
    victims: Sequence[Victim] = (),
) -> output.Gang:
    """Return the answer for a gang that was planned, or has a reason of its own not to be.

    `victims` end before it is placed.
    """
    asked, topology = gang.request, gang.request.topology
    assert asked.pod_sets, "only a gang that asks is planned"
    if isinstance(outcome, Placed):
        pod_sets = tuple(_placed(ask, outcome, view) for ask in asked.pod_sets)
        verdict: output.Verdict = "placed"
        reason = None
    else:
        levels = levels_in_force(view, gang).pod_sets
        pod_sets = tuple(_unplaced(ask.name, ask.count, *levels[ask.name]) for ask in asked.pod_sets)
        verdict, reason = "never" if isinstance(outcome, Never) else "waits", outcome.reason
    return _answer(
        about,
        verdict=verdict,
        reason=reason,
        message=outcome.message,
        topology=topology,
        pod_sets=pod_sets,
        plan_microseconds=microseconds,
        preempts=tuple(_preempted(one) for one in victims),
        require=asked.gang.require if asked.gang is not None else None,
        prefer=asked.gang.prefer if asked.gang is not None else None,
    )


def ignored(about: About, count: int, reason: Code, message: str | None = None) -> output.Gang:
    """Return the answer for `count` pods that are not managed; the message defaults to that of the reason."""
    return _answer(
        about,
        verdict="ignored",
        reason=reason,
        message=message or REASONS[reason].description,
        pod_sets=(_unplaced(MAIN, count, None, None),),
    )


def empty(about: About) -> output.Gang:
    """Return the answer for a workload without replicas, which has no gang."""
    pod_sets = (_unplaced(MAIN, 0, None, None),)
    return _answer(about, verdict="placed", reason=None, message="placed 0 pods", pod_sets=pod_sets)


def held(about: About, reason: Code, message: str | None = None) -> output.Gang:
    """Return the answer for a pod of another workload's gang, or a workload that is placed through another."""
    pod_sets = (_unplaced(MAIN, 1, None, None),) if message is None else ()
    message = message or REASONS[reason].description
    return _answer(about, verdict="waits", reason=reason, message=message, pod_sets=pod_sets)


def rejected(about: About, errors: Sequence[FieldError]) -> output.Gang:
    """Return the answer for a workload that the webhook, or the API server before it, refuses."""
    faults = tuple(output.FieldFault(field=error.field, reason=error.reason, message=render(error)) for error in errors)
    message = f"the {about.kind} is invalid: {plural(len(faults), 'error')}"
    return _answer(about, verdict="rejected", reason=faults[0].reason, message=message, errors=faults)


def _preempted(victim: Victim) -> output.Preempted:
    return output.Preempted(
        kind=victim.kind,
        namespace=victim.namespace,
        name=victim.name,
        group=victim.group,
        priority=victim.priority,
        pods=victim.count,
    )


def _host_slots(slot: Slot, sizes: Sequence[int], reported: NodeDevices | None) -> output.HostSlots:
    in_slices = sizes and slot.ranks is not None
    known = {(one.kind, one.minor): one for one in reported.devices} if reported is not None else {}
    return output.HostSlots(
        domain=slot.domain,
        node=slot.host,
        count=slot.count,
        ranks=None if slot.ranks is None else format_ranks(slot.ranks),
        slices=tuple(slice_index(rank, sizes) for rank in expand_ranks(slot.ranks)) if in_slices else None,
        devices=None
        if slot.devices is None
        else tuple(tuple(_device(use, known.get((use.kind, use.minor))) for use in uses) for uses in slot.devices),
    )


def _slices(ask: PodSetRequest, slots: Sequence[Slot], levels: Sequence[str]) -> Iterator[output.Slice]:
    """Yield the slices of every layer; one that is not in one domain (hosts have moved) once for each."""
    for level, size in ask.slices if slots else ():
        depth = levels.index(level) + 1
        found: dict[tuple[int, tuple[str, ...]], list[tuple[int, int]]] = {}
        for slot in slots:
            for first, last in slot.ranks or ():
                for index in range(first // size, last // size + 1):
                    inside = max(first, index * size), min(last, (index + 1) * size - 1)
                    found.setdefault((index, slot.domain[:depth]), []).append(inside)
        for (index, domain), ranges in sorted(found.items()):
            yield output.Slice(level=level, index=index, domain=domain, ranks=format_ranks(ranges))


def _device(use: DeviceUse, device: Device | None) -> output.Devices:
    """Return a pod's share of one device; null for a share that it does not have or that has no known size.

    `device`: as the host reports it.
    """
    return output.Devices(
        type=use.kind,
        minor=use.minor,
        core=use.core or None,
        memory_ratio=use.ratio or None,
        memory=format_bytes(use.memory) if use.memory else None,
        share=use.share or None,
        id=(device.id or None) if device is not None else None,
        bus_id=(device.bus or None) if device is not None else None,
        module_id=device.module if device is not None else None,
        socket_id=device.socket if device is not None else None,
        vfs=tuple(output.DeviceFunction(minor=one.minor, bus_id=one.bus) for one in use.functions),
    )


def _placed(ask: PodSetRequest, outcome: Placed, view: ClusterState) -> output.PodSet:
    plan = Assignment(0, outcome.pod_sets).plan_of(ask.name)
    require, prefer = outcome.levels_of(ask.name)
    paths = [slot.domain for slot in plan.slots]
    used = {level: len({path[: depth + 1] for path in paths}) for depth, level in enumerate(outcome.domains_used)}
    return output.PodSet(
        name=ask.name,
        count=ask.count,
        require=require,
        prefer=prefer,
        assignment=tuple(
            _host_slots(slot, [size for _, size in ask.slices], view.stores.devices.get(slot.host))
            for slot in plan.slots
        ),
        slices=tuple(_slices(ask, plan.slots, list(outcome.domains_used))),
        domains_used=used,
        proven=outcome.proven,
    )


def _unplaced(name: str, count: int, require: str | None, prefer: str | None) -> output.PodSet:
    return output.PodSet(
        name=name, count=count, require=require, prefer=prefer, assignment=(), slices=(), domains_used={}, proven=None
    )


def _answer(about: About, **said: Any) -> output.Gang:
    fields: dict[str, Any] = {"topology": None, "require": None, "prefer": None}
    fields |= {"errors": (), "pod_sets": (), "preempts": (), "plan_microseconds": 0}
    return output.Gang(
        kind=about.kind,
        namespace=about.namespace,
        name=about.name,
        group=about.group,
        warnings=about.warnings,
        **(fields | said),
    )
