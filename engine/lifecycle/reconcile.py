"""The life of a gang as a state machine: from the observed state to the next action. Pure.

The machine is level-triggered: `reconcile` reads the workload, its Placement, its pods and the clock, and returns the
one next action; its only memory are the timers that its caller passes in (`Timers`: losing them at a fail-over only
restarts waiting times). Steps and rules: docs/concepts/gangs.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.api import names
from engine.api.duration import format_duration
from engine.api.field import render
from engine.api.placement import FailedStarts, Placement, PodSetRequest, failed_starts
from engine.api.pod import Pod
from engine.api.reasons import Code, asks_nothing, known_code, reason_of
from engine.api.text import plural, sanitize
from engine.api.workload import Workload
from engine.gang.gang import Gang, can_suspend, ended, fingerprint, held_by_us, ours, suspended_by_user
from engine.gang.relaxation import starts_anew, timeout_text, times_out_at
from engine.gang.slots import slots_of
from engine.lifecycle.actions import Decision, Enqueue, NoAction, ReassignDevices, Resume, Status, Unmanage, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.moves import replan_suspended
from engine.lifecycle.preemption import PreemptedBy, end_of_victim
from engine.lifecycle.running import running
from engine.lifecycle.starts import HELD_AFTER_STARTS, pausing_timeout, start_pause
from engine.lifecycle.withdrawn import replace_late
from engine.policy.model import Policy
from engine.policy.namespaces import ModeInForce, mode_of

_LEFT_BEHIND: Final = "too few pods of its pod group have slots: they are planned again together"


def stale(gang: Gang) -> bool:
    """Return True if the assignment was planned for another request than the current one."""
    asked, placement = gang.request, gang.placement
    if not asked.pod_sets or placement is None or placement.assignment is None:
        return False
    planned = (placement.gang, placement.topology, placement.profile, placement.separation)
    asks = (asked.gang, asked.topology, asked.profile, asked.separation)
    of_pods = (tuple(map(request_of, placement.pod_sets)), tuple(map(request_of, asked.pod_sets)))
    return planned != asks or of_pods[0] != of_pods[1]


def request_of(pod_set: PodSetRequest) -> tuple[object, ...]:
    """Return the parts of a pod set's request that decide its plan."""
    levels = (pod_set.require, pod_set.prefer, pod_set.unconstrained, pod_set.slices, pod_set.colocate)
    gpus = (pod_set.device_scope, pod_set.device_selector, pod_set.gpu_strategy)
    devices = (*gpus, pod_set.rdma_selector, pod_set.vf_selector, pod_set.rdma_scope)
    return (pod_set.name, pod_set.count, pod_set.min_available, *levels, *devices, pod_set.shape_hash, pod_set.ranked)


def request_written(gang: Gang, *, priority: int) -> bool:
    """Return True if the Placement of a gang without slots has the workload's current request.

    A Placement with slots keeps the request that they were planned for.
    """
    asked, placement = gang.request, gang.placement
    if not asked.pod_sets or placement is None or placement.assignment is not None or placement.deleting:
        return True
    whole = (placement.topology, placement.priority, placement.gang, placement.profile, placement.separation)
    wanted = (asked.topology, priority, asked.gang, asked.profile, asked.separation)
    return whole == wanted and [*map(_on_the_wire, placement.pod_sets)] == [*map(_on_the_wire, asked.pod_sets)]


def _on_the_wire(pod_set: PodSetRequest) -> PodSetRequest:
    return replace(pod_set, unconstrained=pod_set.require is None and pod_set.prefer is None)


def reconcile(
    gang: Gang,
    *,
    timers: Timers,
    policy: Policy,
    now: float,
    hosts: HostHealth,
    wall: float = 0.0,
    preempted: PreemptedBy | None = None,
) -> Decision:
    """Return the next step of a gang. `now` is the leader's own clock, `wall` the time of day.

    `preempted`: a waiting gang of higher priority needs its hosts.
    """
    workload, placement = gang.workload, gang.placement
    gated = tuple(pod for pod in gang.pods if pod.held)
    if ended(workload):
        return Decision(
            NoAction(),
            Status("Finished", "", f"the {sanitize(workload.kind)} has {_end(workload)}; its slots are free")
            if placement is not None and workload.finished
            else None,
        )
    mode = mode_of(workload.namespace, policy)
    if not mode.manages or (gang.request.asked is None and not gang.request.errors):
        return _without_request(gang, gated, mode)
    assigned = placement is not None and placement.assignment is not None
    if gang.request.errors and (not assigned or workload.suspended):
        return _invalid_request(gang, gated)
    if preempted is not None and placement is not None and not suspended_by_user(workload):
        ending = end_of_victim(gang, preempted, timers=timers, now=now)
        if ending is not None:
            return ending
    if (late := replace_late(gang, timers, now)) is not None:
        return late
    # A placed gang keeps its slots, even if the current policy would refuse its request.
    runs = not _spared(gang) and (not ours(workload) or _runs(gang))
    if (placement is None or placement.assignment is None) and not gated and runs:
        return Decision(NoAction())  # it ran before it had a request, or was unmanaged: only new workloads are placed
    if suspended_by_user(workload):
        timers.retry_at = 0.0
        timers.forget_pauses()  # the user who resumes it has corrected the problem
        if placement is not None:
            timers.forget_failed_starts(failed_starts(placement.status))
        return _user_suspension(gang)
    if placement is None or placement.assignment is None:
        return _without_slots(gang, gated, timers=timers, policy=policy, now=now, wall=wall)
    return _with_slots(gang, placement, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts)


