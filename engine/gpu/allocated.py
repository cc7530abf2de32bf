"""`scheduling.koordinator.sh/device-allocated`: the devices of a pod, as koordlet and Koordinator's scheduler read it.

A JSON object from kind to devices; of each its minor, its resources as quantities in text, and its id. What we write is
byte for byte what Koordinator writes: kinds and resources by name, no spaces, no id where there is none. What we read
may come from anybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from engine.api.device import DeviceUse
from engine.api.resources import QuantityError, format_bytes, nano
from engine.api.text import plain, quote
from engine.gpu.inventory import MAX_DEVICES
from engine.gpu.left import MAX_BYTES
from engine.gpu.resources import CORE, FPGA, MEMORY, RATIO, RDMA, WHOLE

# Characters; the longest that hosts of 256 devices of each kind can cause, and what the API server keeps at most.
MAX_TEXT: Final = 256 * 1024
_MAX_ID: Final = 253
_MAX_MINOR: Final = 2**31 - 1
_NANO: Final = 10**9
_FIELDS: Final = {
    "fpga": {FPGA: "share"},
    "gpu": {CORE: "core", MEMORY: "memory", RATIO: "ratio"},
    "rdma": {RDMA: "share"},
}
_ORDER: Final = ("gpu", "rdma", "fpga")


class _Unreadable(ValueError):
    """Why an annotation says nothing; the text starts with the path of what is wrong."""


def format_allocated(uses: Iterable[DeviceUse]) -> str:
    """Return the annotation's value; devices of a kind stay in their order, amounts of 0 are left out."""
    kinds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _FIELDS}
    for use in uses:
        amounts = {name: getattr(use, field) for name, field in _FIELDS[use.kind].items()}
        entry: dict[str, Any] = {
            "minor": use.minor,
            "resources": {
                name: format_bytes(amount) if name == MEMORY else str(amount)
                for name, amount in amounts.items()
                if amount
            },
        }
        if use.id:
            entry["id"] = use.id
        kinds[use.kind].append(entry)
    return _json({kind: entries for kind, entries in kinds.items() if entries})


def parse_allocated(text: str) -> tuple[tuple[DeviceUse, ...] | None, str]:
    """Return the devices (GPUs, RDMA, FPGAs, each in the order of the text) and "", or None and why it is not readable.

    Kinds, resources and fields that we do not know are ignored; quantities may be text or numbers. Never raises.
    """
    if len(text) > MAX_TEXT:
        return None, f"longer than {MAX_TEXT:,} characters"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, "not JSON" if isinstance(error, ValueError) else "nested too deeply"
    if not isinstance(found, dict):
        return None, "not a JSON object"
    try:
        return tuple(use for kind in _ORDER for use in _uses(kind, found.get(kind))), ""
    except _Unreadable as error:
        return None, str(error)


def _uses(kind: str, entries: object) -> list[DeviceUse]:
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _Unreadable(f"{kind}: not a list")
    if len(entries) > MAX_DEVICES:
        raise _Unreadable(f"{kind}: more than {MAX_DEVICES} devices")
    uses = [_use(kind, entry, f"{kind}[{position}]") for position, entry in enumerate(entries)]
    if len({use.minor for use in uses}) < len(uses):
        raise _Unreadable(f"{kind}: names a device twice")
    return uses


def _use(kind: str, entry: object, path: str) -> DeviceUse:
    if not isinstance(entry, dict):
        raise _Unreadable(f"{path}: not an object")
    minor, device_id = entry.get("minor"), entry.get("id")
    if not isinstance(minor, int) or isinstance(minor, bool) or not 0 <= minor <= _MAX_MINOR:
        raise _Unreadable(f"{path}.minor: not a number from 0")
    device_id = "" if device_id is None else device_id
    if not isinstance(device_id, str) or len(device_id) > _MAX_ID or not device_id.isprintable():
        raise _Unreadable(f"{path}.id: not a plain text of {_MAX_ID} characters at most")
    resources = entry.get("resources")
    if resources is None:
        resources = {}
    if not isinstance(resources, dict):
        raise _Unreadable(f"{path}.resources: not an object")
    amounts = {
        field: _amount(name, resources[name], f"{path}.resources[{name}]")
        for name, field in _FIELDS[kind].items()
        if name in resources
    }
    return DeviceUse(kind, minor, device_id, **amounts)


def _amount(name: str, quantity: Any, path: str) -> int:
    most = MAX_BYTES if name == MEMORY else WHOLE
    try:
        amount = nano(name, quantity) // _NANO
    except QuantityError as error:
        raise _Unreadable(f"{path}: {plain(str(error))}") from None
    if not 0 <= amount <= most:
        raise _Unreadable(f"{path}: {quote(str(quantity))} is not from 0 to {most:,}")
    return amount


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
