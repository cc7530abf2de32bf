"""The reason codes: a stable API. `docs/reference/messages.md` is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

Kind = Literal["user", "policy", "not-now", "engine", "exempt", "ignored"]

Phase = Literal["Waiting", "Placed", "Starting", "Running", "Incomplete", "Finished"]
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
    "NamespaceNotAllowed",
    "LevelNotAllowed",
    "ExclusiveNotAllowed",
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
    "ExclusiveDomains",
    "SpreadDomains",
    "PodConstraints",
    "QueuedBehind",
    "RoomKept",
    "Preempting",
    "Preempted",
    "SearchLimit",
    "QuotaExceeded",
    "WaitingGangsLimit",
    "ReservedHostsLimit",
    "SchedulerRefused",
    "SchedulerSilent",
    "HoldExpired",
    "PodsNotReady",
    "StartTimeout",
    "StartLimitExceeded",
    "NodeLost",
    "Moving",
    "PriorityClassMissing",
    "ScheduleTimeout",
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
    "PolicyHold",
    "PartOfGang",
]
# The reason in a status, beside its phase: "" where there is no problem.
Why = Code | Literal[""]


Until = Literal[
    "capacity",
    "nodes",
    "turn",
    "kept hosts",
    "victims",
    "another host",
    "scheduler",
    "slots",
    "move",
    "quota",
    "priority class",
    "namespace",
    "nearby pods",
    "members",
    "pods",
    "user",
    "readiness",
    "resume",
    "mode",
]
# The end of a wait, as text for people.
UNTIL: Final[Mapping[Until, str]] = {
    "capacity": "capacity is freed or added",
    "nodes": "nodes return, or their labels and taints or the request change",
    "turn": "the gangs ahead of it are placed",
    "kept hosts": "the hosts kept for it are free",
    "victims": "the pods of the preempted gangs have ended",
    "another host": "another host accepts its pods",
    "scheduler": "the scheduler binds its pods",
    "slots": "its pods have new slots",
    "move": "the pods that move have ended",
    "quota": "the quota has room or is raised",
    "priority class": "the PriorityClass exists",
    "namespace": "other gangs of its namespace start or end, or the policy allows more",
    "nearby pods": "pods near its hosts start or end, hosts are added, or the constraints of its pods change",
    "members": "its pods exist",
    "pods": "one of its pods is created, or the next attempt starts",
    "user": "the user changes its request, or resumes it",
    "readiness": "its pods are ready",
    "resume": "the user resumes it",
    "mode": "the admin changes the policy's mode",
}
# A gang that waits for one of these has pods that cannot be created, whatever is free.
_OF_CREATION: Final = frozenset[Until]({"quota", "priority class"})
# A gang that waits for one of these is held up by its own namespace or its mode, or by what its own pods require.
_OWN: Final = frozenset[Until]({"namespace", "nearby pods", "mode"}) | _OF_CREATION
# Pods that wait for one of these have no slots; for the others they have some, or their user holds them.
_OF_ROOM: Final = frozenset[Until]({"capacity", "nodes", "turn", "kept hosts", "victims"}) | _OWN
# A gang that waits for one of these is in the queue for capacity, and others may have to wait for it.
_QUEUED: Final = frozenset[Until](
    {"capacity", "nodes", "turn", "kept hosts", "victims", "another host", "scheduler", "slots"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The category of a reason code, its one-line description, and its effects.

    until         the event that ends the wait; None: it is not a wait
    settles       seconds that it must last before it is reported; shorter states are mostly not worth an Event
    shared        a gang with the same request gets the same answer
    text_is_news  a new message is a new Event, although the reason is the same
    by_preemption the gang ran, and ends for another one
    by_new_nodes  more nodes, or larger ones, can end it
    by_others_end other gangs end it when they end, though it does not wait for capacity
    of_one_pod    one pod alone is the problem, for any number of pods
    of_devices    the GPUs or other devices that a container requests are the problem
    of_topology   the request names what the policy's topologies do not have
    asks          the object requests something
    checked       the object's Topogate annotations are validated all the same
    """

    kind: Kind
    description: str
    until: Until | None = None
    settles: float = 0.0
    shared: bool = True
    text_is_news: bool = False
    by_preemption: bool = False
    by_new_nodes: bool = False
    by_others_end: bool = False
    of_one_pod: bool = False
    of_devices: bool = False
    of_topology: bool = False
    asks: bool = True
    checked: bool = True

    @property
    def waits(self) -> bool:
        """True for a wait: the object is valid, and the gang may start later."""
        return self.until is not None

    @property
    def queued(self) -> bool:
        """True when the gang is in the queue for capacity, and others may have to wait for it."""
        return self.until in _QUEUED

    @property
    def of_room(self) -> bool:
        """True when pods wait for slots: for capacity, for other gangs, or for what their own namespace allows."""
        return self.until in _OF_ROOM

    @property
    def of_order(self) -> bool:
        """True when the order of the queue is the reason, not the capacity."""
        return self.until in ("turn", "kept hosts")

    @property
    def unschedulable_alone(self) -> bool:
        """True when only the gang's own namespace can end the wait; gangs of other namespaces do not wait for it."""
        return self.until in _OWN

    @property
    def patient(self) -> bool:
        """True when the waiting time counts: the gang is not suspended by its user, and its namespace not on hold."""
        return self.until not in ("resume", "mode")

    @property
    def by_victims(self) -> bool:
        """True when the end of other gangs can end the wait: for capacity, or for what the namespace may use."""
        return self.until == "capacity" or self.by_others_end

    @property
    def preempts(self) -> bool:
        """True when others end so that the gang starts."""
        return self.until == "victims"

    @property
    def by_user(self) -> bool:
        """True when the user has suspended the gang."""
        return self.until == "resume"

    @property
    def moves(self) -> bool:
        """True when pods of a gang leave their hosts for other slots, because its user asks for that."""
        return self.until == "move"

    @property
    def rests(self) -> bool:
        """True when a gang without slots has failed to start, and is planned again after a pause."""
        return self.until in ("another host", "pods", "readiness")

    @property
    def of_creation(self) -> bool:
        """True when pods cannot be created, whatever is free."""
        return self.until in _OF_CREATION

    @property
    def by_mode(self) -> bool:
        """True when the policy's mode is all that keeps the gang out of the queue."""
        return self.until == "mode"

    @property
    def gives_up(self) -> bool:
        """True when the gang is not planned any more, and its waiting time is over."""
        return self.until == "user"

    @property
    def by_policy(self) -> bool:
        """True when the admin's policy refuses the object (403), False for an error in the object (422)."""
        return self.kind == "policy"


