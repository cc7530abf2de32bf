"""The numbers of one run with priorities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.metrics import mean, quantile, warm
from bench.placement.optimum import used
from bench.placement.preemption.classes import HIGH, LOW, NORMAL
from bench.placement.preemption.rules.running import Running
from bench.placement.preemption.simulator import Finish, History


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means are over the measured jobs, all but the first fifth; NaN where a run has none of the kind.

    A class's delay is what its jobs need beyond their duration, in seconds: the queue, and work that was lost; for jobs
    that are never preempted it is their wait. `lost`: GPU time on hosts that led to nothing, as a share of the GPU time
    that all jobs request. `preemptions`, `restarts` (gangs that lost pods), `moved`, `broken` (gangs that lost some of
    their pods): per 1,000 jobs. `gang_wait_*`: of gangs of any class, until their first start; `gang_delay_mean`: as
    above. `excess_racks`: racks beyond those that a gang's GPUs fill, in its last start.
    `useful`: share of all GPUs that work which is not lost used, while jobs came.
    """

    high_mean: float
    high_median: float
    high_p95: float
    high_gang_mean: float
    normal_mean: float
    normal_p95: float
    low_mean: float
    low_median: float
    low_p95: float
    lost: float
    preemptions: float
    restarts: float
    moved: float
    broken: float
    gang_wait_mean: float
    gang_wait_p95: float
    gang_delay_mean: float
    mean_delay: float
    excess_racks: float
    high_excess_racks: float
    in_use: float
    useful: float


class Usage:
    """How much of the cluster is in use while jobs come, after the first fifth of them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._since, self._until = warm(jobs), jobs[-1].submit
        self._seconds = 0.0

    def passed(self, cluster: Cluster, _running: Mapping[int, Running], since: float, now: float) -> None:
        """Add the GPUs in use in this time."""
        overlap = min(now, self._until) - max(since, self._since)
        if overlap > 0:
            self._seconds += overlap * int((cluster.gpus - cluster.free).sum())

    def share(self, cluster: Cluster) -> float:
        """Of all GPUs."""
        span = self._until - self._since
        return self._seconds / (span * int(cluster.gpus.sum())) if span > 0 else math.nan


def outcome(cluster: Cluster, jobs: Sequence[Job], history: History, usage: Usage, *, rack_gpus: int) -> Outcome:
    """The numbers of a finished run; `rack_gpus`: GPUs of a full rack."""
    since, until = warm(jobs), jobs[-1].submit
    measured = [one for one in history.finished if one.job.submit >= since]
    delays = {
        priority: [one.delay for one in measured if one.job.priority == priority] for priority in (HIGH, NORMAL, LOW)
    }
    high_gangs = [one.delay for one in measured if one.job.priority == HIGH and one.job.pods > 1]
    gangs = [one for one in measured if one.job.pods > 1]
    excess = {one.job.number: _excess_racks(cluster, one, rack_gpus) for one in gangs}
    asked = sum(job.size * job.duration for job in jobs)
    done = sum(
        max(0.0, min(until, one.at) - max(since, one.at - one.job.duration)) * one.job.size for one in history.finished
    )
    of_jobs = 1000 / len(jobs)
    return Outcome(
        high_mean=mean(delays[HIGH]),
        high_median=quantile(delays[HIGH], 0.5),
        high_p95=quantile(delays[HIGH], 0.95),
        high_gang_mean=mean(high_gangs),
        normal_mean=mean(delays[NORMAL]),
        normal_p95=quantile(delays[NORMAL], 0.95),
        low_mean=mean(delays[LOW]),
        low_median=quantile(delays[LOW], 0.5),
        low_p95=quantile(delays[LOW], 0.95),
        lost=history.lost / asked,
        preemptions=history.preemptions * of_jobs,
        restarts=history.restarts * of_jobs,
        moved=history.moved * of_jobs,
        broken=history.broken * of_jobs,
        gang_wait_mean=mean([one.wait for one in gangs]),
        gang_wait_p95=quantile([one.wait for one in gangs], 0.95),
        gang_delay_mean=mean([one.delay for one in gangs]),
        mean_delay=mean([one.delay for one in measured]),
        excess_racks=mean(list(excess.values())),
        high_excess_racks=mean([excess[one.job.number] for one in gangs if one.job.priority == HIGH]),
        in_use=usage.share(cluster),
        useful=done / (int(cluster.gpus.sum()) * (until - since)) if until > since else math.nan,
    )


def _excess_racks(cluster: Cluster, one: Finish, rack_gpus: int) -> int:
    _, racks, _ = used(cluster, np.array([host for host, _ in one.placement]))
    return racks - math.ceil(one.job.size / rack_gpus)
