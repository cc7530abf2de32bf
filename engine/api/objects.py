"""Records of cluster objects that are neither pods nor workloads: nodes, quotas, volumes, classes, ConfigMaps, and
requests for nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.api.pod import LabelSelector, PodSpec, SelectorTerm, Toleration
from engine.api.resources import Resources


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


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
    created: float = 0.0


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
class PersistentVolume:
    """A PersistentVolume: a node must match one of the `terms`; None: any node can use it."""

    name: str
    terms: tuple[SelectorTerm, ...] | None
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """A PersistentVolumeClaim: its volume ("" while it has none) and its class (None: the default one)."""

    namespace: str
    name: str
    volume: str
    storage_class: str | None
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass: it makes volumes for nodes that match one of the `terms`; None: for any node."""

    name: str
    terms: tuple[SelectorTerm, ...] | None
    default: bool
    uid: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: what its pods need and where they may run."""

    namespace: str
    name: str
    template: PodSpec
    deleting: bool
    uid: str = ""
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass; `preempts`: its pods may preempt those of a lower priority."""

    name: str
    value: int
    default: bool
    preempts: bool = True
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


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many of the pods that it selects may be disrupted now; `selector` None: of none."""

    namespace: str
    name: str
    selector: LabelSelector
    allowed: int
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PodGroupObject:
    """A PodGroup of scheduler-plugins: how many of its pods start together, and for how long they wait at most.

    `timeout` in seconds; None: for ever. `problem`: why it cannot be read; it has no minimum then.
    """

    namespace: str
    name: str
    minimum: int
    timeout: float | None
    problem: str = ""
    resource_version: str = field(default="", compare=False)


# The API of node autoscalers by which nodes are requested, and its versions that are understood, newest first: they
# differ in nothing that is read or written here.
PROVISIONING_GROUP: Final = "autoscaling.x-k8s.io"
PROVISIONING_KIND: Final = "ProvisioningRequest"
PROVISIONING_PLURAL: Final = "provisioningrequests"
PROVISIONING_VERSIONS: Final = ("v1", "v1beta1")
MAX_REQUEST_POD_SETS: Final = 32  # of one request


@dataclass(frozen=True, slots=True)
class RequestCondition:
    """A condition of a ProvisioningRequest; `at`: when its status has changed (seconds since the epoch)."""

    status: bool
    at: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """A ProvisioningRequest that Topogate has made; `gang`: the name of the Placement that it is for.

    `pod_sets`: the name of the PodTemplate and the number of pods of each.
    """

    namespace: str
    name: str
    uid: str
    gang: str
    class_name: str
    parameters: Mapping[str, str]
    pod_sets: tuple[tuple[str, int], ...]
    created: float
    conditions: Mapping[str, RequestCondition] = field(default_factory=dict)
    deleting: bool = False
    api_version: str = ""
    resource_version: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)

    @property
    def pods(self) -> int:
        """The number of pods that it is for."""
        return sum(count for _, count in self.pod_sets)

    def since(self, kind: str) -> float | None:
        """Return since when a condition is true; None if it is not."""
        found = self.conditions.get(kind)
        return found.at if found is not None and found.status else None
