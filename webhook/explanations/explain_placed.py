"""The explanation of a gang with slots: its pods and their devices, slot by slot."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.api import names
from engine.api.device import DeviceUse
from engine.api.field import render
from engine.api.placement import Slot
from engine.api.pod import Pod
from engine.api.rank import expand_ranks, format_ranks
from engine.api.reasons import known_code
from engine.api.text import plural, sanitize
from engine.api.workload import PodSet
from engine.gang.gang import (
    Gang,
    by_pod_set,
    host_of,
    not_ready,
    rank_is_slot,
    rank_of,
    why_not_ready,
)
from engine.gang.slots import assigned_count, done_ranks, ranks_completed_in_jobs
from engine.lifecycle.moves import moves_text
from webhook.explanations.explanation import Asking, about, dropped_by_policy, name_of, until_of
from webhook.queries import model as output
from webhook.snapshot.snapshot import Snapshot

_MOST_PODS: Final = 10_000


def explain_placed(
    asking: Asking, gang: Gang, row: output.GangAnswer, named: Pod | None, common: dict[str, Any]
) -> output.ExplainedGang:
    """Return the explanation of a gang with slots; `named`: the pod of it that was asked about."""
    placement = gang.placement
    assert placement is not None
    assert placement.assignment is not None
    pods = list(_pods(asking.snapshot, gang))
    ready = sum(one.state == "ready" for one in pods)
    without_slot = len(pods) - assigned_count(placement)
    replaced = min(without_slot, sum(one.state == "ending" for one in pods))  # or scaled down: nobody waits for them
    completed = sum(one.state == "completed" for one in pods)
    wanted = len(pods) - replaced - completed
    message = f"{ready:,} of {plural(wanted, 'pod')} ready in {row.place or 'its domains'}"
    if completed:
        message += f"; {plural(completed, 'rank')} {'has' if completed == 1 else 'have'} completed"
    if row.reason:
        message += f"; {row.message}"
    if (moves := moves_text(gang)) and moves not in message:
        message += f"; {moves}"
    if gang.request.errors and asking.snapshot.levels_known:
        error = gang.request.errors[0]
        why = dropped_by_policy(asking.snapshot.view.policy, gang, error) or f"{error.field}: {render(error)}"
        message += f"; it keeps its slots, but could not be submitted again: {error.reason}: {why}"
    if named is not None:
        mine = [one for one in pods if one.pod == named.name]
        message = f"{_of_pod(named, mine)}; {message}"
        pods = mine
    proven = placement.status.get("proven")
    return about(
        name_of(gang.workload),
        "placed",
        known_code(row.reason),
        message,
        pods=tuple(pods[:_MOST_PODS]),
        revision=placement.assignment.revision,
        proven=proven if isinstance(proven, bool) else None,
        until=until_of(known_code(row.reason)),
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
    completed = ranks_completed_in_jobs(gang)
    for pod_set, pods in by_pod_set(gang.workload, live):
        slots = placement.assignment.plan_of(pod_set.name).slots
        in_order = sorted(pods, key=lambda pod: (pod.deleting, pod.created, pod.name))
        done = set[int]()
        if rank_is_slot(pod_set):
            done = done_ranks(pod_set, gang.pods).union(completed.get(pod_set.name, ()))
        yield from _pods_of(pod_set, in_order, slots, unready, done)


@dataclass(frozen=True, slots=True)
class _Place:
    """One slot: its rank (None without ranks), its host, and the devices of its pod."""

    rank: int | None
    slot: Slot
    uses: Sequence[DeviceUse]


def _places(slots: Sequence[Slot]) -> list[_Place]:
    found = []
    for slot in slots:
        ranks = expand_ranks(slot.ranks)
        devices = slot.devices or ()
        for number in range(slot.count):
            uses = devices[number] if number < len(devices) else ()
            found.append(_Place(ranks[number] if number < len(ranks) else None, slot, uses))
    return sorted(found, key=lambda place: (place.rank is None, place.rank or 0))


def _pods_of(
    pod_set: PodSet, pods: Sequence[Pod], slots: Sequence[Slot], unready: set[tuple[str, str]], done: set[int]
) -> Iterator[output.ExplainedPod]:
    """Yield the slots of a pod set with their pods; `done`: the ranks that have completed, of which none is to come."""
    left = {pod.key: pod for pod in pods}
    ranked = rank_is_slot(pod_set)
    by_rank = {rank_of(pod, pod_set): pod for pod in reversed(pods)} if ranked else {}
    on_host: defaultdict[str | None, deque[Pod]] = defaultdict(deque)
    for pod in () if ranked else pods:
        on_host[host_of(pod)].append(pod)
    for place in _places(slots):
        there = on_host[place.slot.host]
        found = by_rank.get(place.rank) if ranked else there.popleft() if there else None
        state = ("completed", "") if place.rank in done else ("missing", "it does not exist yet")
        if found is not None:
            state = _state(found, unready)
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
