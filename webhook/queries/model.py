"""The JSON output of the commands that ask a cluster: a stable contract with its schemas in schemas/.

Every key is always present; null stands for what is not known. `docs/reference/cli.md` explains the meaning.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.api.schema import AnswerPart


class GpuCounts(AnswerPart):
    """Whole GPUs; the parts add up to the total. Null: not known without the pods of all namespaces."""

    total: int = Field(description="GPUs that the nodes report.")
    used: int | None = Field(description="In use by pods, wholly or in part.")
    reserved: int | None = Field(description="Reserved for pods of placed gangs that are still to come.")
    kept: int | None = Field(description="Free, but kept for a gang that has waited longer than the policy's patience.")
    out: int | None = Field(description="Not in use on hosts that take no pods now (cordoned, not ready), or faulty.")
    free: int | None = Field(description="Free for new gangs.")


class HostGang(AnswerPart):
    """The pods of one gang on one host."""

    namespace: str = Field(description="Namespace of the gang's workload.")
    workload: str = Field(description="The workload, as `job/train`.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    pods: int = Field(description="Pods that are bound there.")
    reserved: int = Field(description="Pods still to come.")
    gpus: int = Field(description="GPUs of these pods, those to come too; of each pod in whole ones.")


class HostAnswer(AnswerPart):
    """One host."""

    name: str = Field(description="Name of the node.")
    domain: tuple[str, ...] = Field(description="Label values of the levels above the host, coarse to fine.")
    gpus: GpuCounts
    out: str | None = Field(description="Why it takes no pods now (`cordoned`, `not ready`, ...); null: it does.")
    kept_for: str | None = Field(description="The gang that its free capacity is kept for; null if none.")
    slots: int | None = Field(description="Pods of the asked size that fit now.")
    gangs: tuple[HostGang, ...] = Field(description="The gangs with pods or reserved slots there.")
    other_pods: int | None = Field(description="Bound pods of no gang.")


class DomainAnswer(AnswerPart):
    """One domain of a level."""

    level: str = Field(description="Alias of the level.")
    path: tuple[str, ...] = Field(description="Label values coarse to fine.")
    hosts: int = Field(description="Number of hosts.")
    free_hosts: int | None = Field(description="Hosts on which as many pods fit as on an empty one.")
    gpus: GpuCounts
    largest_gang: int | None = Field(description="Pods of the asked size that fit now, all in this domain.")
    out: dict[str, int] = Field(description="Hosts that take no pods now, by reason.")
    kept_for: tuple[str, ...] = Field(description="The gangs that hosts are kept for.")


class LevelAnswer(AnswerPart):
    """One level of a topology: what fits in one of its domains."""

    level: str = Field(description="Alias of the level.")
    domains: int = Field(description="Number of domains.")
    largest_gang: int | None = Field(description="Pods of the asked size that fit now in one domain.")
    largest_in: tuple[str, ...] | None = Field(description="The path of that domain; null if no pod fits.")
    fragmentation: float | None = Field(
        description="Share of all fitting pods that the largest domain has no room for: 0 is none, 1 is most."
    )


class LeftOut(AnswerPart):
    """A node that is not in the topology."""

    node: str = Field(description="Name of the node.")
    reason: str = Field(description="Why: `no label rack`, or outside of the topology's nodeSelector.")


class TopologyAnswer(AnswerPart):
    """One topology, with its domains coarse to fine in the order of the tree."""

    name: str = Field(description="Name of the topology.")
    levels: tuple[LevelAnswer, ...] = Field(description="Coarse to fine, the host level last.")
    hosts: int = Field(description="Number of hosts.")
    free_hosts: int | None = Field(description="Hosts on which as many pods fit as on an empty one.")
    gpus: GpuCounts
    largest_gang: int | None = Field(description="Pods of the asked size that fit now in all, without a level.")
    pod_gpus: int = Field(description="GPUs of each pod in `largestGang` and `slots`; 0 where no node has GPUs.")
    waits: str | None = Field(description="Why the levels are not known now; null: they are.")
    domains: tuple[DomainAnswer, ...] = Field(description="The domains of the levels that were asked for.")
    nodes: tuple[HostAnswer, ...] = Field(description="The hosts; empty unless they were asked for.")
    left_out: tuple[LeftOut, ...] = Field(description="Nodes that are not in the topology.")


class TopologiesAnswer(AnswerPart):
    """The answer of `topogate topology show`."""

    taken_at: str = Field(description="When the cluster was read.")
    mode: str = Field(
        description="Mode of the policy in force, with those of single namespaces: `enforce (off in ci-*)`."
    )
    policy: str = Field(description="Hash of the policy in force.")
    topologies: tuple[TopologyAnswer, ...]
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class GangPods(AnswerPart):
    """The pods of a gang."""

    bound: int = Field(description="Pods with a node.")
    wanted: int = Field(description="Pods that run at a time when the gang is whole.")


class GangStart(AnswerPart):
    """When a waiting gang can start, as far as that can be computed from declared deadlines."""

    by: str | None = Field(
        description="It fits by then if what runs takes its whole time and nothing new goes first; null: not known."
    )
    after: tuple[str, ...] = Field(description="What has to end until then, as `namespace/kind/name`.")


class GangNodes(AnswerPart):
    """The nodes that were requested for a waiting gang."""

    name: str = Field(description="Name of the ProvisioningRequest.")
    class_name: str = Field(description="Its provisioning class.")
    pods: int = Field(description="For how many pods.")
    attempt: int = Field(description="From 1; goes up when a request follows one that has ended.")
    state: str = Field(
        description="`Pending`, `Accepted`, `Provisioned`, `Failed`, `BookingExpired` or `CapacityRevoked`."
    )
    requested_at: str | None = Field(description="When it was made.")
    since: str | None = Field(description="When it got into this state.")
    retry_at: str | None = Field(description="When the next one follows; null: none does.")
    message: str = Field(description="What the autoscaler says; empty: nothing.")


class GangAnswer(AnswerPart):
    """One gang: a workload, or one replica group of it."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    placement: str | None = Field(description="Name of its Placement; null while there is none.")
    phase: str = Field(description="Phase of the gang; `Waiting` while there is no Placement.")
    reason: str = Field(description="Reason code; empty where nothing is wrong.")
    message: str = Field(description="The state as a sentence: for a waiting gang as the planner answers now.")
    pods: GangPods
    gpus: int = Field(description="GPUs of all its pods.")
    topology: str | None = Field(description="Name of the topology.")
    level: str | None = Field(description="The required level; null without one.")
    prefer: str | None = Field(description="The preferred level; null without one.")
    place: str = Field(description="The domains with slots in short: `block-0/rack-02`, `block-0 (2 racks)`.")
    domains: tuple[tuple[str, ...], ...] = Field(description="Their paths, hosts left out; empty while it waits.")
    hosts: tuple[str, ...] = Field(description="Its hosts; empty while it waits.")
    priority: int = Field(description="Its priority.")
    position: int | None = Field(
        description="Place in the queue of its topology, from 1; of a gang on hold the place that it keeps; null: none."
    )
    queued: int | None = Field(description="Number of gangs in that queue; null: not known.")
    created_at: str = Field(description="When the workload was created.")
    waiting_seconds: int | None = Field(
        description="How long it has waited, as its turn counts: since its creation or last requeue; null: it does not."
    )
    fits_now: bool | None = Field(description="Whether the planner would place it now; null: not known.")
    start: GangStart | None = Field(description="Of a waiting gang; null: it does not wait for capacity.")
    kept_hosts: tuple[str, ...] = Field(description="The hosts that are kept free for it.")
    provisioning: GangNodes | None = Field(
        description="What was requested from the node autoscaler while it waits; null: nothing."
    )


