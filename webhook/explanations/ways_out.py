"""Changes with which a waiting gang would start, each of them planned as the leader would plan it.

A change is made in the workload's record, its request is read again and planned beside the gangs that go first: what
is told here really places the gang, as long as the cluster stays as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.api import names
from engine.api.pod import Shape, Toleration
from engine.api.text import plural, sanitize
from engine.api.workload import Workload
from engine.gang.annotations import meanings
from engine.gang.gang import Gang, suspended_by_user
from engine.gang.request import of_group
from engine.resources.shape import NODE_AFFINITY, NODE_SELECTOR, TAINT
from engine.scheduler.fairness import Turn
from engine.scheduler.outcome import Outcome, Placed
from webhook.queries import model as output
from webhook.queries.forecast import placed_first, plan_now
from webhook.queries.gangs import WaitingGang
from webhook.queries.room import PodRoom
from webhook.snapshot.snapshot import Snapshot

_MOST_TAINTS: Final = 3
_MOST_CLASSES: Final = 20
_CORE_GROUPS: Final = ("", "batch", "apps")


@dataclass(frozen=True, slots=True)
class _Question:
    """A waiting gang and the room for its pods.

    `exists`: its workload is in the cluster, so that a command can change it.
    """

    snapshot: Snapshot
    gang: Gang
    rooms: Sequence[PodRoom]
    exists: bool

    def plan(self, gang: Gang) -> Outcome:
        """Return the outcome for the changed gang."""
        return plan_now(self.snapshot, gang)

    def changed(self, workload: Workload) -> Gang | None:
        """Return the gang with a changed workload; None where that would be no valid request."""
        request = self.snapshot.view.owners.own_request(workload)
        if request.ignored is not None or request.errors or not request.pod_sets:
            return None
        if (group := self.gang.pod_group) is not None and group.common_minimum:
            request = of_group(request, timeout=group.timeout)
        return replace(self.gang, workload=workload, request=request)


def placed_now(waiting: Iterable[WaitingGang]) -> list[tuple[Gang, Placed]]:
    """Return the waiting gangs that are placed now, with their plans, in the same order."""
    return [(one.gang, one.forecast.now) for one in waiting if isinstance(one.forecast.now, Placed)]


def ways_out(
    snapshot: Snapshot, mine: WaitingGang, rooms: Sequence[PodRoom], *, exists: bool = True
) -> Iterator[output.WayOut]:
    """Yield the changes with which a gang that does not start now would start, those that cost least first.

    Its place in the queue stays, and the caller has placed those ahead (`placed_first`).
    """
    gang = mine.gang
    if not _can_change(snapshot, gang):
        return
    asked = _Question(snapshot, gang, rooms, exists)
    if suspended_by_user(gang.workload):
        yield _resume(asked)
        return
    if gang.workload.handling != "pods":
        yield from _levels(asked)
        yield from _fewer_pods(asked)
    yield from _hosts(asked)


def _can_change(snapshot: Snapshot, gang: Gang) -> bool:
    in_parts = gang.pod_group is not None and not gang.pod_group.placed
    return snapshot.capacity_known and bool(gang.request.pod_sets) and not in_parts


def _resume(asked: _Question) -> output.WayOut:
    workload = replace(asked.gang.workload, suspended=False)
    outcome = asked.plan(replace(asked.gang, workload=workload))
    command = None
    if workload.suspend_path == ("spec", "suspend") and asked.exists:
        command = f'kubectl patch {_named(workload)} --type=merge -p \'{{"spec":{{"suspend":false}}}}\''
    return output.WayOut(
        change="resume",
        text="resume it",
        result=_starts(outcome) if isinstance(outcome, Placed) else f"then it waits: {outcome.message}",
        to=None,
        command=command,
        by=None,
    )


def _levels(asked: _Question) -> Iterator[output.WayOut]:
    """Yield the nearest coarser level that it could require, and the required level as a preferred one."""
    gang = asked.gang
    topology = asked.snapshot.view.topologies.get(gang.request.topology or "")
    required = [room.required for room in asked.rooms if room.required is not None]
    if topology is None or not required:
        return
    finest = topology.levels[max(required)].name
    for level in range(min(required) - 1, -1, -1):
        name = topology.levels[level].name
        changed = asked.changed(_with_annotations(asked, lambda said, key, name=name: {**said, key: name}))  # type: ignore[misc]
        if changed is not None and isinstance(outcome := asked.plan(changed), Placed):
            command = _annotate(asked, changed.workload)
            yield _way("level", f"require {name} instead of {finest}", outcome, to=name, command=command)
            break
    prefers = any(names.PREFER in _meant(asked, one) for one in _carriers(gang.workload))

    def preferring(said: Mapping[str, str], key: str) -> dict[str, str]:
        left = {other: value for other, value in said.items() if other != key}
        return left if prefers else {**left, names.PREFER: finest}

    changed = asked.changed(_with_annotations(asked, preferring))
    if changed is not None and isinstance(outcome := asked.plan(changed), Placed):
        command = _annotate(asked, changed.workload)
        text = f"prefer {finest} instead of requiring it" if not prefers else f"do not require {finest}"
        yield _way("prefer", text, outcome, to=finest, command=command)


def _fewer_pods(asked: _Question) -> Iterator[output.WayOut]:
    """Yield the largest number of pods with which it would start; whole slices alone."""
    gang, (first, *others) = asked.gang, asked.gang.workload.pod_sets
    ask = gang.request.pod_sets[0]
    fixed = first.minimum is not None or gang.workload.minimum is not None or first.ordered
    fixed = fixed or gang.request.pod_group is not None  # with fewer pods it would wait for other members
    if others or fixed or ask.min_available < ask.count or first.needed < first.slots:
        return
    step = max((size for _, size in ask.slices), default=1)

    def planned(pods: int) -> Placed | None:
        fewer = replace(first, slots=pods, total=pods, remaining=pods, finished_ranks=())
        changed = asked.changed(replace(gang.workload, pod_sets=(fewer,)))
        outcome = asked.plan(changed) if changed is not None else None
        return outcome if isinstance(outcome, Placed) else None

    # No more than there is room for at the required level; mostly as many, so that one plan is enough.
    room = min((_most(one) for one in asked.rooms), default=0)  # none in a cluster without nodes
    low, high, best = 1, min(ask.count - 1, room) // step, None
    middle = high
    while low <= high:
        if (outcome := planned(middle * step)) is not None:
            best, low = (middle * step, outcome), middle + 1
        else:
            high = middle - 1
        middle = (low + high) // 2
    if best is not None:
        pods, outcome = best
        yield _way("pods", f"submit it with {plural(pods, 'pod')} instead of {ask.count:,}", outcome, to=str(pods))


def _most(room: PodRoom) -> int:
    """Return for how many pods one domain of the required level has room."""
    return int(room.sums(room.free, -1 if room.required is None else room.required).max(initial=0))


def _hosts(asked: _Question) -> Iterator[output.WayOut]:
    """Yield tolerations, and the loss of its own node selector, that would make room."""
    states = {state: count for room in asked.rooms for state, count in room.nodes().items()}
    taints = sorted((state for state in states if state.startswith(TAINT)), key=lambda one: (-states[one], one))
    for state in taints[:_MOST_TAINTS]:
        key = state.removeprefix(TAINT)
        outcome = asked.plan(_with_shapes(asked.gang, lambda shape, key=key: _tolerating(shape, key)))  # type: ignore[misc]
        if isinstance(outcome, Placed):
            yield _way("toleration", f"add a toleration for the taint {sanitize(key)} to its pods", outcome, to=key)
            break
    if NODE_SELECTOR in states or NODE_AFFINITY in states:
        outcome = asked.plan(_with_shapes(asked.gang, lambda shape: replace(shape, node_selector=(), affinity=None)))
        if isinstance(outcome, Placed):
            yield _way("selector", "leave out the nodeSelector and node affinity of its pods", outcome)


def more_urgent(snapshot: Snapshot, mine: WaitingGang, ahead: Sequence[WaitingGang]) -> Iterator[output.WayOut]:
    """Yield the lowest PriorityClass with which a gang would go first and start; `ahead`: those before it."""
    view, workload = snapshot.view, mine.gang.workload
    if not _can_change(snapshot, mine.gang) or suspended_by_user(workload):
        return
    own = view.pod_shapes.priority_of(workload)
    higher = sorted((one.value, one.name) for one in view.stores.priority_classes.values() if one.value > own)
    waiting = [one for one in ahead if one.queues]
    for value, name in higher[:_MOST_CLASSES] if waiting else ():
        if name.startswith("system-"):
            continue
        sets = tuple(
            replace(one, template=replace(one.template, priority_class=name, priority=None))
            for one in workload.pod_sets
        )
        changed = replace(mine.gang, workload=replace(workload, pod_sets=sets))
        turn: Turn = (-value, *mine.turn[1:])
        with placed_first(view, placed_now(one for one in waiting if one.turn < turn)):
            outcome = plan_now(snapshot, changed)
        if isinstance(outcome, Placed):
            text = f"submit it with priorityClassName {sanitize(name)} ({value:,})"
            yield _way("priority", text, outcome, to=name)
            return


def _way(
    change: output.Change, text: str, outcome: Placed, *, to: str | None = None, command: str | None = None
) -> output.WayOut:
    return output.WayOut(change=change, text=text, result=_starts(outcome), to=to, command=command, by=None)


def _starts(placed: Placed) -> str:
    return placed.message.replace("placed", "starts now:", 1)


def _with_shapes(gang: Gang, change: Callable[[Shape], Shape]) -> Gang:
    return replace(gang, shapes={name: change(shape) for name, shape in gang.shapes.items()})


def _tolerating(shape: Shape, key: str) -> Shape:
    return replace(shape, tolerations=(*shape.tolerations, Toleration(key, "Exists", "", "")))


def _carriers(workload: Workload) -> list[Mapping[str, str]]:
    return [workload.annotations, *(one.template.annotations for one in workload.pod_sets)]


def _meant(asked: _Question, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return what annotations ask for: the topogate.dev key of each -> the key as it is written."""
    known = meanings(asked.snapshot.view.policy.annotations.dialects)
    return {known[key]: key for key in annotations if key in known}


