"""What can be done next for a gang: one action at a time, and what people are told."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.placement import Assignment
from engine.api.pod import Pod
from engine.api.reasons import Code, Phase, Why
from engine.gang.repair import ExtensionRequest
from engine.gang.slots import SlotAssignment, Unassigned


@dataclass(frozen=True, slots=True)
class Status:
    """What people read of a gang."""

    phase: Phase
    reason: Why
    message: str
    hosts: tuple[str, ...] = ()  # kept free for it


@dataclass(frozen=True, slots=True)
class NoAction:
    """Nothing to do now."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Find slots for the whole gang; then write them down and, if it is held by suspension, resume it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The slots are written down: let the workload run."""


@dataclass(frozen=True, slots=True)
class Unplace:
    """Drop the assignment; with `suspend` the workload is suspended first.

    `pause`: it would fare no better elsewhere, so it is planned again only after a while, longer every time.
    """

    suspend: bool
    reason: Why
    message: str
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Shrink:
    """The workload was scaled down: write the smaller assignment, so that its slots are not taken for granted again."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ReassignDevices:
    """Devices that pods to come were to get are not there any more: write others, on the same hosts."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Extend:
    """Find slots for a part of a placed gang beside what stays of it, and write them into the same Placement.

    `why` says for people what is missing. Until there is room the gang goes on as it is: `meanwhile`.
    """

    extension: ExtensionRequest
    why: str
    meanwhile: Status


@dataclass(frozen=True, slots=True)
class EvictPods:
    """Have pods go that cannot go on where they are; `evict`: as their disruption budgets allow, else at once."""

    pods: tuple[Pod, ...]
    evict: bool
    reason: Code
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Pin and release these pods."""

    seats: tuple[SlotAssignment, ...]


@dataclass(frozen=True, slots=True)
class Unmanage:
    """The workload asks for nothing (any more): resume it if we hold it, free its pods, forget its Placement.

    `message` says so to people; `loses`: it had slots, which hold for its pods to come no more.
    """

    pods: tuple[Pod, ...]
    resume: bool
    forget: bool
    reason: Code
    message: str
    loses: bool


Action = NoAction | Enqueue | Resume | Unplace | Shrink | ReassignDevices | Extend | EvictPods | Release | Unmanage


@dataclass(frozen=True, slots=True)
class Decision:
    """The next action, what to tell (None: nothing new to say), pods without a slot, and when to look again."""

    action: Action
    status: Status | None = None
    refused: tuple[Unassigned, ...] = ()
    wake: float | None = None
