"""How the leader's time and memory grow with the cluster: `python -m bench.growth --help`.

The leader's own state, planner and control loop, fed with the objects of clusters of 1,024 to 102,400 hosts with some
10 pods each, in a process of its own for each size. Times are of the processor. The exponent says how a figure grows
with the number of hosts: 1 is in proportion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, Final

from rich.table import Table

from bench import results
from bench.growth.measures import Scene, measure

SIZES: Final = (1_024, 10_240, 102_400)
WAITING: Final = (100, 1_000, 10_000)  # gangs that wait in a full cluster
FULL: Final = 10_240  # its hosts
COLUMNS: Final = {
    "hosts": "HOSTS",
    "pods": "PODS",
    "running": "RUNNING",
    "waiting": "WAITING",
    "memory": "MiB",
    "begin": "BEGIN",
    "idle": "IDLE",
    "pod_event": "POD",
    "node_event": "CORDON",
    "node_joins": "JOIN",
    "plan_rack": "PLAN 16",
    "plan_block": "PLAN 256",
    "freed": "FREED",
    "freed_all": "ALL TOLD",
}
COUNTED: Final = ("hosts", "pods", "running", "waiting")


def exponents(rows: Sequence[Mapping[str, Any]], by: str) -> dict[str, float]:
    """Return for each figure the exponent of its growth with `by`: the slope of the least squares of the logarithms."""
    found = {}
    for name in (name for name in COLUMNS if name not in COUNTED):
        points = [(log(row[by]), log(row[name])) for row in rows if row[name]]
        if len(points) < max(2, len(rows)):
            continue
        middle = [sum(one) / len(points) for one in zip(*points, strict=True)]
        across = sum((x - middle[0]) ** 2 for x, _ in points)
        if across:
            found[name] = sum((x - middle[0]) * (y - middle[1]) for x, y in points) / across
    return found


def _measured(scene: Scene, rounds: int) -> dict[str, Any]:
    """The figures of one cluster, from a process that has held nothing else."""
    options = ["--hosts", str(scene.hosts), "--waiting", str(scene.waiting), "--rounds", str(rounds), "--alone"]
    command = [sys.executable, "-m", "bench.growth", *options, *(["--full"] if scene.full else [])]
    done = subprocess.run(command, cwd=results.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _table(title: str, rows: Sequence[Mapping[str, Any]], by: str) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_cell(name, row[name]) for name in COLUMNS))
    growth = exponents(rows, by)
    table.add_row(*("exponent" if name == by else f"{growth[name]:.2f}" if name in growth else "" for name in COLUMNS))
    return table


def _cell(name: str, figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if name in COUNTED or figure >= 100 else f"{figure:.2g}"


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, action="append", help=f"sizes, multiples of 1,024 ({SIZES})")
    parser.add_argument("--waiting", type=int, action="append", help=f"gangs that wait in a full cluster ({WAITING})")
    parser.add_argument("--rounds", type=int, default=7, help="each figure is the median of so many (7)")
    parser.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 1 or any(hosts < 1_024 or hosts % 1_024 for hosts in options.hosts or ()):
        parser.error("--rounds has to be at least 1, --hosts a multiple of 1,024")
    if options.alone:
        scene = Scene(options.hosts[0], options.waiting[0], full=options.full)
        json.dump(measure(scene, rounds=options.rounds).row(), sys.stdout)
        return 0
    console = results.console(120)
    report = {}
    parts = {
        "by hosts": ([Scene(hosts, 100) for hosts in options.hosts or SIZES], "hosts"),
        "by waiting gangs, all hosts in use": (
            [Scene(FULL, waiting, full=True) for waiting in options.waiting or WAITING],
            "waiting",
        ),
    }
    for title, (scenes, by) in parts.items():
        rows = []
        for scene in scenes:
            console.print(f"measuring {scene.hosts:,} hosts, {scene.waiting:,} gangs that wait")
            rows.append(_measured(scene, options.rounds))
        report[title] = {"rows": rows, "exponents": exponents(rows, by)}
        console.print(_table(f"{title}: memory in MiB, times in ms of the processor", rows, by))
        console.print()
    console.print(f"{results.write('growth', report).relative_to(results.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
