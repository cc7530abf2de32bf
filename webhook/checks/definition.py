"""The check of the CustomResourceDefinition: it is there, served, and has every field that this program writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from engine.api import names
from engine.api.text import join_comma, sanitize
from engine.decoding import wire
from engine.lifecycle.actions import Status
from engine.lifecycle.status import status_body
from webhook.checks.model import REAPPLY, Finding, failure, ok, skipped
from webhook.snapshot.installation import DEFINITION, ReadObject

CHECK: Final = "definition"
_VERSION: Final = names.API_VERSION.partition("/")[2]


def definition(found: ReadObject) -> Finding:
    """Return whether Placements are served with all fields."""
    if found.unread:
        return skipped(CHECK, f"CustomResourceDefinition {DEFINITION} {found.unread}")
    if found.body is None:
        return failure(CHECK, f"CustomResourceDefinition {DEFINITION} does not exist", REAPPLY)
    version = _version_of(found.body)
    conditions = _at(found.body, "status", "conditions")
    established = [one for one in _mappings(conditions) if one.get("type") == "Established"]
    if version is None or any(one.get("status") != "True" for one in established):
        why = f"does not serve {_VERSION}" if version is None else f"is not established: {_message(established[0])}"
        return failure(CHECK, f"CustomResourceDefinition {DEFINITION} {why}", REAPPLY)
    schema = _at(version, "schema", "openAPIV3Schema")
    missing = [path for path in fields() if not has_field(schema, path)]
    if missing:
        told = f"{DEFINITION} {_VERSION} lacks fields, which are dropped when they are written: {join_comma(missing)}"
        return failure(CHECK, told, REAPPLY)
    return ok(CHECK, f"{DEFINITION} {_VERSION} with every field of this version")


def fields() -> list[str]:
    """Return the path of every field that the service writes: `spec.podSets[].name`."""
    spec = [f"spec.{path}" for path in _fields_of(wire.PlacementSpec)]
    status = status_body({}, Status("Waiting", "", ""), placed=None, now=0.0)
    return [*spec, *(f"status.{key}" for key in status)]


def has_field(schema: Any, path: str) -> bool:
    """Return True if a structural schema has a field at a path, or keeps fields that it does not know."""
    for part in path.split("."):
        if not isinstance(schema, Mapping):
            return False
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        name = part.rstrip("[]")
        schema = _at(schema, "properties", name)
        for _ in range(part.count("[]")):
            schema = _at(schema, "items")
    return isinstance(schema, Mapping)


def _fields_of(struct: type[Any]) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        lists, inner = _inner(field.type)
        path = field.encode_name + "[]" * lists
        if inner is None:
            yield path
        else:
            yield from (f"{path}.{below}" for below in _fields_of(inner))


def _inner(kind: Any) -> tuple[int, type[Any] | None]:
    """Return how many lists a type is nested in, and the struct in it; None if it is none."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return 0, kind
    for argument in get_args(kind):
        lists, found = _inner(argument)
        if found is not None:
            return lists + (getattr(kind, "__origin__", None) is list), found
    return 0, None


def _version_of(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    versions = _mappings(_at(body, "spec", "versions"))
    return next((one for one in versions if one.get("name") == _VERSION and one.get("served")), None)


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _message(condition: Mapping[str, Any]) -> str:
    return sanitize(str(condition.get("message", "")), 200)
