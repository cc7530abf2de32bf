"""What a preemption rule sees and answers: the running gangs, and which of their pods end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement


@dataclass(frozen=True, slots=True)
class Running:
    """A gang with pods on hosts; `since`: when it got them (seconds). Fewer pods than the job has: it stands still."""

    job: Job
    placement: Placement
    since: float


@dataclass(frozen=True, slots=True)
class Preemption:
    """Where the preemptor goes once these pods have ended; by number of the victim's job.

    `moved`: victims that start again elsewhere at once; all others wait in the queue.
    """

    placement: Placement
    ended: Mapping[int, Placement]
    moved: Mapping[int, Placement] = field(default_factory=dict)


class PreemptionRule(Protocol):
    """The signature of a rule: a job that fits nowhere now, and the gangs that run; None if nothing helps."""

    def __call__(self, cluster: Cluster, job: Job, running: Mapping[int, Running], now: float) -> Preemption | None: ...


def lower(running: Mapping[int, Running], job: Job) -> list[Running]:
    """The running gangs of a lower priority than the job."""
    return [one for one in running.values() if one.job.priority < job.priority]


def without(cluster: Cluster, gone: Iterable[Running]) -> Cluster:
    """A copy of the cluster in which these gangs have ended."""
    made = Cluster(cluster.tree, cluster.gpus)
    made.free[:] = cluster.free
    for one in gone:
        made.give(one.job, one.placement)
    return made


def ends(victims: Iterable[Running]) -> dict[int, Placement]:
    """All pods of these gangs."""
    return {one.job.number: one.placement for one in victims}
