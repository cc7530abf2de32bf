"""What the log gets of the leader's decisions: one bounded line each, none twice, as JSON with fixed names."""

from __future__ import annotations

import json
import logging
from typing import get_args

import pytest

from engine.api.reasons import REASONS
from engine.history.decision_log import BURST, REFILL, DecisionLog
from engine.history.lines import parse_line
from engine.history.record import LOGGER, ON_GANGS, ON_SERVICE, GangEvent, GangName, ServiceEvent, event_of
from webhook.service.logs import JsonFormatter, TextFormatter

TRAIN = GangName("alice", "Job/train", "job-train-0a1b2c3d")


@pytest.fixture(autouse=True)
def _captured(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [JsonFormatter().format(one) for one in caplog.records if one.name == LOGGER]


def test_a_record_is_a_json_line_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    DecisionLog().gang(
        TRAIN, "Placed", message="4 pods in b0/r1", pods=4, domain="b0/r1", revision=1, waitedSeconds=2.5
    )
    (line,) = lines(caplog)
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "info",
        "logger": "topogate.decisions",
        "event": "Placed",
        "namespace": "alice",
        "workload": "Job/train",
        "placement": "job-train-0a1b2c3d",
        "reason": "",
        "message": "4 pods in b0/r1",
        "pods": 4,
        "domain": "b0/r1",
        "revision": 1,
        "waitedSeconds": 2.5,
    }


def test_people_read_the_same_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    DecisionLog().gang(TRAIN, "Waiting", reason="Fragmented", message="needs 4\nhosts")
    (record,) = caplog.records
    assert TextFormatter().format(record)[9:] == (
        r"I topogate.decisions: Waiting alice/Job/train (Fragmented): needs 4\nhosts"
    )


def test_a_record_that_says_the_same_again_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Only of the same gang, and only if nothing else came in between."""
    log, other = DecisionLog(), GangName("alice", "Job/other", "job-other")
    for name in (TRAIN, TRAIN, other):
        log.gang(name, "Waiting", reason="Fragmented", message="needs 4 hosts")
    log.gang(TRAIN, "Placed", message="1 pod")
    log.gang(TRAIN, "Waiting", reason="Fragmented", message="needs 4 hosts")
    assert [json.loads(line)["event"] for line in lines(caplog)] == ["Waiting", "Waiting", "Placed", "Waiting"]


def test_a_gang_that_changes_for_ever_has_few_lines_and_they_say_how_many_are_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    log = DecisionLog(clock=lambda: now)
    for turn in range(BURST + 7):
        log.gang(TRAIN, "Waiting", reason="Fragmented", message=f"needs {turn} hosts")
    assert len(lines(caplog)) == BURST
    now += REFILL
    log.gang(TRAIN, "Placed", message="1 pod")
    assert (len(lines(caplog)), json.loads(lines(caplog)[-1])["omitted"]) == (BURST + 1, 7)
    now += REFILL
    log.gang(TRAIN, "Running", message="1 pod ready")
    assert "omitted" not in json.loads(lines(caplog)[-1])


def test_no_line_is_long_and_none_is_two(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is in the names and texts of users."""
    hostile = "\n\x1b[2J\u2028\x9b31m\ud800é" * 500
    name = GangName(hostile, hostile, hostile, hostile)
    DecisionLog().gang(name, "Waiting", reason=hostile, message=hostile, domain=hostile)
    (line,) = lines(caplog)
    assert len(line) < 16_000
    assert line.isprintable()
    read = parse_line(line.encode()).record
    assert read is not None
    assert read.message.startswith("\n\x1b[2J\u2028\x9b31m?é")


def test_nothing_is_remembered_where_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Such as in `simulate`, whose log has warnings alone."""
    caplog.set_level(logging.WARNING, LOGGER)
    log = DecisionLog()
    log.gang(TRAIN, "Placed", message="1 pod")
    caplog.set_level(logging.INFO, LOGGER)
    log.gang(TRAIN, "Placed", message="1 pod")
    assert len(lines(caplog)) == 1


def test_every_event_is_described() -> None:
    assert tuple(ON_GANGS) == get_args(GangEvent)
    assert tuple(ON_SERVICE) == get_args(ServiceEvent)


def test_a_gang_that_is_given_up_does_not_wait() -> None:
    assert event_of("Waiting", "Fragmented") == "Waiting"
    assert {code for code in REASONS if event_of("Waiting", code) == "GivenUp"} == {
        "ScheduleTimeout",
        "StartLimitExceeded",
    }
    assert event_of("Placed", "SchedulerRefused") == "NotStarted"
    assert event_of("Incomplete", "NodeLost") == "Incomplete"
