"""The explanation of a gang that waits: what the planner says, what is in the way, and what goes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.api.field import render
from engine.api.placement import preemption_intent, waiting_since
from engine.api.reasons import REASONS, Why, known_code
from engine.api.text import join_comma, plural, sanitize
from engine.gang.gang import Gang
from engine.scheduler.fairness import Turn
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from webhook.explanations.explanation import Asking, about, asks, dropped_by_policy, name_of, until_of
from webhook.explanations.preemptions import preemption_of
from webhook.explanations.ways_out import more_urgent, placed_now, ways_out
from webhook.queries import model as output
from webhook.queries.forecast import placed_first
from webhook.queries.gangs import WaitingGang, fault_text, gang_name, resting, standstill
from webhook.queries.names import workload_label
from webhook.queries.room import PodRoom, levels_of, obstacles, rooms_of
from webhook.snapshot.snapshot import Snapshot

_MOST_AHEAD: Final = 10
_MOST_LEVELS: Final = 16
_PLACED_NOW: Final = "the leader places it in its next pass"


def explain_waiting(
    asking: Asking, gang: Gang, row: output.GangAnswer, common: dict[str, Any], *, exists: bool
) -> output.ExplainedGang:
    """Return the explanation of a gang without slots; `exists`: its workload is in the cluster."""
    snapshot = asking.snapshot
    place = next(number for number, one in enumerate(asking.table.waiting) if one.gang.key == gang.key)
    mine = asking.table.waiting[place]
    same = [one for one in asking.table.waiting[:place] if one.gang.request.topology == gang.request.topology]
    group = gang.pod_group
    if group is not None and not group.placed:  # they start together: none of them goes first
        same = [one for one in same if one.gang.key not in group.members]
    ahead = [one for one in same if one.queues or (mine.on_hold and one.on_hold)]
    if mine.faults and not REASONS[mine.faults[0].reason].waits:
        message = f"its request is refused: {mine.faults[0].field}: {render(mine.faults[0])}"
        policy = snapshot.view.policy
        message += f"; {why}" if exists and (why := dropped_by_policy(policy, gang, mine.faults[0])) else ""
        return about(name_of(gang.workload), "refused", mine.faults[0].reason, message, faults=mine.faults, **common)
    outcome = _outcome(snapshot, gang, mine)
    verdict, reason, message = _verdict(mine, row, outcome)
    common |= {"until": until_of(reason)}
    if verdict == "waits":
        since = waiting_since(gang.status)
        waited = snapshot.taken - since if since is not None else float(row.waiting_seconds or 0)
        with placed_first(snapshot.view, placed_now(ahead)):  # victims would have to make room beside these
            common |= {"preempts": preemption_of(snapshot, gang, outcome, waited=waited)}
    if not snapshot.capacity_known:
        known = written_levels(gang) if verdict == "waits" else ()
        return about(name_of(gang.workload), verdict, reason, message, faults=mine.faults, levels=known, **common)
    if not gang.request.pod_sets:
        return about(name_of(gang.workload), verdict, reason, message, faults=mine.faults, **common)
    with placed_first(snapshot.view, placed_now(ahead)):
        rooms = rooms_of(snapshot, gang)
        near, found = _in_the_way(asking, gang, rooms) if verdict == "waits" else (None, ())
        levels = tuple(level for room in rooms for level in levels_of(room))
        waits = verdict != "fits" and not resting(gang)
        others = list(ways_out(snapshot, mine, rooms, exists=exists)) if waits else []
    if waits:
        others += more_urgent(snapshot, mine, ahead)
    if verdict == "waits":
        others += _restarts(gang)
    if verdict == "waits" and row.start is not None:
        others.append(_wait(row.start))
    queue_order = snapshot.view.policy.queue.order
    return about(
        name_of(gang.workload),
        verdict,
        reason,
        message,
        levels=levels,
        near=near,
        in_the_way=found,
        nodes=rooms[0].nodes() if rooms else {},
        order=queue_order if mine.in_line else None,
        ahead=tuple(_ahead(one, mine) for one in ahead[:_MOST_AHEAD]) if mine.in_line else (),
        ahead_count=len(ahead) if mine.in_line else None,
        ways_out=tuple(others),
        **common,
    )


def written_levels(gang: Gang) -> tuple[output.LevelRoom, ...]:
    """Return what each level has for a gang as the leader last wrote it; nothing where it wrote no numbers."""
    status = gang.status
    needed, have = status.get("needed"), status.get("have")
    if not isinstance(needed, int) or not isinstance(have, int):
        return ()
    asked = next((one for one in asks(gang) if one.pod_set == status.get("podSet")), next(asks(gang), None))
    pod_set, require = (asked.pod_set, asked.require) if asked is not None else ("main", None)

    def room(level: str | None, pods: int, path: tuple[str, ...] = ()) -> output.LevelRoom:
        return output.LevelRoom(
            pod_set=pod_set,
            level=level,
            required=level == require,
            needed=needed,
            have=pods,
            most=None,
            domains=None,
            best=(output.FitDomain(path=path, pods=pods),) if path else (),
        )

    best = status.get("best")
    found = []
    for one in (best if isinstance(best, list | tuple) else ())[:_MOST_LEVELS]:
        match one:
            case {"level": str(level), "domain": str(path), "pods": int(pods)}:
                found.append(room(sanitize(level), pods, tuple(sanitize(part) for part in path.split("/") if part)))
    if any(one.required for one in found):
        return tuple(found)
    return (room(None, have), *found) if require is None else (*found, room(require, have))


def _outcome(snapshot: Snapshot, gang: Gang, mine: WaitingGang) -> Outcome | None:
    """Return what the planner says: of a member of a pod group that lacks pods, that it does."""
    group = gang.pod_group
    if group is None or group.placed or group.complete or not snapshot.capacity_known or mine.faults or resting(gang):
        return mine.forecast.now
    return Waits("WaitingForMembers", group.incomplete_text)


def _verdict(mine: WaitingGang, row: output.GangAnswer, outcome: Outcome | None) -> tuple[output.Explained, Why, str]:
    gang = mine.gang
    if (still := standstill(gang)) is not None:
        return "waits", *still
    if mine.faults:
        return "waits", mine.faults[0].reason, fault_text(mine.faults[0])
    if preemption_intent(gang.status).active and isinstance(outcome, Waits) and row.message:
        return "waits", known_code(row.reason), row.message
    match outcome:
        case Placed():
            return "fits", "", f"{_PLACED_NOW}: {outcome.message.replace('placed', 'would place', 1)}"
        case Never():
            return "never", outcome.reason, outcome.message
        case Waits():
            return "waits", outcome.reason, outcome.message
    code = known_code(row.reason)
    if row.message:
        return "waits", code, row.message if resting(gang) else f"as the leader last wrote: {row.message}"
    return "waits", code, REASONS[code].description if code else "it has not been planned yet"


def _in_the_way(
    asking: Asking, gang: Gang, rooms: Sequence[PodRoom]
) -> tuple[tuple[str, ...] | None, tuple[output.Obstacle, ...]]:
    """Return what is in the way of the first pod set for which it is too narrow."""
    tight = next((room for room in rooms if _short(room)), None)
    return obstacles(asking.snapshot, gang, tight, asking.running) if tight is not None else (None, ())


def _short(room: PodRoom) -> bool:
    return any(level.required and level.have < level.needed for level in levels_of(room))


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


def _restarts(gang: Gang) -> Iterator[output.WayOut]:
    """Yield the restarts of other gangs that the leader has found; it knows them all, whoever asks here."""
    proposal = gang.status.get("proposal")
    found = proposal.get("restarts") if isinstance(proposal, Mapping) else None
    pods = [one.get("pods") for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []
    counts = [count for count in pods if isinstance(count, int)]
    if not counts:
        return
    workload = gang.workload
    what = f"{plural(len(counts), 'running gang')} ({plural(sum(counts), 'pod')})"
    label = workload_label(workload.kind, workload.name)
    yield output.WayOut(
        change="restarts",
        text=f"{what} restarted elsewhere",
        result="it would fit, as the leader has found; an admin sees which gangs, and nothing restarts by itself",
        to=None,
        command=f"topogate defragment --gang {label} -n {workload.namespace}",
        by=None,
    )


def _wait(start: output.GangStart) -> output.WayOut:
    if start.by is None:
        result = "too little of what runs declares its end (activeDeadlineSeconds), or gangs ahead take the room"
    else:
        end = "has ended" if len(start.after) == 1 else "have ended"
        result = f"fits by {start.by}" + (f", when {join_comma(start.after)} {end}" if start.after else "")
    return output.WayOut(change="wait", text="wait", result=result, to=None, command=None, by=start.by)
