from __future__ import annotations

import pytest

from engine.api.duration import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5m", 30),
        ("250ms", 0.25),
        ("1us", 1e-6),
        ("1h1s", 3601),
    ],
)
def test_reads_what_go_reads(text: str, seconds: float) -> None:
    """A duration is a sequence of numbers with units, as in Go."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "10", "1d", "-5s", "5 s", "s", "1h30", "1e3s", "٣s", "5s\n", "1s" * 100, "9" * 13 + "s", "."]
)
def test_refuses_everything_else(text: str) -> None:
    """Numbers without unit, unknown units, signs, spaces and hostile lengths are no durations."""
    with pytest.raises(DurationError, match="such as 30s, 10m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (15, "15s"), (60, "1m"), (5400, "1h30m"), (1.25, "1.25s")])
def test_writes_the_shortest_text(seconds: float, text: str) -> None:
    """Zero parts are left out."""
    assert format_duration(seconds) == text
