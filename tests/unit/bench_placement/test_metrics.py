"""The numbers of a run that can be counted on one hand."""

import math
from collections.abc import Callable

import pytest

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.metrics import Measured, Watcher, measure, quantile, warm
from bench.placement.simulator import Start

Build = Callable[..., Cluster]


def counted(cluster: Cluster, jobs: tuple[Job, ...], starts: list[Start], watcher: Watcher) -> Measured:
    return measure(cluster, jobs, starts, watcher, rack_gpus=16, block_gpus=32)


def test_excess_waits_and_first_tries(cluster: Build) -> None:
    """A gang of 16 GPUs over two racks has one excess rack; one of two required gangs starts at once."""
    made = cluster([[[8, 8], [8, 8]]])
    jobs = (Job(0, 0, 100, 2, 8, level=1), Job(1, 0, 100, 2, 8, level=1, required=True),
            Job(2, 50, 100, 2, 8, level=0, required=True), Job(3, 100, 10, 1, 1))  # fmt: skip
    starts = [Start(jobs[0], 0, ((0, 1), (2, 1)), True), Start(jobs[1], 0, ((0, 1), (1, 1)), True),
              Start(jobs[2], 80, ((2, 1), (3, 1)), False), Start(jobs[3], 100, ((0, 1),), True)]  # fmt: skip
    found = counted(made, jobs, starts, Watcher(since=0, until=100, sample=0))
    assert found.excess_racks == pytest.approx(1 / 3)
    assert (found.excess_blocks, found.excess_hosts) == (0, 0)
    assert (found.first_try, found.first_try_rack) == (0.5, 1)
    assert (found.wait_mean, found.wait_max, found.gang_wait_mean) == (30 / 4, 30, 10)
    assert found.utilisation == pytest.approx((100 * 16 + 100 * 16 + 20 * 16) / (32 * 100))


def test_the_first_jobs_are_not_measured(cluster: Build) -> None:
    """A fifth of them only fills the cluster."""
    made = cluster([[[8, 8], [8, 8]]])
    jobs = tuple(Job(i, float(i), 1, 1, 1) for i in range(10))
    starts = [Start(job, job.submit + (1000 if job.number < 2 else 1), ((0, 1),), False) for job in jobs]
    assert warm(jobs) == 2
    assert counted(made, jobs, starts, Watcher(since=2, until=9, sample=0)).wait_mean == 1


def test_looks_are_every_ten_minutes(cluster: Build) -> None:
    """Weighted by time: two looks at this state and none at the short one."""
    watcher = Watcher(since=0, until=10_000, sample=0)
    watcher.passed(cluster([[[8, 8], [8, 4]]]), 10, 1210)
    watcher.passed(cluster([[[0, 0], [0, 0]]]), 1210, 1790)
    assert (watcher.largest, watcher.whole) == ([16, 16], [1, 1])
    assert watcher.stranded == [pytest.approx(4 / 28)] * 2


def test_every_gang_is_held_against_the_optimum(cluster: Build) -> None:
    """Two racks where one would do is not optimal; a single pod is no gang."""
    watcher = Watcher(since=0, until=100, sample=1)
    made = cluster([[[8, 8], [8, 8]]])
    watcher.placing(Job(0, 0, 1, 2, 8, level=1), made, ((1, 1), (2, 1)))
    watcher.placing(Job(1, 0, 1, 2, 8, level=1), made, ((2, 1), (3, 1)))
    watcher.placing(Job(2, 0, 1, 1, 8), made, ((0, 1),))
    assert watcher.optimal == [False, True]


def test_the_quantile_of_few_is_one_of_them() -> None:
    """The smallest that 95 % do not exceed; of nothing there is none."""
    assert quantile([float(i) for i in range(1, 21)], 0.95) == 19
    assert math.isnan(quantile([], 0.95))
