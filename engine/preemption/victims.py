"""The gangs that may be preempted: those with slots, and the running pods that Topogate does not manage, by owner."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final

from engine.api import names
from engine.api.placement import Placement, placed_at
from engine.api.pod import Pod
from engine.api.workload import GangKey, ReservationKey, Workload
from engine.cache.state import ClusterState
from engine.gang.exemption import is_exempt
from engine.gang.gang import can_suspend, host_of, over
from engine.gang.key import orphan_key, placed_key
from engine.policy.making_room import Protect
from engine.policy.namespaces import mode_of
from engine.policy.patterns import matches
from engine.preemption.budgets import within_budgets

# The owners of pods that a preemption would not end: they are created again on the same host.
_PERMANENT_OWNERS: Final = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that may be preempted, or the unmanaged pods of one owner; `keys`: what its slots are reserved under.

    `count`: its pods with a host, those to come included; `started`: when it got its slots, or its first pod was
    created (seconds since the epoch); infinite before the first pod has a host. `preemptible`: false where its user
    wants it spared. `frees_quota`: its pods are not created again before it gets slots.
    """

    kind: str
    namespace: str
    name: str
    group: str | None
    priority: int
    pods: tuple[Pod, ...]
    keys: tuple[ReservationKey, ...]
    count: int
    started: float
    preemptible: bool = True
    frees_quota: bool = False


def possible_victims(
    view: ClusterState,
    *,
    others: bool,
    protect: Protect,
    own_namespace: str,
    now: float,
    below: float = inf,
    beside: Sequence[Pod] = (),
) -> Iterator[Victim]:
    """Yield what may be preempted, of a priority below one: the gangs with slots, with `others` unmanaged pods too.

    `protect`: what the policy spares; `now` in seconds since the epoch; `beside`: pods that end for others. The caller
    holds the state's lock at every step, and may release it between them.
    """
    for one in chain(managed(view, below=below), unmanaged(view, own_namespace) if others else ()):
        allowed = one.priority < below and not is_protected(one, protect, now)
        if allowed and within_budgets(view, one.pods, beside=beside):
            yield one


def is_protected(victim: Victim, protect: Protect, now: float) -> bool:
    """Return whether the policy spares a victim: for its namespace, its running time, or its user's annotation."""
    if protect.annotated and not victim.preemptible:
        return True
    if protect.running_for is not None and now - victim.started >= protect.running_for:
        return True
    return matches(victim.namespace, protect.namespaces)


def spared(view: ClusterState, workload: Workload, pods: Collection[Pod], *, moves: bool = False) -> bool:
    """Return whether a gang is spared by now: for its namespace or the mode there, its user's wish, or a budget.

    Not for its running time, which goes on while it is to end. `moves`: it is to restart elsewhere.
    """
    protect = view.policy.defragment.protect if moves else view.policy.preemption.protect
    if mode_of(workload.namespace, view.policy).holds:
        return True
    if protect.annotated and not view.request_of(workload).preemptible:
        return True
    return matches(workload.namespace, protect.namespaces) or not within_budgets(view, pods)


def managed(view: ClusterState, *, below: float = inf) -> Iterator[Victim]:
    """Yield the gangs with slots of a priority below one, whether their workload is known or only their Placement."""
    for plan in view.gangs.plans():
        if (found := _victim(view, placed_key(plan), plan, below)) is not None:
            yield found


def managed_now(view: ClusterState, key: GangKey) -> Victim | None:
    """Return the gang of a key as it is now; None when it has no slots any more."""
    plan = view.gangs.plan_of(key)
    return _victim(view, key, plan, inf) if plan is not None else None


