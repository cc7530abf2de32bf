"""Streams of jobs drawn from stated mixes, the same for the same seed."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from bench.placement.jobs import Job, scaled

# Quantiles of job durations in the Philly trace (Jeon et al., ATC 2019; CC-BY-4.0), clipped to 5 minutes .. 6 hours:
# shorter jobs tell nothing about placement, and a few week-long ones would make every mean a matter of luck.
DURATIONS: tuple[tuple[float, float], ...] = (
    (0.00, 300), (0.13, 300), (0.20, 570), (0.30, 1424), (0.40, 1568), (0.50, 2050), (0.60, 2475),
    (0.70, 2657), (0.80, 2900), (0.85, 4015), (0.90, 10421), (0.95, 21600), (1.00, 21600),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mix:
    """`sizes`: GPUs of a job -> weight; a share `required` of the gangs must have their level, the others wish it.

    Jobs up to the GPUs of a host are one pod without a wish. Larger ones are gangs of whole-host pods, a quarter of
    them of half-host pods; their level is the rack up to `rack_gpus` GPUs, else the block.
    """

    sizes: Mapping[int, float]
    required: float
    host_gpus: int
    rack_gpus: int

    def offered(self) -> float:
        """Mean GPU seconds of a job."""
        size = sum(gpus * weight for gpus, weight in self.sizes.items()) / sum(self.sizes.values())
        return size * mean_duration()


def stream(mix: Mix, *, jobs: int, load: float, total_gpus: int, seed: int) -> tuple[Job, ...]:
    """Poisson arrivals by rising submit time, stretched to ask for exactly the share `load` of `total_gpus`.

    Without the stretching a seed's load is off by some per cent, as a tenth of the jobs has half of the GPU hours, and
    near saturation that would outweigh what is to be measured.
    """
    if jobs < 1 or load <= 0 or total_gpus < 1:
        raise ValueError("jobs, load and total_gpus must be positive")
    # One generator per trait: another mix keeps the arrivals and durations of the same seed.
    arrivals, sizes, lasting, traits = (random.Random(f"{seed} {what}") for what in ("arrive", "size", "last", "trait"))
    rate = load * total_gpus / mix.offered()
    now = 0.0
    made = []
    for number in range(jobs):
        now += arrivals.expovariate(rate)
        (size,) = sizes.choices(list(mix.sizes), list(mix.sizes.values()))
        made.append(_job(mix, number, submit=now, lasts=duration(lasting.random()), size=size, traits=traits))
    return scaled(made, load=load, total_gpus=total_gpus)


def _job(mix: Mix, number: int, *, submit: float, lasts: float, size: int, traits: random.Random) -> Job:
    half, required = traits.random() < 0.25, traits.random() < mix.required
    if size <= mix.host_gpus:
        return Job(number, submit, lasts, pods=1, gpus=size)
    gpus = mix.host_gpus // 2 if half else mix.host_gpus
    pods = math.ceil(size / gpus)
    level = 1 if size <= mix.rack_gpus else 0
    return Job(number, submit, lasts, pods=pods, gpus=gpus, level=level, required=required)


def duration(quantile: float) -> float:
    """Seconds at this quantile (0 .. 1), straight between the stated points on a logarithmic scale."""
    at = max(1, bisect_left([share for share, _ in DURATIONS], quantile))
    (low, shorter), (high, longer) = DURATIONS[at - 1], DURATIONS[at]
    part = (quantile - low) / (high - low)
    return shorter * math.pow(longer / shorter, part)


def mean_duration() -> float:
    """Mean of `duration` over all quantiles, seconds: per piece the logarithmic mean of its ends."""
    total = 0.0
    for (low, shorter), (high, longer) in itertools.pairwise(DURATIONS):
        mean = shorter if shorter == longer else (longer - shorter) / math.log(longer / shorter)
        total += (high - low) * mean
    return total
