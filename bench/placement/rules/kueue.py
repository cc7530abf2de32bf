"""Kueue's topology-aware scheduling at its defaults: BestFit for gangs with a level, LeastFreeCapacity for the rest.

BestFit looks for the smallest domain of the level that holds the gang, climbs a level where none does and the level is
only preferred, and at the top takes the largest domains with the best-fitting one last. On the way down it pools the
children of all chosen domains and repeats that on the pool. LeastFreeCapacity takes the smallest host that holds
everything, else hosts in ascending order. Equals go by name.
"""

from __future__ import annotations

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from engine.planner.tree import Ints64


def place(cluster: Cluster, job: Job) -> Placement | None:
    """Hosts by BestFit or LeastFreeCapacity."""
    if job.level is None:
        return _least_free(cluster.slots(cluster.host_level, job.gpus), job.pods)
    chosen = _start(cluster, job, job.level)
    if chosen is None:
        return None
    level, domains = chosen
    while True:
        slots = cluster.slots(level, job.gpus)
        covering = _cover(domains, slots, job.pods)
        if level == cluster.host_level:
            return tuple(sorted(covering))
        level += 1
        domains = cluster.tree.children(level - 1, np.array([domain for domain, _ in covering]))


def _start(cluster: Cluster, job: Job, wished: int) -> tuple[int, Ints64] | None:
    """The level and the domains to start from: one that holds the gang, or all of the top level."""
    for level in range(wished, -1, -1):
        slots = cluster.slots(level, job.gpus)
        fitting = np.flatnonzero(slots >= job.pods)
        if len(fitting):
            return level, fitting[[slots[fitting].argmin()]]
        if job.required:
            return None
    top = cluster.slots(0, job.gpus)
    return (0, np.arange(len(top))) if top.sum() >= job.pods else None


def _cover(domains: Ints64, slots: Ints64, pods: int) -> list[tuple[int, int]]:
    """(domain, pods): largest first; as soon as one holds the remainder, the smallest that does."""
    ordered = domains[np.argsort(-slots[domains], kind="stable")]
    sizes = slots[ordered]
    taken = []
    for at, (domain, room) in enumerate(zip(ordered.tolist(), sizes.tolist(), strict=True)):
        if room >= pods:
            rest = sizes[at:]
            smallest = rest[rest >= pods][-1]
            last = at + int(np.flatnonzero(rest == smallest)[0])
            taken.append((int(ordered[last]), pods))
            return taken
        taken.append((domain, room))
        pods -= room
    raise AssertionError("the domains hold the gang")


def _least_free(slots: Ints64, pods: int) -> Placement | None:
    ordered = np.argsort(slots, kind="stable")
    sizes = slots[ordered]
    whole = int(np.searchsorted(sizes, pods))
    if whole < len(sizes):
        return ((int(ordered[whole]), pods),)
    taken = []
    for host, room in zip(ordered.tolist(), sizes.tolist(), strict=True):
        if room:
            taken.append((host, min(room, pods)))
            pods -= min(room, pods)
        if not pods:
            return tuple(sorted(taken))
    return None
