"""Builds JSON Patches (RFC 6902) from edits, and applies them as the API server does.

A patch that does not apply is a 500 for the user, whatever the failurePolicy, so operations are never written by hand:
`Edits` applies each one to a private copy of the containers on its path (the rest of the object is shared, not copied).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Path = tuple[str | int, ...]
Operation = Mapping[str, Any]


def pointer(path: Path) -> str:
    """Return the JSON Pointer (RFC 6901) of a path: `~` and `/` in keys escaped, in this order."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class Edits:
    """Edits to one decoded object, which is not changed; `operations` is the patch, `document` its result.

    A null counts as absent, as in Kubernetes. An edit that changes nothing adds no operation.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document: dict[str, Any] = dict(document)
        self.operations: list[Operation] = []
        self._own: set[Path] = {()}

    def get(self, *path: str | int) -> Any:
        """Return the current value at the path; None if there is none."""
        node: Any = self.document
        for step in path:
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and isinstance(step, int) and step < len(node):
                node = node[step]
            else:
                return None
        return node

    def put(self, path: Path, value: Any) -> None:
        """Set a value; absent parents are created, an equal value is left alone."""
        if self.get(*path) == value and self.get(*path) is not None:
            return
        parent = self._open(path[:-1])
        step = path[-1]
        present = isinstance(parent, list) or step in parent
        parent[step] = value
        self._forget(path)
        self.operations.append({"op": "replace" if present else "add", "path": pointer(path), "value": value})

    def drop(self, path: Path) -> None:
        """Remove a key if it exists."""
        parent = self.get(*path[:-1])
        if not isinstance(parent, dict) or path[-1] not in parent:
            return
        del self._open(path[:-1])[path[-1]]
        self._forget(path)
        self.operations.append({"op": "remove", "path": pointer(path)})

    def append(self, path: Path, item: Any) -> None:
        """Add an item at the end of a list, which is created if absent."""
        if not isinstance(self.get(*path), list):
            self.put(path, [item])
            return
        self._open(path).append(item)
        self.operations.append({"op": "add", "path": pointer(path) + "/-", "value": item})

    def drop_items(self, path: Path, unwanted: Callable[[Any], bool]) -> None:
        """Remove the items of a list for which `unwanted` is True; the others keep their order."""
        items = self.get(*path)
        if not isinstance(items, list):
            return
        for index in reversed(range(len(items))):
            if unwanted(items[index]):
                del self._open(path)[index]
                self._forget(path, itself=False)
                self.operations.append({"op": "remove", "path": pointer((*path, index))})

    def _open(self, path: Path) -> Any:
        """Return a private copy of the container at the path; created as an object if absent."""
        node: Any = self.document
        for depth, step in enumerate(path, start=1):
            here = path[:depth]
            child = node.get(step) if isinstance(node, dict) else node[step]
            if here not in self._own:
                if child is None:
                    child = {}
                    self.operations.append({"op": "add", "path": pointer(here), "value": {}})
                else:
                    child = list(child) if isinstance(child, list) else dict(child)
                node[step] = child
                self._own.add(here)
            node = child
        return node

    def _forget(self, path: Path, *, itself: bool = True) -> None:
        """Stop treating the containers at or below the path as private: they belong to the caller, or have moved."""
        if path not in self._own:
            return  # nothing below it either: opening a container opens those above it
        depth = len(path)
        self._own = {one for one in self._own if one[:depth] != path or (not itself and one == path)}


class PatchError(ValueError):
    """A patch does not fit the object; the API server would answer the user's request with a 500."""


def apply_patch(document: Mapping[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the object after the operations (RFC 6902: add, replace, remove), without changing the argument.

    Raises PatchError for any other operation and for a path that does not exist.
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
            parent[key]  # it must exist
            parent[key] = copy.deepcopy(operation["value"])
        case "remove":
            del parent[key]
        case _:
            raise ValueError(op)


def _index(step: str) -> int:
    if not (step.isascii() and step.isdigit()):
        raise ValueError("no index of a list")
    return int(step)
