"""One child process with its log file: started so that it cannot outlive us, ended by its own pid."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Child:
    """A running program and the file that takes its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it now: nothing here has data that anybody keeps."""
        if self.running:
            self.process.kill()
        self.process.wait()


def spawn(
    name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], outlive: bool = False
) -> Child:
    """Start a program in a session of its own (the terminal's Ctrl-C is for us), its output appended to `log`.

    On Linux the kernel kills it when the *thread* that started it ends, unless it is to outlive us: call this from the
    main thread.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=None if outlive else _die_with_parent(),  # noqa: PLW1509  the supervisor has one thread
        )
    return Child(name, process, log)


def tail(log: Path, *, lines: int = 12) -> str:
    """Return the last lines of a log, each cut at 400 characters, for an error message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    kept = [line[:400] for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"  {line}" for line in kept) or "  (the log is empty)"


def _die_with_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork: afterwards only system calls are safe
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended between the fork and the call above
            os._exit(1)

    return arrange
