"""Whether a gang of some size would start now, where, what would fit instead, and when it fits later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from engine.api.duration import timestamp
from engine.api.names import AUTO, HOST_LEVEL
from engine.api.placement import PodSetPlan
from engine.api.reasons import REASONS
from engine.scheduler.fairness import weighted_usage
from engine.scheduler.outcome import Never, Placed, Waits
from engine.scheduler.precedence import turn_in
from engine.topology.topology import Topology
from webhook.explanations.explanation import until_of
from webhook.queries import model as output
from webhook.queries.forecast import forecasts, plan_now
from webhook.queries.gangs import planned, queue_of, waiting_gangs
from webhook.queries.hosts import holders_of, host_table
from webhook.queries.probe import checked, probe
from webhook.snapshot.snapshot import AnswerProblem, Snapshot, Unread, chosen_topologies

_MOST_DOMAINS: Final = 10
_NO_ANSWER: Final = (
    "without that there is no answer; the service sees all: kubectl create -f FILE --dry-run=server tells where a gang "
    "would start, or why it would wait"
)


def fits(
    snapshot: Snapshot,
    *,
    pods: int,
    gpus: int,
    topology: str | None = None,
    require: str | None = None,
    prefer: str | None = None,
    namespace: str = "default",
) -> output.FitsAnswer:
    """Return whether `pods` pods with `gpus` GPUs each would start now, as the leader would answer a Job of them.

    Raises AnswerProblem for a request that is wrong, and where free capacity is not known.
    """
    if not snapshot.capacity_known:
        raise AnswerProblem(_NO_ANSWER, Unread.texts(one for one in snapshot.unread if one.decides))
    view = snapshot.view
    chosen_topologies(snapshot, topology)
    ask: dict[str, Any] = {"pods": pods, "gpus": gpus, "topology": topology, "namespace": namespace}
    ask["created"] = snapshot.taken
    gang = checked(probe(view, require=require, prefer=prefer, **ask))
    chosen = view.topologies[gang.request.topology or next(iter(view.topologies))]
    outcome = plan_now(snapshot, gang)
    holders = holders_of(view)
    slots = host_table(snapshot, chosen, holders, gpus=gpus).slots
    start = None
    lacks_room = not isinstance(outcome, Placed) and _lacks_room(outcome)
    if not isinstance(outcome, Placed) and lacks_room and not outcome.for_hosts:
        usage = weighted_usage(view)
        mine = turn_in(view, gang, usage)
        queue = queue_of(snapshot, waiting_gangs(snapshot))
        # In a fair order others go ahead of it while those of its own namespace are placed.
        ahead = [one.gang for one in queue if (usage is not None or one.turn < mine) and planned(one.gang)]
        later = forecasts(snapshot, [*ahead, gang]).get(gang.key)
        by = later.by if later is not None else None
        start = output.GangStart(
            by=timestamp(by) if by is not None else None, after=later.after if later is not None else ()
        )

    def fits_at(level: str | None, room: int) -> bool:
        if room < pods or not (lacks_room or isinstance(outcome, Placed)):
            return False
        asked = probe(view, require=level, prefer=prefer if level is None else None, **ask)
        return not asked.request.errors and isinstance(plan_now(snapshot, asked), Placed)

    domains = pods_by_domain(outcome.pod_sets) if isinstance(outcome, Placed) else {}
    placed = tuple(output.FitDomain(path=path, pods=count) for path, count in domains.items())
    return output.FitsAnswer(
        taken_at=timestamp(snapshot.taken),
        pods=pods,
        gpus=gpus,
        topology=chosen.name,
        require=require,
        prefer=prefer,
        fits=isinstance(outcome, Placed),
        reason=None if isinstance(outcome, Placed) else outcome.reason,
        message=outcome.message.replace("placed", "would place", 1) if isinstance(outcome, Placed) else outcome.message,
        assignment=placed,
        best=_best(chosen, slots, require or prefer),
        levels=tuple(_levels(chosen, slots, fits_at)),
        until=None if isinstance(outcome, Placed) else until_of(outcome.reason),
        start=start,
        remarks=snapshot.remarks,
    )


def pods_by_domain(pod_sets: Iterable[PodSetPlan]) -> dict[tuple[str, ...], int]:
    """Return the pods of a plan by the domain above the host."""
    counts: dict[tuple[str, ...], int] = {}
    for one in pod_sets:
        for slot in one.slots:
            path = slot.domain[:-1] or slot.domain
            counts[path] = counts.get(path, 0) + slot.count
    return counts


def _best(topology: Topology, slots: np.typing.NDArray[np.int64], level: str | None) -> tuple[output.FitDomain, ...]:
    """Return the domains of a level (None or `auto`: the lowest above the host) with most room."""
    tree = topology.tree
    named = topology.level_of(level) if level not in (None, AUTO, HOST_LEVEL) else None
    index = named if named is not None else max(0, len(topology.levels) - 2)
    if not tree.hosts:
        return ()
    sums = tree.sums(index, slots)
    order = np.argsort(-sums, kind="stable")[:_MOST_DOMAINS].tolist()
    return tuple(output.FitDomain(path=tree.path(index, one), pods=int(sums[one])) for one in order if sums[one] > 0)


def _lacks_room(outcome: Waits | Never) -> bool:
    """Return True if room is what is missing: not quota, the policy's mode, or a limit of its namespace."""
    reason = REASONS[outcome.reason]
    return reason.queued or not reason.waits


def _levels(
    topology: Topology, slots: np.typing.NDArray[np.int64], fits: Callable[[str | None, int], bool]
) -> Sequence[output.FitLevel]:
    """Return what fits at each level; `fits`: whether the gang would at a level, whose best domain has so much room."""
    tree = topology.tree
    found = []
    for index in reversed(range(len(topology.levels))):
        name = topology.levels[index].name
        largest = int(tree.sums(index, slots).max(initial=0)) if tree.hosts else 0
        found.append(output.FitLevel(level=name, largest_gang=largest, fits=fits(name, largest)))
    whole = int(slots.sum())
    return [*found, output.FitLevel(level=None, largest_gang=whole, fits=fits(None, whole))]
