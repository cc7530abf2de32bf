"""Programs that join a running control plane and end with it, like the controllers of other kinds.

The two sides share one folder, `additions` in the folder of the instance: a file NAME.json there makes the supervisor
start that program, and its absence makes it end it. The supervisor answers with NAME.pid while the program's process is
its own, and with NAME.ended when the program has ended by itself. An addition that dies ends nothing else, and is not
started again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from local.credentials import write_private
from local.processes import Child, spawn, tail

FOLDER = "additions"
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Addition:
    """One program: its command line, and its environment beside PATH and HOME."""

    command: Sequence[str]
    environment: Mapping[str, str]


def add(directory: Path, name: str, addition: Addition) -> None:
    """Let the supervisor of the instance in `directory` start a program, whose log is logs/NAME.log."""
    write_private(_file(directory, name, "json"), json.dumps(asdict(addition)).encode())


def remove(directory: Path, name: str) -> None:
    """Let it end a program, and return when that has ended; that there is none is fine."""
    _file(directory, name, "json").unlink(missing_ok=True)
    deadline = time.monotonic() + END_SECONDS
    while pid(directory, name) is not None and time.monotonic() < deadline:
        time.sleep(0.02)


def pid(directory: Path, name: str) -> int | None:
    """Return the process of an addition that was started and not removed."""
    try:
        return int(_file(directory, name, "pid").read_text())
    except FileNotFoundError:
        return None


def ended(directory: Path, name: str) -> str | None:
    """Return why an addition has ended by itself, with the end of its log; None while it runs."""
    try:
        return _file(directory, name, "ended").read_text().rstrip()
    except FileNotFoundError:
        return None


@dataclass(slots=True)
class Additions:
    """The supervisor's side: `tend` is called again and again, `kill` at the end."""

    directory: Path
    # None: it could not even be started.
    _children: dict[str, Child | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Forget what an earlier instance in this folder ran."""
        shutil.rmtree(self.directory / FOLDER, ignore_errors=True)
        (self.directory / FOLDER).mkdir(mode=0o700)

    def tend(self) -> None:
        """Start what is new, end what is gone, note what has ended."""
        wanted = {path.stem for path in (self.directory / FOLDER).glob("*.json")}
        for name in self._children.keys() - wanted:
            _kill(self._children.pop(name))
            for answer in ("ended", "pid"):
                _file(self.directory, name, answer).unlink(missing_ok=True)
        for name in sorted(wanted - self._children.keys()):
            self._start(name)
        for name, child in self._children.items():
            if child is not None and not child.running:
                status = child.process.returncode
                self._note(name, f"{name} ended with status {status}; its log {child.log} ends:\n{tail(child.log)}")

    def kill(self) -> None:
        """End all of them."""
        for child in self._children.values():
            _kill(child)
        shutil.rmtree(self.directory / FOLDER, ignore_errors=True)

    def _start(self, name: str) -> None:
        try:
            addition = Addition(**json.loads(_file(self.directory, name, "json").read_bytes()))
        except FileNotFoundError:  # taken back already
            return
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory), **addition.environment}
        log = self.directory / "logs" / f"{name}.log"
        try:
            child = spawn(name, addition.command, log=log, environment=environment)
        except OSError as error:
            self._children[name] = None
            self._note(name, f"{name} could not be started: {error}")
            return
        self._children[name] = child
        write_private(_file(self.directory, name, "pid"), str(child.process.pid).encode())

    def _note(self, name: str, why: str) -> None:
        path = _file(self.directory, name, "ended")
        if not path.exists():
            write_private(path, why.encode())


def _kill(child: Child | None) -> None:
    if child is not None:
        child.kill()


def _file(directory: Path, name: str, kind: str) -> Path:
    return directory / FOLDER / f"{name}.{kind}"
