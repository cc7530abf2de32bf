"""Plans the workloads of a pod group in one decision: the minimum of its pods gets slots, or no pod does.

They are planned one after the other, each beside the plans of those before it, which are assumed meanwhile; so quotas
and devices count as everywhere. What fits in one order may not in another: a few are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.api.placement import GangRequest, Placement, PodSetRequest
from engine.api.pod import Shape
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, PodGroupState, host_of
from engine.gang.request import PlacementRequest
from engine.gang.slots import assigned_count, request_to_place
from engine.scheduler.fairness import Turn, turn_of
from engine.scheduler.limits import creation_problem, group_creation_problem, on_hold, too_many_waiting
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.precedence import goes_first, in_turn, kept_for, precedence_of, queued_at
from engine.scheduler.schedule import new_placement, schedule_gang


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """The plans of the workloads of a pod group that start now, by gang; they are assumed."""

    plans: Mapping[GangKey, tuple[Gang, Placed, Placement]]


def schedule_pod_group(
    view: ClusterState, gangs: Sequence[Gang], group: PodGroupState, *, plan: Callable[[Gang], Outcome], now: float
) -> PlacedGroup | Waits | Never:
    """Plan the gangs of a group without slots, and assume the plans if the minimum fits; else none is assumed.

    `plan` returns the outcome for one of them beside the current plans; `now` is the time of day. The caller holds the
    state's lock.
    """
    if (refused := group_creation_problem(view, gangs, group)) is not None:
        return refused
    needed = group.missing
    most, problem = -1, list[tuple[Gang, Waits | Never]]()
    for order in _orders(gangs):
        plans, missed = _plan_in_order(view, order, plan=plan, now=now)
        placed = sum(assigned_count(placement) for _, _, placement in plans.values())
        if placed >= needed:
            return PlacedGroup(plans)
        for key in plans:
            view.retract(key)
        if placed > most:
            most, problem = placed, missed
    return _miss(gangs, group, most, problem)


def with_place(view: ClusterState, gangs: Sequence[Gang]) -> Sequence[Gang]:
    """Return the workloads of a group that give it their place in the queue: those with pods that can be created.

    All of them where no pod can be. Whom no quota allows a PriorityClass takes no others ahead by it. The caller holds
    the state's lock.
    """
    return [gang for gang in gangs if creation_problem(view, gang) is None] or gangs


def group_answer_in_view(
    view: ClusterState, gangs: Sequence[Gang], group: PodGroupState, *, now: float, settled_before: float | None = None
) -> PlacedGroup | Waits | Never:
    """Return the leader's outcome for the gangs of a group without slots, at least one; the plans are assumed.

    The group has the place of the first `with_place`, and respects what the Placements show to precede that.
    The caller holds the state's lock.
    """
    first = min(with_place(view, gangs), key=lambda gang: _place(view, gang))
    if (held := on_hold(first.workload.namespace, view.policy)) is not None:
        return held
    before = precedence_of(view, first, created=queued_at(first.workload, first.placement))
    if before.limited:
        return too_many_waiting(first.workload.namespace, view.policy)
    if before.first is not None:
        return goes_first(before.first, first, before.turn)

    def plan(gang: Gang) -> Outcome:
        def beside(nominated: frozenset[str]) -> Outcome:
            return schedule_gang(view, gang, settled_before=settled_before, nominated=nominated)

        outcome, ahead = in_turn(beside, before.nominations)
        return kept_for(ahead, gang, outcome) if ahead else outcome

    return schedule_pod_group(view, gangs, group, plan=plan, now=now)


def _place(view: ClusterState, gang: Gang) -> Turn:
    """Return the place of a gang among those of its namespace."""
    workload = gang.workload
    since = queued_at(workload, gang.placement)
    return turn_of(view.pod_shapes.priority_of(workload), since, f"{workload.namespace}/{workload.name}", None)


# Pod sets of a joint request: a nomination makes a dozen plans under the state's lock, which reviews need too.
_MOST_JOINT: Final = 4


@dataclass(frozen=True, slots=True)
class JointRequest:
    """The request of several workloads of a pod group as if they were one gang, to find hosts to keep for them.

    `shapes`: the shape of one pod of each pod set, by the names in the request.
    """

    request: PlacementRequest
    shapes: Mapping[str, Shape]


def joint_request(gangs: Sequence[Gang], group: PodGroupState) -> JointRequest | None:
    """Return the request of the first of these workloads that have enough pods for the group's minimum.

    `gangs`: workloads without slots in one topology. Pods that are alike and may go anywhere are one pod set. None if
    they cannot be planned as one gang: with a level for a whole workload, domains that are kept apart, requirements of
    the pods near them, pods that have hosts, too few pods, or many different pod sets.
    """
    needed, asks, shapes = group.missing, dict[str, PodSetRequest](), dict[str, Shape]()
    alike = dict[object, str]()
    for number, gang in enumerate(gangs):
        if needed <= 0:
            break
        whole, templates = gang.request.gang, (pod_set.template for pod_set in gang.workload.pod_sets)
        if whole is not None and (whole.require or whole.prefer):
            return None
        if gang.request.separation is not None or any(one.constraints is not None for one in templates):
            return None
        if any(host_of(pod) is not None for pod in gang.pods if pod.live):
            return None
        asked = request_to_place(gang)
        needed -= asked.count
        for ask in asked.pod_sets:
            shape, name = gang.shapes[ask.name], f"{number}/{ask.name}"
            if ask.require is None and not ask.slices and ask.colocate is None:
                name = alike.setdefault((shape, ask.prefer), name)
            count = ask.count + (asks[name].count if name in asks else 0)
            together = None if ask.colocate is None else f"{number}/{ask.colocate}"
            asks[name] = replace(ask, name=name, count=count, min_available=count, colocate=together)
            shapes[name] = shape
    if needed > 0 or len(asks) > _MOST_JOINT:
        return None
    return JointRequest(replace(gangs[0].request, pod_sets=tuple(asks.values()), gang=None), shapes)


def for_minimum(request: PlacementRequest, group: PodGroupState) -> PlacementRequest:
    """Return the request of a workload of a group for as many of its pods as the group's minimum lacks."""
    needed = min(request.count, max(1, group.missing))
    if needed == request.count:
        return replace(request, pod_sets=tuple(replace(ask, min_available=ask.count) for ask in request.pod_sets))
    if len(request.pod_sets) == 1:
        return replace(request, pod_sets=(replace(request.pod_sets[0], min_available=needed),))
    return replace(request, gang=replace(request.gang or GangRequest(None, None, None), min_available=needed))


