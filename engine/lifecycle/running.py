"""Reconciles a gang that is placed and resumed: losses, releases, repair, growth, time-outs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Final

from engine.api.duration import format_duration
from engine.api.placement import FailedStarts, Placement, failed_starts, incomplete_since, ready_since, was_ready
from engine.api.pod import Pod
from engine.api.reasons import Code, known_code, reason_of
from engine.api.text import plural, sanitize
from engine.gang.gang import (
    STEADY_AFTER,
    Gang,
    at_fault,
    can_suspend,
    enough_ready,
    fails_anywhere,
    fingerprint,
    host_of,
    not_ready,
    pinned_host,
    pod_set_of,
    recover_timeout,
    start_timeout,
    why_not_ready,
)
from engine.gang.repair import ExtensionRequest, growth_request, repair_request
from engine.gang.reservation import reservation
from engine.gang.slots import SlotAssignments, assign_slots, scaled_down
from engine.lifecycle.actions import Decision, EvictPods, Extend, NoAction, Release, Shrink, Status, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth, in_the_way, losses, named, on_gone_node, stuck
from engine.lifecycle.moves import leave_hosts, replan_running
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of

_BEGINNING: Final = " nodes are available: "
_OF_HOSTS: Final = "node(s)"


def about_the_pod(words: str) -> bool:
    """Return True if the scheduler refused the pod itself, so that no other host would help until the pod is corrected.

    The scheduler counts hosts by reason ("3 Insufficient cpu, 5 node(s) had untolerated taint(s)"). If a plugin refuses
    the pod as such (a volume claim that does not exist or is not bound yet, claims that are not made) its message has
    no number (`FitError` of kube-scheduler; `PreFilterMsg`).
    """
    _, found, said = words.partition(_BEGINNING)
    said = said.partition(" preemption:")[0]
    return bool(found and said) and not said[0].isdigit() and not said.startswith(_OF_HOSTS)


# Characters of the scheduler's message that are quoted; its list of reasons over all nodes can be far longer.
MAX_REASON = 300
# Seconds. Capacity freed on a host is no event of a gang with pods that wait for it, so it is reconciled after this.
BLOCKED_CHECK = 5.0
# Seconds. A pod that has succeeded leaves the cache before its workload's status counts it.
MISSED_AFTER = 5.0
# Hosts that a Placement records for failed starts.
MAX_LEFT_OUT = 100
# The end of the message about a gang after the last start that the policy allows.
HELD_AFTER_STARTS = "it stays held until its user changes or resumes it"
# Seconds. The pause after a failed start is a tenth of the time that it had, doubled by each further one, within these.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 1800.0
# The Job controller recreates a lost pod after 10, 20, 40 s ..., and no later than this.
JOB_BACK_OFF = "6 min"


def start_pause(count: int, timeout: float) -> float:
    """Return the seconds from so many failed starts in a row to the next plan; `timeout`: how long each may take."""
    if timeout == inf:
        return 0.0
    return min(max(SHORTEST_PAUSE, round(timeout / 10, 3)) * 2.0 ** min(count - 1, 30), LONGEST_PAUSE)


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
    restart, recover = _recovery(gang, timers=timers, policy=policy, now=now, wall=wall, started=started)
    if restart is not None:
        return restart
    wakes = [recover, loss.wake if loss is not None else None]
    restart, overdue = _not_ready_in_time(
        gang, live, unready, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts
    )
    if restart is not None:
        return restart
    wakes.append(overdue)
    slow = bool(unready) and _left_to_start(gang, live, policy, wall) <= 0
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
        status = _not_bound(futile or late or unmet, policy, started)
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
    replaceable = [pod for pod in late if _replaced_freely(gang, pod, started)]
    for pod in replaceable:
        timers.exclude_host(pod, pinned_host(pod.spec.shape), now)

    out, leave = timers.hosts_out(now), gang.request.leave_hosts

    def blocked(host: str) -> bool:
        return host in out or host in leave or not hosts.usable(host) or hosts.overcommitted(host)

    assignments = assign_slots(workload, placement, gang.pods)
    ready = tuple(one for one in assignments.assignments if not blocked(one.slot.host))
    blocked_host = next((one.slot.host for one in assignments.assignments if blocked(one.slot.host)), None)
    orphaned = on_gone_node(gang, hosts)
    grown, coming = None if orphaned else _growth(gang), 0
    if grown is not None and (started or unbound) and _unseen(gang):
        coming, grown = grown.more, None
    if not started and not unbound:
        if blocked_host is not None:
            # No pod was released yet: the whole gang moves, so that no part starts without the rest. The host is not
            # excluded: the ledger knows what is wrong with it, and pods that grew may still fit there.
            reason, message = in_the_way(blocked_host, hosts)
            return Decision(Unplace(suspend=can_suspend(workload), reason=reason, message=message))
        if grown is not None and not _enough(placement, gang):
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

    staying = [pod for pod in gang.pods if pod not in replaceable]
    repair = _repair(
        gang, staying if (started or unbound) and not orphaned else [], timers=timers, blocked=blocked, now=now
    )
    wakes += [since + MISSED_AFTER for since in timers.vacant_since.values()]
    wake = min((one for one in wakes if one is not None and one > now), default=None)
    if repair is not None:
        repair = replace(repair, replaced=tuple(replaceable))
        why = _lost(repair, placement, status, hosts)
        meanwhile = Status("Incomplete" if started else "Placed", "NodeLost", why)
        return Decision(Extend(repair, why, status or meanwhile), None, refused, wake=wake)
    if due := timers.remove(replaceable, now):
        message = status.message if status is not None else ""
        return Decision(EvictPods(due, evict=False, reason="SchedulerRefused", message=message), status)
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
        status=status or _with_coming(_progress(gang, live, unready, hosts, slow=slow), coming),
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
    wanted = sum(min(pod_set.slots, pod_set.remaining) for pod_set in workload.pod_sets)
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


def _recovery(
    gang: Gang, *, timers: Timers, policy: Policy, now: float, wall: float, started: bool
) -> tuple[Decision | None, float | None]:
    """Return a restart if the gang was incomplete for too long and the policy allows it; else when to check again."""
    placement = gang.placement
    assert placement is not None
    why = reason_of(known_code(placement.status.get("reason")))
    # Pods that are not ready have each a time of their own: of a long sweep some are always just starting.
    if placement.status.get("phase") != "Incomplete" or not started or (why is not None and why.until == "readiness"):
        timers.incomplete_since = None
        return None, None
    if timers.incomplete_since is None:
        since = incomplete_since(placement.status)
        timers.incomplete_since = now - max(0.0, wall - since) if since is not None else now
    if not _may_restart(gang, policy):
        return None, None
    timeout = recover_timeout(gang.request, policy)
    end = timers.incomplete_since + timeout
    if now < end:
        return None, end
    reason = known_code(placement.status.get("reason")) or "WaitingForMembers"
    message = f"still incomplete after {timeout:g} s; the gang is restarted"
    return Decision(Unplace(suspend=True, reason=reason, message=message)), None


def _may_restart(gang: Gang, policy: Policy) -> bool:
    """Return True if the policy restarts such a gang; while it is on hold, it could not start again."""
    held = mode_of(gang.workload.namespace, policy).holds
    return policy.incomplete == "restart" and can_suspend(gang.workload) and not held


def _not_ready_in_time(
    gang: Gang,
    live: list[Pod],
    unready: list[Pod],
    *,
    timers: Timers,
    policy: Policy,
    now: float,
    wall: float,
    hosts: HostHealth,
) -> tuple[Decision | None, float | None]:
    """Return the end of a start, or a restart, if pods are not ready for too long; else when to check again."""
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    ready_before = was_ready(placement.status)
    first = timers.turned_unready(
        {
            pod.uid: now - max(0.0, wall - max(pod.created, pod.bound, one.since))
            for pod in unready
            if ready_before and (one := pod.readiness) is not None
        }
    )
    if not unready or enough_ready(gang, unready):
        return None, None
    bound = [pod for pod in live if pod.spec.node_name]
    said = _not_ready_text(len(bound), unready, hosts)
    if ready_before:
        since = now if first is None else first
        end = since + recover_timeout(gang.request, policy)
        if not _may_restart(gang, policy) or now < end:
            return None, end
        for pod in unready:
            timers.exclude_host(pod, pod.spec.node_name, now)
        unready_at = wall - (now - since)
        return _restart(gang, unready, said, unready_at=unready_at, timers=timers, policy=policy, wall=wall), None
    if (left := _left_to_start(gang, live, policy, wall)) > 0:
        return None, now + left
    if not can_suspend(gang.workload) or reservation(gang.workload, placement, gang.pods):
        return None, None
    if mode_of(gang.workload.namespace, policy).holds:
        return None, None  # stopped now, it could not start again
    timeout = start_timeout(gang.request, policy)
    return _failed_start(gang, unready, said, timeout, timers=timers, policy=policy, now=now, wall=wall), None


def _left_to_start(gang: Gang, live: list[Pod], policy: Policy, wall: float) -> float:
    """Return the seconds that the pods of a gang still have to become ready; infinite without a time-out."""
    last = max((max(pod.created, pod.bound) for pod in live if pod.spec.node_name), default=wall)
    return start_timeout(gang.request, policy) - max(0.0, wall - last)


def _failed_start(
    gang: Gang,
    unready: list[Pod],
    said: str,
    timeout: float,
    *,
    timers: Timers,
    policy: Policy,
    now: float,
    wall: float,
) -> Decision:
    """Return the decision to release the slots of a gang with pods that did not become ready in time."""
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    starts, limit = failed_starts(placement.status), policy.queue.max_start_attempts
    left_out = sorted({pod.spec.node_name for pod in unready if not fails_anywhere(pod)})
    if starts.revision != placement.assignment.revision:
        # After the last one allowed it starts again only if its user has intervened: then none of them counts.
        count = (starts.count if starts.count < limit else 0) + 1
        hosts = tuple(sorted({*(starts.hosts if count > 1 else ()), *left_out})[:MAX_LEFT_OUT])
        starts = FailedStarts(count, hosts, wall, placement.assignment.revision, fingerprint(gang, suspends=True))
    last = starts.count >= limit
    pause = start_pause(starts.count, timeout)
    timers.failed_start(starts, now, hosts=left_out, retry_at=now + pause)
    after = f"{said}, {format_duration(timeout)} after all were bound; start {starts.count} of {limit} has failed"
    where = f" without {named(left_out)}" if left_out else ""
    then = HELD_AFTER_STARTS if last else f"it is planned again in {format_duration(pause)}{where}"
    reason: Code = "StartLimitExceeded" if last else "StartTimeout"
    return Decision(Unplace(suspend=True, reason=reason, message=f"{after}: {then}", failed=starts))


def _restart(
    gang: Gang, unready: list[Pod], said: str, *, unready_at: float, timers: Timers, policy: Policy, wall: float
) -> Decision:
    """Return the decision to restart a gang that was ready and has not recovered.

    Restarts in a row count like failed starts, with the same pauses and the same limit, unless the gang was ready for
    longer than it may take to recover.
    """
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    timeout, ready = recover_timeout(gang.request, policy), ready_since(placement.status)
    after, limit = f"{said}; {format_duration(timeout)} later", policy.queue.max_start_attempts
    revision = placement.assignment.revision
    count = timers.restart(revision, lasted=ready is not None and unready_at - ready >= timeout)
    if count <= 1 and count < limit:
        return Decision(Unplace(suspend=True, reason="PodsNotReady", message=f"{after} it is restarted"))
    hosts = tuple(sorted({pod.spec.node_name for pod in unready})[:MAX_LEFT_OUT])
    failed = FailedStarts(count, hosts, wall, revision, fingerprint(gang, suspends=True))
    times = f"it was not ready for long {plural(count, 'time')} in a row"
    if count >= limit:
        message = f"{after} it is suspended: {times}, and {HELD_AFTER_STARTS}"
        return Decision(Unplace(suspend=True, reason="StartLimitExceeded", message=message, failed=failed))
    pause = start_pause(count, pausing_timeout(gang, policy))
    message = f"{after} it is suspended: {times}; it is planned again in {format_duration(pause)}"
    return Decision(Unplace(suspend=True, reason="PodsNotReady", message=message, failed=failed))


def pausing_timeout(gang: Gang, policy: Policy) -> float:
    """Return the time-out that the pauses between the starts of a gang depend on."""
    timeout = start_timeout(gang.request, policy)
    return timeout if timeout < inf else recover_timeout(gang.request, policy)


def _growth(gang: Gang) -> ExtensionRequest | None:
    """Return the request for further slots under the current request; None if there is nothing to add."""
    asked = gang.request
    if gang.placement is None or not asked.pod_sets:
        return None
    return growth_request(gang.workload, gang.placement, gang.pods, asks=asked.pod_sets, gang=asked.gang)


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


def _replaced_freely(gang: Gang, pod: Pod, started: bool) -> bool:
    """Return True if deleting an unbound pod costs nothing; if it restarts a group, only while no pod of that runs."""
    pod_set = pod_set_of(pod, gang.workload)
    return pod_set is not None and (pod_set.replace == "free" or (pod_set.replace == "group" and not started))


def _not_bound(pods: list[Pod], policy: Policy, started: bool) -> Status:
    """Return the status of a gang with pods that wait for the scheduler; quotes the first refusal."""
    reason: Code = "SchedulerSilent"
    said = "has given no reason: does it run?"
    if words := pods[0].unschedulable:
        reason, said = "SchedulerRefused", f"says: {sanitize(words, MAX_REASON)}"
    message = f"{plural(len(pods), 'pod')} not bound after {policy.timeouts.bind:g} s; the scheduler {said}"
    return Status("Incomplete" if started else "Placed", reason, message)


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
    missing = sum(reservation(gang.workload, placement, gang.pods).values())
    bound = sum(1 for pod in live if pod.spec.node_name)
    waiting = stuck(gang, hosts)
    ran = placement.status.get("phase") in ("Starting", "Running", "Incomplete")
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
    message = _not_ready_text(bound, unready, hosts)
    if was_ready(placement.status):
        return Status("Incomplete", "PodsNotReady", message)
    return Status("Starting", "PodsNotReady" if slow or at_fault(unready[0]) else "", message)


def _not_ready_text(bound: int, unready: list[Pod], hosts: HostHealth) -> str:
    first = unready[0]
    why = "its node is not ready" if hosts.down(first.spec.node_name) is not None else why_not_ready(first)
    where = f"{sanitize(first.name)} on {sanitize(first.spec.node_name)}"
    return f"{len(unready):,} of {plural(bound, 'pod')} not ready: {where}: {why}"


def _all_lost(gang: Gang, missing: int) -> str:
    """Return the message for a running gang that lost all pods, which names who acts next."""
    kind = gang.workload.kind
    after = f" after its back-off of up to {JOB_BACK_OFF}" if kind == "Job" else ""
    return f"{plural(missing, 'pod')} lost; the {sanitize(kind)} creates new ones{after}"
