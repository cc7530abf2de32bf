"""`python -m bench.placement.preemption`: simulate streams with priority classes under our preemption and others'."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.placement.__main__ import count, load
from bench.placement.preemption import page, report
from bench.placement.preemption.records import Record, Setting, line, read, run
from bench.placement.preemption.rules import SCHEDULERS
from bench.placement.topologies import Scenario, scenarios

_SCENARIOS = ("L", "C", "A", "B")
_LOADS = (0.95, 1.1)
_HIGH = 0.1
_RESULTS = Path("bench/results/placement-preemption.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or read a former run; print tables; write the page if asked. 0, or 2 for what the user got wrong."""
    options = _options(arguments)
    made = scenarios()
    try:
        records = [one for path in options.read for one in read(path)] if options.read else _run(options, made)
    except (OSError, ValueError) as error:
        print(f"bench.placement.preemption: {error}", file=sys.stderr)
        return 2
    print(f"{report.gained_table(records)}\n{report.peers_table(records)}")
    for setting in report.settings(records):
        print(f"{setting.title}\n\n{report.means_table(records, setting)}")
    if options.publish:
        path = page.publish(records, made.values(), command=options.command, docs=options.publish)
        print(f"wrote {path}", file=sys.stderr)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement.preemption", description=__doc__)
    add = parser.add_argument
    add("--scenario", action="append", choices=sorted(_SCENARIOS), help="may be repeated; default: all")
    add("--load", action="append", type=load, help="GPUs asked for; default: 0.95, 1.1")
    add("--high", action="append", type=_share, help="share of the jobs that may preempt; default: 0.1")
    add("--seeds", type=count, help="streams per setting; default: 10")
    add("--jobs", type=count, help="jobs per stream; default: 6000")
    add("--scheduler", action="append", choices=list(SCHEDULERS), help="default: all")
    add("--quick", action="store_true", help="half a minute: L, load 0.95, 2 seeds of 4000 jobs")
    add("--out", type=Path, default=_RESULTS, help=f"records of the runs, JSON lines; default: {_RESULTS}")
    add("--read", action="append", type=Path, help="don't run: take these records; may be repeated")
    add("--publish", type=Path, metavar="DOCS", help="write benchmarks/preemption.md below DOCS")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scenario, options.load = options.scenario or ["L"], options.load or [0.95]
    options.seeds = options.seeds or (2 if options.quick else 10)
    options.jobs = options.jobs or (4_000 if options.quick else 6_000)
    options.command = 'make bench-placement-preemption ARGS="--publish docs"'
    return options


def _run(options: argparse.Namespace, made: dict[str, Scenario]) -> list[Record]:
    wanted = itertools.product(options.scenario or _SCENARIOS, options.load or _LOADS, options.high or (_HIGH,))
    settings = [Setting(*one) for one in wanted]
    names = tuple(options.scheduler or SCHEDULERS)
    records: list[Record] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    total = len(settings) * options.seeds
    with options.out.open("w") as file:
        for done, (setting, seed) in enumerate(itertools.product(settings, range(options.seeds)), 1):
            of_seed = list(run(made[setting.scenario], setting, seed=seed, jobs=options.jobs, names=names))
            records += of_seed
            file.writelines(line(record) + "\n" for record in of_seed)
            file.flush()
            left = (time.monotonic() - began) / done * (total - done)
            lost = ", ".join(f"{one.scheduler} {one.outcome.lost:.1%}" for one in of_seed)
            print(
                f"[{done}/{total}, {left / 60:.0f} min left] {setting.title}, seed {seed}: lost {lost}", file=sys.stderr
            )
    return records


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
