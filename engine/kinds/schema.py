"""The schema of a registry entry, which describes one workload kind as data.

It is the same for the built-in kinds (`kinds.yaml`) and for the entries of a policy (`kinds`). Paths, conditions and
expressions: `engine.kinds.paths`, `conditions`, `expressions`. Rules across fields: `engine.kinds.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from engine.api.schema import DnsLabel, LabelKey, Section
from engine.kinds.conditions import ObjectCondition
from engine.kinds.expressions import IntExpression
from engine.kinds.fields import Group, KindName, ManyPath, OnePath, Resource, Subresource, VariableName, Version

MAX_POD_SETS: Final = 64  # of one workload
MAX_CLAIM_TEMPLATES: Final = 64  # of one pod set; a node attaches far fewer volumes
ANY_VERSION: Final = "*"

Creation = Literal["all-at-once", "ordered", "on-demand"]
Unit = Literal["workload", "replica", "pod", "child"]
Cost = Literal["free", "retry", "group", "workload", "lost"]
Handling = Literal["placed", "through", "hint", "pods"]
AsideReason = Literal["ManagedByKueue", "CoreGang", "ExclusiveTopology", "OtherController"]
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
Words = Annotated[str, Field(min_length=1, max_length=300)]


class Match(Section):
    """The objects that an entry matches; the version `*` matches every version that no entry names."""

    group: Group = Field(description="API group; empty for the core group.")
    versions: tuple[Version, ...] = Field(
        min_length=1, max_length=8, description="Versions with these paths; `*` for all others."
    )
    kind: KindName = Field(description="The kind, in CamelCase.")
    resource: Resource = Field(description="The plural, as in rules and in URLs.")


class Ref(Section):
    """A reference to another kind."""

    group: Group = Field(description="API group; empty for the core group.")
    kind: KindName = Field(description="The kind, in CamelCase.")


class Text(Section):
    """A text: a constant, a field of the object, the key of the iterated mapping, or (selectors only) any value."""

    text: DnsLabel | None = Field(default=None, description="A constant.")
    path: OnePath | None = Field(default=None, description="A field of the object that holds a text.")
    key: Literal["lower", "same"] | None = Field(
        default=None, description="The key of the mapping that `forEach` iterates, as it is or in lower case."
    )
    present: Literal[True] | None = Field(
        default=None, description="Any value (selectors only): the label is on the pod."
    )
    fallback: DnsLabel | None = Field(
        default=None, description="With path: used when the field is missing, followed by the position."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(one is not None for one in (self.text, self.path, self.key, self.present)) != 1:
            raise ValueError("needs exactly one of text, path, key and present")
        if self.fallback is not None and self.path is None:
            raise ValueError("fallback is allowed only with path")
        return self


class CostOverride(Section):
    """Another cost, when a condition holds."""

    when: ObjectCondition = Field(description="When this cost applies instead.")
    cost: Cost = Field(description="The cost then.")


class Replace(Section):
    """The cost to the user of deleting a pod that is not bound.

    free: the controller creates another one; retry: it counts as a failure; group, workload: the whole replica group or
    workload starts again; lost: the pod is not created again.
    """

    cost: Cost = Field(description="The cost of deleting a pod that is not bound.")
    overrides: tuple[CostOverride, ...] = Field(
        default=(), max_length=8, description="Other costs; the first with a true condition applies."
    )


class Succeeded(Section):
    """Where the status counts what has succeeded of a pod set, and gets no pods any more."""

    entries: ManyPath = Field(description="The list or mapping with an entry for each pod set.")
    name: OnePath | None = Field(
        default=None, description="In an entry: the name of its pod set; default: the key of the mapping, in any case."
    )
    count: OnePath = Field(description="In an entry: how many have succeeded.")
    pods: IntExpression | None = Field(default=None, description="Number of pods of each that is counted; default: 1.")


class PodSetSpec(Section):
    """Pods of one template, or with `forEach` of one template for each entry of a list or mapping."""

    for_each: ManyPath | None = Field(
        default=None,
        description="The list or mapping with one pod set for each entry; other paths that begin with `.` start there.",
    )
    keys: tuple[Annotated[str, Field(max_length=63)], ...] | None = Field(
        default=None, min_length=1, max_length=16, description="Only these keys of the mapping, in any case."
    )
    when: ObjectCondition | None = Field(default=None, description="The pod set exists only when this holds.")
    name: Text = Field(description="The name of the pod set, unique in its workload.")
    template: OnePath = Field(description="The pod template.")
    missing: Literal["error", "skip", "unknown"] = Field(
        default="error",
        description="When the template is missing. `error`: the object is invalid. `skip`: there is no pod set. "
        "`unknown`: the shape of the pods is known once they exist.",
    )
    role: DnsLabel | None = Field(default=None, description="Not read: accepted, because it was required once.")
    vars: Mapping[VariableName, IntExpression] = Field(
        default={}, max_length=8, description="Numbers that the expressions below may use by name."
    )
    claim_templates: OnePath | None = Field(
        default=None,
        description="The list of templates for the PersistentVolumeClaims of each pod, as a StatefulSet's "
        "`volumeClaimTemplates`.",
    )
    first_ordinal: IntExpression | None = Field(
        default=None,
        description="With claimTemplates: the number of the first pod, where the claims are named "
        "`<template>-<name of the object>-<number>`; without it claims that exist already are not looked for.",
    )
    count: IntExpression = Field(description="Number of pods that run at a time.")
    minimum: IntExpression | None = Field(
        default=None, description="Minimum number of pods that the gang needs; default: the count."
    )
    total: IntExpression | None = Field(
        default=None, description="Number of completions wanted in all; default: the count."
    )
    succeeded: Succeeded | None = Field(
        default=None,
        description="How many of the pods have succeeded; their slots are free. Default: none until the workload ends.",
    )
    replica: IntExpression | None = Field(
        default=None, description="Number of pods in one replica; a slice without a size is one replica."
    )
    rank: IntExpression | None = Field(default=None, description="The rank in the pod set, from a pod's labels.")
    ranked: ObjectCondition | None = Field(default=None, description="The pods have ranks only when this holds.")
    selector: Mapping[LabelKey, Text] = Field(
        default={},
        max_length=8,
        description="Pod labels; the first match wins, unless a later one has its labels and more.",
    )
    creation: Creation | None = Field(default=None, description="The order of creation, if not the gang's.")
    replace: Replace | None = Field(default=None, description="The cost of deleting a pod, if not the kind's.")
    member: Literal["gang", "beside"] = Field(
        default="gang", description="`beside`: its pods belong to no gang and are not placed."
    )


class Contained(Section):
    """Objects inside the object: their pod sets are its pod sets."""

    for_each: ManyPath = Field(description="The list with one entry for each object.")
    object: OnePath = Field(description="The object, read by the entry of its own kind.")
    declared: ManyPath = Field(description="Pod sets declared beside the object, for kinds without an entry.")
    path: OnePath = Field(description="In each of those: the text of the path to the template.")
    count: IntExpression = Field(description="In each of those: the number of pods.")


class Made(Section):
    """Parts of the object from which its controller creates objects: each has their metadata and spec."""

    object: ManyPath = Field(description="The parts, each with `metadata` and `spec` of an object.")
    kind: Ref = Field(description="The kind of the created objects.")


class Configured(Section):
    """A mapping of settings with annotations of pods: a prefix and the annotation's key."""

    path: OnePath = Field(description="The mapping of settings.")
    prefixes: tuple[Words, ...] = Field(
        min_length=1, max_length=8, description="The prefixes before the key of an annotation."
    )


