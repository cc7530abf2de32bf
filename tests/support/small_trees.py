"""Trees of free slots written as nested lists: [block][rack][host], for tests of the planner."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.planner.tree import Tree, build_tree

LEVELS = ("zone", "block", "rack", "host")


def grow(nested: list[Any]) -> tuple[Tree, NDArray[np.int64]]:
    """The tree of a nested list, and the slots of its hosts in tree order; the last levels of LEVELS are used."""
    paths: list[tuple[str, ...]] = []
    slots: list[int] = []

    def walk(node: list[Any], path: tuple[str, ...]) -> None:
        for i, child in enumerate(node):
            if isinstance(child, list):
                walk(child, (*path, f"d{i}"))
            else:
                paths.append((*path, f"host-{len(paths)}"))
                slots.append(child)

    walk(nested, ())
    depth = len(paths[0]) if paths else 1
    return build_tree(LEVELS[-depth:], paths), np.array(slots, dtype=np.int64)
