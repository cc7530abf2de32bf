"""What all explanations share: the answer with its empty fields, what the gang asks for, and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.api.duration import timestamp
from engine.api.field import FieldError, render
from engine.api.placement import Placement
from engine.api.reasons import REASONS, UNTIL, Why
from engine.api.text import quote, sanitize
from engine.api.workload import Workload
from engine.gang.gang import Gang
from engine.gang.request import PlacementRequest
from engine.gang.summary import gpus_of
from engine.policy.model import Policy
from webhook.queries import model as output
from webhook.queries.gangs import GangTable
from webhook.queries.room import Running
from webhook.snapshot.snapshot import Snapshot

_MOST_HISTORY: Final = 12
Events = Callable[[str, Sequence[tuple[str, str]]], tuple[Sequence[output.PastEvent], str | None]]
"""Returns the Events about objects (name and uid) of a namespace, and why they could not be read, if so."""


@dataclass(frozen=True, slots=True)
class Asking:
    """What every answer needs; `remarks` collects what turns out to be unreadable."""

    snapshot: Snapshot
    table: GangTable
    events: Events | None
    running: Running
    remarks: list[str] = field(default_factory=list)


def about(
    who: tuple[str, str, str],
    verdict: output.Explained,
    reason: Why,
    message: str,
    *,
    group: str | None = None,
    faults: Sequence[FieldError] = (),
    **more: Any,
) -> output.ExplainedGang:
    """Return an explanation of `who`: namespace, kind and name; the fields that `more` does not give are empty."""
    fields: dict[str, Any] = {
        "until": None,
        "gang": None,
        "asks": (),
        "levels": (),
        "near": None,
        "in_the_way": (),
        "nodes": {},
        "order": None,
        "ahead": (),
        "ahead_count": None,
        "ways_out": (),
        "preempts": None,
        "preempted_by": None,
        "revision": None,
        "proven": None,
        "pods": (),
        "history": (),
    }
    namespace, kind, name = who
    return output.ExplainedGang(
        namespace=namespace,
        kind=kind,
        name=name,
        group=group,
        verdict=verdict,
        reason=reason,
        message=message,
        faults=tuple(f"{error.field}: {render(error)}" if error.field else render(error) for error in faults),
        **(fields | more),
    )


def name_of(workload: Workload) -> tuple[str, str, str]:
    """Return the namespace, the kind and the name of a workload."""
    return workload.namespace, workload.kind, workload.name


def until_of(reason: Why) -> str | None:
    """Return how long a reason lasts, in words; None without a reason, and where nothing ends it."""
    until = REASONS[reason].until if reason else None
    return UNTIL[until] if until is not None else None


def dropped_by_policy(policy: Policy, gang: Gang, error: FieldError) -> str | None:
    """Return that the policy has lost the level or topology of a request, with the remedy; None for another error.

    Only a gang that was taken once has a Placement. Without topologies in the policy the nodes' labels give the levels.
    """
    if not REASONS[error.reason].of_topology or gang.placement is None or not policy.topologies:
        return None
    return (
        f"{quote(error.value or '')} was in the policy when it was submitted, and is not any more: an admin can put it "
        "back, or its user can change the request"
    )


def asks(gang: Gang) -> Iterator[output.AskedPods]:
    """Yield what a gang asks for, by pod set; as its Placement has it where the workload does not say any more."""
    of_gang = gang.request.gang or (gang.placement.gang if gang.placement is not None else None)
    sets = gang.request.pod_sets or (gang.placement.pod_sets if gang.placement is not None else ())
    first = PlacementRequest(pod_sets=sets, gang=of_gang).first_slots
    for ask in sets:
        shape = gang.shapes.get(ask.name)
        yield output.AskedPods(
            pod_set=ask.name,
            pods=ask.count,
            least=first[ask.name],
            gpus=gpus_of(shape.requests, shape.devices) if shape is not None else 0,
            require=ask.require or (of_gang.require if of_gang is not None else None),
            prefer=ask.prefer or (of_gang.prefer if of_gang is not None else None),
        )


def history(asking: Asking, gang: Gang) -> tuple[output.PastEvent, ...]:
    """Return the Events about the workload and its Placement, and what the Placement records."""
    placement, workload = gang.placement, gang.workload
    found = [output.PastEvent(at=timestamp(workload.created), reason="Created", message="", count=1)]
    found += _recorded(placement, "waitingSince", "WaitingSince")
    found += _recorded(placement, "requeuedAt", "Requeued")
    objects = [(workload.name, workload.uid if workload.handling != "pods" else "")]
    objects += [(placement.name, placement.uid)] if placement is not None else []
    if asking.events is not None:
        events, problem = asking.events(workload.namespace, objects)
        found += events
        if problem is not None:
            asking.remarks.append(problem)
    found += _recorded(placement, "readyAt", "Ready")
    # All of one second stays in this order: pods are ready after everything that an Event tells of their start.
    return tuple(sorted(found, key=lambda one: one.at)[-_MOST_HISTORY:])


def _recorded(placement: Placement | None, key: str, reason: str) -> list[output.PastEvent]:
    """Return what a time in the status of a Placement says; nothing without one."""
    at = placement.status.get(key) if placement is not None else None
    return [output.PastEvent(at=sanitize(at), reason=reason, message="", count=1)] if isinstance(at, str) else []
