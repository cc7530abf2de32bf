"""The gangs of a cluster: where they are, or why they wait, their place in the queue, and when they can start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.api.duration import parse_time, timestamp
from engine.api.field import FieldError, render
from engine.api.placement import kept_hosts
from engine.api.reasons import REASONS, Code, known_code
from engine.api.text import sanitize
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, can_suspend, ours, over, suspended_by_user
from engine.gang.key import order_of
from engine.gang.summary import domains_of, hosts_of, levels_of, summary_of
from engine.policy.namespaces import mode_of
from engine.scheduler.fairness import Turn, weighted_usage
from engine.scheduler.outcome import Never, Placed
from engine.scheduler.precedence import queued_at, turn_in
from engine.scheduler.queue import QueuePlace, written_place
from engine.topology.topology import Topology
from webhook.queries import model as output
from webhook.queries.forecast import MAX_PLANS, Forecast, forecasts
from webhook.queries.names import group_of, label_of
from webhook.queries.subject import GangFilter
from webhook.snapshot.snapshot import Snapshot

QUEUE: Final = "queue"
SORTS: Final[Mapping[str, Callable[[output.GangAnswer], tuple[int | str, ...]]]] = {
    "name": lambda one: (one.namespace, one.name, one.group or ""),
    "age": lambda one: (one.created_at, one.namespace, one.name),
    "gpus": lambda one: (-one.gpus, one.namespace, one.name),
    "waiting": lambda one: (-1 if one.waiting_seconds is None else -one.waiting_seconds - 2, one.namespace, one.name),
}
_TIMES: Final = ("requestedAt", "since", "retryAt")
_TEXTS: Final = ("name", "className", "state", "message", *_TIMES)
_MOST_PLACE: Final = 200  # characters
_NOW = "it fits now: the leader places it in its next pass"


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang without slots, with its place in the queue (`turn`) and what the planner says.

    `faults`: the errors in its request; none where policy or nodes are not known, as a level may only seem wrong then.
    """

    gang: Gang
    turn: Turn
    forecast: Forecast
    faults: tuple[FieldError, ...] = ()

    @property
    def queues(self) -> bool:
        """True if it waits for capacity, so that others may have to wait for it."""
        outcome = self.forecast.now
        if self.faults or over(self.gang.workload) or standstill(self.gang) is not None:
            return False
        if isinstance(outcome, Placed):
            return True
        if outcome is not None:
            return REASONS[outcome.reason].queued
        status = self.gang.status
        code = known_code(status.get("reason"))
        return code == "" or REASONS[code].queued

    @property
    def on_hold(self) -> bool:
        """True if nothing but the policy's mode keeps it out of the queue, in which it has its turn later."""
        outcome = self.forecast.now
        if self.faults or over(self.gang.workload) or standstill(self.gang) is not None:
            return False
        if isinstance(outcome, Placed):
            return False
        status = self.gang.status
        code = outcome.reason if outcome is not None else known_code(status.get("reason"))
        return code != "" and REASONS[code].by_mode

    @property
    def in_line(self) -> bool:
        """True if it has a position: it queues, or will when its namespace is not on hold any more."""
        return self.queues or self.on_hold


def gangs(
    snapshot: Snapshot, *, namespace: str | None = None, only: GangFilter | None = None, sort: str = QUEUE
) -> output.GangsAnswer:
    """Return the gangs of a namespace (None: of all) that `only` takes, waiting ones in the order of the queue first.

    `sort`: another order of all gangs, one of SORTS. A name that `only` misses is told in a remark.
    """
    return gangs_and_missing(snapshot, namespace=namespace, only=only, sort=sort)[0]


def gangs_and_missing(
    snapshot: Snapshot, *, namespace: str | None = None, only: GangFilter | None = None, sort: str = QUEUE
) -> tuple[output.GangsAnswer, tuple[str, ...]]:
    """Return what `gangs` returns, and a sentence for each name that `only` misses."""
    view, missing = snapshot.view, list[str]()
    rows = [row for row in gang_table(snapshot).rows.items() if namespace in (None, row[1].namespace)]
    if only is not None:
        known = {key: gang for key, _ in rows if (gang := view.gangs.get(key)) is not None}
        missing += only.missing(snapshot, known.values())
        rows = [(key, row) for key, row in rows if key in known and only.takes(snapshot, known[key])]
    found = [row for _, row in rows]
    answer = output.GangsAnswer(
        taken_at=timestamp(snapshot.taken),
        gangs=tuple(found if sort == QUEUE else sorted(found, key=SORTS[sort])),
        remarks=(*snapshot.remarks, *missing),
    )
    return answer, tuple(missing)


@dataclass(frozen=True, slots=True)
class GangTable:
    """The gangs of a cluster: `waiting` in the order of the queue, and a row for each gang."""

    waiting: Sequence[WaitingGang]
    rows: Mapping[GangKey, output.GangAnswer]