class GangsAnswer(AnswerPart):
    """The answer of `topogate gangs`: waiting gangs in the order of the queue, then the others by name."""

    taken_at: str = Field(description="When the cluster was read.")
    gangs: tuple[GangAnswer, ...]
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class FitDomain(AnswerPart):
    """A domain, and how many of the asked pods fit into it."""

    path: tuple[str, ...] = Field(description="Label values coarse to fine; empty: the whole topology.")
    pods: int = Field(description="Pods that fit now.")


class FitLevel(AnswerPart):
    """What fits at one level."""

    level: str | None = Field(description="Alias of the level; null: anywhere in the topology.")
    largest_gang: int = Field(description="Pods that fit now in one domain of it.")
    fits: bool = Field(description="Whether the gang would fit now if it required this level.")


class FitsAnswer(AnswerPart):
    """The answer of `topogate fits`."""

    taken_at: str = Field(description="When the cluster was read.")
    pods: int = Field(description="Pods of the gang.")
    gpus: int = Field(description="GPUs of each pod.")
    topology: str = Field(description="Name of the topology.")
    require: str | None = Field(description="The required level.")
    prefer: str | None = Field(description="The preferred level.")
    fits: bool = Field(description="Whether the gang would start now.")
    reason: str | None = Field(description="Reason code if it would not; null if it would.")
    message: str = Field(description="The answer as a sentence.")
    assignment: tuple[FitDomain, ...] = Field(description="Where it would start: the domains above the host.")
    best: tuple[FitDomain, ...] = Field(
        description="The domains with most room, at most ten: of the asked level, or of the lowest above the host "
        "without one, with `auto` and with the host level."
    )
    levels: tuple[FitLevel, ...] = Field(description="What fits at each level, fine to coarse.")
    until: str | None = Field(description="What ends the wait; null: it fits now, or never.")
    start: GangStart | None = Field(description="When there is room later; null: now, never, or something else lacks.")
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


