"""Streams and trees read from CSV files that the user names."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.placement.cluster import Cluster
from bench.placement.jobs import Job
from engine.planner.tree import Tree, build_tree

_JOB_COLUMNS = ("submit_s", "duration_s", "pods", "gpus_per_pod", "topology_mode", "topology_level")
_HOST_COLUMNS = ("block", "rack", "host")
_MOST = 1_000_000  # pods or GPUs of one job, jobs, hosts: far beyond any cluster, within memory


class TraceError(ValueError):
    """What is wrong with which line of which file."""


def read_jobs(path: Path) -> tuple[Job, ...]:
    """The jobs of a trace by submit time, the first at 0 seconds.

    Columns: submit_s, duration_s (numbers), pods, gpus_per_pod (whole numbers, 1 or more), topology_mode (none,
    required, preferred), topology_level (rack, block; empty for none); others are left out of account. Raises
    TraceError.
    """
    jobs: list[Job] = []
    for line, row in _rows(path, _JOB_COLUMNS):
        mode, level = row["topology_mode"], row["topology_level"]
        if mode not in ("none", "required", "preferred"):
            raise TraceError(f"{path}:{line}: topology_mode: {mode!r} is not none, required or preferred")
        if mode != "none" and level not in ("rack", "block"):
            raise TraceError(f"{path}:{line}: topology_level: {level!r} is neither rack nor block")
        submit, duration = (_number(path, line, column, row[column]) for column in ("submit_s", "duration_s"))
        if duration <= 0:
            raise TraceError(f"{path}:{line}: duration_s: {row['duration_s']!r} is not positive")
        jobs.append(
            Job(
                number=len(jobs),
                submit=submit,
                duration=duration,
                pods=_count(path, line, "pods", row["pods"]),
                gpus=_count(path, line, "gpus_per_pod", row["gpus_per_pod"]),
                level=None if mode == "none" else ("block", "rack").index(level),
                required=mode == "required",
            )
        )
    if not jobs:
        raise TraceError(f"{path}: no jobs")
    jobs.sort(key=lambda job: (job.submit, job.number))
    return tuple(replace(job, submit=job.submit - jobs[0].submit) for job in jobs)


def read_tree(path: Path) -> Tree:
    """The tree of a CSV file with the columns block, rack, host; racks are told apart within their block."""
    paths = []
    for line, row in _rows(path, _HOST_COLUMNS):
        block, rack, host = (row[column] for column in _HOST_COLUMNS)
        if not (block and rack and host):
            raise TraceError(f"{path}:{line}: a block, rack or host has no name")
        paths.append((block, f"{block}/{rack}", host))
    if not paths:
        raise TraceError(f"{path}: no hosts")
    try:
        return build_tree(_HOST_COLUMNS, paths)
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None


def part(jobs: Sequence[Job], index: int, parts: int) -> tuple[Job, ...]:
    """The `index`-th of `parts` consecutive parts of equal numbers of jobs, its first job at 0 seconds."""
    length = len(jobs) // parts
    chosen = jobs[index * length : (index + 1) * length]
    if not chosen:
        raise TraceError(f"{len(jobs)} jobs cannot be split into {parts} parts")
    return tuple(replace(job, submit=job.submit - chosen[0].submit) for job in chosen)


def fitted(jobs: Sequence[Job], cluster: Cluster) -> tuple[tuple[Job, ...], int]:
    """Jobs that no domain of their level could ever hold get the next coarser level; how many did.

    `cluster` is empty. Raises TraceError for a job that even the whole cluster cannot hold.
    """
    made = []
    for job in jobs:
        wish = job
        while wish.level is not None and cluster.slots(wish.level, wish.gpus).max() < wish.pods:
            wish = replace(wish, level=wish.level - 1) if wish.level else replace(wish, level=None, required=False)
        if not cluster.fits(wish):
            raise TraceError(f"job {job.number}: {job.pods} pods of {job.gpus} GPUs never fit into this cluster")
        made.append(wish)
    return tuple(made), sum(wish is not job for wish, job in zip(made, jobs, strict=True))


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: no column {', '.join(missing)}")
            for row in reader:
                if len(rows) == _MOST:
                    raise TraceError(f"{path}: more than {_MOST} lines")
                if any(row[column] is None for column in columns):
                    raise TraceError(f"{path}:{reader.line_num}: too few values")
                rows.append((reader.line_num, row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {error}") from None
    return rows


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < 1e12:
        raise TraceError(f"{path}:{line}: {column}: {text!r} is not a number of seconds")
    return value


def _count(path: Path, line: int, column: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 7 and 1 <= int(text) <= _MOST):
        raise TraceError(f"{path}:{line}: {column}: {text!r} is not a whole number from 1 to {_MOST}")
    return int(text)
