"""Objects that a controller creates from parts of an object: the Jobs of a CronJob or JobSet, AppWrapper components.

Their templates are read elsewhere; here only their metadata matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.kinds.paths import NodeError, PathNode, PathScope, Steps, each, find
from engine.kinds.registry import Registry
from engine.kinds.schema import ANY_VERSION, MAX_POD_SETS, KindEntry


@dataclass(frozen=True, slots=True)
class ChildObject:
    """A part of an object: the steps to it, and the object created from it with the entry of its kind."""

    steps: Steps
    entry: KindEntry
    raw: Mapping[str, Any]


def child_objects(entry: KindEntry, raw: Mapping[str, Any], *, registry: Registry) -> Iterator[ChildObject]:
    """Yield the objects created from an object of the entry's kind, at most 64 per path; skip unreadable ones.

    After a contained object follow those that are created from it.
    """
    try:
        yield from _made(entry, raw, registry)
        for node, content in _contents(entry, raw):
            kind = registry.entry_of(content)
            if kind is None or kind.handling != "placed":
                continue
            yield ChildObject(node.steps, kind, content)
            if kind.contains is None:
                for part in child_objects(kind, content, registry=registry):
                    yield replace(part, steps=(*node.steps, *part.steps))
    except NodeError:
        return  # reported when the object itself is read


def _made(entry: KindEntry, raw: Mapping[str, Any], registry: Registry) -> Iterator[ChildObject]:
    """Yield the objects that the controller of an object's kind makes from its parts; stop at an unreadable one."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    for spec in entry.makes:
        kind = registry.find(spec.kind.group, spec.kind.kind)
        for node in each(spec.object, scope, limit=MAX_POD_SETS):
            if kind is not None and isinstance(node.value, Mapping):
                yield ChildObject(node.steps, kind, {**node.value, **_head(kind)})


def _contents(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[PathNode, Mapping[str, Any]]]:
    """Yield the whole objects that an object contains, each with its node."""
    if entry.contains is None:
        return
    scope = PathScope(PathNode(raw), PathNode(raw))
    for node in each(entry.contains.for_each, scope, limit=MAX_POD_SETS):
        inner = find(entry.contains.object, PathScope(scope.root, node))
        if inner is not None and isinstance(inner.value, Mapping):
            yield inner, inner.value


def unread_objects(
    entry: KindEntry, raw: Mapping[str, Any], *, registry: Registry
) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield the metadata of contained objects of unregistered kinds, with the steps to it: their pods are declared."""
    try:
        for node, content in _contents(entry, raw):
            if registry.entry_of(content) is None and isinstance(metadata := content.get("metadata"), Mapping):
                yield (*node.steps, "metadata"), metadata
    except NodeError:
        return  # reported when the object itself is read


def beside_templates(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield the templates that only pods outside the object's gang are made from, with the steps to them."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    of_gang = {spec.template for spec in entry.pod_sets if spec.member == "gang" and spec.for_each is None}
    for spec in entry.pod_sets:
        if spec.member != "beside" or spec.for_each is not None or spec.template in of_gang:
            continue
        try:
            node = find(spec.template, scope)
        except NodeError:
            continue
        if node is not None and isinstance(node.value, Mapping):
            yield node.steps, node.value


def annotated_parts(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """Yield the other parts of an object with annotations or labels, at most 64 per path, with the steps to them."""
    scope = PathScope(PathNode(raw), PathNode(raw))
    for path in entry.annotated:
        try:
            for node in each(path, scope, limit=MAX_POD_SETS):
                if isinstance(node.value, Mapping):
                    yield node.steps, node.value
        except NodeError:
            continue


def configured_annotations(entry: KindEntry, raw: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the pod annotations in settings of an object, with the prefix of their keys there."""
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
