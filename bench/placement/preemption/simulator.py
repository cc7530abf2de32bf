"""The event loop with priorities: jobs wait by priority and age, high ones preempt, victims start again from zero."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement
from bench.placement.preemption.rules import Scheduler
from bench.placement.preemption.rules.native import join
from bench.placement.preemption.rules.running import Preemption, Running
from bench.placement.simulator import SCAN

_LONGEST = 16  # pause between two searches for the same job, of the first one

Passed = Callable[[Cluster, Mapping[int, Running], float, float], None]
"""Sees the cluster and the gangs, which were like this from one time until another (seconds)."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A job that ran to its end; `placement`: of its last start, `first`: the time of its first one."""

    job: Job
    at: float
    placement: Placement
    first: float

    @property
    def wait(self) -> float:
        """Seconds in the queue before it started for the first time."""
        return self.first - self.job.submit

    @property
    def delay(self) -> float:
        """Seconds beyond its duration: in the queue, and of work that was lost."""
        return max(0.0, self.at - self.job.submit - self.job.duration)


@dataclass(slots=True)
class History:
    """What happened in a run. `lost`: GPU seconds on hosts that led to nothing, those of gangs that stood still too.

    `preemptions`: jobs that preempted; `restarts`: victims' gangs that lost pods while they ran; `moved`: of them,
    those that started elsewhere in the same instant; `broken`: those that lost only some of their pods; `given_up`:
    gangs that stood still when nothing else ran, and were ended.
    """

    finished: list[Finish] = field(default_factory=list)
    lost: float = 0.0
    preemptions: int = 0
    restarts: int = 0
    moved: int = 0
    broken: int = 0
    given_up: int = 0


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    """A job in the queue; `missing`: so many pods of a gang that stands still, 0 for a whole one."""

    before: int  # the priority, negative
    since: float
    number: int
    job: Job = field(compare=False)
    missing: int = field(default=0, compare=False)


def simulate(
    cluster: Cluster, jobs: Sequence[Job], scheduler: Scheduler, *, passed: Passed = lambda *_: None
) -> History:
    """Run all jobs to their end.

    Jobs wait by priority, then age; later ones may start first. A job of a high enough class that has waited long
    enough may preempt, or move others. A victim waits at its old age, and starts from zero. Pods end in no time. Raises
    ValueError for jobs that the empty cluster cannot hold, or that are not in the order of their submission.
    """
    for before, job in zip((None, *jobs), jobs, strict=False):
        if before is not None and job.submit < before.submit:
            raise ValueError(f"job {job.number}: submitted at {job.submit} s, before the job ahead of it")
        if not cluster.fits(job):
            raise ValueError(f"job {job.number}: {job.pods} pods of {job.gpus} GPUs never fit")
    return _Simulation(cluster, scheduler, passed).run(jobs)


