"""Random schedules of what happens to a cluster: drawn from a seed alone, so that a failed one can be run again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

# How often each act is drawn. What users do, what pods and hosts suffer, what others do, what we suffer.
ACTS: Mapping[str, int] = {
    "come": 40,
    "come and crash": 4,
    "go": 10,
    "shrink": 5,
    "grow": 5,
    "suspend": 6,
    "complete": 7,
    "pod deleted": 6,
    "pod evicted": 3,
    "pod failed": 3,
    "pod not ready": 6,
    "others come": 6,
    "others go": 4,
    "daemons come": 3,
    "daemons go": 2,
    "host cordoned": 5,
    "host dead": 4,
    "host removed": 3,
    "leader crashes": 2,
    "follower crashes": 1,
    "all crash": 1,
    "leader ends": 2,
    "leader freezes": 2,
    "API server freezes": 1,
}
MEAN_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """One act, `after` seconds behind the one before it; `seed` decides what it is done to, and how."""

    after: float
    act: str
    seed: int


def schedule(seed: int, seconds: float, acts: Mapping[str, int] = ACTS) -> tuple[Step, ...]:
    """The steps of about so many seconds, at random moments; the same for the same arguments."""
    rng = random.Random(seed)
    names, weights = sorted(acts), [acts[name] for name in sorted(acts)]
    steps: list[Step] = []
    total = 0.0
    while total < seconds:
        after = rng.expovariate(1 / MEAN_PAUSE)
        total += after
        steps.append(Step(after, rng.choices(names, weights)[0], rng.getrandbits(32)))
    return tuple(steps)