def _without_slots(
    gang: Gang, gated: tuple[Pod, ...], *, timers: Timers, policy: Policy, now: float, wall: float
) -> Decision:
    """Return the decision about a gang to plan: it may have used up its starts, or its time to wait."""
    timers.resumed_since = None
    if not gated and _expired(gang, timers):
        return Decision(NoAction())  # no pod appeared: planned again when one does
    timers.expired = False
    if (held := _after_failed_starts(gang, timers=timers, policy=policy, now=now, wall=wall)) is not None:
        return Decision(NoAction(), held)
    if _given_up(gang, policy, wall):
        message = timeout_text(gang.request, policy, gang.status)
        return Decision(NoAction(), Status("Waiting", "ScheduleTimeout", message))
    return Decision(Enqueue(), wake=timers.retry_at if timers.retry_at > now else None)


def _with_slots(
    gang: Gang, placement: Placement, *, timers: Timers, policy: Policy, now: float, wall: float, hosts: HostHealth
) -> Decision:
    """Return the decision about a gang with slots, which is to be resumed or runs."""
    suspended = gang.workload.suspended
    if _left_behind(gang):
        suspend = can_suspend(gang.workload) and not suspended
        return Decision(Unplace(suspend=suspend, reason="WaitingForMembers", message=_LEFT_BEHIND))
    if suspended and _start_failed(placement):
        # The last leader had suspended it for that, and no time for the rest.
        return Decision(Unplace(suspend=False, reason="StartTimeout", message="pods were not ready in time"))
    if suspended and not stale(gang):
        timers.empty_since = None
        if (moving := replan_suspended(gang, hosts, now=now, wall=wall)) is not None:
            return moving
    if (fresh := hosts.other_devices()) is not None and not stale(gang):
        return Decision(ReassignDevices(fresh))
    if suspended:
        timers.empty_since = None  # after the resume its pods have the whole timeout to appear
        return _before_resume(gang, hosts, timers=timers, policy=policy, now=now)
    timers.resumed_since = None
    return running(gang, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts)


def _end(workload: Workload) -> str:
    return "failed" if workload.failed else "ended"


def _expired(gang: Gang, timers: Timers) -> bool:
    """Return True if its slots were released because no pod was created; only a new pod starts it again.

    One that was scaled to 0 meanwhile waits for none.
    """
    known = reason_of(known_code(gang.placement.status.get("reason"))) if gang.placement is not None else None
    expired = timers.expired or (known is not None and known.until == "pods")
    wanted = any(pod_set.needed for pod_set in gang.workload.pod_sets)
    return wanted and not can_suspend(gang.workload) and not gang.workload.suspended and expired


def _after_failed_starts(gang: Gang, *, timers: Timers, policy: Policy, now: float, wall: float) -> Status | None:
    """Return the status of a gang that has used up its starts; of others, set when they may be planned again.

    All of it is read from the Placement: a leader that was not there knows the hosts to leave out, and the pause.
    """
    placement = gang.placement
    starts = failed_starts(placement.status) if placement is not None else FailedStarts()
    if placement is None or not starts.count:
        return None
    touched = starts.seen != fingerprint(gang)
    if starts.count >= policy.queue.max_start_attempts:
        if not touched:
            return _held_status(placement, starts)
        timers.forget_failed_starts(starts)  # its user has corrected the problem
        return None
    if not touched:
        pause = start_pause(starts.count, pausing_timeout(gang, policy))
        timers.retry_at = max(timers.retry_at, now + starts.at + pause - wall)
        timers.failed_start(starts, now, hosts=starts.hosts, retry_at=timers.retry_at)
    return None


def _held_status(placement: Placement, starts: FailedStarts) -> Status:
    message = str(placement.status.get("message") or "")
    if not starts_anew(placement.status):  # the last leader had no time to report it
        failed = f"{plural(starts.count, 'start')} in a row have failed because pods were not ready"
        message = f"{failed}; {HELD_AFTER_STARTS}"
    return Status("Waiting", "StartLimitExceeded", message)


def _given_up(gang: Gang, policy: Policy, wall: float) -> bool:
    """Return True for a gang that was given up and that its user has neither changed nor resumed since."""
    placement = gang.placement
    if placement is None or policy.queue.on_timeout != "giveUp" or not starts_anew(placement.status):
        return False
    if failed_starts(placement.status).count >= policy.queue.max_start_attempts:
        return False  # it was held for these, until its user intervened
    end = times_out_at(gang.request, placement.status)
    resumed = can_suspend(gang.workload) and not gang.workload.suspended
    return end is not None and end <= wall and not resumed and request_written(gang, priority=placement.priority)