class _Simulation:
    def __init__(self, cluster: Cluster, scheduler: Scheduler, passed: Passed) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._passed = passed
        self._now = 0.0
        self._waiting: list[_Waiting] = []
        self._running: dict[int, Running] = {}
        self._first: dict[int, float] = {}
        self._still: dict[int, float] = {}  # gangs that miss pods, and since when their hosts do nothing
        self._events: list[tuple[float, int, float]] = []  # time, job, its start; or the time again: may preempt now
        self._pauses: dict[int, tuple[float, float]] = {}  # by job, until when nothing is searched, and the next one
        self._history = History()

    def run(self, jobs: Sequence[Job]) -> History:
        """All jobs, in the order of their submission."""
        arrivals = iter(jobs)
        coming = next(arrivals, None)
        while coming is not None or self._waiting or self._running:
            if coming is not None and (not self._events or self._events[0][0] > coming.submit):
                self._advance(coming.submit)
                self._arrive(coming)
                coming = next(arrivals, None)
            elif self._events:
                self._advance(self._events[0][0])
                self._due()
            else:
                self._give_up()
        return self._history

    def _advance(self, until: float) -> None:
        if until > self._now:
            self._passed(self._cluster, self._running, self._now, until)
        self._now = until

    def _arrive(self, job: Job) -> None:
        entry = _Waiting(-job.priority, job.submit, job.number, job)
        insort(self._waiting, entry)
        if self._waiting.index(entry) < SCAN:  # nothing became free since the others were tried
            self._try([entry])
        if self._may_preempt(job) and self._scheduler.after and job.number not in self._running:
            heapq.heappush(self._events, (job.submit + self._scheduler.after, job.number, -1.0))

    def _due(self) -> None:
        """End all that end now, and try those who wait."""
        freed, urgent = False, list[int]()
        while self._events and self._events[0][0] <= self._now:
            _, number, since = heapq.heappop(self._events)
            one = self._running.get(number)
            if since < 0:
                urgent.append(number)
            elif one is not None and one.since == since and number not in self._still:
                del self._running[number]
                self._cluster.give(one.job, one.placement)
                self._history.finished.append(Finish(one.job, self._now, one.placement, self._first.pop(number)))
                freed = True
        self._try(self._waiting if freed else [entry for entry in self._waiting if entry.number in urgent])

    def _try(self, entries: Sequence[_Waiting]) -> None:
        """Start what fits, in this order; after a preemption everybody is tried again."""
        while True:
            refused = 0
            for entry in tuple(entries):
                if refused == SCAN:
                    return
                if self._start(entry):
                    self._waiting.remove(entry)
                elif self._preempt(entry):
                    break
                else:
                    refused += 1
            else:
                return
            entries = self._waiting

    def _start(self, entry: _Waiting) -> bool:
        if entry.missing:
            return self._join(entry)
        job = entry.job
        placement = self._scheduler.place(self._cluster, job) if self._cluster.fits(job) else None
        if placement is not None:
            self._run(job, placement)
        return placement is not None

    def _run(self, job: Job, placement: Placement) -> None:
        self._cluster.take(job, placement)
        self._first.setdefault(job.number, self._now)
        self._running[job.number] = Running(job, placement, self._now)
        heapq.heappush(self._events, (self._now + job.duration, job.number, self._now))

    def _join(self, entry: _Waiting) -> bool:
        """Place pods that a gang misses; False while it misses any."""
        one = self._running[entry.number]
        found = join(self._cluster, entry.job, one.placement, entry.missing)
        if found is None:
            return False
        placed = sum(pods for _, pods in found)
        self._cluster.take(replace(entry.job, pods=placed), found)
        self._lose(one)
        one = self._running[entry.number] = replace(one, placement=_plus(one.placement, found, 1))
        if placed < entry.missing:
            at = self._waiting.index(entry)
            self._waiting[at] = replace(entry, missing=entry.missing - placed)
            return False
        del self._still[entry.number]
        self._running[entry.number] = replace(one, since=self._now)
        heapq.heappush(self._events, (self._now + entry.job.duration, entry.number, self._now))
        return True

    def _lose(self, one: Running) -> None:
        """Count what the hosts of a gang did since it started, or since it stood still or this was counted last."""
        number = one.job.number
        self._history.lost += _gpus(one) * (self._now - self._still.get(number, one.since))
        if number in self._still:
            self._still[number] = self._now

    def _may_preempt(self, job: Job) -> bool:
        return self._scheduler.preempt is not None and job.priority >= self._scheduler.least

    def _preempt(self, entry: _Waiting) -> bool:
        rule, job = self._scheduler.preempt, entry.job
        if rule is None or not self._may_preempt(job) or self._now < job.submit + self._scheduler.after:
            return False
        not_before, pause = self._pauses.get(job.number, (0.0, self._scheduler.again))
        if self._now < not_before:
            return False
        found = rule(self._cluster, job, self._running, self._now)
        if found is None:
            longer = min(2 * pause, _LONGEST * self._scheduler.again)
            self._pauses[job.number] = (self._now + pause, longer)
            return False
        self._history.preemptions += 1
        self._waiting.remove(entry)
        self._end(found)
        self._run(job, found.placement)
        for number, placement in found.moved.items():
            moved = next(one for one in self._waiting if one.number == number)
            self._waiting.remove(moved)
            self._history.moved += 1
            self._run(moved.job, placement)
        return True

    def _end(self, found: Preemption) -> None:
        for number, ended in found.ended.items():
            one = self._running[number]
            self._cluster.give(replace(one.job, pods=sum(pods for _, pods in ended)), ended)
            self._lose(one)
            self._history.restarts += number not in self._still
            self._waiting = [entry for entry in self._waiting if entry.number != number]
            left = _plus(one.placement, ended, -1)
            if not left:
                del self._running[number]
                self._still.pop(number, None)
                insort(self._waiting, _Waiting(-one.job.priority, one.job.submit, number, one.job))
                continue
            self._history.broken += number not in self._still
            self._still[number] = self._now
            self._running[number] = replace(one, placement=left)
            missing = one.job.pods - sum(pods for _, pods in left)
            insort(self._waiting, _Waiting(-one.job.priority, self._now, number, one.job, missing))

    def _give_up(self) -> None:
        """End the gang that has stood still for the shortest time: otherwise nothing would ever happen again."""
        last = max(self._still, key=lambda number: (self._still[number], number))
        self._history.given_up += 1
        self._end(Preemption((), {last: self._running[last].placement}))
        self._try(self._waiting)


def _gpus(one: Running) -> int:
    return one.job.gpus * sum(pods for _, pods in one.placement)


def _plus(placement: Placement, other: Placement, sign: int) -> Placement:
    """The pods of both by host, or with sign -1 those of the first without the second."""
    pods = dict(placement)
    for host, count in other:
        pods[host] = pods.get(host, 0) + sign * count
    return tuple(sorted((host, count) for host, count in pods.items() if count))
