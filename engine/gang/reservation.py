"""Computes the slots that a gang keeps reserved: those of pods that are not bound yet. Pure.

A slot counts once: as its bound pod (usage) or as a reservation. Pod sets are computed separately, as their shapes
differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.api.placement import Placement, PodSetPlan, Slot, slots_by_host
from engine.api.pod import Pod, PodSpec
from engine.api.resources import Requests, at_most, is_claim, largest
from engine.api.workload import PodSet, Workload
from engine.devices.allocation import Uses, devices_by_rank, devices_of, spare_devices
from engine.gang.gang import (
    by_pod_set,
    ended,
    host_of,
    may_land,
    on_its_pin,
    pinned_host,
    pod_set_of,
    rank_is_slot,
    rank_of,
    released,
)
from engine.gang.slots import assign_slots, done_ranks, slot_by_rank

# Resources of which a pod may request less than its template.
_SHRINKING: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation of one pod set: host -> pods still to be bound there, and their devices where they are known.

    `pods`: those of the pod set that fill a slot or wait for one; `small`: those on hosts that request too little for
    that. `doubtful`: so many of the slots are of completed pods, and nobody knows which.
    """

    pod_set: PodSet
    hosts: Mapping[str, int]
    pods: Sequence[Pod]
    uses: Mapping[str, tuple[Uses, ...]] = field(default_factory=dict)
    doubtful: int = 0
    small: Sequence[Pod] = ()

    @property
    def to_come(self) -> int:
        """Return how many pods are still to be bound."""
        return max(0, sum(self.hosts.values()) - self.doubtful)

    @property
    def beside_small(self) -> int:
        """Return how many of them have a pod that runs already, but requests too little to fill its slot."""
        return min(self.to_come, sum(pod.live for pod in self.small))


def reservations(
    workload: Workload,
    placement: Placement,
    pods: Iterable[Pod],
    *,
    leave_hosts: Collection[str] | None = None,
    completed: Mapping[str, Collection[int]] | None = None,
) -> list[Reservation]:
    """Return every pod set's reservation; none for a workload that has ended or is being deleted.

    A pod that requests fewer devices than its slot was planned for fills none, and waits for none: anybody may create
    such pods, and when it goes the slot would be another's.

    One that its user has suspended keeps its slots until the leader has taken them from its Placement: its user may
    resume it before, and no slot is to stand in two Placements.

    Given `leave_hosts`, which may be empty, pods with slots on other hosts need these too: pods that are to leave these
    hosts are about to be replaced, and others may end before the Placement has slots where they are.
    `completed`: ranks without a reservation, by pod set, beside those that have completed by the workload's status.
    """
    assignment = placement.assignment
    if assignment is None or ended(workload):
        return []
    found = []
    for pod_set, members in by_pod_set(workload, pods):
        plan = assignment.plan_of(pod_set.name)
        by_rank = slot_by_rank(plan) if rank_is_slot(pod_set) else None
        needs = _needs(workload, pod_set, plan)
        counted: list[Pod] = []
        small: list[Pod] = []
        for pod in members:
            if fills(pod.spec.shape.requests, needs):
                counted.append(pod)
            elif pod.spec.node_name and not pod.finished:
                small.append(pod)
        if by_rank is None:
            planned = {slot.host for slot in plan.slots}
            staying = [
                pod
                for pod in counted
                if pod.finished or pod.spec.node_name in planned or not _has_moved(pod_set, pod, leave_hosts)
            ]
            hosts = _hosts(pod_set, plan, staying)
            found.append(Reservation(pod_set, hosts, counted, _devices(plan, staying) if hosts else {}, small=small))
        else:
            ranks, doubtful = _ranks(
                pod_set, by_rank, counted, completed=(completed or {}).get(pod_set.name, ()), leave_hosts=leave_hosts
            )
            hosts = dict(Counter(ranks.values()) + _mispinned(pod_set, plan, by_rank, counted))
            found.append(Reservation(pod_set, hosts, counted, _devices_of_ranks(plan, ranks), doubtful, small))
    return found


