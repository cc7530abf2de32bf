"""What we keep of the cluster: frozen, slotted records with only the fields that a decision needs.

`engine.cluster.projections` makes them from the API server's bytes (watch, review or file: one code path), everything
else only reads them. Resource amounts are in planner units: milli-CPU for `cpu`, MiB for `memory`, `ephemeral-storage`
and `hugepages-*`, whole counts for everything else; requests rounded up, capacity rounded down, so that the arithmetic
never admits more than the bytes would. Times are seconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.kinds.expressions import Term

Resources = Mapping[str, int]
Requests = tuple[tuple[str, int], ...]  # (resource, planner units), sorted by name


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """An owner reference of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; empty `key` with operator Exists tolerates everything; empty `effect` matches every effect."""

    key: str
    operator: str  # Exists | Equal | Lt | Gt
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a node selector term."""

    key: str
    operator: str  # In | NotIn | Exists | DoesNotExist | Gt | Lt
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One node selector term: all of its expressions (labels) and fields (metadata.name) must hold."""

    expressions: tuple[Expression, ...]
    fields: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one pod needs of a host's devices.

    `gpus` GPUs, each with `core` percent of its compute and `ratio` percent, or else `memory` bytes, of its memory (the
    other one is 0). `whole`: no other pod may be on them. `rdma`, `fpga`: percent of such devices, 100 is one; more is
    a number of whole ones.
    """

    gpus: int = 0
    core: int = 0
    ratio: int = 0
    memory: int = 0
    whole: bool = False
    rdma: int = 0
    fpga: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """One healthy or unhealthy device of a host.

    `kind` is gpu, rdma or fpga. `core` and `ratio` are percent (0 for what is no GPU), `memory` bytes (0: not known),
    `share` percent of an RDMA or FPGA device. `numa` is None and `pcie` "" where the topology is not known.
    """

    kind: str
    minor: int
    id: str
    healthy: bool
    core: int = 0
    ratio: int = 0
    memory: int = 0
    share: int = 0
    numa: int | None = None
    pcie: str = ""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A Device object (scheduling.koordinator.sh): the devices of the node of that name, by kind and minor.

    `partitions`: sets of GPU minors that are linked as one, by their number (empty where the table is not known).
    `given`: the devices that the kubelet gave to pods by itself, as (kind, minor) by the pod's uid. `faults` says what
    in the object was not understood and therefore left out.
    """

    name: str
    uid: str
    resource_version: str
    devices: tuple[Device, ...]
    partitions: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    given: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A pod's part of one device: percent of core and memory and bytes of a GPU, or percent (`share`) of another."""

    kind: str
    minor: int
    id: str = ""
    core: int = 0
    ratio: int = 0
    memory: int = 0
    share: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What one pod needs: requests, devices and eligibility.

    `requests` are effective (Kubernetes formula: max of init, sum of containers and sidecars, plus overhead), sorted by
    name, in planner units, always `pods: 1` among them; claims (`engine.claims`: host ports and the like) are
    requests of 1. `affinity` is None when no required node affinity is given;
    its terms are ORed. `devices` is what the requests mean in devices (`engine.gpu`), None when they name none.
    Hashable: slots are cached per shape.
    """

    requests: Requests
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    devices: DeviceRequest | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    settled_at: float  # the later of creation and the last change to Ready; 0.0 when unknown


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What a pod template or a pod says that concerns us.

    `unmodelled` names what the kube-scheduler would look at and we do not (volumes, pod affinity, spread constraints,
    resource claims), `preferences` what it would prefer and a pin leaves no choice of: for warnings.
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
    has_scheduling_group: bool  # spec.schedulingGroup: core gang scheduling
    deadline: bool  # spec.activeDeadlineSeconds is set (quota scope Terminating)
    unmodelled: tuple[str, ...]
    preferences: tuple[str, ...] = ()
    containers: int = 0  # init containers among them


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
    unschedulable: str  # why the scheduler did not bind it, in its own words; "" while it has said nothing
    mirror: bool

    @property
    def finished(self) -> bool:
        """True when the pod uses no capacity any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)


