"""Objects that a controller makes of parts of an object: the Jobs of a CronJob or a JobSet, an AppWrapper's components.

Their templates are pod sets of the object, or its own business; here they are for what their metadata says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.kinds.paths import NodeError, PathNode, PathScope, Steps, each, find
from engine.kinds.registry import Registry
from engine.kinds.schema import ANY_VERSION, MAX_POD_SETS, KindEntry


@dataclass(frozen=True, slots=True)
class ChildObject:
    """A part of an object: the steps to it, and what is made of it, by the entry of its kind."""

    steps: Steps
    entry: KindEntry
    raw: Mapping[str, Any]


def child_objects(entry: KindEntry, raw: Mapping[str, Any], *, registry: Registry) -> Iterator[ChildObject]:
    """Yield what is made of an object of the entry's kind, at most 64 a path; what cannot be read is passed over."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    try:
        for spec in entry.makes:
            kind = registry.find(spec.kind.group, spec.kind.kind)
            for node in each(spec.object, scope, limit=MAX_POD_SETS):
                if kind is not None and isinstance(node.value, Mapping):
                    yield ChildObject(node.steps, kind, {**node.value, **_head(kind)})
        for node in each(entry.contains.for_each, scope, limit=MAX_POD_SETS) if entry.contains is not None else ():
            inner = find(entry.contains.object, PathScope(scope.root, node)) if entry.contains is not None else None
            if inner is not None and isinstance(inner.value, Mapping):
                kind = registry.entry_of(inner.value)
                if kind is not None and kind.handling == "placed":
                    yield ChildObject(inner.steps, kind, inner.value)
    except NodeError:
        return  # whoever reads the object itself tells it


def beside_templates(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield the pod templates of an object whose pods are no part of its gang, with the steps to them."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    for spec in entry.pod_sets:
        if spec.member != "beside" or spec.for_each is not None:
            continue
        try:
            node = find(spec.template, scope)
        except NodeError:
            continue
        if node is not None and isinstance(node.value, Mapping):
            yield node.steps, node.value


def annotated_parts(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield the other parts of an object that have annotations or labels, at most 64 a path, with the steps to them."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    for path in entry.annotated:
        try:
            for node in each(path, scope, limit=MAX_POD_SETS):
                if isinstance(node.value, Mapping):
                    yield node.steps, node.value
        except NodeError:
            continue


def configured_annotations(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the annotations of pods that settings of an object name, with the prefix that their keys have there."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    for spec in entry.configured:
        try:
            node = find(spec.path, scope)
        except NodeError:
            continue
        settings = node.value if node is not None and isinstance(node.value, Mapping) else {}
        for prefix in spec.prefixes:
            yield (
                prefix,
                {
                    key.removeprefix(prefix): value
                    for key, value in settings.items()
                    if key.startswith(prefix) and isinstance(value, str)
                },
            )


def _head(kind: KindEntry) -> Mapping[str, str]:
    group = kind.match.group
    version = next((one for one in kind.match.versions if one != ANY_VERSION), "v1")
    return {"apiVersion": f"{group}/{version}" if group else version, "kind": kind.match.kind}