def _victim(view: ClusterState, key: GangKey, plan: Placement, below: float) -> Victim | None:
    if plan.assignment is None or plan.deleting or plan.status.get("phase") == "Finished":
        return None
    if mode_of(plan.namespace, view.policy).holds:
        return None  # running gangs go on there, and one that ends could not start again
    workload = view.gangs.workload_of(key)
    if workload is not None and over(workload):
        return None
    keys: tuple[ReservationKey, ...] = (key,)
    pods = view.gangs.pods_of(key) if workload is not None else tuple(view.stores.pods.get_by(plan.key))
    priority = priority_with(view, plan, workload, pods)
    if priority >= below:
        return None
    if workload is not None:
        preemptible = view.request_of(workload).preemptible
    else:
        keys = (key, *map(orphan_key, pods))
        preemptible = all(pod.spec.annotations.get(names.PREEMPTIBLE) != "false" for pod in pods)
    return Victim(
        kind=plan.workload.kind,
        namespace=plan.namespace,
        name=plan.workload.name,
        group=plan.group,
        priority=priority,
        pods=pods,
        keys=keys,
        count=_bound(pods) + sum(sum(view.capacity.reserved(one).values()) for one in keys),
        started=_started(plan, pods),
        preemptible=preemptible,
        frees_quota=workload is not None and can_suspend(workload),
    )


def priority_with(view: ClusterState, plan: Placement, workload: Workload | None, pods: Iterable[Pod]) -> int:
    """Return the priority that a gang with slots has with its pods: the highest of those with hosts, if any has one.

    Its template may name a class that no quota admits: a StatefulSet keeps its pods whatever that says.
    """
    running = (pod.spec for pod in pods if pod.spec.node_name and not pod.finished)
    # Admission gives every pod a number; without any, what is to come decides.
    numbers = [spec.priority for spec in running if spec.priority is not None]
    if numbers:
        return max(numbers)
    return plan.priority if workload is None else view.pod_shapes.priority_of(workload)


def unmanaged(view: ClusterState, own_namespace: str) -> Iterator[Victim]:
    """Yield the running pods that Topogate does not manage, by their controller."""
    owners: dict[tuple[str, str], list[Pod]] = {}
    for pod in view.stores.pods.values():
        if not _is_unmanaged(view, pod, own_namespace):
            continue
        owners.setdefault((pod.namespace, pod.owner.uid if pod.owner is not None else pod.uid), []).append(pod)
    for (namespace, _), pods in owners.items():
        owner = pods[0].owner
        kind, name = (owner.kind, owner.name) if owner is not None else ("Pod", pods[0].name)
        priority = max(view.pod_shapes.priority_of_pod(pod.spec) for pod in pods)
        started = min(pod.created for pod in pods)
        alone = owner is None
        yield Victim(kind, namespace, name, None, priority, tuple(pods), (), len(pods), started, frees_quota=alone)


def may_be_evicted(view: ClusterState, pod: Pod, *, below: float) -> bool:
    """Return whether the policy lets a pod that Topogate does not manage end for a gang of this priority, by now."""
    rules = view.policy.preemption
    return (
        rules.victims == "all"
        and _is_unmanaged(view, pod, view.own_namespace)
        and view.pod_shapes.priority_of_pod(pod.spec) < below
        and not matches(pod.namespace, rules.protect.namespaces)
    )


def _is_unmanaged(view: ClusterState, pod: Pod, own_namespace: str) -> bool:
    if names.MANAGED in pod.spec.labels or pod.finished or pod.mirror or not host_of(pod):
        return False
    if pod.owner is not None and pod.owner.kind in _PERMANENT_OWNERS:
        return False
    if is_exempt(pod.namespace, policy=view.policy, own_namespace=own_namespace):
        return False
    return view.gangs.gang_of(pod) is None  # without our label all the same: it ends with its gang


def _bound(pods: Iterable[Pod]) -> int:
    return sum(not pod.finished and bool(pod.spec.node_name) for pod in pods)


def _started(placement: Placement, pods: Iterable[Pod]) -> float:
    if not any(pod.spec.node_name for pod in pods):
        return inf
    since = placed_at(placement.status)
    return since if since is not None else min(pod.created for pod in pods)
