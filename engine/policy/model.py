"""The policy model: the admin's settings for topologies, namespaces, limits and timeouts.

The models are the source of `schemas/policy.schema.json` and `docs/reference/policy.md`. `parse_policy` parses text:
it adds the rules across fields (`engine.policy.rules`) and reports every error at once. Durations are seconds in the
model and Go-style text in the document. In the document a field that is null counts as left out, as in Kubernetes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from engine.api import strict_yaml
from engine.api.field import FieldError
from engine.api.schema import (
    DOCUMENT,
    MAX_LIST,
    Duration,
    LabelKey,
    LabelMap,
    Section,
    distinct,
    in_order,
    structural_errors,
    without_known,
    without_nulls,
    wrong,
)
from engine.kinds.registry import Registry, registry_of
from engine.kinds.rules import label_keys
from engine.planner.plan import Profile
from engine.policy.autoscaling import Autoscaling
from engine.policy.fields import (
    GANG_PODS,
    NAMESPACE_GANGS,
    Annotations,
    ExemptNamespaces,
    Identities,
    KindName,
    LevelWords,
    NamespacePattern,
    NamespacePatterns,
    ResourceNames,
    Schedulers,
)
from engine.policy.making_room import DefragmentRules, PreemptionRules
from engine.policy.rules import rule_errors
from engine.resources.kinds import NO_KINDS, DeviceKind, DeviceKinds, kinds_of
from engine.resources.names import WHOLE, whole_names
from engine.resources.overcommit import Overcommit
from engine.topology.spec import TopologySpec


class PolicyError(ValueError):
    """The policy is invalid; `errors` holds every error, ordered by path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


def text_errors(problems: Iterable[str]) -> tuple[FieldError, ...]:
    """Return errors about the document as a whole."""
    return tuple(wrong(DOCUMENT, problem) for problem in problems)


Dialect = Literal["topogate", "kueue", "kai", "pod-group"]
Mode = Literal["enforce", "hold", "observe", "off"]
# Nested conditions of webhook entries grow with it.
_MAX_MODES: Final = 32


class Nodes(Section):
    """How nodes are counted."""

    settle: Annotated[float, Duration("0s", "1h")] = Field(
        default=15.0,
        description="How long a new node must be Ready before it is used, so that its DaemonSet pods and devices "
        "are there first.",
    )
    extended_resource_toleration: bool = Field(
        default=False,
        description="Whether the API server has the admission plugin ExtendedResourceToleration, which lets pods "
        "tolerate taints with the names of the extended resources that they request. EKS, GKE and AKS have it.",
    )


class NamespaceDefault(Section):
    """Default request annotations for the workloads of some namespaces."""

    namespaces: tuple[NamespacePattern, ...] = Field(
        min_length=1, max_length=MAX_LIST, description="Namespace names; `*` matches any part of a name."
    )
    annotations: Annotations = Field(min_length=1, description="The default request annotations.")


class NamespaceRule(Section):
    """What the gangs of some namespaces may request, and how much each of these namespaces may use."""

    namespaces: NamespacePatterns = Field(description="Namespace names; `*` matches any part of a name.")
    allow: bool = Field(
        default=True,
        description="`false`: requests for a topology or a gang are denied. Workloads without one are not affected.",
    )
    levels: LevelWords | None = Field(
        default=None,
        description="The levels, as names or node label keys, that a request may name; null: all. `auto` is the lowest "
        "of them that fits.",
    )
    exclusive: bool = Field(
        default=True,
        description="`false`: `topogate.dev/exclusive-topology` is denied, which keeps whole domains for one gang.",
    )
    max_gang_pods: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Maximum number of pods in a gang; larger gangs are denied."
    )
    max_waiting_gangs: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None,
        description="Maximum number of gangs of one namespace that wait for capacity at a time; the others wait behind "
        "them, and no other namespace waits for them.",
    )
    max_reserved_hosts: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="Maximum number of hosts on which the gangs of one namespace have slots, or which they keep with "
        "`exclusive-topology`; a gang that needs more waits.",
    )


class NamespaceMode(Section):
    """The mode of some namespaces."""

    namespaces: NamespacePatterns = Field(description="Namespace names; `*` matches any part of a name.")
    mode: Mode = Field(description="The mode there, instead of `mode` of the policy.")


