"""CPU seconds of other processes, by their clocks: on a shared machine a steadier measure than the time that passes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

REST = 0.9  # processors; kwok renews the Leases of all hosts all the time: of 5,120 with more than 0.5
TICKS = os.sysconf("SC_CLK_TCK")
GROUP = 2  # field of /proc/PID/stat after the command's closing bracket, counted from 0
SCHEDULED = 2  # the clock of a process that counts nanoseconds (CPUCLOCK_SCHED): /proc/PID/stat has ticks of 10 ms


def group(leader: int) -> list[int]:
    """The processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) and int(fields[GROUP]) == leader:
            found.append(int(entry.name))
    return found


def cpu_seconds(groups: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """What each named set of processes has used since its start; one that has ended counts nothing."""
    return {name: sum(_seconds(pid) for pid in pids) for name, pids in groups.items()}


def at_rest(groups: Mapping[str, Iterable[int]]) -> bool:
    """Whether they all together use less than `REST` processors for a second: what was before is over."""
    before = sum(cpu_seconds(groups).values())
    time.sleep(1.0)
    return sum(cpu_seconds(groups).values()) - before < REST


def machine_seconds() -> float:
    """CPU seconds of all processors so far in which they did something for anybody, or were taken away (steal)."""
    user, nice, system, _idle, _wait, irq, soft, steal, *_ = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft + steal) / TICKS


def _seconds(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | SCHEDULED)  # as clock_getcpuclockid of the C library makes its number
    except OSError:
        return 0.0  # it has ended


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
