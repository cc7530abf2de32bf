"""The Events about objects of a namespace, as far as the caller may read them and the API server still has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from engine.cluster.client import ApiError, ApiFault, KubeClient, object_path
from engine.cluster.wire import UNREADABLE

_API: Final = "events.k8s.io/v1"
_TIMEOUT: Final = (5.0, 10.0)
_MOST: Final = 200  # Events about one object


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    series: _Series | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_count: int | None = None


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


_decode: Final = msgspec.json.Decoder(_Events).decode


@dataclass(frozen=True, slots=True)
class ReadEvent:
    """An Event: when it happened last (RFC 3339, seconds), its reason, its note, and how often it happened."""

    at: str
    reason: str
    note: str
    count: int


def events_about(api: KubeClient, namespace: str, names: Iterable[str]) -> tuple[list[ReadEvent], str | None]:
    """Return the Events about objects with these names, the oldest first; and why they could not be read, if so."""
    found: list[ReadEvent] = []
    for name in dict.fromkeys(names):
        path = object_path(_API, "events", namespace=namespace)
        query = {"fieldSelector": f"regarding.name={name}", "limit": str(_MOST)}
        try:
            read = _read(_decode(api.request("GET", path, query=query, timeout=_TIMEOUT)))
            found += [one for one in read if not any(_repeats(one, known) for known in found)]
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                continue
            if error.status == HTTPStatus.FORBIDDEN:
                return found, f"events of namespace {namespace} cannot be read: the history is that of the Placement"
            return found, f"events of namespace {namespace} cannot be read ({error})"
        except ApiFault as fault:
            return found, f"events of namespace {namespace} cannot be read ({fault})"
        except UNREADABLE:
            return found, f"events of namespace {namespace} cannot be read: not a list of Events"
    return sorted(found, key=lambda one: one.at), None


def _repeats(one: ReadEvent, other: ReadEvent) -> bool:
    """Return True for two Events about one thing that happened: a workload and its Placement both have it."""
    if (one.reason, one.note) != (other.reason, other.note):
        return False
    try:
        apart = datetime.fromisoformat(one.at) - datetime.fromisoformat(other.at)
    except ValueError:
        return False
    return abs(apart.total_seconds()) <= 1


def _read(events: _Events) -> Iterator[ReadEvent]:
    for one in events.items or ():
        series = one.series
        last = series.last_observed_time if series is not None else None
        at = last or one.deprecated_last_timestamp or one.event_time
        if at is not None:
            count = series.count if series is not None else one.deprecated_count or 1
            yield ReadEvent(_seconds(at), one.reason, one.note, count)


def _seconds(stamp: str) -> str:
    """Return a time without its fraction: `2026-01-01T00:00:00.123456Z` -> `2026-01-01T00:00:00Z`."""
    whole, dot, _ = stamp.partition(".")
    return f"{whole}Z" if dot else stamp
