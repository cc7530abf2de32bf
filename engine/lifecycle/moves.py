"""Moves that the user of a running gang asks for with annotations. Pure.

`topogate.dev/replace`: its pods leave hosts. First all of them get other slots, beside the pods that stay; then they
are evicted, and their replacements go to the new slots. Both steps follow from the Placement and the pods alone, so
that a leader that ends anywhere in between is continued by the next one. Lost ranks get their slots in the same plan:
planned alone they would have to join pods that are to leave.

`topogate.dev/replan`: the whole gang gets a better place, if there is one. It keeps its old slots until it has other
ones: the decision is written, the workload is suspended, and when its pods have ended it is planned without them, its
new slots are written instead of the old ones, and it is resumed. If there is no better place then, it is resumed in its
old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from engine.api import names
from engine.api.placement import PodSetPlan, ReplanRecord, replan_record
from engine.api.pod import Pod
from engine.api.text import plural, sanitize
from engine.api.workload import PodSet
from engine.gang.gang import ENDS_SUSPENDED, Gang, by_pod_set, can_suspend, host_of, pod_set_of, rank_is_slot, rank_of
from engine.gang.repair import Blocked, ExtensionRequest, Missed, repair_request, return_request
from engine.gang.slots import slot_by_rank
from engine.lifecycle.actions import Decision, EvictPods, Extend, NoAction, RecordReplan, Replan, Status
from engine.lifecycle.gang_state import REMOVE_AGAIN, Timers
from engine.lifecycle.host_health import HostHealth, named

# Seconds. A gang that restarts elsewhere waits at most this long for its pods to end: a finalizer may keep one.
PODS_END_WITHIN: Final = 600.0
_MAX_MESSAGE: Final = 512  # of an answer that is repeated


def leaving_pods(gang: Gang) -> list[Pod]:
    """Return the pods that are to leave their hosts: those whose eviction costs no more than the pod's work."""
    hosts = gang.request.leave_hosts
    if not hosts:
        return []
    return [
        pod
        for pod_set, pods in by_pod_set(gang.workload, gang.pods)
        if pod_set.evicted_freely
        for pod in pods
        if pod.live and host_of(pod) in hosts
    ]


def leave_hosts(
    gang: Gang, request: ExtensionRequest | None, *, timers: Timers, now: float, progress: Status
) -> Decision | None:
    """Return the next step for pods that are to leave their hosts; None if there are none.

    `request`: the result of `move_request`; `progress`: the status of the gang without this.
    """
    if not (leaving := leaving_pods(gang)):
        return None
    moved = _with_new_slots(gang, leaving)
    if due := timers.remove(moved, now):
        message = f"{who_leaves(gang, due)}; evicted, as the new {'slot is' if len(due) == 1 else 'slots are'} written"
        return Decision(EvictPods(due, evict=True, reason="Moving", message=message), wake=now + REMOVE_AGAIN)
    if request is not None:
        return Decision(Extend(request, who_leaves(gang, leaving), progress), wake=now + REMOVE_AGAIN)
    if not moved:
        return None
    why = f"{who_leaves(gang, moved)}; evicted again every {REMOVE_AGAIN:g} s, as a disruption budget may forbid it"
    message = f"{progress.message}; {why}"
    status = replace(progress, reason=progress.reason or "Moving", message=message)
    return Decision(NoAction(), status, wake=min(timers.removed[pod.uid] for pod in moved) + REMOVE_AGAIN)


