"""Volcano's network-topology-aware allocation, with bin-packing on GPUs configured as its documents recommend.

Hard mode (a required level): every HyperNode of a tier that holds the job is tried, from the lowest tier up; in the
first tier with a solution the fullest HyperNode wins. Soft mode (a preferred level): the cluster is one candidate.
Inside, pod by pod: hosts near the job's pods so far first (by the tier of their common HyperNode), of these the
HyperNode with most of the job's pods when all are equally near, then the fullest host; the first pod knows only the
fullest. A pod without a wish also counts how full its HyperNodes are, each tier 0.8 times the one below.

Topology is taken to outweigh bin-packing; at equal weights Volcano spreads gangs further.
"""

from __future__ import annotations

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules.fill import fill
from engine.planner.tree import Ints64

_FADING = 0.8
_BINPACK = 10.0  # binpack.weight of the documents' example; the HyperNode plugin's own weight is 1


def place(cluster: Cluster, job: Job) -> Placement | None:
    """Hosts for all pods at once, or none."""
    if job.pods == 1:
        return _one(cluster, job)
    if job.level is None or not job.required:
        return _inside(cluster, job, 0, len(cluster.free))
    for level in range(cluster.host_level - 1, job.level - 1, -1):
        fitting = np.flatnonzero(cluster.slots(level, job.gpus) >= job.pods)
        if len(fitting):
            total = cluster.tree.sums(level, cluster.gpus)[fitting]
            used = total - cluster.free_of(level)[fitting]
            best = int(fitting[((used + job.size) / total).argmax()])
            return _inside(cluster, job, *cluster.tree.range(level, best))
    return None


def _one(cluster: Cluster, job: Job) -> Placement | None:
    """A single pod: bin-packing of the host, and faded of its HyperNodes."""
    fitting = np.flatnonzero(cluster.free >= job.gpus)
    if not len(fitting):
        return None
    score = _BINPACK * (1 - cluster.free[fitting] / cluster.gpus[fitting])
    weights = [_FADING**tier for tier in range(cluster.host_level)]
    for tier, weight in enumerate(weights):
        level = cluster.host_level - 1 - tier
        full = 1 - cluster.free_of(level) / cluster.tree.sums(level, cluster.gpus)
        score = score + weight / sum(weights) * full[cluster.tree.domains[level][fitting]]
    return ((int(fitting[score.argmax()]), 1),)


def _inside(cluster: Cluster, job: Job, start: int, end: int) -> Placement | None:
    """Pod by pod among the hosts start .. end."""
    slots = cluster.slots(cluster.host_level, job.gpus)
    racks = cluster.tree.domains[cluster.host_level - 1]
    among = np.arange(start, end)
    among = among[slots[among] > 0]
    placed: dict[int, int] = {}
    mine = np.zeros(cluster.tree.size(cluster.host_level - 1), dtype=np.int64)
    left = job.pods
    while left and len(among):
        keys: list[Ints64] = [among, cluster.free[among]]
        if placed:
            near = _nearness(cluster, np.array(list(placed)), among)
            nearest = near.max()
            share = np.where(near == nearest, mine[racks[among]], 0)
            keys += [-share, -near]
        host = int(among[np.lexsort(keys)[0]])
        # A host with a pod of the job is as near as before and fuller: it goes on until it is full.
        ((_, count),) = fill(np.array([host]), slots, min(left, int(slots[host]))) or ((host, 0),)
        placed[host] = count
        mine[racks[host]] += count
        left -= count
        among = among[among != host]
    return None if left else tuple(sorted(placed.items()))


def _nearness(cluster: Cluster, hosts: Ints64, others: Ints64) -> Ints64:
    """Levels that each of `others` shares with the smallest domain around all `hosts`."""
    near = np.zeros(len(others), dtype=np.int64)
    for level in range(cluster.host_level):
        domains = cluster.tree.domains[level]
        around = domains[hosts]
        if (around != around[0]).any():
            break
        near += domains[others] == around[0]
    return near
