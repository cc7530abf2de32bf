"""The Topology object of Kueue (`kueue.x-k8s.io`) and of KAI (`kai.scheduler`) -> TopologyObject.

Both have `spec.levels[].nodeLabel`, coarse to fine; KAI's levels may have an `alias`. A spec that cannot be read is no
fault of the projection: the record tells it, so that a topology says why it waits.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.api.text import plain
from engine.cluster import wire
from engine.cluster.wire import ProjectionError, Source
from engine.topology.objects import TopologyObject

MAX_LEVELS: Final = 16  # Kueue's and KAI's own limit
_MAX_TEXT: Final = 400  # of a problem


class _Level(wire.Struct):
    node_label: str
    alias: str | None = None


class _Spec(wire.Struct):
    levels: list[_Level]


def topology_object(source: Source) -> TopologyObject:
    """Return the levels of a Topology object of either group. Raises ProjectionError when it is no object."""
    raw = wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    if not meta.name:
        raise ProjectionError("$.metadata.name: is required")
    problem = ""
    levels: tuple[tuple[str, str], ...] = ()
    try:
        spec = msgspec.convert(raw.get("spec"), _Spec)
        levels = tuple((level.node_label, level.alias or "") for level in spec.levels)
        if not 0 < len(levels) <= MAX_LEVELS:
            problem, levels = f"spec.levels: must have 1 to {MAX_LEVELS} entries; has {len(levels)}", ()
    except msgspec.ValidationError as error:
        problem = plain("spec: " + str(error).replace("`", ""))[:_MAX_TEXT]
    return TopologyObject(meta.name, meta.resource_version or "", levels, problem)
