"""The two annotations of a translated GPU request, and undoing the translation at a second apply.

Both are JSON {container: {requests, limits}}, of device resources only.

`kubectl apply` of the same file merges the names that the user wrote into the translated ones. Read literally, that is
a contradiction (or, on a live Job, a change that the API server refuses); here it is read as the same request.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.api.names import ORIGINAL_REQUESTS
from engine.resources.containers import AmountError, Container, PodResources
from engine.resources.names import DIMENSIONS, GPU, MEMORY, RATIO, device_names, whole_names
from engine.resources.request import dimensions
from engine.resources.validation import device_errors

_MAX_TEXT: Final = 256 * 1024  # of all annotations of an object

_Entry = dict[str, dict[str, object]]


def gpu_request(pod: PodResources, *, whole: frozenset[str]) -> str | None:
    """Return the containers' requests in dimensions; None when their resources are dimensions already."""
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
    before: PodResources, after: PodResources, recorded: Mapping[str, _Entry], *, whole: frozenset[str]
) -> str | None:
    """Return the annotation with the user's requests where a name was replaced; None when none was.

    `recorded`: the valid entries of an earlier pass; they are kept.
    """
    entries, unique = dict(recorded), _unique(before)
    for old, new in zip(before, after, strict=True):
        if old.name in unique and (old.requests.keys() | old.limits.keys()) - (new.requests.keys() | new.limits.keys()):
            entries.setdefault(old.name, _entry(old, device_names(whole)))
    text = before.annotations.get(ORIGINAL_REQUESTS)
    if not entries:
        return None
    return text if text is not None and _read(text) == entries else _text(entries)


def recorded_requests(pod: PodResources) -> Mapping[str, _Entry]:
    """Return the user's requests by container, as an earlier pass recorded them."""
    return _read(pod.annotations.get(ORIGINAL_REQUESTS, ""))


def with_recorded(pod: PodResources, recorded: Mapping[str, _Entry]) -> PodResources:
    """Return the pod with the user's requests, where an earlier pass recorded them and they are still valid."""
    if not recorded:
        return pod
    return pod.map(lambda one: _with_entry(one, recorded[one.name]) if one.name in recorded else one)


def valid_entries(pod: PodResources, *, whole: frozenset[str]) -> Mapping[str, _Entry]:
    """Return the entries of an earlier pass that are still valid, by container.

    An entry is valid while it means what the container requests; a forged or an outdated one does not. Nor does one of
    several containers of a name, which the API server refuses later, and custom resources may have.
    """
    recorded = _read(pod.annotations.get(ORIGINAL_REQUESTS, ""))
    containers = _unique(pod)
    return {
        name: entry
        for name, entry in recorded.items()
        if name in containers and _means_the_same(entry, containers[name], whole=whole)
    }


def _unique(pod: PodResources) -> Mapping[str, Container]:
    """Return the containers by name; those without a name or with that of another are left out."""
    times = Counter(container.name for container in pod)
    return {container.name: container for container in pod if container.name and times[container.name] == 1}


def _with_entry(container: Container, entry: _Entry) -> Container:
    return replace(container, requests=entry["requests"], limits=entry["limits"])


def _means_the_same(entry: _Entry, container: Container, *, whole: frozenset[str]) -> bool:
    """Return whether entry and container request the same devices under different names."""
    names = device_names(whole)
    original = _with_entry(container, entry)
    if entry == _entry(container, names) or not original.of(names):
        return False
    if any(device_errors(PodResources((one,)), path="", vendors=whole) for one in (original, container)):
        return False
    try:
        meant, asked = dimensions(original.amounts(names), whole), dimensions(container.amounts(names), whole)
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
    """Return the well-formed entries of an annotation."""
    if len(text) > _MAX_TEXT:
        return {}
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {name: entry for name, entry in entries.items() if _is_entry(entry)} if isinstance(entries, dict) else {}


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
    """A template applied again: `pod` keeps the old devices of containers that request the same as before.

    `same`: all containers do, so that no device request changes.
    """

    pod: PodResources
    same: bool


