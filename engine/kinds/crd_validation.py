"""Checks the paths of an entry against the schema of a CustomResourceDefinition.

A path that leads to no field in any served version is a mistake: every object of the kind would be misread, and its
user would get the error. Where a schema leaves the content open, every path is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from engine.kinds.paths import ITEMS, VALUES, Path
from engine.kinds.schema import ANY_VERSION, Contained, KindEntry, PodSetSpec

Steps = tuple[str | int, ...]
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_KNOWN: Final = frozenset({"apiVersion", "kind", "metadata"})  # of every object; a schema hardly describes them
_OPEN: Final[Mapping[str, Any]] = {_PRESERVES: True}


def schemas_of(definition: Mapping[str, Any], entry: KindEntry) -> list[Mapping[str, Any]]:
    """Return the schemas of the served versions that an entry matches, from a CustomResourceDefinition."""
    spec = definition.get("spec")
    versions = spec.get("versions") if isinstance(spec, Mapping) else None
    found = []
    for version in versions if isinstance(versions, list) else ():
        if not isinstance(version, Mapping) or version.get("served") is False:
            continue
        if ANY_VERSION in entry.match.versions or version.get("name") in entry.match.versions:
            schema = version.get("schema")
            found.append(_mapping(_mapping(schema).get("openAPIV3Schema")) or _OPEN)
    return found


def unserved_paths(entry: KindEntry, schemas: list[Mapping[str, Any]]) -> Iterator[tuple[Steps, Path]]:
    """Yield the paths that lead to no field in any of the schemas, with their position in the entry."""
    for at, path, start in _paths(entry):
        if not any(_leads(path, start, schema) for schema in schemas):
            yield at, path


def _paths(entry: KindEntry) -> Iterator[tuple[Steps, Path, tuple[Path, ...]]]:
    """Yield every path of an entry, with the paths to its starting point."""
    for name, value in _fields(entry):
        if name == "podSets":
            for index, one in enumerate(entry.pod_sets):
                yield from _of_pod_set(("podSets", index), one)
        elif isinstance(value, Contained):
            yield from _of_contained(("contains",), value)
        else:
            yield from ((at, path, ()) for at, path in _inside((name,), value))


def _of_pod_set(at: Steps, spec: PodSetSpec) -> Iterator[tuple[Steps, Path, tuple[Path, ...]]]:
    start = () if spec.for_each is None else (spec.for_each,)
    for where, path in _inside(at, spec):
        if spec.succeeded is not None and where in ((*at, "succeeded", "name"), (*at, "succeeded", "count")):
            entries = spec.succeeded.entries
            yield where, path, (entries,) if entries.whole else (*start, entries)
        else:
            yield where, path, () if where == (*at, "forEach") else start


def _of_contained(at: Steps, spec: Contained) -> Iterator[tuple[Steps, Path, tuple[Path, ...]]]:
    yield (*at, "forEach"), spec.for_each, ()
    yield (*at, "object"), spec.object, (spec.for_each,)
    yield (*at, "declared"), spec.declared, (spec.for_each,)
    yield (*at, "path"), spec.path, (spec.for_each, spec.declared)
    yield from ((where, path, (spec.for_each, spec.declared)) for where, path in _inside((*at, "count"), spec.count))


def _inside(at: Steps, value: object) -> Iterator[tuple[Steps, Path]]:
    if isinstance(value, Path):
        yield at, value
    elif isinstance(value, BaseModel):
        for name, inner in _fields(value):
            yield from _inside((*at, name), inner)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _inside((*at, key), inner)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _inside((*at, index), inner)


def _fields(model: BaseModel) -> Iterator[tuple[str, object]]:
    for name, field in type(model).model_fields.items():
        yield field.alias or name, getattr(model, name)


def _leads(path: Path, start: tuple[Path, ...], schema: Mapping[str, Any]) -> bool:
    steps = path.steps if path.whole else (*(step for one in start for step in one.steps), *path.steps)
    if steps and steps[0] in _KNOWN:
        return True
    for step in steps:
        found = _down(schema, step)
        if found is None:
            return False
        schema = found
    return True


def _down(schema: Mapping[str, Any], step: str) -> Mapping[str, Any] | None:
    """Return the schema one step further down; None where it has no such field."""
    properties, more = _mapping(schema.get("properties")), schema.get("additionalProperties")
    if step == ITEMS:
        return _mapping(schema.get("items")) or (_OPEN if _open(schema) else None)
    if step in properties:
        return _mapping(properties[step]) or _OPEN
    if isinstance(more, Mapping):
        return more
    if more is True or _open(schema):
        return _OPEN
    return _mapping(next(iter(properties.values()))) or _OPEN if step == VALUES and properties else None


def _open(schema: Mapping[str, Any]) -> bool:
    """Return whether the schema allows any content."""
    declared = schema.get(_PRESERVES) is True or schema.get("x-kubernetes-embedded-resource") is True
    return declared or "type" not in schema


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
