"""What is seen of one gang and of the hosts that it is on; what can be said of it at a glance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from engine.gang_keys import key_of
from engine.members import held_by_us
from engine.requests import Understanding

GONE = float("inf")


@dataclass(frozen=True, slots=True)
class Gang:
    """All that is seen of one gang; `shapes` is what a pod of each pod set needs (`View.shape_of`), by name."""

    workload: Workload
    understanding: Understanding
    placement: Placement | None
    pods: tuple[Pod, ...]
    shapes: Mapping[str, Shape]
    group: str | None = None  # the index of the replica, for kinds with a gang per replica
    later: tuple[Pod, ...] = ()  # held pods whose turn comes after that of the others

    @property
    def key(self) -> str:
        """What the gang is known by in the view, the ledger and the queue."""
        return key_of(self.workload, self.group)


@dataclass(frozen=True, slots=True)
class Hosts:
    """What is asked about a host by name.

    `overbooked`: others took room that is reserved for the gang there; `usable`: a pod of the gang could go there (the
    node is there, ready, and takes the shape); `down`: for how long the node is not ready (seconds), None when it is,
    `GONE` when there is no such node.
    """

    overbooked: Callable[[str], bool]
    usable: Callable[[str], bool]
    down: Callable[[str], float | None]


def ours(workload: Workload) -> bool:
    """True when we hold the workload, or its template carries our gate: then its pods wait for us."""
    return held_by_us(workload) or any(names.GATE in pod_set.template.gates for pod_set in workload.pod_sets)


def can_suspend(workload: Workload) -> bool:
    """True when suspension is ours to use: the kind can, and nobody but a CronJob owns the workload."""
    return workload.suspendable and (workload.owner is None or workload.owner.kind == "CronJob")
