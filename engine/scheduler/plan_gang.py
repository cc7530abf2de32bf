"""Slots for pods that are not planned one by one: several pod sets at once, and pods that join others which stay.

Where there is one pod set its slots stand for resources, as its pods are equal. Else every requested resource counts,
and of pods that ask for devices also the slots that the host's devices leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.api.names import AUTO
from engine.api.placement import GangRequest, PodSetPlan, PodSetRequest, Slot
from engine.api.pod import Shape
from engine.api.rank import join_ranks
from engine.api.reasons import Code
from engine.api.text import join_and, plural, sanitize
from engine.cache.capacity import Capacity
from engine.gang.shape import repairable
from engine.planner.gang import GangPlan, GangPlanRequest, HostAssignment, PodSetPlanRequest, Undecided
from engine.planner.plan import NoFit
from engine.planner.plan_gang import plan_gang
from engine.policy.model import Policy
from engine.scheduler.explain import placed_text
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.topology.topology import Topology

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Hosts on which the numbers of two pod sets go together and their devices do not, before the search is given up.
_DEVICE_TRIES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """A gang on a topology: pod sets that want pods (`asks`), all of them together (`gang`), and what is in the way.

    `left_out`: hosts that take nothing this time; `kept`: pod set -> rank -> host of the pods that stay where they are;
    `emptied`: hosts that count as if nobody were there.
    """

    asks: tuple[PodSetRequest, ...]
    gang: GangRequest | None
    shapes: Mapping[str, Shape]
    topology: Topology
    left_out: frozenset[str]
    kept: Mapping[str, Mapping[int, str]]
    emptied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _FreeResources:
    """What is free by host and column, what each pod set asks of the columns, and where it may go."""

    free: Ints
    requests: tuple[tuple[int, ...], ...]
    eligible: tuple[Mask, ...]


def plan_pod_sets(
    question: PlanInput,
    *,
    capacity: Capacity,
    policy: Policy,
    scarce: Ints,
    explain: Callable[[NoFit, PodSetRequest], Outcome],
) -> Outcome:
    """Slots for every pod set, or for as many pods as make the gang, or why there are none. Nothing is changed.

    `scarce`: what is free by host of the resource that ties go by; `explain` puts into words why one pod set has no
    room even alone.
    """
    tree = question.topology.tree
    hosts = [host for ranks in question.kept.values() for host in ranks.values()]
    if astray := sorted(host for host in hosts if host not in tree.index):
        return Waits("NodesExcluded", f"a pod of the gang is on {sanitize(astray[0])}, outside the topology")
    gang = _resolved(question, capacity, policy)
    ground = _ground(question, capacity)
    if question.emptied:
        vacated = [tree.index[host] for host in question.emptied - question.left_out]
        ground.free[vacated] = _ground(question, capacity, empty=True).free[vacated]
    for _ in range(_DEVICE_TRIES):
        try:
            answer = plan_gang(tree, ground.free, _asking(gang, ground), scarce)
        except ValueError:  # the pods that stay are not where the request wants them: somebody else put them there
            return Waits("Fragmented", "the pods that run are not all in the domains that it requires; it cannot grow")
        match answer:
            case GangPlan():
                if (crowded := _crowded(question, answer, capacity)) is None:
                    return _placed(question, gang, answer)
                ground.eligible[crowded[0]][crowded[1]] = False
            case NoFit():
                return _no_room(question, gang, answer, capacity, explain)
            case Undecided():
                break
    missing = plural(_count(question), "pod")
    return Waits("SearchLimit", f"the search for room for {missing} ran out of its {policy.planner.steps:,} steps")


def _ground(question: PlanInput, capacity: Capacity, *, empty: bool = False, mended: bool = False) -> _FreeResources:
    """The hosts as they are, or, `empty`, with nobody on them, or, `mended`, as if nothing were wrong with them too."""
    topology = question.topology
    empty |= mended
    shapes = [question.shapes[ask.name] for ask in question.asks]
    out = np.zeros(len(topology.tree.hosts), dtype=np.bool_)
    if not empty:
        out[[topology.tree.index[host] for host in question.left_out]] = True
    if len(shapes) == 1:
        counted = capacity.count(shapes[0], topology)
        slots = counted.built if mended else counted.empty if empty else counted.free
        return _FreeResources(np.where(out, 0, slots)[:, None], ((1,),), (~out,))
    names = sorted({name for shape in shapes for name, amount in shape.requests if amount > 0})
    columns = [capacity.free_of(name, topology, empty=empty) for name in names]
    requests = [[dict(shape.requests).get(name, 0) for name in names] for shape in shapes]
    # Pods of one shape share a column: to the planner they are alike then, and their ranks go on from one to the next.
    for shape in dict.fromkeys(shape for shape in shapes if shape.devices is not None):
        counted = capacity.count(shape, topology)
        columns.append(counted.built if mended else counted.empty if empty else counted.free)
        for other, one in zip(shapes, requests, strict=True):
            one.append(int(other == shape))
    eligible = tuple(_open_to(shape, topology, capacity, mended=mended) & ~out for shape in shapes)
    return _FreeResources(np.stack(columns, axis=1), tuple(map(tuple, requests)), eligible)


def _open_to(shape: Shape, topology: Topology, capacity: Capacity, *, mended: bool) -> Mask:
    if not mended:
        return capacity.eligible(shape, topology)
    reasons = capacity.reasons(shape, topology)
    return np.array([not reason or repairable(reason) for reason in reasons], dtype=np.bool_)


def _resolved(question: PlanInput, capacity: Capacity, policy: Policy) -> GangPlanRequest:
    """The gang with its levels as indices, without columns; `auto` is the lowest level that ever holds the pods."""
    topology = question.topology
    required = {ask.name: topology.level_of(ask.require) for ask in question.asks}
    pod_sets = tuple(_pod_set(question, ask, required[ask.name]) for ask in question.asks)
    whole = question.gang
    gang = GangPlanRequest(
        pod_sets,
        require=topology.level_of(whole.require) if whole is not None else None,
        prefer=topology.level_of(whole.prefer) if whole is not None else None,
        least=_least(question),
        profile=policy.planner.profile,
        steps=policy.planner.steps,
    )
    empty: _FreeResources | None = None
    for number, ask in enumerate(question.asks):
        if ask.require == AUTO:
            mates = [
                other
                for other, one in enumerate(question.asks)
                if other == number or (ask.colocate is not None and one.colocate == ask.colocate)
            ]
            if len(mates) == 1:
                counted = capacity.count(question.shapes[ask.name], topology)
                level = topology.auto_level(ask.count, ask.slices, empty=counted.empty)
            else:
                empty = empty or _ground(question, capacity, empty=True)
                level = _lowest_together(question, gang, empty, mates)
            level = min(level, _shared_level(question, mates))
            pod_sets = tuple(replace(one, require=level) if i in mates else one for i, one in enumerate(pod_sets))
    gang = replace(gang, pod_sets=tuple(map(_without_idle_prefer, _shared_levels(pod_sets))))
    if whole is not None and whole.require == AUTO:
        empty = empty or _ground(question, capacity, empty=True)
        every = list(range(len(pod_sets)))
        level = min(_lowest_together(question, gang, empty, every), _shared_level(question, every))
        gang = replace(gang, require=level)
    if gang.require is not None and gang.prefer is not None and gang.prefer <= gang.require:
        gang = replace(gang, prefer=None)
    return gang


def _pod_set(question: PlanInput, ask: PodSetRequest, require: int | None) -> PodSetPlanRequest:
    topology = question.topology
    kept = question.kept.get(ask.name, {})
    return PodSetPlanRequest(
        count=ask.count,
        requests=(),
        require=require,
        prefer=topology.level_of(ask.prefer),
        slices=topology.slices(ask.slices),
        colocate=ask.colocate,
        least=ask.min_available if ask.min_available < ask.count or _least(question) is not None else None,
        kept={rank: topology.tree.index[host] for rank, host in kept.items()},
    )


def _least(question: PlanInput) -> int | None:
    """The minimum of the whole gang, where it is less than all of its pods."""
    least = question.gang.min_available if question.gang is not None else None
    return least if least is not None and 1 <= least < _count(question) else None


def _shared_levels(pod_sets: tuple[PodSetPlanRequest, ...]) -> tuple[PodSetPlanRequest, ...]:
    """Whoever shares a domain requires the level that one of them names."""
    named = {one.colocate: one.require for one in pod_sets if one.colocate is not None and one.require is not None}
    return tuple(
        replace(one, require=named[one.colocate]) if one.require is None and one.colocate in named else one
        for one in pod_sets
    )


def _without_idle_prefer(pods: PodSetPlanRequest) -> PodSetPlanRequest:
    """`auto` may go below what is preferred: nothing is left to prefer then."""
    idle = pods.require is not None and pods.prefer is not None and pods.prefer <= pods.require
    return replace(pods, prefer=None) if idle else pods


def _shared_level(question: PlanInput, mates: list[int]) -> int:
    """The finest level of which one domain holds all pods of these pod sets that stay; `auto` is no finer than that."""
    tree = question.topology.tree
    hosts = [tree.index[host] for i in mates for host in question.kept.get(question.asks[i].name, {}).values()]
    for level in range(len(tree.levels) - 1, 0, -1):
        if len({tree.domain_of(level, host) for host in hosts}) <= 1:
            return level
    return 0


def _lowest_together(question: PlanInput, gang: GangPlanRequest, empty: _FreeResources, mates: list[int]) -> int:
    """The finest level of which one empty domain holds these pod sets; the coarsest when none does."""
    tree = question.topology.tree
    members = tuple(
        replace(
            gang.pod_sets[i],
            requests=empty.requests[i],
            eligible=empty.eligible[i],
            kept={},
            colocate=None,
            least=None,
        )
        for i in mates
    )
    for level in range(len(tree.levels) - 1, -1, -1):
        finer = tuple(
            replace(one, require=None) if one.require is not None and one.require <= level else one for one in members
        )
        if isinstance(plan_gang(tree, empty.free, replace(gang, pod_sets=finer, require=level, least=None)), GangPlan):
            return level
    return 0


def _asking(gang: GangPlanRequest, ground: _FreeResources) -> GangPlanRequest:
    """The gang with what it asks of the columns of the ground."""
    pod_sets = tuple(
        replace(pods, requests=requests, eligible=eligible)
        for pods, requests, eligible in zip(gang.pod_sets, ground.requests, ground.eligible, strict=True)
    )
    return replace(gang, pod_sets=pod_sets)


def _crowded(question: PlanInput, answer: GangPlan, capacity: Capacity) -> tuple[int, int] | None:
    """A pod set and a host that cannot go together there: the numbers do, the devices do not. None: all do."""
    wanted: dict[int, list[tuple[int, int]]] = {}  # host -> pod set, its new pods there
    for number, (ask, seats) in enumerate(zip(question.asks, answer.pod_sets, strict=True)):
        if question.shapes[ask.name].devices is not None:
            there = Counter(host for rank, host in enumerate(seats.ranks) if host >= 0)
            there.subtract(question.topology.tree.index[host] for host in question.kept.get(ask.name, {}).values())
            for host, count in there.items():
                if count > 0:
                    wanted.setdefault(host, []).append((number, count))
    for host, pods in wanted.items():
        if len(pods) > 1:
            devices = [(question.shapes[question.asks[number].name].devices, count) for number, count in pods]
            requests = [(device, count) for device, count in devices if device is not None]
            if not capacity.devices_fit(question.topology.tree.hosts[host], requests):
                return min(pods, key=lambda one: one[1])[0], host
    return None


def _placed(question: PlanInput, gang: GangPlanRequest, answer: GangPlan) -> Placed:
    topology = question.topology
    plans = [_plan(ask, seats, topology) for ask, seats in zip(question.asks, answer.pod_sets, strict=True)]
    used = {one.name: number for one, number in zip(topology.levels, answer.domains_used, strict=True)}
    slots = [slot for plan in plans for slot in plan.slots]
    levels = {
        ask.name: (_alias(topology, pods.require), _alias(topology, pods.prefer))
        for ask, pods in zip(question.asks, gang.pod_sets, strict=True)
    }
    own = levels[question.asks[0].name] if question.gang is None and len(question.asks) == 1 else None
    require, prefer = own or (_alias(topology, gang.require), _alias(topology, gang.prefer))
    return Placed(
        pod_sets=tuple(plans),
        domains_used=used,
        proven=answer.proven,
        message=placed_text(sum(slot.count for slot in slots), [slot.domain for slot in slots], tuple(used)),
        require=require,
        prefer=prefer,
        levels=levels,
    )


def _plan(ask: PodSetRequest, seats: HostAssignment, topology: Topology) -> PodSetPlan:
    """The slots in the order of their lowest rank; of pods without ranks in the order of the tree."""
    tree = topology.tree
    ranks: dict[int, list[tuple[int, int]]] = {}
    for rank, host in enumerate(seats.ranks):
        if host >= 0:
            ranks.setdefault(host, []).append((rank, rank))
    return PodSetPlan(
        ask.name,
        tuple(
            Slot(
                domain=tree.path(len(tree.levels) - 1, host),
                count=len(own),
                ranks=join_ranks(own) if ask.ranked else None,
            )
            for host, own in ranks.items()
        ),
    )


def _no_room(
    question: PlanInput,
    gang: GangPlanRequest,
    answer: NoFit,
    capacity: Capacity,
    explain: Callable[[NoFit, PodSetRequest], Outcome],
) -> Outcome:
    topology = question.topology
    if any(question.kept.values()):
        missing = plural(max(1, _wanted(question) - sum(map(len, question.kept.values()))), "pod")
        level = _alias(topology, answer.level if answer.level >= 0 else None)
        where = f"the {level} of those that run" if level else "the topology"
        return Waits("Fragmented", f"needs room for {missing} more in {where}")
    if answer.pod_set is not None:
        ask = question.asks[answer.pod_set]
        told = explain(answer, ask)
        return told if len(question.asks) == 1 else replace(told, message=f"pod set {ask.name}: {told.message}")
    ever = _ground(question, capacity, mended=True)
    shares = join_and([f"{ask.count:,} of {ask.name}" for ask in question.asks])
    shared = answer.level if answer.level >= 0 else gang.require
    where = f" in one {_alias(topology, shared)}" if shared is not None else ""
    wanted = _wanted(question)
    of_all = f"{wanted:,} of " if wanted < _count(question) else ""
    asked = f"needs room for {of_all}{plural(_count(question), 'pod')} ({shares}){where}"
    if isinstance(plan_gang(topology.tree, ever.free, _asking(gang, ever)), NoFit):
        return Never("GangTooLarge", f"{asked}; each pod set has room alone, even empty hosts have none for all")
    reason: Code = "Fragmented"
    if answer.level < 0:
        gpus = any("gpu" in name for shape in question.shapes.values() for name, _ in shape.requests)
        reason = "InsufficientFreeGPUs" if gpus else "InsufficientFreeHosts"
    return Waits(reason, f"{asked}; each pod set has room alone, all of them together have none now")


def _count(question: PlanInput) -> int:
    return sum(ask.count for ask in question.asks)


def _wanted(question: PlanInput) -> int:
    """How many pods make the gang."""
    return _least(question) or sum(min(ask.count, ask.min_available) for ask in question.asks)


def _alias(topology: Topology, level: int | None) -> str | None:
    return None if level is None else topology.levels[level].name
