"""The Events about objects of a namespace, as far as the caller may read them and the API server still has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from engine.cluster.client import ApiError, ApiFault, KubeClient, object_path
from engine.decoding.wire import UNREADABLE

_API: Final = "events.k8s.io/v1"
_TIMEOUT: Final = (5.0, 10.0)
_MOST: Final = 200  # Events about one object


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Regarding(msgspec.Struct):
    uid: str = ""


class _Event(msgspec.Struct, rename="camel"):
    regarding: _Regarding | None = None
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


_Dated = tuple[tuple[str, str], ReadEvent]


def events_about(
    api: KubeClient, namespace: str, objects: Iterable[tuple[str, str]]
) -> tuple[list[ReadEvent], str | None]:
    """Return the Events about objects, the oldest first; and why they could not be read, if so.

    `objects` are names and uids; Events of an earlier object of the same name are left out. Without a uid all count.
    """
    found: list[_Dated] = []
    problem = None
    for name, uid in dict.fromkeys(objects):
        path = object_path(_API, "events", namespace=namespace)
        query = {"fieldSelector": f"regarding.name={name}", "limit": str(_MOST)}
        try:
            read = _read(_decode(api.request("GET", path, query=query, timeout=_TIMEOUT)), uid)
            found += [one for one in read if not any(_repeats(one[1], known[1]) for known in found)]
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                continue
            problem = "" if error.status == HTTPStatus.FORBIDDEN else str(error)
        except ApiFault as fault:
            problem = str(fault)
        except UNREADABLE:
            problem = "not a list of Events"
        if problem is not None:
            break
    # By the whole time: what happens within one second stays in its order.
    events = [one for _, one in sorted(found, key=lambda one: one[0])]
    return events, None if problem is None else _unread(namespace, problem)


def _unread(namespace: str, why: str) -> str:
    told = f" ({why})" if why else ": the history is that of the Placement"
    return f"events of namespace {namespace} cannot be read{told}"


def _repeats(one: ReadEvent, other: ReadEvent) -> bool:
    """Return True for two Events about one thing that happened: a workload and its Placement both have it."""
    if (one.reason, one.note) != (other.reason, other.note):
        return False
    try:
        apart = datetime.fromisoformat(one.at) - datetime.fromisoformat(other.at)
    except ValueError:
        return False
    return abs(apart.total_seconds()) <= 1


def _read(events: _Events, uid: str) -> Iterator[_Dated]:
    for one in events.items or ():
        about = one.regarding.uid if one.regarding is not None else ""
        if uid and about and about != uid:
            continue
        series = one.series
        last = series.last_observed_time if series is not None else None
        at = last or one.deprecated_last_timestamp or one.event_time
        if at is not None:
            count = series.count if series is not None else one.deprecated_count or 1
            yield _order(at), ReadEvent(_seconds(at), one.reason, one.note, count)


def _seconds(stamp: str) -> str:
    """Return a time without its fraction: `2026-01-01T00:00:00.123456Z` -> `2026-01-01T00:00:00Z`."""
    whole, dot, _ = stamp.partition(".")
    return f"{whole}Z" if dot else stamp


def _order(stamp: str) -> tuple[str, str]:
    """Return what sorts a time among others, with and without fractions."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return whole, fraction.ljust(9, "0")
