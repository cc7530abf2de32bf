"""Reconciles a gang that is placed and resumed: losses, releases, repair, growth, time-outs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from engine.api.duration import format_duration
from engine.api.placement import (
    Assignment,
    Placement,
    has_started,
    was_ready,
)
from engine.api.pod import Pod
from engine.api.reasons import reason_of
from engine.api.resources import at_most
from engine.api.text import plural, sanitize
from engine.gang.gang import (
    STEADY_AFTER,
    Gang,
    at_fault,
    by_pod_set,
    can_suspend,
    enough_ready,
    host_of,
    not_ready,
    pinned_host,
)
from engine.gang.repair import ExtensionRequest, growth_request, repair_request
from engine.gang.request import requires_others
from engine.gang.reservation import filling, reservations
from engine.gang.slots import (
    SlotAssignments,
    Unassigned,
    assign_slots,
    completed_in_jobs,
    lacking_slots,
    ranks_completed_in_jobs,
    scaled_down,
)
from engine.lifecycle.actions import Decision, EvictPods, Extend, NoAction, Release, Shrink, Status, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth, in_the_way, losses, named, on_gone_node, stuck
from engine.lifecycle.moves import (
    leave_hosts,
    leaving_pods,
    move_request,
    replan_running,
    return_slots,
    who_leaves,
    without_slot_text,
)
from engine.lifecycle.starts import left_to_start, not_ready_in_time, not_ready_text, recovery
from engine.lifecycle.unbound import (
    about_the_pod,
    not_bound,
    off_their_slots,
    off_their_slots_text,
    old_labels_text,
    pinned_by_old_labels,
    replaced_freely,
    without_slots,
    without_slots_text,
)
from engine.policy.model import Policy

# Seconds. Capacity freed on a host is no event of a gang with pods that wait for it, so it is reconciled after this.
BLOCKED_CHECK = 5.0
# Seconds. A pod that has succeeded leaves the cache before its workload's status counts it.
MISSED_AFTER = 5.0
# The Job controller recreates a lost pod after 10, 20, 40 s ..., and no later than this.
JOB_BACK_OFF = "6 min"


def running(gang: Gang, *, timers: Timers, policy: Policy, now: float, wall: float, hosts: HostHealth) -> Decision:
    """Return the next step of a gang that is placed and not suspended.

    `now` is the leader's own clock, `wall` the time of day, in which the status records since when a phase lasts.
    """
    assert gang.placement is not None and gang.placement.assignment is not None
    smaller = scaled_down(gang.workload, gang.placement, gang.pods)
    if (smaller := _for_less(gang, smaller or gang.placement.assignment) or smaller) is not None:
        return Decision(Shrink(smaller))
    if (replanned := replan_running(gang, wall=wall)) is not None:
        return replanned
    return _Pass(gang, gang.placement, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts).decide()


class _Pass:
    """One pass over a running gang: the steps that may follow, of which it takes the first that is due.

    Each step returns its decision, or None if the next ones may follow; it may leave them a status or a time to wake.
    """

    def __init__(
        self,
        gang: Gang,
        placement: Placement,
        *,
        timers: Timers,
        policy: Policy,
        now: float,
        wall: float,
        hosts: HostHealth,
    ) -> None:
        self._gang, self._placement, self._workload = gang, placement, gang.workload
        self._timers, self._policy, self._now, self._wall, self._hosts = timers, policy, now, wall, hosts
        self._live = [pod for pod in gang.pods if pod.live]
        self._unready = not_ready(self._live, wall)
        self._started = any(pod.spec.node_name and not pod.deleting for pod in gang.pods)
        like_planned = filling(gang.workload, placement, gang.pods)
        self._there = any(pod.live or (pod.spec.node_name and not pod.deleting) for pod in like_planned)
        self._unbound = [pod for pod in self._live if not pod.spec.node_name and not pod.spec.gates]
        self._late: list[Pod] = []  # pods that their host has kept unbound for too long
        self._status: Status | None = None  # more urgent than the progress
        self._wakes: list[float | None] = []

    def decide(self) -> Decision:
        """Return the decision of the first step that is due."""
        if self._there:
            self._timers.empty_since = None  # not the time of this pass: the next one may come hours later
        elif self._timers.empty_since is None:
            self._timers.empty_since = self._now
        return self._lost_nodes() or self._time_outs() or self._never_bound() or self._slots()

    def _lost_nodes(self) -> Decision | None:
        """React to live pods on lost nodes."""
        loss = losses(self._gang, hosts=self._hosts, timers=self._timers, policy=self._policy, now=self._now)
        if loss is None or not isinstance(loss.action, NoAction):
            return loss
        self._status = loss.status
        self._wakes.append(loss.wake)
        return None

    def _time_outs(self) -> Decision | None:
        """Restart a gang that was incomplete, or not ready, for too long."""
        gang, timers, policy, now, wall = self._gang, self._timers, self._policy, self._now, self._wall
        restart, recover = recovery(gang, timers=timers, policy=policy, now=now, wall=wall, started=self._started)
        if restart is not None:
            return restart
        restart, overdue = not_ready_in_time(
            gang, self._live, self._unready, timers=timers, policy=policy, now=now, wall=wall, hosts=self._hosts
        )
        self._wakes += [recover, overdue]
        self._wakes += [
            now + one.since + STEADY_AFTER - wall for pod in self._unready if (one := pod.readiness) and one.ready
        ]
        return restart

    def _never_bound(self) -> Decision | None:
        """Move a gang whose pods are not bound in time, as long as none has started; else tell why."""
        timers, now, timeout = self._timers, self._now, self._policy.timeouts.bind
        timers.age(self._unbound, now)
        self._wakes += [since + timeout for since in timers.unbound_since.values()]
        unmet = [pod for pod in self._unbound if now - timers.unbound_since[pod.uid] >= timeout]
        if not unmet:
            return None
        # Without a message of the scheduler the host is not the cause: the scheduler is down, far behind, or waits for
        # a volume that is being made, and on any other host the gang would wait for that once more.
        refused = [pod for pod in unmet if pod.unschedulable]
        futile = [pod for pod in refused if about_the_pod(pod.unschedulable)]
        self._late = [pod for pod in refused if pod not in futile]
        self._status = not_bound(futile or self._late or unmet, self._policy, self._started)
        if self._started or not refused or not can_suspend(self._workload):
            return None
        reason, message = self._status.reason, self._status.message
        if futile:
            message += "; another host would not help: the slots are released, and it is tried again later"
            return Decision(Unplace(suspend=True, reason=reason, message=message, pause=True))
        for pod in self._late:
            timers.exclude_host(pod, pinned_host(pod.spec.shape), now)
        return Decision(Unplace(suspend=True, reason=reason, message=message))

    def _slots(self) -> Decision:
        """Release pods to their slots, replace slots that are lost, add those that are missing, or wait."""
        if self._started:
            self._timers.forget_pauses()
        replaceable = self._replaceable()
        assignments = assign_slots(self._workload, self._placement, self._gang.pods)
        blocked_host = next((one.slot.host for one in assignments.assignments if self._blocked(one.slot.host)), None)
        orphaned = on_gone_node(self._gang, self._hosts)
        grown, coming = (None, 0) if orphaned else self._growth()
        if not self._started and not self._unbound:
            anew = self._plan_anew(assignments, blocked_host, grown)
            if anew is not None:
                return anew
        refused = assignments.refused if grown is None else ()
        released = self._release(assignments, refused)
        if released is not None:
            return released
        self._wakes.append(self._now + BLOCKED_CHECK if blocked_host is not None or self._late else None)
        repair, move = self._requests(replaceable, orphaned=orphaned)
        return (
            self._hold_expired()
            or self._evict_displaced()
            or self._replace_slots(repair, move, refused)
            or self._leave_hosts(move, refused)
            or (None if orphaned else self._return_slots(refused))
            or self._grow(grown)
            or self._wait(assignments, coming)
        )

    def _replaceable(self) -> list[Pod]:
        """Return the pods that are replaced because their host keeps them unbound; their hosts are left out."""
        replaceable = [pod for pod in self._late if replaced_freely(self._gang, pod, self._started)]
        for pod in replaceable:
            host = pinned_host(pod.spec.shape)
            self._timers.exclude_host(pod, host, self._now)
            self._timers.keep_excluded(host, self._now)  # until another slot is found, or it is bound after all
        return replaceable

    def _blocked(self, host: str) -> bool:
        """Return True if no pod of the gang may be released to a host."""
        left_out = host in self._excluded or host in self._gang.request.leave_hosts
        return left_out or not self._hosts.usable(host) or self._hosts.overcommitted(host)

    @cached_property
    def _excluded(self) -> frozenset[str]:
        """The hosts that are excluded now, with those of this pass; computed once."""
        return self._timers.hosts_out(self._now)

    def _growth(self) -> tuple[ExtensionRequest | None, int]:
        """Return the request for further slots, or the number of pods that are planned when they exist."""
        grown = _growth_of(self._gang, self._hosts, self._completed)
        if grown is not None and (self._started or self._unbound) and _unseen(self._gang):
            return None, grown.more
        return grown, 0

    def _plan_anew(
        self, assignments: SlotAssignments, blocked_host: str | None, grown: ExtensionRequest | None
    ) -> Decision | None:
        """Release the slots of a gang of which no pod is released yet, where they are not what it needs."""
        suspend = can_suspend(self._workload)
        if blocked_host is not None:
            # The whole gang moves, so that no part starts without the rest. The host is not excluded: the ledger knows
            # what is wrong with it, and pods that grew may still fit there.
            reason, message = in_the_way(blocked_host, self._hosts)
            return Decision(Unplace(suspend=suspend, reason=reason, message=message))
        other = bool(assignments.assignments) and requires_others(self._placement, self._gang.request)
        other = other or _resized(self._placement, self._gang)
        if other or (grown is not None and not _enough(self._placement, self._gang)):
            return Decision(Unplace(suspend=suspend, reason="", message="the request changed: it is planned again"))
        return None

    def _release(self, assignments: SlotAssignments, refused: tuple[Unassigned, ...]) -> Decision | None:
        """Release the pods with usable slots."""
        ready = tuple(one for one in assignments.assignments if not self._blocked(one.slot.host))
        if not ready:
            return None
        group = self._gang.pod_group
        if group is not None and not (group.placed or group.started):
            # Those released before keep their slots; no other pod starts before the minimum of the group has some.
            self._status = self._status or Status("Placed", "WaitingForMembers", group.unplaced_text)
            return None
        return Decision(Release(ready), self._status or self._progress(), refused)

    def _replace_slots(
        self, repair: ExtensionRequest | None, move: ExtensionRequest | None, refused: tuple[Unassigned, ...]
    ) -> Decision | None:
        """Find slots for those that are lost: if there is room, with those of pods that are to leave their hosts."""
        if repair is None:
            return None
        why = _lost(repair, self._placement, self._status, self._hosts)
        meanwhile = self._status or Status("Incomplete" if self._started else "Placed", "NodeLost", why)
        first = None
        if move is not None:
            first = Extend(move, f"{who_leaves(self._gang, leaving_pods(self._gang))}; {why}", meanwhile)
        return Decision(Extend(repair, why, meanwhile, first), None, refused, wake=self._wake())

    def _requests(
        self, replaced: Sequence[Pod], *, orphaned: bool
    ) -> tuple[ExtensionRequest | None, ExtensionRequest | None]:
        """Return the request for lost slots alone, and the one with those of pods that are to leave their hosts.

        A rank without any pod counts only after a while. One that has completed in its Job does not: it keeps its slot,
        for a restart, and needs none before.
        """
        vacant: list[tuple[str, int]] = []
        since = self._timers.vacant_since

        def missed(pod_set: str, rank: int) -> bool:
            if rank in self._completed.get(pod_set, ()):
                return False
            vacant.append((pod_set, rank))
            return self._now - since.get((pod_set, rank), self._now) >= MISSED_AFTER

        repair, move, pods = None, None, self._gang.pods
        if (self._started or self._unbound) and not orphaned:
            repair = repair_request(
                self._workload, self._placement, pods, blocked=self._blocked, missed=missed, replaced=replaced
            )
            move = move_request(self._gang, blocked=self._blocked, missed=missed, replaced=replaced)
        self._timers.miss(vacant, self._now)
        self._wakes += [when + MISSED_AFTER for when in since.values()]
        return repair, move

    @cached_property
    def _completed(self) -> dict[str, set[int]]:
        """The ranks that have completed in Jobs that run on, by pod set; computed once."""
        return ranks_completed_in_jobs(self._gang)

    def _evict_displaced(self) -> Decision | None:
        """Remove unbound pods that are not on their slots, or that their node does not take with its labels of now."""
        for displaced, text in (
            (off_their_slots(self._gang, self._unbound, started=self._started), off_their_slots_text),
            (without_slots(self._gang, self._unbound), without_slots_text),
            (pinned_by_old_labels(self._gang, self._unbound, self._hosts), old_labels_text),
        ):
            if due := self._timers.remove(displaced, self._now):
                return Decision(EvictPods(due, evict=False, reason="NodeLost", message=text(due)), self._status)
        return None

    def _leave_hosts(self, request: ExtensionRequest | None, refused: tuple[Unassigned, ...]) -> Decision | None:
        """Move pods off the hosts that their user wants them to leave."""
        if not self._gang.request.leave_hosts:
            return None
        progress = self._status or self._progress()
        move = leave_hosts(self._gang, request, timers=self._timers, now=self._now, progress=progress)
        if move is None:
            return None
        self._wakes.append(move.wake)
        return replace(move, refused=refused, wake=self._wake())

    def _return_slots(self, refused: tuple[Unassigned, ...]) -> Decision | None:
        """Have slots where pods run that did not follow theirs to another host."""
        back = return_slots(self._gang, lambda: self._status or self._progress())
        return replace(back, refused=refused, wake=self._wake()) if back is not None else None

    def _grow(self, grown: ExtensionRequest | None) -> Decision | None:
        """Find further slots, unless there is something more urgent to tell."""
        if grown is None or self._status is not None:
            return None
        joins = f"{plural(grown.more, 'more pod')} to join"
        why = without_slot_text(self._gang, grown.returned) if grown.returned else joins
        return Decision(Extend(grown, why, self._progress()), wake=self._wake())

    def _hold_expired(self) -> Decision | None:
        """Release the slots if no pod like the planned ones appears in time."""
        wanted = sum(pod_set.needed for pod_set in self._workload.pod_sets)
        if self._there or wanted <= 0:
            return None
        assert self._timers.empty_since is not None
        hold = self._policy.timeouts.hold
        if self._now < self._timers.empty_since + hold:
            self._wakes.append(self._timers.empty_since + hold)
            return None
        self._timers.expired = True
        which = "no pod with the devices of its template" if self._live or self._started else "no pod"
        message = (
            f"{which} was created within {format_duration(hold)}; the slots are released "
            f"(quota exceeded, or creation failing? see the Events of the {sanitize(self._workload.kind)})"
        )
        suspend = can_suspend(self._workload) and not self._started
        return Decision(Unplace(suspend=suspend, reason="HoldExpired", message=message, pause=True))

    def _wait(self, assignments: SlotAssignments, coming: int) -> Decision:
        status = self._status or _with_refused(_with_coming(self._progress(), coming), self._gang)
        return Decision(NoAction(), status, assignments.refused, wake=self._wake())

    def _wake(self) -> float | None:
        """Return when to look at the gang again, though nothing has changed."""
        return min((one for one in self._wakes if one is not None and one > self._now), default=None)

    def _progress(self) -> Status:
        slow = bool(self._unready) and left_to_start(self._gang, self._live, self._policy, self._wall) <= 0
        return _progress(self._gang, self._live, self._unready, self._hosts, self._completed, slow=slow)


def _growth_of(gang: Gang, hosts: HostHealth, completed: Mapping[str, Collection[int]]) -> ExtensionRequest | None:
    """Return the request for further slots under the current request; None if there is nothing to add."""
    asked = gang.request
    if gang.placement is None or not asked.pod_sets:
        return None
    return growth_request(
        gang.workload,
        gang.placement,
        gang.pods,
        asks=asked.pod_sets,
        gang=asked.gang,
        gone=hosts.gone,
        completed=completed,
    )


def _for_less(gang: Gang, assignment: Assignment) -> Assignment | None:
    """Return the assignment with slots for what a template requests that has shrunk; None where none has.

    The rest is given to others. If it grows back, no slot is larger than that, and pods made meanwhile fill theirs.
    """
    if gang.workload.handling == "pods":
        return None  # the template is made of those that exist
    plans = tuple(
        replace(plan, requests=at_most(plan.requests, gang.shapes[plan.name].requests))
        if plan.requests is not None and plan.name in gang.shapes
        else plan
        for plan in assignment.pod_sets
    )
    return replace(assignment, pod_sets=plans) if plans != assignment.pod_sets else None


def _resized(placement: Placement, gang: Gang) -> bool:
    """Return True if the first pods are to come of another template than the one that their slots were planned for.

    A gang that has run keeps its slots while all of its pods are replaced; they are no larger than planned.
    """
    if has_started(placement.status):
        return False
    planned = {ask.name: ask.shape_hash for ask in placement.pod_sets}
    asked = {ask.name: ask.shape_hash for ask in gang.request.pod_sets}
    changed = {name for name in planned.keys() & asked.keys() if planned[name] not in ("", asked[name])}
    return bool(changed) and any(
        pod_set.name in changed and sum(pod.live for pod in pods) < pod_set.needed
        for pod_set, pods in by_pod_set(gang.workload, gang.pods)
    )


def _unseen(gang: Gang) -> bool:
    """Return True for plain pods of which none is held: nothing shows where further pods may go.

    Those with a host are pinned to it.
    """
    return gang.workload.handling == "pods" and not any(pod.held for pod in gang.pods)


def _with_coming(status: Status, coming: int) -> Status:
    if not coming or status.reason:
        return status
    exist = "it exists" if coming == 1 else "they exist"
    return replace(status, message=f"{status.message}; {plural(coming, 'more pod')} to come: planned when {exist}")


def _with_refused(status: Status, gang: Gang) -> Status:
    """Return the status with why pods cannot join: scaling does not pass admission, and may make a request invalid."""
    if not gang.request.errors or status.reason or gang.placement is None or gang.placement.assignment is None:
        return status
    workload, plan_of = gang.workload, gang.placement.assignment.plan_of
    more = sum(lacking_slots(workload, plan_of(one.name), one, pods) for one, pods in by_pod_set(workload, gang.pods))
    if not more:
        return status
    error = gang.request.errors[0]
    why = f"{plural(more, 'more pod')} cannot join: {error.field}: {error.message}"
    return replace(status, reason=error.reason, message=f"{status.message}; {why}")


def _enough(placement: Placement, gang: Gang) -> bool:
    """Return True if the assigned slots are the minimum of the gang, or more."""
    assert placement.assignment is not None
    asked = gang.request
    counts = {plan.name: plan.count for plan in placement.assignment.pod_sets}
    if not sum(counts.values()):
        return False
    least = asked.gang.min_available if asked.gang is not None else None
    return sum(counts.values()) >= (least or 0) and all(
        counts.get(ask.name, 0) >= min(ask.min_available, ask.count) for ask in asked.pod_sets
    )


def _lost(repair: ExtensionRequest, placement: Placement, status: Status | None, hosts: HostHealth) -> str:
    """Return the text about the lost slots and their hosts."""
    if status is not None and (reason := reason_of(status.reason)) is not None and reason.until == "another host":
        return status.message
    assert placement.assignment is not None
    gone = repair.lost_hosts(placement.assignment)
    taken = all(hosts.usable(host) for host in gone)
    slots = "its slot" if repair.missing == 1 else "their slots"
    return f"{plural(repair.missing, 'pod')} lost {slots} on {named(gone)}" + (
        "" if taken else " (no longer accepting pods)"
    )


def _progress(
    gang: Gang,
    live: list[Pod],
    unready: list[Pod],
    hosts: HostHealth,
    completed: Mapping[str, Collection[int]],
    *,
    slow: bool,
) -> Status:
    """Return the status: Placed until every slot has its bound pod, Starting until they are ready, then Running;
    Incomplete when slots lose their pods, or pods are not ready any more.

    A pod that requests fewer devices than its slot is for counts as bound: in a rollout it runs until it is replaced.
    """
    assert gang.placement is not None
    found = reservations(gang.workload, gang.placement, gang.pods, completed=completed)
    missing = max(0, sum(one.to_come for one in found) - completed_in_jobs(gang))
    small = min(missing, sum(one.beside_small for one in found))
    status = _without(missing - small, gang, live, unready, hosts, slow=slow)
    if not small:
        return status
    request = "requests" if small == 1 else "request"
    return replace(status, message=f"{status.message}; {plural(small, 'pod')} {request} fewer devices than planned")


def _without(missing: int, gang: Gang, live: list[Pod], unready: list[Pod], hosts: HostHealth, *, slow: bool) -> Status:
    """Return the status of a gang that lacks so many of its pods."""
    placement = gang.placement
    assert placement is not None
    bound = sum(1 for pod in live if pod.spec.node_name)
    waiting = stuck(gang, hosts)
    ran = has_started(placement.status)
    if missing == 0 and not waiting and (bound or ran):
        if not bound:
            return Status("Running", "", "all of its pods have ended")
        return _readiness(gang, bound, unready, hosts, slow=slow)
    if not ran:
        return Status("Placed", "", f"{plural(missing, 'pod')} to be bound")
    if not bound and not waiting:
        return Status("Incomplete", "WaitingForMembers", _all_lost(gang, missing))
    back = f"waits for {plural(max(missing, len(waiting)), 'pod')} of the gang to be created and bound again"
    if waiting:
        where = named({host_of(pod) or "" for pod in waiting})
        back += f"; {plural(len(waiting), 'pod')} cannot terminate on {where}: delete with --force if the node is dead"
    return Status("Incomplete", "WaitingForMembers", back)


def _readiness(gang: Gang, bound: int, unready: list[Pod], hosts: HostHealth, *, slow: bool) -> Status:
    """Return the status of a gang with all pods bound."""
    placement = gang.placement
    assert placement is not None
    if not unready:
        return Status("Running", "", f"{plural(bound, 'pod')} ready")
    if enough_ready(gang, unready):
        return Status("Running", "", f"{plural(bound, 'pod')} bound, {bound - len(unready):,} ready")
    message = not_ready_text(bound, unready, hosts)
    if was_ready(placement.status):
        return Status("Incomplete", "PodsNotReady", message)
    return Status("Starting", "PodsNotReady" if slow or at_fault(unready[0]) else "", message)


def _all_lost(gang: Gang, missing: int) -> str:
    """Return the message for a running gang that lost all pods, which names who acts next."""
    kind = gang.workload.kind
    after = f" after its back-off of up to {JOB_BACK_OFF}" if kind == "Job" else ""
    return f"{plural(missing, 'pod')} lost; the {sanitize(kind)} creates new ones{after}"