class Namespaces(Section):
    """Which namespaces are managed and in which mode, their defaults, and what they may request."""

    exempt: ExemptNamespaces = Field(
        default=("kube-system",),
        description="Namespaces that are not managed; `*` matches any part of a name. kube-system and Topogate's own "
        "namespace are always exempt.",
    )
    modes: tuple[NamespaceMode, ...] = Field(
        default=(),
        max_length=_MAX_MODES,
        description="The modes of single namespaces. The first entry that matches a namespace counts; without one "
        "`mode` does.",
    )
    defaults: tuple[NamespaceDefault, ...] = Field(
        default=(), max_length=MAX_LIST, description="Default requests for the workloads of some namespaces."
    )
    rules: tuple[NamespaceRule, ...] = Field(
        default=(),
        max_length=MAX_LIST,
        description="What namespaces may request. The first rule that matches a namespace counts; without one "
        "everything is allowed.",
    )


class AnnotationRules(Section):
    """How request annotations are read."""

    dialects: Annotated[tuple[Dialect, ...], AfterValidator(distinct)] = Field(
        default=("topogate", "kueue", "kai", "pod-group"), description="Annotation dialects that are read as requests."
    )
    unknown: Literal["deny", "warn"] = Field(
        default="deny", description="Whether an unknown `topogate.dev/*` annotation is denied or warned about."
    )


class DeviceKindResources(Section):
    """The resource names of one kind of devices; those that are left out cannot be requested."""

    whole: LabelKey | None = Field(default=None, description="The name that counts whole devices.")
    core: LabelKey | None = Field(
        default=None, description="The name for percent of one device's compute; 100 is a whole one."
    )
    memory_ratio: LabelKey | None = Field(default=None, description="The name for percent of one device's memory.")
    memory: LabelKey | None = Field(default=None, description="The name for bytes of one device's memory.")


class DeviceKindEntry(Section):
    """A kind of devices beside GPUs, RDMA and FPGA devices."""

    type: KindName = Field(
        description="The type of the devices in Device objects (`spec.devices[].type`), and their key in the device "
        "annotation."
    )
    resources: DeviceKindResources = Field(description="Its resource names; at least one.")


class Devices(Section):
    """Which devices are counted one by one."""

    kinds: tuple[DeviceKindEntry, ...] = Field(
        default=(), max_length=16, description="Kinds of devices beside GPUs, RDMA and FPGA devices."
    )


class Hami(Section):
    """What of HAMi is understood."""

    limits: bool = Field(
        default=False,
        description="Whether containers that request parts of GPUs by Koordinator's names get the variables of HAMi's "
        "library, `CUDA_DEVICE_MEMORY_LIMIT` and `CUDA_DEVICE_SM_LIMIT`. A variable of the user stays.",
    )


class GpuOvercommit(Section):
    """How much of a GPU its pods may request together, as a multiple of what it has."""

    core: Annotated[float, Field(ge=1, le=10)] = Field(
        default=1.0, description="Multiple of a GPU's compute that its pods may request together."
    )
    memory: Annotated[float, Field(ge=1, le=10)] = Field(
        default=1.0, description="Multiple of a GPU's memory that its pods may request together."
    )
    node_selector: LabelMap = Field(default={}, description="Labels of the nodes to which this applies; empty: all.")

    @property
    def ratios(self) -> Overcommit:
        """What one GPU offers, in percent."""
        selector = tuple(sorted(self.node_selector.items()))
        return Overcommit(round(self.core * WHOLE), round(self.memory * WHOLE), selector)


class Gpu(Section):
    """How GPU requests are read and written."""

    translation: Literal["auto", "rewrite", "annotate", "off"] = Field(
        default="auto", description="Whether GPU requests are rewritten to the resource names that nodes report."
    )
    scope: Literal["managed", "all"] = Field(
        default="managed",
        description="`managed`: pods of gangs, and pods that request Koordinator resources. `all`: every pod that "
        "requests GPUs.",
    )
    vendors: ResourceNames = Field(
        default=("amd.com/gpu",), description="Resource names that count whole GPUs, besides `nvidia.com/gpu`."
    )
    strategy: Literal["binpack", "spread"] = Field(
        default="binpack",
        description="Which of equally near GPUs of a host pods get, unless the workload overrides it. `binpack`: the "
        "most used ones, so that others stay empty. `spread`: the least used ones, so that pods share few GPUs.",
    )
    env: Literal["none", "uuid", "minor"] = Field(
        default="none",
        description="Whether containers that request GPUs by Koordinator's names get the variable "
        "`NVIDIA_VISIBLE_DEVICES`, with the UUIDs or the minors of the pod's GPUs. A variable of the user stays.",
    )
    overcommit: GpuOvercommit = Field(
        default=GpuOvercommit(),
        description="How much of a GPU its pods may request together, on hosts with Device objects whose nodes report "
        "as much.",
    )
    hami: Hami = Field(default=Hami(), description="What of HAMi is understood.")
    device_annotation_writers: Identities = Field(
        default=(), description="Service accounts that may write the device annotation."
    )


