"""`topogate verify`: output, exit status, waiting, and what cannot be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.support.fake_api import Answer, FakeApi
from tests.support.installations import ABSENT, GOOD
from tests.unit.commands.conftest import Topogate
from webhook.commands import verify
from webhook.snapshot import live_installation
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.installation import Installation


class Readings:
    """Gives one installation after the other, the last one for ever, and knows how it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Installation | Exception) -> None:
        self._found = list(found)
        self.asked: list[dict[str, Any]] = []
        self.pauses: list[float] = []
        monkeypatch.setattr(live_installation, "read_installation", self._read)
        monkeypatch.setattr(verify.time, "sleep", self.pauses.append)

    def _read(self, _api: object, **options: Any) -> Installation:
        self.asked.append({key: value for key, value in options.items() if key != "needed"})
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, Exception):
            raise found
        return found


def test_the_status_tells_whether_a_check_fails(topogate: Topogate, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings(monkeypatch, GOOD, replace(GOOD, definition=ABSENT))
    done = topogate("verify")
    assert (done.exit_code, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "all good")
    done = topogate("verify", "-n", "bob", "--service-namespace", "other")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "1 failure")
    assert readings.asked == [
        {"namespace": "topogate-system", "try_in": "alice"},
        {"namespace": "other", "try_in": "bob"},
    ]


def test_what_is_printed_as_data_has_the_same(topogate: Topogate, monkeypatch: pytest.MonkeyPatch) -> None:
    Readings(monkeypatch, replace(GOOD, definition=ABSENT))
    found = json.loads(topogate("verify", "-o", "json").stdout)
    assert found == yaml.safe_load(topogate("verify", "-o", "yaml").stdout)
    assert (found["good"], found["namespace"]) == (False, "topogate-system")
    assert [one["check"] for one in found["findings"] if one["result"] == "fail"] == ["definition"]


def test_waiting_ends_with_the_first_good_answer(topogate: Topogate, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is told once, and again when it is something else."""
    missing = replace(GOOD, definition=ABSENT)
    both = replace(missing, deployment=ABSENT)
    silent = ConnectionProblem("the API server cannot be asked: no")
    readings = Readings(monkeypatch, silent, both, both, missing, GOOD)
    done = topogate("verify", "--wait", "2m")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "all good")
    assert [line.partition(" left: ")[2][:32] for line in done.stderr.splitlines()] == [
        "the API server cannot be asked: ",
        "definition: CustomResourceDefini",
        "definition: CustomResourceDefini",
    ]
    assert "(and 1 more)" in done.stderr.splitlines()[1]
    assert readings.pauses == [verify.PAUSE] * 4


def test_waiting_ends_with_the_time(topogate: Topogate, monkeypatch: pytest.MonkeyPatch) -> None:
    Readings(monkeypatch, replace(GOOD, definition=ABSENT))
    done = topogate("verify", "--wait", "1s")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "1 failure")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--wait", "2"), "must be a duration such as 30s, 10m or 1h30m"),
        (("--wait", "2h"), "must be from 0s to 1h"),
        (("--kubeconfig", "/none"), "no such kubeconfig"),
    ],
)
def test_wrong_use_is_one_line(topogate: Topogate, words: tuple[str, ...], told: str) -> None:
    done = topogate("verify", *words)
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert told in done.stderr


def test_a_server_that_does_not_know_the_caller_is_one_line(topogate: Topogate, server: FakeApi) -> None:
    server.fault(Answer(401, {"kind": "Status", "reason": "Unauthorized"}), times=100)
    done = topogate("verify")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"topogate: the API server {server.url} does not know the caller (401)")
