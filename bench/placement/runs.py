"""One run after the other: every rule on the same stream, seed by seed, as records that can be kept in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job, Placement, scaled
from bench.placement.metrics import Measured, Watcher, measure, warm
from bench.placement.mixes import stream
from bench.placement.rules import RULES, Rule
from bench.placement.simulator import simulate
from bench.placement.topologies import Scenario, regular
from bench.placement.traces import fitted, part

_T = TypeVar("_T")


class _Numbers(Protocol):
    """A dataclass whose fields are numbers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


ORACLE = "capacity"
"""Not a rule: the cluster as one heap of GPUs. A job waits only while there are too few free anywhere."""

NAMES = (*RULES, ORACLE)

_SAMPLE = 4  # the exact optimum is looked up for every fourth gang: it takes longer than all the rest
_PLACELESS = ("excess_racks", "excess_blocks", "excess_hosts", "optimal", "optimal_racks", "first_try_rack",
              "largest_free", "whole_racks", "stranded")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated; `trace` is the name of the file that the jobs come from, empty for the scenario's mix."""

    scenario: str
    strict: bool
    load: float
    trace: str = ""

    @property
    def title(self) -> str:
        """For people: the scenario, the queue and the load."""
        queue = "strict" if self.strict else "best effort"
        return f"{self.scenario}{f' ({self.trace})' if self.trace else ''}, {queue}, load {self.load:g}"


@dataclass(frozen=True, slots=True)
class Record:
    """One rule on one stream of `jobs` jobs."""

    setting: Setting
    seed: int
    jobs: int
    rule: str
    measured: Measured


def jobs_of(scenario: Scenario, setting: Setting, *, seed: int, jobs: int) -> tuple[Job, ...]:
    """The stream of a seed, drawn from the scenario's mix."""
    return stream(scenario.mix, jobs=jobs, load=setting.load, total_gpus=int(scenario.gpus().sum()), seed=seed)


def jobs_of_trace(
    trace: Sequence[Job], scenario: Scenario, setting: Setting, *, seed: int, seeds: int
) -> tuple[Job, ...]:
    """The part of a trace that stands for the seed, at the setting's load; levels too small for a job are raised."""
    chosen, _ = fitted(part(trace, seed, seeds), Cluster(scenario.tree, scenario.gpus()))
    return scaled(chosen, load=setting.load, total_gpus=int(scenario.gpus().sum()))


def run(
    scenario: Scenario, setting: Setting, jobs: Sequence[Job], *, seed: int, names: Iterable[str]
) -> Iterator[Record]:
    """A record per rule (or the oracle), in the order of the names."""
    rule: Rule
    for name in names:
        if name == ORACLE:
            total = np.array([scenario.gpus().sum()], dtype=np.int64)
            cluster, rule, sample = Cluster(regular(blocks=1, racks=1, hosts=1), total), _anywhere, 0
        else:
            cluster, rule, sample = Cluster(scenario.tree, scenario.gpus()), RULES[name], _SAMPLE
        watcher = Watcher(since=warm(jobs), until=jobs[-1].submit, sample=sample)
        starts = simulate(cluster, jobs, rule, strict=setting.strict, observer=watcher)
        found = measure(cluster, jobs, starts, watcher, rack_gpus=scenario.rack_gpus, block_gpus=scenario.block_gpus)
        if name == ORACLE:
            found = Measured(**{**asdict(found), **dict.fromkeys(_PLACELESS, math.nan)})
        yield Record(setting, seed, len(jobs), name, found)


def _anywhere(cluster: Cluster, job: Job) -> Placement:
    return ((0, job.pods),)


def line(record: Record) -> str:
    """The record as a line of JSON; what is not a number is null."""
    values = with_nulls(record.measured)
    flat = {**asdict(record.setting), "seed": record.seed, "jobs": record.jobs, "rule": record.rule}
    return json.dumps({**flat, "measured": values}, sort_keys=True)


def read(path: Path) -> list[Record]:
    """The records of a file of such lines. Raises ValueError, which names the line."""
    return read_lines(path, _record)


def _record(data: Mapping[str, object]) -> Record:
    setting = Setting(str(data["scenario"]), bool(data["strict"]), float(str(data["load"])), str(data["trace"]))
    measured = Measured(**numbers_of(data["measured"], Measured))
    return Record(setting, int(str(data["seed"])), int(str(data["jobs"])), str(data["rule"]), measured)


def with_nulls(numbers: _Numbers) -> dict[str, float | None]:
    """The fields of a dataclass of numbers for JSON, which has no NaN: null instead."""
    return {key: None if math.isnan(value) else value for key, value in asdict(numbers).items()}


def numbers_of(values: object, form: type[_Numbers]) -> dict[str, float]:
    """The fields of a dataclass of numbers, from what `with_nulls` made. Raises TypeError, KeyError or ValueError."""
    if not isinstance(values, dict):
        raise TypeError(f"{form.__name__}: no object")
    return {field.name: math.nan if values[field.name] is None else float(values[field.name]) for field in fields(form)}


def read_lines(path: Path, parse: Callable[[Mapping[str, object]], _T]) -> list[_T]:
    """A record for each line of a file of JSON objects. Raises ValueError, which names the line."""
    records = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            records.append(parse(json.loads(text)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: not a record of this benchmark: {error!r}") from None
    return records