def gang_table(snapshot: Snapshot, *, plans: int = MAX_PLANS) -> GangTable:
    """Return all gangs, waiting ones in the order of the queue first; `plans` bounds the work of their forecasts."""
    found = list(_managed(snapshot))
    waiting = queue_of(snapshot, [gang for gang in found if _waits(gang)], plans=plans)
    positions = _positions(waiting)
    queued = Counter(one.gang.request.topology for one in waiting if one.in_line)
    rows = {
        one.gang.key: _waiting_answer(snapshot, one, positions.get(one.gang.key), queued[one.gang.request.topology])
        for one in waiting
    }
    placed = sorted((gang for gang in found if not _waits(gang)), key=_order)
    return GangTable(waiting, rows | {gang.key: _answer(snapshot, gang) for gang in placed})


def queue_of(snapshot: Snapshot, waiting: list[Gang], *, plans: int = MAX_PLANS) -> list[WaitingGang]:
    """Return waiting gangs in the order of the queue, with what the planner says about each of them.

    Gangs of a pod group are planned together. None is planned in a cluster that is only partly known, nor a gang whose
    pod group lacks pods: these have no outcome.
    """
    view = snapshot.view
    usage = weighted_usage(view)
    turns = ((turn_in(view, gang, usage), gang) for gang in waiting)
    ordered = sorted(turns, key=lambda one: (one[0], order_of(one[1].key)))
    asked = [gang for _, gang in ordered if planned(gang)] if snapshot.capacity_known else []
    found = forecasts(snapshot, asked, plans=plans)
    return [
        WaitingGang(
            gang,
            place,
            found.get(gang.key, Forecast(None)),
            gang.request.errors if snapshot.levels_known else (),
        )
        for place, gang in ordered
    ]


def waiting_gangs(snapshot: Snapshot) -> list[Gang]:
    """Return the managed gangs without slots, in no order."""
    return [gang for gang in _managed(snapshot) if _waits(gang)]


def let_go(view: ClusterState, gang: Gang) -> bool:
    """Return True for a gang without slots that requests a placement and is not held.

    The mode of its namespace lets it go, or its workload is older than its request.
    """
    if not _waits(gang) or gang.request.ignored is not None or gang.workload.handling == "through":
        return False
    if not mode_of(gang.workload.namespace, view.policy).manages:
        return True
    held = any(pod.held for pod in gang.pods) or ours(gang.workload) or suspended_by_user(gang.workload)
    return gang.placement is None and not held


def standstill(gang: Gang) -> tuple[Code, str] | None:
    """Return why a gang without slots is not planned now, whatever is free, with a sentence; None if it is planned."""
    if suspended_by_user(gang.workload):
        return "Suspended", "suspended by its user; it is planned when it is resumed"
    status = gang.status
    code = known_code(status.get("reason"))
    if not code:
        return None
    # After a HoldExpired a workload that cannot be suspended is planned when one of its pods is created.
    no_pods = (
        REASONS[code].until == "pods" and not can_suspend(gang.workload) and not any(pod.held for pod in gang.pods)
    )
    if not (REASONS[code].gives_up or no_pods):
        return None
    return code, str(status.get("message") or REASONS[code].description)


def fault_text(error: FieldError) -> str:
    """Return an error in a request as the leader writes it: of a value, or of what is not there yet."""
    return error.message if error.value is None else render(error)


def resting(gang: Gang) -> bool:
    """Return True if a gang without slots has failed to start and was not planned since: the leader makes a pause.

    The reason and the message of its Placement say so until the next plan, which writes its own.
    """
    code = known_code(gang.status.get("reason"))
    return code != "" and REASONS[code].rests


def _managed(snapshot: Snapshot) -> Iterator[Gang]:
    """Yield the gangs with a Placement or a request of their own, without those that are let go."""
    view = snapshot.view
    for key in view.gangs.keys():  # noqa: SIM118 - no mapping
        gang = view.gangs.get(key)
        if gang is None or gang.workload.handling == "through" or let_go(view, gang):
            continue
        if gang.placement is not None or (gang.request.ignored is None and not gang.workload.finished):
            yield gang


def _waits(gang: Gang) -> bool:
    unplaced = gang.placement is None or gang.placement.assignment is None
    return unplaced and not gang.workload.finished


def planned(gang: Gang) -> bool:
    """Return True if the leader plans a gang without slots now, alone or with the others of its pod group."""
    if over(gang.workload) or gang.request.errors or standstill(gang) is not None or resting(gang):
        return False
    return gang.pod_group is None or gang.pod_group.placed or gang.pod_group.complete


