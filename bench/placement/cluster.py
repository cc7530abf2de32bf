"""The simulated cluster: free GPUs per host, and the sums over racks and blocks that rules ask for."""

from __future__ import annotations

import numpy as np

from bench.placement.jobs import Job, Placement
from engine.planner.tree import Ints64, Tree


class Cluster:
    """Hosts of a tree with their GPUs, all free at first. Sums are kept until the next change.

    The arrays handed out are the cluster's own: a rule that wants to play through a placement works on a copy.
    """

    def __init__(self, tree: Tree, gpus: Ints64) -> None:
        if gpus.shape != (len(tree.hosts),) or not len(gpus) or gpus.min() < 1:
            raise ValueError("gpus: one positive number per host of the tree is needed")
        self.tree = tree
        self.gpus = gpus
        self.free = gpus.copy()
        self.host_level = len(tree.levels) - 1
        self._slots: dict[tuple[int, int], Ints64] = {}

    def slots(self, level: int, per_pod: int) -> Ints64:
        """Pods of so many GPUs that fit into each domain of the level now; a pod is never split between hosts."""
        key = (level, per_pod)
        if key not in self._slots:
            if level == self.host_level:
                self._slots[key] = self.free // per_pod
            else:
                self._slots[key] = self.tree.sums(level, self.slots(self.host_level, per_pod))
        return self._slots[key]

    def free_of(self, level: int) -> Ints64:
        """Free GPUs of each domain of the level."""
        return self.slots(level, 1)

    def fits(self, job: Job) -> bool:
        """Whether there is any placement at all."""
        if job.required and job.level is not None:
            return bool(self.slots(job.level, job.gpus).max() >= job.pods)
        return bool(self.slots(self.host_level, job.gpus).sum() >= job.pods)

    def take(self, job: Job, placement: Placement) -> None:
        """Start the job there. Raises ValueError for what is no placement of this job here and now."""
        hosts = np.array([host for host, _ in placement], dtype=np.int64)
        pods = np.array([count for _, count in placement], dtype=np.int64)
        if not len(pods) or int(pods.sum()) != job.pods or pods.min() < 1 or len(np.unique(hosts)) != len(hosts):
            raise ValueError(f"job {job.number}: {placement} does not place {job.pods} pods")
        if (pods > self.slots(self.host_level, job.gpus)[hosts]).any():
            raise ValueError(f"job {job.number}: {placement} needs more than is free")
        if job.required and job.level is not None and len(np.unique(self.tree.domains[job.level][hosts])) > 1:
            raise ValueError(f"job {job.number}: {placement} is not in one {self.tree.levels[job.level]}")
        self.free[hosts] -= pods * job.gpus
        self._slots.clear()

    def give(self, job: Job, placement: Placement) -> None:
        """End the job that was placed there."""
        for host, pods in placement:
            self.free[host] += pods * job.gpus
        assert (self.free <= self.gpus).all(), "no host has more free than it has"
        self._slots.clear()
