"""The parsed form of an object of a registered kind: pod sets, gang, suspension and state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.api.field import path_of
from engine.api.rank import Term
from engine.kinds.paths import Steps
from engine.kinds.schema import AsideReason, Cost, Creation, Unit


@dataclass(frozen=True, slots=True)
class ParsedClaims:
    """The claims that each pod of a pod set gets of its own.

    `templates`: name and StorageClass (None: the default one) of each template; `more`: how many others are not read.
    The claims of a pod are named `<template>-<owner>-<ordinal>`; `first` is the ordinal of the first pod, None where
    the names are not known.
    """

    templates: tuple[tuple[str, str | None], ...] = ()
    more: int = 0
    owner: str = ""
    first: int | None = None

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the claims without their ordinals; empty where they are not known."""
        return () if self.first is None else tuple(f"{name}-{self.owner}" for name, _ in self.templates)


NO_CLAIMS: Final = ParsedClaims()


@dataclass(frozen=True, slots=True)
class ParsedPodSet:
    """The pods of one template of a workload, or of one of its replica groups (`Gang.unit` replica).

    `steps` lead to the template; `template` is None where the object has none and the pods' shape is known only once
    they exist. `count` pods run at a time, `total` are wanted in all, `minimum` of them make a gang. `rank` is over pod
    labels and bound to this object, None when the pods have no ranks. `selector`: pod labels, None for any value.
    `beside`: its pods are in no gang. `replica`: number of pods of one replica, None without replicas.
    `counted`: the steps to the field that determines the count, None where no field does. `claims`: of claim templates.
    `succeeded`: pods that have succeeded, by the status.
    """

    name: str
    steps: Steps
    template: Mapping[str, Any] | None
    count: int
    minimum: int
    total: int
    rank: Term | None
    selector: tuple[tuple[str, str | None], ...]
    creation: Creation
    replace: Cost
    beside: bool
    replica: int | None = None
    counted: Steps | None = None
    claims: ParsedClaims = NO_CLAIMS
    succeeded: int = 0

    @property
    def field(self) -> str:
        """The JSON path of the template."""
        return path_of(self.steps)

    @property
    def ranked(self) -> bool:
        """True when a pod's labels give its rank."""
        return self.rank is not None

    @property
    def ordered(self) -> bool:
        """True when its controller creates some pods only after others of the gang run."""
        return self.creation != "all-at-once"


@dataclass(frozen=True, slots=True)
class ParsedGang:
    """Which pods start all or nothing.

    unit workload: one gang of all pod sets; replica: `replicas` gangs, a pod's index among them is in the label
    `replica_label`; pod: none, each pod alone near the others. `minimum`: the size of a gang when it is less than all.
    """

    unit: Unit
    creation: Creation
    replicas: int
    replica_label: str | None
    minimum: int | None


@dataclass(frozen=True, slots=True)
class ParsedSuspension:
    """The field that suspends: `steps` lead to it, `allowed`: the kind's controller permits setting it.

    `fixed`: the pod templates cannot be changed together with it.
    """

    steps: Steps
    suspended: bool
    allowed: bool
    fixed: bool = False

    @property
    def field(self) -> str:
        """The JSON path of the field."""
        return path_of(self.steps)


@dataclass(frozen=True, slots=True)
class ParsedWorkload:
    """An object, parsed by its entry.

    `suspension` is None where the kind cannot be suspended; `stand_aside` is the reason code when another system
    places the object; `scheduler` is the one that the object names for all pods.
    """

    version: str
    name: str
    pod_sets: tuple[ParsedPodSet, ...]
    gang: ParsedGang | None
    suspension: ParsedSuspension | None
    started: bool
    finished: bool
    failed: bool  # finished without success
    stand_aside: AsideReason | None
    scheduler: str | None
