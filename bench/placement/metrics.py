"""What a run says about a rule: the numbers of one (scenario, queue, load, rule, seed)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.optimum import fewest, used
from bench.placement.simulator import Start

WARMUP = 0.2  # share of the jobs, the first to come, that meet a cluster which is still filling up
TICK = 600.0  # seconds between looks at the cluster


@dataclass(frozen=True, slots=True)
class Measured:
    """Means are over the measured jobs: all but the first fifth. NaN where a run has none of the kind.

    `excess_*`: domains beyond what a gang's GPUs fill if all were empty. `optimal`: share of the gangs with the fewest
    (blocks, racks, hosts) that the state had, `optimal_racks`: with the fewest blocks and racks; both on a sample.
    `first_try`: share of the gangs with a required level that start at once, `first_try_rack`: of those whose level
    is the rack. Waits are seconds. `largest_free`: GPUs on empty hosts of the rack with most of them, `whole_racks`:
    entirely empty racks, `stranded`: share of the free GPUs that are on hosts in use; means over looks every 10
    minutes. `utilisation`: share of all GPUs in use until the last job came.
    """

    excess_racks: float
    excess_blocks: float
    excess_hosts: float
    optimal: float
    optimal_racks: float
    first_try: float
    first_try_rack: float
    wait_mean: float
    wait_p95: float
    wait_max: float
    gang_wait_mean: float
    gang_wait_p95: float
    largest_free: float
    whole_racks: float
    stranded: float
    utilisation: float


class Watcher:
    """Looks at the cluster every ten minutes of simulated time, and at the optimum of every so-manyth gang."""

    def __init__(self, *, since: float, until: float, sample: int) -> None:
        self._since, self._until = since, until
        self._sample = sample
        self._gangs = 0
        self.optimal: list[bool] = []
        self.optimal_racks: list[bool] = []
        self.largest: list[float] = []
        self.whole: list[float] = []
        self.stranded: list[float] = []

    def placing(self, job: Job, cluster: Cluster, placement: Placement) -> None:
        """Compare with the exact answer for this state."""
        if job.pods == 1 or job.submit < self._since or not self._sample:
            return
        self._gangs += 1
        if self._gangs % self._sample:
            return
        best = fewest(cluster, job)
        assert best is not None, "what is placed fits"
        found = used(cluster, np.array([host for host, _ in placement]))
        assert found >= best, f"{found} beats the optimum {best}"
        self.optimal.append(found == best)
        self.optimal_racks.append(found[:2] == best[:2])

    def passed(self, cluster: Cluster, since: float, now: float) -> None:
        """Count one look per full ten minutes in which the cluster was like this."""
        since, now = max(since, self._since), min(now, self._until)
        looks = math.floor(now / TICK) - math.floor(since / TICK)
        if now <= since or not looks:
            return
        empty = np.where(cluster.free == cluster.gpus, cluster.free, 0)
        rack = cluster.host_level - 1
        by_rack = cluster.tree.sums(rack, empty)
        free = int(cluster.free.sum())
        self.largest += [float(by_rack.max())] * looks
        self.whole += [float((by_rack == cluster.tree.sums(rack, cluster.gpus)).sum())] * looks
        self.stranded += [1 - int(empty.sum()) / free if free else 0.0] * looks


def warm(jobs: Sequence[Job]) -> float:
    """The time from which on jobs are measured."""
    return jobs[int(len(jobs) * WARMUP)].submit


def measure(
    cluster: Cluster, jobs: Sequence[Job], starts: Sequence[Start], watcher: Watcher, *, rack_gpus: int, block_gpus: int
) -> Measured:
    """The numbers of a finished run; `rack_gpus`, `block_gpus`: GPUs of a full rack and a full block."""
    since, until = warm(jobs), jobs[-1].submit
    measured = [start for start in starts if start.job.submit >= since]
    gangs = [start for start in measured if start.job.pods > 1]
    required = [start for start in gangs if start.job.required]
    waits = [start.wait for start in measured]
    gang_waits = [start.wait for start in gangs]
    excess = [_excess(cluster, start, rack_gpus, block_gpus) for start in gangs]
    busy = sum(
        max(0.0, min(until, start.at + start.job.duration) - max(since, start.at)) * start.job.size for start in starts
    )
    return Measured(
        excess_racks=mean([racks for _, racks, _ in excess]),
        excess_blocks=mean([blocks for blocks, _, _ in excess]),
        excess_hosts=mean([hosts for _, _, hosts in excess]),
        optimal=mean(watcher.optimal),
        optimal_racks=mean(watcher.optimal_racks),
        first_try=mean([start.at_once for start in required]),
        first_try_rack=mean([start.at_once for start in required if start.job.level == cluster.host_level - 1]),
        wait_mean=mean(waits),
        wait_p95=quantile(waits, 0.95),
        wait_max=max(waits, default=math.nan),
        gang_wait_mean=mean(gang_waits),
        gang_wait_p95=quantile(gang_waits, 0.95),
        largest_free=mean(watcher.largest),
        whole_racks=mean(watcher.whole),
        stranded=mean(watcher.stranded),
        utilisation=busy / (int(cluster.gpus.sum()) * (until - since)) if until > since else math.nan,
    )


def mean(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; NaN of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _excess(cluster: Cluster, start: Start, rack_gpus: int, block_gpus: int) -> tuple[int, int, int]:
    blocks, racks, hosts = used(cluster, np.array([host for host, _ in start.placement]))
    size = start.job.size
    return (
        blocks - math.ceil(size / block_gpus),
        racks - math.ceil(size / rack_gpus),
        hosts - math.ceil(size / int(cluster.gpus.max())),
    )
