"""The life of a gang as a state machine. Pure: what is seen in, what to do next out.

The machine is level-triggered: `decide` looks at the workload, its Placement, its pods and the clock, and names the one
next action; it keeps nothing but the timers that its caller hands back (`Timers`: losing them at a fail-over only
restarts a waiting time). Steps and rules: docs/concepts/gangs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine import names
from engine.gang_keys import key_of
from engine.members import held_by_us, pinned_host, suspended_by_user
from engine.policy import Policy
from engine.records import Assignment, Placement, Pod, PodSetRequest, Shape, Workload
from engine.requests import Understanding
from engine.reservations import reservation
from engine.seats import Refused, Seat, seat, slots_of, trimmed
from engine.wording import plain, plural

# Back-off of a host that the scheduler refused, per gang: doubles from the first value to the second (seconds).
EXCLUDE_FIRST = 60.0
EXCLUDE_MOST = 1800.0
# Characters of the scheduler's own words that are passed on; its list of reasons over all nodes can be far longer.
MAX_REASON = 300
# Room that comes back on a host is no event of the gang whose pods wait for it (seconds).
BLOCKED_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class Gang:
    """All that is seen of one gang; `shapes` is what a pod of each pod set needs (`View.shape_of`), by name."""

    workload: Workload
    understanding: Understanding
    placement: Placement | None
    pods: tuple[Pod, ...]
    shapes: Mapping[str, Shape]
    group: str | None = None  # the index of the replica, for kinds with a gang per replica

    @property
    def key(self) -> str:
        """What the gang is known by in the view, the ledger and the queue."""
        return key_of(self.workload, self.group)


@dataclass(slots=True)
class Timers:
    """What the leader remembers of a gang between two looks; all times from the leader's own clock."""

    empty_since: float | None = None  # since when it is placed and not suspended, without a single pod
    unbound_since: dict[str, float] = field(default_factory=dict)  # pod uid -> first seen released and unbound
    excluded: dict[str, tuple[float, float]] = field(default_factory=dict)  # host -> (until, back-off)
    retry_at: float = 0.0  # not planned again before this

    def exclude(self, host: str, now: float) -> None:
        """Leave a host out for a while, twice as long as the last time."""
        _, backoff = self.excluded.get(host, (0.0, EXCLUDE_FIRST / 2))
        backoff = min(backoff * 2, EXCLUDE_MOST)
        self.excluded[host] = (now + backoff, backoff)

    def hosts_out(self, now: float) -> frozenset[str]:
        """Hosts that are left out at the moment."""
        return frozenset(host for host, (until, _) in self.excluded.items() if until > now)

    def next_back(self, now: float) -> float | None:
        """When the next of these hosts counts again; None when none is left out."""
        return min((until for until, _ in self.excluded.values() if until > now), default=None)


@dataclass(frozen=True, slots=True)
class Status:
    """What people read of a gang."""

    phase: str  # Waiting | Placed | Running | Incomplete | Finished
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do now."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Find slots for the whole gang; then write them down and, if it is held by suspension, resume it."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The slots are written down: let the workload run."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Drop the assignment; with `suspend` the workload is suspended first (nothing of it has started)."""

    suspend: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """The workload was scaled down: write the smaller assignment, so that its slots are not taken for granted again."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ChooseAnew:
    """Devices that pods to come were to get are not there any more: write others, on the same hosts."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Release:
    """Pin and release these pods."""

    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class LetGo:
    """The workload asks for nothing (any more): resume it if we hold it, free its pods, forget its Placement."""

    pods: tuple[Pod, ...]
    resume: bool
    forget: bool
    reason: str


Action = Rest | Plan | Resume | GiveBack | Shrink | ChooseAnew | Release | LetGo


@dataclass(frozen=True, slots=True)
class Decision:
    """The next action, what to tell (None: nothing new to say), pods without a slot, and when to look again."""

    action: Action
    status: Status | None = None
    refused: tuple[Refused, ...] = ()
    wake: float | None = None


def ours(workload: Workload) -> bool:
    """True when we hold the workload, or its template carries our gate: then its pods wait for us."""
    return held_by_us(workload) or any(names.GATE in pod_set.template.gates for pod_set in workload.pod_sets)


def can_suspend(workload: Workload) -> bool:
    """True when suspension is ours to use: the kind can, and nobody but a CronJob owns the workload."""
    return workload.suspendable and (workload.owner is None or workload.owner.kind == "CronJob")


def stale(gang: Gang) -> bool:
    """True when the assignment answers another question than the workload asks now."""
    asked, placement = gang.understanding, gang.placement
    if not asked.asks or placement is None or placement.assignment is None:
        return False
    planned = (tuple(map(request_of, placement.pod_sets)), placement.gang, placement.topology)
    return planned != (tuple(map(request_of, asked.asks)), asked.gang, asked.topology)


