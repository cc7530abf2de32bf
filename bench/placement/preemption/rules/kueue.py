"""Kueue's preemption inside one ClusterQueue (withinClusterQueue: LowerPriority) with topology-aware scheduling.

Whole workloads. Candidates by priority, the lowest first, and of equals the one admitted last. They are taken away in
this order until the workload fits, quota and topology; then each of them but the last is given back, in reverse order,
if it still fits. The quota is taken to be the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.preemption.rules.running import Preemption, Running, ends, lower, without
from bench.placement.rules import kueue


def preempt(cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None:
    """The candidates that are not given back."""
    candidates = sorted(lower(running, job), key=lambda one: (one.job.priority, -one.since, one.job.number))
    left, targets = without(cluster, ()), list[Running]()
    for one in candidates:
        left.give(one.job, one.placement)
        targets.append(one)
        if left.fits(job):
            break
    else:
        return None
    for one in reversed(targets[:-1]):
        left.take(one.job, one.placement)
        if left.fits(job):
            targets.remove(one)
        else:
            left.give(one.job, one.placement)
    placement = kueue.place(left, job)
    assert placement is not None, "it fits"
    return Preemption(placement, ends(targets))