def _positions(waiting: list[WaitingGang]) -> dict[GangKey, int]:
    counts: Counter[str | None] = Counter()
    found: dict[GangKey, int] = {}
    for one in waiting:
        if one.in_line:
            counts[one.gang.request.topology] += 1
            found[one.gang.key] = counts[one.gang.request.topology]
    return found


def _order(gang: Gang) -> tuple[bool, str, str, str]:
    status = gang.status
    return (status.get("phase") == "Finished", gang.workload.namespace, gang.workload.name, gang.key)


def _waiting_answer(snapshot: Snapshot, one: WaitingGang, position: int | None, queued: int) -> output.GangAnswer:
    base, outcome, still = _answer(snapshot, one.gang), one.forecast.now, standstill(one.gang)
    known = snapshot.capacity_known
    fits = isinstance(outcome, Placed) if outcome is not None else None
    reason, message = base.reason, base.message
    kept = bool(base.kept_hosts) and not isinstance(outcome, Never)
    rests = resting(one.gang)
    if still is not None:
        (reason, message), fits = still, False
    elif rests:
        fits = False
    elif isinstance(outcome, Placed):
        reason, message = "", f"{_NOW}: {outcome.message.replace('placed', 'would place', 1)}"
    elif outcome is not None and not kept:
        reason, message = outcome.reason, outcome.message
    elif one.faults:
        reason, message = one.faults[0].reason, fault_text(one.faults[0])
    by = one.forecast.by
    status = one.gang.status
    since = queued_at(one.gang.workload, one.gang.placement)
    place = QueuePlace(position, queued) if known and position is not None else None
    if not known:
        place = written_place(status)  # the leader's, who sees all gangs
    start = output.GangStart(by=timestamp(by) if by is not None else None, after=one.forecast.after)
    return base.model_copy(
        update={
            "phase": "Waiting",
            "reason": reason,
            "message": message,
            "position": place.position if place is not None else None,
            "queued": place.length if place is not None else None,
            "waiting_seconds": max(0, int(snapshot.taken - since)),
            "fits_now": fits,
            "start": start if known and one.queues and not rests else None,
            "priority": -one.turn[0],
        }
    )


def _answer(snapshot: Snapshot, gang: Gang) -> output.GangAnswer:
    workload, placement, request = gang.workload, gang.placement, gang.request
    status = placement.status if placement is not None else {}
    assignment = placement.assignment if placement is not None else None
    topology = placement.topology if placement is not None and assignment is not None else request.topology
    require, prefer = levels_of(gang)
    summary = summary_of(gang, snapshot.view.topologies.get(topology or ""))
    return output.GangAnswer(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        group=group_of(workload, gang.key),
        placement=placement.name if placement is not None else None,
        phase=str(status.get("phase") or ("Waiting" if assignment is None else "Placed")),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        pods=output.GangPods(bound=summary.bound, wanted=summary.wanted),
        gpus=summary.gpus,
        topology=topology or None,
        level=require,
        prefer=prefer,
        place=_place(gang, summary.place, snapshot.view.topologies.get(topology or "")),
        domains=domains_of(assignment),
        hosts=hosts_of(assignment),
        priority=placement.priority if placement is not None else 0,
        position=None,
        queued=None,
        created_at=timestamp(workload.created),
        waiting_seconds=None,
        fits_now=None,
        start=None,
        kept_hosts=kept_hosts(status),
        provisioning=_nodes(status) if assignment is None else None,
    )


def _nodes(status: Mapping[str, Any]) -> output.GangNodes | None:
    """Return what a Placement's status says about requested nodes; None if it says nothing, or is not readable."""
    found = status.get("provisioning")
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        return None
    texts = {key: value if isinstance(value := found.get(key), str) else None for key in _TEXTS}
    texts |= {key: texts[key] if parse_time(texts[key]) is not None else None for key in _TIMES}
    numbers = {key: value if type(value := found.get(key)) is int else 0 for key in ("pods", "attempt")}
    return output.GangNodes(
        name=texts["name"] or "",
        class_name=texts["className"] or "",
        state=texts["state"] or "",
        requested_at=texts["requestedAt"],
        since=texts["since"],
        retry_at=texts["retryAt"],
        message=texts["message"] or "",
        **numbers,
    )


def _place(gang: Gang, place: str, topology: Topology | None) -> str:
    """Return where a gang with slots is; as the leader wrote it where the levels of its slots are not known here."""
    if gang.placement is None or gang.placement.assignment is None:
        return place
    paths, columns = domains_of(gang.placement.assignment), gang.placement.status.get("columns")
    written = columns.get("place") if isinstance(columns, Mapping) else None
    named = topology is not None and paths and len(topology.levels) == len(paths[0]) + 1
    return place if named or not isinstance(written, str) else sanitize(written, _MOST_PLACE)


def gang_name(gang: Gang) -> str:
    """Return a gang as `namespace/job/train`."""
    return label_of(gang.workload, group_of(gang.workload, gang.key))