def reapplied(old: PodResources, new: PodResources, *, vendors: Collection[str] = ()) -> Reapplied:
    """Return the template that `new` means, given the translated template `old`; containers match by name."""
    names = device_names(whole_names(vendors))
    originals, beside = recorded_requests(old), recorded_requests(new)
    old_containers = {container.name: container for container in old}

    def merged(container: Container) -> Container:
        old_container, original = old_containers.get(container.name), originals.get(container.name)
        if old_container is None or _devices(old_container, names) == _devices(container, names):
            return container
        before, after = _devices(old_container, names), _devices(container, names)
        if original is None:
            sides = _with_new_name(
                before, after, lambda changed: _is_invalid(container, changed, names, vendors)
            ) or _completed_sides(before, after)
        else:
            sides = _as_written(
                before,
                after,
                _sides(original),
                alone=beside.get(container.name) != original,
                is_invalid=lambda changed: _is_invalid(container, changed, names, vendors),
            )
        return replace(
            container,
            requests=_with(container.requests, sides[0], names),
            limits=_with(container.limits, sides[1], names),
        )

    pod = new.map(merged)
    devices = {container.name: _devices(container, names) for container in pod}
    stood = {name: _devices(container, names) for name, container in old_containers.items()}
    kept = {name: entry for name, entry in beside.items() if entry != originals.get(name)}
    kept |= {name: entry for name, entry in originals.items() if name in devices and devices[name] == stood.get(name)}
    if kept != dict(beside):
        notes = {key: text for key, text in pod.annotations.items() if key != ORIGINAL_REQUESTS}
        pod = replace(pod, annotations=notes | ({ORIGINAL_REQUESTS: _text(kept)} if kept else {}))
    return Reapplied(pod, devices == stood)


def _as_written(
    before: Sides, after: Sides, original: Sides, *, alone: bool, is_invalid: Callable[[Sides], bool]
) -> Sides:
    """Return both sides of a translated container: as they stood if its user requests the same, else as he wrote them.

    `alone`: the file stands alone, as with `kubectl replace`; else it was merged into what we wrote. Of that a file in
    dimensions may repeat what it has in common; so on the sides where it differs all stays that contradicts nothing.
    """
    stripped = after
    if not alone:
        stripped = (
            _without_added(after[0], before[0], original[0]),
            _without_added(after[1], before[1], original[1]),
        )
    if _is_same(stripped, original):
        return before
    if alone or not any(name in DIMENSIONS for side in stripped for name in side):
        return stripped
    ours = [name for name in before[1] if all(now.get(name) in (None, before[1][name]) for now in after)]
    for repeated in (ours, [name for name in ours if name not in (RATIO, MEMORY)]):
        sides = [{**side, **{name: before[1][name] for name in repeated}} if side else side for side in stripped]
        if not is_invalid((sides[0], sides[1])):
            return sides[0], sides[1]
    return stripped


def _is_same(sides: Sides, original: Sides) -> bool:
    """Return True for the same requests, on either side."""
    wanted = {**original[0], **original[1]}
    return {**sides[0], **sides[1]} == wanted and all(wanted[name] == value for name, value in sides[0].items())


def _without_added(side: Side, before: Side, original: Side) -> Side:
    """Return one side of a container without the values that the translation added."""
    return {
        name: value for name, value in side.items() if name in original or name not in before or before[name] != value
    }


def _with_new_name(before: Sides, after: Sides, is_invalid: Callable[[Sides], bool]) -> Sides | None:
    """Return both sides of a container that we completed, when its user requests another name now.

    Our half of the old name is still there; it is dropped where it conflicts with the new name.
    """
    completed = [name for name in before[0] if before[1].get(name) == before[0][name]]
    halves = {
        name
        for name in completed
        if [side.get(name) for side in after] in ([before[0][name], None], [None, before[0][name]])
    }
    new_names = (after[0].keys() | after[1].keys()) - before[0].keys() - before[1].keys()
    changed = _without(after[0], halves), _without(after[1], halves)
    return changed if halves and new_names and is_invalid(after) and not is_invalid(changed) else None


def _is_invalid(container: Container, sides: Sides, names: Collection[str], vendors: Collection[str]) -> bool:
    requests, limits = _with(container.requests, sides[0], names), _with(container.limits, sides[1], names)
    return bool(
        device_errors(PodResources((replace(container, requests=requests, limits=limits),)), path="", vendors=vendors)
    )


def _without(side: Side, names: Collection[str]) -> Side:
    return {name: value for name, value in side.items() if name not in names}


def _completed_sides(before: Sides, after: Sides) -> Sides:
    """Return both sides of a container that we completed; a side that is missing or outdated follows the other.

    Earlier versions completed requests, too.
    """
    requests, limits = dict(after[0]), dict(after[1])
    for name in (*requests, *(name for name in limits if name not in requests)):
        was = (before[0].get(name), before[1].get(name))
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
