"""Chooses the hosts to keep for a starving gang: enough for all its pods once they are empty, and as empty as possible.

It is not known when pods end, so hosts are compared by how many pods of the gang lack a slot. Hosts are added one after
the other, first those of the domain that lacks least, until the planner places the gang on them as if they were empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from engine.api.names import AUTO
from engine.api.placement import PodSetRequest
from engine.api.pod import Pod, Shape
from engine.api.text import plural, sanitize
from engine.capacity.capacity import Capacity
from engine.gang.request import PlacementRequest
from engine.planner.plan import domain_slots
from engine.planner.tree import Ints64
from engine.scheduler.outcome import Outcome, Placed
from engine.scheduler.separation import exclusive_hosts
from engine.scheduler.starvation import Nomination, StarvingGang
from engine.topology.topology import Topology

# Plans the gang with the first hosts taken as empty and without the second ones.
PlanOn = Callable[[frozenset[str], frozenset[str]], Outcome]

# Plans to find hosts on which pods that never end (of DaemonSets) leave too little: each plan finds some.
_TRIES = 8
# The owners of pods that never end: every host has such pods, also one that is kept free.
_PERMANENT_OWNERS = frozenset({"DaemonSet", "Node"})


def nominate_hosts(
    waiting: StarvingGang,
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    name: str,
    kept: Nomination | None,
    capacity: Capacity,
    topology: Topology,
    pods: Collection[Pod],
    plan: PlanOn,
) -> Nomination | None:
    """Return the hosts to keep for a gang; None if no hosts of the topology would help it, even empty.

    Hosts that are kept already (`kept`) stay while no others lack fewer slots. `plan(emptied, out)` plans the gang;
    `pods` are those of the cluster, to know what stays on a host that is kept.
    """
    found = _plan_on_emptied_hosts(request, shapes, capacity=capacity, topology=topology, pods=pods, plan=plan)
    if found is None:
        return None
    if kept is not None and kept.hosts <= topology.tree.index.keys():
        stays = plan(kept.hosts, frozenset(topology.tree.hosts) - kept.hosts)
        if (
            isinstance(stays, Placed)
            and not _overfilled(stays, shapes, capacity, topology, pods)
            and _missing_slots(stays, shapes, capacity, topology) <= _missing_slots(found, shapes, capacity, topology)
        ):
            return kept if kept.where else replace(kept, where=where_text(stays, topology))
    hosts = found.hosts
    hosts = exclusive_hosts(hosts, request.separation, topology)
    return Nomination(waiting.key, name, waiting.priority, waiting.topology, hosts, where_text(found, topology))


def _plan_on_emptied_hosts(
    request: PlacementRequest,
    shapes: Mapping[str, Shape],
    *,
    capacity: Capacity,
    topology: Topology,
    pods: Collection[Pod],
    plan: PlanOn,
) -> Placed | None:
    """Return the plan that empties as few busy hosts as possible; None if emptying all would not help."""
    order = _candidate_hosts(request, shapes, capacity, topology)
    out: frozenset[str] = frozenset()
    for _ in range(_TRIES):
        found = _fewest_emptied([host for host in order if host not in out], out, plan)
        if found is None:
            return None
        crowded = _overfilled(found, shapes, capacity, topology, pods)
        if not crowded:
            return found
        out |= crowded
    return None


def _missing_slots(found: Placed, shapes: Mapping[str, Shape], capacity: Capacity, topology: Topology) -> int:
    """Return how many pods of a plan have no free slot yet on their hosts."""
    wanted: dict[Shape, Counter[str]] = {}  # pod sets of one shape share the slots of a host
    for pods in found.pod_sets:
        for slot in pods.slots:
            wanted.setdefault(shapes[pods.name], Counter())[slot.host] += slot.count
    missing = 0
    for shape, by_host in wanted.items():
        free = capacity.count(shape, topology).free
        missing += sum(max(0, count - int(free[topology.tree.index[host]])) for host, count in by_host.items())
    return missing


def where_text(found: Placed, topology: Topology) -> str:
    """Return the hosts of a plan as text: the finest domain with all of them, else their number."""
    paths = [slot.domain for pods in found.pod_sets for slot in pods.slots]
    shared = 0
    while len({path[: shared + 1] for path in paths}) == 1 and shared < len(topology.levels):
        shared += 1
    hosts = plural(len({path[-1] for path in paths}), "host")
    if shared == 0:
        return hosts
    if shared == len(topology.levels):
        return sanitize(paths[0][-1])
    return f"{sanitize(paths[0][shared - 1])} ({hosts})"


def _fewest_emptied(order: list[str], out: frozenset[str], plan: PlanOn) -> Placed | None:
    """Return the plan that empties the fewest hosts from the start of the order; None if none fits."""
    best = plan(frozenset(order), out)
    if not isinstance(best, Placed):
        return None
    low, high = 0, len(order)  # it fits with the first `high`
    while low < high:
        middle = (low + high) // 2
        answer = plan(frozenset(order[:middle]), out)
        if isinstance(answer, Placed):
            best, high = answer, middle
        else:
            low = middle + 1
    return best


def _candidate_hosts(
    request: PlacementRequest, shapes: Mapping[str, Shape], capacity: Capacity, topology: Topology
) -> list[str]:
    """Return the hosts for pods of the gang, first those in domains that lack least, then the least busy."""
    tree = topology.tree
    asks = [ask for ask in request.pod_sets if ask.count]
    counts, first = {ask.name: capacity.count(shapes[ask.name], topology) for ask in asks}, request.first_counts
    level = _level(request, asks, counts[_largest(asks).name].empty, topology)
    exclusive = topology.level_of(request.separation.exclusive) if request.separation is not None else None
    if exclusive is not None:
        level = min(level, exclusive) if level >= 0 else exclusive
    lack = np.zeros(tree.size(level) if level >= 0 else 1, dtype=np.int64)
    busy = np.zeros(len(tree.hosts), dtype=np.float64)
    useful = np.zeros(len(tree.hosts), dtype=np.bool_)
    wanted = Counter[tuple[Shape, tuple[tuple[str, int], ...]]]()  # pod sets of one shape share the slots of a domain
    for ask in asks:
        wanted[shapes[ask.name], ask.slices] += first[ask.name]
    for (shape, slices), pods in wanted.items():
        free = capacity.count(shape, topology).free
        lack += np.maximum(0, pods - domain_slots(tree, free, level, topology.slices(slices)))
    for ask in asks:
        counted = counts[ask.name]
        busy += (counted.empty - counted.free) / np.maximum(counted.empty, 1)
        useful |= counted.empty > 0
    if exclusive is not None:
        useful[:] = True  # other gangs must leave these hosts of its domain too
    of_host = lack[tree.domains[level]] if level >= 0 else np.zeros(len(tree.hosts), dtype=np.int64)
    domain = tree.domains[level] if level >= 0 else of_host
    order = np.lexsort((np.arange(len(tree.hosts)), busy, domain, of_host))
    return [tree.hosts[host] for host in order.tolist() if useful[host]]


def level_to_compare(
    request: PlacementRequest, shapes: Mapping[str, Shape], capacity: Capacity, topology: Topology
) -> int:
    """Return the level of the domains of which one has to take a gang, or should; -1 for the whole topology."""
    asks = [ask for ask in request.pod_sets if ask.count]
    return _level(request, asks, capacity.count(shapes[_largest(asks).name], topology).empty, topology)


def _level(request: PlacementRequest, asks: list[PodSetRequest], empty: Ints64, topology: Topology) -> int:
    """Return the level of the domains to compare; -1 for the whole topology.

    Domains that are too small for the gang count too: with their hosts emptied no plan changes.
    """
    largest = _largest(asks)
    gang = request.gang
    required = (gang.require if gang is not None else None) or largest.require
    if required == AUTO:
        lowest = topology.auto_level(largest.count, largest.slices, empty=empty)
        return topology.allowed_level(lowest, request.levels)
    preferred = (gang.prefer if gang is not None else None) or largest.prefer
    index = topology.level_of(required or preferred)
    return index if index is not None else -1


def _largest(asks: list[PodSetRequest]) -> PodSetRequest:
    return max(asks, key=lambda ask: ask.count)


def _permanent_usage(pods: Iterable[Pod], hosts: frozenset[str], capacity: Capacity) -> dict[str, Counter[str]]:
    """Return the usage of pods that never end on these hosts, by host and resource; with those that are to come."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.spec.node_name not in hosts:
            continue
        if pod.owner is not None and pod.owner.kind in _PERMANENT_OWNERS and not pod.finished:
            used.setdefault(pod.spec.node_name, Counter()).update(dict(pod.spec.shape.requests))
    for host in hosts:
        for requests in capacity.expected_on(host):
            used.setdefault(host, Counter()).update(dict(requests))
    return used


def _overfilled(
    found: Placed,
    shapes: Mapping[str, Shape],
    capacity: Capacity,
    topology: Topology,
    pods: Collection[Pod],
) -> frozenset[str]:
    """Return the hosts of a plan on which pods that never end leave too little for it."""
    permanent = _permanent_usage(pods, found.hosts, capacity)
    wanted: dict[str, Counter[str]] = {}
    for plan in found.pod_sets:
        for slot in plan.slots:
            if slot.host in permanent:
                total = wanted.setdefault(slot.host, Counter(permanent[slot.host]))
                total.update({name: amount * slot.count for name, amount in shapes[plan.name].requests})
    built = {name: capacity.free_of(name, topology, empty=True) for total in wanted.values() for name in total}
    return frozenset(
        host
        for host, total in wanted.items()
        if any(amount > built[name][topology.tree.index[host]] for name, amount in total.items())
    )
