"""Which waiting gangs precede a gang: in strict order the first one, otherwise those with nominated hosts.

The leader decides both and records them in the Placements of the waiting gangs, so that every replica can tell at
submit time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.api.placement import Placement, kept_hosts, requeued_at
from engine.api.reasons import REASONS, known_code
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, over
from engine.gang.key import order_of
from engine.scheduler.fairness import Turn, WeightedUsage, turn_of, weighted_usage
from engine.scheduler.limits import waiting_limit
from engine.scheduler.outcome import Outcome, Placed, Waits, unschedulable_alone
from engine.scheduler.starvation import Nomination


@dataclass(frozen=True, slots=True)
class Precedence:
    """The place of a gang (`turn`), the gang that it must not overtake (`first`), and the nominations of others.

    `limited`: as many gangs of its own namespace wait ahead of it as the policy allows.
    """

    turn: Turn | None = None
    first: Turn | None = None
    nominations: tuple[Nomination, ...] = ()
    limited: bool = False


def precedence_of(view: ClusterState, gang: Gang, *, created: float) -> Precedence:
    """Return the precedence over a gang with this creation time, from the Placements. The caller holds the state's
    lock.

    The members of its pod group do not precede it while they still have to start together.
    """
    workload, priority = gang.workload, view.pod_shapes.priority_of(gang.workload)
    limit, strict = waiting_limit(workload.namespace, view.policy), view.policy.queue.order == "strict"
    own = {gang.key}
    if gang.pod_group is not None and not gang.pod_group.placed:
        own.update(gang.pod_group.members)
    if strict or limit is not None:
        usage = weighted_usage(view)
        turn = turn_of(priority, created, f"{workload.namespace}/{workload.name}", usage)
        mine = first = (turn, order_of(gang.key))
        waiting = 0
        for key, other, placement in view.gangs.waiting():  # there may be very many: the expensive test last
            name = f"{other.namespace}/{other.name}"
            place = (turn_of(placement.priority, queued_at(other, placement), name, usage), order_of(key))
            counts = limit is not None and other.namespace == workload.namespace and place < mine
            if (counts or (strict and place < first)) and key not in own and in_queue(other, placement):
                waiting += counts
                first = min(first, place)
        if strict:  # those of its own namespace that count are ahead of it too: then the first of all is why it waits
            return Precedence(turn=turn, first=first[0] if first < mine else None)
        if limit is not None and waiting >= limit:
            return Precedence(limited=True)
    nominations = [
        Nomination(
            key=key,
            name=f"{other.namespace}/{other.name}",
            priority=placement.priority,
            topology=placement.topology,
            hosts=frozenset(kept_hosts(placement.status)),
            where="",
        )
        for key, other, placement in view.gangs.keeping()
        if key not in own and placement.priority >= priority and in_queue(other, placement)
    ]
    return Precedence(nominations=tuple(nominations))


def queued_at(workload: Workload, placement: Placement | None) -> float:
    """Return since when a gang has its position in the queue (seconds since the epoch)."""
    requeued = requeued_at(placement.status) if placement is not None else None
    return workload.created if requeued is None else requeued


def in_queue(workload: Workload, placement: Placement) -> bool:
    """Return True for a gang that waits for capacity and that others may have to wait for."""
    code = known_code(placement.status.get("reason"))
    return not over(workload) and code != "" and REASONS[code].queued


def turn_in(view: ClusterState, gang: Gang, usage: WeightedUsage | None) -> Turn:
    """Return the place of a gang in the queue; without any PriorityClass with the priority of its Placement."""
    workload, placement = gang.workload, gang.placement
    known = placement.priority if placement is not None else 0
    priority = view.pod_shapes.priority_of(workload) if len(view.stores.priority_classes) else known
    return turn_of(priority, queued_at(workload, placement), f"{workload.namespace}/{workload.name}", usage)


def in_turn(plan: Callable[[frozenset[str]], Outcome], nominations: Sequence[Nomination]) -> tuple[Outcome, str]:
    """Plan a gang without the hosts nominated for others; also return the gang with hosts that would fit it, or "".

    `plan` is called with the hosts to leave out.
    """
    outcome = plan(frozenset[str]().union(*(nomination.hosts for nomination in nominations)))
    if not nominations or isinstance(outcome, Placed) or unschedulable_alone(outcome):
        return outcome, ""
    without = plan(frozenset())
    if not isinstance(without, Placed):
        return outcome, ""
    hosts = without.hosts
    return outcome, next(
        (nomination for nomination in nominations if not hosts.isdisjoint(nomination.hosts)), nominations[0]
    ).name


def goes_first(first: Turn, gang: Gang, own: Turn | None) -> Waits:
    """Return the outcome of a gang that must not overtake another one; `own` is its own place."""
    fair = own is not None and own[0] == first[0] and first[1] < own[1]
    why = ", because its namespace uses less," if fair else ""
    return Waits(
        "QueuedBehind", f"{_named(first[-1], gang)} goes first{why} and does not fit yet (policy queue.order: strict)"
    )


def kept_for(name: str, gang: Gang, outcome: Outcome) -> Waits:
    """Return the outcome of a gang that would fit on hosts nominated for another one (namespace/name).

    `outcome` is its own beside these hosts: the end of others may help it there.
    """
    beside = outcome.reason if isinstance(outcome, Waits) and not outcome.for_hosts else None
    message = f"the hosts that it needs are kept for {_named(name, gang)}, which goes first"
    return Waits("QueuedBehind", message, beside=beside)


def _named(name: str, gang: Gang) -> str:
    """Return the other gang's workload, by name only within its namespace, where its users may see it anyway."""
    namespace, _, own = name.partition("/")
    return own if namespace == gang.workload.namespace else "a gang of another namespace"
