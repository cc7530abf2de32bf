"""Records of placements: slots, assignments, requests, and in the status waiting times, failed starts, preemptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from engine.api import names
from engine.api.device import DeviceUse
from engine.api.duration import parse_time, timestamp
from engine.api.resources import Requests
from engine.api.text import label_value


@dataclass(frozen=True, slots=True)
class Slot:
    """The slots of a pod set on one host: `count` pods; `ranks` are inclusive ranges, None when unranked.

    `devices`: those of each pod, in the order of the ranks; None when the host does not report its devices.
    """

    domain: tuple[str, ...]  # label values, host last; `(<node>)` where the node has no label (`own-domain`)
    count: int
    ranks: tuple[tuple[int, int], ...] | None
    devices: tuple[tuple[DeviceUse, ...], ...] | None = None

    @property
    def host(self) -> str:
        """The name of the node."""
        return self.domain[-1]


@dataclass(frozen=True, slots=True)
class PodSetPlan:
    """The slots of one pod set, ordered by lowest rank.

    `requests`: those of each pod, which the slots were planned for; None where an earlier version has written them.
    """

    name: str
    slots: tuple[Slot, ...]
    requests: Requests | None = None

    @property
    def count(self) -> int:
        """The number of pods that have a slot."""
        return sum(slot.count for slot in self.slots)


@dataclass(frozen=True, slots=True)
class ConsumedRequest:
    """The provisioned request whose nodes the pods of a placed gang use: its name and its class."""

    name: str
    class_name: str


def hosts_in(plans: Iterable[PodSetPlan]) -> frozenset[str]:
    """Return the hosts on which pod sets have slots."""
    return frozenset(slot.host for plan in plans for slot in plan.slots)


def slots_by_host(plans: Iterable[PodSetPlan]) -> Counter[str]:
    """Return the number of slots of pod sets on each host, in the order of the plans."""
    counts = Counter[str]()
    for plan in plans:
        for slot in plan.slots:
            counts[slot.host] += slot.count
    return counts


@dataclass(frozen=True, slots=True)
class Assignment:
    """The slots of a gang; `revision` increases with every new plan.

    `consumes`: the ProvisioningRequest whose nodes its pods use; None if they use none.
    """

    revision: int
    pod_sets: tuple[PodSetPlan, ...]
    consumes: ConsumedRequest | None = None

    @property
    def count(self) -> int:
        """The number of pods of all pod sets that have a slot."""
        return sum(plan.count for plan in self.pod_sets)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts on which pods have a slot."""
        return hosts_in(self.pod_sets)

    def plan_of(self, name: str) -> PodSetPlan:
        """Return the slots of the pod set with that name; an empty plan when it has none."""
        return next((plan for plan in self.pod_sets if plan.name == name), PodSetPlan(name, ()))


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """The parsed request of a pod set: counts and levels (resolved aliases; `auto` is kept as "auto" in require).

    `slices` are (level, size): each group of `size` consecutive ranks in one domain of the level. Pod sets of one gang
    with the same `colocate` share one domain of the required level. `relaxed`: the level that was required before the
    gang had waited for `relax-after`. `device_scope`: what the whole GPUs of each pod must share, one of `SCOPES` in
    `engine.api.device`; `gpu_strategy`: which of equally near GPUs they get, one of `STRATEGIES` there; None: as the
    policy says; `device_selector`: labels that their GPUs must have, `key=value` separated by commas. `rdma_selector`,
    `vf_selector` (label selectors as text) and `rdma_scope` (one of `RDMA_SCOPES` there): as in DeviceRequest.
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
    device_scope: str | None = None
    gpu_strategy: str | None = None
    device_selector: str | None = None
    rdma_selector: str | None = None
    vf_selector: str | None = None
    rdma_scope: str | None = None

    @property
    def has_remnant(self) -> bool:
        """True when the slices do not divide the pods, as the gang was scaled: the last slices are smaller."""
        return any(self.count % size for _, size in self.slices)

    def in_whole_slices(self, pods: int) -> int:
        """Return a number of its pods rounded up to whole slices, at most all of them: fewer are never placed."""
        size = self.slices[0][1] if self.slices else 1
        return min(self.count, -(-pods // size) * size)


@dataclass(frozen=True, slots=True)
class GangRequest:
    """The request for all pod sets of a gang together; `min_available` None: all pods, or as each pod set requests."""

    require: str | None
    prefer: str | None
    min_available: int | None
    relaxed: str | None = None


@dataclass(frozen=True, slots=True)
class Separation:
    """The levels (aliases) at which a gang is kept apart from other gangs; at least one of them is set.

    `exclusive`: no other gang in its domains of this level. `spread`: no other gang of the same workload in its domains
    of this level; with `group` no other gang of the namespace that names the same group.
    """

    exclusive: str | None
    spread: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """The workload that a Placement belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of its Placements, by which they are selected."""
        return {names.WORKLOAD_KIND: label_value(self.kind), names.WORKLOAD_NAME: label_value(self.name)}


@dataclass(frozen=True, slots=True)
class Placement:
    """A Placement object. `assignment` is None while the gang waits; `status` is the raw status mapping.

    `gang` is None with one pod set. `profile` is the workload's own, None where it names none. `group`: the index of
    the replica, for kinds with a gang per replica. `separation`: None where other gangs may be in the same domains.
    `labels`: those of the workload that the object has. `owners`: the uids of the pods that own it, if it has no
    workload.
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
    profile: str | None = None
    separation: Separation | None = None
    generation: int = 0  # metadata.generation: goes up with every change of spec, also when the assignment is dropped
    status: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return (self.namespace, self.name)

    @property
    def labelled(self) -> bool:
        """True if the object has the labels of its workload; earlier versions wrote none."""
        return self.workload.labels.items() <= self.labels.items()


