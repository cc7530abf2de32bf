"""What another queue or preemption would change: turns of gangs that wait, kept room, who may be preempted. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api.duration import format_duration
from engine.api.placement import failed_starts, kept_hosts, waiting_since
from engine.api.reasons import REASONS, known_code
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, suspended_by_user
from engine.gang.key import order_of
from engine.policy.making_room import PreemptionRules, Protect
from engine.policy.model import Policy, Queue
from engine.preemption.victims import is_protected, managed
from engine.scheduler.fairness import Turn, weighted_usage
from engine.scheduler.precedence import turn_in
from webhook.checks.model import ChangedSetting, ChangedTurn, QueueChange


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue under one policy: the gangs of each topology in their order, and who has room kept for it.

    `running`: the gangs with slots; `preemptible`: those of them that the policy does not protect.
    """

    policy: Policy
    lines: Mapping[str, tuple[Gang, ...]]
    keeps: Mapping[str, GangKey]
    running: int = 0
    preemptible: int = 0


def queue_state(view: ClusterState, gangs: Iterable[Gang], *, taken: float) -> QueueState:
    """Return the queue of gangs without slots under the policy in force of a state.

    Room is kept for one gang of a topology at most: it keeps it while it has waited longer than the patience, and no
    gang of a higher priority has.
    """
    usage = weighted_usage(view)
    lines: defaultdict[str, list[tuple[Turn, Gang]]] = defaultdict(list)
    for gang in gangs:
        if _queues(gang):
            lines[gang.request.topology or ""].append((turn_in(view, gang, usage), gang))
    ordered = {name: sorted(line, key=lambda one: (one[0], order_of(one[1].key))) for name, line in lines.items()}
    keeps = {}
    for name, line in ordered.items():
        if (key := _keeps(line, view.policy.queue, taken)) is not None:
            keeps[name] = key
    protect, running = view.policy.preemption.protect, list(managed(view))
    return QueueState(
        view.policy,
        {name: tuple(gang for _, gang in line) for name, line in ordered.items()},
        keeps,
        running=len(running),
        preemptible=sum(not is_protected(one, protect, taken) for one in running),
    )


def _queues(gang: Gang) -> bool:
    if suspended_by_user(gang.workload):
        return False
    code = known_code(gang.status.get("reason"))
    return code == "" or REASONS[code].queued


def _keeps(line: Iterable[tuple[Turn, Gang]], queue: Queue, taken: float) -> GangKey | None:
    if queue.order == "strict":
        return None
    starving = [
        (turn, gang)
        for turn, gang in line
        if (since := waiting_since(gang.status)) is not None and since + queue.patience <= taken
    ]
    if not starving:
        return None
    highest = starving[0][0][0]
    held = (gang.key for turn, gang in starving if turn[0] == highest and kept_hosts(gang.status))
    return next(held, starving[0][1].key)


def queue_change(before: QueueState, after: QueueState, *, taken: float) -> QueueChange:
    """Return the settings that differ with their effect, and the gangs whose turn or kept room differs.

    With the same settings there are none: who moves up because others are let go is told by these others.
    """
    same = before.policy.queue == after.policy.queue
    return QueueChange(
        settings=(*(() if same else _settings(before, after, taken)), *_preemption_settings(before, after)),
        gangs=() if same else tuple(_turns(before, after)),
    )


def _turns(before: QueueState, after: QueueState) -> Iterator[ChangedTurn]:
    places = [
        {gang.key: place for line in state.lines.values() for place, gang in enumerate(line, start=1)}
        for state in (before, after)
    ]
    for name, line in after.lines.items():
        for gang in line:
            old, new = places[0].get(gang.key), places[1][gang.key]
            kept = [state.keeps.get(name) == gang.key for state in (before, after)]
            if old is not None and (old != new or kept[0] != kept[1]):
                yield ChangedTurn(
                    namespace=gang.workload.namespace,
                    kind=gang.workload.kind,
                    name=gang.workload.name,
                    group=gang.group,
                    topology=name,
                    position_before=old,
                    position_after=new,
                    room_kept_before=kept[0],
                    room_kept_after=kept[1],
                )


