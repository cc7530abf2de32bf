"""Slow and obvious answers, written apart from what they judge: every rank on every host for `plan_gang`, and what the
records alone say of gangs that live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, product

import numpy as np

from engine.api.placement import Placement
from engine.cache.state import ClusterState
from engine.planner.gang import GangPlanRequest, PodSetPlanRequest
from engine.planner.tree import Tree

Cost = tuple[int, ...]
Hosts = tuple[int, ...]  # of every rank


def brute_force_gang(tree: Tree, free: Sequence[Sequence[int]], gang: GangPlanRequest) -> Cost | None:
    """The lexicographically fewest domains that any placement of all pods opens, or None when there is none."""
    best: Cost | None = None
    for placed in _placements(tree, [list(row) for row in free], list(gang.pod_sets)):
        if together(tree, gang, placed):
            cost = opened(tree, gang, placed)
            best = cost if best is None else min(best, cost)
    return best


def opened(tree: Tree, gang: GangPlanRequest, placed: Sequence[Hosts]) -> Cost:
    """Domains per level that are not kept pods' already, counted together for pod sets that belong together."""
    total = [0] * len(tree.levels)
    for members in _families(gang):
        sets = [gang.pod_sets[i] for i in members]
        kept = {host for one in sets for host in one.kept.values()}
        levels = range(len(tree.levels))
        unlevelled = all(one.require is None and one.prefer is None and not one.slices for one in sets)
        if unlevelled and not kept and gang.require is None and gang.prefer is None:
            levels = range(len(tree.levels) - 1, len(tree.levels))
        for level in levels:
            domains = {tree.domain_of(level, host) for i in members for host in placed[i]}
            total[level] += len(domains - {tree.domain_of(level, host) for host in kept})
    return tuple(total)


def valid(tree: Tree, free: Sequence[Sequence[int]], gang: GangPlanRequest, placed: Sequence[Hosts]) -> bool:
    """Whether the ranks on these hosts keep to capacity, eligibility and every constraint of the gang."""
    left = np.array(free)
    for pods, hosts in zip(gang.pod_sets, placed, strict=True):
        new = [host for rank, host in enumerate(hosts) if rank not in pods.kept]
        for host in new:
            left[host] -= np.array(pods.requests)
            if pods.eligible is not None and not pods.eligible[host]:
                return False
        if any(hosts[rank] != host for rank, host in pods.kept.items()):
            return False
        if pods.per_host is not None and any(n > pods.per_host for h, n in Counter(hosts).items() if h in new):
            return False
        if not _sliced(tree, pods, hosts):
            return False
    asked = np.array([[max(one.requests[r] for one in gang.pod_sets) > 0 for r in range(left.shape[1])]] * len(left))
    used = np.array(free) != left
    return not bool(((left < 0) & asked & used).any()) and together(tree, gang, placed)


def together(tree: Tree, gang: GangPlanRequest, placed: Sequence[Hosts]) -> bool:
    """Whether what has to share a domain does."""
    groups = [(pods.require, [i]) for i, pods in enumerate(gang.pod_sets)]
    groups.append((gang.require, list(range(len(placed)))))
    for pods in gang.pod_sets:
        if pods.colocate is not None:
            mates = [i for i, other in enumerate(gang.pod_sets) if other.colocate == pods.colocate]
            groups.append((pods.require, mates))
    return all(
        level is None or len({tree.domain_of(level, host) for i in members for host in placed[i]}) <= 1
        for level, members in groups
    )


def one_more(
    tree: Tree, free: Sequence[Sequence[int]], gang: GangPlanRequest, placed: Sequence[Hosts]
) -> tuple[int, int, int] | None:
    """A pod without a host (-1 in `placed`), and one that takes it: pod set, rank, host; None when no pod fits.

    Only pods beside those of their slice count: a new slice needs room for all of it.
    """
    left = np.array(free)
    for pods, hosts in zip(gang.pod_sets, placed, strict=True):
        for host in (host for rank, host in enumerate(hosts) if host >= 0 and rank not in pods.kept):
            left[host] -= np.array(pods.requests)
    for i, pods in enumerate(gang.pod_sets):
        for rank in (rank for rank, host in enumerate(placed[i]) if host < 0):
            for host in range(len(tree.hosts)):
                hosts = (*placed[i][:rank], host, *placed[i][rank + 1 :])
                more = [
                    tuple(h for h in (*placed[:i], hosts, *placed[i + 1 :])[j] if h >= 0) for j in range(len(placed))
                ]
                if (
                    (pods.eligible is None or pods.eligible[host])
                    and all(need <= left[host][r] for r, need in enumerate(pods.requests) if need)
                    and (pods.per_host is None or hosts.count(host) <= pods.per_host)
                    and all(len(mates) == 1 for mates in _slices_of(tree, pods, hosts, rank, host))
                    and together(tree, gang, more)
                ):
                    return i, rank, host
    return None


