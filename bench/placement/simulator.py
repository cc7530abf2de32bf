"""The event loop: jobs arrive, wait in one queue, run where the rule says, and leave."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.rules import Rule

SCAN = 64  # refusals after which a best-effort pass over the queue ends


class Observer(Protocol):
    """Looks at the cluster; changes nothing."""

    def placing(self, job: Job, cluster: Cluster, placement: Placement) -> None:
        """Just before the job takes its GPUs."""

    def passed(self, cluster: Cluster, since: float, now: float) -> None:
        """The cluster was like this from `since` until `now` (seconds)."""


@dataclass(frozen=True, slots=True)
class Start:
    """A job's start; `at_once`: in the same instant in which it came."""

    job: Job
    at: float
    placement: Placement
    at_once: bool

    @property
    def wait(self) -> float:
        """Seconds in the queue."""
        return self.at - self.job.submit


def simulate(
    cluster: Cluster, jobs: Sequence[Job], rule: Rule, *, strict: bool = False, observer: Observer | None = None
) -> list[Start]:
    """Run all jobs to their start, in the order of their starts.

    The queue is first in, first out. `strict`: nobody passes the first who has to wait. Otherwise every event tries
    the waiting jobs in order until 64 have been refused. Whether a job fits at all is looked at once for all rules; a
    rule that finds no place for one that fits makes it wait. Raises ValueError for a job that the empty cluster cannot
    hold, and for jobs that are not in the order of their submission.
    """
    _check(cluster, jobs)
    scan = 1 if strict else SCAN
    waiting: list[Job] = []
    running: list[tuple[float, int, Job, Placement]] = []
    started: list[Start] = []
    now = 0.0

    def advance(until: float) -> float:
        if observer is not None and until > now:
            observer.passed(cluster, now, until)
        return until

    def start(job: Job, at_once: bool) -> bool:
        placement = rule(cluster, job) if cluster.fits(job) else None
        if placement is None:
            return False
        if observer is not None:
            observer.placing(job, cluster, placement)
        cluster.take(job, placement)
        heapq.heappush(running, (now + job.duration, job.number, job, placement))
        started.append(Start(job, now, placement, at_once))
        return True

    arrivals = iter(jobs)
    coming = next(arrivals, None)
    while coming is not None or waiting:
        if coming is None or (running and running[0][0] <= coming.submit):
            now = advance(running[0][0])
            while running and running[0][0] <= now:
                _, _, job, placement = heapq.heappop(running)
                cluster.give(job, placement)
            refused: list[Job] = []
            for at, job in enumerate(waiting):
                if len(refused) == scan:
                    refused += waiting[at:]
                    break
                if not start(job, at_once=False):
                    refused.append(job)
            waiting = refused
        else:
            now = advance(coming.submit)
            # Since the last pass nothing became free: those who waited need not be asked again.
            if len(waiting) >= scan or not start(coming, at_once=True):
                waiting.append(coming)
            coming = next(arrivals, None)
    return started


def _check(cluster: Cluster, jobs: Sequence[Job]) -> None:
    previous = 0.0
    for job in jobs:
        if job.submit < previous:
            raise ValueError(f"job {job.number}: submitted at {job.submit} s, before the job ahead of it")
        if job.pods < 1 or job.gpus < 1 or job.duration <= 0:
            raise ValueError(f"job {job.number}: pods, GPUs and duration must be positive")
        if not cluster.fits(job):
            raise ValueError(f"job {job.number}: {job.pods} pods of {job.gpus} GPUs never fit")
        previous = job.submit
