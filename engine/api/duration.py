"""Durations as Go writes them (`90s`, `1h30m`) and Kubernetes timestamps, both as seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

_UNITS: Final = {
    "ns": Fraction(1, 1_000_000_000),
    "us": Fraction(1, 1_000_000),
    "µs": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART: Final = r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:ns|us|µs|ms|s|m|h)"
PATTERN: Final = rf"^(?:0|(?:{_PART})+)$"
_WHOLE: Final = re.compile(rf"(?:0|(?:{_PART})+)", re.ASCII)
_EACH: Final = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_LONGEST_TEXT: Final = 64  # bounds the work on hostile text; no honest duration comes near


class DurationError(ValueError):
    """The text is not a duration; the message shows the format."""


def parse_duration(text: str) -> float:
    """Return the seconds of a Go-style duration.

    Not negative; a bare `0` needs no unit, as in Go. Raises DurationError. Source: Go time.ParseDuration.
    """
    if len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        raise DurationError("must be a duration such as 30s, 10m or 1h30m")
    return float(sum((Fraction(number) * _UNITS[unit] for number, unit in _EACH.findall(text)), Fraction(0)))


def format_duration(seconds: float) -> str:
    """Return the shortest Go-style text of a duration, exact to the nanosecond: 5400 -> `1h30m`, 0 -> `0s`."""
    nanoseconds = round(Fraction(seconds) * 1_000_000_000)
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    minutes, left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if rest:
        parts.append(f"{left}.{rest:09d}".rstrip("0") + "s")
    elif left:
        parts.append(f"{left}s")
    return "".join(parts) or "0s"


def timestamp(now: float) -> str:
    """Return the time in RFC 3339 with seconds, as metav1.Time writes it."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def epoch(moment: datetime | None) -> float:
    """Return seconds since the epoch; a moment without a zone is UTC, None is 0.0."""
    if moment is None:
        return 0.0
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def parse_time(text: object) -> float | None:
    """Return a time (RFC 3339; UTC without a zone) as seconds since the epoch; None for anything else."""
    try:
        return epoch(datetime.fromisoformat(text)) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
