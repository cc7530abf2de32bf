"""The latest end of what runs, where the object itself declares one: `activeDeadlineSeconds` after its start.

Jobs, Ray and training jobs have the field in their spec or run policy, pods in their own; the time counts from
`status.startTime`, which a suspension clears. Nothing else in an object says when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from engine.api.duration import epoch
from engine.decoding.wire import UNREADABLE, Source

_LONGEST: Final = 10**10  # seconds, 300 years: more is a mistake, and no date


class _Meta(msgspec.Struct):
    uid: str = ""


class _RunPolicy(msgspec.Struct, rename="camel"):
    active_deadline_seconds: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    active_deadline_seconds: int | None = None
    run_policy: _RunPolicy | None = None


class _Status(msgspec.Struct, rename="camel"):
    start_time: datetime | None = None


class _Object(msgspec.Struct):
    metadata: _Meta | None = None
    spec: _Spec | None = None
    status: _Status | None = None


_decode: Final = msgspec.json.Decoder(_Object).decode


def known_end(source: Source) -> tuple[str, float] | None:
    """Return the uid of an object and when it ends at the latest (seconds since the epoch); None if that is not known.

    Never raises: an object that cannot be read has no known end.
    """
    try:
        found = msgspec.convert(source, _Object) if isinstance(source, Mapping) else _decode(source)
    except (*UNREADABLE, TypeError):
        return None
    spec, status, meta = found.spec, found.status, found.metadata
    if spec is None or status is None or status.start_time is None or meta is None or not meta.uid:
        return None
    limits: list[Any] = [spec.active_deadline_seconds]
    if spec.run_policy is not None:
        limits.append(spec.run_policy.active_deadline_seconds)
    known = [limit for limit in limits if limit is not None and 0 <= limit <= _LONGEST]
    return (meta.uid, epoch(status.start_time) + min(known)) if known else None