def request_of(pod_set: PodSetRequest) -> tuple[object, ...]:
    """What two requests for a pod set must share to have the same answer."""
    levels = (pod_set.require, pod_set.prefer, pod_set.unconstrained, pod_set.slices, pod_set.colocate)
    return (pod_set.name, pod_set.count, pod_set.min_available, *levels, pod_set.shape_hash, pod_set.ranked)


def decide(
    gang: Gang,
    *,
    timers: Timers,
    policy: Policy,
    now: float,
    overbooked: Callable[[str], bool],
    usable: Callable[[str], bool],
    other_devices: Callable[[], Assignment | None] = lambda: None,
) -> Decision:
    """The next step of a gang.

    `overbooked(host)` tells whether others took room that is reserved for us there; `usable(host)` whether a pod of the
    gang could still go there (the node is there, ready, and takes the shape). `other_devices()` is the assignment with
    other devices where those of pods to come are lost; None when none are, or there are no others.
    """
    workload, placement = gang.workload, gang.placement
    gated = tuple(pod for pod in gang.pods if names.GATE in pod.spec.gates and not pod.finished and not pod.deleting)
    if workload.finished or workload.deleting:
        return Decision(
            Rest(),
            Status("Finished", "", "the workload has ended; its slots are free")
            if placement is not None and workload.finished
            else None,
        )
    if policy.mode != "enforce" or (gang.understanding.ask is None and not gang.understanding.errors):
        return _without_request(gang, gated)
    assigned = placement is not None and placement.assignment is not None
    if gang.understanding.errors and (not assigned or workload.suspended):
        return _misunderstood(gang, gated)
    # A gang that was placed goes on in its slots, also when the policy in force would refuse its request today.
    if (placement is None or placement.assignment is None) and not gated and (not ours(workload) or _runs(gang)):
        return Decision(Rest())  # it ran before we were asked, or was let go: new workloads only
    if suspended_by_user(workload):
        return _user_suspension(gang)
    if placement is None or placement.assignment is None:
        return Decision(Plan(), wake=timers.retry_at if timers.retry_at > now else None)
    if (fresh := other_devices()) is not None and not stale(gang):
        return Decision(ChooseAnew(fresh))
    if workload.suspended:
        return _before_resume(gang, usable=usable, overbooked=overbooked)
    return _running(gang, gated, timers=timers, policy=policy, now=now, overbooked=overbooked, usable=usable)


def _runs(gang: Gang) -> bool:
    """True when pods of the gang have a node and nothing of ours stops the others."""
    return not gang.workload.suspended and any(pod.spec.node_name and not pod.finished for pod in gang.pods)


def _without_request(gang: Gang, gated: tuple[Pod, ...]) -> Decision:
    placement, held = gang.placement, held_by_us(gang.workload)
    forget = placement is not None and not placement.deleting
    if not held and not gated and not forget:
        return Decision(Rest())
    reason = gang.understanding.ignored or "PolicyOff"
    return Decision(LetGo(gated, resume=held, forget=forget, reason=reason))


def _misunderstood(gang: Gang, gated: tuple[Pod, ...]) -> Decision:
    """It asks for something that the policy in force does not allow or know: nothing of it starts."""
    placement, error = gang.placement, gang.understanding.errors[0]
    if suspended_by_user(gang.workload):
        return _user_suspension(gang)
    status = Status("Waiting", error.reason, f"{error.field}: {error.message}")
    if placement is not None and placement.assignment is not None:
        return Decision(GiveBack(suspend=False, reason=status.reason, message=status.message), status)
    return Decision(Rest(), status) if held_by_us(gang.workload) or gated else Decision(Rest())


def _user_suspension(gang: Gang) -> Decision:
    placement = gang.placement
    status = Status("Waiting", "Suspended", "suspended by its user; it is planned when it is resumed")
    if placement is None:
        return Decision(Rest())
    if placement.assignment is not None:
        return Decision(GiveBack(suspend=False, reason=status.reason, message=status.message), status)
    return Decision(Rest(), status)


def _before_resume(gang: Gang, *, usable: Callable[[str], bool], overbooked: Callable[[str], bool]) -> Decision:
    """Mostly plan and resume are one errand. Else time has passed in between: the slots must still be there."""
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    hosts = sorted({slot.host for slot in slots_of(placement.assignment)})
    if stale(gang):
        return Decision(GiveBack(suspend=False, reason="Suspended", message="the request changed"))
    if (gone := next((host for host in hosts if not usable(host)), None)) is not None:
        message = f"{gone} does not take the gang any more"
        return Decision(GiveBack(suspend=False, reason="NodesUnhealthy", message=message))
    if (taken := next((host for host in hosts if overbooked(host)), None)) is not None:
        message = f"room reserved on {taken} was taken by other pods"
        return Decision(GiveBack(suspend=False, reason="ReservedByOthers", message=message))
    return Decision(Resume())


