"""The schema of a registry entry: what one kind of workload looks like, as data.

The same for the built-ins (`kinds.yaml`) and for the entries of a policy (`kinds`). What a path, a condition and an
expression may be: `engine.kinds.paths`, `conditions`, `expressions`. Rules across fields: `engine.kinds.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from engine.api.schema import DnsLabel, LabelKey
from engine.kinds.conditions import ObjectCondition
from engine.kinds.expressions import IntExpression
from engine.kinds.fields import Group, KindName, ManyPath, OnePath, Part, Resource, Subresource, VariableName, Version

MAX_POD_SETS: Final = 64  # of one workload
ANY_VERSION: Final = "*"

Creation = Literal["all-at-once", "ordered", "on-demand"]
Unit = Literal["workload", "replica", "pod", "child"]
Cost = Literal["free", "retry", "group", "workload", "lost"]
Handling = Literal["placed", "through", "hint", "pods"]
AsideReason = Literal["ManagedByKueue", "CoreGang", "ExclusiveTopology", "OtherController"]
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
Words = Annotated[str, Field(min_length=1, max_length=300)]


class Match(Part):
    """Which objects an entry is about; the version `*` stands for every version that no entry names."""

    group: Group = Field(description="API group; empty for the core group.")
    versions: tuple[Version, ...] = Field(
        min_length=1, max_length=8, description="Versions that the paths are right for; `*` for all others."
    )
    kind: KindName = Field(description="The kind, in CamelCase.")
    resource: Resource = Field(description="The plural, as in rules and in URLs.")


class Ref(Part):
    """Another kind."""

    group: Group = Field(description="API group; empty for the core group.")
    kind: KindName = Field(description="The kind, in CamelCase.")


class Text(Part):
    """A text: a constant, a field of the object, the key of the iterated mapping, or (selectors only) any value."""

    text: DnsLabel | None = Field(default=None, description="A constant.")
    path: OnePath | None = Field(default=None, description="A field of the object that holds a text.")
    key: Literal["lower", "same"] | None = Field(
        default=None, description="The key of the mapping that `forEach` iterates, as it is or in lower case."
    )
    present: Literal[True] | None = Field(
        default=None, description="Any value (selectors only): the label is on the pod."
    )
    fallback: DnsLabel | None = Field(default=None, description="With path: what stands for it, plus the position.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(one is not None for one in (self.text, self.path, self.key, self.present)) != 1:
            raise ValueError("needs exactly one of text, path, key and present")
        if self.fallback is not None and self.path is None:
            raise ValueError("fallback stands beside path only")
        return self


class CostOverride(Part):
    """Another cost, when a condition holds."""

    when: ObjectCondition = Field(description="When this cost applies instead.")
    cost: Cost = Field(description="The cost then.")


class Replace(Part):
    """What deleting a pod that is not bound costs the user.

    free: the controller makes another one; retry: it counts as a failure; group, workload: the whole replica group or
    workload starts again; lost: nobody makes another one.
    """

    cost: Cost = Field(description="The cost of deleting a pod that is not bound.")
    overrides: tuple[CostOverride, ...] = Field(
        default=(), max_length=8, description="Other costs; the first whose condition holds applies."
    )


class PodSetSpec(Part):
    """Pods of one template, or with `forEach` of one template for each entry of a list or mapping."""

    for_each: ManyPath | None = Field(
        default=None,
        description="The list or mapping with one pod set for each entry; other paths that begin with `.` start there.",
    )
    keys: tuple[Annotated[str, Field(max_length=63)], ...] | None = Field(
        default=None, min_length=1, max_length=16, description="Only these keys of the mapping, in any case."
    )
    when: ObjectCondition | None = Field(default=None, description="Else there is no such pod set.")
    name: Text = Field(description="The name of the pod set, unique in its workload.")
    template: OnePath = Field(description="The pod template.")
    missing: Literal["error", "skip", "unknown"] = Field(
        default="error",
        description="What no template means: a fault, no such pod set, or pods whose shape is known once they exist.",
    )
    role: DnsLabel | None = Field(default=None, description="Not read: accepted, because it was required once.")
    vars: Mapping[VariableName, IntExpression] = Field(
        default={}, max_length=8, description="Numbers that the expressions below may use by name."
    )
    count: IntExpression = Field(description="Pods that run at a time.")
    minimum: IntExpression | None = Field(default=None, description="Those without which the gang is none; else all.")
    total: IntExpression | None = Field(default=None, description="Pods that are wanted in all; else the count.")
    replica: IntExpression | None = Field(
        default=None, description="Pods of one of its replicas: what a slice without a size is."
    )
    rank: IntExpression | None = Field(default=None, description="The rank in the pod set, out of a pod's labels.")
    ranked: ObjectCondition | None = Field(default=None, description="Else the pods have no ranks.")
    selector: Mapping[LabelKey, Text] = Field(default={}, max_length=8, description="Pod labels; first match wins.")
    creation: Creation | None = Field(default=None, description="Where it differs from the gang's.")
    replace: Replace | None = Field(default=None, description="Where it differs from the kind's.")
    member: Literal["gang", "beside"] = Field(default="gang", description="beside: placed alone, no part of the gang.")


class Contained(Part):
    """Objects inside the object: their pod sets are its pod sets."""

    for_each: ManyPath = Field(description="The list with one entry for each object.")
    object: OnePath = Field(description="The object, read by the entry of its own kind.")
    declared: ManyPath = Field(description="Pod sets that stand beside it, for objects of kinds without an entry.")
    path: OnePath = Field(description="In each of those: the text of the path to the template.")
    count: IntExpression = Field(description="Pods of a pod set that is declared beside the object.")


class Made(Part):
    """Parts of the object of which its controller makes objects: each holds their metadata and spec."""

    object: ManyPath = Field(description="The parts, each with `metadata` and `spec` of an object.")
    kind: Ref = Field(description="The kind of the objects that are made.")


class Configured(Part):
    """A mapping of settings that names annotations of pods: their keys come after one of the prefixes."""

    path: OnePath = Field(description="The mapping of settings.")
    prefixes: tuple[Words, ...] = Field(
        min_length=1, max_length=8, description="What stands before the key of an annotation."
    )


class CreationOverride(Part):
    """Another order of creation, when a condition holds."""

    when: ObjectCondition = Field(description="When this order applies instead.")
    creation: Creation = Field(description="The order then.")


class GangSpec(Part):
    """Which pods start all or nothing, and how they come.

    unit workload: all pod sets; replica: each of `replicas` groups by itself, its pods carry `replicaLabel`, and the
    counts of the pod sets are those of one group; pod: each pod alone, only kept near the others; child: each object of
    the kinds in `owners` that it makes is a gang of its own, as its own entry reads it, with what is asked above it.
    """

    unit: Unit = Field(description="Which pods are one gang.")
    creation: Creation = Field(
        description="The order in which the controller creates the pods; `on-demand`: while the workload runs."
    )
    overrides: tuple[CreationOverride, ...] = Field(
        default=(), max_length=8, description="Other orders; the first whose condition holds applies."
    )
    minimum: IntExpression | None = Field(default=None, description="The gang's size when it is less than all pods.")
    replicas: IntExpression | None = Field(default=None, description="With `unit: replica`: how many groups there are.")
    replica_label: LabelKey | None = Field(
        default=None, description="With `unit: replica`: the pod label with the index of the group."
    )


class Suspend(Part):
    """The field that holds the workload, and when its controller lets it be set.

    `templates: fixed` where the kind's own webhook lets nobody change the pod templates, not even while it is held.
    """

    path: OnePath = Field(description="A boolean that holds the workload while it is true.")
    when: ObjectCondition | None = Field(
        default=None, description="When its controller allows that; else the pods are held by a scheduling gate."
    )
    templates: Literal["open", "fixed"] = Field(
        default="open", description="Whether the pod templates of a suspended workload may be changed."
    )


class Finished(Part):
    """What says that the workload is over: a condition that is True, or one of some values of a field."""

    conditions: tuple[Words, ...] = Field(
        default=(), max_length=8, description="Types of conditions of which one is `True`."
    )
    path: OnePath | None = Field(default=None, description="A field that names the state of the workload.")
    values: tuple[Words, ...] = Field(
        default=(), max_length=16, description="With path: the values of a workload that is over."
    )


class Aside(Part):
    """When another one places the workload, with the reason code."""

    when: ObjectCondition = Field(description="When another system places the workload.")
    reason: AsideReason = Field(description="The reason code that users see.")


class OwnerLabels(Part):
    """Pod labels that name the workload: they tell its pods apart from those of the workload that contains it."""

    name: LabelKey | None = Field(default=None, description="The label with the name of the workload.")
    uid: LabelKey | None = Field(default=None, description="The label with the UID of the workload.")


class Scheduler(Part):
    """The field that names the scheduler of all pods, and the one without it."""

    path: OnePath = Field(description="The field with the name of the scheduler.")
    default: Words = Field(description="The scheduler where the field is not set.")


class Permission(Part):
    """What the service may do with other kinds on behalf of this one."""

    group: Group = Field(description="API group; empty for the core group.")
    resources: tuple[Subresource, ...] = Field(
        min_length=1, max_length=8, description="Plurals, with a subresource as `jobs/status`."
    )
    verbs: tuple[Verb, ...] = Field(min_length=1, max_length=7, description="What the service may do with them.")


class KindEntry(Part):
    """One kind of workload.

    `handling`: placed (its pods are a gang), through (its only child is placed), hint (annotations belong on what it
    makes: a warning says so), pods (the object is a pod).
    """

    name: DnsLabel = Field(description="A unique name, for messages.")
    match: Match = Field(description="The objects that the entry is about.")
    handling: Handling = Field(default="placed", description="How objects of the kind are placed.")
    through: Ref | None = Field(default=None, description="With `handling: through`: the kind of the only child.")
    pod_sets: tuple[PodSetSpec, ...] = Field(default=(), max_length=16, description="The pod sets of an object.")
    contains: Contained | None = Field(default=None, description="Objects inside the object whose pods are its pods.")
    makes: tuple[Made, ...] = Field(default=(), max_length=8, description="Requests in their metadata are checked too.")
    annotated: tuple[ManyPath, ...] = Field(
        default=(), max_length=8, description="Other parts with annotations or labels: who asks there gets a warning."
    )
    configured: tuple[Configured, ...] = Field(
        default=(), max_length=8, description="Settings that name annotations of pods: who asks there gets a warning."
    )
    gang: GangSpec | None = Field(
        default=None, description="Which pods start all or nothing; required where there are pods."
    )
    owner_labels: OwnerLabels = Field(default=OwnerLabels(), description="Pod labels that name the workload.")
    owners: tuple[Ref, ...] = Field(default=(), max_length=8, description="Kinds between a pod and the workload.")
    scheduler: Scheduler | None = Field(
        default=None, description="Where the object names the scheduler of its pods outside of the templates."
    )
    suspend: Suspend | None = Field(
        default=None,
        description="The field that holds the workload; without it the pods are held by a scheduling gate.",
    )
    started: OnePath | None = Field(default=None, description="Set once the workload has run: templates may be fixed.")
    finished: Finished = Field(default=Finished(), description="What says that the workload is over.")
    replace: Replace | None = Field(
        default=None, description="What deleting an unbound pod costs; required where there are pods."
    )
    stand_aside: tuple[Aside, ...] = Field(
        default=(),
        max_length=8,
        description="When another system places the workload; the first whose condition holds applies.",
    )
    rbac: tuple[Permission, ...] = Field(
        default=(), max_length=8, description="What the service may do with other kinds on behalf of this one."
    )
    note: Words | None = Field(default=None, description="One sentence for the reference page.")