class CreationOverride(Section):
    """Another order of creation, when a condition holds."""

    when: ObjectCondition = Field(description="When this order applies instead.")
    creation: Creation = Field(description="The order then.")


class GangSpec(Section):
    """Which pods start all or nothing, and in which order they are created.

    unit workload: all pod sets are one gang; replica: each of `replicas` groups is a gang, its pods carry
    `replicaLabel`, and the counts of the pod sets are those of one group; pod: each pod alone, only kept near the
    others; child: each created object of the kinds in `owners` is a gang, as its own entry reads it, with the request
    of the workload.
    """

    unit: Unit = Field(description="Which pods are one gang.")
    creation: Creation = Field(
        description="The order in which the controller creates the pods; `on-demand`: while the workload runs."
    )
    overrides: tuple[CreationOverride, ...] = Field(
        default=(), max_length=8, description="Other orders; the first with a true condition applies."
    )
    minimum: IntExpression | None = Field(
        default=None, description="Minimum number of pods of the gang; default: all pods."
    )
    replicas: IntExpression | None = Field(default=None, description="With `unit: replica`: the number of groups.")
    replica_label: LabelKey | None = Field(
        default=None, description="With `unit: replica`: the pod label with the index of the group."
    )


class Suspend(Section):
    """The field that suspends the workload, and when its controller allows that.

    `templates: fixed`: the kind's own webhook never allows changes of the pod templates, not even while suspended.
    """

    path: OnePath = Field(description="A boolean field; the workload is suspended while it is true.")
    when: ObjectCondition | None = Field(
        default=None, description="When the controller allows that; otherwise the pods are held by a scheduling gate."
    )
    templates: Literal["open", "fixed"] = Field(
        default="open", description="Whether the pod templates of a suspended workload may be changed."
    )


