"""Everything about one gang, pod or workload: its state now, what is in the way, who goes first, what would change it.

Recomputed with the planner; stored messages are repeated only where the leader alone can know (a scheduler's refusal,
failed starts) and where the caller may not read what the planner needs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.api import names
from engine.api.device import DeviceUse
from engine.api.duration import timestamp
from engine.api.field import FieldError, render
from engine.api.placement import Slot
from engine.api.pod import Pod
from engine.api.rank import format_ranks
from engine.api.reasons import REASONS, UNTIL, Code, Why, known_code
from engine.api.text import join_comma, plural, quote, sanitize
from engine.api.workload import PodSet, Workload
from engine.gang.exemption import exemption_text, template_exemption
from engine.gang.gang import (
    Gang,
    by_pod_set,
    host_of,
    not_ready,
    rank_is_slot,
    rank_of,
    why_not_ready,
)
from engine.gang.summary import gpus_of
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from engine.scheduler.fairness import Turn
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.pod_group import PlacedGroup, schedule_pod_group
from webhook.queries import model as output
from webhook.queries.forecast import placed_first, plan_now
from webhook.queries.gangs import GangTable, WaitingGang, gang_name, gang_table, let_go, standstill
from webhook.queries.names import group_of
from webhook.queries.room import PodRoom, levels_of, obstacles, rooms_of
from webhook.queries.subject import Subject
from webhook.queries.ways_out import placed_now, ways_out
from webhook.snapshot.snapshot import Snapshot

_MOST_AHEAD: Final = 10
_MOST_HISTORY: Final = 12
_MOST_PODS: Final = 10_000
_THROUGH: Final = "it is placed through the object that its controller creates"
_OLDER: Final = (
    "left alone: it was created before Topogate was there or before it had a request: only new workloads are placed"
)
_PLACED_NOW: Final = "the leader places it in its next pass"
Events = Callable[[str, Sequence[str]], tuple[Sequence[output.PastEvent], str | None]]
"""Returns the Events about objects with some names in a namespace, and why they could not be read, if so."""


@dataclass(frozen=True, slots=True)
class _Asking:
    """What every answer needs; `remarks` collects what turns out to be unreadable."""

    snapshot: Snapshot
    table: GangTable
    events: Events | None
    remarks: list[str] = field(default_factory=list)


def explain(
    snapshot: Snapshot, subjects: Sequence[Subject], *, events: Events | None = None, table: GangTable | None = None
) -> output.ExplainAnswer:
    """Return the explanation of everything that was named; without `events` its history is that of the Placement.

    `table`: the gangs of the snapshot, where they are known already.
    """
    asking = _Asking(snapshot, table if table is not None else gang_table(snapshot), events)
    gangs = tuple(one for subject in subjects for one in _explained(asking, subject))
    return output.ExplainAnswer(
        taken_at=timestamp(snapshot.taken),
        gangs=gangs,
        remarks=(*snapshot.remarks, *dict.fromkeys(asking.remarks)),
    )


def _explained(asking: _Asking, subject: Subject) -> Iterator[output.ExplainedGang]:
    if subject.sent is not None and subject.refused:
        first = subject.refused[0]
        message = f"it would be refused: {first.field}: {render(first)}" if first.field else render(first)
        yield _about(subject.sent, "refused", first.reason, message, faults=subject.refused)
        return
    if subject.sent is not None and subject.ignored is not None:
        message = f"left alone: {subject.ignored}: {REASONS[subject.ignored].description}"
        yield _about(subject.sent, "ignored", subject.ignored, message)
        return
    found = [gang for key in subject.keys if (gang := asking.snapshot.view.gangs.get(key)) is not None]
    if subject.placement is not None and not found:
        placement = subject.placement
        yield _about(
            (placement.namespace, names.PLACEMENT_KIND, placement.name),
            "orphaned",
            "",
            f"its {sanitize(placement.workload.kind)} {quote(placement.workload.name)} does not exist any more: the "
            "leader removes the Placement, and its slots are free",
        )
    elif subject.pod is not None and not any(_managed(asking, gang) for gang in found):
        yield _alone(asking, subject.pod, subject.workload)
    elif not found and subject.workload is not None:
        yield _unmanaged(asking, subject.workload, None)
    for gang in found if subject.pod is None or any(_managed(asking, one) for one in found) else ():
        yield _gang(asking, gang, subject)


def _managed(asking: _Asking, gang: Gang) -> bool:
    return gang.key in asking.table.rows or let_go(asking.snapshot.view, gang)


def _about(
    who: tuple[str, str, str],
    verdict: output.Explained,
    reason: Why,
    message: str,
    *,
    group: str | None = None,
    faults: Sequence[FieldError] = (),
    **more: Any,
) -> output.ExplainedGang:
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


def _who(workload: Workload) -> tuple[str, str, str]:
    return workload.namespace, workload.kind, workload.name


def _gang(asking: _Asking, gang: Gang, subject: Subject) -> output.ExplainedGang:
    """Return the explanation of a gang; of a pod of it if one is named, as far as slots are concerned."""
    exists = subject.sent is None
    row = asking.table.rows.get(gang.key)
    common: dict[str, Any] = {
        "gang": row,
        "group": group_of(gang.workload, gang.key),
        "asks": tuple(_asks(gang)),
        "history": _history(asking, gang) if exists else (),
    }
    if let_go(asking.snapshot.view, gang):
        mode = mode_of(gang.workload.namespace, asking.snapshot.view.policy)
        reason, text = ("", _OLDER) if mode.manages else ("PolicyOff", f"left alone: PolicyOff: {mode.left_alone}")
        return _about(_who(gang.workload), "ignored", known_code(reason), text, **common)
    if row is None:
        return _unmanaged(asking, gang.workload, gang if exists else None)
    placement = gang.placement
    if gang.workload.finished:
        end = "failed" if gang.workload.failed else "ended"
        return _about(_who(gang.workload), "finished", "", f"it has {end}; its slots are free", **common)
    if placement is not None and placement.assignment is not None:
        return _placed(asking, gang, row, subject.pod, common)
    return _waiting(asking, gang, row, common, exists=exists)


# -- gangs with slots ------------------------------------------------------------------------------------------------


def _placed(
    asking: _Asking, gang: Gang, row: output.GangAnswer, named: Pod | None, common: dict[str, Any]
) -> output.ExplainedGang:
    placement = gang.placement
    assert placement is not None
    assert placement.assignment is not None
    pods = list(_pods(asking.snapshot, gang))
    counts = {state: sum(1 for one in pods if one.state == state) for state in ("ready", "missing", "held")}
    wanted = len(pods)
    message = f"{counts['ready']:,} of {plural(wanted, 'pod')} ready in {row.place or 'its domains'}"
    if row.reason:
        message += f"; {row.message}"
    if named is not None:
        mine = [one for one in pods if one.pod == named.name]
        message = f"{_of_pod(named, mine)}; {message}"
        pods = mine
    proven = placement.status.get("proven")
    return _about(
        _who(gang.workload),
        "placed",
        known_code(row.reason),
        message,
        pods=tuple(pods[:_MOST_PODS]),
        revision=placement.assignment.revision,
        proven=proven if isinstance(proven, bool) else None,
        until=_until(known_code(row.reason)),
        **common,
    )


def _of_pod(pod: Pod, found: Sequence[output.ExplainedPod]) -> str:
    name = f"pod {sanitize(pod.name)}"
    if not found:
        why = "is held: no slot of this gang is for it" if names.GATE in pod.spec.gates else "has no slot in this gang"
        return f"{name} {why}"
    one = found[0]
    rank = f", rank {one.rank}" if one.rank is not None else ""
    return f"{name}{rank}: {one.state} on {one.host or 'no host'}{f' ({one.why})' if one.why else ''}"


def _pods(snapshot: Snapshot, gang: Gang) -> Iterator[output.ExplainedPod]:
    """Yield every slot with its pod, then the pods without a slot."""
    placement = gang.placement
    assert placement is not None
    assert placement.assignment is not None
    live = [pod for pod in gang.pods if not pod.finished]
    unready = {pod.key for pod in not_ready(live, snapshot.taken)}
    for pod_set, pods in by_pod_set(gang.workload, live):
        slots = placement.assignment.plan_of(pod_set.name).slots
        yield from _pods_of(pod_set, sorted(pods, key=lambda pod: (pod.created, pod.name)), slots, unready)


@dataclass(frozen=True, slots=True)
class _Place:
    """One slot: its rank (None without ranks), its host, and the devices of its pod."""

    rank: int | None
    slot: Slot
    uses: Sequence[DeviceUse]


def _places(slots: Sequence[Slot]) -> list[_Place]:
    found = []
    for slot in slots:
        ranks = [rank for first, last in slot.ranks or () for rank in range(first, last + 1)]
        devices = slot.devices or ()
        for number in range(slot.count):
            uses = devices[number] if number < len(devices) else ()
            found.append(_Place(ranks[number] if number < len(ranks) else None, slot, uses))
    return sorted(found, key=lambda place: (place.rank is None, place.rank or 0))


def _pods_of(
    pod_set: PodSet, pods: Sequence[Pod], slots: Sequence[Slot], unready: set[tuple[str, str]]
) -> Iterator[output.ExplainedPod]:
    left = {pod.key: pod for pod in pods}
    ranked = rank_is_slot(pod_set)
    by_rank = {rank_of(pod, pod_set): pod for pod in reversed(pods)} if ranked else {}
    on_host: defaultdict[str | None, deque[Pod]] = defaultdict(deque)
    for pod in () if ranked else pods:
        on_host[host_of(pod)].append(pod)
    for place in _places(slots):
        there = on_host[place.slot.host]
        found = by_rank.get(place.rank) if ranked else there.popleft() if there else None
        state = _state(found, unready) if found is not None else ("missing", "it does not exist yet")
        if found is not None:
            left.pop(found.key, None)
        yield _slot(pod_set, place, found, state)
    for pod in left.values():
        state, why = _state(pod, unready)
        host = host_of(pod)
        yield output.ExplainedPod(
            pod_set=pod_set.name,
            rank=rank_of(pod, pod_set),
            pod=pod.name,
            host=host,
            domain=(),
            state=state,
            why=why or "it has no slot in this gang",
            devices=(),
        )


def _slot(pod_set: PodSet, place: _Place, pod: Pod | None, state: tuple[Any, str]) -> output.ExplainedPod:
    known, why = state
    if pod is not None and (host := host_of(pod)) is not None and host != place.slot.host:
        why = f"it is on {sanitize(host)}, not on the host of its slot"
    return output.ExplainedPod(
        pod_set=pod_set.name,
        rank=place.rank,
        pod=pod.name if pod is not None else None,
        host=place.slot.host,
        domain=place.slot.domain[:-1],
        state=known,
        why=why,
        devices=tuple(_devices(place.uses)),
    )


def _state(pod: Pod, unready: set[tuple[str, str]]) -> tuple[Any, str]:
    """Return the state of a pod, and why it is not ready."""
    if pod.deleting:
        return "ending", "it is being deleted"
    if names.GATE in pod.spec.gates:
        return "held", "it is held until its slot is certain"
    if not pod.spec.node_name:
        said = sanitize(pod.unschedulable, 200) if pod.unschedulable else "the scheduler has not bound it yet"
        return "not bound", said
    return ("not ready", why_not_ready(pod)) if pod.key in unready else ("ready", "")


def _devices(uses: Iterable[DeviceUse]) -> Iterator[str]:
    minors: dict[str, list[tuple[int, int]]] = {}
    for use in uses:
        part = next((f" {value}%" for value in (use.core, use.ratio, use.share) if value % 100), "")
        minors.setdefault(use.kind + part, []).append((use.minor, use.minor))
    for kind, found in minors.items():
        name, _, part = kind.partition(" ")
        yield f"{name} {format_ranks(found)}" + (f" ({part})" if part else "")


# -- waiting gangs ---------------------------------------------------------------------------------------------------


def _waiting(
    asking: _Asking, gang: Gang, row: output.GangAnswer, common: dict[str, Any], *, exists: bool
) -> output.ExplainedGang:
    snapshot = asking.snapshot
    place = next(number for number, one in enumerate(asking.table.waiting) if one.gang.key == gang.key)
    mine = asking.table.waiting[place]
    same = [one for one in asking.table.waiting[:place] if one.gang.request.topology == gang.request.topology]
    ahead = [one for one in same if one.queues]
    if mine.faults and not REASONS[mine.faults[0].reason].waits:
        message = f"its request is refused: {mine.faults[0].field}: {render(mine.faults[0])}"
        return _about(_who(gang.workload), "refused", mine.faults[0].reason, message, faults=mine.faults, **common)
    outcome = _outcome(snapshot, gang, mine)
    verdict, reason, message = _verdict(gang, row, outcome)
    common |= {"until": _until(reason)}
    if not snapshot.capacity_known or not gang.request.pod_sets:
        return _about(_who(gang.workload), verdict, reason, message, faults=mine.faults, **common)
    with placed_first(snapshot.view, placed_now(ahead)):
        rooms = rooms_of(snapshot, gang)
        near, found = _in_the_way(snapshot, gang, rooms) if verdict == "waits" else (None, ())
        levels = tuple(level for room in rooms for level in levels_of(gang, room))
    others = list(ways_out(snapshot, mine, ahead, rooms, exists=exists)) if verdict != "fits" else []
    if verdict == "waits" and row.start is not None:
        others.append(_wait(row.start))
    strict = snapshot.view.policy.queue.order
    return _about(
        _who(gang.workload),
        verdict,
        reason,
        message,
        levels=levels,
        near=near,
        in_the_way=found,
        nodes=rooms[0].nodes() if rooms else {},
        order=strict if mine.queues else None,
        ahead=tuple(_ahead(one, mine) for one in ahead[:_MOST_AHEAD]) if mine.queues else (),
        ahead_count=len(ahead) if mine.queues else None,
        ways_out=tuple(others),
        **common,
    )


def _outcome(snapshot: Snapshot, gang: Gang, mine: WaitingGang) -> Outcome | None:
    """Return what the planner says: for members of a pod group about all of them."""
    group = gang.pod_group
    if group is None or group.placed or not snapshot.capacity_known or mine.faults:
        return mine.forecast.now
    if not group.complete:
        return Waits("WaitingForMembers", group.incomplete_text)
    view = snapshot.view
    gangs = [one for key in group.members if (one := view.gangs.get(key)) is not None]
    unplaced = [one for one in gangs if one.placement is None or one.placement.assignment is None]
    if any(one.request.asked is None for one in unplaced):
        return None
    found = schedule_pod_group(view, unplaced, group, plan=lambda one: plan_now(snapshot, one), now=0.0)
    if not isinstance(found, PlacedGroup):
        return found
    for key in found.plans:
        view.retract(key)
    return found.plans[gang.key][1] if gang.key in found.plans else None


def _verdict(gang: Gang, row: output.GangAnswer, outcome: Outcome | None) -> tuple[output.Explained, Why, str]:
    if (still := standstill(gang)) is not None:
        return "waits", *still
    match outcome:
        case Placed():
            return "fits", "", f"{_PLACED_NOW}: {outcome.message.replace('placed', 'would place', 1)}"
        case Never():
            return "never", outcome.reason, outcome.message
        case Waits():
            return "waits", outcome.reason, outcome.message
    code = known_code(row.reason)
    if row.message:
        return "waits", code, f"as the leader last wrote: {row.message}"
    return "waits", code, REASONS[code].description if code else "it has not been planned yet"


def _until(reason: Why) -> str | None:
    until = REASONS[reason].until if reason else None
    return UNTIL[until] if until is not None else None


def _in_the_way(
    snapshot: Snapshot, gang: Gang, rooms: Sequence[PodRoom]
) -> tuple[tuple[str, ...] | None, tuple[output.Obstacle, ...]]:
    """Return what is in the way of the first pod set for which it is too narrow."""
    tight = next((room for room in rooms if _short(gang, room)), None)
    return obstacles(snapshot, gang, tight) if tight is not None else (None, ())


def _short(gang: Gang, room: PodRoom) -> bool:
    return any(level.required and level.have < level.needed for level in levels_of(gang, room))


def _ahead(one: WaitingGang, mine: WaitingGang) -> output.GangAhead:
    return output.GangAhead(
        name=gang_name(one.gang),
        why=_why_first(one.turn, mine.turn),
        pods=one.gang.workload.slots,
        priority=-one.turn[0],
        fits_now=isinstance(one.forecast.now, Placed) if one.forecast.now is not None else None,
    )


def _why_first(first: Turn, mine: Turn) -> str:
    if first[0] != mine[0]:
        return f"priority {-first[0]:,} is higher than {-mine[0]:,}"
    if first[1] != mine[1]:
        return "its namespace uses less"
    return "it has waited longer" if first[2] != mine[2] else "its name is first, and both are equally old"


def _wait(start: output.GangStart) -> output.WayOut:
    if start.by is None:
        result = "too little of what runs declares its end (activeDeadlineSeconds), or gangs ahead take the room"
    else:
        end = "has ended" if len(start.after) == 1 else "have ended"
        result = f"fits by {start.by}" + (f", when {join_comma(start.after)} {end}" if start.after else "")
    return output.WayOut(change="wait", text="wait", result=result, to=None, command=None, by=start.by)


# -- requests and history --------------------------------------------------------------------------------------------


def _asks(gang: Gang) -> Iterator[output.AskedPods]:
    of_gang = gang.request.gang or (gang.placement.gang if gang.placement is not None else None)
    sets = gang.request.pod_sets or (gang.placement.pod_sets if gang.placement is not None else ())
    for ask in sets:
        shape = gang.shapes.get(ask.name)
        yield output.AskedPods(
            pod_set=ask.name,
            pods=ask.count,
            least=min(ask.count, ask.min_available),
            gpus=gpus_of(shape.requests) if shape is not None else 0,
            require=ask.require or (of_gang.require if of_gang is not None else None),
            prefer=ask.prefer or (of_gang.prefer if of_gang is not None else None),
        )


def _history(asking: _Asking, gang: Gang) -> tuple[output.PastEvent, ...]:
    """Return the Events about the workload and its Placement, and what the Placement records."""
    placement, workload = gang.placement, gang.workload
    found = [output.PastEvent(at=timestamp(workload.created), reason="Created", message="", count=1)]
    status = placement.status if placement is not None else {}
    for key, reason in (("waitingSince", "WaitingSince"), ("requeuedAt", "Requeued"), ("readyAt", "Ready")):
        if isinstance(at := status.get(key), str):
            found.append(output.PastEvent(at=sanitize(at), reason=reason, message="", count=1))
    about = [workload.name, *([placement.name] if placement is not None else ())]
    if asking.events is not None:
        events, problem = asking.events(workload.namespace, about)
        found += events
        if problem is not None:
            asking.remarks.append(problem)
    return tuple(sorted(found, key=lambda one: one.at)[-_MOST_HISTORY:])


# -- what is left alone ----------------------------------------------------------------------------------------------


def _unmanaged(asking: _Asking, workload: Workload, gang: Gang | None) -> output.ExplainedGang:
    """Return why a workload is not managed, or waits for the object that it is placed through."""
    view = asking.snapshot.view
    request = gang.request if gang is not None else view.request_of(workload)
    more: dict[str, Any] = {"history": _history(asking, gang)} if gang is not None else {}
    if request.errors:
        first = request.errors[0]
        verdict: output.Explained = "waits" if REASONS[first.reason].waits else "refused"
        message = f"{first.field}: {render(first)}" if first.value is not None else first.message
        return _about(_who(workload), verdict, first.reason, message, faults=request.errors, **more)
    if workload.finished:
        return _about(_who(workload), "finished", "", f"it has {'failed' if workload.failed else 'ended'}", **more)
    if request.ignored is None:
        return _about(_who(workload), "waits", "WaitingForMembers", _THROUGH, **more)
    text = f"left alone: {request.ignored}: {_in_words(asking, request.ignored, workload)}"
    return _about(_who(workload), "ignored", request.ignored, text, **more)


def _in_words(asking: _Asking, reason: Code, workload: Workload) -> str:
    """Return why a workload is left alone, with the value that decides."""
    policy = asking.snapshot.view.policy
    match reason:
        case "OtherScheduler":
            named = [one.template.scheduler_name or names.DEFAULT_SCHEDULER for one in workload.pod_sets]
            return _unlisted(next((one for one in named if one not in policy.schedulers), named[0]), policy)
        case "ManagedByKueue":
            queue = workload.labels.get(names.KUEUE_QUEUE) or workload.annotations.get(names.KUEUE_QUEUE)
            return f"{names.KUEUE_QUEUE} {quote(queue)}: Kueue places it" if queue else REASONS[reason].description
        case "ExemptNamespace":
            return f"namespace {quote(workload.namespace)} is exempt"
        case "PolicyOff":
            return mode_of(workload.namespace, policy).left_alone
        case "NoTopologyRequested":
            return f"nothing asks for a topology or a gang, as the annotation {names.REQUIRE} would"
    pods = [one.template for one in workload.pod_sets]
    told = exemption_text(reason, sanitize(workload.kind), workload.namespace, pods, policy)
    return told or REASONS[reason].description


def _unlisted(scheduler: str, policy: Policy) -> str:
    return f"schedulerName {quote(scheduler)} is not in the policy's schedulers ({join_comma(policy.schedulers)})"


def _alone(asking: _Asking, pod: Pod, workload: Workload | None) -> output.ExplainedGang:
    """Return why a pod is not placed as a part of a gang."""
    who = (pod.namespace, "Pod", pod.name)
    view = asking.snapshot.view
    mode = mode_of(pod.namespace, view.policy)
    if names.GATE in pod.spec.gates:
        owner = view.owners.owner_of(pod)
        missing = owner.missing or (pod.owner if owner.workload is None else None)
        if missing is not None:
            what = f"{sanitize(missing.kind)} {quote(missing.name)}"
            message = f"held: its owner {what} does not exist, or is another object of that name"
        elif owner.workload is not None:
            message = f"held: its labels match no group or template of its {sanitize(owner.workload.kind)}"
        else:
            message = "held: nothing tells which gang it belongs to; the leader releases it when that is certain"
        return _about(who, "waits", "WaitingForMembers", message)
    if workload is not None:
        inner = _unmanaged(asking, workload, None)
        if inner.verdict == "ignored":
            return _about(who, "ignored", known_code(inner.reason), inner.message)
    if pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        reason: Code = "DaemonSetOrStatic"
    elif not mode.manages and view.owners.owner_of(pod).key is not None:
        reason = "PolicyOff"
    else:
        reason = template_exemption(replace(pod.spec, node_name=""), policy=view.policy) or "NoTopologyRequested"
    match reason:
        case "OtherScheduler":
            text = _unlisted(pod.spec.scheduler_name or names.DEFAULT_SCHEDULER, view.policy)
        case "PolicyOff":
            text = mode.left_alone
        case "DaemonSetOrStatic":
            text = "its DaemonSet or its node decides where it runs"
        case _:
            told = exemption_text(reason, "pod", pod.namespace, [pod.spec], view.policy)
            text = told or REASONS[reason].description
    return _about(who, "ignored", reason, f"left alone: {reason}: {text}")
