"""Warns about fields of other schedulers in a workload's spec that ask for places and are not read.

Keys of annotations and labels are named by `engine.gang.warnings`; a field is known by the kind that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.field import path_of
from engine.api.workload import Workload
from engine.gang.request import PlacementRequest

_HYPER_NODES: Final = "use topology: hypernodes, with require- or prefer-topology"
_SLICES: Final = "use slice-topology and slice-size"
_SCOPE: Final = "use device-scope"

# Group and kind -> the path of a field, with "*" for each item of a list, and what to write instead.
_FIELDS: Final[Mapping[tuple[str, str], tuple[tuple[tuple[str, ...], str], ...]]] = {
    ("batch.volcano.sh", "Job"): (
        (("spec", "networkTopology"), _HYPER_NODES),
        (("spec", "tasks", "*", "partitionPolicy"), _SLICES),
        (("spec", "tasks", "*", "topologyPolicy"), _SCOPE),
    ),
    # Subgroups are numbers for the pods; that they are apart is asked for by an annotation, which is exempt.
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ((("spec", "leaderWorkerTemplate", "subGroupPolicy"), _SLICES),),
}


def unread_fields(document: Mapping[str, Any], workload: Workload, request: PlacementRequest) -> Iterator[str]:
    """Yield a warning for each such field of a workload with a request, of a list for its first item alone.

    None about groups of pods where the request has slices: it says what they are placed by.
    """
    sliced = any(ask.slices for ask in request.pod_sets)
    for path, instead in _FIELDS.get((workload.api_version.rpartition("/")[0], workload.kind), ()):
        if instead == _SLICES and sliced:
            continue
        if (steps := next(_found(document, path), None)) is not None:
            yield f"{path_of(steps)} is ignored: {instead}"


def _found(part: Any, path: tuple[str, ...], before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the steps to each place of the path that has a value that asks for something."""
    if not path:
        if part not in (None, "", names.NONE):
            yield before
        return
    step, rest = path[0], path[1:]
    inner: Iterable[tuple[str | int, Any]] = ()
    if step == "*" and isinstance(part, list):
        inner = enumerate(part)
    elif isinstance(part, Mapping) and step in part:
        inner = ((step, part[step]),)
    for at, one in inner:
        yield from _found(one, rest, (*before, at))
