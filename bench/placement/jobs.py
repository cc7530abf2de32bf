"""What a stream is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

Placement = tuple[tuple[int, int], ...]
"""(host index, pods) with at least one pod each, no host twice."""


@dataclass(frozen=True, slots=True)
class Job:
    """A gang of `pods` equal pods of `gpus` whole GPUs each; one pod is a gang of one.

    `level` is an index into the levels of the cluster's tree: all pods in one domain of it if `required`, else as few
    as possible; None: no wish. `submit` and `duration` are seconds. `priority`: higher ones are placed first.
    """

    number: int
    submit: float
    duration: float
    pods: int
    gpus: int
    level: int | None = None
    required: bool = False
    priority: int = 0

    @property
    def size(self) -> int:
        """GPUs of all pods."""
        return self.pods * self.gpus


def scaled(jobs: Sequence[Job], *, load: float, total_gpus: int) -> tuple[Job, ...]:
    """The same jobs, arriving faster or slower so that they ask for the share `load` of `total_gpus` on average."""
    span = jobs[-1].submit
    asked = sum(job.size * job.duration for job in jobs)
    factor = asked / (load * total_gpus * span) if span else 0.0
    return tuple(replace(job, submit=job.submit * factor) for job in jobs)
