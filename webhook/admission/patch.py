"""Builds JSON Patches (RFC 6902) from edits.

A patch that does not apply is a 500 for the user, whatever the failurePolicy, so operations are never written by hand:
`Edits` applies each one to a private copy of the containers on its path (the rest of the object is shared, not copied).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from engine.api.field import json_pointer

Path = tuple[str | int, ...]
_pointer = lru_cache(maxsize=2048)(json_pointer)  # a pod's review writes a dozen paths, the same ones every time
Operation = Mapping[str, Any]


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
        self.operations.append({"op": "replace" if present else "add", "path": _pointer(path), "value": value})

    def drop(self, path: Path) -> None:
        """Remove a key if it exists."""
        parent = self.get(*path[:-1])
        if not isinstance(parent, dict) or path[-1] not in parent:
            return
        del self._open(path[:-1])[path[-1]]
        self._forget(path)
        self.operations.append({"op": "remove", "path": _pointer(path)})

    def append(self, path: Path, item: Any) -> None:
        """Add an item at the end of a list, which is created if absent."""
        if not isinstance(self.get(*path), list):
            self.put(path, [item])
            return
        self._open(path).append(item)
        self.operations.append({"op": "add", "path": _pointer(path) + "/-", "value": item})

    def drop_items(self, path: Path, unwanted: Callable[[Any], bool]) -> None:
        """Remove the items of a list for which `unwanted` is True; the others keep their order."""
        items = self.get(*path)
        if not isinstance(items, list):
            return
        for index in reversed(range(len(items))):
            if unwanted(items[index]):
                del self._open(path)[index]
                self._forget(path, itself=False)
                self.operations.append({"op": "remove", "path": _pointer((*path, index))})

    def _open(self, path: Path) -> Any:
        """Return a private copy of the container at the path; created as an object if absent."""
        node: Any = self.document
        for depth, step in enumerate(path, start=1):
            here = path[:depth]
            child = node.get(step) if isinstance(node, dict) else node[step]
            if here not in self._own:
                if child is None:
                    child = {}
                    self.operations.append({"op": "add", "path": _pointer(here), "value": {}})
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
