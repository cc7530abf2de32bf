"""What `topogate policy check` prints about what a policy changes for what exists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from engine.api.text import join_comma, plural, sanitize
from webhook.checks.model import ChangedGang, ChangedNamespace, ChangedTopology, GangFate, PolicyChange, QueueChange

MOST: Final = 20  # gangs of one kind of change
_SAYS: Final[dict[GangFate, tuple[str, str]]] = {
    "released": ("waiting gang is let go", "waiting gangs are let go"),
    "unmanaged": (
        "gang with slots is not managed any more: its pods run on, its slots are released",
        "gangs with slots are not managed any more: their pods run on, their slots are released",
    ),
    "blocked": ("waiting gang stays held with an error", "waiting gangs stay held with an error"),
    "exceeds": (
        "gang keeps its slots, but could not be submitted again",
        "gangs keep their slots, but could not be submitted again",
    ),
    "on-hold": ("waiting gang is not planned", "waiting gangs are not planned"),
    "unblocked": ("waiting gang is planned again", "waiting gangs are planned again"),
}


def change_lines(change: PolicyChange) -> list[str]:
    """Return the lines about a change: topologies, namespaces, then gangs by what becomes of them."""
    lines = [*map(_topology, change.topologies), *map(_namespace, change.namespaces)]
    for fate, (one, many) in _SAYS.items():
        found = [gang for gang in change.gangs if gang.change == fate]
        if found:
            lines.append(f"{len(found):,} {one if len(found) == 1 else many}:")
            lines += _gangs(found)
    lines += _queue(change.queue)
    head = f"compared with the policy in force (hash {change.in_force.hash}, mode {change.in_force.mode}):"
    return [head, *(f"  {line}" for line in lines or ["nothing changes for what exists"])]


def _topology(one: ChangedTopology) -> str:
    parts = []
    if one.nodes_before != one.nodes_after:
        parts.append(f"{_count(one.nodes_before)} -> {_count(one.nodes_after)}")
    else:
        parts.append(_count(one.nodes_after))
    if one.levels_before and one.levels_after and one.levels_before != one.levels_after:
        parts.append(f"levels {join_comma(one.levels_before)} -> {join_comma(one.levels_after)}")
        if gone := [level for level in one.levels_before if level not in one.levels_after]:
            parts.append(f"{join_comma(gone)} {'is' if len(gone) == 1 else 'are'} gone")
    if one.empty:
        parts.append(sanitize(one.empty, 300))
    return f"topology {sanitize(one.name)}: {'; '.join(parts)}"


def _count(nodes: int | None) -> str:
    return "none" if nodes is None else plural(nodes, "node")


def _namespace(one: ChangedNamespace) -> str:
    parts = []
    if one.mode_before != one.mode_after:
        parts.append(f"mode {one.mode_before} -> {one.mode_after}")
    if one.allowed_before != one.allowed_after:
        parts.append("requests are allowed" if one.allowed_after else "requests are not allowed any more")
    parts += one.over
    what = "; ".join(parts or ["another rule"])
    return f"namespace {sanitize(one.namespace)} ({one.waiting:,} waiting, {one.placed:,} with slots): {what}"


def _queue(change: QueueChange) -> Iterator[str]:
    for one in change.settings:
        yield f"{one.field}: {sanitize(one.before)} -> {sanitize(one.after)}: {one.effect}"
    if not change.gangs:
        return
    yield f"{plural(len(change.gangs), 'waiting gang')} with another turn or kept room:"
    for gang in change.gangs[:MOST]:
        group = f" group {sanitize(gang.group)}" if gang.group is not None else ""
        who = f"{sanitize(gang.namespace)}/{sanitize(gang.kind.lower())}/{sanitize(gang.name)}{group}"
        same = gang.position_before == gang.position_after
        place = f"{gang.position_after:,}" if same else f"{gang.position_before:,} -> {gang.position_after:,}"
        kept = ""
        if gang.room_kept_before != gang.room_kept_after:
            kept = "; room is kept for it" if gang.room_kept_after else "; loses the room that is kept for it"
        yield f"  {who}: place {place} in the queue of {sanitize(gang.topology)}{kept}"
    if len(change.gangs) > MOST:
        yield f"  and {len(change.gangs) - MOST:,} more (-o json)"


def _gangs(found: Iterable[ChangedGang]) -> Iterator[str]:
    gangs = list(found)
    for one in gangs[:MOST]:
        who = f"{sanitize(one.namespace)}/{sanitize(one.kind.lower())}/{sanitize(one.name)}"
        group = f" group {sanitize(one.group)}" if one.group is not None else ""
        why = f"{one.reason}: {one.message}" if one.reason else one.message
        yield f"  {who}{group}: {why}"
    if len(gangs) > MOST:
        yield f"  and {len(gangs) - MOST:,} more (-o json)"
