"""Foreign annotations that are known and not read (`names.UNREAD`): what helps whoever wrote one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from engine.annotations import Source
from engine.api import names

# What stands after the key; with it and our prefix a warning has at most 120 characters.
HELP: Final[Mapping[str, str]] = {
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": "is not read; one layer: slice-topology, slice-size",
    "kueue.x-k8s.io/podset-topology-spreading": "is not read: ask for nothing and use topologySpreadConstraints",
    "kai.scheduler/segment-size": f"is not read: use {names.SLICE_SIZE}",
    "kai.scheduler/segment-topology-required-placement": f"is not read: use {names.SLICE_TOPOLOGY}",
    "kai.scheduler/segment-topology-preferred-placement": "is not read: slice-topology can only require a level",
    "kai.scheduler/batch-min-member": f"is not read: use {names.MIN_AVAILABLE}",
}


def unread(sources: Iterable[Source], *, dialects: Collection[str]) -> Iterator[str]:
    """Yield a warning for each such key of these dialects on the sources, each key once."""
    known = {key for dialect, keys in names.UNREAD.items() if dialect in dialects for key in keys}
    for key in sorted({key for source in sources for key in source.annotations.keys() & known}):
        yield f"{key} {HELP[key]}"
