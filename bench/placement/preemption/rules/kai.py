"""KAI scheduler's actions `preempt` and `consolidation` inside one queue.

Whole gangs (all pods are its minimum). Candidates by priority, the lowest first, and of equals the one created last,
are gathered one by one. Whenever the job fits without the gathered ones, smaller scenarios are tried first: hosts with
gathered victims, those with the least capacity first, as few as could be enough and then 1, 2, 4, ... more; all gangs
on the chosen hosts end. In the first scenario in which the job fits, the victims are allocated again after it: one
whose hosts are still free does not end, another one that fits elsewhere moves there at once, the others wait.

`consolidation` gathers gangs of any priority, at most 17, and takes only a scenario in which no victim waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.preemption.rules.running import Preemption, Running, lower, without
from bench.placement.rules import kai

_MOST_CONSOLIDATED = 17  # --max-consolidation-preemptees is 16, and the gang that exceeds it is still taken


def preempt(cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None:
    """The victims of the first scenario in which the job fits, less those that are allocated again."""
    return _solved(cluster, job, sorted(lower(running, job), key=_newest), wait=True)


def consolidate(cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None:
    """The gangs of the first scenario in which the job fits, and all of them again."""
    return _solved(cluster, job, sorted(running.values(), key=_newest)[:_MOST_CONSOLIDATED], wait=False)


def _newest(one: Running) -> tuple[float, ...]:
    return one.job.priority, -one.job.submit, -one.job.number


def _solved(cluster: Cluster, job: Job, order: Iterable[Running], *, wait: bool) -> Preemption | None:
    left, gathered = without(cluster, ()), list[Running]()
    for one in order:
        left.give(one.job, one.placement)
        gathered.append(one)
        if not left.fits(job):
            continue
        for victims in _scenarios(cluster, left, job, gathered):
            found = _simulated(cluster, job, victims)
            if found is not None and (wait or len(found.moved) == len(found.ended)):
                return found
    return None


def _scenarios(cluster: Cluster, left: Cluster, job: Job, gathered: Sequence[Running]) -> Iterator[list[Running]]:
    """Subsets of the gathered victims, by their hosts; `left` is the cluster without all of them."""
    first_seen: dict[int, int] = {}
    for number, one in enumerate(gathered):
        for host, _ in one.placement:
            first_seen.setdefault(host, number)
    hosts = [host for host in first_seen if left.free[host] >= job.gpus]
    hosts.sort(key=lambda host: (int(left.free[host]), first_seen[host]))
    needed = job.size - int(cluster.free.sum()) + sum(int(cluster.free[host]) for host in first_seen)
    count = 0
    while needed > 0 and count < len(hosts):
        needed -= int(left.free[hosts[count]])
        count += 1
    more = 1
    while True:
        chosen = set(hosts[:count])
        yield [one for one in gathered if any(host in chosen for host, _ in one.placement)]
        if count >= len(hosts):
            return
        count, more = min(count + more, len(hosts)), 2 * more


def _simulated(cluster: Cluster, job: Job, victims: Sequence[Running]) -> Preemption | None:
    left = without(cluster, victims)
    placement = kai.place(left, job) if left.fits(job) else None
    if placement is None:
        return None
    left.take(job, placement)
    ended, moved = {}, {}
    for one in sorted(victims, key=lambda one: (-one.job.priority, one.job.submit, one.job.number)):
        if all(left.free[host] >= pods * one.job.gpus for host, pods in one.placement):
            left.take(one.job, one.placement)
            continue
        ended[one.job.number] = one.placement
        elsewhere = kai.place(left, one.job) if left.fits(one.job) else None
        if elsewhere is not None:
            left.take(one.job, elsewhere)
            moved[one.job.number] = elsewhere
    return Preemption(placement, ended, moved)
