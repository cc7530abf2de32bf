"""Collects the records of one log, line by line and within bounds; logs are larger than memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Final

from engine.history.lines import MAX_LINE, parse_line
from engine.history.record import HistoryRecord

# Of one log; the newest are kept. Some 500 bytes each.
MOST_RECORDS: Final = 50_000
_TOLD_EVERY: Final = 1_000  # lines


@dataclass(frozen=True, slots=True)
class LogPart:
    """What one log has: its records, since when it is complete (`begins`), and how many lines could not be read.

    `structured`: some lines are JSON as the service writes it. `start_dropped`: its oldest records are left out, as
    there are too many. `end_unread`: its newest lines were not read, as it is too large.
    """

    name: str
    begins: float | None = None
    records: tuple[HistoryRecord, ...] = ()
    lines: int = 0
    unreadable: int = 0
    structured: bool = False
    start_dropped: bool = False
    end_unread: bool = False


def read_part(
    name: str,
    lines: Iterable[bytes],
    *,
    since: float | None = None,
    progress: Callable[[int], None] = lambda _lines: None,
) -> LogPart:
    """Return the records of a log that are not older than `since`; `begins` is the earliest time in it."""
    records: deque[HistoryRecord] = deque(maxlen=MOST_RECORDS)
    count = unreadable = found = 0
    begins: float | None = None
    structured = False
    for line in lines:
        count += 1
        if count % _TOLD_EVERY == 0:
            progress(_TOLD_EVERY)
        one = parse_line(line)
        unreadable += one.unreadable
        structured = structured or one.structured
        if one.at is not None:
            begins = one.at if begins is None else min(begins, one.at)
        if one.record is not None and (since is None or one.record.at >= since):
            found += 1
            records.append(one.record)
    dropped = found > len(records)
    if dropped:
        begins = min(one.at for one in records)
    return LogPart(name, begins, tuple(records), count, unreadable, structured, dropped)


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, each cut a little after the longest line that can be a record."""
    inside = False
    while chunk := stream.readline(MAX_LINE + 1):
        if not inside:
            yield chunk
        inside = not chunk.endswith(b"\n")
