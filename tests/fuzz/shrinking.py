"""Makes a failing input smaller as long as it fails in the same way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

SECONDS: Final = 20.0

Fails = Callable[[bytes], bool]


def shrunk(body: bytes, fails: Fails, *, seconds: float = SECONDS) -> bytes:
    """The smallest input found in the time given for which `fails` holds, as it does for `body`.

    Lines are left out; then, in what is JSON, keys, items and parts of texts; in what is none, bytes.
    """
    end = time.monotonic() + seconds
    lines = _without_parts(body.split(b"\n"), lambda some: fails(b"\n".join(some)), end)
    for at, line in enumerate(lines):

        def with_line(text: bytes, at: int = at) -> bytes:
            return b"\n".join([*lines[:at], text, *lines[at + 1 :]])

        lines[at] = _shrunk_line(line, lambda text, whole=with_line: fails(whole(text)), end)
    return b"\n".join(lines)


def _shrunk_line(line: bytes, fails: Fails, end: float) -> bytes:
    start = line.find(b"{") if not line.startswith(b"[") else 0
    try:
        value = json.loads(line[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict | list):
        prefix = line[:start]
        encoded = json.dumps(value).encode()
        if fails(prefix + encoded):
            value = _shrunk_json(value, lambda one: fails(prefix + json.dumps(one).encode()), end)
            return prefix + json.dumps(value).encode()
    return bytes(_without_parts(list(line), lambda some: fails(bytes(some)), end))


def _without_parts(items: list[Any], fails: Callable[[list[Any]], bool], end: float) -> list[Any]:
    """The list without the parts that are not needed, halves first."""
    size = max(1, len(items) // 2)
    while items and time.monotonic() < end:
        at, before = 0, len(items)
        while at < len(items) and time.monotonic() < end:
            fewer = items[:at] + items[at + size :]
            if len(fewer) < len(items) and fails(fewer):
                items = fewer
            else:
                at += size
        if size == 1 and len(items) == before:
            break
        size = max(1, size // 2)
    return items


def _shrunk_json(value: Any, fails: Callable[[Any], bool], end: float) -> Any:
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for smaller in _smaller(value):
            if time.monotonic() > end:
                break
            if fails(smaller):
                value, progress = smaller, True
                break
    return value


def _smaller(value: Any) -> Iterator[Any]:
    """The values with one thing less, the largest cuts first."""
    if isinstance(value, dict):
        for key in value:
            yield {other: one for other, one in value.items() if other != key}
        for key, one in value.items():
            for smaller in _smaller(one):
                yield {**value, key: smaller}
    elif isinstance(value, list):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
        for at, one in enumerate(value):
            for smaller in _smaller(one):
                yield [*value[:at], smaller, *value[at + 1 :]]
    elif isinstance(value, str) and len(value) > 1:
        yield value[: len(value) // 2]
        yield value[len(value) // 2 :]
        yield value[1:]
        yield value[:-1]
