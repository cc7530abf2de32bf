"""Ways to treat the same reviews, measured in turns, and what came out as ratios to the first of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

COLUMNS = ("CPU us", "x json.loads", "WALL us p50", "p99")


@dataclass(slots=True)
class Subject:
    """One way to treat a body; CPU seconds a call by round, wall seconds by call."""

    name: str
    call: Callable[[bytes], object]
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def round(self, bodies: Sequence[bytes]) -> None:
        """Treat every body once."""
        begin = time.thread_time()
        for body in bodies:
            start = time.perf_counter()
            self.call(body)
            self.wall.append(time.perf_counter() - start)
        self.cpu.append((time.thread_time() - begin) / len(bodies))


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of one review: the median round's CPU, and of the calls' wall time; `ratio` is that of the CPU."""

    cpu: float
    ratio: float
    p50: float
    p99: float

    @property
    def cells(self) -> tuple[str, ...]:
        """A table's cells under COLUMNS."""
        return (f"{self.cpu * 1e6:.0f}", f"{self.ratio:.1f}", f"{self.p50 * 1e6:.0f}", f"{self.p99 * 1e6:.0f}")


def measured(subjects: Sequence[Subject], bodies: Sequence[bytes], *, rounds: int) -> list[Figures]:
    """The figures of each subject; the first is what the others are held against.

    They take turns in short rounds, so that a busy machine slows them alike; one more round warms up.
    """
    for subject in subjects:
        subject.round(bodies)
        subject.cpu.clear()
        subject.wall.clear()
    for _ in range(rounds):
        for subject in subjects:
            subject.round(bodies)
    floor = subjects[0]
    return [
        Figures(
            cpu=median(subject.cpu),
            ratio=median(mine / base for mine, base in zip(subject.cpu, floor.cpu, strict=True)),
            p50=median(subject.wall),
            p99=quantiles(subject.wall, n=100)[98],
        )
        for subject in subjects
    ]