def _user(
    description: str,
    *,
    of_one_pod: bool = False,
    of_devices: bool = False,
    of_topology: bool = False,
    by_new_nodes: bool = False,
) -> Reason:
    return Reason(
        kind="user",
        description=description,
        of_one_pod=of_one_pod,
        of_devices=of_devices,
        of_topology=of_topology,
        by_new_nodes=by_new_nodes,
    )


def _policy(description: str) -> Reason:
    return Reason(kind="policy", description=description)


def _wait(
    until: Until,
    description: str,
    *,
    settles: float = 0.0,
    shared: bool = True,
    text_is_news: bool = False,
    by_preemption: bool = False,
    by_new_nodes: bool = False,
    by_others_end: bool = False,
) -> Reason:
    return Reason(
        kind="not-now",
        description=description,
        until=until,
        settles=settles,
        shared=shared and until not in _OWN,
        text_is_news=text_is_news,
        by_preemption=by_preemption,
        by_new_nodes=by_new_nodes,
        by_others_end=by_others_end,
    )


def _engine(description: str) -> Reason:
    return Reason(kind="engine", description=description)


def _managed_elsewhere(description: str) -> Reason:
    return Reason(kind="exempt", description=description)


def _ignored(description: str, *, asks: bool = True, checked: bool = True) -> Reason:
    return Reason(kind="ignored", description=description, asks=asks, checked=checked)