def _running(
    gang: Gang,
    gated: tuple[Pod, ...],
    *,
    timers: Timers,
    policy: Policy,
    now: float,
    overbooked: Callable[[str], bool],
    usable: Callable[[str], bool],
) -> Decision:
    workload, placement = gang.workload, gang.placement
    assert placement is not None and placement.assignment is not None
    if (smaller := trimmed(workload, placement, gang.pods)) is not None:
        return Decision(Shrink(smaller))
    live = [pod for pod in gang.pods if not pod.finished and not pod.deleting]
    started = any(pod.spec.node_name for pod in gang.pods)
    if timers.empty_since is None or live or started:
        timers.empty_since = now
    seating = seat(workload, placement, gang.pods)
    seats = tuple(one for one in seating.seats if usable(one.slot.host) and not overbooked(one.slot.host))
    blocked = tuple(one for one in seating.seats if one not in seats)
    unbound = [pod for pod in live if not pod.spec.node_name and not pod.spec.gates]
    _age(timers.unbound_since, unbound, now)
    late = [pod for pod in unbound if now - timers.unbound_since[pod.uid] >= policy.timeouts.bind]
    free_to_move = not started and can_suspend(workload)
    grown = workload.slots > sum(slot.count for slot in slots_of(placement.assignment))
    if grown and free_to_move and not unbound and gang.understanding.ask is not None:
        return Decision(GiveBack(suspend=True, reason="Suspended", message="the request changed"))
    if late:
        quoted = plain(late[0].unschedulable or "no reason given yet", MAX_REASON)
        hosts = {host for pod in late if (host := pinned_host(pod.spec.shape))}
        message = f"{plural(len(late), 'pod')} not bound after {policy.timeouts.bind:g} s; the scheduler says: {quoted}"
        if free_to_move:
            for host in hosts:
                timers.exclude(host, now)
            return Decision(GiveBack(suspend=True, reason="SchedulerRefused", message=message))
        return Decision(
            Release(seats) if seats else Rest(), _incomplete("SchedulerRefused", message, started), seating.refused
        )
    if blocked:
        host = blocked[0].slot.host
        why = f"room reserved on {host} was taken by other pods" if usable(host) else f"{host} takes no pods any more"
        reason = "ReservedByOthers" if usable(host) else "NodeLost"
        if not started and not unbound:
            # Nothing of it was let go yet: all of it goes elsewhere, none of it starts without the rest. The host is
            # not left out: the ledger knows what is wrong with it, and pods that grew may still find room there.
            return Decision(GiveBack(suspend=can_suspend(workload), reason=reason, message=why))
        status = _incomplete(reason, why, started)
        return Decision(Release(seats) if seats else Rest(), status, seating.refused, wake=now + BLOCKED_LOOK)
    if seats:
        return Decision(Release(seats), _progress(gang, live), seating.refused)
    wanted = sum(min(pod_set.slots, pod_set.remaining) for pod_set in workload.pod_sets)
    awaited = not live and not started and wanted > 0 and can_suspend(workload)
    if awaited and now - timers.empty_since >= policy.timeouts.hold:
        message = f"no pod appeared in {policy.timeouts.hold:g} s; the slots go back (quota? a failing creation?)"
        return Decision(GiveBack(suspend=True, reason="HoldExpired", message=message))
    wakes = [since + policy.timeouts.bind for since in timers.unbound_since.values()]
    if awaited:
        wakes.append(timers.empty_since + policy.timeouts.hold)
    return Decision(Rest(), _progress(gang, live), seating.refused, wake=min(wakes, default=None))


def _age(since: dict[str, float], unbound: list[Pod], now: float) -> None:
    current = {pod.uid for pod in unbound}
    for uid in [uid for uid in since if uid not in current]:
        del since[uid]
    for uid in current:
        since.setdefault(uid, now)


def _progress(gang: Gang, live: list[Pod]) -> Status:
    """Placed until every slot has its bound pod, then Running; Incomplete when one is lost again."""
    placement = gang.placement
    assert placement is not None
    missing = sum(reservation(gang.workload, placement, gang.pods).values())
    bound = sum(1 for pod in live if pod.spec.node_name)
    if missing == 0 and bound:
        return Status("Running", "", f"{plural(bound, 'pod')} bound")
    before = placement.status.get("phase")
    if before in ("Running", "Incomplete") and bound:
        return Status(
            "Incomplete", "WaitingForMembers", f"{plural(missing, 'pod')} of the gang to come back to its slot"
        )
    return Status("Placed", "", f"{plural(missing, 'pod')} to be bound")


def _incomplete(reason: str, message: str, started: bool) -> Status:
    return Status("Incomplete" if started else "Placed", reason, message)
