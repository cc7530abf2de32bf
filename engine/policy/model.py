"""The policy model: what an admin decides about topologies, namespaces, limits and times.

The models are the source of `schemas/policy.schema.json` and `docs/reference/policy.md`. `parse_policy` is the way in
for text: it adds the rules across fields (`engine.policy.rules`) and reports every error at once. Durations are
seconds in here and Go-style text outside. In text, a field that is null counts as left out, as in Kubernetes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError

from engine.api import strict_yaml
from engine.api.field import FieldError
from engine.api.schema import (
    DOCUMENT,
    MAX_LIST,
    Duration,
    Section,
    apart_from,
    distinct,
    in_order,
    structural_errors,
    without_nulls,
    wrong,
)
from engine.kinds.registry import Registry, registry_of
from engine.kinds.rules import label_keys
from engine.policy.fields import Annotations, ExemptNamespaces, Identities, NamespacePattern, ResourceNames, Schedulers
from engine.policy.rules import rule_errors
from engine.topology.spec import TopologySpec


class PolicyError(ValueError):
    """The policy is refused; `errors` holds everything that is wrong, ordered by path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


def text_errors(problems: Iterable[str]) -> tuple[FieldError, ...]:
    """Return the errors of a text that is no policy at all."""
    return tuple(wrong(DOCUMENT, problem) for problem in problems)


Dialect = Literal["topogate", "kueue", "kai", "pod-group"]


class Nodes(Section):
    """How nodes are counted."""

    settle: Annotated[float, Duration("0s", "1h")] = Field(
        default=15.0,
        description="A new node counts this long after it became Ready: its DaemonSet pods and devices arrive first.",
    )


class NamespaceDefault(Section):
    """Request annotations that workloads of some namespaces get."""

    namespaces: tuple[NamespacePattern, ...] = Field(
        min_length=1, max_length=MAX_LIST, description="Names or patterns."
    )
    annotations: Annotations = Field(min_length=1, description="The request annotations.")


class Namespaces(Section):
    """Which namespaces we serve, and how."""

    exempt: ExemptNamespaces = Field(
        default=("kube-system",),
        description="Left alone; `*` stands for any part of a name. kube-system and our own namespace always are.",
    )
    defaults: tuple[NamespaceDefault, ...] = Field(
        default=(), max_length=MAX_LIST, description="Requests that workloads get by their namespace."
    )


class AnnotationRules(Section):
    """How request annotations are read."""

    dialects: Annotated[tuple[Dialect, ...], AfterValidator(distinct)] = Field(
        default=("topogate", "kueue", "kai", "pod-group"), description="Whose annotations count as requests."
    )
    unknown: Literal["deny", "warn"] = Field(
        default="deny", description="What an unknown `topogate.dev/*` annotation gets."
    )


class Gpu(Section):
    """How GPU requests are read and written."""

    translation: Literal["auto", "rewrite", "annotate", "off"] = Field(
        default="auto", description="Whether GPU requests are rewritten to the names that nodes report."
    )
    scope: Literal["managed", "all"] = Field(
        default="managed", description="Whose `nvidia.com/gpu` requests: managed pods' or everybody's."
    )
    vendors: ResourceNames = Field(default=("amd.com/gpu",), description="Further resource names that are whole GPUs.")
    device_annotation_writers: Identities = Field(
        default=(), description="Service accounts that may write the device annotation themselves."
    )


class PodGroup(Section):
    """Which pod-group labels pods get, so that a coscheduling scheduler sees the same gang."""

    labels: Literal["coscheduling", "scheduler-plugins", "koordinator", "none"] = Field(
        default="coscheduling",
        description="`coscheduling`: pod-group.scheduling.sigs.k8s.io/*. `scheduler-plugins`: "
        "scheduling.x-k8s.io/pod-group, whose PodGroup objects are yours to make. `koordinator`: its gang annotations. "
        "The user's own are never overridden.",
    )


class Planner(Section):
    """How placements are chosen."""

    profile: Literal["pack", "spread"] = Field(
        default="pack", description="Fill domains, or leave the most room in each."
    )
    steps: Annotated[int, Field(ge=1_000, le=10_000_000)] = Field(
        default=200_000, description="The search limit of one decision."
    )


class Queue(Section):
    """The order of waiting gangs."""

    order: Literal["best-effort", "strict"] = Field(
        default="best-effort", description="Whether a gang may overtake one that does not fit now."
    )
    patience: Annotated[float, Duration("1s", "168h")] = Field(
        default=600.0, description="How long a gang may be overtaken; then room is kept free for it."
    )
    max_gang_pods: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=10_000, description="The largest gang that is accepted."
    )
    max_namespace_gangs: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=5_000,
        description="Gangs that a namespace may have at a time, those that have ended left out: more are refused.",
    )