TO_ANNOTATIONS: Final = ("metadata", "annotations")  # the steps to a template's annotations


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one template of a workload, or of one of its replica groups.

    `slots` is how many run at a time at most, `total` how many completions are wanted in all (equal to `slots` where
    the kind knows no such thing), `remaining` how many completions are still missing. `finished_ranks` are completed
    ranks as inclusive ranges. `path`: the steps to the template in the object. `rank`: over a pod's labels, None for
    the completion index of a Job. `selector`: labels of its pods (None: any value), as the kind's controller sets them;
    empty: every pod of the workload. `ordered`: its pods come one after the other. `replace`: what deleting one that is
    not bound costs (`engine.kinds`). `minimum`: how many make a gang, as the object itself says; None: all.
    `replica`: pods of one of its replicas, where it has such (a JobSet's Jobs): a slice without a size is one of them.
    `counted`: the steps to the field that makes the count, None where none does.
    `templated`: the object has the template (else its shape is known only by its pods); `missing`: what it lacks of
    `TO_ANNOTATIONS`.
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
    minimum: int | None = None
    replica: int | None = None
    counted: tuple[str | int, ...] | None = None
    templated: bool = True
    missing: tuple[str, ...] = TO_ANNOTATIONS[1:]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of a registered kind as the engine sees it; only one that is placed `through` another has no pod set.

    `suspended` is the field at `suspend_path` (None: the kind has none), `suspendable` whether it may be set; `started`
    means that the object tells of a start (older servers keep a Job's template immutable then). `templates_fixed`: the
    kind's own webhook never lets the templates be changed. `resource` is the plural that URLs name. A kind with a gang
    per replica (`unit` replica; else workload, pod: each alone, or child: none, as what is made of it are gangs) has
    `groups` of them, and the index of a pod's in the label `group_label`; its pod sets are those of one. `minimum`: how
    many pods make a gang, as the object itself says. `aside`: the reason code when the object says that somebody else
    places it. `handling` as in `engine.kinds`.
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
    aside: str | None
    resource: str = "jobs"
    suspend_path: tuple[str | int, ...] | None = ("spec", "suspend")
    templates_fixed: bool = False
    groups: int = 1
    group_label: str | None = None
    minimum: int | None = None
    unit: str = "workload"
    handling: str = "placed"
    failed: bool = False  # finished, and not well

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
        """How many pods of one gang run at a time at most."""
        return sum(pod_set.slots for pod_set in self.pod_sets)


@dataclass(frozen=True, slots=True)
class Owned:
    """An object between a pod and its workload, of a kind that is none of the registered ones: its name and its owner.

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


@dataclass(frozen=True, slots=True)
class Slot:
    """The slots of a pod set on one host: `count` pods; `ranks` are inclusive ranges, None when unranked.

    `devices`: of each of its pods, in the order of the ranks; None when the host does not tell its devices.
    """

    domain: tuple[str, ...]  # label values, host last
    count: int
    ranks: tuple[tuple[int, int], ...] | None
    devices: tuple[tuple[DeviceUse, ...], ...] | None = None

    @property
    def host(self) -> str:
        """The node's name."""
        return self.domain[-1]


@dataclass(frozen=True, slots=True)
class PodSetPlan:
    """The slots of one pod set, ordered by lowest rank."""

    name: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a gang goes; `revision` goes up with every re-plan."""

    revision: int
    pod_sets: tuple[PodSetPlan, ...]

    def plan_of(self, name: str) -> PodSetPlan:
        """The slots of the pod set of that name; none when it has none."""
        return next((plan for plan in self.pod_sets if plan.name == name), PodSetPlan(name, ()))


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """A pod set as understood: counts and levels (aliases, resolved; `auto` is kept as "auto" in require).

    `slices` are (level, size): each group of `size` consecutive ranks in one domain of the level. Pod sets of one gang
    with the same `colocate` share one domain of the required level. `relaxed`: the level that was required until the
    gang had waited too long for it.
    """

    name: str
    count: int
    min_available: int
    require: str | None
    prefer: str | None
    ranked: bool
    shape_hash: str
    unconstrained: bool = False
    slices: tuple[tuple[str, int], ...] = ()
    colocate: str | None = None
    relaxed: str | None = None


@dataclass(frozen=True, slots=True)
class GangRequest:
    """What holds for all pod sets of a gang together; `min_available` None: all of them, or as each says."""

    require: str | None
    prefer: str | None
    min_available: int | None
    relaxed: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """The workload that a Placement belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A Placement object. `assignment` is None while the gang waits; `status` is the raw status mapping.

    `gang` is None with one pod set. `group`: the index of the replica, for kinds with a gang per replica.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    workload: WorkloadRef
    topology: str
    priority: int
    pod_sets: tuple[PodSetRequest, ...]
    assignment: Assignment | None
    deleting: bool
    created: float
    gang: GangRequest | None = None
    group: str | None = None
    generation: int = 0  # metadata.generation: goes up with every change of spec, also when the assignment is dropped
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: `hard` and `used` by quota resource name (`requests.cpu`, `pods`, ...), planner units.

    `scopes` are (scopeName, operator, values).
    """

    namespace: str
    name: str
    hard: Resources
    used: Resources
    scopes: tuple[tuple[str, str, tuple[str, ...]], ...]
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass."""

    name: str
    value: int
    default: bool
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A RuntimeClass: pod overhead and scheduling constraints that admission merges into pods."""

    name: str
    overhead: Resources
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap (the policy)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    data: Mapping[str, str]
