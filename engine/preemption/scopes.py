"""Counts what running gangs have of the hosts that a waiting one may use, domain by domain, from the cluster state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.api.names import AUTO
from engine.api.objects import Quota
from engine.api.resources import Requests, is_claim
from engine.cache.reservations import ranges_of
from engine.cache.state import ClusterState
from engine.capacity.quota import usage_under
from engine.gang.gang import Gang, host_of
from engine.gang.key import is_gang_key
from engine.gang.request import PlacementRequest
from engine.gang.slots import request_to_place
from engine.planner.tree import Bools, Ints64, Tree
from engine.policy.namespaces import limits_hosts
from engine.preemption.room import Domains, Holdings, Need, Room, Shortfalls
from engine.preemption.search import Preemptible, Scope
from engine.preemption.victims import Victim
from engine.scheduler.limits import lacking_quota
from engine.scheduler.schedule import kept_assignment
from engine.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Needed:
    """What a waiting gang needs of its topology: by pod set the pods, the hosts and the domains; and of its quotas."""

    gang: Gang
    topology: Topology
    level: int  # that of the domains of which one has to take all its pods; -1: the whole topology
    columns: tuple[str, ...]
    needs: tuple[Need, ...]
    least: int

    def on(self, hosts: slice) -> list[Need]:
        """Return what it needs of a range of the hosts."""
        return [need.on(hosts) for need in self.needs]


def needed_by(view: ClusterState, gang: Gang, topology: Topology) -> Needed:
    """Return what a gang needs at least. The caller holds the state's lock."""
    request, tree = request_to_place(gang), topology.tree
    asks = [ask for ask in request.pod_sets if ask.count]
    kept = {name: len(slots) for name, slots in kept_assignment(gang).items()}
    level = -1 if kept else _level(view, gang, request, topology)
    shapes = [gang.shapes[ask.name] for ask in asks]
    columns = tuple(sorted({name for shape in shapes for name, amount in shape.requests if _counts(name, amount)}))
    of_gang = request.gang.min_available if request.gang is not None else None
    needs = []
    for ask, shape in zip(asks, shapes, strict=True):
        required = None if ask.require == AUTO or kept else topology.level_of(ask.require)
        lowest = level if required is None else max(level, required)
        wanted = 0 if of_gang is not None else min(ask.count, ask.min_available)
        slices = topology.slices(ask.slices) if wanted == ask.count and not kept else ()
        amounts = dict(shape.requests)
        needs.append(
            Need(
                count=max(0, wanted - kept.get(ask.name, 0)),
                requests=np.array([amounts.get(name, 0) for name in columns], dtype=np.int64),
                most=view.capacity.count(shape, topology).empty,
                domains=_domains(tree, lowest),
                slices=tuple((_domains(tree, one.level), one.size) for one in slices if one.level >= lowest),
            )
        )
    return Needed(gang, topology, level, columns, tuple(needs), max(0, request.least - sum(kept.values())))


def scopes_of(
    view: ClusterState, needed: Needed, units: Sequence[Sequence[Victim]], gangs: Sequence[Preemptible]
) -> tuple[list[Scope], Scope | None]:
    """Return the scopes of the search for victims, and the whole of them if those of several may have to end together.

    `units`: the victims that end together, and `gangs` the same in numbers. The caller holds the state's lock.
    """
    topology, tree = needed.topology, needed.topology.tree
    lacks = lacking_quota(view, needed.gang)
    far = bool(lacks) or _far_reaching(view, needed.gang)
    used = [_used(view, needed, unit) for unit in units]
    helps = _helps(view, needed)
    kept = [{place for one in unit for place in places_kept(view, one, topology)} for unit in units]
    places = [{place for place in (*own, *more) if helps[place]} for own, more in zip(used, kept, strict=True)]
    entries = [(gang, host, amounts) for gang, own in enumerate(used) for host, amounts in own.items() if helps[host]]
    entries.sort(key=lambda one: one[1])
    held = Holdings(
        np.array([gang for gang, _, _ in entries], dtype=np.int64),
        np.array([host for _, host, _ in entries], dtype=np.int64),
        np.array([amounts for _, _, amounts in entries], dtype=np.int64).reshape(-1, len(needed.columns)),
    )
    frees = [[sum(_freed(view, one, quota, name) for one in unit) for quota, name, _ in lacks] for unit in units]
    shortfalls = Shortfalls(
        np.array([lack for _, _, lack in lacks], dtype=np.int64),
        np.array(frees, dtype=np.int64).reshape(len(units), len(lacks)),
    )
    columns = [view.capacity.free_of(name, topology) for name in needed.columns]
    free = np.stack(columns, axis=1) if columns else np.zeros((len(tree.hosts), 0), dtype=np.int64)

    def scope(members: Sequence[int], hosts: slice) -> Scope:
        """Return the scope of some gangs on a range of hosts."""
        own = shortfalls.of(np.array(members, dtype=np.int64))
        room = Room(free[hosts], needed.on(hosts), held.of(members, hosts), own, least=needed.least)
        return Scope([gangs[one] for one in members], room)

    scopes: list[Scope] = []
    if needed.level >= 0:
        domain_of = tree.domains[needed.level]
        inside: dict[int, list[int]] = {}
        for gang, own in enumerate(places):
            for domain in {int(domain_of[place]) for place in own}:
                inside.setdefault(domain, []).append(gang)
        scopes = [
            scope(members, slice(*tree.range(needed.level, domain))) for domain, members in sorted(inside.items())
        ]
        if not far:
            return scopes, None
    members = [gang for gang, own in enumerate(places) if own or far]
    whole = scope(members, slice(0, len(tree.hosts)))
    return (scopes, whole) if scopes else ([whole], None)


