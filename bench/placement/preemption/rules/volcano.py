"""Volcano's action `gangpreempt` (its default scheduler configuration has no preemption at all).

A job with a required level looks at eight HyperNodes of that level, others at the cluster as one. In each of them the
gangs with pods there are taken away whole, the lowest priority first and of equals the one created last, until what is
free and what they had there is enough for the job and it can be placed. The first HyperNode where that succeeds wins;
nobody is given back.

Which eight is left to the iteration over a map: here they are drawn, the same for the same job and time. A victim's
pods elsewhere end too, as with the policy `PodEvicted -> RestartJob`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules.running import Preemption, Running, ends, lower, without
from bench.placement.rules import volcano

MOST_DOMAINS = 8  # hypernode.gradient.evict.max-hypernodes and maxDomains


def preempt(cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None:
    """The victims in the first of a few HyperNodes that can be made to hold the job."""
    order = sorted(lower(running, job), key=lambda one: (one.job.priority, -one.job.submit, -one.job.number))
    if job.level is None or not job.required:
        return _inside(cluster, job, order, None)
    hosts = cluster.tree.sums(job.level, cluster.gpus // job.gpus)
    eligible = np.flatnonzero(hosts >= job.pods).tolist()
    rng = random.Random(f"{job.number} {now}")
    for domain in rng.sample(eligible, min(MOST_DOMAINS, len(eligible))):
        found = _inside(cluster, job, order, domain)
        if found is not None:
            return found
    return None


def _inside(cluster: Cluster, job: Job, order: list[Running], domain: int | None) -> Preemption | None:
    left, victims = without(cluster, ()), list[Running]()
    for one in order:
        if domain is not None and not _has_pods(cluster, job, one, domain):
            continue
        left.give(one.job, one.placement)
        victims.append(one)
        placement = _place(left, job, domain)
        if placement is not None:
            return Preemption(placement, ends(victims))
    return None


def _has_pods(cluster: Cluster, job: Job, one: Running, domain: int) -> bool:
    assert job.level is not None
    domain_of = cluster.tree.domains[job.level]
    return any(int(domain_of[host]) == domain for host, _ in one.placement)


def _place(left: Cluster, job: Job, domain: int | None) -> Placement | None:
    """Where the job goes in the HyperNode, which alone is looked at."""
    if domain is None:
        return volcano.place(left, job) if left.fits(job) else None
    assert job.level is not None
    if left.slots(job.level, job.gpus)[domain] < job.pods:
        return None
    only = without(left, ())
    only.free[left.tree.domains[job.level] != domain] = 0
    return volcano.place(only, job)
