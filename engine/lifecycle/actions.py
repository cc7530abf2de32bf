"""The actions of the control loop: one at a time per gang, each with the status that users read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.api.placement import Assignment, FailedStarts, PreemptionIntent, ReplanRecord
from engine.api.pod import Pod
from engine.api.reasons import Code, Phase, Why
from engine.api.text import plural
from engine.gang.repair import ExtensionRequest
from engine.gang.slots import SlotAssignment, Unassigned
from engine.scheduler.outcome import Shortage
from engine.scheduler.queue import QueuePlace


@dataclass(frozen=True, slots=True)
class NodesNote:
    """What was requested from the node autoscaler for a gang: the end of its message, and `status.provisioning`."""

    text: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RestartProposal:
    """The running gangs with whose restarts elsewhere a waiting one would fit: uid of the Placement, and pods, of each.

    Without names: the users of the waiting gang may not know the others.
    """

    gangs: tuple[tuple[str, int], ...]

    @property
    def text(self) -> str:
        """The sentence about it."""
        pods = plural(sum(count for _, count in self.gangs), "pod")
        return f"would fit if {plural(len(self.gangs), 'running gang')} ({pods}) restarted elsewhere"

    @property
    def body(self) -> list[dict[str, Any]]:
        """The value of `status.proposal.restarts`."""
        return [{"uid": uid, "pods": count} for uid, count in self.gangs]


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a gang for its users; `hosts` are nominated for it, `shortage` has the numbers of the message.

    `place`: in the queue, of a gang that waits for room. `preemption`: to be written with it; None: what is written of
    one stays, if the reason is that it goes on. `provisioning`: what was requested from the autoscaler.
    `restarts`: those that would let it fit.
    """

    phase: Phase
    reason: Why
    message: str
    hosts: tuple[str, ...] = ()
    shortage: Shortage | None = field(default=None, compare=False)
    place: QueuePlace | None = field(default=None, compare=False)
    preemption: PreemptionIntent | None = field(default=None, compare=False)
    provisioning: Mapping[str, Any] | None = field(default=None, compare=False)
    restarts: RestartProposal | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NoAction:
    """Nothing to do now."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Find slots for the whole gang; then write the Placement and, if it is held by suspension, resume it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the workload; its slots are in the Placement."""


@dataclass(frozen=True, slots=True)
class Unplace:
    """Remove the assignment; with `suspend` the workload is suspended first.

    `pause`: other hosts would not help, so it is planned again only after a delay, longer every time. `failed`: the
    failed starts to record before anything else, as its start is one of them. `moves`: it is to restart elsewhere for
    another gang, which is recorded first too.
    """

    suspend: bool
    reason: Why
    message: str
    pause: bool = False
    failed: FailedStarts | None = None
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Shrink:
    """Write a smaller assignment for a workload that was scaled down, so that the removed slots are free.

    Or one with smaller slots, if its template has shrunk.
    """

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ReassignDevices:
    """Write other devices on the same hosts, because those of future pods are no longer available."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Extend:
    """Find slots for a part of a placed gang, and write them into the same Placement with the kept ones.

    `why` is what is missing, for users. Until capacity is free the gang continues as it is, with the status
    `meanwhile`. `first`: what is written instead if there is room for it.
    """

    extension: ExtensionRequest
    why: str
    meanwhile: Status
    first: Extend | None = None

    @property
    def requests(self) -> tuple[ExtensionRequest, ...]:
        """What is planned, in turn until one fits."""
        return (*(self.first.requests if self.first is not None else ()), self.extension)


@dataclass(frozen=True, slots=True)
class EvictPods:
    """Remove pods that cannot continue on their hosts; `evict`: as their disruption budgets allow, else at once."""

    pods: tuple[Pod, ...]
    evict: bool
    reason: Code
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Bind and release these pods."""

    assignments: tuple[SlotAssignment, ...]


@dataclass(frozen=True, slots=True)
class Unmanage:
    """Stop managing a workload without a request: resume it if we hold it, free its pods, forget its Placement.

    `message` is for users; `loses`: it had slots, which are no longer reserved for its future pods.
    """

    pods: tuple[Pod, ...]
    resume: bool
    forget: bool
    reason: Code
    message: str
    loses: bool


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan a gang with slots anew, as its user asks with this value: it restarts if its place becomes better.

    A running gang is suspended first; one that is suspended for this gets its new slots.
    """

    value: str


@dataclass(frozen=True, slots=True)
class RecordReplan:
    """Write the answer to a request to plan the gang anew; None: the request was taken back, and may be made again."""

    record: ReplanRecord | None


Action = (
    NoAction
    | Enqueue
    | Resume
    | Unplace
    | Shrink
    | ReassignDevices
    | Extend
    | EvictPods
    | Release
    | Replan
    | RecordReplan
    | Unmanage
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The next action, the status to report (None: nothing new), pods without a slot, and when to reconcile again."""

    action: Action
    status: Status | None = None
    refused: tuple[Unassigned, ...] = ()
    wake: float | None = None