class PodGroup(Section):
    """Which pod-group labels pods get, so that a coscheduling plugin sees the same gang."""

    labels: Literal["coscheduling", "scheduler-plugins", "koordinator", "none"] = Field(
        default="coscheduling",
        description="`coscheduling`: the labels pod-group.scheduling.sigs.k8s.io/*. `scheduler-plugins`: the label "
        "scheduling.x-k8s.io/pod-group; you create the PodGroup objects. `koordinator`: Koordinator's gang "
        "annotations. `none`: nothing. Values that the user set are never overridden.",
    )


class ReservationRules(Section):
    """How capacity that is reserved for gangs is protected."""

    guard: bool = Field(
        default=False,
        description="Whether the binding of a pod without a gang is refused if the pod would take capacity that is "
        "reserved for a gang. The scheduler tries the pod again.",
    )


class Messages(Section):
    """What messages tell users of namespaces."""

    nodes: Literal["own", "all"] = Field(
        default="own",
        description="Which nodes warnings, Events and Placements name to the users of a waiting gang. `own`: those on "
        "which it has slots or pods, or that are kept for it; others are counted. `all`: also the one with room for "
        "most of its pods.",
    )


class Planner(Section):
    """How placements are chosen."""

    profile: Profile = Field(
        default="pack",
        description="`pack`: prefer the domain with the least free capacity that is sufficient. `spread`: prefer the "
        "one with the most. `balanced`: divide the pods evenly among the fewest domains.",
    )
    steps: Annotated[int, Field(ge=1_000, le=10_000_000)] = Field(
        default=200_000, description="Maximum number of search steps for one placement."
    )


class NamespaceWeight(Section):
    """The weight of some namespaces in the fair order of the queue."""

    namespaces: NamespacePatterns = Field(description="Namespace names; `*` matches any part of a name.")
    weight: Annotated[int, Field(ge=1, le=1_000)] = Field(
        description="A namespace of weight 4 goes first until it uses four times as much as one of weight 1."
    )


class Fairness(Section):
    """The order of gangs of the same priority from different namespaces."""

    mode: Literal["none", "namespaces"] = Field(
        default="none",
        description="`none`: by age. `namespaces`: gangs of the namespace that uses least, divided by its weight, go "
        "first: GPUs in use and reserved, then pods.",
    )
    weights: tuple[NamespaceWeight, ...] = Field(
        default=(),
        max_length=MAX_LIST,
        description="The weights of namespaces: the first matching entry applies; without one the weight is 1.",
    )


class Queue(Section):
    """The order of waiting gangs."""

    order: Literal["best-effort", "strict"] = Field(
        default="best-effort",
        description="`best-effort`: gangs may overtake one that does not fit now. `strict`: they wait behind it.",
    )
    fairness: Fairness = Field(
        default=Fairness(), description="The order of gangs of the same priority from different namespaces."
    )
    patience: Annotated[float, Duration("1s", "168h")] = Field(
        default=600.0, description="How long a gang waits before Topogate keeps hosts free for it."
    )
    on_timeout: Literal["requeue", "giveUp"] = Field(
        default="requeue",
        description="What happens to a gang that has waited for its `topogate.dev/schedule-timeout`. `requeue`: it "
        "moves to the end of its priority in the queue. `giveUp`: it stays held and is not planned again until its "
        "user changes its request or resumes it.",
    )
    max_start_attempts: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=3,
        description="Maximum number of failed starts in a row (`timeouts.start`), or of restarts because of "
        "`timeouts.recover` of a gang that was not ready for longer than that before. After it a gang stays held, with "
        "the reason `StartLimitExceeded`, until its user changes or resumes it.",
    )
    max_gang_pods: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=GANG_PODS, description="Maximum number of pods in a gang; larger gangs are denied."
    )
    max_namespace_gangs: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=NAMESPACE_GANGS,
        description="Maximum number of gangs in a namespace that have not ended; more are denied.",
    )