def _with_new_slots(gang: Gang, leaving: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return those of the leaving pods that have slots on other hosts already."""
    assert gang.placement is not None and gang.placement.assignment is not None
    hosts, found = gang.request.leave_hosts, []
    for pod_set, pods in by_pod_set(gang.workload, gang.pods):
        plan = gang.placement.assignment.plan_of(pod_set.name)
        mine = [pod for pod in pods if pod in leaving]
        if rank_is_slot(pod_set):
            by_rank = slot_by_rank(plan)
            found += [pod for pod in mine if (slot := by_rank.get(_rank(pod, pod_set))) and slot.host not in hosts]
        elif mine:
            found += sorted(mine, key=lambda pod: (pod.created, pod.uid))[: _spare(pod_set, plan, pods, hosts)]
    return tuple(found)


def _rank(pod: Pod, pod_set: PodSet) -> int:
    rank = rank_of(pod, pod_set)
    return -1 if rank is None else rank


def _spare(pod_set: PodSet, plan: PodSetPlan, pods: Sequence[Pod], hosts: frozenset[str]) -> int:
    """Return how many slots outside of the hosts to be left are free, beyond those that pods without a host get.

    A gang may have fewer slots than pods (`min-available`): those beyond the slots get none.
    """
    used = Counter(host for pod in pods if pod.live and (host := host_of(pod)) is not None)
    free = sum(max(0, slot.count - used[slot.host]) for slot in plan.slots if slot.host not in hosts)
    return max(0, free - max(0, min(pod_set.needed, plan.count) - used.total()))


def move_request(
    gang: Gang, *, blocked: Blocked, missed: Missed, replaced: Sequence[Pod] = ()
) -> ExtensionRequest | None:
    """Return the request for slots on other hosts of all leaving pods and lost ranks; None if no pod leaves for it.

    All of them get slots, or none does. A pod that has its new slot already keeps it, and its old host nothing of the
    gang. `blocked`, `missed` and `replaced` as in `repair_request`.
    """
    if not (leaving := leaving_pods(gang)):
        return None
    assert gang.placement is not None
    moved = _with_new_slots(gang, leaving)
    ranks = {
        (pod_set.name, rank_of(pod, pod_set) if rank_is_slot(pod_set) else None)
        for pod_set, pods in by_pod_set(gang.workload, leaving)
        for pod in pods
        if pod not in moved
    }

    def leaves_or_missed(pod_set: str, rank: int) -> bool:
        return (pod_set, rank) in ranks or (pod_set, None) in ranks or missed(pod_set, rank)

    staying = [pod for pod in gang.pods if pod not in leaving]
    found = repair_request(
        gang.workload, gang.placement, staying, blocked=blocked, missed=leaves_or_missed, replaced=replaced
    )
    if found is None:
        return None
    asks = tuple(replace(ask, min_available=ask.count) for ask in found.pod_sets)
    whole = replace(found.gang, min_available=None) if found.gang is not None else None
    return replace(found, pod_sets=asks, gang=whole, on_request=bool(ranks))


def return_slots(gang: Gang, progress: Callable[[], Status]) -> Decision | None:
    """Return the decision to have slots where pods run whose slots are elsewhere; None if each is on its own.

    So a move that is taken back after its slots were written leaves those pods in their place that are still there.
    The slots of pods that somebody else has put on hosts are there then, and their old ones are free for others.
    `progress` returns the status of the gang without this.
    """
    assert gang.placement is not None
    leaving = leaving_pods(gang)
    request = return_request(gang.workload, gang.placement, [pod for pod in gang.pods if pod not in leaving])
    if request is None:
        return None
    return Decision(Extend(request, without_slot_text(gang, request.returned), progress()))


def without_slot_text(gang: Gang, pods: Sequence[Pod]) -> str:
    """Return which pods run on which hosts without a slot there."""
    who, where = _who_and_where(gang, pods)
    return f"{who} {'runs' if len(pods) == 1 else 'run'} on {where}, where no slot is"


def who_leaves(gang: Gang, pods: Sequence[Pod]) -> str:
    """Return which pods leave which hosts, and why."""
    who, where = _who_and_where(gang, pods)
    return f"{who} {'leaves' if len(pods) == 1 else 'leave'} {where} ({names.REPLACE})"


def _who_and_where(gang: Gang, pods: Sequence[Pod]) -> tuple[str, str]:
    """Return in words which pods these are, and their hosts."""
    where = named({host for pod in pods if (host := host_of(pod)) is not None})
    if len(pods) == 1:
        pod_set = pod_set_of(pods[0], gang.workload)
        if pod_set is not None and (rank := rank_of(pods[0], pod_set)) is not None:
            return f"rank {rank:,}", where
    return plural(len(pods), "pod"), where


def replan_running(gang: Gang, *, wall: float) -> Decision | None:
    """Return the next step of a running gang that its user asks to plan anew; None: there is nothing to answer."""
    asked, record, placement = gang.request.replan, replan_record(gang.status), gang.placement
    assert placement is not None and placement.assignment is not None
    if gang.request.errors:
        return None
    if asked is None:
        return Decision(RecordReplan(None)) if record is not None else None
    if record is not None and record.value == asked:
        if record.outcome != "Restarting":
            return None
        if record.revision != placement.assignment.revision:
            return Decision(RecordReplan(_moved_record(gang, wall=wall)))
        if gang.workload.generation > record.generation:  # as our suspension was followed by a resume of somebody else
            return Decision(RecordReplan(kept_record(gang, "it was resumed before it had another place", wall=wall)))
    if not can_suspend(gang.workload):
        ends = f": {ENDS_SUSPENDED}" if gang.workload.ends_suspended else ""
        why = f"this {sanitize(gang.workload.kind)} cannot be suspended{ends}"
        return Decision(RecordReplan(kept_record(gang, why, wall=wall)))
    if gang.pod_group is not None and gang.shares_group:
        why = (
            f"the workloads of pod group {sanitize(gang.pod_group.name)} start together; suspend and resume all of them"
        )
        return Decision(RecordReplan(kept_record(gang, why, wall=wall)))
    return Decision(Replan(asked))


def replan_suspended(gang: Gang, hosts: HostHealth, *, now: float, wall: float) -> Decision | None:
    """Return the next step of a gang that we have suspended so that it restarts elsewhere; None if we have not.

    Its pods have to end first: as long as one uses a host, the place there cannot be planned. Those that terminate on
    dead hosts do not count, nor any after ten minutes. One that does not terminate yet counts everywhere: resumed now,
    its controller would keep it where it is.
    """
    record, placement = replan_record(gang.status), gang.placement
    assert placement is not None and placement.assignment is not None
    if record is None or record.outcome != "Restarting" or record.revision != placement.assignment.revision:
        return None
    if record.value != gang.request.replan:
        return None  # taken back: it is resumed where it was
    ending = [
        pod
        for pod in gang.pods
        if not pod.finished and not (pod.deleting and pod.spec.node_name and hosts.down(pod.spec.node_name) is not None)
    ]
    left = record.at + PODS_END_WITHIN - wall
    if not ending or left <= 0:
        return Decision(Replan(record.value))
    first = "has" if len(ending) == 1 else "have"
    message = f"{record.message}; {plural(len(ending), 'pod')} {first} to end first"
    return Decision(NoAction(), Status("Placed", "Moving", message), wake=now + left)


def kept_record(gang: Gang, why: str, *, wall: float) -> ReplanRecord:
    """Return the answer that a gang stays where it is."""
    assert gang.placement is not None and gang.placement.assignment is not None
    return ReplanRecord(
        value=gang.request.replan or "",
        outcome="Kept",
        revision=gang.placement.assignment.revision,
        generation=gang.workload.generation,
        at=wall,
        message=f"stays in its place ({names.REPLAN}): {why}",
    )


def _moved_record(gang: Gang, *, wall: float) -> ReplanRecord:
    """Return the answer about a gang that has other slots, where who wrote them had no time for one."""
    message = f"has other slots than when it was to restart ({names.REPLAN})"
    return replace(kept_record(gang, "", wall=wall), outcome="Moved", message=message)


def moves_text(gang: Gang) -> str:
    """Return the state of the moves that a gang with slots is asked for, in words; "" if it is asked for none."""
    parts = []
    record, hosts = replan_record(gang.status), gang.request.leave_hosts
    if gang.request.replan is not None and record is not None and record.value == gang.request.replan:
        parts.append(sanitize(record.message, _MAX_MESSAGE))
    elif gang.request.replan is not None:
        parts.append(f"to be planned anew ({names.REPLAN})")
    if leaving := leaving_pods(gang):
        parts.append(who_leaves(gang, leaving))
    elif hosts:
        parts.append(f"none of its pods that can move is on {named(hosts)} ({names.REPLACE}), which it does not use")
    return "; ".join(parts)