class Timeouts(Section):
    """How long each step may take."""

    bind: Annotated[float, Duration("1s", "1h")] = Field(
        default=30.0,
        description="A host that the scheduler refuses to a released pod for so long is left out for the gang.",
    )
    hold: Annotated[float, Duration("10s", "168h")] = Field(
        default=600.0, description="A reservation of which no pod has started goes back after this."
    )
    node: Annotated[float, Duration("1s", "24h")] = Field(
        default=60.0, description="A node NotReady for this long is lost (`nodeLoss`)."
    )
    recover: Annotated[float, Duration("1s", "168h")] = Field(
        default=600.0, description="A started gang has this long to become whole again (`incomplete`)."
    )
    relax_after: Annotated[float, Duration("1s", "8760h")] | None = Field(
        default=None, description="A required level becomes a preferred one after waiting this long; null: never."
    )


class Policy(Section):
    """The policy of one installation, read from `policy.yaml` in the ConfigMap `topogate-policy`."""

    api_version: Literal["topogate.dev/v1alpha1"] = Field(default="topogate.dev/v1alpha1", description="As shown.")
    kind: Literal["Policy"] = Field(default="Policy", description="As shown.")
    mode: Literal["enforce", "observe", "off"] = Field(
        default="enforce",
        description="`observe`: no patch and no denial; warnings at submit time say what would happen. "
        "`off`: everything held is released.",
    )
    topologies: tuple[TopologySpec, ...] = Field(
        default=(),
        max_length=32,
        description="The named topologies. Without any: the first preset that covers the nodes, else hosts alone.",
    )
    nodes: Nodes = Field(default=Nodes(), description="How nodes are counted.")
    namespaces: Namespaces = Field(default=Namespaces(), description="Which namespaces are served, and how.")
    annotations: AnnotationRules = Field(default=AnnotationRules(), description="How request annotations are read.")
    gpu: Gpu = Field(default=Gpu(), description="How GPU requests are read and written.")
    pod_group: PodGroup = Field(default=PodGroup(), description="Which pod-group labels pods get.")
    planner: Planner = Field(default=Planner(), description="How placements are chosen.")
    queue: Queue = Field(default=Queue(), description="The order of waiting gangs.")
    never_fits: Literal["warn", "deny"] = Field(
        default="warn", description="What a gang gets that is bigger than its topology could ever hold."
    )
    incomplete: Literal["keep", "restart"] = Field(
        default="keep",
        description="A started gang that cannot be made whole within `timeouts.recover`: report and go on trying, "
        "or restart it by suspend and resume where its kind can.",
    )
    node_loss: Literal["wait", "evict", "restart"] = Field(
        default="wait",
        description="A node NotReady for `timeouts.node`: wait for Kubernetes' own eviction, evict its pods, "
        "or restart the gang.",
    )
    timeouts: Timeouts = Field(default=Timeouts(), description="How long each step may take.")
    schedulers: Schedulers = Field(
        default=("default-scheduler",), description="Pods of other schedulers are left alone."
    )
    kinds: tuple[dict[str, JsonValue], ...] = Field(
        default=(), max_length=64, description="Extra entries of the registry of workload kinds."
    )
    admins: Identities = Field(
        default=("system:masters",), description="Users and groups who may write Placements besides us, in emergencies."
    )

    @property
    def registry(self) -> Registry:
        """The workload kinds: the built-in ones and those of the policy. Raises RegistryError."""
        # Not kept in the model: a copy with other kinds would take it along.
        return _registry(json.dumps(self.kinds)) if self.kinds else registry_of()

    @property
    def pod_labels(self) -> frozenset[str]:
        """The labels by which pods of the policy's own kinds are told apart: kept besides the usual ones."""
        return _pod_labels(json.dumps(self.kinds)) if self.kinds else frozenset()

    @property
    def hash(self) -> str:
        """Twelve hex digits that differ when any setting does: SHA-256 of the canonical JSON."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def parse_policy(text: str) -> Policy:
    """Return the policy of a `policy.yaml` text.

    Raises PolicyError with every error by its path, in path order: text that is no policy, unknown fields, values out
    of bounds, and contradictions.
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
    errors += apart_from(errors, rule_errors(raw))
    if policy is None or errors:
        raise PolicyError(in_order(errors))
    return policy


@cache
def default_policy() -> Policy:
    """Return the policy of a cluster that has none."""
    return Policy()


@lru_cache(maxsize=8)
def _registry(kinds: str) -> Registry:
    return registry_of(json.loads(kinds))


@lru_cache(maxsize=8)
def _pod_labels(kinds: str) -> frozenset[str]:
    return label_keys(_registry(kinds))
