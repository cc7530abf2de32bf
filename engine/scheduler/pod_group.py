"""Plans the workloads of a pod group in one decision: the minimum of its pods gets slots, or no pod does.

They are planned one after the other, each beside the plans of those before it, which are assumed meanwhile; so quotas
and devices count as everywhere. What fits in one order may not in another: a few are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from engine.api.placement import Placement, PodSetRequest
from engine.api.pod import Shape
from engine.api.text import plural
from engine.api.workload import GangKey
from engine.cache.gangs import assigned_count
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, PodGroupState
from engine.gang.request import PlacementRequest
from engine.scheduler.limits import group_creation_problem
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.schedule import new_placement


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
    needed = group.minimum - group.assigned
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


@dataclass(frozen=True, slots=True)
class JointPlan:
    """Waiting workloads of a pod group, planned as if they were one: for the hosts to keep for their minimum.

    `request` has the pod sets of all, and `shapes` the shape of one pod of each, by the same names. `needed`: how many
    pods have to get slots.
    """

    gangs: tuple[Gang, ...]
    needed: int
    request: PlacementRequest
    shapes: Mapping[str, Shape]

    @classmethod
    def of(cls, gangs: Sequence[Gang], group: PodGroupState) -> Self:
        """Return the joint plan of the waiting workloads of a group, at least one, in one topology."""
        asks, shapes = list[PodSetRequest](), dict[str, Shape]()
        for number, gang in enumerate(gangs):
            for ask in gang.request.pod_sets:
                name = _joint_name(number, ask.name)
                asks.append(replace(ask, name=name, min_available=ask.count))
                shapes[name] = gang.shapes[ask.name]
        whole = sum(ask.count for ask in asks)
        needed = max(1, min(whole, group.minimum - group.assigned))
        return cls(tuple(gangs), needed, replace(gangs[0].request, pod_sets=tuple(asks)), shapes)

    def placed(self, plan: Callable[[Gang, frozenset[str]], Outcome]) -> Outcome:
        """Return the plans of the workloads as one, until enough pods have slots; each workload has its own hosts.

        `plan(gang, out)` plans one of them without the hosts of those before it. The caller holds the state's lock.
        """
        found, count = list[tuple[int, Placed]](), 0
        problem: Outcome | None = None
        for number, gang in enumerate(self.gangs):
            if count >= self.needed:
                break
            outcome = plan(gang, frozenset[str]().union(*(one.hosts for _, one in found)))
            if isinstance(outcome, Placed):
                found.append((number, outcome))
                count += outcome.count
            else:
                problem = outcome
        if count < self.needed or not found:
            few = f"room for {count:,} of {plural(self.needed, 'pod')}"
            return Waits("InsufficientFreeHosts", few) if problem is None else problem
        sets = (replace(one, name=_joint_name(number, one.name)) for number, plan in found for one in plan.pod_sets)
        return replace(found[0][1], pod_sets=tuple(sets), domains_used={}, levels={})


def _joint_name(number: int, pod_set: str) -> str:
    return f"{number}/{pod_set}"


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
    needed = group.minimum - group.assigned
    fitting = f"there is room for {most:,} of them"
    if group.assigned:
        has = "has" if group.assigned == 1 else "have"
        fitting = f"{group.assigned:,} {has} slots, and there is room for {most:,} more"
    message = f"{plural(group.minimum, 'pod')} of pod group {group.name} start together; {fitting}"
    if group.minimum == 1:
        message = f"1 pod of pod group {group.name} is enough to start; there is no room for it"
    never = [(gang, outcome) for gang, outcome in missed if isinstance(outcome, Never)]
    if sum(gang.request.count for gang in gangs) - sum(gang.request.count for gang, _ in never) < needed:
        lost, why = never[0]
        return Never(why.reason, f"{message} ({lost.workload.name}: {why.message})")
    for gang, outcome in missed:
        if isinstance(outcome, Waits):
            return Waits(outcome.reason, f"{message} ({gang.workload.name}: {outcome.message})")
    gpus = any("gpu" in name for gang in gangs for shape in gang.shapes.values() for name, _ in shape.requests)
    return Waits("InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts", message)
