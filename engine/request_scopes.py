"""What is said of some of a workload's pods: of the whole gang, or of one pod set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.annotations import Said
from engine.api import names
from engine.api.workload import PodSet


@dataclass(frozen=True, slots=True)
class Scope:
    """`said` about `pods` pods of `pod_set`, None for a whole gang of several pod sets; `meanings` by key.

    With one pod set its scope is that of the gang too.
    """

    pod_set: PodSet | None
    pods: int
    said: tuple[Said, ...]
    meanings: Mapping[str, str]

    def saying(self, about: str) -> Said | None:
        """The annotation by which the scope says something about a key; the first by path."""
        return next((one for one in self.said if one.about == about), None)


def slices_of(scope: Scope, whole: Scope) -> tuple[tuple[str, int], ...]:
    """The slices (level, size) of a pod set, its own or those of the whole gang; of a size that is known.

    What the workload says holds for every pod set that is as large as a slice.
    """
    pod_set = scope.pod_set
    if pod_set is None:
        return ()
    said = scope if names.SLICE_TOPOLOGY in scope.meanings else whole
    level, size = said.meanings.get(names.SLICE_TOPOLOGY), said.meanings.get(names.SLICE_SIZE)
    pods = pod_set.replica if size is None else int(size)
    if level is None or pods is None or (said is not scope and pods > pod_set.slots):
        return ()
    return ((level, pods),)
