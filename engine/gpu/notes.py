"""The two annotations about GPU requests: what the user wrote, and what it means.

Both are JSON {container: {requests, limits}}, of device resources only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from engine.api.names import ORIGINAL_REQUESTS
from engine.gpu.containers import AmountError, Container, PodResources
from engine.gpu.request import dimensions
from engine.gpu.resources import GPU, MEMORY, RATIO, device_names
from engine.gpu.rules import validate

_MAX_TEXT: Final = 256 * 1024  # of all annotations of an object

_Entry = dict[str, dict[str, object]]


def gpu_request(pod: PodResources, *, whole: frozenset[str]) -> str | None:
    """Return what the containers ask for in dimensions; None where their resources say so themselves."""
    entries: dict[str, _Entry] = {}
    translated = False
    for container in pod:
        amounts = container.amounts(device_names(whole))
        if amounts and container.name:
            written = {name: str(number) for name, number in dimensions(amounts, whole).items()}
            entries[container.name] = {"requests": dict(written), "limits": dict(written)}
            translated |= any(name == GPU or name in whole for name in amounts)
    return _text(entries) if translated else None


def original_requests(
    before: PodResources, after: PodResources, standing: Mapping[str, _Entry], *, whole: frozenset[str]
) -> str | None:
    """Return what the user wrote where a name of his gave way; None when all of them stand as written.

    What is `standing` of an earlier pass's word is kept.
    """
    entries = dict(standing)
    for old, new in zip(before, after, strict=True):
        if old.name and (old.requests.keys() | old.limits.keys()) - (new.requests.keys() | new.limits.keys()):
            entries.setdefault(old.name, _entry(old, device_names(whole)))
    text = before.annotations.get(ORIGINAL_REQUESTS)
    if not entries:
        return None
    return text if text is not None and _read(text) == entries else _text(entries)


def written_at_first(pod: PodResources) -> Mapping[str, _Entry]:
    """Return what the user wrote, by container, where an earlier pass has noted it."""
    return _read(pod.annotations.get(ORIGINAL_REQUESTS, ""))


def as_written(pod: PodResources, standing: Mapping[str, _Entry]) -> PodResources:
    """Return the pod with the resources that the user wrote, where an earlier pass has noted them and they stand."""
    if not standing:
        return pod
    return pod.map(lambda one: _told(one, standing[one.name]) if one.name in standing else one)


def standing_notes(pod: PodResources, *, whole: frozenset[str]) -> Mapping[str, _Entry]:
    """Return what an earlier pass has noted of the containers, by name, for as long as it is true.

    It is while it means what the container asks for: a forged or an outdated note is not.
    """
    told = _read(pod.annotations.get(ORIGINAL_REQUESTS, ""))
    containers = {container.name: container for container in pod}
    return {
        name: entry
        for name, entry in told.items()
        if name in containers and _means(entry, containers[name], whole=whole)
    }


def _told(container: Container, entry: _Entry) -> Container:
    return replace(container, requests=entry["requests"], limits=entry["limits"])


def _means(entry: _Entry, container: Container, *, whole: frozenset[str]) -> bool:
    """Whether the entry asks for what the container asks for, in other words."""
    names = device_names(whole)
    told = _told(container, entry)
    if entry == _entry(container, names) or not told.of(names):
        return False
    if any(validate(PodResources((one,)), path="", vendors=whole) for one in (told, container)):
        return False
    try:
        meant, asked = dimensions(told.amounts(names), whole), dimensions(container.amounts(names), whole)
    except AmountError:
        return False
    if RATIO in meant and MEMORY in asked and RATIO not in asked:  # written in bytes, by the size of a GPU of then
        meant.pop(RATIO)
        asked.pop(MEMORY)
    return meant == asked


def _entry(container: Container, names: Collection[str]) -> _Entry:
    return {
        "requests": {name: value for name, value in container.requests.items() if name in names},
        "limits": {name: value for name, value in container.limits.items() if name in names},
    }


def _read(text: str) -> dict[str, _Entry]:
    """The entries of an annotation that are of the right form."""
    if len(text) > _MAX_TEXT:
        return {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {name: entry for name, entry in told.items() if _is_entry(entry)} if isinstance(told, dict) else {}


def _is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"requests", "limits"}
        and all(isinstance(side, dict) for side in entry.values())
    )


def _text(entries: Mapping[str, _Entry]) -> str:
    return json.dumps(entries, separators=(",", ":"))
