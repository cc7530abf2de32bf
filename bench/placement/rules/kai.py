"""KAI scheduler: a topology stage that orders domains, then pod by pod with the bin-pack score.

Siblings are ordered by the share of their free GPUs that the job would take, tightest first. The candidates are the
domains that hold the job, from the preferred level (else the required one) up to the required level (else the whole
cluster), the finest level first, in that order. Inside one, hosts go by the preferred level's score, which favours the
last domains of the order in ten steps, and then by bin-packing on GPUs.
"""

from __future__ import annotations

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules.fill import fill
from engine.planner.tree import Ints64

_STEPS = 10  # the topology score has ten values, whatever the number of domains


def place(cluster: Cluster, job: Job) -> Placement | None:
    """The first candidate domain that takes all pods."""
    hosts = np.arange(len(cluster.free))
    slots = cluster.slots(cluster.host_level, job.gpus)
    if job.level is None:
        return fill(hosts[np.lexsort((hosts, cluster.free))], slots, job.pods)
    ordered = _ordered(cluster, job.level)
    domain_of = cluster.tree.domains[job.level]
    score = np.zeros(len(hosts), dtype=np.int64)
    if not job.required:
        rank = np.empty(len(ordered), dtype=np.int64)
        rank[ordered] = np.arange(len(ordered))
        score = (rank + 1) * _STEPS // len(ordered)
        score = score[domain_of]
    inside = _candidate(cluster, job, job.level)
    if inside is None:
        return None
    among = hosts[inside]
    return fill(among[np.lexsort((among, cluster.free[among], -score[among]))], slots, job.pods)


def _candidate(cluster: Cluster, job: Job, wished: int) -> slice | None:
    """The hosts of the first domain that holds the job; all of them when none does and none has to."""
    for level in range(wished, -1, -1):
        slots = cluster.slots(level, job.gpus)
        ordered = _ordered(cluster, level)
        fitting = ordered[slots[ordered] >= job.pods]
        if len(fitting):
            return slice(*cluster.tree.range(level, int(fitting[0])))
        if job.required:
            return None
    return slice(None)


def _ordered(cluster: Cluster, level: int) -> Ints64:
    """The domains of the level as the sorted tree is walked: at every node the child with least free GPUs first."""
    keys: list[Ints64] = []
    for up in range(level, -1, -1):
        above = cluster.tree.ancestors(level, up)
        keys += [above.astype(np.int64), cluster.free_of(up)[above]]
    return np.lexsort(keys)
