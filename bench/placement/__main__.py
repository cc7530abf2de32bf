"""`python -m bench.placement`: simulate streams of gangs under our planner and under other schedulers' rules."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.placement import page, report
from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from bench.placement.rules import OURS
from bench.placement.runs import NAMES, Record, Setting, jobs_of, jobs_of_trace, line, read, run
from bench.placement.topologies import Scenario, scenarios
from bench.placement.traces import TraceError, fitted, read_jobs, read_tree

_QUEUES = {"best-effort": False, "strict": True}
# A strict queue stands still behind its first gang long before the GPUs are all in use: it saturates at lower loads.
_LOADS = {"best-effort": (0.8, 0.9, 0.95), "strict": (0.7,)}
_SCENARIOS = ("L", "C", "A", "B")
_RESULTS = Path("bench/results/placement.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or read a former run; print tables; write the page if asked. 0, or 2 for what the user got wrong."""
    options = _options(arguments)
    try:
        made = scenarios(read_tree(options.topology) if options.topology else None)
        if options.read:
            records = [record for path in options.read for record in read(path)]
            if not records:
                raise TraceError(f"{', '.join(map(str, options.read))}: no records")
        else:
            records = _run(options, made)
    except (TraceError, OSError, ValueError) as error:
        print(f"bench.placement: {error}", file=sys.stderr)
        return 2
    print(report.comparison_table(report.comparisons(records)))
    for setting in report.settings(records):
        print(f"{setting.title}\n\n{report.means_table(records, setting)}")
    if options.publish:
        for path in page.publish(records, made.values(), command=options.command, docs=options.publish):
            print(f"wrote {path}", file=sys.stderr)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    add = parser.add_argument
    add("--scenario", action="append", choices=sorted(_SCENARIOS), help="may be repeated; default: all")
    add("--load", action="append", type=load, help="GPUs asked for; default: 0.8, 0.9, 0.95; of the strict queue 0.7")
    add("--queue", action="append", choices=list(_QUEUES), help="default: both")
    add("--seeds", type=count, help="streams per setting; default: 10")
    add("--jobs", type=count, help="jobs per stream; default: 10000")
    add("--rule", action="append", choices=NAMES, help="default: all")
    add("--trace", type=Path, help="CSV of jobs, cut into as many parts as there are seeds")
    add("--topology", type=Path, help="CSV of block, rack, host: the tree of scenario L")
    add("--quick", action="store_true", help="a minute: A and L, best effort, load 0.9, 2 seeds of 4000 jobs")
    add("--out", type=Path, default=_RESULTS, help=f"records of the runs, JSON lines; default: {_RESULTS}")
    add("--read", action="append", type=Path, help="don't run: take these records; may be repeated")
    add("--publish", type=Path, metavar="DOCS", help="write benchmarks/placement.md and its images below DOCS")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scenario, options.queue = options.scenario or ["A", "L"], options.queue or ["best-effort"]
        options.load = options.load or [0.9]
    options.seeds = options.seeds or (2 if options.quick else 10)
    options.jobs = options.jobs or (4_000 if options.quick else 10_000)
    options.command = 'make bench-placement ARGS="--publish docs"'
    return options


def _settings(options: argparse.Namespace) -> list[Setting]:
    """What was asked for; unless said otherwise, every queue at the loads that tell something about it."""
    return [
        Setting(name, _QUEUES[queue], load, options.trace.name if options.trace else "")
        for name in options.scenario or _SCENARIOS
        for queue in options.queue or _QUEUES
        for load in options.load or _LOADS[queue]
    ]


def _run(options: argparse.Namespace, made: dict[str, Scenario]) -> list[Record]:
    trace = read_jobs(options.trace) if options.trace else None
    settings = _settings(options)
    if trace:
        _tell_raised(trace, [made[name] for name in dict.fromkeys(setting.scenario for setting in settings)])
    names = tuple(options.rule or NAMES)
    records: list[Record] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    total = len(settings) * options.seeds
    with options.out.open("w") as file:
        for done, (setting, seed) in enumerate(itertools.product(settings, range(options.seeds)), 1):
            of_seed = list(_seed(made[setting.scenario], setting, trace, seed, names=names, options=options))
            records += of_seed
            file.writelines(line(record) + "\n" for record in of_seed)
            file.flush()
            left = (time.monotonic() - began) / done * (total - done)
            print(
                f"[{done}/{total}, {left / 60:.0f} min left] {setting.title}, seed {seed}: {_short(of_seed)}",
                file=sys.stderr,
            )
    return records


def _seed(
    scenario: Scenario,
    setting: Setting,
    trace: Sequence[Job] | None,
    seed: int,
    *,
    names: Sequence[str],
    options: argparse.Namespace,
) -> Iterator[Record]:
    if trace is None:
        jobs = jobs_of(scenario, setting, seed=seed, jobs=options.jobs)
    else:
        jobs = jobs_of_trace(trace, scenario, setting, seed=seed, seeds=options.seeds)
    return run(scenario, setting, jobs, seed=seed, names=names)


def _tell_raised(trace: Sequence[Job], chosen: Sequence[Scenario]) -> None:
    for scenario in chosen:
        _, raised = fitted(trace, Cluster(scenario.tree, scenario.gpus()))
        if raised:
            print(f"{scenario.name}: {raised} jobs are too big for their level and get a coarser one", file=sys.stderr)


def _short(records: Sequence[Record]) -> str:
    """Our excess racks and those of the others, for the one who waits."""
    excess = {record.rule: record.measured.excess_racks for record in records}
    order = [OURS, *(rule for rule in excess if rule != OURS)]
    return ", ".join(f"{rule} {excess[rule]:.2f}" for rule in order if rule in excess and excess[rule] == excess[rule])


def load(text: str) -> float:
    """A load from the command line."""
    value = float(text)
    if not 0 < value <= 2:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 2")
    return value


def count(text: str) -> int:
    """A number of streams or jobs from the command line."""
    value = int(text)
    if not 1 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 1000000")
    return value


if __name__ == "__main__":
    sys.exit(main())
