"""Which resource names nodes report, and how large a GPU's memory is: kept current node by node.

Every review of a GPU request asks for it, so that nothing is counted there: a node's change costs the names of that
node, and the answer is made anew only when it differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from engine.api.objects import Node
from engine.gpu.resources import CORE, MEMORY, WHOLE
from engine.gpu.translation import Reported

Key = TypeVar("Key", int, str)


class ReportedNodes:
    """Follows a store of nodes: subscribe `changed`, read `now` from any thread.

    Cordoned and unready nodes count too: what pods are called must not change whenever a node is away for a moment.
    """

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._memories: Counter[int] = Counter()
        self.now = Reported()

    def changed(self, _key: object, old: Node | None, new: Node | None) -> None:
        """Take one change of a node; one at a time, as a store tells them."""
        before = old.allocatable if old is not None else {}
        after = new.allocatable if new is not None else {}
        if before == after:
            return
        for allocatable, sign in ((before, -1), (after, 1)):
            for name, amount in allocatable.items():
                if amount > 0:
                    _count(self._names, name, sign)
            if memory := gpu_memory(allocatable):
                _count(self._memories, memory, sign)
        sizes = tuple(self._memories)
        fresh = Reported(frozenset(self._names), sizes[0] if len(sizes) == 1 else None)
        if fresh != self.now:
            self.now = fresh


def gpu_memory(allocatable: Mapping[str, int]) -> int:
    """Return the bytes of one GPU of a node, rounded down; 0 where the node does not say."""
    gpus = allocatable.get(CORE, 0) // WHOLE
    return allocatable.get(MEMORY, 0) // gpus if gpus else 0


def _count(counter: Counter[Key], key: Key, sign: int) -> None:
    counter[key] += sign
    if not counter[key]:
        del counter[key]
