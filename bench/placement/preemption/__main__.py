"""`python -m bench.placement.preemption`: simulate streams with priority classes under our preemption and others'."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.placement.__main__ import count, load
from bench.placement.preemption import page, report
from bench.placement.preemption.records import Record, Setting, line, read, run
from bench.placement.topologies import Scenario, scenarios

_SETTINGS = {
    "preemption": tuple((name, share) for name in ("L", "C", "A") for share in (0.95, 1.1)),
    "moves": (("L", 0.9), ("L", 0.95), ("C", 0.9)),
}
_SEEDS = {"preemption": 8, "moves": 5}
_JOBS = {"preemption": 5_000, "moves": 3_000}
_HIGH = {"preemption": 0.1, "moves": 0.0}
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
    print(f"{report.gained_table(records)}\n{report.peers_table(records)}\n{report.moves_table(records)}")
    for setting in report.settings(records):
        print(f"{setting.title}\n\n{report.means_table(records, setting)}")
    if options.publish:
        path = page.publish(records, made.values(), command=options.command, docs=options.publish)
        print(f"wrote {path}", file=sys.stderr)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement.preemption", description=__doc__)
    add = parser.add_argument
    add("--part", action="append", choices=list(_SETTINGS), help="default: both")
    add(
        "--scenario",
        action="append",
        choices=("A", "B", "C", "L"),
        help="may be repeated; default: L, C, for preemption A",
    )
    add("--load", action="append", type=load, help="GPUs asked for; default: 0.95, 1.1; of moves 0.9, 0.95")
    add("--seeds", type=count, help="streams per setting; default: 8, of moves 5")
    add("--jobs", type=count, help="jobs per stream; default: 5000, of moves 3000")
    add("--quick", action="store_true", help="a minute: L, load 0.95, 2 seeds of 3000 jobs")
    add("--out", type=Path, default=_RESULTS, help=f"records of the runs, JSON lines; default: {_RESULTS}")
    add("--read", action="append", type=Path, help="don't run: take these records; may be repeated")
    add("--publish", type=Path, metavar="DOCS", help="write benchmarks/preemption.md below DOCS")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scenario, options.load = options.scenario or ["L"], options.load or [0.95]
        options.seeds = options.seeds or 2
        options.jobs = options.jobs or 3_000
    options.command = 'make bench-placement-preemption ARGS="--publish docs"'
    return options


def _chosen(part: str, options: argparse.Namespace) -> Iterable[tuple[str, float]]:
    """The scenarios and loads that were asked for; of what was not, those of the part."""
    own = _SETTINGS[part]
    if not options.scenario and not options.load:
        return own
    names, loads = (list(dict.fromkeys(values)) for values in zip(*own, strict=True))
    return itertools.product(options.scenario or names, options.load or loads)


def _run(options: argparse.Namespace, made: dict[str, Scenario]) -> list[Record]:
    runs = [
        (Setting(scenario, share, _HIGH[part]), seed, options.jobs or _JOBS[part])
        for part in options.part or _SETTINGS
        for scenario, share in _chosen(part, options)
        for seed in range(options.seeds or _SEEDS[part])
    ]
    records: list[Record] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with options.out.open("w") as file:
        for done, (setting, seed, jobs) in enumerate(runs, 1):
            of_seed = list(run(made[setting.scenario], setting, seed=seed, jobs=jobs))
            records += of_seed
            file.writelines(line(record) + "\n" for record in of_seed)
            file.flush()
            left = (time.monotonic() - began) / done * (len(runs) - done) / 60
            lost = ", ".join(f"{one.scheduler} {one.outcome.lost:.1%}" for one in of_seed)
            print(
                f"[{done}/{len(runs)}, {left:.0f} min left] {setting.title}, seed {seed}: lost {lost}", file=sys.stderr
            )
    return records


if __name__ == "__main__":
    sys.exit(main())
