"""Tries entries of a policy on objects: on a sample of the kind, or on its CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api.field import path_of
from engine.api.text import plural, sanitize
from engine.kinds.crd_validation import schemas_of, unserved_paths
from engine.kinds.read import UnreadableWorkload, read
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry
from engine.kinds.structure import ParsedWorkload
from webhook.snapshot.files import FileObject

_DEFINITION: Final = ("apiextensions.k8s.io", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for one object: lines to print, and whether the entries fit it."""

    lines: tuple[str, ...]
    good: bool


def trials(objects: Iterable[FileObject], registry: Registry) -> Iterator[Trial]:
    """Try the entries of a registry on objects, one by one. Raises FileProblem."""
    for one in objects:
        yield _of_definition(one, registry) if one.what == _DEFINITION else _of_sample(one, registry)


def definition_trials(objects: Iterable[FileObject], registry: Registry) -> Iterator[Trial]:
    """Try the entries that a policy adds on the CustomResourceDefinitions of their kinds."""
    for one in objects:
        if one.what == _DEFINITION:
            entries = [entry for entry in registry.of_kind(*_kind(one.decoded())) if registry.added(entry)]
            if entries:
                yield _fitting(one, entries, registry)


def _of_sample(one: FileObject, registry: Registry) -> Trial:
    entry = registry.find(one.group, one.kind, one.version)
    if entry is None:
        kind = f"{one.group}/{one.version} {one.kind}".removeprefix("/")
        return Trial((f"{one.where}: no entry for {sanitize(kind)}",), good=False)
    try:
        document = one.decoded()
        structure = read(entry, document, registry=registry)
    except UnreadableWorkload as fault:
        return Trial(tuple(f"{one.where}: {error.field}: {error.message}" for error in fault.errors), good=False)
    return Trial((f"{one.where}: {_summary(entry, structure, document)}",), good=True)


def _summary(entry: KindEntry, structure: ParsedWorkload, document: Mapping[str, Any]) -> str:
    found = [
        f"{sanitize(one.name)} ({plural(one.count, 'pod')}, {one.field or 'itself'})" for one in structure.pod_sets
    ]
    pod_sets = ", ".join(found) or "no pods of its own"
    return f"{entry.match.kind} {sanitize(structure.name)}: {pod_sets}; {_hold(structure, document)}"


def _hold(structure: ParsedWorkload, document: Mapping[str, Any]) -> str:
    """Return how the workload is held; a field that the sample does not have may be misspelt."""
    if structure.suspension is None:
        return "held by the scheduling gate"
    found: Any = document
    for step in structure.suspension.steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    missing = "" if found is not None else ", which this object does not set"
    return f"held by {structure.suspension.field}{missing}"


def _of_definition(one: FileObject, registry: Registry) -> Trial:
    group, kind = _kind(one.decoded())
    entries = registry.of_kind(group, kind)
    if not entries:
        return Trial((f"{one.where}: no entry for {sanitize(kind)} of {sanitize(group)}",), good=False)
    return _fitting(one, entries, registry)


def _fitting(one: FileObject, entries: Iterable[KindEntry], registry: Registry) -> Trial:
    definition = one.decoded()
    lines = [line for entry in entries for line in _unserved(one, entry, definition, registry)]
    good = (f"{one.where}: {sanitize(_kind(definition)[1])} has every field that its entry names",)
    return Trial(tuple(lines) or good, good=not lines)


def _unserved(one: FileObject, entry: KindEntry, definition: Mapping[str, Any], registry: Registry) -> Iterator[str]:
    where = registry.added(entry) or entry.name
    schemas = schemas_of(definition, entry)
    if not schemas:
        yield f"{one.where}: {where}: none of match.versions is served"
        return
    for steps, path in unserved_paths(entry, schemas):
        yield f"{one.where}: {where}: {path_of(steps)}: {sanitize(str(path))} matches no field of the kind"


def _kind(definition: Mapping[str, Any]) -> tuple[str, str]:
    spec = definition.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    named = spec.get("names")
    return str(spec.get("group", "")), str(named.get("kind", "") if isinstance(named, Mapping) else "")