# Keyed by the type: mypy refuses unknown codes, and a test checks that every code has an entry.
REASONS: Final[Mapping[Code, Reason]] = {
    "UnknownLevel": _user("The request names a level that the topology does not have.", of_topology=True),
    "UnknownTopology": _user("The request names a topology that does not exist, or is invalid.", of_topology=True),
    "ConflictingAnnotations": _user("Two annotations of one object contradict each other."),
    "InvalidValue": _user("A value has the wrong format or is out of range."),
    "MissingValue": _user("A required annotation or value is missing."),
    "SegmentNotDivisor": _user("The slice size does not divide the number of pods."),
    "GangSizeMismatch": _user("The pods of one gang give different sizes, or there are more pods than the size."),
    "GangTooLarge": _user("The gang is larger than any domain of its required level can ever hold.", by_new_nodes=True),
    "HostTooSmall": _user(
        "One pod requests more than any host of the topology has.", of_one_pod=True, by_new_nodes=True
    ),
    "UnknownResource": _user("The pods request a resource that no node reports.", of_one_pod=True, by_new_nodes=True),
    "ImmutableField": _user("A field was changed that only Topogate may change, or that is immutable after creation."),
    "UnsupportedKind": _user("The request is on an object of a kind that cannot be placed, or cannot do what it asks."),
    "UnknownAnnotation": _user("Topogate has no such annotation; usually a typo."),
    "GPURequestInvalid": _user("The GPU resources of a container cannot be combined.", of_devices=True),
    "ReservedName": _user("The name belongs to Topogate and cannot be set by users."),
    "NamespaceNotAllowed": _policy("The policy allows no requests for a topology or a gang in this namespace."),
    "LevelNotAllowed": _policy("The policy does not allow this namespace to name that level."),
    "ExclusiveNotAllowed": _policy("The policy does not allow gangs of this namespace to keep whole domains."),
    "GangLimitExceeded": _policy(
        "The gang has more pods than the policy or one Placement allows, or the namespace has too many gangs."
    ),
    "ReviewTooCostly": _policy("The object is too large: its review took more CPU time than one review may use."),
    "InsufficientFreeGPUs": _wait("capacity", "Too few GPUs are free in total.", by_new_nodes=True),
    "InsufficientFreeHosts": _wait("capacity", "Too few hosts have free capacity in total.", by_new_nodes=True),
    "Fragmented": _wait(
        "capacity", "Enough is free in total, but not in one domain of the required level.", by_new_nodes=True
    ),
    # pods are created one after the other, and so is the JobSet of a TrainJob
    "WaitingForMembers": _wait("members", "Some pods of the gang do not exist yet.", settles=5.0),
    "ReservedByOthers": _wait("capacity", "The capacity is reserved for other gangs that are about to start."),
    "NodesUnhealthy": _wait(
        "nodes",
        "Even without other pods too few nodes are usable: some are cordoned, not ready, or have unusable devices.",
        by_new_nodes=True,
    ),
    "NodesExcluded": _wait(
        "nodes", "nodeSelector, node affinity or taints exclude nodes that the gang needs.", by_new_nodes=True
    ),
    "LabelsMissing": _wait("nodes", "No node carries the labels of the topology's levels."),
    "ExclusiveDomains": _wait(
        "capacity",
        "Capacity is free only beside other gangs, which exclusive-topology of this gang or theirs excludes.",
    ),
    "SpreadDomains": _wait(
        "namespace",
        "Capacity is free only in domains of gangs that spread-topology keeps apart from this one.",
        by_others_end=True,
    ),
    "PodConstraints": _wait(
        "nearby pods",
        "Capacity is free only where pod (anti-)affinity or topology spread, of its pods or of others, excludes them.",
        by_others_end=True,
    ),
    "QueuedBehind": _wait("turn", "Another gang goes first."),
    # its message says where hosts are kept, and has no number that changes all the time
    "RoomKept": _wait(
        "kept hosts",
        "The gang has waited longer than the policy's patience: hosts are kept free until it fits.",
        text_is_news=True,
    ),
    # their messages say who ends for whom, and have no number that changes all the time
    "Preempting": _wait(
        "victims",
        "Running gangs end so that it starts: of lower priority (policy `preemption`), or to restart elsewhere (policy "
        "`defragment`); hosts are kept free for it.",
        shared=False,
        text_is_news=True,
    ),
    "Preempted": _wait(
        "capacity",
        "The gang was ended so that one of higher priority starts (policy `preemption`), or so that another one fits "
        "and it restarts elsewhere (policy `defragment`); it is queued again.",
        shared=False,
        text_is_news=True,
        by_preemption=True,
    ),
    "SearchLimit": _wait(
        "capacity",
        "The search for a placement ended without an answer: at the policy's step limit, or over devices to share.",
        shared=False,
    ),
    "QuotaExceeded": _wait(
        "quota", "The namespace's ResourceQuota has no room for the whole gang.", by_others_end=True
    ),
    "WaitingGangsLimit": _wait(
        "namespace", "As many gangs of the namespace wait for capacity already as the policy allows."
    ),
    "ReservedHostsLimit": _wait(
        "namespace",
        "With this gang its namespace would have slots on more hosts than the policy allows.",
        by_others_end=True,
    ),
    "SchedulerRefused": _wait("another host", "The scheduler did not bind a pod to its host; another host is tried."),
    "SchedulerSilent": _wait(
        "scheduler", "The scheduler has not bound a pod and gives no reason; the gang keeps its slots."
    ),
    "HoldExpired": _wait("pods", "No pod started in time, so the reserved slots were released."),
    # a first attempt to pull an image may fail, and a readiness probe too
    "PodsNotReady": _wait(
        "readiness", "Pods are bound, but not ready: an image, a crash, or a readiness probe.", settles=30.0
    ),
    # its message is written once for each start, and names pods and hosts
    "StartTimeout": _wait(
        "another host",
        "Pods were not ready within `timeouts.start`; the gang is started again on other hosts.",
        text_is_news=True,
    ),
    "StartLimitExceeded": _wait("user", "As many starts in a row have failed as the policy allows; it stays held."),
    "NodeLost": _wait("slots", "A node of the gang is gone; its pods get new slots."),
    # mostly they have moved a moment later
    "Moving": _wait(
        "move",
        "Its user asks that it, or pods of it, get other slots (`topogate.dev/replan`, `topogate.dev/replace`).",
        settles=5.0,
    ),
    "PriorityClassMissing": _wait(
        "priority class", "A template names a PriorityClass that does not exist: no pod can be created from it."
    ),
    "ScheduleTimeout": _wait("user", "The gang has waited for its schedule-timeout without a placement."),
    "PolicyHold": _wait("mode", "The policy's mode, for all or for this namespace, is `hold`: nothing new is placed."),
    "Suspended": _wait("resume", "The user suspended the workload; it is planned when it is resumed."),
    "PolicyInvalid": _engine("The policy is refused; the last good one stays in force."),
    "ManagedByKueue": _managed_elsewhere("Kueue admits and places this workload."),
    "CoreGang": _managed_elsewhere("Kubernetes' own gang scheduling places this workload."),
    "OtherScheduler": _managed_elsewhere("The pods name a scheduler that the policy does not list."),
    "OtherController": _managed_elsewhere("`managedBy` of the workload names another controller."),
    "ExclusiveTopology": _managed_elsewhere(
        "The exclusive-topology annotation of JobSet or LeaderWorkerSet places this workload."
    ),
    "NoTopologyRequested": _ignored("Nothing asks for a topology or a gang.", asks=False),
    "ExemptNamespace": _ignored("The namespace is exempt.", checked=False),
    "NodeNameSet": _ignored("The pods set `nodeName` themselves."),
    "DaemonSetOrStatic": _ignored("The pods belong to a DaemonSet, or are static pods of a node."),
    "PolicyOff": _ignored("The policy's mode, for all or for this namespace, is `off` or `observe`."),
    "PartOfGang": _ignored("The object is part of the gang of a workload that owns it."),
}


def known_phase(text: object) -> Phase | None:
    """Return the phase of a stored text; None for anything that is not a phase of this version."""
    return next((phase for phase in PHASES if phase == text), None)


def known_code(text: object) -> Why:
    """Return the reason code of a stored text; "" for anything that is not a code of this version."""
    return cast(Code, text) if isinstance(text, str) and text in REASONS else ""


def reason_of(why: Why) -> Reason | None:
    """Return the properties of a status's reason; None where there is no problem."""
    return REASONS[why] if why else None


def asks_nothing(code: Code | None) -> bool:
    """Return whether the code means that the object requests nothing; False for None."""
    return code is not None and not REASONS[code].asks