class Timeouts(Section):
    """How long each step may take."""

    bind: Annotated[float, Duration("1s", "1h")] = Field(
        default=30.0,
        description="How long a released pod may stay unscheduled before its host is excluded for the gang.",
    )
    hold: Annotated[float, Duration("10s", "168h")] = Field(
        default=600.0, description="How long slots stay reserved for a gang while none of its pods has started."
    )
    node: Annotated[float, Duration("1s", "24h")] = Field(
        default=60.0, description="How long a node may be NotReady before it is lost; `nodeLoss` applies then."
    )
    start: Annotated[float, Duration("1s", "168h")] | None = Field(
        default=None,
        description="How long the pods of a gang may be bound but not ready before its slots are released and it is "
        "planned again on other hosts; null: forever, because pulling a large image may take long. A gang may set its "
        "own (`topogate.dev/start-timeout`). For kinds that cannot be suspended the problem is only reported.",
    )
    recover: Annotated[float, Duration("1s", "168h")] = Field(
        default=600.0,
        description="How long a started gang may lack pods, or have pods that are not ready any more, before "
        "`incomplete` applies. A gang may set its own (`topogate.dev/recover-timeout`).",
    )
    relax_after: Annotated[float, Duration("1s", "8760h")] | None = Field(
        default=None, description="How long a gang waits before its required level becomes preferred; null: forever."
    )