class Finished(Section):
    """How a workload shows that it has ended: a condition that is True, or a value of a field."""

    conditions: tuple[Words, ...] = Field(
        default=(), max_length=8, description="Condition types; the workload has ended when one is `True`."
    )
    path: OnePath | None = Field(default=None, description="A field with the state of the workload.")
    values: tuple[Words, ...] = Field(
        default=(), max_length=16, description="With path: the values of a workload that has ended."
    )


class Aside(Section):
    """When another system places the workload, with the reason code."""

    when: ObjectCondition = Field(description="When another system places the workload.")
    reason: AsideReason = Field(description="The reason code that users see.")


class OwnerLabels(Section):
    """Pod labels with the name or UID of the workload; they distinguish its pods from those of its parent."""

    name: LabelKey | None = Field(default=None, description="The label with the name of the workload.")
    uid: LabelKey | None = Field(default=None, description="The label with the UID of the workload.")


class Scheduler(Section):
    """The field with the scheduler name of all pods, and the default."""

    path: OnePath = Field(description="The field with the name of the scheduler.")
    default: Words = Field(description="The scheduler where the field is not set.")


class Permission(Section):
    """A permission of the service on other kinds, needed for this one."""

    group: Group = Field(description="API group; empty for the core group.")
    resources: tuple[Subresource, ...] = Field(
        min_length=1, max_length=8, description="Plurals, with a subresource as `jobs/status`."
    )
    verbs: tuple[Verb, ...] = Field(min_length=1, max_length=7, description="The allowed verbs.")


class KindEntry(Section):
    """One kind of workload.

    `handling`: placed (its pods are a gang), through (its only child is placed), hint (annotations belong on the
    objects that it creates; users get a warning), pods (the object is a pod).
    """

    name: DnsLabel = Field(description="A unique name, for messages.")
    match: Match = Field(description="The objects that the entry is about.")
    handling: Handling = Field(default="placed", description="How objects of the kind are placed.")
    through: Ref | None = Field(default=None, description="With `handling: through`: the kind of the only child.")
    pod_sets: tuple[PodSetSpec, ...] = Field(default=(), max_length=16, description="The pod sets of an object.")
    contains: Contained | None = Field(
        default=None, description="Objects inside the object; their pods belong to the object."
    )
    makes: tuple[Made, ...] = Field(
        default=(),
        max_length=8,
        description="Objects that the controller creates; requests in their metadata are checked.",
    )
    annotated: tuple[ManyPath, ...] = Field(
        default=(), max_length=8, description="Other parts with annotations or labels; requests there get a warning."
    )
    configured: tuple[Configured, ...] = Field(
        default=(), max_length=8, description="Settings with annotations of pods; requests there get a warning."
    )
    gang: GangSpec | None = Field(
        default=None, description="Which pods start all or nothing; required where there are pods."
    )
    owner_labels: OwnerLabels = Field(default=OwnerLabels(), description="Pod labels that name the workload.")
    owners: tuple[Ref, ...] = Field(default=(), max_length=8, description="Kinds between a pod and the workload.")
    scheduler: Scheduler | None = Field(
        default=None, description="The scheduler of the pods, if the object sets it outside of the templates."
    )
    suspend: Suspend | None = Field(
        default=None,
        description="The field that suspends the workload; without it the pods are held by a scheduling gate.",
    )
    started: OnePath | None = Field(
        default=None, description="A field that is set once the workload has run; templates may be immutable then."
    )
    finished: Finished = Field(default=Finished(), description="How a workload shows that it has ended.")
    replace: Replace | None = Field(
        default=None, description="The cost of deleting an unbound pod; required where there are pods."
    )
    stand_aside: tuple[Aside, ...] = Field(
        default=(),
        max_length=8,
        description="When another system places the workload; the first with a true condition applies.",
    )
    rbac: tuple[Permission, ...] = Field(
        default=(), max_length=8, description="Permissions of the service on other kinds, needed for this one."
    )
    note: Words | None = Field(default=None, description="One sentence for the reference page.")
