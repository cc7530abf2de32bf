"""Translates GPU requests to the names that nodes report, or annotates them.

Pure and idempotent: a second pass over the result changes nothing, nor does a pod from a translated template.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from engine.api.device import DeviceRequest
from engine.api.field import FieldError
from engine.api.names import GPU_REQUEST, ORIGINAL_REQUESTS
from engine.api.resources import MAX_UNITS
from engine.api.text import join_and
from engine.resources.annotations import gpu_request, original_requests, valid_entries, with_recorded
from engine.resources.containers import Container, Path, PodResources, amount
from engine.resources.names import (
    CORE,
    GPU,
    KOORDINATOR,
    MEMORY,
    NVIDIA,
    RATIO,
    WHOLE,
    Reported,
    device_names,
    whole_names,
)
from engine.resources.request import device_request
from engine.resources.validation import device_errors

Mode = Literal["auto", "rewrite", "annotate", "off"]
Scope = Literal["managed", "all"]

_MAX_NAMED: Final = 2


@dataclass(frozen=True, slots=True)
class Edit:
    """One value to set (or, None, to remove) at a path below the pod's spec."""

    path: Path
    value: object


@dataclass(frozen=True, slots=True)
class Translation:
    """The changes to a pod or template.

    With `errors` nothing is renamed and no annotation changes; missing limits are completed all the same, so that the
    user gets our message before the API server's. `annotations`: value by key, None to remove; only changes.
    `request` is the pod's device request.
    """

    edits: tuple[Edit, ...] = ()
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    request: DeviceRequest | None = None


def in_scope(pod: PodResources, *, managed: bool, scope: Scope) -> bool:
    """Return whether we translate and check the pod's devices.

    True for managed pods, for all pods with scope `all`, and for pods that use one of Koordinator's names.
    """
    return managed or scope == "all" or any(container.of(KOORDINATOR) for container in pod)


def translate(
    pod: PodResources,
    *,
    mode: Mode,
    reported: Reported,
    path: str,
    managed: bool = True,
    scope: Scope = "managed",
    vendors: Collection[str] = (),
) -> Translation:
    """Return the changes to a pod's device requests, and every error in them.

    `path` is the JSON path of the pod's spec (`spec.template.spec`), for errors; `vendors` are the policy's.
    """
    if not in_scope(pod, managed=managed, scope=scope):
        return Translation()
    whole = whole_names(vendors)
    # A container that another webhook adds to a translated pod is checked together with the user's original requests.
    recorded = valid_entries(pod, whole=whole)
    written = with_recorded(pod, recorded)
    errors = device_errors(written, path=path, vendors=vendors)
    renamed = None if errors else _renamed(pod, mode=mode, reported=reported, whole=whole, again=written != pod)
    after = pod
    if mode != "off":
        after = pod.map(lambda one: _written(one, whole=whole, renamed=renamed, reported=reported))
    edits = tuple(_edits(pod, after))
    if errors:
        return Translation(edits=edits, errors=errors)
    notes = {
        ORIGINAL_REQUESTS: original_requests(pod, after, recorded, whole=whole),
        GPU_REQUEST: gpu_request(after, whole=whole) if mode != "off" else _valid_annotation(pod, whole=whole),
    }
    names = device_names(whole)
    total = after.total({container.path: container.amounts(names) for container in after})
    return Translation(
        edits=edits,
        annotations={key: text for key, text in notes.items() if pod.annotations.get(key) != text},
        warnings=tuple(_warnings(total, reported)),
        request=device_request(total, vendors=vendors, translated=notes[ORIGINAL_REQUESTS] is not None),
    )


def _renamed(pod: PodResources, *, mode: Mode, reported: Reported, whole: frozenset[str], again: bool) -> str | None:
    """Return the name to replace by dimensions, or None; a valid pod uses one such name at most.

    `again`: it was replaced in other containers before, so it must be replaced in all of them.
    """
    used = {name for container in pod for name in container.amounts(device_names(whole))}
    name = next((name for name in (GPU, NVIDIA) if name in used), None)
    if name is None or mode == "off":
        return None
    if again:
        return name
    if mode == "annotate":
        return None
    if used <= reported.names and _valid_annotation(pod, whole=whole) is not None:
        return None  # its template was annotated: the pod stays as it was planned
    if mode == "rewrite":
        return name
    if name == NVIDIA and NVIDIA in reported.names:
        return None
    return name if CORE in reported.names and _memory_name(reported) in reported.names else None


def _valid_annotation(pod: PodResources, *, whole: frozenset[str]) -> str | None:
    """Return the annotation of an earlier pass if it is still valid for the pod."""
    text = pod.annotations.get(GPU_REQUEST)
    return text if text is not None and text == gpu_request(pod, whole=whole) else None


def _memory_name(reported: Reported) -> str:
    """Return the memory resource: bytes only where nodes report no ratio and all GPUs have the same memory."""
    bytes_only = RATIO not in reported.names and MEMORY in reported.names
    return MEMORY if bytes_only and reported.memory else RATIO


def _written(container: Container, *, whole: frozenset[str], renamed: str | None, reported: Reported) -> Container:
    """Return the translated container: `renamed` becomes dimensions, all other names get limits.

    The API server requires limits, and copies them to the requests of pods. A copy of ours in a template would stay
    there when its user removes the device from the file.
    """
    requests, limits = dict(container.requests), dict(container.limits)
    for name, value in container.of(device_names(whole)).items():
        if name == renamed and amount(value):
            for side in (requests, limits):
                side.pop(name, None)
                side.update(_expanded(name, amount(value), reported))
        elif value is not None:
            limits.setdefault(name, value)
    return replace(container, requests=requests, limits=limits)


def _expanded(name: str, number: int, reported: Reported) -> dict[str, str]:
    percent = number * WHOLE if name == NVIDIA else number
    memory = _memory_name(reported)
    # More than any host has stays an amount that can be read again, and still fits nowhere.
    size = percent if memory == RATIO else min(percent * (reported.memory or 0) // WHOLE, MAX_UNITS)
    return {CORE: str(percent), memory: str(size)}


def _edits(before: PodResources, after: PodResources) -> Iterator[Edit]:
    for old, new in zip(before, after, strict=True):
        for side, had, has in (("requests", old.requests, new.requests), ("limits", old.limits, new.limits)):
            where = (*old.path, "resources", side)
            yield from (Edit((*where, name), None) for name in had if name not in has)
            yield from (Edit((*where, name), value) for name, value in has.items() if name not in had)


def _warnings(total: Mapping[str, int], reported: Reported) -> Iterator[str]:
    unknown = sorted(name for name, number in total.items() if number and name not in reported.names)
    if unknown and reported.names:
        named = unknown[:_MAX_NAMED]
        more = [f"{len(unknown) - _MAX_NAMED} more"] if len(unknown) > _MAX_NAMED else []
        yield f"no node reports {join_and([*named, *more])}; the pods cannot be placed"