def _domains(tree: Tree, level: int) -> Domains:
    if level < 0:
        return Domains(np.zeros(len(tree.hosts), dtype=np.int64), 1)
    return Domains(tree.domains[level].astype(np.int64), tree.size(level))


def _level(view: ClusterState, gang: Gang, request: PlacementRequest, topology: Topology) -> int:
    """Return the level of the domains of which one has to take the whole gang, and may have to be its own; -1: none."""
    asks = [ask for ask in request.pod_sets if ask.count]
    named = request.gang.require if request.gang is not None else None
    if named is None and len(asks) == 1:
        named = asks[0].require
    level: int | None
    if named == AUTO:
        level = None
        if gang.has_pod_constraints:
            level = 0  # by the rules among its pods it may mean any level: a domain of the coarsest has it within
        elif len(asks) == 1 and request.gang is None:
            empty = view.capacity.count(gang.shapes[asks[0].name], topology).empty
            level = topology.auto_level(asks[0].count, asks[0].slices, empty=empty)
            level = topology.allowed_level(level, request.levels)
    else:
        level = topology.level_of(named)
    if level is None:
        return -1
    exclusive = topology.level_of(request.separation.exclusive) if request.separation is not None else None
    return level if exclusive is None else min(level, exclusive)


def _far_reaching(view: ClusterState, gang: Gang) -> bool:
    """Return whether the end of a gang may help one that gets none of its hosts: by a rule that reaches that far."""
    return (
        view.nearby.keeps_away
        or gang.has_pod_constraints
        or has_host_limit(view, gang)
        or (gang.request.separation is not None and gang.request.separation.spread is not None)
    )


def has_host_limit(view: ClusterState, gang: Gang) -> bool:
    """Return whether the hosts of a gang's namespace are limited: then it may fit beside gangs, and not without them.

    The hosts that these have do not count as new ones.
    """
    return limits_hosts(gang.workload.namespace, view.policy)


def _helps(view: ClusterState, needed: Needed) -> Bools:
    """Return the hosts where the end of a pod may help: those that its pods may use; all, where gangs keep domains."""
    if needed.gang.request.separation is not None or any(True for _ in view.gangs.kept_domains.exclusive()):
        return np.ones(len(needed.topology.tree.hosts), dtype=np.bool_)
    helps: Bools = np.any([need.most > 0 for need in needed.needs], axis=0)
    return helps


def _used(view: ClusterState, needed: Needed, unit: Sequence[Victim]) -> dict[int, Ints64]:
    """Return what gangs have of the columns on each host of the topology, by index."""
    index, used = needed.topology.tree.index, dict[int, Ints64]()
    column = {name: number for number, name in enumerate(needed.columns)}

    def add(host: str | None, requests: Requests, count: int) -> None:
        if host is None or (place := index.get(host)) is None:
            return
        amounts = used.setdefault(place, np.zeros(len(column), dtype=np.int64))
        for name, amount in requests:
            if (number := column.get(name)) is not None:
                amounts[number] += amount * count

    for victim in unit:
        for pod in victim.pods:
            if not pod.finished:
                add(pod.spec.node_name or pod.nominated_node or host_of(pod), pod.spec.shape.requests, 1)
        for key in victim.keys:
            for _, host, reserved in view.capacity.reservations_of(key):
                add(host, reserved.requests, reserved.count)
    return used


def places_kept(view: ClusterState, victim: Victim, topology: Topology) -> Iterator[int]:
    """Yield the hosts of the domains that an exclusive gang keeps for itself, by index."""
    for key in filter(is_gang_key, victim.keys):
        for plan in view.gangs.kept_domains.of(key):
            own = view.topologies.get(plan.topology)
            if own is None or own.waits or plan.separation is None:
                continue
            level = own.level_of(plan.separation.exclusive)
            for first, end in ranges_of(plan, own.tree, len(own.levels) - 1 if level is None else level):
                hosts = own.tree.hosts[first:end]
                yield from (place for host in hosts if (place := topology.tree.index.get(host)) is not None)


def _freed(view: ClusterState, victim: Victim, quota: Quota, name: str) -> int:
    """Return how much of a quota the end of a victim frees at most."""
    if victim.namespace != quota.namespace:
        return 0
    ending = [(pod.spec, 1) for pod in victim.pods if not pod.finished and victim.frees_quota]
    to_come = []
    for key in filter(is_gang_key, victim.keys):
        workload = view.gangs.workload_of(key)
        for pod_set in workload.pod_sets if workload is not None else ():
            count = view.capacity.reserved_by(key).get(pod_set.name, 0)
            if workload is not None and count:
                to_come.append((view.pod_shapes.spec_of(workload, pod_set), count))
    return usage_under(quota, [*ending, *to_come])[name]


def _counts(name: str, amount: int) -> bool:
    return amount > 0 and not is_claim(name)
