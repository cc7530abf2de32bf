"""kube-scheduler's preemption: pod by pod, without knowing of gangs.

A pod that fits nowhere gets the host where the pods that have to end have, in this order: the lowest highest priority,
the smallest sum of priorities (in which every pod counts far more than its priority), the smallest number, and the
latest start of those with the highest priority. On a host all pods of lower priority are taken away, and given back
one by one while the pod still fits, the highest priority and of equals the longest running first. PodDisruptionBudgets
are left out.

A required level is kept as in `bench.placement.rules.native`: the whole gang is admitted at once, into the emptiest
domain that holds it; here, that would hold it without any pod of lower priority. Other gangs lose single pods and
stand still with the rest on their hosts. The lost pods are created again, at the end of the queue of their priority,
and are placed one by one; when all have a host, the gang starts from zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules.running import Preemption, Running, lower, without

_POD = 1 << 31  # what a pod of any priority adds to the sum of priorities


@dataclass(frozen=True, slots=True)
class _Pod:
    number: int
    priority: int
    gpus: int
    since: float


_Candidate = tuple[tuple[float, ...], int, tuple[_Pod, ...]]  # price, host, victims: the smallest is taken


def preempt(cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None:
    """Single pods of other gangs, as few as each pod of the job needs on its host."""
    among = lower(running, job)
    emptied = without(cluster, among)
    if not emptied.fits(job):
        return None
    start, end = 0, len(cluster.free)
    if job.required and job.level is not None:
        fitting = np.flatnonzero(emptied.slots(job.level, job.gpus) >= job.pods)
        emptiest = int(fitting[cluster.free_of(job.level)[fitting].argmax()])
        start, end = cluster.tree.range(job.level, emptiest)
    free = {host: int(cluster.free[host]) for host in range(start, end)}
    pods: dict[int, list[_Pod]] = defaultdict(list)
    for one in among:
        for host, count in one.placement:
            pods[host] += [_Pod(one.job.number, one.job.priority, one.job.gpus, one.since)] * count
    placed: dict[int, int] = defaultdict(int)
    ended: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    candidates = {host: _candidate(host, free[host], pods[host], job.gpus) for host in free}
    for _ in range(job.pods):
        host = max(free, key=lambda one: (free[one], -one))
        if free[host] < job.gpus:
            best = min((found for found in candidates.values() if found is not None), default=None)
            if best is None:
                return None
            _, host, victims = best
            for victim in victims:
                pods[host].remove(victim)
                free[host] += victim.gpus
                ended[victim.number][host] += 1
        free[host] -= job.gpus
        placed[host] += 1
        candidates[host] = _candidate(host, free[host], pods[host], job.gpus)
    return Preemption(
        tuple(sorted(placed.items())), {number: tuple(sorted(hosts.items())) for number, hosts in ended.items()}
    )


def join(cluster: Cluster, job: Job, held: Placement, missing: int) -> Placement | None:
    """Hosts for some or all of the pods that a gang misses, one by one onto the emptiest; None if none fits."""
    start, end = 0, len(cluster.free)
    if job.required and job.level is not None:
        start, end = cluster.tree.range(job.level, int(cluster.tree.domains[job.level][held[0][0]]))
    free = cluster.free[start:end].copy()
    placed: dict[int, int] = defaultdict(int)
    for _ in range(missing):
        host = int(free.argmax())
        if free[host] < job.gpus:
            break
        free[host] -= job.gpus
        placed[start + host] += 1
    return tuple(sorted(placed.items())) or None


def _candidate(host: int, free: int, pods: Sequence[_Pod], gpus: int) -> _Candidate | None:
    """A host with the pods that have to end for one of so many GPUs; None if that is not enough."""
    left = free + sum(pod.gpus for pod in pods)
    if left < gpus:
        return None
    victims = []
    for pod in sorted(pods, key=lambda pod: (-pod.priority, pod.since, pod.number)):
        if left - pod.gpus >= gpus:
            left -= pod.gpus
        else:
            victims.append(pod)
    highest = max((pod.priority for pod in victims), default=-1)
    latest = min((pod.since for pod in victims if pod.priority == highest), default=0.0)
    price = (highest, sum(pod.priority + _POD for pod in victims), len(victims), -latest)
    return price, host, tuple(victims)
