"""Koordinator's annotations about devices of a pod: which RDMA devices and virtual functions, and near which GPUs.

`device-allocate-hint` is a JSON object by device type, `device-joint-allocate` lists the types that belong together.
What is read of them means one of our own annotations; the rest is named, so that its user can be warned.
Source: Koordinator's apis/extension/device_share.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.api.names import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_SCOPE,
    DEVICE_SELECTOR,
    RDMA_SCOPE,
    RDMA_SELECTOR,
    VF_SELECTOR,
)
from engine.api.text import join_comma, quote, sanitize
from engine.resources.names import KINDS
from engine.resources.selectors import SelectorError, format_selector, selector_of

MAX_TEXT: Final = 16384  # characters
_SAME_PCIE: Final = "SamePCIe"
# The fields of a hint, and what to use for those that are not read.
_FIELDS: Final = ("allocateStrategy", "exclusivePolicy", "requiredTopologyScope", "selector", "vfSelector")
_READ: Final = {("rdma", "selector"): RDMA_SELECTOR, ("rdma", "vfSelector"): VF_SELECTOR}
_INSTEAD: Final = {("gpu", "selector"): DEVICE_SELECTOR, ("gpu", "requiredTopologyScope"): DEVICE_SCOPE}


@dataclass(frozen=True, slots=True)
class HintError:
    """A wrong value of an annotation: its path within the JSON ("" for all of it), and what is wrong."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class DeviceHint:
    """What one of the two annotations says: values of our own annotations by key, and parts that are not read."""

    meanings: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    error: HintError | None = None


def read_hint(key: str, text: str) -> DeviceHint:
    """Return the meaning of a value of DEVICE_ALLOCATE_HINT or DEVICE_JOINT_ALLOCATE; never raises."""
    return _cached(key, text) if len(text) <= MAX_TEXT else _wrong("", f"must be at most {MAX_TEXT:,} characters long")


@lru_cache(maxsize=1024)
def _cached(key: str, text: str) -> DeviceHint:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _wrong("", "must be JSON")
    if not isinstance(document, dict):
        return _wrong("", "must be a JSON object")
    try:
        return _allocate(document) if key == DEVICE_ALLOCATE_HINT else _joint(document)
    except SelectorError as error:
        return _wrong(error.path, str(error))


def _wrong(path: str, message: str) -> DeviceHint:
    return DeviceHint({}, error=HintError(path, message))


def _allocate(document: Mapping[str, object]) -> DeviceHint:
    meanings: dict[str, str] = {}
    ignored: list[str] = []
    for kind, hint in document.items():
        if kind not in KINDS:
            raise SelectorError(f"{_shown(kind)} is no device type; allowed: {join_comma(KINDS)}")
        if hint is None:
            continue
        if not isinstance(hint, dict):
            raise SelectorError("must be an object", kind)
        for field, value in hint.items():
            if field not in _FIELDS:
                raise SelectorError(f"{_shown(field)} is unknown; allowed: {join_comma(_FIELDS)}", kind)
            about = _READ.get((kind, field))
            if value is None or (value in ("", {}) and about not in (VF_SELECTOR, RDMA_SELECTOR)):
                continue  # an empty vfSelector, though, asks for a virtual function of any group
            if about is not None:
                meanings[about] = format_selector(selector_of(value, f"{kind}.{field}"))
            else:
                instead = _INSTEAD.get((kind, field))
                ignored.append(f"{kind}.{field} is ignored" + (f": use {instead.partition('/')[2]}" if instead else ""))
    return DeviceHint(meanings, tuple(ignored))


def _joint(document: Mapping[str, object]) -> DeviceHint:
    allowed = ("deviceTypes", "requiredScope")
    for field in document:
        if field not in allowed:
            raise SelectorError(f"{_shown(field)} is unknown; allowed: {join_comma(allowed)}")
    types = document.get("deviceTypes") or []
    if not isinstance(types, list):
        raise SelectorError("must be a list", "deviceTypes")
    for position, kind in enumerate(types):
        if kind not in KINDS:
            raise SelectorError(
                f"{_shown(kind)} is no device type; allowed: {join_comma(KINDS)}", f"deviceTypes[{position}]"
            )
    scope = document.get("requiredScope") or ""
    if scope not in ("", _SAME_PCIE):
        raise SelectorError(f"{_shown(scope)} is unknown; allowed: {_SAME_PCIE}", "requiredScope")
    ignored = ("fpga in deviceTypes is ignored",) if "fpga" in types and len(types) > 1 else ()
    if not {"gpu", "rdma"}.issubset(types):
        return DeviceHint({}, ignored)
    return DeviceHint({RDMA_SCOPE: "pcie" if scope else "pcie-preferred"}, ignored)


def _shown(value: object) -> str:
    return quote(sanitize(str(value), 63))
