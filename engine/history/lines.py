"""Reads records from the lines of a log, as containers, collectors and people hand them over. Pure.

A line may have a time, a pod's name or other words before its JSON (`kubectl logs --timestamps --prefix`), or be the
text in a JSON object of a collector. Anybody may have written it: nothing of it is trusted, and nothing is too long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.api.duration import parse_time
from engine.history.record import LOGGER, MAX_DOMAIN, MAX_MESSAGE, MAX_NAME, GangName, HistoryRecord

MAX_LINE: Final = 64 * 1024  # bytes; a record has some 2,500
# Keys under which collectors keep the line itself.
_WRAPPERS: Final = ("line", "log")
_STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_LEAD: Final = 512  # bytes before the JSON in which a time is looked for
# The beginning of a line of `--log-format text`: it has no record, and what looks like one in it is somebody's text.
_TEXT: Final = re.compile(rb"(?:^|\s)\d\d:\d\d:\d\d [A-Z] [\w.]+: ")
_EVENT: Final = re.compile(r"[A-Z][A-Za-z]{0,63}")
_MOST: Final = 10**9
_LATEST: Final = 253_000_000_000.0  # in the year 9987: later times cannot be shown


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log: its time if it has one, its record if it is one; `unreadable`: it should be, but is not.

    `structured`: it is JSON with a logger, as the service writes it.
    """

    at: float | None = None
    record: HistoryRecord | None = None
    unreadable: bool = False
    structured: bool = False


def parse_line(raw: bytes) -> LogLine:
    """Return what a line says; any bytes are a line."""
    if len(raw) > MAX_LINE:
        return LogLine(unreadable=True)
    start = raw.find(b"{")
    lead = _STAMP.search(raw[: min(_LEAD, start if start >= 0 else _LEAD)])
    at = time_of(lead.group().decode("ascii")) if lead is not None else None
    if start < 0 or _TEXT.search(raw[: min(_LEAD, start)]):
        return LogLine(at)
    try:
        found: Any = msgspec.json.decode(raw[start:])
        for key in _WRAPPERS:
            if isinstance(found, dict) and "event" not in found and isinstance(inner := found.get(key), str):
                start = max(0, inner.find("{"))
                if _TEXT.search(inner[: min(_LEAD, start)].encode("utf-8", "replace")):
                    return LogLine(at)
                found = msgspec.json.decode(inner[start:])
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return LogLine(at, unreadable=LOGGER.encode() in raw)
    if not isinstance(found, dict):
        return LogLine(at)
    stamp = found.get("time")
    at = (time_of(stamp) if isinstance(stamp, str) else None) or at
    if (logger := found.get("logger")) != LOGGER:
        return LogLine(at, structured=isinstance(logger, str))
    record = _record(found, at)
    return LogLine(at, record, unreadable=record is None, structured=True)


def time_of(text: str) -> float | None:
    """Return a time (RFC 3339) as seconds since the epoch; None for any other text, and for times out of range."""
    at = parse_time(text[:64])
    return at if at is not None and 0 <= at < _LATEST else None


def _record(found: dict[str, Any], at: float | None) -> HistoryRecord | None:
    event = found.get("event")
    if at is None or not isinstance(event, str) or not _EVENT.fullmatch(event):
        return None
    namespace, workload = _text(found, "namespace", MAX_NAME), _text(found, "workload", 2 * MAX_NAME)
    gang = GangName(namespace, workload, _text(found, "placement", MAX_NAME), _text(found, "group", MAX_NAME))
    return HistoryRecord(
        at=at,
        event=event,
        gang=gang if workload else None,
        reason=_text(found, "reason", MAX_NAME),
        message=_text(found, "message", MAX_MESSAGE),
        pods=_count(found, "pods"),
        hosts=_count(found, "hosts"),
        domain=_text(found, "domain", MAX_DOMAIN),
        revision=_count(found, "revision"),
        waited=_seconds(found, "waitedSeconds"),
        requeues=_count(found, "requeues"),
        policy=_text(found, "policy", MAX_NAME),
        replica=_text(found, "replica", MAX_NAME),
        omitted=_count(found, "omitted"),
    )


def _text(found: dict[str, Any], key: str, limit: int) -> str:
    value = found.get(key)
    return value[:limit] if isinstance(value, str) else ""


def _count(found: dict[str, Any], key: str) -> int | None:
    value = found.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def _seconds(found: dict[str, Any], key: str) -> float | None:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MOST else None
