"""Records in the lines of a log, as people and collectors hand them over; and everything else that is in logs."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.history.lines import MAX_LINE, LogLine, parse_line, time_of
from engine.history.record import LOGGER, GangName, HistoryRecord
from webhook.service.logs import TextFormatter

AT = "2026-11-23T02:14:05.123Z"
WAITS: dict[str, Any] = {
    "time": AT,
    "level": "info",
    "logger": LOGGER,
    "event": "Waiting",
    "namespace": "alice",
    "workload": "Job/train",
    "placement": "job-train-0a1b2c3d",
    "reason": "Fragmented",
    "message": "needs 4 hosts in one rack",
}
RECORD = HistoryRecord(
    at=1795400045.123,
    event="Waiting",
    gang=GangName("alice", "Job/train", "job-train-0a1b2c3d"),
    reason="Fragmented",
    message="needs 4 hosts in one rack",
)
TEXT = json.dumps(WAITS)


@pytest.mark.parametrize(
    "line",
    [
        TEXT,
        f"2026-11-23T02:14:05.123456789Z {TEXT}\n",
        f"[pod/topogate-7d9f/topogate] {TEXT}",
        json.dumps({"labels": {"app": "topogate"}, "line": TEXT, "timestamp": "2026-11-23T02:14:05Z"}),
        json.dumps({"log": TEXT + "\n", "stream": "stderr", "time": "2026-11-23T02:14:06Z"}),
        json.dumps({"log": f"2026-11-23T02:14:05.123456789Z stderr F {TEXT}"}),
    ],
    ids=["as written", "timestamps", "prefix", "loki", "docker", "fluent"],
)
def test_a_record_is_found_in_what_collectors_keep(line: str) -> None:
    assert parse_line(line.encode()).record == RECORD


def test_numbers_are_read_with_it() -> None:
    numbers = {"pods": 4, "hosts": 2, "domain": "b0/r1", "revision": 1, "waitedSeconds": 2.5, "group": "3"}
    found = parse_line(json.dumps({**WAITS, **numbers, "event": "Placed"}).encode()).record
    assert found is not None and found.gang is not None
    assert (found.pods, found.hosts, found.domain, found.revision, found.waited) == (4, 2, "b0/r1", 1, 2.5)
    assert found.gang.group == "3"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", LogLine()),
        ("Traceback (most recent call last):", LogLine()),
        ("2026-11-23T02:14:05.123Z plain text", LogLine(RECORD.at)),
        (json.dumps({"time": AT, "logger": "topogate.runtime"}), LogLine(RECORD.at, structured=True)),
        (json.dumps({**WAITS, "logger": "another"}), LogLine(RECORD.at, structured=True)),
        (json.dumps({"time": AT, "message": "of another program"}), LogLine(RECORD.at)),
        ("[1, 2]", LogLine()),
        ('{"a": ' * 5000, LogLine()),
    ],
)
def test_another_line_is_no_record_and_no_fault(line: str, found: LogLine) -> None:
    assert parse_line(line.encode()) == found


@pytest.mark.parametrize(
    "line",
    [
        TEXT[:-20],
        json.dumps({**WAITS, "event": 7}),
        json.dumps({**WAITS, "event": "\x1b[2J"}),
        json.dumps({**WAITS, "time": "yesterday"}),
        json.dumps({key: value for key, value in WAITS.items() if key != "time"}),
        "x" * (MAX_LINE + 1),
    ],
    ids=["torn", "event of another type", "hostile event", "no time", "time absent", "too long"],
)
def test_what_should_be_a_record_and_is_none_is_counted(line: str) -> None:
    found = parse_line(line.encode())
    assert (found.record, found.unreadable) == (None, True)


def test_values_of_other_types_are_left_out_and_texts_cut() -> None:
    """Anybody may have written the line."""
    wrong = {"pods": -1, "hosts": True, "revision": 10**30, "waitedSeconds": "long", "domain": ["b0"], "requeues": 1.5}
    found = parse_line(json.dumps({**WAITS, **wrong, "message": "m" * 9000, "reason": None}).encode()).record
    assert found is not None
    assert (found.pods, found.hosts, found.revision, found.waited, found.domain, found.requeues) == (
        None,
        None,
        None,
        None,
        "",
        None,
    )
    assert (len(found.message), found.reason) == (1024, "")


def test_a_line_for_people_has_no_record() -> None:
    """A text in it that looks like one is somebody's, such as a refusal by another webhook."""
    record = logging.makeLogRecord({"name": "topogate.errands", "levelname": "WARNING", "msg": f"refused: {TEXT}"})
    written = TextFormatter().format(record)
    for line in (written, f"2026-11-23T02:14:05Z {written}", json.dumps({"log": written})):
        assert parse_line(line.encode()).record is None
    assert parse_line(f"2026-11-23T02:14:05Z {written}".encode()).at == time_of("2026-11-23T02:14:05Z")


@given(st.binary(max_size=300) | st.text(alphabet='{}[]":,line0\\').map(str.encode))
def test_no_line_stops_the_reading(line: bytes) -> None:
    parse_line(line)


@given(st.fixed_dictionaries({key: st.none() | st.text() | st.integers() | st.floats() for key in WAITS}))
def test_no_value_of_a_field_stops_it(fields: dict[str, Any]) -> None:
    parse_line(json.dumps({**fields, "logger": LOGGER}).encode())


@pytest.mark.parametrize("text", ["", "now", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9" * 400])
def test_no_time_is_none(text: str) -> None:
    assert time_of(text) is None
