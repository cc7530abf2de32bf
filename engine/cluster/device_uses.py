"""The devices of each pod of a slot: their JSON in a Placement <-> records.

A pod's devices are [{type, minor, core, memoryRatio, memory}] for GPUs, [{type, minor, share}] for the others; what is
0 or not known is left out. The id of a device is no part of it: a card that was exchanged keeps its number, and the id
is looked up when the pod is told its devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from engine.api.device import DeviceUse
from engine.api.resources import QuantityError, format_bytes, nano
from engine.cluster import wire
from engine.cluster.wire import ProjectionError

_KINDS: Final = frozenset({"gpu", "rdma", "fpga"})
_WHOLE: Final = 100
_NANO: Final = 10**9
_MAX_MEMORY: Final = 2**50


def uses_body(uses: Iterable[DeviceUse]) -> list[dict[str, Any]]:
    """Return the JSON of one pod's devices."""
    return [_body(use) for use in uses]


def device_uses(raw: Iterable[wire.PlacementDevice], path: str) -> tuple[DeviceUse, ...]:
    """Return one pod's devices; `path` is where they stand, for errors (ProjectionError)."""
    found: dict[tuple[str, int], DeviceUse] = {}
    for position, one in enumerate(raw):
        where = f"{path}[{position}]"
        use = _use(one, where)
        if (use.kind, use.minor) in found:
            raise ProjectionError(f"{where}: {use.kind} {use.minor} stands twice")
        found[use.kind, use.minor] = use
    return tuple(found.values())


def _body(use: DeviceUse) -> dict[str, Any]:
    amounts: dict[str, Any] = {
        "core": use.core,
        "memoryRatio": use.ratio,
        "memory": format_bytes(use.memory) if use.memory else 0,
        "share": use.share,
    }
    return {"type": use.kind, "minor": use.minor, **{key: value for key, value in amounts.items() if value}}


def _use(raw: wire.PlacementDevice, where: str) -> DeviceUse:
    if raw.type not in _KINDS:
        raise ProjectionError(f"{where}.type: {raw.type[:63]!r} is none of {', '.join(sorted(_KINDS))}")
    for key, percent in (("core", raw.core), ("memoryRatio", raw.memory_ratio), ("share", raw.share)):
        if percent is not None and percent > _WHOLE:
            raise ProjectionError(f"{where}.{key}: {percent:,} is more than {_WHOLE}")
    try:
        memory = nano("memory", raw.memory) // _NANO if raw.memory is not None else 0
    except QuantityError as error:
        raise ProjectionError(f"{where}.memory: {error}") from None
    if not 0 <= memory <= _MAX_MEMORY:
        raise ProjectionError(f"{where}.memory: must be from 0 to {_MAX_MEMORY:,} bytes")
    return DeviceUse(
        kind=raw.type,
        minor=raw.minor,
        core=raw.core or 0,
        ratio=raw.memory_ratio or 0,
        memory=memory,
        share=raw.share or 0,
    )