def _with_annotations(asked: _Question, change: Callable[[Mapping[str, str], str], Mapping[str, str]]) -> Workload:
    """Return the workload with other annotations wherever a level is required; `change` gets these and the key."""
    workload = asked.gang.workload

    def changed(said: Mapping[str, str]) -> Mapping[str, str]:
        key = _meant(asked, said).get(names.REQUIRE)
        return change(said, key) if key is not None else said

    sets = tuple(
        replace(one, template=replace(one.template, annotations=changed(one.template.annotations)))
        for one in workload.pod_sets
    )
    return replace(workload, annotations=changed(workload.annotations), pod_sets=sets)


def _annotate(asked: _Question, after: Workload) -> str | None:
    """Return the command that changes the workload's own annotations; None where others change too."""
    before = asked.gang.workload
    if before.pod_sets != after.pod_sets or not asked.exists:
        return None
    gone = [f"{key}-" for key in before.annotations if key not in after.annotations]
    fresh = [f"{key}={value}" for key, value in after.annotations.items() if before.annotations.get(key) != value]
    words = " ".join(shlex.quote(word) for word in (*gone, *fresh))
    return f"kubectl annotate {_named(before)} {words} --overwrite"


def _named(workload: Workload) -> str:
    group = workload.api_version.rpartition("/")[0]
    kind = workload.kind.lower() if group in _CORE_GROUPS else f"{workload.resource}.{group}"
    return f"-n {shlex.quote(workload.namespace)} {kind}/{shlex.quote(workload.name)}"