def named_levels(
    pod_sets: Iterable[PodSetRequest], gang: GangRequest | None, separation: Separation | None
) -> tuple[str, ...]:
    """Return every level that a request names, each once; `auto` too."""
    levels = [gang.require, gang.prefer] if gang is not None else []
    levels += [separation.exclusive, separation.spread] if separation is not None else []
    for ask in pod_sets:
        levels += [ask.require, ask.prefer, *[level for level, _ in ask.slices]]
    return tuple(dict.fromkeys(level for level in levels if level is not None))


def kept_hosts(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hosts that are kept free for a gang, from its status."""
    hosts = status.get("keptHosts")
    return tuple(host for host in hosts if isinstance(host, str)) if isinstance(hosts, list | tuple) else ()


def waiting_since(status: Mapping[str, Any]) -> float | None:
    """Return when a gang began to wait (seconds since the epoch); None when it does not, or the time is unreadable."""
    return parse_time(status.get("waitingSince"))


def requeued_at(status: Mapping[str, Any]) -> float | None:
    """Return when a waiting gang was last requeued (seconds since the epoch); None when it never did."""
    return parse_time(status.get("requeuedAt"))


def requeues(status: Mapping[str, Any]) -> int:
    """Return how often a gang was requeued while it waited; 0 if the status has no such number."""
    found = status.get("requeues")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def placed_at(status: Mapping[str, Any]) -> float | None:
    """Return when a gang was last placed (seconds since the epoch); None while its status does not say so."""
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list | tuple) else ():
        if isinstance(one, Mapping) and (one.get("type"), one.get("status")) == ("Placed", "True"):
            return parse_time(one.get("lastTransitionTime"))
    return None


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """The failed starts of a gang since it was ready last, or since its user intervened.

    `hosts`: where pods were not ready in time. Of the last one: `at`, when it was given up (seconds since the epoch),
    `revision`, its assignment, and `seen`, the workload as it left it, to notice that its user has changed it.
    """

    count: int = 0
    hosts: tuple[str, ...] = ()
    at: float = 0.0
    revision: int = 0
    seen: str = ""


def failed_starts(status: Mapping[str, Any]) -> FailedStarts:
    """Return the failed starts of a gang; none where they are unreadable."""
    raw = status.get("failedStarts")
    if not isinstance(raw, Mapping):
        return FailedStarts()
    count, hosts, revision, seen = (raw.get(key) for key in ("count", "hosts", "revision", "seen"))
    return FailedStarts(
        count=count if isinstance(count, int) and count > 0 else 0,
        hosts=tuple(host for host in hosts if isinstance(host, str)) if isinstance(hosts, list | tuple) else (),
        at=parse_time(raw.get("at")) or 0.0,
        revision=revision if isinstance(revision, int) else 0,
        seen=seen if isinstance(seen, str) else "",
    )


def failed_starts_body(starts: FailedStarts) -> dict[str, Any]:
    """Return the JSON of `status.failedStarts`."""
    return {
        "count": starts.count,
        "hosts": list(starts.hosts),
        "at": timestamp(starts.at),
        "revision": starts.revision,
        "seen": starts.seen,
    }


def has_started(status: Mapping[str, Any]) -> bool:
    """Return True if pods of the gang were bound since it was placed."""
    return status.get("phase") in ("Starting", "Running", "Incomplete")


def was_ready(status: Mapping[str, Any]) -> bool:
    """Return True if all pods of the gang were ready since it was placed (its minimum, if it has one)."""
    return isinstance(status.get("readyAt"), str) or status.get("phase") == "Running"


def ready_since(status: Mapping[str, Any]) -> float | None:
    """Return when all pods of the gang were ready first (seconds since the epoch); None if unknown."""
    return parse_time(status.get("readyAt"))


def incomplete_since(status: Mapping[str, Any]) -> float | None:
    """Return when the status became Incomplete (seconds since the epoch); None when it is not, or unreadable.

    Two conditions change with that phase: Complete when the gang was complete before, Released when it never was.
    """
    if status.get("phase") != "Incomplete":
        return None
    return max(_transitions(status, ("Complete", "Released")), default=None)


def last_transition(status: Mapping[str, Any]) -> float | None:
    """Return when a condition last changed (seconds since the epoch); None if there is none, or no readable time."""
    return max(_transitions(status, None), default=None)


def _transitions(status: Mapping[str, Any], types: Collection[str] | None) -> Iterator[float]:
    """Yield when the conditions of some types (None: of all) changed last."""
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list | tuple) else ():
        if isinstance(one, Mapping) and (types is None or one.get("type") in types):
            when = parse_time(one.get("lastTransitionTime"))
            if when is not None:
                yield when


ReplanOutcome = Literal["Restarting", "Moved", "Kept"]


@dataclass(frozen=True, slots=True)
class ReplanRecord:
    """The answer to a value of `topogate.dev/replan`: each value is answered once.

    `revision`: the assignment that it was about, `generation`: the workload then, before it was suspended; `at` in
    seconds since the epoch. `Restarting`: the workload is suspended, until its pods have ended and it has other slots.
    """

    value: str
    outcome: ReplanOutcome
    revision: int
    generation: int
    at: float
    message: str = ""


def replan_record(status: Mapping[str, Any]) -> ReplanRecord | None:
    """Return the last answer to `topogate.dev/replan`; None where there is none or it is unreadable."""
    raw = status.get("replan")
    if not isinstance(raw, Mapping):
        return None
    value, revision, generation = (raw.get(key) for key in ("value", "revision", "generation"))
    known: tuple[ReplanOutcome, ...] = get_args(ReplanOutcome)
    outcome = next((one for one in known if one == raw.get("outcome")), None)
    if not isinstance(value, str) or outcome is None:
        return None
    return ReplanRecord(
        value=value,
        outcome=outcome,
        revision=revision if isinstance(revision, int) else 0,
        generation=generation if isinstance(generation, int) else 0,
        at=parse_time(raw.get("at")) or 0.0,
        message=text if isinstance(text := raw.get("message"), str) else "",
    )


def replan_body(record: ReplanRecord) -> dict[str, Any]:
    """Return the JSON of `status.replan`."""
    return {
        "value": record.value,
        "outcome": record.outcome,
        "revision": record.revision,
        "generation": record.generation,
        "at": timestamp(record.at),
        "message": record.message,
    }


# Victims of one preemption that are read and written; the CRD allows no more.
MAX_VICTIMS: Final = 10_000


@dataclass(frozen=True, slots=True)
class IntendedVictim:
    """A managed gang that ends: the uid of its Placement, the revision of its assignment, its pods and priority.

    Without names: everybody who may read the preemptor's Placement reads it, and the victim may be another tenant's.
    """

    uid: str
    revision: int
    pods: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class IntendedPod:
    """A pod that Topogate does not manage and that is evicted: its uid and host."""

    uid: str
    host: str


@dataclass(frozen=True, slots=True)
class PreemptionIntent:
    """What ends so that a waiting gang starts; written before any of it is touched.

    `since`: when it was decided (seconds since the epoch); None: nothing ends now. `seen`: the workload at that time.
    `attempts`: decisions in a row after which it did not start, this one not included; `retry_at`: when it may decide
    again (seconds since the epoch); `why`: why the last one ended. `moves`: the victims restart elsewhere. With a
    `since` and nothing that ends the gang has got its slots, and has not started yet.
    """

    since: float | None = None
    victims: tuple[IntendedVictim, ...] = ()
    pods: tuple[IntendedPod, ...] = ()
    seen: str = ""
    attempts: int = 0
    retry_at: float = 0.0
    why: str = ""
    moves: bool = False

    @property
    def active(self) -> bool:
        """True while something ends for it."""
        return self.since is not None and bool(self.victims or self.pods)

    @property
    def unproven(self) -> bool:
        """True while its gang has slots, or has just lost them, and did not start: it may have been in vain."""
        return self.since is not None and not self.active

    def placed(self) -> PreemptionIntent:
        """Return what is left when its gang has got slots."""
        return replace(self.ended(), since=self.since)

    def ended(self) -> PreemptionIntent:
        """Return what is left when nothing ends for it any more: how often it failed, and when it may try again."""
        return PreemptionIntent(attempts=self.attempts, retry_at=self.retry_at, why=self.why)


NO_INTENT: Final = PreemptionIntent()


def preemption_intent(status: Mapping[str, Any]) -> PreemptionIntent:
    """Return the preemption in a Placement's status; an inactive one where there is none or it is unreadable.

    What is not readable of it is left out: a victim without its uid or revision is none.
    """
    raw = status.get("preemption")
    if not isinstance(raw, Mapping):
        return NO_INTENT
    seen, why = raw.get("seen"), raw.get("why")
    return PreemptionIntent(
        since=parse_time(raw.get("since")),
        victims=tuple(victim for one in _objects(raw.get("victims")) if (victim := _victim(one)) is not None),
        pods=tuple(pod for one in _objects(raw.get("pods")) if (pod := _pod(one)) is not None),
        seen=seen if isinstance(seen, str) else "",
        attempts=max(0, _whole_number(raw.get("attempts")) or 0),
        retry_at=parse_time(raw.get("retryAt")) or 0.0,
        why=why if isinstance(why, str) else "",
        moves=raw.get("moves") is True,
    )


def moved_at(status: Mapping[str, Any]) -> float | None:
    """Return when a gang was last suspended to restart elsewhere for another one (seconds since the epoch)."""
    return parse_time(status.get("movedAt"))


def preemption_body(intent: PreemptionIntent) -> dict[str, Any] | None:
    """Return the JSON to merge as `status.preemption`; None removes one of an earlier write."""
    if intent.since is None and not intent.attempts:
        return None
    return {
        "since": timestamp(intent.since) if intent.since is not None else None,
        "seen": intent.seen or None,
        "moves": (intent.moves and intent.active) or None,
        "victims": [
            {"uid": one.uid, "revision": one.revision, "pods": one.pods, "priority": one.priority}
            for one in intent.victims[:MAX_VICTIMS]
        ]
        or None,
        "pods": [{"uid": one.uid, "host": one.host} for one in intent.pods[:MAX_VICTIMS]] or None,
        "attempts": intent.attempts or None,
        "retryAt": timestamp(intent.retry_at) if intent.retry_at else None,
        "why": intent.why or None,
    }


def _objects(raw: object) -> list[Mapping[str, Any]]:
    listed = raw[:MAX_VICTIMS] if isinstance(raw, list | tuple) else ()
    return [one for one in listed if isinstance(one, Mapping)]


def _victim(raw: Mapping[str, Any]) -> IntendedVictim | None:
    uid, revision = raw.get("uid"), _whole_number(raw.get("revision"))
    if not isinstance(uid, str) or not uid or revision is None:
        return None
    pods, priority = _whole_number(raw.get("pods")), _whole_number(raw.get("priority"))
    return IntendedVictim(uid, revision, max(0, pods or 0), priority or 0)


def _pod(raw: Mapping[str, Any]) -> IntendedPod | None:
    uid, host = raw.get("uid"), raw.get("host")
    return IntendedPod(uid, host) if isinstance(uid, str) and uid and isinstance(host, str) else None


def _whole_number(raw: object) -> int | None:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) else None
