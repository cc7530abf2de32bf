"""kube-scheduler's default scoring: every pod onto the host with most free, GPUs being the resource that differs.

A required level is kept by going to the emptiest domain that holds the gang, as if something stood before the scheduler
that admits gangs whole; a preferred level is unknown to it.
"""

from __future__ import annotations

import heapq

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement


def place(cluster: Cluster, job: Job) -> Placement | None:
    """Pod by pod onto the emptiest host, the first by name among equals."""
    start, end = 0, len(cluster.free)
    if job.required and job.level is not None:
        fitting = np.flatnonzero(cluster.slots(job.level, job.gpus) >= job.pods)
        if not len(fitting):
            return None
        emptiest = int(fitting[cluster.free_of(job.level)[fitting].argmax()])
        start, end = cluster.tree.range(job.level, emptiest)
    heap = [(-free, host) for host, free in enumerate(cluster.free[start:end].tolist(), start)]
    heapq.heapify(heap)
    placed: dict[int, int] = {}
    for _ in range(job.pods):
        free, host = heap[0]
        if -free < job.gpus:
            return None
        heapq.heapreplace(heap, (free + job.gpus, host))
        placed[host] = placed.get(host, 0) + 1
    return tuple(sorted(placed.items()))