def _left_behind(gang: Gang) -> bool:
    """Return True if a gang has slots, but too few pods of its pod group have any and none of them has started.

    A writer failed, or a part lost its slots again: the group starts together, so this part gives its slots back. Pods
    that may be bound at any moment keep theirs.
    """
    group = gang.pod_group
    if group is None or group.placed or group.started or group.problem:
        return False
    on_the_way = any(names.GATE not in pod.spec.gates and pod.live for pod in gang.pods)
    return not on_the_way or can_suspend(gang.workload)


def _runs(gang: Gang) -> bool:
    """Return True if pods of the gang have a node and the others are not held by us."""
    return not gang.workload.suspended and any(pod.spec.node_name and not pod.finished for pod in gang.pods)


def _spared(gang: Gang) -> bool:
    """Return True if pods of a gang still run that has lost its slots, and need not end: it gets them back.

    It was preempted, restarted, or suspended by its user, and resumed before its pods ended. One that ran before it had
    a request, or was unmanaged, has no Placement.
    """
    return gang.placement is not None and not gang.placement.deleting and _runs(gang)


def _without_request(gang: Gang, gated: tuple[Pod, ...], mode: ModeInForce) -> Decision:
    placement, held = gang.placement, held_by_us(gang.workload)
    forget = placement is not None and not placement.deleting
    if not held and not gated and not forget:
        return Decision(NoAction())
    reason = gang.request.ignored or "PolicyOff"
    loses = placement is not None and placement.assignment is not None
    if loses:
        outcome = "its slots are released: running pods stay where they are, new pods may run anywhere"
    else:
        outcome = "it is resumed and runs like any other workload" if held else "its pods are no longer held"
    message = f"{_no_request(reason, mode)}; {outcome}"
    return Decision(Unmanage(gated, resume=held, forget=forget, reason=reason, message=message, loses=loses))


def _no_request(reason: Code, mode: ModeInForce) -> str:
    if asks_nothing(reason):
        return "no longer asks for a topology or a gang"
    return f"is no longer managed ({reason})" if mode.manages else mode.text


def _invalid_request(gang: Gang, gated: tuple[Pod, ...]) -> Decision:
    """Return the decision for a request that the current policy does not allow or know: no pod of it starts."""
    placement, error = gang.placement, gang.request.errors[0]
    if suspended_by_user(gang.workload):
        return _user_suspension(gang)
    said = error.message if error.value is None else render(error)
    status = Status("Waiting", error.reason, f"{error.field}: {said}")
    if placement is not None and placement.assignment is not None:
        return Decision(Unplace(suspend=False, reason=status.reason, message=status.message), status)
    return Decision(NoAction(), status) if held_by_us(gang.workload) or gated else Decision(NoAction())


def _user_suspension(gang: Gang) -> Decision:
    placement = gang.placement
    status = Status("Waiting", "Suspended", "suspended by its user; it is planned when it is resumed")
    if placement is None:
        return Decision(NoAction())
    if placement.assignment is not None:
        return Decision(Unplace(suspend=False, reason=status.reason, message=status.message), status)
    return Decision(NoAction(), status)


def _start_failed(placement: Placement) -> bool:
    """Return True if the start with the current slots has been recorded as failed."""
    starts = failed_starts(placement.status)
    return bool(starts.count and placement.assignment and starts.revision == placement.assignment.revision)


def _before_resume(gang: Gang, health: HostHealth, *, timers: Timers, policy: Policy, now: float) -> Decision:
    """Return the decision before resuming: if time has passed since the plan, the slots must still be usable.

    Mostly plan and resume are one action. A resume that is refused again and again keeps no slots for ever.
    """
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    hosts = sorted({slot.host for slot in slots_of(placement.assignment)})
    if stale(gang):
        return Decision(Unplace(suspend=False, reason="", message="the request changed: it is planned again"))
    if (gone := next((host for host in hosts if not health.usable(host)), None)) is not None:
        message = f"{gone} no longer accepts the gang"
        return Decision(Unplace(suspend=False, reason="NodesUnhealthy", message=message))
    if (taken := next((host for host in hosts if health.overcommitted(host)), None)) is not None:
        message = f"capacity reserved on {taken} was taken by other pods"
        return Decision(Unplace(suspend=False, reason="ReservedByOthers", message=message))
    if timers.resumed_since is None:
        timers.resumed_since = now
    elif now - timers.resumed_since >= policy.timeouts.hold:
        message = (
            f"could not be resumed within {format_duration(policy.timeouts.hold)}; the slots are released "
            f"(refused? see the Events of the {sanitize(gang.workload.kind)})"
        )
        return Decision(Unplace(suspend=False, reason="HoldExpired", message=message, pause=True))
    return Decision(Resume())
