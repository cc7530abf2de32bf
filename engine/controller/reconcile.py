"""The life of a gang as a state machine. Pure: what is seen in, what to do next out.

The machine is level-triggered: `reconcile` looks at the workload, its Placement, its pods and the clock, and names the
one next action; it keeps nothing but the timers that its caller hands back (`Timers`: losing them at a fail-over only
restarts a waiting time). Steps and rules: docs/concepts/gangs.md.
"""

from __future__ import annotations

from dataclasses import replace

from engine.api import names
from engine.api.field import render
from engine.api.placement import PodSetRequest
from engine.api.pod import Pod
from engine.api.reasons import Code, asks_nothing, known_code, reason_of
from engine.api.text import sanitize
from engine.api.workload import Workload
from engine.controller.actions import Decision, Enqueue, NoAction, ReassignDevices, Resume, Status, Unmanage, Unplace
from engine.controller.gang_state import Timers
from engine.controller.host_health import HostHealth
from engine.controller.running import running
from engine.gang.gang import Gang, can_suspend, held_by_us, ours, suspended_by_user
from engine.gang.slots import slots_of
from engine.policy.model import Policy


def stale(gang: Gang) -> bool:
    """True when the assignment answers another question than the workload asks now."""
    asked, placement = gang.understanding, gang.placement
    if not asked.pod_sets or placement is None or placement.assignment is None:
        return False
    planned = (tuple(map(request_of, placement.pod_sets)), placement.gang, placement.topology)
    return planned != (tuple(map(request_of, asked.pod_sets)), asked.gang, asked.topology)


def request_of(pod_set: PodSetRequest) -> tuple[object, ...]:
    """What two requests for a pod set must share to have the same answer."""
    levels = (pod_set.require, pod_set.prefer, pod_set.unconstrained, pod_set.slices, pod_set.colocate)
    return (pod_set.name, pod_set.count, pod_set.min_available, *levels, pod_set.shape_hash, pod_set.ranked)


def request_written(gang: Gang, *, priority: int) -> bool:
    """True when the Placement of a gang without slots says what the workload asks for now; of one with slots it says
    what they were planned for.
    """
    asked, placement = gang.understanding, gang.placement
    if not asked.pod_sets or placement is None or placement.assignment is not None or placement.deleting:
        return True
    written = (placement.topology, placement.priority, placement.gang, [*map(_on_the_wire, placement.pod_sets)])
    return written == (asked.topology, priority, asked.gang, [*map(_on_the_wire, asked.pod_sets)])


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
) -> Decision:
    """The next step of a gang. `now` is the leader's own clock, `wall` the time of day."""
    workload, placement = gang.workload, gang.placement
    gated = tuple(pod for pod in gang.pods if names.GATE in pod.spec.gates and not pod.finished and not pod.deleting)
    if workload.finished or workload.deleting:
        return Decision(
            NoAction(),
            Status("Finished", "", f"the {sanitize(workload.kind)} has {_end(workload)}; its slots are free")
            if placement is not None and workload.finished
            else None,
        )
    if policy.mode != "enforce" or (gang.understanding.asked is None and not gang.understanding.errors):
        return _without_request(gang, gated, policy)
    assigned = placement is not None and placement.assignment is not None
    if gang.understanding.errors and (not assigned or workload.suspended):
        return _misunderstood(gang, gated)
    # A gang that was placed goes on in its slots, also when the policy in force would refuse its request today.
    if (placement is None or placement.assignment is None) and not gated and (not ours(workload) or _runs(gang)):
        return Decision(NoAction())  # it ran before we were asked, or was let go: new workloads only
    if suspended_by_user(workload):
        timers.retry_at = 0.0
        timers.forget_pauses()  # whoever takes it up again has mended what was wrong
        return _user_suspension(gang)
    if placement is None or placement.assignment is None:
        if not gated and _expired(gang, timers):
            return Decision(NoAction())  # no pod ever appeared: planned again when one does
        timers.expired = False
        return Decision(Enqueue(), wake=timers.retry_at if timers.retry_at > now else None)
    if (fresh := hosts.other_devices()) is not None and not stale(gang):
        return Decision(ReassignDevices(fresh))
    if workload.suspended:
        timers.empty_since = None  # once it runs again its pods have their whole time to appear
        return _before_resume(gang, hosts)
    return running(gang, timers=timers, policy=policy, now=now, wall=wall, hosts=hosts)


def _end(workload: Workload) -> str:
    return "failed" if workload.failed else "ended"


def _expired(gang: Gang, timers: Timers) -> bool:
    """True when its slots went back because no pod appeared, and only a pod can tell that it is wanted again."""
    known = reason_of(known_code(gang.placement.status.get("reason"))) if gang.placement is not None else None
    expired = timers.expired or (known is not None and known.until == "pods")
    return not can_suspend(gang.workload) and not gang.workload.suspended and expired


def _runs(gang: Gang) -> bool:
    """True when pods of the gang have a node and nothing of ours stops the others."""
    return not gang.workload.suspended and any(pod.spec.node_name and not pod.finished for pod in gang.pods)


def _without_request(gang: Gang, gated: tuple[Pod, ...], policy: Policy) -> Decision:
    placement, held = gang.placement, held_by_us(gang.workload)
    forget = placement is not None and not placement.deleting
    if not held and not gated and not forget:
        return Decision(NoAction())
    reason = gang.understanding.ignored or "PolicyOff"
    loses = placement is not None and placement.assignment is not None
    if loses:
        outcome = "its slots are released: running pods stay where they are, new pods may run anywhere"
    else:
        outcome = "it is resumed and runs like any other workload" if held else "its pods are no longer held"
    message = f"{_no_request(reason, policy)}; {outcome}"
    return Decision(Unmanage(gated, resume=held, forget=forget, reason=reason, message=message, loses=loses))


def _no_request(reason: Code, policy: Policy) -> str:
    if asks_nothing(reason):
        return "no longer asks for a topology or a gang"
    return f"the policy's mode is {policy.mode}" if policy.mode != "enforce" else f"is no longer managed ({reason})"


def _misunderstood(gang: Gang, gated: tuple[Pod, ...]) -> Decision:
    """It asks for something that the policy in force does not allow or know: nothing of it starts."""
    placement, error = gang.placement, gang.understanding.errors[0]
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


def _before_resume(gang: Gang, health: HostHealth) -> Decision:
    """Mostly plan and resume are one errand. Else time has passed in between: the slots must still be there."""
    placement = gang.placement
    assert placement is not None and placement.assignment is not None
    hosts = sorted({slot.host for slot in slots_of(placement.assignment)})
    if stale(gang):
        return Decision(Unplace(suspend=False, reason="", message="the request changed: it is planned again"))
    if (gone := next((host for host in hosts if not health.usable(host)), None)) is not None:
        message = f"{gone} no longer accepts the gang"
        return Decision(Unplace(suspend=False, reason="NodesUnhealthy", message=message))
    if (taken := next((host for host in hosts if health.overcommitted(host)), None)) is not None:
        message = f"room reserved on {taken} was taken by other pods"
        return Decision(Unplace(suspend=False, reason="ReservedByOthers", message=message))
    return Decision(Resume())
