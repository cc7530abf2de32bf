"""Which slot of an assignment belongs to which pod. Pure.

A slot counts once: as its bound pod (usage) or as a reservation. Where every slot is one rank (as many completions as
slots) the rank decides; where ranks come and go (more completions than slots) or there are none, any slot of a host
is as good as another, and only counts per host matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from engine import names
from engine.pod_devices import Uses, devices_of
from engine.records import Assignment, Placement, Pod, Shape, Slot, Workload
from engine.slot_devices import devices_by_rank, fewer, spare_devices
from engine.topology import Topology


@dataclass(frozen=True, slots=True)
class Seat:
    """A pod that may go: its slot, its rank (None when unranked), and its devices (none where they are not known)."""

    pod: Pod
    slot: Slot
    rank: int | None
    devices: Uses = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A held pod that gets no slot, and why (for an Event)."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class Seating:
    """What `seat` found for the held pods of a gang."""

    seats: tuple[Seat, ...]
    refused: tuple[Refused, ...]
    foreign: tuple[Pod, ...]  # held by somebody else's gate too: not ready, ours goes last


def rank_of(pod: Pod, workload: Workload) -> int | None:
    """The rank that the pod's index label gives; None when the kind has none or the label is not a number."""
    if not workload.ranked:
        return None
    text = pod.spec.labels.get(names.COMPLETION_INDEX) or pod.spec.annotations.get(names.COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else None  # noqa: PLR2004 - 100,000 at most


def slots_of(assignment: Assignment) -> tuple[Slot, ...]:
    """All slots of the gang, in order of the lowest rank."""
    return tuple(slot for pod_set in assignment.pod_sets for slot in pod_set.slots)


def slot_by_rank(assignment: Assignment) -> dict[int, Slot]:
    """Rank -> slot; empty when the slots carry no ranks."""
    return {
        rank: slot
        for slot in slots_of(assignment)
        for first, last in slot.ranks or ()
        for rank in range(first, last + 1)
    }


def rank_is_slot(workload: Workload) -> bool:
    """True when each rank runs once and so is its slot."""
    return workload.ranked and workload.total <= workload.slots


def pinned_host(shape: Shape) -> str | None:
    """The host that required node affinity on metadata.name leaves, None when it leaves more than one."""
    hosts: set[str] = set()
    for term in shape.affinity or ():
        named = [field.values for field in term.fields if field.key == "metadata.name" and field.operator == "In"]
        if not named or len(named[0]) != 1:
            return None
        hosts.add(named[0][0])
    return hosts.pop() if len(hosts) == 1 else None


def host_of(pod: Pod) -> str | None:
    """Where a pod is bound, or will be because it is pinned and no gate of ours holds it."""
    if pod.spec.node_name:
        return pod.spec.node_name
    return None if names.GATE in pod.spec.gates else pinned_host(pod.spec.shape)


def wanted_ranks(workload: Workload, pods: Iterable[Pod]) -> Iterator[int]:
    """Ranks that still need a slot (bound or not), where each rank is a slot."""
    done = {rank for first, last in workload.finished_ranks for rank in range(first, min(last, workload.slots) + 1)}
    for pod in pods:
        if pod.phase == "Succeeded" and (rank := rank_of(pod, workload)) is not None:
            done.add(rank)
    return (rank for rank in range(workload.slots) if rank not in done)


def reservation(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> dict[str, int]:
    """Host -> number of pods that are still to be bound there.

    A workload that is over, being deleted, or suspended by its user reserves nothing. Finished ranks give their slot
    back; a pod that landed elsewhere, or is on its way there (see `adrift`), fills the slot of its rank. A terminating
    pod shares its slot with its replacement, but only on that slot's host: a gang that was planned anew needs its new
    slots beside its old pods.
    """
    assignment = placement.assignment
    if assignment is None or _over(workload):
        return {}
    if rank_is_slot(workload):
        return dict(Counter(_reserved_ranks(workload, assignment, pods).values()))
    pods = [pod for pod in pods if pod.phase == "Succeeded" or not pod.finished]
    counted = [(pod, pod.spec.node_name or pod.nominated_node) for pod in pods if not pod.finished]
    seated = [(pod, host) for pod, host in counted if host and not pod.deleting]
    leaving = [(pod, host) for pod, host in counted if host and pod.deleting]
    planned = {slot.host for slot in slots_of(assignment)}
    released = [(pod, host) for pod in pods if _released(pod) and (host := pinned_host(pod.spec.shape))]
    coming = [(pod, host) for pod, host in released if host in planned]
    open_total = max(0, min(workload.slots, workload.remaining) - len(seated) - len(released))
    wanted = Counter(host for _, host in coming)
    full = wanted + Counter(host for _, host in seated)
    for slot in slots_of(assignment):
        open_here = min(max(0, slot.count - full[slot.host]), open_total)
        wanted[slot.host] += open_here
        open_total -= open_here
    wanted.subtract(Counter(host for _, host in leaving))
    return {host: count for host, count in wanted.items() if count > 0}


def _reserved_ranks(workload: Workload, assignment: Assignment, pods: Iterable[Pod]) -> dict[int, str]:
    """Rank -> host of the pods that are still to be bound, where each rank is a slot."""
    pods = [pod for pod in pods if pod.phase == "Succeeded" or not pod.finished]
    by_rank = slot_by_rank(assignment)
    planned = {slot.host for slot in slots_of(assignment)}
    filled: set[int | None] = set()
    coming: dict[int, str] = {}
    shared: set[tuple[int | None, str]] = set()
    for pod in pods:
        if pod.finished:
            continue
        host = pod.spec.node_name or pod.nominated_node
        if host and pod.deleting:
            shared.add((rank_of(pod, workload), host))
        elif host:
            filled.add(rank_of(pod, workload))
        elif _released(pod) and (host := pinned_host(pod.spec.shape) or ""):
            rank = rank_of(pod, workload)
            filled.add(rank)
            if host in planned and rank is not None:
                coming[rank] = host
    hosts = {
        rank: by_rank[rank].host for rank in wanted_ranks(workload, pods) if rank in by_rank and rank not in filled
    }
    return {rank: host for rank, host in (hosts | coming).items() if (rank, host) not in shared}


def reserved_devices(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> dict[str, tuple[Uses, ...]]:
    """Host -> devices of the pods that are still to be bound there (`reservation`), where they are known."""
    assignment = placement.assignment
    if assignment is None or _over(workload) or all(slot.devices is None for slot in slots_of(assignment)):
        return {}
    found: dict[str, list[Uses]] = {}
    pods = list(pods)
    if rank_is_slot(workload):
        by_rank, devices = slot_by_rank(assignment), devices_by_rank(assignment)
        for rank, host in sorted(_reserved_ranks(workload, assignment, pods).items()):
            if rank in devices and by_rank[rank].host == host:
                found.setdefault(host, []).append(devices[rank])
        return {host: tuple(uses) for host, uses in found.items()}
    live = [pod for pod in pods if not pod.finished]
    counted = [(pod, host) for pod in live if (host := pod.spec.node_name or pod.nominated_node)]
    released = [pod for pod in live if _released(pod)]
    for slot in slots_of(assignment):
        if slot.devices is not None:
            there = [pod for pod, host in counted if host == slot.host]
            coming = [pod for pod in released if pinned_host(pod.spec.shape) == slot.host]
            # First those of pods that were let go: they can be bound at any moment.
            first = [uses for pod in coming if (uses := devices_of(pod)) is not None]
            rest = [uses for uses in spare_devices(slot, (*there, *coming)) if uses]
            found[slot.host] = [*first, *rest]
    return {host: tuple(uses) for host, uses in found.items() if uses}


def adrift(workload: Workload | None, placement: Placement | None, pods: Iterable[Pod]) -> dict[str, int]:
    """Host -> released pods that can still be bound there although nothing is reserved for them.

    Their gang is gone, over, suspended, or has given its slots back, and nobody has removed them yet: until then their
    room must not be promised to others.
    """
    planned: set[str] = set()
    if workload is not None and placement is not None and placement.assignment is not None and not _over(workload):
        planned = {slot.host for slot in slots_of(placement.assignment)}
    hosts = (pinned_host(pod.spec.shape) for pod in pods if _released(pod))
    return dict(Counter(host for host in hosts if host is not None and host not in planned))


def _released(pod: Pod) -> bool:
    """True when a pod of ours can be bound at any moment."""
    return names.MANAGED in pod.spec.labels and not (
        pod.finished or pod.deleting or pod.spec.node_name or pod.nominated_node or pod.spec.gates
    )


def moved(placement: Placement, slot: Slot, topology: Topology | None) -> bool:
    """True when a slot's host does not stand any more in the domain that the gang requires, by its labels of today.

    A topology with other levels than the slot's says nothing; neither does a gang that requires no level.
    """
    require = next((pod_set.require for pod_set in placement.pod_sets if pod_set.require), None)
    if require is None or topology is None or len(topology.levels) != len(slot.domain):
        return False
    index = topology.tree.index.get(slot.host)
    if index is None:
        return True
    level = topology.level_index(require)
    depth = len(slot.domain) - 1 if level is None else level + 1  # `auto`: everything above the host
    return topology.tree.path(len(topology.levels) - 1, index)[:depth] != slot.domain[:depth]


def seat(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> Seating:
    """A slot for every held pod that has one: by rank, or any free slot in order.

    The slot of a rank belongs to the first live pod of it; a terminating pod shares its slot with its replacement.
    """
    assignment = placement.assignment
    held: list[Pod] = []
    foreign: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        if pod.finished or pod.deleting:
            continue
        if names.GATE not in pod.spec.gates:
            others.append(pod)
        elif len(pod.spec.gates) > 1:
            foreign.append(pod)
        else:
            held.append(pod)
    if assignment is None or not held:
        return Seating((), (), tuple(foreign))
    held.sort(key=lambda pod: (pod.created, pod.uid))
    seats: list[Seat] = []
    refused: list[Refused] = []
    if rank_is_slot(workload):
        by_rank, devices = slot_by_rank(assignment), devices_by_rank(assignment)
        taken = {rank_of(pod, workload) for pod in others}
        for pod in held:
            rank = rank_of(pod, workload)
            if rank is None or rank not in by_rank:
                refused.append(Refused(pod, f"index {'unknown' if rank is None else rank} has no slot in this gang"))
            elif rank in taken:
                refused.append(Refused(pod, f"rank {rank} of this gang belongs to another live pod"))
            else:
                taken.add(rank)
                seats.append(Seat(pod, by_rank[rank], rank, devices.get(rank, ())))
        return Seating(tuple(seats), tuple(refused), tuple(foreign))
    used = Counter(host for pod in others if (host := host_of(pod)))
    free = [slot for slot in slots_of(assignment) for _ in range(max(0, slot.count - used.pop(slot.host, 0)))]
    spare = {
        slot.host: spare_devices(slot, [pod for pod in others if host_of(pod) == slot.host])
        for slot in slots_of(assignment)
        if slot.devices is not None
    }
    for pod, slot in zip(held, free, strict=False):
        left = spare.get(slot.host)
        seats.append(Seat(pod, slot, rank_of(pod, workload), left.pop(0) if left else ()))
    refused.extend(Refused(pod, "every slot of this gang is taken") for pod in held[len(free) :])
    return Seating(tuple(seats), tuple(refused), tuple(foreign))


def trimmed(workload: Workload, placement: Placement, pods: Iterable[Pod]) -> Assignment | None:
    """The assignment without the slots that a scaled-down workload has no use for; None when it is not too large.

    Where a rank is a slot the highest ranks go, as the Job controller removes those; else slots without a pod.
    """
    assignment = placement.assignment
    if assignment is None or len(assignment.pod_sets) != 1:
        return None
    pod_set = assignment.pod_sets[0]
    surplus = sum(slot.count for slot in pod_set.slots) - workload.slots
    if surplus <= 0:
        return None
    pods = [] if rank_is_slot(workload) else list(pods)
    busy = Counter(host for pod in pods if (host := host_of(pod)))
    kept: list[Slot] = []
    for slot in reversed(pod_set.slots):
        drop = min(surplus, max(0, slot.count - busy.get(slot.host, 0)))
        surplus -= drop
        if slot.count > drop:
            there = [pod for pod in pods if host_of(pod) == slot.host]
            kept.append(fewer(slot, slot.count - drop, there))
    smaller = replace(assignment, pod_sets=(replace(pod_set, slots=tuple(reversed(kept))),))
    return smaller if smaller != assignment else None


def _over(workload: Workload) -> bool:
    """True when a workload reserves nothing: it has ended, is going, or its user suspended it."""
    return workload.finished or workload.deleting or suspended_by_user(workload)


def let_loose(workload: Workload, pods: Iterable[Pod]) -> list[Pod]:
    """Live pods that neither carry our gate nor are pinned: somebody else took the gate off."""
    if names.GATE not in workload.template.gates:
        return []
    return [
        pod
        for pod in pods
        if not (pod.finished or pod.deleting)
        and names.GATE not in pod.spec.gates
        and pinned_host(pod.spec.shape) is None
    ]


def suspended_by_user(workload: Workload) -> bool:
    """True when the workload is suspended and it was not us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) != names.HELD_BY_SUSPEND


def held_by_us(workload: Workload) -> bool:
    """True when the workload is suspended and it was us."""
    return workload.suspended and workload.annotations.get(names.HELD_BY) == names.HELD_BY_SUSPEND
