"""The reason codes: a stable API. `docs/reference/messages.md` is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

Kind = Literal["user", "policy", "not-now", "engine", "standing-aside", "ignored"]

Phase = Literal["Waiting", "Placed", "Running", "Incomplete", "Finished"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
Code = Literal[
    "UnknownLevel",
    "UnknownTopology",
    "ConflictingAnnotations",
    "InvalidValue",
    "MissingValue",
    "SegmentNotDivisor",
    "GangSizeMismatch",
    "GangTooLarge",
    "HostTooSmall",
    "UnknownResource",
    "ImmutableField",
    "UnsupportedKind",
    "UnknownAnnotation",
    "GPURequestInvalid",
    "ReservedName",
    "GangLimitExceeded",
    "ReviewTooCostly",
    "InsufficientFreeGPUs",
    "InsufficientFreeHosts",
    "Fragmented",
    "WaitingForMembers",
    "ReservedByOthers",
    "NodesUnhealthy",
    "NodesExcluded",
    "LabelsMissing",
    "QueuedBehind",
    "RoomKept",
    "SearchLimit",
    "QuotaExceeded",
    "SchedulerRefused",
    "SchedulerSilent",
    "HoldExpired",
    "NodeLost",
    "PriorityClassMissing",
    "Suspended",
    "PolicyInvalid",
    "ManagedByKueue",
    "CoreGang",
    "OtherScheduler",
    "OtherController",
    "ExclusiveTopology",
    "NoTopologyRequested",
    "ExemptNamespace",
    "NodeNameSet",
    "DaemonSetOrStatic",
    "PolicyOff",
    "PartOfGang",
]
# What a status says beside its phase: nothing where all is well.
Why = Code | Literal[""]


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason code's sort and its one-line description."""

    kind: Kind
    description: str


def _all(kind: Kind, **described: str) -> dict[str, Reason]:
    return {code: Reason(kind, description) for code, description in described.items()}


REASONS: Final[Mapping[str, Reason]] = {
    **_all(
        "user",
        UnknownLevel="The request names a level that the topology does not have.",
        UnknownTopology="The request names a topology that the policy does not have.",
        ConflictingAnnotations="Two annotations of one object contradict each other.",
        InvalidValue="A value is of the wrong form or out of its bounds.",
        MissingValue="An annotation needs another one, or a value, that is not there.",
        SegmentNotDivisor="The slice size does not divide the number of pods.",
        GangSizeMismatch="The pods of one gang disagree about its size, or there are more pods than it says.",
        GangTooLarge="The gang is bigger than any domain of the level it requires could ever hold.",
        HostTooSmall="One pod asks for more than any host of the topology has.",
        UnknownResource="The pods ask for a resource that no node reports.",
        ImmutableField="A field that only Topogate may change, or that may not change after creation, was changed.",
        UnsupportedKind="The request stands on an object of a kind that cannot be placed.",
        UnknownAnnotation="A topogate.dev annotation that does not exist, most often a slip of the pen.",
        GPURequestInvalid="The GPU resources that a container asks for do not go together.",
        ReservedName="The name belongs to Topogate and cannot be set by users.",
    ),
    **_all(
        "policy",
        GangLimitExceeded="The gang has more pods than the policy or one Placement takes, or its namespace more gangs.",
        ReviewTooCostly="The object is so large that its review took more of the processor than one review may.",
    ),
    **_all(
        "not-now",
        InsufficientFreeGPUs="Too few GPUs are free in all.",
        InsufficientFreeHosts="Too few hosts have room in all.",
        Fragmented="Enough is free in all, but not in one domain of the required level.",
        WaitingForMembers="Some pods of the gang do not exist yet.",
        ReservedByOthers="The room is reserved for other gangs that are about to start.",
        NodesUnhealthy="It would fit if the cordoned and not-ready nodes were back.",
        NodesExcluded="The nodes that are needed are left out by nodeSelector, node affinity or taints.",
        LabelsMissing="No node carries the labels of the topology's levels.",
        QueuedBehind="Another gang goes first.",
        RoomKept="The gang has waited for longer than the policy's patience: hosts are kept free until it fits.",
        SearchLimit="The search for a placement reached the policy's step limit.",
        QuotaExceeded="The namespace's ResourceQuota has no room for the whole gang.",
        SchedulerRefused="The scheduler did not bind a pod to its host; another host is tried.",
        SchedulerSilent="The scheduler says nothing of a pod that it has not bound; the gang stays where it is.",
        HoldExpired="No pod started in time, so the reserved room went back.",
        NodeLost="A node of the gang is gone; its pods get new places.",
        PriorityClassMissing="A template names a PriorityClass that does not exist: no pod can be created from it.",
        Suspended="The user suspended the workload; it is planned when it is resumed.",
    ),
    **_all(
        "engine",
        PolicyInvalid="The policy is refused; the last good one stays in force.",
    ),
    **_all(
        "standing-aside",
        ManagedByKueue="Kueue admits and places this workload.",
        CoreGang="Kubernetes' own gang scheduling places this workload.",
        OtherScheduler="The pods name a scheduler that the policy does not list.",
        OtherController="The workload names another controller than its kind's own (managedBy).",
        ExclusiveTopology="The exclusive-topology annotation of JobSet or LeaderWorkerSet places this workload.",
    ),
    **_all(
        "ignored",
        NoTopologyRequested="Nothing asks for a topology or a gang.",
        ExemptNamespace="The namespace is exempt.",
        NodeNameSet="The pods name their node themselves.",
        DaemonSetOrStatic="The pods belong to a DaemonSet or a node's static manifests.",
        PolicyOff="The policy's mode is off.",
        PartOfGang="A workload above it is the gang that it is a part of.",
    ),
}


def known_phase(text: object) -> Phase | None:
    """The phase that a stored text is; None for none, and for one that this version does not know."""
    return next((phase for phase in PHASES if phase == text), None)


def known_code(text: object) -> Why:
    """The reason code that a stored text is; "" for a code that this version does not know."""
    return cast(Code, text) if isinstance(text, str) and text in REASONS else ""
