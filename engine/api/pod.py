"""Records of pods: their spec, and the shape that the planner sees.

`engine.decoding.objects` decodes them from the API server's bytes (watch, review or file: one code path); all other
code only reads them. Resource amounts are in planner units: milli-CPU for `cpu`, MiB for `memory`,
`ephemeral-storage` and `hugepages-*`, whole counts for everything else; requests rounded up, capacity rounded down, so
that the arithmetic never admits more than the bytes would. Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.api.device import DeviceRequest
from engine.api.names import GATE
from engine.api.resources import Requests

# Of `PodSpec.unmodelled`: the pod has resource claims.
RESOURCE_CLAIMS: Final = "resource claims"


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """An owner reference of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; empty `key` with operator Exists tolerates everything; empty `effect` matches every effect."""

    key: str
    operator: str  # Exists | Equal | Lt | Gt
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class SelectorRequirement:
    """One requirement of a node selector term."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One node selector term: all of its expressions (labels) and fields (metadata.name) must hold."""

    expressions: tuple[SelectorRequirement, ...]
    fields: tuple[SelectorRequirement, ...]


# A label that every namespace has, with its name: the only one that namespace selectors are matched with.
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
# The requirements of a label selector, all of which must hold; None selects nothing, an empty one everything.
LabelSelector = tuple[SelectorRequirement, ...] | None


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A term of podAffinity or podAntiAffinity: the pods that a selector matches in some namespaces.

    `namespace_selector` adds namespaces to the named ones, by their labels; None: none. `claimed`: the term keeps equal
    pods off each other's host, and is counted as a claim of the shape as well.
    """

    topology_key: str
    selector: LabelSelector
    namespaces: tuple[str, ...]
    namespace_selector: LabelSelector = None
    claimed: bool = False


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint; `honor_*`: which nodes have domains that count."""

    topology_key: str
    max_skew: int
    selector: LabelSelector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """What a pod requires of the pods near its host: required terms, and spread with DoNotSchedule."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedPodTerm:
    """A preferred term of podAffinity (weight 1 to 100), or of podAntiAffinity (-100 to -1)."""

    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class PodPreferences:
    """What a pod prefers of the pods near its host: preferred terms, and spread with ScheduleAnyway."""

    terms: tuple[WeightedPodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A preferred node affinity term: nodes that match it are worth `weight` (1 to 100) more."""

    weight: int
    term: SelectorTerm


@dataclass(frozen=True, slots=True)
class Shape:
    """The scheduling requirements of one pod: requests, devices and eligibility.

    `requests` are effective (Kubernetes formula: max of init, sum of containers and sidecars, plus overhead), sorted by
    name, in planner units, always with `pods: 1`; claims (`engine.api.resources`: host ports and the like) are requests
    of 1. `affinity` is None without required node affinity; its terms are ORed. `devices` is the device request of the
    requests (`engine.resources`), None when they name no device. `volumes`: of each volume that is tied to nodes the
    ORed terms that a node must match. `preferred` decides between hosts that are equally good otherwise. Hashable:
    slots are cached per shape.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    devices: DeviceRequest | None = None
    volumes: tuple[tuple[SelectorTerm, ...], ...] = ()
    preferred: tuple[PreferredTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The part of a pod or pod template that Topogate reads.

    `constraints`: what it requires of the pods near it, None: nothing; `preferred_pods`: what it prefers of them;
    `own_labels`: all of its labels, key and value in turn, for the selectors of others. For warnings: `unmodelled`
    names constraints that the kube-scheduler checks and we do not (resource claims, too many terms), `preferences`
    those that are not counted.
    """

    shape: Shape
    limits: Requests  # effective limits, for quota
    gates: tuple[str, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_name: str
    scheduler_name: str
    priority_class: str
    priority: int | None
    runtime_class: str
    has_scheduling_group: bool  # spec.schedulingGroup (in 1.35: workloadRef): core gang scheduling
    deadline: bool  # spec.activeDeadlineSeconds is set (quota scope Terminating)
    unmodelled: tuple[str, ...]
    preferences: tuple[str, ...] = ()
    containers: int = 0  # init containers included
    volume_claims: tuple[str, ...] = ()  # the PersistentVolumeClaims that it mounts
    volume_classes: tuple[str | None, ...] = ()  # StorageClasses of its ephemeral volumes and own claims; None: default
    constraints: PodConstraints | None = None
    preferred_pods: PodPreferences | None = None
    own_labels: tuple[str, ...] = ()
    has_overhead: bool = False  # spec.overhead is set; the requests contain it
    cross_namespace: bool = False  # a term of its pod affinity names namespaces (quota scope CrossNamespacePodAffinity)


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a bound pod that is not ready, or whose containers were restarted.

    `since`: when its Ready condition changed last (0.0: not known). `container` is the first one that is not ready,
    `waiting` and `message` say why it waits, in the kubelet's words, `ended` how it ended last.
    """

    ready: bool
    since: float
    restarts: int  # of the container that was restarted most often
    container: str = ""
    waiting: str = ""
    message: str = ""
    ended: str = ""


@dataclass(frozen=True, slots=True)
class FailedPod:
    """A pod that has failed: when (seconds since the epoch), and how; `how` is "" if nothing says it."""

    at: float
    rank: int | None
    name: str
    host: str
    how: str


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `spec.labels`/`spec.annotations` are its own metadata."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    spec: PodSpec
    owner: OwnerRef | None  # the controller reference
    phase: str  # Pending | Running | Succeeded | Failed | Unknown
    nominated_node: str
    created: float
    deleting: bool
    unschedulable: str  # why the scheduler did not bind it, in its own words; "" while it has reported nothing
    mirror: bool
    # Of managed pods alone: nobody asks for those of the others, and they are most.
    bound: float = 0.0  # when it got its node; 0.0: it has none, or that is not known
    readiness: Readiness | None = None  # None: it is ready, or has no node, or has ended

    @property
    def finished(self) -> bool:
        """True when the pod uses no capacity any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def live(self) -> bool:
        """True until it ends or is being deleted."""
        return not (self.finished or self.deleting)

    @property
    def held(self) -> bool:
        """True for a live pod that carries our gate."""
        return GATE in self.spec.gates and self.live

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)
