"""The gangs that may be moved, what each of them could free, and the slots that a gang lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engine.api.names import AUTO
from engine.api.placement import PodSetRequest
from engine.api.text import quote
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.gang.gang import Gang, can_suspend, host_of, over
from engine.gang.key import is_gang_key
from engine.gang.slots import request_to_place
from engine.policy.making_room import Protect
from engine.preemption.move_search import SlotNeed
from engine.preemption.scopes import places_kept
from engine.preemption.victims import Victim, is_protected, managed
from engine.scheduler.nomination import level_to_compare
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class MovableGang:
    """A running gang that may restart elsewhere; `pods`: those that it has slots for; `started`: when it got them.

    `hosts`: where it has pods or slots.
    """

    key: GangKey
    victim: Victim
    pods: int
    started: float
    hosts: frozenset[str]


def movable(
    view: ClusterState, *, priority: int, protect: Protect, now: float, spared: Collection[GangKey] = ()
) -> Iterator[MovableGang]:
    """Yield the gangs that may restart for one of this priority: whole workloads that can be suspended, not above it.

    `protect`: what the policy leaves alone; `now` in seconds since the epoch; `spared`: gangs that stay too. The caller
    holds the state's lock.
    """
    for one in managed(view):
        key = one.keys[0] if one.keys else None
        if is_protected(one, protect, now):
            continue
        if key is None or not is_gang_key(key) or one.priority > priority or key in spared or view.gangs.holds(key):
            continue
        gang = view.gangs.get(key)
        if gang is None or not restarts_alone(gang) or gang.placement is None:
            continue
        assignment = gang.placement.assignment
        if assignment is None:
            continue
        hosts = assignment.hosts | {
            host for pod in gang.pods if not pod.finished and (host := host_of(pod)) is not None
        }
        yield MovableGang(key, one, assignment.count, one.started, hosts)


def restarts_alone(gang: Gang) -> bool:
    """Return True if a gang can be suspended and planned anew, and nothing but the gang itself restarts then.

    One whose request is refused by now (the policy has lost its level) or gone has its slots, and would get no others.
    """
    alone = gang.pod_group is None or len(gang.pod_group.members) == 1
    whole = alone and gang.group is None and bool(gang.request.pod_sets)
    return whole and can_suspend(gang.workload) and not over(gang.workload)


def cannot_move(view: ClusterState, gang: Gang) -> str:
    """Return why a gang that restarts would not come back, or take others along; "" if it may be moved.

    The caller holds the state's lock.
    """
    if not restarts_alone(gang):
        return "it cannot be suspended alone"
    return not_creatable(view, gang)


def not_creatable(view: ClusterState, gang: Gang) -> str:
    """Return why the pods of a running gang could not be created again; "" if nothing is known that prevents it.

    The caller holds the state's lock.
    """
    classes = map(view.pod_shapes.missing_class, gang.workload.pod_sets)
    if (missing := next(filter(None, classes), None)) is not None:
        return f"PriorityClass {quote(missing)} not found, so that its pods could not be created again"
    for quota in view.stores.quotas.get_by(gang.workload.namespace):
        if any(amount > quota.hard.get(resource, amount) for resource, amount in quota.used.items()):
            return f"quota {quote(quota.name)} is exceeded, so that its pods could not be created again"
    return ""


def room_in_total(view: ClusterState, gang: Gang, topology: Topology) -> bool:
    """Return False if all free resources of a topology together are too few for a gang: moves free none."""
    needed: Counter[str] = Counter()
    for ask in request_to_place(gang).pod_sets:
        for resource, amount in gang.shapes[ask.name].requests:
            needed[resource] += amount * _wanted(ask)
    return all(int(view.capacity.free_of(name, topology).sum()) >= amount for name, amount in needed.items() if amount)


def need_of(
    view: ClusterState,
    gang: Gang,
    others: Iterable[MovableGang],
    topology: Topology,
    *,
    level: int,
    left_out: Collection[str] = (),
) -> SlotNeed:
    """Return the slots that a gang lacks in each domain of a level (-1: the whole topology) that could hold it.

    Counted are all of its pod sets together. `others`: the gangs that may be moved; `left_out`: hosts that it may not
    use. Where more than slots decides, any gang may be in the way. The caller holds the state's lock.
    """
    tree = topology.tree
    here = np.ones(len(tree.hosts), dtype=np.bool_)
    here[[tree.index[host] for host in left_out if host in tree.index]] = False
    size = tree.size(level) if level >= 0 else 1
    lack, gain = np.zeros(size, dtype=np.int64), np.zeros(len(tree.hosts), dtype=np.int64)
    possible = np.ones(size, dtype=np.bool_)
    for ask in filter(_wanted, request_to_place(gang).pod_sets):
        counted = view.capacity.count(gang.shapes[ask.name], topology)
        free, empty = counted.free * here, counted.empty * here
        lack += np.maximum(0, _wanted(ask) - tree.sums(level, free))
        possible &= tree.sums(level, empty) >= _wanted(ask)
        gain += np.maximum(0, empty - free)
    if _rules(view, gang):
        lack[:] = 0
        gain[:] = 1
    gains: dict[int, dict[str, dict[int, int]]] = {}
    for other in others:
        there = (tree.index[host] for host in other.hosts if host in tree.index)
        for place in {*there, *places_kept(view, other.victim, topology)}:
            if gain[place]:
                domain = tree.domain_of(level, place) if level >= 0 else 0
                if possible[domain]:
                    gains.setdefault(domain, {}).setdefault(other.key, {})[place] = int(gain[place])
    free_slots = {domain: -int(lack[domain]) for domain in np.flatnonzero(possible).tolist()}
    return SlotNeed(0, free_slots, gains)


def required_level(view: ClusterState, gang: Gang, topology: Topology) -> int:
    """Return the level of which one domain takes the whole gang, and may have to be its own; -1 if none does.

    The caller holds the state's lock.
    """
    request = request_to_place(gang)
    asks = [ask for ask in request.pod_sets if ask.count]
    whole = gang.request.gang.require if gang.request.gang is not None else None
    together = len(asks) == 1 or (asks[0].colocate is not None and len({ask.colocate for ask in asks}) == 1)
    named = [whole] if whole is not None else [ask.require for ask in asks if together and ask.require is not None]
    if not named:
        return -1
    ruled = AUTO in named and gang.has_pod_constraints
    if len(asks) == 1 and not ruled:
        level = level_to_compare(request, gang.shapes, view.capacity, topology)
    elif AUTO in named:
        level = _auto_level(view, gang, topology, pod_set=asks[0].name if whole is None else None)
    else:
        level = min((found for one in named if (found := topology.level_of(one)) is not None), default=-1)
    exclusive = topology.level_of(request.separation.exclusive) if request.separation is not None else None
    return level if exclusive is None else min(level, exclusive)


def _auto_level(view: ClusterState, gang: Gang, topology: Topology, *, pod_set: str | None) -> int:
    """Return the level that `auto` means for all pod sets together: that of a plan on empty hosts.

    The coarsest one where there is no such plan: whatever `auto` means, a domain of that has it within. `pod_set`: one
    of those that name it; None: the whole gang does.
    """
    outcome = schedule_gang(view, gang, kept={}, emptied=frozenset(topology.tree.hosts), creatable=True)
    if not isinstance(outcome, Placed):
        return 0
    return topology.level_of(outcome.require if pod_set is None else outcome.levels_of(pod_set)[0]) or 0


def preferred_level(gang: Gang, topology: Topology) -> int | None:
    """Return the finest level on which a gang prefers few domains; None if it prefers none."""
    asked = [gang.request.gang.prefer] if gang.request.gang is not None else []
    asked += [ask.prefer for ask in gang.request.pod_sets]
    found = [level for one in asked if one is not None and (level := topology.level_of(one)) is not None]
    return max(found, default=None)


def as_close(domains: Mapping[str, int], now: Mapping[str, int], *, down_to: int) -> bool:
    """Return True if a plan uses no more domains than another, compared from the coarsest level down to this one."""
    levels = list(now)[: down_to + 1]
    return tuple(domains.get(level, 0) for level in levels) <= tuple(now[level] for level in levels)


def _wanted(ask: PodSetRequest) -> int:
    return min(ask.count, ask.min_available)


def _rules(view: ClusterState, gang: Gang) -> bool:
    """Return True if other gangs or pods may keep the gang out of hosts with free slots."""
    if gang.request.separation is not None or any(True for _ in view.gangs.kept_domains.exclusive()):
        return True
    return view.nearby.keeps_away or gang.has_pod_constraints
