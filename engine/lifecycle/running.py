"""Reconciles a gang that is placed and resumed: losses, releases, repair, growth, time-outs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.api.duration import format_duration
from engine.api.placement import (
    GangRequest,
    Placement,
    PodSetRequest,
    has_started,
    was_ready,
)
from engine.api.pod import Pod
from engine.api.reasons import reason_of
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
from engine.gang.reservation import reservation
from engine.gang.slots import SlotAssignments, assign_slots, completed_in_jobs, lacking_slots, scaled_down
from engine.lifecycle.actions import Decision, EvictPods, Extend, NoAction, Release, Shrink, Status, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth, in_the_way, losses, named, on_gone_node, stuck
from engine.lifecycle.moves import leave_hosts, replan_running
from engine.lifecycle.starts import left_to_start, not_ready_in_time, not_ready_text, recovery
from engine.lifecycle.unbound import (
    about_the_pod,
    not_bound,
    off_their_slots,
    off_their_slots_text,
    replaced_freely,
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
    workload, placement = gang.workload, gang.placement
    assert placement is not None and placement.assignment is not None
    if (smaller := scaled_down(workload, placement, gang.pods)) is not None:
        return Decision(Shrink(smaller))
    if (replanned := replan_running(gang, wall=wall)) is not None:
        return replanned
    live = [pod for pod in gang.pods if pod.live]
    unready = not_ready(live, wall)
    started = any(pod.spec.node_name and not pod.deleting for pod in gang.pods)
    if live or started:
        timers.empty_since = None  # not the time of this look: the next one may come hours later
    elif timers.empty_since is None:
        timers.empty_since = now
    loss = losses(gang, hosts=hosts, timers=timers, policy=policy, now=now)
    if loss is not None and not isinstance(loss.action, NoAction):
        return loss
    status = loss.status if loss is not None else None
    restart, recover = recovery(gang, timers=timers, policy=policy, now=now, wall=wall, started=started)
    if restart is not None:
        return restart
    wakes = [recover, loss.wake if loss is not None else None]
    restart, overdue = not_ready_in_time(
        gang, live, unready, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts
    )
    if restart is not None:
        return restart
    wakes.append(overdue)
    slow = bool(unready) and left_to_start(gang, live, policy, wall) <= 0
    wakes += [now + one.since + STEADY_AFTER - wall for pod in unready if (one := pod.readiness) and one.ready]

    unbound = [pod for pod in live if not pod.spec.node_name and not pod.spec.gates]
    timers.age(unbound, now)
    wakes += [since + policy.timeouts.bind for since in timers.unbound_since.values()]
    unmet = [pod for pod in unbound if now - timers.unbound_since[pod.uid] >= policy.timeouts.bind]
    # Without a message of the scheduler the host is not the cause: the scheduler is down, far behind, or waits for a
    # volume that is being made, and on any other host the gang would wait for that once more.
    late = [pod for pod in unmet if pod.unschedulable]
    if unmet:
        futile = [pod for pod in late if about_the_pod(pod.unschedulable)]
        status = not_bound(futile or late or unmet, policy, started)
        late = [pod for pod in late if pod not in futile]
        if futile and not started and can_suspend(workload):
            message = (
                f"{status.message}; another host would not help: the slots are released, and it is tried again later"
            )
            return Decision(Unplace(suspend=True, reason=status.reason, message=message, pause=True))
        if late and not started and can_suspend(workload):
            for pod in late:
                timers.exclude_host(pod, pinned_host(pod.spec.shape), now)
            return Decision(Unplace(suspend=True, reason=status.reason, message=status.message))
    if started:
        timers.forget_pauses()
    replaceable = [pod for pod in late if replaced_freely(gang, pod, started)]
    for pod in replaceable:
        timers.exclude_host(pod, pinned_host(pod.spec.shape), now)
        timers.keep_excluded(pinned_host(pod.spec.shape), now)  # until another slot is found, or it is bound after all

    out, leave = timers.hosts_out(now), gang.request.leave_hosts

    def blocked(host: str) -> bool:
        return host in out or host in leave or not hosts.usable(host) or hosts.overcommitted(host)

    assignments = assign_slots(workload, placement, gang.pods)
    ready = tuple(one for one in assignments.assignments if not blocked(one.slot.host))
    blocked_host = next((one.slot.host for one in assignments.assignments if blocked(one.slot.host)), None)
    orphaned = on_gone_node(gang, hosts)
    grown, coming = None if orphaned else _growth(gang, hosts), 0
    if grown is not None and (started or unbound) and _unseen(gang):
        coming, grown = grown.more, None
    if not started and not unbound:
        if blocked_host is not None:
            # No pod was released yet: the whole gang moves, so that no part starts without the rest. The host is not
            # excluded: the ledger knows what is wrong with it, and pods that grew may still fit there.
            reason, message = in_the_way(blocked_host, hosts)
            return Decision(Unplace(suspend=can_suspend(workload), reason=reason, message=message))
        other = bool(assignments.assignments) and _requires_others(placement, gang)
        if other or (grown is not None and not _enough(placement, gang)):
            return Decision(
                Unplace(suspend=can_suspend(workload), reason="", message="the request changed: it is planned again")
            )
    refused = () if grown is not None else assignments.refused
    if ready and (group := gang.pod_group) is not None and not (group.placed or group.started):
        # Those released before keep their slots; no other pod starts before the minimum of the group has some.
        status, ready = status or Status("Placed", "WaitingForMembers", group.unplaced_text), ()
    if ready:
        return Decision(Release(ready), status or _progress(gang, live, unready, hosts, slow=slow), refused)
    wakes.append(now + BLOCKED_CHECK if blocked_host is not None or late else None)

    # A pod to replace counts as if it terminated: its slot is lost, and its successor needs another one before it goes.
    pods = [replace(pod, deleting=True) if pod in replaceable else pod for pod in gang.pods]
    pods = pods if (started or unbound) and not orphaned else []
    repair = _repair(gang, pods, timers=timers, blocked=blocked, now=now)
    wakes += [since + MISSED_AFTER for since in timers.vacant_since.values()]
    wake = min((one for one in wakes if one is not None and one > now), default=None)
    if repair is not None:
        repair = replace(repair, replaced=tuple(replaceable))
        why = _lost(repair, placement, status, hosts)
        meanwhile = Status("Incomplete" if started else "Placed", "NodeLost", why)
        return Decision(Extend(repair, why, status or meanwhile), None, refused, wake=wake)
    if due := timers.remove(off_their_slots(gang, unbound, started=started), now):
        return Decision(EvictPods(due, evict=False, reason="NodeLost", message=off_their_slots_text(due)), status)
    if leave:
        progress = status or _progress(gang, live, unready, hosts, slow=slow)
        move = leave_hosts(gang, timers=timers, now=now, blocked=blocked, progress=progress)
        if move is not None:
            wakes += [wake, move.wake]
            wake = min((one for one in wakes if one is not None and one > now), default=None)
            return replace(move, refused=refused, wake=wake)
    if grown is not None and status is None:
        why = f"{plural(grown.more, 'more pod')} to join"
        return Decision(Extend(grown, why, _progress(gang, live, unready, hosts, slow=slow)), wake=wake)
    return _waiting(
        gang,
        assignments,
        live,
        timers,
        policy,
        now=now,
        started=started,
        status=status or _with_refused(_with_coming(_progress(gang, live, unready, hosts, slow=slow), coming), gang),
        wake=wake,
    )


def _repair(
    gang: Gang, pods: list[Pod], *, timers: Timers, blocked: Callable[[str], bool], now: float
) -> ExtensionRequest | None:
    """Return the request for lost slots; a rank without any pod counts only after a while."""
    vacant: list[tuple[str, int]] = []

    def missed(pod_set: str, rank: int) -> bool:
        vacant.append((pod_set, rank))
        return now - timers.vacant_since.get((pod_set, rank), now) >= MISSED_AFTER

    assert gang.placement is not None
    repair = repair_request(gang.workload, gang.placement, pods, blocked=blocked, missed=missed) if pods else None
    timers.miss(vacant, now)
    return repair


def _waiting(
    gang: Gang,
    assignments: SlotAssignments,
    live: list[Pod],
    timers: Timers,
    policy: Policy,
    *,
    now: float,
    started: bool,
    status: Status,
    wake: float | None,
) -> Decision:
    """Return the decision to wait for pods, or to release the slots if none appears in time."""
    workload = gang.workload
    wanted = sum(pod_set.needed for pod_set in workload.pod_sets)
    if not live and not started and wanted > 0:
        assert timers.empty_since is not None
        end = timers.empty_since + policy.timeouts.hold
        if now >= end:
            timers.expired = True
            message = (
                f"no pod was created within {format_duration(policy.timeouts.hold)}; the slots are released "
                f"(quota exceeded, or creation failing? see the Events of the {sanitize(workload.kind)})"
            )
            back = Unplace(suspend=can_suspend(workload), reason="HoldExpired", message=message, pause=True)
            return Decision(back)
        wake = end if wake is None else min(wake, end)
    return Decision(NoAction(), status, assignments.refused, wake=wake)


def _growth(gang: Gang, hosts: HostHealth) -> ExtensionRequest | None:
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


def _requires_others(placement: Placement, gang: Gang) -> bool:
    """Return True if the gang requires other domains today than those that its slots were planned for.

    Its pods may all be new ones: those of a gang of plain pods with the same name, or of a workload with an edited
    request.
    """
    asked = gang.request
    if not asked.pod_sets or asked.topology is None:
        return False
    planned = (placement.topology, placement.separation, _required(placement.gang, placement.pod_sets))
    return planned != (asked.topology, asked.separation, _required(asked.gang, asked.pod_sets))


def _required(gang: GangRequest | None, pod_sets: Iterable[PodSetRequest]) -> tuple[object, ...]:
    of_pods = ((ask.name, ask.require, ask.slices, ask.colocate) for ask in pod_sets)
    return (gang.require if gang is not None else None, *of_pods)


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


def _progress(gang: Gang, live: list[Pod], unready: list[Pod], hosts: HostHealth, *, slow: bool) -> Status:
    """Return the status: Placed until every slot has its bound pod, Starting until they are ready, then Running;
    Incomplete when slots lose their pods, or pods are not ready any more.
    """
    placement = gang.placement
    assert placement is not None
    missing = max(0, sum(reservation(gang.workload, placement, gang.pods).values()) - completed_in_jobs(gang))
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