def _slices_of(tree: Tree, pods: PodSetPlanRequest, hosts: Hosts, rank: int, host: int) -> Iterator[set[int]]:
    """The domains that each slice of a rank has beside it; no domain where no other pod of it has a host."""
    for one in pods.slices:
        first = rank // one.size * one.size
        mates = [h for n, h in enumerate(hosts[first : first + one.size], first) if n != rank and h >= 0]
        yield {tree.domain_of(one.level, h) for h in (*mates, host)} if mates else set()


def _families(gang: GangPlanRequest) -> list[list[int]]:
    everyone = list(range(len(gang.pod_sets)))
    if gang.require is not None or gang.prefer is not None:
        return [everyone]
    values = {pods.colocate for pods in gang.pod_sets if pods.colocate is not None}
    families = [[i for i in everyone if gang.pod_sets[i].colocate == value] for value in sorted(values)]
    return families + [[i] for i in everyone if gang.pod_sets[i].colocate is None]


def _placements(tree: Tree, free: list[list[int]], pod_sets: list[PodSetPlanRequest]) -> Iterator[list[Hosts]]:
    if not pod_sets:
        yield []
        return
    pods, rest = pod_sets[0], pod_sets[1:]
    missing = [rank for rank in range(pods.count) if rank not in pods.kept]
    open_ = [host for host in range(len(free)) if pods.eligible is None or pods.eligible[host]]
    ways = product(open_, repeat=len(missing)) if pods.slices else combinations_with_replacement(open_, len(missing))
    for way in ways:
        hosts = dict(pods.kept) | dict(zip(missing, way, strict=True))
        ranks = tuple(hosts[rank] for rank in range(pods.count))
        load = Counter(way)
        if pods.per_host is not None and any(Counter(ranks)[host] > pods.per_host for host in load):
            continue
        if any(n * need > free[h][r] for h, n in load.items() for r, need in enumerate(pods.requests) if need):
            continue
        if not _sliced(tree, pods, ranks):
            continue
        left = [
            [have - load[h] * need for have, need in zip(row, pods.requests, strict=True)] for h, row in enumerate(free)
        ]
        for others in _placements(tree, left, rest):
            yield [ranks, *others]


def _sliced(tree: Tree, pods: PodSetPlanRequest, hosts: Hosts) -> bool:
    return all(
        len({tree.domain_of(one.level, host) for host in hosts[first : first + one.size]}) == 1
        for one in pods.slices
        for first in range(0, pods.count, one.size)
    )


def ranks_of(placement: Placement | None) -> dict[int, str]:
    """Rank -> host of all slots of a gang with one pod set."""
    if placement is None or placement.assignment is None:
        return {}
    return {
        rank: slot.host
        for plan in placement.assignment.pod_sets
        for slot in plan.slots
        for first, last in slot.ranks or ()
        for rank in range(first, last + 1)
    }


def scattered(placement: Placement | None, bound: Mapping[int, str], *, depth: int) -> set[tuple[str, ...]]:
    """The domains of a level (`depth` labels of the path) that a gang uses, when they are more than one.

    Slots count, and pods that are bound on hosts of slots.
    """
    if placement is None or placement.assignment is None:
        return set()
    domains = {slot.host: slot.domain[:depth] for plan in placement.assignment.pod_sets for slot in plan.slots}
    used = set(domains.values()) | {domains[host] for host in bound.values() if host in domains}
    return used if len(used) > 1 else set()


def overbooked_hosts(view: ClusterState, resource: str, *, besides: Collection[str] = ()) -> dict[str, int]:
    """Hosts of which pods and kept slots ask for more than there is, counted from the records alone.

    The slots of workloads with the uids `besides` do not count.
    """
    asked: Counter[str] = Counter()
    for pod in view.stores.pods.values():
        host = pod.spec.node_name or pod.nominated_node
        if host and not pod.finished:
            asked[host] += dict(pod.spec.shape.requests).get(resource, 0)
    for workload in view.stores.workloads.values():
        if workload.uid in besides:
            continue
        each = dict(workload.template.shape.requests).get(resource, 0)
        for host, count in view.capacity.reserved(workload.uid).items():
            asked[host] += count * each
    have = {node.name: node.allocatable.get(resource, 0) for node in view.stores.nodes.values()}
    return {host: count for host, count in asked.items() if host in have and count > have[host]}
