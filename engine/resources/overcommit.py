"""Overcommitment of GPUs: how much of its GPUs a host offers to pods that request parts of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.api.resources import Resources
from engine.resources.names import CORE, GPU, MEMORY, RATIO, WHOLE


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The percent of a GPU's compute and memory that its pods may request together, on nodes with some labels."""

    core: int = WHOLE
    memory: int = WHOLE
    selector: tuple[tuple[str, str], ...] = ()

    def offered(self, labels: Mapping[str, str], allocatable: Resources, *, gpus: int, memory: int) -> tuple[int, int]:
        """Return what one of a node's GPUs offers, in percent of its compute and of its memory.

        `gpus` is their number, `memory` the bytes of all of them. A host offers no more than its node reports: the
        kube-scheduler binds no more than that. What the node does not report at all, nobody counts but us.
        """
        if not gpus or (self.core, self.memory) == (WHOLE, WHOLE) or not self.selects(labels):
            return WHOLE, WHOLE
        reported = allocatable.get(CORE, allocatable.get(GPU))
        core = self.core if reported is None else min(self.core, reported // gpus)
        ratio = self.memory
        if (percent := allocatable.get(RATIO)) is not None:
            ratio = min(ratio, percent // gpus)
        elif (size := allocatable.get(MEMORY)) is not None and memory:
            ratio = min(ratio, size * WHOLE // memory)
        return max(WHOLE, core), max(WHOLE, ratio)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether it applies to a node with these labels."""
        return all(labels.get(key) == value for key, value in self.selector)


NO_OVERCOMMIT: Final = Overcommit()