_DURATIONS: Final = ("patience",)


def _settings(before: QueueState, after: QueueState, taken: float) -> Iterator[ChangedSetting]:
    old, new = before.policy.queue, after.policy.queue
    for field in Queue.model_fields:
        values = [getattr(queue, field) for queue in (old, new)]
        if values[0] != values[1]:
            shown = [_shown(field, value) for value in values]
            path = f"queue.{Queue.model_fields[field].alias or field}"
            yield ChangedSetting(field=path, before=shown[0], after=shown[1], effect=_effect(field, after, taken))


def _shown(field: str, value: Any) -> str:
    if field in _DURATIONS:
        return format_duration(value)
    return value.mode if field == "fairness" else str(value)


def _effect(field: str, after: QueueState, taken: float) -> str:
    """Return what a setting does to the gangs that wait now, in numbers."""
    queue, gangs = after.policy.queue, [gang for line in after.lines.values() for gang in line]
    behind = sum(max(0, len(line) - 1) for line in after.lines.values())
    match field:
        case "order" if queue.order == "strict":
            return f"{plural(behind, 'gang')} may not start before the first of the queue any more"
        case "order":
            return f"{plural(behind, 'gang')} may start before the first of the queue"
        case "patience":
            waited = [since for gang in gangs if (since := waiting_since(gang.status)) is not None]
            over = sum(since + queue.patience <= taken for since in waited)
            return f"{plural(over, 'gang')} of {len(gangs):,} that wait have waited longer"
        case "on_timeout":
            timed = sum(gang.request.schedule_timeout is not None for gang in gangs)
            then = "is given up" if queue.on_timeout == "giveUp" else "is requeued"
            return f"{plural(timed, 'gang')} with a schedule-timeout: each {then} when it ends"
        case "max_start_attempts":
            over = sum(failed_starts(gang.status).count >= queue.max_start_attempts for gang in gangs)
            return (
                f"{plural(over, 'gang')} that wait have failed to start as often, and are given up at the next failure"
            )
        case "fairness":
            spaces = len({gang.workload.namespace for gang in gangs})
            return f"{plural(len(gangs), 'gang')} of {plural(spaces, 'namespace')} wait"
    return "gangs that exist stay; new and changed ones are checked"


def _preemption_settings(before: QueueState, after: QueueState) -> Iterator[ChangedSetting]:
    """Yield the settings of the preemption that differ; while it is off before and after, none has an effect."""
    old, new = before.policy.preemption, after.policy.preemption
    if old.mode == new.mode == "never":
        return
    victims = (
        f"{after.preemptible:,} of {plural(after.running, 'gang')} with slots may be preempted for a higher priority"
    )
    for field in PreemptionRules.model_fields:
        values = [getattr(rules, field) for rules in (old, new)]
        if values[0] == values[1]:
            continue
        effect = victims
        match field, values[1]:
            case "mode", "never":
                effect = "no gang is preempted any more"
            case "victims", "all":
                effect = "pods that are not managed may be preempted too"
            case "victims", _:
                effect = "pods that are not managed are not preempted any more"
            case "after", _:
                effect = "gangs wait as long before others are preempted for them"
        shown = [
            format_duration(value) if field == "after" else _protected(value) if isinstance(value, Protect) else value
            for value in values
        ]
        yield ChangedSetting(field=f"preemption.{field}", before=shown[0], after=shown[1], effect=effect)


def _protected(protect: Protect) -> str:
    """Return what is protected in a few words: `running for 10m, 2 namespaces, annotated`."""
    parts = [
        f"running for {format_duration(protect.running_for)}" if protect.running_for is not None else "",
        plural(len(protect.namespaces), "namespace") if protect.namespaces else "",
        "annotated" if protect.annotated else "",
    ]
    return ", ".join(filter(None, parts)) or "nothing"