class DomainPods(AnswerPart):
    """The pods of one gang in one domain."""

    path: tuple[str, ...] = Field(description="Label values of the domain above the host, coarse to fine.")
    pods: int = Field(description="Its pods there.")


class MovedGang(AnswerPart):
    """A running gang that would restart elsewhere."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    pods: int = Field(description="Pods that it has slots for.")
    priority: int = Field(description="Its priority.")
    running_seconds: int = Field(description="Since when it has its slots.")
    before: tuple[DomainPods, ...] = Field(description="Where it is: the domains above the host, with its pods.")
    after: tuple[DomainPods, ...] = Field(description="Where it would be.")


class MovesAnswer(AnswerPart):
    """The restarts with which one gang gets a better place."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    purpose: Literal["fits", "closer"] = Field(
        description="`fits`: it waits, and would start. `closer`: it runs, and would use fewer domains; it is one of "
        "the restarts itself."
    )
    pods: int = Field(description="Its pods.")
    priority: int = Field(description="Its priority.")
    assignment: tuple[DomainPods, ...] = Field(description="Where it would be: the domains above the host.")
    restarts: tuple[MovedGang, ...] = Field(
        description="The gangs that would restart, each at a place of its own, in the order in which to resume them."
    )
    restarted_pods: int = Field(description="Pods of all restarts.")
    lost_seconds: int = Field(description="Running time of all pods of all restarts.")
    proven: bool = Field(description="True when fewer restarts are not enough.")


