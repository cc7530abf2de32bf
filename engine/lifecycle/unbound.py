"""Examines the released pods of a gang that are not bound: the words of the scheduler, which to replace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.api.placement import PodSetPlan
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import plural, sanitize
from engine.api.workload import PodSet
from engine.gang.gang import Gang, by_pod_set, host_of, pinned_host, pod_set_of, rank_is_slot, rank_of, released
from engine.gang.slots import slot_by_rank
from engine.lifecycle.actions import Status
from engine.lifecycle.host_health import HostHealth, named
from engine.policy.model import Policy

_BEGINNING: Final = " nodes are available: "
_OF_HOSTS: Final = "node(s)"
# Characters of the scheduler's message that are quoted; its list of reasons over all nodes can be far longer.
MAX_REASON = 300


def about_the_pod(words: str) -> bool:
    """Return True if the scheduler refused the pod itself, so that no other host would help until the pod is corrected.

    The scheduler counts hosts by reason ("3 Insufficient cpu, 5 node(s) had untolerated taint(s)"). If a plugin refuses
    the pod as such (a volume claim that does not exist or is not bound yet, claims that are not made) its message has
    no number (`FitError` of kube-scheduler; `PreFilterMsg`).
    """
    _, found, said = words.partition(_BEGINNING)
    said = said.partition(" preemption:")[0]
    return bool(found and said) and not said[0].isdigit() and not said.startswith(_OF_HOSTS)


def replaced_freely(gang: Gang, pod: Pod, started: bool) -> bool:
    """Return True if evicting an unbound pod costs nothing; if it restarts a group, only while no pod of that runs."""
    pod_set = pod_set_of(pod, gang.workload)
    return pod_set is not None and (pod_set.evicted_freely or (pod_set.replace == "group" and not started))


def not_bound(pods: list[Pod], policy: Policy, started: bool) -> Status:
    """Return the status of a gang with pods that wait for the scheduler; quotes the first refusal."""
    reason: Code = "SchedulerSilent"
    said = "has given no reason: does it run?"
    if words := pods[0].unschedulable:
        reason, said = "SchedulerRefused", f"says: {sanitize(words, MAX_REASON)}"
    message = f"{plural(len(pods), 'pod')} not bound after {policy.timeouts.bind:g} s; the scheduler {said}"
    return Status("Incomplete" if started else "Placed", reason, message)


def off_their_slots(gang: Gang, unbound: Iterable[Pod], *, started: bool) -> list[Pod]:
    """Return those of the unbound pods to replace because they are pinned to another host than their slot's.

    Such a pod was created in the moment in which its slot was moved, and its pin cannot be changed. Where replacing it
    restarts the running pods of its group, only if the scheduler refuses it: the group cannot become complete without.
    """
    assert gang.placement is not None and gang.placement.assignment is not None
    found: list[Pod] = []
    for pod_set, pods in by_pod_set(gang.workload, [pod for pod in unbound if released(pod)]):
        if pods and _may_go(pod_set):
            off = off_slots(pod_set, gang.placement.assignment.plan_of(pod_set.name), pods)
            found += [pod for pod in off if pod_set.evicted_freely or not started or pod.unschedulable]
    return found


def without_slots(gang: Gang, unbound: Iterable[Pod]) -> list[Pod]:
    """Return those of the unbound pods to replace because their slot has gone, and they have no other.

    A replica that is behind pinned such a pod by an older plan. Only once the scheduler refuses it: while it waits, no
    slot is looked for, and its successor is held until there is one.
    """
    assert gang.placement is not None and gang.placement.assignment is not None
    plan_of = gang.placement.assignment.plan_of
    found: list[Pod] = []
    for pod_set, pods in by_pod_set(gang.workload, [pod for pod in unbound if released(pod) and pod.unschedulable]):
        if pods and rank_is_slot(pod_set) and _may_go(pod_set):
            lacking = set(range(pod_set.slots)).difference(slot_by_rank(plan_of(pod_set.name)))
            found += [pod for pod in pods if rank_of(pod, pod_set) in lacking]
    return found


def pinned_by_old_labels(gang: Gang, unbound: Iterable[Pod], hosts: HostHealth) -> list[Pod]:
    """Return those of the unbound pods to replace because their node has lost labels that it was pinned by.

    Only once the scheduler refuses it: its pin cannot be changed, and that of its successor has the labels of now.
    """
    refused = [pod for pod in unbound if released(pod) and pod.unschedulable]
    return [
        pod
        for pod_set, pods in by_pod_set(gang.workload, refused)
        if pod_set.name in gang.shapes and _may_go(pod_set)
        for pod in pods
        if (host := pinned_host(pod.spec.shape)) is not None
        and hosts.lacks_any(host, set(pod.spec.shape.node_selector).difference(gang.shapes[pod_set.name].node_selector))
    ]


def _may_go(pod_set: PodSet) -> bool:
    """Return True if an unbound pod can be replaced, at most by a restart of its group."""
    return pod_set.evicted_freely or pod_set.replace == "group"


def off_slots(pod_set: PodSet, plan: PodSetPlan, pods: Iterable[Pod]) -> list[Pod]:
    """Return those pods of a pod set that are bound or pinned to other hosts than their slots'."""
    if rank_is_slot(pod_set):
        slots: dict[int | None, set[str]] = {rank: {slot.host} for rank, slot in slot_by_rank(plan).items()}
        return [pod for pod in pods if not _goes_to(pod, slots.get(rank_of(pod, pod_set)))]
    hosts = {slot.host for slot in plan.slots}
    return [pod for pod in pods if not _goes_to(pod, hosts)]


def _goes_to(pod: Pod, hosts: set[str] | None) -> bool:
    """Return True unless a pod is bound or pinned to a host that is none of these.

    Also if there are none: a pod without a slot is not this plan's.
    """
    host = host_of(pod)
    return hosts is None or host is None or host in hosts


def off_their_slots_text(pods: Sequence[Pod]) -> str:
    """Return why pods that are pinned to hosts without slots are deleted."""
    return _deleted_text(pods, f"{'its slot is' if len(pods) == 1 else 'their slots are'} elsewhere now")


def without_slots_text(pods: Sequence[Pod]) -> str:
    """Return why pods are deleted that wait for a host where they have no slot any more, and have none elsewhere."""
    return _deleted_text(pods, f"{'has' if len(pods) == 1 else 'have'} no slot any more")


def old_labels_text(pods: Sequence[Pod]) -> str:
    """Return why pods are deleted that are pinned by labels that their nodes have no more."""
    return _deleted_text(pods, f"{'its' if len(pods) == 1 else 'their'} pin has labels that the node has no more")


def _deleted_text(pods: Sequence[Pod], but: str) -> str:
    where = named({host for pod in pods if (host := pinned_host(pod.spec.shape)) is not None})
    wait = "waits" if len(pods) == 1 else "wait"
    return f"{plural(len(pods), 'pod')} {wait} for {where}, but {but}: deleted, to be created again"
