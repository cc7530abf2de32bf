"""What the fair order among namespaces changes, and what it costs: `python -m bench.fairness --help`.

A stream of gangs on a pool of GPUs, with the product's own queue, by age and in fair order: one namespace submits far
more than its part in large bursts, the others little and steadily. Then one turn of the queue with 1,000 waiting gangs
in 50 namespaces, both orders by turns.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from bench import results
from engine.api.workload import GangKey, ReservationKey
from engine.capacity.quota import Usage
from engine.scheduler.fairness import WeightedUsage
from engine.scheduler.queue import GangQueue, QueueEntry


@dataclass(frozen=True, slots=True)
class Job:
    """A gang of so many GPUs that runs for so many seconds."""

    name: str  # namespace/name
    gpus: int
    submit: float
    duration: float
    priority: int = 0

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Start:
    """A job's start, and what every namespace had at that moment, before it."""

    job: Job
    at: float
    used: Mapping[str, int]

    @property
    def wait(self) -> float:
        """Seconds in the queue."""
        return self.at - self.job.submit


def _key(name: str) -> GangKey:
    return GangKey(ReservationKey(name))


Look = Callable[[float, Mapping[str, int], Sequence[Job]], None]


def stream(
    jobs: Sequence[Job],
    gpus: int,
    *,
    weights: Mapping[str, int] | None,
    strict: bool = False,
    look: Look = lambda _now, _used, _waiting: None,
) -> list[Start]:
    """Run jobs on a pool of GPUs, in the order of their starts; `weights` None: by age.

    `look` sees the time, the GPUs in use by namespace and the waiting jobs after each event.
    """
    queue = GangQueue()
    coming = sorted(jobs, key=lambda job: (job.submit, job.name), reverse=True)
    running: list[tuple[float, str, Job]] = []
    waiting: dict[GangKey, Job] = {}
    used: Counter[str] = Counter()
    started: list[Start] = []
    while coming or running:
        now = min(([coming[-1].submit] if coming else []) + ([running[0][0]] if running else []))
        while coming and coming[-1].submit <= now:
            job = coming.pop()
            waiting[_key(job.name)] = job
            queue.add(_key(job.name), QueueEntry(priority=job.priority, created=job.submit, name=job.name))
        while running and running[0][0] <= now:
            ended = heapq.heappop(running)[2]
            used[ended.namespace] -= ended.gpus
            queue.capacity_freed = True
        if weights is not None:
            queue.usage = WeightedUsage(
                {name: Usage(amount * 100, amount) for name, amount in used.items()}, lambda name: weights.get(name, 1)
            )
        for key in queue.in_turns(queue.take(now, strict=strict)):
            job = waiting[key]
            if used.total() + job.gpus <= gpus:
                started.append(Start(job, now, dict(used)))
                used[job.namespace] += job.gpus
                if queue.usage is not None:
                    queue.usage.charge(job.namespace, Usage(job.gpus * 100, job.gpus))
                queue.drop(key)
                del waiting[key]
                heapq.heappush(running, (now + job.duration, job.name, job))
            elif strict:
                queue.stop_behind(key)
                break
        look(now, used, list(waiting.values()))
    return started


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="streams (20)")
    parser.add_argument("--rounds", type=int, default=30, help="turns of the queue (30)")
    options = parser.parse_args()
    console = results.console(110)
    table = Table(title="64 GPUs, hog (half of the load, bursts of 100) beside four others; hours in the queue")
    for column in ("order", "hog median", "hog p95", "others median", "others p95", "GPUs busy"):
        table.add_column(column, justify="right" if column != "order" else "left")
    for name, weights, strict in (
        ("best-effort, by age", None, False),
        ("best-effort, fair", {}, False),
        ("best-effort, fair, hog has weight 4", {"hog": 4}, False),
        ("strict, by age", None, True),
        ("strict, fair", {}, True),
    ):
        table.add_row(name, *_figures(options.seeds, weights, strict))
    console.print(table)
    for words, every in (("none is placed", 0), ("100 are placed", 10)):
        plain, fair = _turn_seconds(options.rounds, every)
        console.print(
            f"order of 1,000 waiting gangs in 50 namespaces, of which {words}: by age {plain * 1e3:.2f} ms, "
            f"fair {fair * 1e3:.2f} ms ({fair / plain:.2f}x)"
        )
    return 0


def _figures(seeds: int, weights: Mapping[str, int] | None, strict: bool) -> list[str]:
    waits: dict[bool, list[float]] = {True: [], False: []}
    busy = []
    for seed in range(seeds):
        started = stream(_jobs(seed), 64, weights=weights, strict=strict)
        for one in started:
            waits[one.job.namespace == "hog"].append(one.wait / 3600)
        last = max(one.at for one in started)
        busy.append(sum(one.job.gpus * min(one.job.duration, last - one.at) for one in started) / (64 * last))
    cells = []
    for hog in (True, False):
        cells += [f"{statistics.median(waits[hog]):.2f}", f"{statistics.quantiles(waits[hog], n=20)[-1]:.2f}"]
    return [*cells, f"{statistics.mean(busy):.1%}"]


def _jobs(seed: int) -> list[Job]:
    """Two days at 95 % load: gangs of 1 to 16 GPUs that run 1.5 hours on average."""
    rng = random.Random(seed)
    mean_gpus, mean_hours, hours = 4.2, 1.5, 48.0
    total = int(0.95 * 64 * hours / (mean_gpus * mean_hours))

    def job(name: str, at: float) -> Job:
        return Job(name, rng.choice((1, 1, 2, 4, 4, 8, 8)), at, rng.expovariate(1 / mean_hours) * 3600 + 60)

    found = [job(f"team{number % 4}/j{number}", rng.uniform(0, hours) * 3600) for number in range(total // 2)]
    bursts = [rng.uniform(0, hours * 0.8) * 3600 for _ in range(total // 200 + 1)]
    return found + [job(f"hog/j{number}", bursts[number % len(bursts)]) for number in range(total // 2)]


def _turn_seconds(rounds: int, every: int) -> tuple[float, float]:
    """Median seconds in which a queue is put in order and gone through, by age and in fair order, by turns."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(rounds):
        for fair in (False, True):
            rng = random.Random(seed)
            queue = GangQueue()
            for number in range(1_000):
                name = f"team{number % 50}/j{number}"
                queue.add(_key(name), QueueEntry(priority=0, created=rng.random(), name=name))
            usage = {f"team{number}": Usage(rng.randrange(1_000), rng.randrange(10)) for number in range(50)}
            began = time.perf_counter()
            queue.usage = WeightedUsage(usage, lambda _name: 1) if fair else None
            for place, key in enumerate(queue.in_turns(queue.take(0.0, strict=False))):
                entry = queue.entry(key)
                if every and place % every == 0 and entry is not None:
                    if queue.usage is not None:
                        queue.usage.charge(entry.namespace, Usage(100, 1))
                    queue.drop(key)
            times[fair].append(time.perf_counter() - began)
    return statistics.median(times[False]), statistics.median(times[True])


if __name__ == "__main__":
    sys.exit(main())
