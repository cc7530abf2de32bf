"""Runs of all schedulers on the same streams, as records that can be kept in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.mixes import stream
from bench.placement.preemption.classes import with_classes
from bench.placement.preemption.measured import Outcome, Usage, outcome
from bench.placement.preemption.rules import MOVERS, SCHEDULERS, Scheduler
from bench.placement.preemption.simulator import simulate
from bench.placement.runs import numbers_of, read_lines, with_nulls
from bench.placement.topologies import Scenario


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated; `high`: the share of jobs in the highest class, 0 if all are in one and gangs may be moved."""

    scenario: str
    load: float
    high: float

    @property
    def title(self) -> str:
        """For people: the scenario, the load and the share."""
        return f"{self.scenario}, load {self.load:g}" + (f", {self.high:.0%} high" if self.high else "")

    @property
    def schedulers(self) -> Mapping[str, Scheduler]:
        """Those that are compared here."""
        return SCHEDULERS if self.high else MOVERS


@dataclass(frozen=True, slots=True)
class Record:
    """One scheduler on one stream of `jobs` jobs."""

    setting: Setting
    seed: int
    jobs: int
    scheduler: str
    outcome: Outcome


def jobs_of(scenario: Scenario, setting: Setting, *, seed: int, jobs: int) -> tuple[Job, ...]:
    """The stream of a seed with its classes."""
    total = int(scenario.gpus().sum())
    drawn = stream(scenario.mix, jobs=jobs, load=setting.load, total_gpus=total, seed=seed)
    return with_classes(drawn, seed=seed, high=setting.high) if setting.high else drawn


def run(scenario: Scenario, setting: Setting, *, seed: int, jobs: int) -> Iterator[Record]:
    """A record per scheduler of the setting."""
    drawn = jobs_of(scenario, setting, seed=seed, jobs=jobs)
    for name, scheduler in setting.schedulers.items():
        cluster, usage = Cluster(scenario.tree, scenario.gpus()), Usage(drawn)
        history = simulate(cluster, drawn, scheduler, passed=usage.passed)
        found = outcome(cluster, drawn, history, usage, rack_gpus=scenario.rack_gpus)
        yield Record(setting, seed, jobs, name, found)


def line(record: Record) -> str:
    """The record as a line of JSON; what is not a number is null."""
    values = with_nulls(record.outcome)
    flat = {**asdict(record.setting), "seed": record.seed, "jobs": record.jobs, "scheduler": record.scheduler}
    return json.dumps({**flat, "outcome": values}, sort_keys=True)


def read(path: Path) -> list[Record]:
    """The records of a file of such lines. Raises ValueError, which names the line or says that there is none."""
    records = read_lines(path, _record)
    if not records:
        raise ValueError(f"{path}: no records")
    return records


def _record(data: Mapping[str, object]) -> Record:
    setting = Setting(str(data["scenario"]), float(str(data["load"])), float(str(data["high"])))
    found = Outcome(**numbers_of(data["outcome"], Outcome))
    return Record(setting, int(str(data["seed"])), int(str(data["jobs"])), str(data["scheduler"]), found)