def reservation(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> dict[str, int]:
    """Return, by host, the number of pods that are still to be bound there, all pod sets together."""
    total: Counter[str] = Counter()
    for one in reservations(workload, placement, pods):
        total.update(one.hosts)
    return dict(total)


def open_slots(
    workload: Workload,
    placement: Placement,
    pods: Iterable[Pod],
    *,
    held: bool,
    leave_hosts: Collection[str] | None = None,
) -> dict[str, Counter[str]]:
    """Return the slots (pod set -> host -> count) that pods not seen yet may take.

    With `held` also the slots of held pods, which may be on their way already. `leave_hosts` as in `reservations`.
    """
    pods = filling(workload, placement, pods)
    reserved = reservations(workload, placement, pods, leave_hosts=leave_hosts)
    found = {one.pod_set.name: Counter(one.hosts) for one in reserved}
    for pod_set, members in by_pod_set(workload, pods):
        if pod_set.name in found:
            found[pod_set.name] -= Counter(pinned_host(pod.spec.shape) or "" for pod in members if released(pod))
    for one in () if held else assign_slots(workload, placement, pods).assignments:
        pod_set_name = (pod_set_of(one.pod, workload) or workload.pod_sets[0]).name
        found.get(pod_set_name, Counter())[one.slot.host] -= 1
    return {name: +counts for name, counts in found.items()}


def pods_of_slots(workload: Workload, placement: Placement, kept: Reservation) -> dict[str, list[Pod]]:
    """Return, by host, the pods that have slots of a reservation already; the other slots are of pods to be created.

    First those that are on their way, then held ones with a slot of their own, then those that are not ready for one,
    or have none: anybody may write our marks on any number of pods.
    """
    pod_set, left = kept.pod_set, Counter(kept.hosts)
    found: dict[str, list[Pod]] = {}

    def give(pod: Pod, host: str | None) -> None:
        if host is not None and left[host] > 0:
            left[host] -= 1
            found.setdefault(host, []).append(pod)

    for pod in sorted(filter(released, kept.pods), key=may_land, reverse=True):
        give(pod, pinned_host(pod.spec.shape))
    assigned = assign_slots(workload, placement, kept.pods)
    for one in assigned.assignments:
        give(one.pod, one.slot.host)
    assert placement.assignment is not None
    plan = placement.assignment.plan_of(pod_set.name)
    given = {one.pod.uid for one in assigned.assignments}
    waiting = [pod for pod in kept.pods if pod.live and host_of(pod) is None and pod.uid not in given]
    if rank_is_slot(pod_set):
        by_rank, ranks = slot_by_rank(plan), {one.rank for one in assigned.assignments}
        for pod in waiting:
            if (rank := rank_of(pod, pod_set)) in by_rank and rank is not None and rank not in ranks:
                ranks.add(rank)
                give(pod, by_rank[rank].host)
    else:
        free = (slot.host for slot in plan.slots for _ in range(left[slot.host]))
        for pod, host in zip(waiting, list(free), strict=False):
            give(pod, host)
    return found


def unreserved_pods(workload: Workload | None, placement: Placement | None, pods: Iterable[Pod]) -> list[Pod]:
    """Return the released pods that can still be bound to their hosts without a reservation.

    Their gang has ended, is gone, or has given its slots back, and they are not removed yet; or they request less than
    their slots are for. Until they are bound or removed their capacity must not be promised to others. A pod that the
    scheduler has refused does not count: anybody may write our marks on a pod that is never bound, and no host would be
    left for others.
    """
    planned: dict[str, tuple[Requests, set[str]]] = {}
    if workload is not None and placement is not None and placement.assignment is not None and not ended(workload):
        for pod_set in workload.pod_sets:
            plan = placement.assignment.plan_of(pod_set.name)
            planned[pod_set.name] = (_needs(workload, pod_set, plan), {slot.host for slot in plan.slots})
    found = []
    for pod in pods:
        if may_land(pod) and (host := pinned_host(pod.spec.shape)) is not None:
            own = pod_set_of(pod, workload) if workload is not None and planned else None
            needs, hosts = planned[own.name] if own is not None else ((), ())
            if host not in hosts or not fills(pod.spec.shape.requests, needs):
                found.append(pod)
    return found


def _has_moved(pod_set: PodSet, pod: Pod, leave_hosts: Collection[str] | None) -> bool:
    """Return whether a pod that runs where it has no slot leaves the slot that it has elsewhere to its successor.

    It is to leave its host, or was: we had placed it there, and its slot is not there again yet. A pod that somebody
    else has put on a host fills its slot. `leave_hosts` as in `reservations`.
    """
    if leave_hosts is None:
        return False
    return (pod.spec.node_name in leave_hosts and pod_set.evicted_freely) or on_its_pin(pod)


def _hosts(pod_set: PodSet, plan: PodSetPlan, pods: Sequence[Pod]) -> dict[str, int]:
    """Return, by host, the number of pods of one pod set that are still to be bound there, where any slot will do.

    A bound pod fills a slot wherever it landed. A terminating pod shares its slot with its replacement, but only on
    that slot's host: a gang that was planned anew needs its new slots beside its old pods.
    """
    pods = [pod for pod in pods if pod.phase == "Succeeded" or not pod.finished]
    counted = [(pod, pod.spec.node_name or pod.nominated_node) for pod in pods if not pod.finished]
    bound = [(pod, host) for pod, host in counted if host and not pod.deleting]
    leaving = [(pod, host) for pod, host in counted if host and pod.deleting]
    planned = {slot.host for slot in plan.slots}
    unbound = [(pod, host) for pod in pods if released(pod) and (host := pinned_host(pod.spec.shape))]
    wanted = Counter(host for pod, host in unbound if host in planned and may_land(pod))
    full = wanted + Counter(host for _, host in bound)
    # Those that are refused have their slots, and no more: anybody may pin any number of pods to a host.
    refused = Counter(host for pod, host in unbound if host in planned and not may_land(pod))
    for slot in plan.slots:
        kept = min(max(0, slot.count - full[slot.host]), refused[slot.host])
        refused[slot.host] -= kept
        wanted[slot.host] += kept
        full[slot.host] += kept
    # A held pod needs a slot in any case: completed ones may still look as if they ran.
    held = sum(1 for pod in pods if pod.live and not host_of(pod))
    open_total = max(0, pod_set.needed - len(bound) - wanted.total(), held)
    for slot in plan.slots:
        open_here = min(max(0, slot.count - full[slot.host]), open_total)
        wanted[slot.host] += open_here
        open_total -= open_here
    wanted.subtract(Counter(host for _, host in leaving))
    return {host: count for host, count in wanted.items() if count > 0}


def _ranks(
    pod_set: PodSet,
    by_rank: Mapping[int, Slot],
    pods: Iterable[Pod],
    *,
    completed: Collection[int],
    leave_hosts: Collection[str] | None,
) -> tuple[dict[int, str], int]:
    """Return rank -> host of the pods that are still to be bound, where each rank is a slot, and `doubtful`.

    Finished ranks give their slot back; a pod that landed elsewhere, or is on its way there (see `unreserved_pods`),
    fills the slot of its rank. A terminating pod shares its slot with its replacement, but only on that slot's host.
    """
    pods = [pod for pod in pods if pod.phase == "Succeeded" or not pod.finished]
    filled: set[int] = set()
    waiting: set[int] = set()
    shared: set[tuple[int | None, str]] = set()
    beyond = 0  # pods with an index beyond the slots
    for pod in pods:
        if pod.finished:
            continue
        host, rank = pod.spec.node_name or pod.nominated_node, rank_of(pod, pod_set)
        if host and pod.deleting:
            shared.add((rank, host))
        elif host and rank is not None:
            slot = by_rank.get(rank)
            if slot is None or slot.host == host or not _has_moved(pod_set, pod, leave_hosts):
                filled.add(rank)
        elif host and pod_set.replica is not None:
            beyond += 1
        elif not host and not pod.deleting and rank is not None:
            waiting.add(rank)
    done = done_ranks(pod_set, pods).union(completed)
    # By the slots, not by the ranks: a workload may have any number of pods, and no webhook sees it being scaled.
    hosts = {
        rank: slot.host
        for rank, slot in by_rank.items()
        if rank < pod_set.slots and rank not in done and rank not in filled
    }
    # A kind may count its completed pods without telling their ranks. KubeRay removes any replica, and those that stay
    # keep their indexes; a StatefulSet removes the last pods, and makes a missing one before that. A pod that is there
    # and waits needs its slot in any case: the completed ones may still look as if they ran.
    running = sum(rank < pod_set.slots for rank in filled - done)
    to_come = max(0, pod_set.needed - running - beyond, len(waiting & hosts.keys()))
    # Which slot a pod needs that does not exist yet nobody knows: any that may be of a completed one.
    likely = _likely(pod_set, hosts, running=filled, there={*waiting, *(rank for rank, _ in shared)})
    unknown = pod_set.completed - sum(rank < pod_set.slots for rank in done) if to_come > len(likely) else 0
    doubtful = max(0, min(unknown, len(hosts) - to_come))
    if len(hosts) > to_come + doubtful:
        first = sorted(hosts.items(), key=lambda one: (one[0] not in waiting, one[0] not in likely, one[0]))
        hosts = dict(first[: to_come + doubtful])
    return {rank: host for rank, host in hosts.items() if (rank, host) not in shared}, doubtful


def _likely(
    pod_set: PodSet, ranks: Collection[int], *, running: Collection[int | None], there: Collection[int | None]
) -> set[int]:
    """Return those of the ranks without a bound pod that have not completed, as far as pods tell it.

    `there`: the ranks of pods that wait or are being deleted. Of a JobSet only whole Jobs count as completed: none of
    those with other pods has.
    """
    size = pod_set.replica
    if size is None or not pod_set.completed:
        return {rank for rank in ranks if rank in there}
    begun = {rank // size for rank in (*running, *there) if rank is not None}
    return {rank for rank in ranks if rank // size in begun}


def _mispinned(pod_set: PodSet, plan: PodSetPlan, by_rank: Mapping[int, Slot], pods: Iterable[Pod]) -> Counter[str]:
    """Count, by planned host, the pods that are released to it and have no slot there any more.

    The slot of their rank is on another host now, or their gang was scaled down and the Placement does not say so yet.
    Until such a pod is bound or removed it counts, as it can still be bound; its successor will need its slot besides.
    """
    planned = {slot.host for slot in plan.slots}
    found: Counter[str] = Counter()
    for pod in pods:
        if may_land(pod) and (host := pinned_host(pod.spec.shape)) in planned and host is not None:
            rank = rank_of(pod, pod_set)
            if rank is None or rank not in by_rank or by_rank[rank].host != host or rank >= pod_set.slots:
                found[host] += 1
    return found


def _devices_of_ranks(plan: PodSetPlan, ranks: Mapping[int, str]) -> dict[str, tuple[Uses, ...]]:
    """Return, by host, the known devices of the ranks that are still to be bound there."""
    devices = devices_by_rank(plan) if any(slot.devices is not None for slot in plan.slots) else {}
    found: dict[str, tuple[Uses, ...]] = {}
    for rank, host in sorted(ranks.items()) if devices else ():
        if rank in devices:
            found[host] = (*found.get(host, ()), devices[rank])
    return found


def _devices(plan: PodSetPlan, pods: Sequence[Pod]) -> dict[str, tuple[Uses, ...]]:
    """Return, by host, the known devices of the pods of one pod set that are still to be bound there."""
    if all(slot.devices is None for slot in plan.slots):
        return {}
    found: dict[str, list[Uses]] = {}
    live = [pod for pod in pods if not pod.finished]
    counted = [(pod, host) for pod in live if (host := pod.spec.node_name or pod.nominated_node)]
    unbound = [pod for pod in live if released(pod)]
    for slot in plan.slots:
        if slot.devices is not None:
            there = [pod for pod, host in counted if host == slot.host]
            coming = [pod for pod in unbound if pinned_host(pod.spec.shape) == slot.host]
            # First those of released pods: they can be bound at any moment.
            first = [uses for pod in coming if (uses := devices_of(pod)) is not None]
            rest = [uses for uses in spare_devices(slot, (*there, *coming)) if uses]
            found[slot.host] = [*first, *rest]
    return {host: tuple(uses) for host, uses in found.items() if uses}


def admitted(workload: Workload, pod_set: PodSet, pods: Iterable[Pod], *, placement: Placement | None) -> int:
    """Return how many pods of a pod set the quotas have admitted, of these pods of it: at most one for each slot.

    Anybody may create pods with a workload as their controller: without GPUs, of another PriorityClass, with any index.
    A pod counts if it has what its template asks quotas for: its devices, its PriorityClass, its affinity to other
    namespaces; or if it fills its slot in `placement`: its template may be another by now. Admission may make
    processors and memory of a real pod fewer (VerticalPodAutoscaler).
    """
    pods = list(pods)
    if workload.handling == "pods":
        return len(pods)  # the template is made of them
    assignment = placement.assignment if placement is not None else None
    plan = assignment.plan_of(pod_set.name) if assignment is not None else PodSetPlan(pod_set.name, ())
    counted = [pod for pod in pods if _asks_quotas_as(pod_set.template, pod.spec)]
    needs = _needs(workload, pod_set, plan)
    pods = [pod for pod in pods if fills(pod.spec.shape.requests, needs)]
    if not rank_is_slot(pod_set):
        bound = Counter(pod.spec.node_name for pod in pods)
        free = slots_by_host([plan])
        free.subtract(pod.spec.node_name for pod in counted)
        bound.subtract(pod.spec.node_name for pod in counted)
        return min(len(counted) + (+free & +bound).total(), pod_set.slots)
    by_rank = slot_by_rank(plan)
    ranks = [rank_of(pod, pod_set) for pod in counted]
    ranks += [
        rank
        for pod in pods
        if (rank := rank_of(pod, pod_set)) in by_rank and rank is not None and by_rank[rank].host == pod.spec.node_name
    ]
    # KubeRay removes any replica, and those that stay keep their indexes, which may be beyond the slots.
    beyond = ranks.count(None) if pod_set.replica is not None else 0
    return len({rank for rank in ranks if rank is not None and rank < pod_set.slots}) + beyond


def _asks_quotas_as(template: PodSpec, spec: PodSpec) -> bool:
    if template.priority_class not in ("", spec.priority_class) or template.cross_namespace > spec.cross_namespace:
        return False
    return fills(spec.shape.requests, template.shape.requests)


def filling(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that request the devices that their slots were planned for."""
    assert placement.assignment is not None
    found: list[Pod] = []
    for pod_set, members in by_pod_set(workload, pods):
        needs = _needs(workload, pod_set, placement.assignment.plan_of(pod_set.name))
        found += [pod for pod in members if fills(pod.spec.shape.requests, needs)]
    return found


def fills(requests: Requests, needs: Requests) -> bool:
    """Return whether a pod with these requests has all devices that a slot is for."""
    if requests == needs:
        return True  # most pods
    asks = dict(requests)
    return all(amount <= asks.get(name, 0) for name, amount in devices_in(needs))


def devices_as_held(requests: Requests, pod_set: PodSet, pods: Iterable[Pod]) -> Requests:
    """Return the requests of a template with no more devices than its pods have, if all of them exist and are held.

    They were made of an earlier template, and are to fill their slots. Later ones fill these too.
    """
    live = [pod for pod in pods if pod.live]
    if len(live) < pod_set.needed or not all(pod.held for pod in live):
        return requests
    limit = dict(requests) | dict.fromkeys((name for name, _ in devices_in(requests)), 0)
    return at_most(requests, largest((tuple(limit.items()), *(pod.spec.shape.requests for pod in live))))


def devices_in(requests: Requests) -> Requests:
    """Return the requests that admission makes no smaller: those of devices."""
    return tuple(one for one in requests if one[0] not in _SHRINKING and one[0] != "pods" and not is_claim(one[0]))


def _needs(workload: Workload, pod_set: PodSet, plan: PodSetPlan) -> Requests:
    """Return what a pod that fills a slot requests; nothing where that is not known."""
    if workload.handling == "pods" or plan.requests is None:
        return ()
    return at_most(pod_set.template.shape.requests, plan.requests)