def _plan_in_order(
    view: ClusterState, order: Sequence[Gang], *, plan: Callable[[Gang], Outcome], now: float
) -> tuple[dict[GangKey, tuple[Gang, Placed, Placement]], list[tuple[Gang, Waits | Never]]]:
    """Return the assumed plans, and what does not fit beside them."""
    plans: dict[GangKey, tuple[Gang, Placed, Placement]] = {}
    missed: list[tuple[Gang, Waits | Never]] = []
    try:
        for gang in order:
            outcome = plan(gang)
            if not isinstance(outcome, Placed):
                missed.append((gang, outcome))
                continue
            placement = new_placement(gang, outcome, priority=view.pod_shapes.priority_of(gang.workload), now=now)
            plans[gang.key] = (gang, outcome, placement)
            view.assume(gang.key, placement)
    except Exception:
        for key in plans:
            view.retract(key)
        raise
    return plans, missed


def _orders(gangs: Sequence[Gang]) -> list[tuple[Gang, ...]]:
    """Return the orders to try: as given, those that require a level first and then the larger ones, and backwards."""
    given = tuple(gangs)
    narrow = tuple(sorted(given, key=lambda gang: (not _requires(gang), -gang.request.count)))
    found = [given]
    for order in (narrow, given[::-1]):
        if all([gang.key for gang in order] != [gang.key for gang in one] for one in found):
            found.append(order)
    return found


def _requires(gang: Gang) -> bool:
    asked = gang.request
    of_all = asked.gang is not None and asked.gang.require is not None
    return of_all or any(ask.require is not None or ask.slices for ask in asked.pod_sets)


def _miss(
    gangs: Sequence[Gang], group: PodGroupState, most: int, missed: Sequence[tuple[Gang, Waits | Never]]
) -> Waits | Never:
    """Return why the group does not start, with the reason of a workload that does not fit.

    `most`: how many pods found room; `missed`: what did not fit then.
    """
    needed = group.missing
    fitting = f"there is room for {most:,} of them"
    if group.assigned:
        has = "has" if group.assigned == 1 else "have"
        fitting = f"{group.assigned:,} {has} slots, and there is room for {most:,} more"
    message = f"{plural(group.minimum, 'pod')} of pod group {group.name} start together; {fitting}"
    if group.minimum == 1:
        message = f"1 pod of pod group {group.name} is enough to start; there is no room for it"
    never = [(gang, outcome) for gang, outcome in missed if isinstance(outcome, Never)]
    lost = {gang.key for gang, _ in never}
    if sum(request_to_place(gang).count for gang in gangs if gang.key not in lost) < needed:
        gang, why = never[0]
        return Never(why.reason, f"{message} ({gang.workload.name}: {why.message})")
    for gang, outcome in missed:
        if isinstance(outcome, Waits):
            return Waits(outcome.reason, f"{message} ({gang.workload.name}: {outcome.message})")
    gpus = any("gpu" in name for gang in gangs for shape in gang.shapes.values() for name, _ in shape.requests)
    return Waits("InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts", message)
