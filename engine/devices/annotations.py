"""The two annotations about a translated GPU request, and undoing the translation when a manifest is applied again.

Both are JSON {container: {requests, limits}}, of device resources only.

`kubectl apply` of the same file merges the names that the user wrote into what we made of them. Taken as it stands that
would be a contradiction (or, on a live Job, a change that the API server refuses); it is neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.api.names import ORIGINAL_REQUESTS
from engine.devices.containers import AmountError, Container, PodResources
from engine.devices.request import dimensions
from engine.devices.resources import GPU, MEMORY, RATIO, device_names, whole_names
from engine.devices.validation import device_errors

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

    What is `parent_relation` of an earlier pass's word is kept.
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
    if any(device_errors(PodResources((one,)), path="", vendors=whole) for one in (told, container)):
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


Side = Mapping[str, object]
Sides = tuple[Side, Side]  # requests, limits


@dataclass(frozen=True, slots=True)
class Reapplied:
    """A template as its user means it: `pod` has the old devices where he asks for the same as before.

    `same`: so it is everywhere, and nothing about devices is changed.
    """

    pod: PodResources
    same: bool


def reapplied(old: PodResources, new: PodResources, *, vendors: Collection[str] = ()) -> Reapplied:
    """Return what `new` asks for, given what `old` was made of; containers are told apart by their names."""
    names = device_names(whole_names(vendors))
    first = written_at_first(old)
    before = {container.name: container for container in old}

    def meant(container: Container) -> Container:
        was, wrote = before.get(container.name), first.get(container.name)
        if was is None or _devices(was, names) == _devices(container, names):
            return container
        had, has = _devices(was, names), _devices(container, names)
        if wrote is None:
            asks = _exchanged(had, has, lambda asked: _refused(container, asked, names, vendors)) or _followed(had, has)
        else:
            asks = _without_ours(has[0], had[0], wrote["requests"]), _without_ours(has[1], had[1], wrote["limits"])
            asks = had if asks == _sides(wrote) else asks
        return replace(
            container,
            requests=_with(container.requests, asks[0], names),
            limits=_with(container.limits, asks[1], names),
        )

    pod = new.map(meant)
    there = {container.name: _devices(container, names) for container in pod}
    return Reapplied(pod, there == {name: _devices(container, names) for name, container in before.items()})


def _without_ours(side: Side, was: Side, wrote: Side) -> Side:
    """What remains of one side of a container without what we had added to it."""
    return {name: value for name, value in side.items() if name in wrote or name not in was or was[name] != value}


def _exchanged(had: Sides, has: Sides, refused: Callable[[Sides], bool]) -> Sides | None:
    """Both sides of a container of which we had completed one, when its user asks by another name now.

    Of the name that he took out our half is left: it goes where it stands in the way of the new name.
    """
    there = [name for name in had[0] if had[1].get(name) == had[0][name]]
    halves = {
        name for name in there if [side.get(name) for side in has] in ([had[0][name], None], [None, had[0][name]])
    }
    fresh = (has[0].keys() | has[1].keys()) - had[0].keys() - had[1].keys()
    asks = _less(has[0], halves), _less(has[1], halves)
    return asks if halves and fresh and refused(has) and not refused(asks) else None


def _refused(container: Container, asks: Sides, names: Collection[str], vendors: Collection[str]) -> bool:
    requests, limits = _with(container.requests, asks[0], names), _with(container.limits, asks[1], names)
    return bool(
        device_errors(PodResources((replace(container, requests=requests, limits=limits),)), path="", vendors=vendors)
    )


def _less(side: Side, names: Collection[str]) -> Side:
    return {name: value for name, value in side.items() if name not in names}


def _followed(had: Sides, has: Sides) -> Sides:
    """Both sides of a container of which we had completed one: what is missing or behind follows the other."""
    requests, limits = dict(has[0]), dict(has[1])
    for name in (*requests, *(name for name in limits if name not in requests)):
        was = (had[0].get(name), had[1].get(name))
        now = (requests.get(name), limits.get(name))
        if None in now and None not in was and was[0] == was[1] and was[0] in now:
            requests[name] = limits[name] = was[0]
        elif None not in now and now[0] != now[1]:
            if now[0] == was[0]:
                del requests[name]
            elif now[1] == was[1]:
                del limits[name]
    return requests, limits


def _with(side: Side, values: Side, names: Collection[str]) -> dict[str, object]:
    return {**{name: value for name, value in side.items() if name not in names}, **values}


def _sides(entry: Mapping[str, Side]) -> Sides:
    return entry["requests"], entry["limits"]


def _devices(container: Container, names: Collection[str]) -> Sides:
    requests, limits = container.requests, container.limits
    return (
        {name: value for name, value in requests.items() if name in names},
        {name: value for name, value in limits.items() if name in names},
    )
