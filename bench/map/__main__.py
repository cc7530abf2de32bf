"""`python -m bench.map`: what the data and the page of `topogate map` cost on a large cluster.

All numbers are CPU time, in turns with something that has the same size: the data of one moment with its own JSON, made
and read; what a person does with the page with the same done to an empty page in the same browser.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench import results
from bench.map.cluster import LARGE, SMALL, TAKEN, objects
from bench.map.window import ACTS, Measured, measure
from engine.policy.model import default_policy
from webhook.map.frame import map_frame
from webhook.map.page import static_page
from webhook.snapshot.live_cluster import live_cluster
from webhook.snapshot.snapshot import Snapshot, ends_of


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.map", description=__doc__)
    parser.add_argument("--small", action="store_true", help="128 hosts instead of 10,240, to try the benchmark")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the data (5)")
    parser.add_argument("--no-page", action="store_true", help="the data alone, without Chromium")
    options = parser.parse_args()
    console = results.console(120)
    size = SMALL if options.small else LARGE
    console.print(f"making {size.all_hosts:,} hosts, {size.placed + size.waiting} gangs")
    listed = objects(size)
    gc.collect()
    gc.disable()  # as the command does while it reads and answers
    started = time.process_time()
    view, _ = live_cluster(listed, policy=default_policy())
    reading = time.process_time() - started
    ends = ends_of(one for one in listed if one.kind != "Node")
    snapshot = Snapshot(view=view, taken=TAKEN, ends=ends)
    frame = map_frame(snapshot)
    content = json.loads(frame.json_text)
    data = _in_turns(
        options.rounds,
        {"the data": lambda: map_frame(snapshot), "as JSON": lambda: frame.json_text},
        lambda: json.loads(json.dumps(content)),
    )
    gc.enable()
    console.print(f"{len(view.stores.pods):,} pods; decoding all objects into a state: {reading:.2f} s")
    table = Table("", "CPU, s", "times json.dumps and json.loads of it", box=None, pad_edge=False, title="one moment")
    for name, (seconds, ratios) in data.items():
        table.add_row(name, results.spread(seconds), results.spread(ratios))
    console.print(table)
    report: dict[str, Any] = {"hosts": size.all_hosts, "reading": reading, "data": data}
    if not options.no_page:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.html"
            path.write_text(static_page(frame), encoding="utf-8")
            found = measure(path, Path(folder) / "profile")
        console.print(_page_table(found))
        report["page"] = {name: one.cpu for name, one in found.items()}
    console.print(f"\n{results.write('map', report).relative_to(results.ROOT)}")
    return 0


def _in_turns(
    rounds: int, subjects: dict[str, Callable[[], object]], base: Callable[[], object]
) -> dict[str, tuple[list[float], list[float]]]:
    """Return for each subject the seconds of its rounds, and their ratios to the base in the same round."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in subjects}
    for _ in range(rounds):
        least = _seconds(base)
        for name, subject in subjects.items():
            seconds = _seconds(subject)
            found[name][0].append(seconds)
            found[name][1].append(seconds / least)
    return found


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _page_table(found: dict[str, Measured]) -> Table:
    table = Table(box=None, pad_edge=False, title="the page: CPU of the main thread for each step, ms")
    for column in ("WHAT", "STEPS", "MEDIAN", "P95", "EMPTY PAGE", "MORE", "MORE, P95", "SHOWN AS"):
        table.add_column(column, justify="left" if column in ("WHAT", "SHOWN AS") else "right")
    for name in ACTS:
        one = found[name]
        table.add_row(
            name,
            str(len(one.cpu)),
            f"{median(one.cpu):.1f}",
            f"{p95(one.cpu):.1f}",
            f"{one.empty:.1f}",
            f"{median(one.cpu) - one.empty:.1f}",
            f"{p95(one.cpu) - one.empty:.1f}",
            one.detail,
        )
    return table


def p95(values: Sequence[float]) -> float:
    """The value that 19 of 20 do not exceed."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


if __name__ == "__main__":
    sys.exit(main())
