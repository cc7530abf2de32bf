"""Records of workloads: their pod sets, and the objects between a workload and its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NewType

from engine.api.pod import OwnerRef, PodSpec
from engine.api.reasons import Code

if TYPE_CHECKING:
    from engine.api.rank import Term


TO_ANNOTATIONS: Final = ("metadata", "annotations")  # the steps to a template's annotations


# The key of what slots are reserved for: a gang, a pod without a gang, or pods that may still appear after their gang.
ReservationKey = NewType("ReservationKey", str)
# The key of a gang, unique in the cluster and the same in every replica; made in `engine.gang.key` and `plain_pods`.
GangKey = NewType("GangKey", ReservationKey)
# How the keys start that have no uid: of a gang of plain pods, of a pod without a gang, and of a grace period.
PLAIN_PREFIX: Final = "pods/"
ORPHAN_PREFIX: Final = "pod/"
GRACE_PREFIX: Final = "grace/"


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one template of a workload, or of one of its replica groups.

    `slots`: maximum number of pods that run at a time. `total`: completions wanted in all (equal to `slots` for kinds
    without completions); `remaining`: completions still missing, as far as the status tells. `finished_ranks`:
    completed ranks as inclusive ranges. `path`: the steps to the template in the object. `rank`: over a pod's labels,
    None for the completion index of a Job. `selector`: labels of its pods (None: any value), as the kind's controller
    sets them; empty: every pod of the workload. `ordered`: its pods are created one after the other. `replace`: the
    cost of deleting an unbound pod (`engine.kinds`); `evictable`: evicting one is free all the same, because its Job
    ignores that. `minimum`: the size of a gang if the object itself sets one; None: all. `replica`: number of pods of
    one replica, for kinds with replicas (a JobSet's Jobs): a slice without a size is one replica. `counted`: the steps
    to the field that determines the count, None without one. `templated`: the object has the template (else its shape
    is known only from its pods); `missing`: the steps of `TO_ANNOTATIONS` that it lacks. Each pod has a claim
    `<series>-<ordinal>` of every `claim_series`, the first pod with `first_ordinal`.
    """

    name: str
    template: PodSpec
    slots: int
    total: int
    remaining: int
    ranked: bool
    finished_ranks: tuple[tuple[int, int], ...] = ()
    path: tuple[str | int, ...] = ("spec", "template")
    rank: Term | None = None
    selector: tuple[tuple[str, str | None], ...] = ()
    ordered: bool = False
    replace: str = "retry"
    evictable: bool = False
    minimum: int | None = None
    replica: int | None = None
    counted: tuple[str | int, ...] | None = None
    templated: bool = True
    missing: tuple[str, ...] = TO_ANNOTATIONS[1:]
    claim_series: tuple[str, ...] = ()
    first_ordinal: int = 0

    @property
    def needed(self) -> int:
        """The number of pods that still have to run at a time."""
        return min(self.slots, self.remaining)

    @property
    def completed(self) -> int:
        """The number of slots whose pods have completed: none takes their place."""
        return self.slots - self.needed

    @property
    def evicted_freely(self) -> bool:
        """True when an eviction costs no more than the work of its pod: no retry, and no restart of others."""
        return self.replace == "free" or self.evictable


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of a registered kind; it has pod sets unless it is placed `through` another object.

    `suspended` is the field at `suspend_path` (None: the kind has none), `suspendable` whether it may be set.
    `started`: the object records a start (older servers keep a Job's template immutable then). `templates_fixed`: the
    kind's own webhook never allows changes of the templates. `resource`: the plural in URLs. `unit`: workload, replica,
    pod (each alone) or child (no gang: the objects created from it are gangs). With `unit` replica there are `groups`
    gangs, the label `group_label` has the index of a pod's gang, and the pod sets are those of one. `minimum`: the size
    of a gang if the object itself sets one. `managed_elsewhere`: the reason code when the object names another
    system that places it. `handling` as in `engine.kinds`. `beside`: selectors of pods in no gang, as in pod sets.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_sets: tuple[PodSet, ...]
    suspended: bool
    suspendable: bool
    started: bool
    finished: bool  # Complete or Failed (or their *Target conditions)
    deleting: bool
    created: float
    owner: OwnerRef | None
    managed_elsewhere: Code | None
    resource: str = "jobs"
    suspend_path: tuple[str | int, ...] | None = ("spec", "suspend")
    templates_fixed: bool = False
    groups: int = 1
    group_label: str | None = None
    minimum: int | None = None
    unit: str = "workload"
    handling: str = "placed"
    failed: bool = False  # finished without success
    ends_suspended: bool = False  # a suspension would end it for good, as complete
    beside: tuple[tuple[tuple[str, str | None], ...], ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name: the same in every version of the kind."""
        return (self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name)

    @property
    def template(self) -> PodSpec:
        """The template of the first pod set."""
        return self.pod_sets[0].template

    @property
    def slots(self) -> int:
        """The maximum number of pods of one gang that run at a time."""
        return sum(pod_set.slots for pod_set in self.pod_sets)


@dataclass(frozen=True, slots=True)
class Owned:
    """An object of an unregistered kind between a pod and its workload: its name and its owner.

    `owner` is the controller reference.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: OwnerRef | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name, as a workload's."""
        return (self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name)
