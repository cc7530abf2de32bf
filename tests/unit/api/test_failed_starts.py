"""What a Placement's status says of failed starts and readiness, and what becomes of garbage there."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.placement import FailedStarts, failed_starts, failed_starts_body, was_ready

TWO = FailedStarts(2, ("h1", "h2"), 1_800_000_000.0, 7, "3-abc")


def test_what_is_written_reads_back() -> None:
    """A new leader knows what the last one wrote."""
    assert failed_starts({"failedStarts": failed_starts_body(TWO)}) == TWO


@pytest.mark.parametrize(
    "raw",
    [None, "two", 2, [], {"count": "2"}, {"count": -1, "hosts": "h1", "at": 5, "revision": "x", "seen": []}],
    ids=str,
)
def test_garbage_is_no_failed_start(raw: Any) -> None:
    """An admin may have edited the status: no gang is held for that, and no leader falls over it."""
    assert failed_starts({"failedStarts": raw}) == FailedStarts()


def test_hosts_that_are_no_names_are_left_out() -> None:
    assert failed_starts({"failedStarts": {"count": 1, "hosts": ["h1", 2, None]}}).hosts == ("h1",)


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"phase": "Starting"}, False),
        ({"phase": "Incomplete", "readyAt": None}, False),
        ({"phase": "Incomplete", "readyAt": "2026-11-22T17:00:00Z"}, True),
        ({"phase": "Running"}, True),
    ],
    ids=str,
)
def test_a_gang_was_ready_when_its_status_says_since_when(status: dict[str, Any], ready: bool) -> None:
    """Or when a version that did not write the time calls it Running."""
    assert was_ready(status) is ready
