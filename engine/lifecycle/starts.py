"""Ends starts and incomplete runs of gangs that take too long, as the policy says: restarts, pauses, limits. Pure."""

from __future__ import annotations

from math import inf

from engine.api.duration import format_duration
from engine.api.placement import FailedStarts, failed_starts, incomplete_since, ready_since, was_ready
from engine.api.pod import Pod
from engine.api.reasons import Code, known_code, reason_of
from engine.api.text import plural, sanitize
from engine.gang.gang import (
    Gang,
    can_suspend,
    enough_ready,
    fails_anywhere,
    fingerprint,
    recover_timeout,
    start_timeout,
    why_not_ready,
)
from engine.gang.reservation import reservation
from engine.lifecycle.actions import Decision, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth, named
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of

# Hosts that a Placement records for failed starts.
MAX_LEFT_OUT = 100
# The end of the message about a gang after the last start that the policy allows.
HELD_AFTER_STARTS = "it stays held until its user changes or resumes it"
# Seconds. The pause after a failed start is a tenth of the time that it had, doubled by each further one, within these.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 1800.0


def start_pause(count: int, timeout: float) -> float:
    """Return the seconds from so many failed starts in a row to the next plan; `timeout`: how long each may take."""
    if timeout == inf:
        return 0.0
    return min(max(SHORTEST_PAUSE, round(timeout / 10, 3)) * 2.0 ** min(count - 1, 30), LONGEST_PAUSE)


def recovery(
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


def not_ready_in_time(
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
    said = not_ready_text(len(bound), unready, hosts)
    if ready_before:
        since = now if first is None else first
        end = since + recover_timeout(gang.request, policy)
        if not _may_restart(gang, policy) or now < end:
            return None, end
        for pod in unready:
            timers.exclude_host(pod, pod.spec.node_name, now)
        unready_at = wall - (now - since)
        return _restart(gang, unready, said, unready_at=unready_at, timers=timers, policy=policy, wall=wall), None
    if (left := left_to_start(gang, live, policy, wall)) > 0:
        return None, now + left
    if not can_suspend(gang.workload) or reservation(gang.workload, placement, gang.pods):
        return None, None
    if mode_of(gang.workload.namespace, policy).holds:
        return None, None  # stopped now, it could not start again
    timeout = start_timeout(gang.request, policy)
    return _failed_start(gang, unready, said, timeout, timers=timers, policy=policy, now=now, wall=wall), None


def left_to_start(gang: Gang, live: list[Pod], policy: Policy, wall: float) -> float:
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


def not_ready_text(bound: int, unready: list[Pod], hosts: HostHealth) -> str:
    """Return how many of the bound pods are not ready, and why the first of them is not."""
    first = unready[0]
    why = "its node is not ready" if hosts.down(first.spec.node_name) is not None else why_not_ready(first)
    where = f"{sanitize(first.name)} on {sanitize(first.spec.node_name)}"
    return f"{len(unready):,} of {plural(bound, 'pod')} not ready: {where}: {why}"
