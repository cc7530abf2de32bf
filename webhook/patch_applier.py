"""JSON Patch played on an object as the API server does it: the three operations that `webhook.patch` writes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from webhook.patch import Operation


class PatchError(ValueError):
    """The patch does not fit the object; the API server would answer the user's request with a 500."""


def apply_patch(document: Mapping[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the object after the operations (RFC 6902: add, replace, remove); the one that is given stays as it is.

    Raises PatchError for any other operation and for a path that is not there.
    """
    result: dict[str, Any] = copy.deepcopy(dict(document))
    for operation in operations:
        try:
            _apply(result, operation)
        except (KeyError, IndexError, TypeError, ValueError):
            raise PatchError(f"{operation.get('op')} {operation.get('path')} does not fit the object") from None
    return result


def _apply(document: dict[str, Any], operation: Operation) -> None:
    first, *steps = operation["path"].split("/")
    if first or not steps:
        raise ValueError("no JSON Pointer below the root")
    *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in steps]
    parent: Any = document
    for step in parents:
        parent = parent[_index(step)] if isinstance(parent, list) else parent[step]
    op = operation["op"]
    if op == "add" and isinstance(parent, list):
        at = len(parent) if last == "-" else _index(last)
        if at > len(parent):
            raise IndexError
        parent.insert(at, copy.deepcopy(operation["value"]))
        return
    key = _index(last) if isinstance(parent, list) else last
    match op:
        case "add":
            parent[key] = copy.deepcopy(operation["value"])
        case "replace":
            parent[key]  # it must be there
            parent[key] = copy.deepcopy(operation["value"])
        case "remove":
            del parent[key]
        case _:
            raise ValueError(op)


def _index(step: str) -> int:
    if not (step.isascii() and step.isdigit()):
        raise ValueError("no index of a list")
    return int(step)
