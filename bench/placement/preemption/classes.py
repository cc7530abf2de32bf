"""The priority classes of a stream: a few jobs that may preempt, and two classes of jobs that may be preempted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bench.placement.jobs import Job

HIGH, NORMAL, LOW = 2, 1, 0
NAMES: Mapping[int, str] = {HIGH: "high", NORMAL: "normal", LOW: "low"}


def with_classes(jobs: Iterable[Job], *, seed: int, high: float) -> tuple[Job, ...]:
    """The same jobs with priorities: a share `high` of them, the others half normal, half low. Same seed, same answer.

    A job's class does not depend on its size or duration.
    """
    if not 0 <= high <= 1:
        raise ValueError(f"high: {high} is no share")
    rng = random.Random(f"{seed} priority")
    weights = (high, (1 - high) / 2, (1 - high) / 2)
    return tuple(replace(job, priority=rng.choices((HIGH, NORMAL, LOW), weights)[0]) for job in jobs)
