"""Feeds random and mutated inputs to whatever reads what others write: `python -m tests.fuzz --help`, `make fuzz`."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.hunt import EVERY, Hunter, Report, hunt_side_by_side
from tests.fuzz.service import quiet_logs
from tests.fuzz.targets import TARGETS


class Progress:
    """Counts what the processes report, says so now and then, and writes findings to files."""

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder = count, folder
        self._begin = self._said = time.monotonic()
        self.inputs: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()

    def tell(self, report: Report) -> None:
        """Take one report."""
        self.inputs.update(report.inputs)
        self.repeats.update(report.repeats)
        for one in report.findings:
            self.repeats[one.signature] += 1
            if self.repeats[one.signature] > 1:
                continue
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / one.file
            path.write_bytes(one.body)
            print(f"FOUND {one.detail}\n  input {one.number} of seed {one.seed}; make small: {path}", flush=True)
        if time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            print(self.line(), flush=True)

    def line(self) -> str:
        """How far it is."""
        done, seconds = self.inputs.total(), time.monotonic() - self._begin
        return f"{done:,} of {self._count:,} inputs, {done / max(seconds, 0.1):,.0f}/s, {len(self.repeats)} findings"


def main() -> int:
    """Run; the status is 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs in all (1000000)")
    parser.add_argument("--seed", type=int, help="the same inputs as the run that printed it; else a new one")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="side by side (all cores)")
    parser.add_argument("--only", action="append", choices=sorted(TARGETS), default=[], help="this target; repeatable")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where findings go (build/fuzz)")
    parser.add_argument("--replay", type=Path, help="check the input in this file, and nothing else")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    # Without this the end of this process would leave the others running.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    seed = options.seed if options.seed is not None else secrets.randbelow(10**9)
    print(f"seed {seed}, {options.count:,} inputs, {options.processes} processes", flush=True)
    progress = Progress(options.count, options.folder)
    hunt_side_by_side(options.count, seed=seed, processes=options.processes, only=options.only, tell=progress.tell)
    print(progress.line())
    print(", ".join(f"{name} {progress.inputs[name]:,}" for name in TARGETS if progress.inputs[name]))
    for signature, times in progress.repeats.most_common():
        print(f"{times:>9,} x {signature}")
    return 1 if progress.repeats else 0


def replay(path: Path) -> int:
    """Check one input again; its target is the first part of the file's name."""
    name = path.name.partition("-")[0]
    with quiet_logs() as faults:
        found = Hunter(0, faults, only=[name], drawn_each=1).violation(name, path.read_bytes())
    print(found or "nothing is wrong with it")
    return 1 if found is not None else 0


if __name__ == "__main__":
    sys.exit(main())