class Policy(Section):
    """The policy of one installation, read from `policy.yaml` in the ConfigMap `topogate-policy`."""

    api_version: Literal["topogate.dev/v1alpha1"] = Field(
        default="topogate.dev/v1alpha1", description="The version of the policy format."
    )
    kind: Literal["Policy"] = Field(default="Policy", description="The kind of the document.")
    mode: Mode = Field(
        default="enforce",
        description="`enforce`: gangs are held and placed. `hold`: nothing new is placed, nothing is let go; running "
        "gangs go on. `observe`: nothing is patched or denied; warnings at submit time show what would happen. `off`: "
        "everything held is released. Single namespaces may have another mode (`namespaces.modes`).",
    )
    topologies: tuple[TopologySpec, ...] = Field(
        default=(),
        max_length=32,
        description="The named topologies. If empty, the first preset with labels on the nodes for all its levels, "
        "otherwise the host level alone.",
    )
    nodes: Nodes = Field(default=Nodes(), description="How nodes are counted.")
    namespaces: Namespaces = Field(
        default=Namespaces(),
        description="Which namespaces are managed and in which mode, their defaults, and what they may request.",
    )
    annotations: AnnotationRules = Field(default=AnnotationRules(), description="How request annotations are read.")
    gpu: Gpu = Field(default=Gpu(), description="How GPU requests are read and written.")
    devices: Devices = Field(default=Devices(), description="Which devices are counted one by one.")
    pod_group: PodGroup = Field(default=PodGroup(), description="Which pod-group labels pods get.")
    reservations: ReservationRules = Field(
        default=ReservationRules(), description="How capacity that is reserved for gangs is protected."
    )
    messages: Messages = Field(default=Messages(), description="What messages tell users of namespaces.")
    planner: Planner = Field(default=Planner(), description="How placements are chosen.")
    queue: Queue = Field(default=Queue(), description="The order of waiting gangs.")
    preemption: PreemptionRules = Field(
        default=PreemptionRules(),
        description="Whether running gangs end so that a waiting one of higher priority starts.",
    )
    never_fits: Literal["warn", "deny"] = Field(
        default="warn", description="Whether a gang that is too large for its topology is warned about or denied."
    )
    incomplete: Literal["keep", "restart"] = Field(
        default="keep",
        description="What happens to a started gang that still lacks pods after `timeouts.recover`. `keep`: it runs "
        "on, and lost pods are still replaced. `restart`: it is suspended and resumed if its kind can be.",
    )
    node_loss: Literal["wait", "evict", "restart"] = Field(
        default="wait",
        description="What happens when a node is NotReady for `timeouts.node`. `wait`: Kubernetes evicts its pods "
        "itself. `evict`: Topogate evicts them. `restart`: the gang is restarted.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long each step may take.")
    defragment: DefragmentRules = Field(
        default=DefragmentRules(),
        description="Whether running gangs restart elsewhere so that a waiting one fits.",
    )
    autoscaling: Autoscaling = Field(
        default=Autoscaling(), description="Whether new nodes are requested for gangs that wait for room."
    )
    schedulers: Schedulers = Field(
        default=("default-scheduler",), description="Schedulers of managed pods; pods of others are left alone."
    )
    kinds: tuple[dict[str, JsonValue], ...] = Field(
        default=(), max_length=64, description="Additional workload kinds (docs/reference/kind-entries.md)."
    )
    admins: Identities = Field(
        default=("system:masters",), description="Users and groups that may write Placements in an emergency."
    )

    @property
    def registry(self) -> Registry:
        """The workload kinds: the built-in ones and those of the policy. Raises RegistryError."""
        # Not kept in the model: a copy with other kinds would take it along.
        return _registry(_Identity(self.kinds)) if self.kinds else registry_of()

    @property
    def pod_labels(self) -> frozenset[str]:
        """The pod labels that the policy's own kinds read; stores keep them in addition to the usual ones."""
        return _pod_labels(_Identity(self.kinds)) if self.kinds else frozenset()

    @property
    def heeds_budgets(self) -> bool:
        """Whether disruption budgets are read: only while running gangs end or restart for others."""
        return self.preemption.mode != "never" or self.defragment.mode == "act"

    @property
    def device_kinds(self) -> DeviceKinds:
        """The kinds of devices that the policy declares, and its names of whole GPUs that are not built in."""
        vendors = whole_names(self.gpu.vendors) - whole_names()
        if not self.devices.kinds and not vendors:
            return NO_KINDS
        kinds = (
            DeviceKind(
                one.type,
                whole=one.resources.whole or "",
                core=one.resources.core or "",
                ratio=one.resources.memory_ratio or "",
                memory=one.resources.memory or "",
            )
            for one in self.devices.kinds
        )
        return kinds_of(kinds, vendors)

    def profile_of(self, topology: str | None) -> Profile:
        """Return the profile of the gangs of a topology that name none themselves."""
        named = (spec.profile for spec in self.topologies if spec.name == topology)
        return next(named, None) or self.planner.profile

    @property
    def hash(self) -> str:
        """The first twelve hex digits of the SHA-256 of the policy's canonical JSON."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def parse_policy(text: str) -> Policy:
    """Return the policy of a `policy.yaml` text.

    Raises PolicyError with every error, in path order: unreadable text, unknown fields, values out of bounds, and
    contradictions.
    """
    try:
        raw = strict_yaml.load(text)
    except strict_yaml.YAMLTextError as error:
        raise PolicyError(text_errors(error.problems)) from None
    if raw is None:
        raise PolicyError(text_errors(("is empty; write {} for the defaults",)))
    if not isinstance(raw, dict):
        raise PolicyError(text_errors(("must be a mapping of fields to values, such as mode: enforce",)))
    raw = without_nulls(raw, Policy)
    errors: list[FieldError] = []
    policy = None
    try:
        # As JSON: strict there still reads a list as a tuple, and 1.0 is no whole number.
        policy = Policy.model_validate_json(json.dumps(raw), by_alias=True, by_name=False)
    except ValidationError as error:
        errors += structural_errors(error, Policy)
    errors += without_known(errors, rule_errors(raw))
    if policy is None or errors:
        raise PolicyError(in_order(errors))
    return policy


@cache
def default_policy() -> Policy:
    """Return the policy of a cluster without a policy ConfigMap."""
    return Policy()


class _Identity:
    """A key for the kinds of one policy: every event of a pod asks for them, so it must cost nothing to make."""

    __slots__ = ("kinds",)

    def __init__(self, kinds: tuple[dict[str, JsonValue], ...]) -> None:
        self.kinds = kinds

    def __hash__(self) -> int:
        return id(self.kinds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.kinds is other.kinds


@lru_cache(maxsize=8)
def _registry(of: _Identity) -> Registry:
    return registry_of(of.kinds)


@lru_cache(maxsize=8)
def _pod_labels(of: _Identity) -> frozenset[str]:
    return label_keys(_registry(of))
