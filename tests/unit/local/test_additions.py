"""Programs that join a control plane: the two sides of their folder, with small programs of the system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from local import additions
from local.additions import Addition, Additions
from tests.support.eventually import eventually


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Additions]:
    """The supervisor's side, tended by the tests themselves."""
    side = Additions(tmp_path)
    yield side
    side.kill()


def sleeper(**environment: str) -> Addition:
    return Addition(command=["/bin/sh", "-c", 'echo "I am $NAME in $PWD"; exec sleep 1000'], environment=environment)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_addition_runs_until_it_is_taken_back(tmp_path: Path, supervisor: Additions) -> None:
    """Its process is known while it is the supervisor's; taken back, it is ended and forgotten."""
    additions.add(tmp_path, "one", sleeper(NAME="first"))
    supervisor.tend()
    pid = additions.pid(tmp_path, "one")
    assert pid is not None
    assert not gone(pid)
    (tmp_path / additions.FOLDER / "one.json").unlink()
    supervisor.tend()
    assert gone(pid)
    assert (additions.pid(tmp_path, "one"), additions.ended(tmp_path, "one")) == (None, None)


def test_an_addition_has_its_own_environment_and_log(tmp_path: Path, supervisor: Additions) -> None:
    """Nothing of ours but PATH; what it says is in logs/NAME.log."""
    additions.add(tmp_path, "one", sleeper(NAME="first"))
    supervisor.tend()
    log = tmp_path / "logs" / "one.log"
    eventually(lambda: log.read_text() == f"I am first in {tmp_path}/logs\n", message="it has spoken")


def test_an_addition_that_ends_is_quoted_and_not_started_again(tmp_path: Path, supervisor: Additions) -> None:
    """Status and the end of its log; the other additions go on."""
    additions.add(tmp_path, "bad", Addition(command=["/bin/sh", "-c", "echo broken; exit 3"], environment={}))
    additions.add(tmp_path, "good", sleeper())

    def ended() -> str | None:
        supervisor.tend()
        return additions.ended(tmp_path, "bad")

    why = eventually(ended, message="the end is noted")
    assert why == f"bad ended with status 3; its log {tmp_path}/logs/bad.log ends:\n  broken"
    first = additions.pid(tmp_path, "bad")
    supervisor.tend()
    assert additions.pid(tmp_path, "bad") == first
    assert additions.ended(tmp_path, "good") is None


def test_a_program_that_is_not_there_is_told(tmp_path: Path, supervisor: Additions) -> None:
    """The supervisor lives on."""
    additions.add(tmp_path, "absent", Addition(command=[str(tmp_path / "nothing")], environment={}))
    supervisor.tend()
    assert (additions.ended(tmp_path, "absent") or "").startswith("absent could not be started: ")
    supervisor.tend()


def test_the_additions_of_an_earlier_instance_are_not_started(tmp_path: Path) -> None:
    """A folder is used again: what stood there is forgotten."""
    (tmp_path / additions.FOLDER).mkdir()
    additions.add(tmp_path, "old", sleeper())
    side = Additions(tmp_path)
    side.tend()
    assert additions.pid(tmp_path, "old") is None


def test_all_end_with_the_supervisor(tmp_path: Path, supervisor: Additions) -> None:
    """Nothing stays behind."""
    for name in ("one", "two"):
        additions.add(tmp_path, name, sleeper())
    supervisor.tend()
    pids = [additions.pid(tmp_path, name) for name in ("one", "two")]
    supervisor.kill()
    assert all(pid is not None and gone(pid) for pid in pids)