class UnmovedGang(AnswerPart):
    """A gang for which no restarts were found, and why."""

    namespace: str = Field(description="Namespace of the workload.")
    kind: str = Field(description="Kind of the workload.")
    name: str = Field(description="Name of the workload.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    waits: bool = Field(description="Whether it waits; else it has slots.")
    message: str = Field(description="Why restarts of others do not help it.")


class DefragmentAnswer(AnswerPart):
    """The answer of `topogate defragment`."""

    taken_at: str = Field(description="When the cluster was read.")
    proposals: tuple[MovesAnswer, ...] = Field(
        description="One for each gang that restarts would help: those that wait in the order of the queue, then those "
        "that run. Each is about the cluster as it is now, without the others."
    )
    others: tuple[UnmovedGang, ...] = Field(
        description="The gangs that wait for room without a proposal, and those that were named."
    )
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")


Explained = Literal["placed", "fits", "waits", "never", "refused", "ignored", "finished", "orphaned"]
Change = Literal["level", "prefer", "pods", "toleration", "selector", "priority", "resume", "restarts", "wait"]


class AskedPods(AnswerPart):
    """The pods of one template, as they are asked for."""

    pod_set: str = Field(description="Name of the pod set; `main` if the kind has one.")
    pods: int = Field(description="Pods that run at a time.")
    least: int = Field(description="Pods with which it starts.")
    gpus: int = Field(description="GPUs of each pod.")
    require: str | None = Field(description="Required level of its pods, or of the whole gang.")
    prefer: str | None = Field(description="Preferred level of its pods, or of the whole gang.")


class LevelRoom(AnswerPart):
    """What one level has for the pods of one template now."""

    pod_set: str = Field(description="Name of the pod set.")
    level: str | None = Field(description="Alias of the level; null: the whole topology.")
    required: bool = Field(description="Whether this is the level that the pods require; without one the topology.")
    needed: int = Field(description="Pods that have to fit into one domain.")
    have: int = Field(description="Pods that fit into the best domain now.")
    most: int | None = Field(
        description="Pods that fit into the largest domain without other pods, on usable hosts; null: not known."
    )
    domains: int | None = Field(description="Number of domains; null: not known.")
    best: tuple[FitDomain, ...] = Field(description="The domains with most room, at most three.")


class Obstacle(AnswerPart):
    """Something that takes room, or keeps pods out, in the domain that is nearest to having room."""

    kind: Literal["gang", "pods", "host"] = Field(
        description="A gang, pods of no gang, or the state of hosts (cordoned, a taint, kept for a gang)."
    )
    name: str = Field(description="`namespace/kind/name` of what runs there, or the state of the hosts.")
    hosts: tuple[str, ...] = Field(description="The hosts.")
    ends: str | None = Field(description="When it ends at the latest, by its own deadline; null: not known.")


class GangAhead(AnswerPart):
    """A gang that goes first."""

    name: str = Field(description="`namespace/kind/name`.")
    why: str = Field(description="Why it goes first.")
    pods: int = Field(description="Its pods.")
    priority: int = Field(description="Its priority.")
    fits_now: bool | None = Field(description="Whether it would be placed now; null: not known.")


class WayOut(AnswerPart):
    """A change with which the gang would start, as the planner answers it."""

    change: Change = Field(description="What changes.")
    text: str = Field(description="The change in words.")
    result: str = Field(description="What the planner answers then.")
    to: str | None = Field(description="The level, number of pods, taint or PriorityClass of the change; else null.")
    command: str | None = Field(description="A command that makes the change; null where a new object is needed.")
    by: str | None = Field(description="When it starts then: null for a wait without a known end.")


class PreemptedGang(AnswerPart):
    """A running gang, or the pods of one owner, that ends for a gang of higher priority."""

    name: str | None = Field(
        description="`namespace/kind/name`; null where it may not be read, and for all pods that are not managed."
    )
    priority: int | None = Field(description="Its priority; null for pods that are not managed.")
    pods: int = Field(description="Its pods with a host, those to come included.")
    running: int | None = Field(description="How many of its pods have not ended yet; null: not known.")


class ExplainedPreemption(AnswerPart):
    """What ends, or would end, so that a waiting gang starts."""

    since: str | None = Field(description="Since when they end; null: they run on until now.")
    begins: str | None = Field(
        description="When they end at the earliest, by the policy's `preemption.after`; null: now, or they end already."
    )
    count: int = Field(description="Number of gangs.")
    pods: int = Field(description="Number of all pods.")
    running: int = Field(description="How many of these pods have not ended yet.")
    victims: tuple[PreemptedGang, ...] = Field(description="The gangs, at most twenty.")


class ExplainedPod(AnswerPart):
    """One pod of a gang with slots."""

    pod_set: str = Field(description="Name of the pod set.")
    rank: int | None = Field(description="Its rank; null without ranks.")
    pod: str | None = Field(description="Name of the pod; null while it does not exist.")
    host: str | None = Field(description="The host of its slot; null without a slot.")
    domain: tuple[str, ...] = Field(description="Label values of the levels above the host.")
    state: Literal["ready", "not ready", "not bound", "held", "ending", "missing", "completed"] = Field(
        description="`ready`, `not ready`, `not bound` (to a host), `held` (by the gate), `ending` (it is being "
        "deleted), `missing` (it does not exist), or `completed`."
    )
    why: str = Field(description="Why it is not ready; empty if it is, and of a rank that has completed.")
    devices: tuple[str, ...] = Field(description="Its devices, as `gpu 0-7`; empty where they are not known.")


class PastEvent(AnswerPart):
    """Something that happened to the gang."""

    at: str = Field(description="When it happened last.")
    reason: str = Field(description="Reason of the Event, or what the Placement records.")
    message: str = Field(description="Message of the Event; empty for what the Placement records.")
    count: int = Field(description="How often it happened.")


class ExplainedGang(AnswerPart):
    """One gang, pod or workload."""

    namespace: str = Field(description="Namespace of the object.")
    kind: str = Field(description="Kind of the object.")
    name: str = Field(description="Name of the object.")
    group: str | None = Field(description="The replica group; null when the workload is one gang.")
    verdict: Explained = Field(description="The state now; see below.")
    reason: str = Field(description="Reason code; empty where nothing is wrong.")
    message: str = Field(description="The state as a sentence, with numbers.")
    until: str | None = Field(description="What ends the wait; null: it does not wait.")
    faults: tuple[str, ...] = Field(description="The errors in its request, each with its path.")
    gang: GangAnswer | None = Field(description="The row of `topogate gangs`; null if it is not managed.")
    asks: tuple[AskedPods, ...] = Field(description="The request as it is understood.")
    levels: tuple[LevelRoom, ...] = Field(description="Of a waiting gang: coarse to fine, the whole topology first.")
    near: tuple[str, ...] | None = Field(description="The path of the domain that `inTheWay` is about.")
    in_the_way: tuple[Obstacle, ...] = Field(description="What takes room in that domain.")
    nodes: dict[str, int] = Field(description="Nodes of the topology by state; they add up to all of them.")
    order: str | None = Field(description="Order of the queue by the policy; null: it does not wait.")
    ahead: tuple[GangAhead, ...] = Field(description="The gangs that go first, at most ten.")
    ahead_count: int | None = Field(description="The number of all gangs that go first; null: not known.")
    ways_out: tuple[WayOut, ...] = Field(description="Changes with which it would start.")
    preempts: ExplainedPreemption | None = Field(description="What ends or would end for it; null: nothing.")
    preempted_by: str | None = Field(description="`namespace/kind/name` of the gang for which it ends; null: none.")
    revision: int | None = Field(description="Revision of its assignment; null without slots.")
    proven: bool | None = Field(description="Whether no plan uses fewer domains; null: not known.")
    pods: tuple[ExplainedPod, ...] = Field(description="Of a gang with slots, in the order of their ranks.")
    history: tuple[PastEvent, ...] = Field(description="Oldest first, at most twelve.")


class ExplainAnswer(AnswerPart):
    """The answer of `topogate explain`."""

    taken_at: str = Field(description="When the cluster was read.")
    gangs: tuple[ExplainedGang, ...] = Field(description="One for every gang of the object.")
    remarks: tuple[str, ...] = Field(description="What could not be read, and what is therefore not known.")
