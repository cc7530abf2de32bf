"""Builds the request that extends a placed gang, after a loss or for more pods. Pure.

A pod that has a host keeps it, even when the host is lost; a slot without such a pod stays unless nothing can go there
any more. Where a rank is no slot (see `engine.gang.slots`) slots are numbered in the order of the assignment, so that
those of one slice stay together.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from engine.api import names
from engine.api.placement import Assignment, GangRequest, Placement, PodSetPlan, PodSetRequest, Slot
from engine.api.pod import Pod
from engine.api.rank import join_ranks
from engine.api.workload import PodSet, Workload
from engine.devices.allocation import Uses, devices_by_rank, devices_of
from engine.gang.gang import by_pod_set, has_room, host_of, on_its_pin, rank_is_slot, rank_of
from engine.gang.slots import done_ranks, lacking_slots, ranks_of_slices, slot_by_rank, wanted_slots

Blocked = Callable[[str], bool]
Missed = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class KeptSlot:
    """A slot that stays: its host, and the devices of its pod where they are known.

    `follows`: the pod that it follows to a host where it was not; None where it stays as it is.
    """

    host: str
    devices: Uses = ()
    follows: Pod | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ExtensionRequest:
    """A request to the planner to keep some slots of a gang and to add new ones.

    `kept` (pod set -> rank -> slot) stays, the other pods of `asks` get new slots. `lost`: by pod set, the ranks with
    slots that nothing can go to any more; `more`: how many pods beyond the assignment are requested. `replaced`: pods
    on lost slots, to be removed once the new slots are written. `on_request`: the slots are not lost, their pods leave
    them because the user asks for it. `returned`: pods that are to have slots where they run; none is missing then.
    """

    pod_sets: tuple[PodSetRequest, ...]
    gang: GangRequest | None
    kept: Mapping[str, Mapping[int, KeptSlot]]
    lost: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: int = 0
    replaced: tuple[Pod, ...] = ()
    on_request: bool = False
    returned: tuple[Pod, ...] = field(default=(), compare=False)

    def kept_part(self, assignment: Assignment) -> Assignment:
        """Return the assignment with only the slots that are kept."""
        domains = domains_of(assignment)
        plans = []
        for plan in assignment.pod_sets:
            ranked = any(slot.ranks is not None for slot in plan.slots)
            slots = slots_of_kept(self.kept.get(plan.name, {}), domains, ranked=ranked)
            plans.append(replace(plan, slots=slots))
        return replace(assignment, pod_sets=tuple(plans))

    def lost_hosts(self, assignment: Assignment) -> set[str]:
        """Return the hosts of the lost slots."""
        return {
            host
            for plan in assignment.pod_sets
            for rank, (host, _) in _numbered(plan).items()
            if rank in self.lost.get(plan.name, ())
        }

    @property
    def missing(self) -> int:
        """The number of pods that need new slots."""
        return sum(map(len, self.lost.values())) + self.more


def domains_of(assignment: Assignment) -> dict[str, tuple[str, ...]]:
    """Return the domain of each host with slots, as it was when they were planned."""
    return {slot.host: slot.domain for plan in assignment.pod_sets for slot in plan.slots}


def slots_of_kept(
    kept: Mapping[int, KeptSlot], domains: Mapping[str, tuple[str, ...]], *, ranked: bool
) -> tuple[Slot, ...]:
    """Return the slots of a pod set that stay, in the order of their lowest rank; `domains`: those of known hosts."""
    by_host: dict[str, list[int]] = {}
    for rank in sorted(kept):
        by_host.setdefault(kept[rank].host, []).append(rank)
    return tuple(
        Slot(
            domain=domains.get(host, (host,)),
            count=len(ranks),
            ranks=join_ranks([(rank, rank) for rank in ranks]) if ranked else None,
            devices=devices if any(devices := tuple(kept[rank].devices for rank in ranks)) else None,
        )
        for host, ranks in by_host.items()
    )


def repair_request(
    workload: Workload,
    placement: Placement,
    pods: Sequence[Pod],
    *,
    blocked: Blocked,
    missed: Missed = lambda _pod_set, _rank: True,
    replaced: Sequence[Pod] = (),
) -> ExtensionRequest | None:
    """Return a request for new slots for all lost ones, with the kept slots; None when no slot is lost.

    `blocked(host)`: no pod of the gang can go there now. `replaced`: pods that count as if they terminated, as their
    successors need other slots before they go. `missed(pod set, rank)`: true when a rank without any pod has
    been so for long enough: an ended pod leaves the cache before its workload counts it. A running gang is repaired as
    it was placed, even when its request would be parsed differently today. Where no pod of it has a host any more
    nothing has to stay.
    """
    parts = _placed(workload, placement, pods)
    needed = {pod_set.name: _needed(workload, pod_set, members) for pod_set, _, members in parts}
    if replaced:
        pods = [replace(pod, deleting=True) if pod in replaced else pod for pod in pods]
        parts = _placed(workload, placement, pods)
    if all(_full(plan, members) for _, plan, members in parts):
        return None  # the usual case, at the lowest cost
    blocked = cache(blocked)
    held = [_holders(pod_set, plan, members) for pod_set, plan, members in parts]
    if not any(_some_blocked(plan, holders, blocked) for (_, plan, _), holders in zip(parts, held, strict=True)):
        return None
    kept: dict[str, dict[int, KeptSlot]] = {}
    counts: dict[str, int] = {}
    lost: dict[str, tuple[int, ...]] = {}
    with_hosts = any(held)
    for (pod_set, plan, members), holders in zip(parts, held, strict=True):
        if not pod_set.needed and not holders and _some_blocked(plan, holders, blocked):
            # All of it has completed: its slots are nobody's, and must not ask for room where their nodes are gone.
            kept[pod_set.name], counts[pod_set.name] = {}, 0
            continue
        stays, gone = _split(
            pod_set, plan, members, holders, needed=needed[pod_set.name], blocked=blocked, missed=missed
        )
        kept[pod_set.name], counts[pod_set.name] = stays, max(_size(plan), max(stays, default=-1) + 1)
        if gone:
            lost[pod_set.name] = gone
    if not lost:
        return None
    if not with_hosts:
        kept = {name: {} for name in kept}
    asks = tuple(replace(ask, count=counts.get(ask.name, 0)) for ask in placement.pod_sets)
    minimums = _with_minimum(asks, placement.gang, kept)
    return ExtensionRequest(*minimums, kept=kept, lost=lost, replaced=tuple(replaced))


def growth_request(
    workload: Workload,
    placement: Placement,
    pods: Iterable[Pod],
    *,
    asks: tuple[PodSetRequest, ...],
    gang: GangRequest | None,
    gone: Blocked = lambda _host: False,
    completed: Mapping[str, Collection[int]] | None = None,
) -> ExtensionRequest | None:
    """Return a request for more slots, with the existing ones kept; None when the workload needs no more.

    `asks` and `gang` are the request as parsed today. All pods get slots or none does; with a minimum, as many as fit.
    Where no more are needed than for pods that run and have none, those get slots where they are: a replica that is
    behind has pinned such a pod by an older plan.
    `gone(host)`: its node does not exist, so that no slot can stay there, not even that of an ended pod. The slots of
    pods that have completed do not stay: others may need their room. `completed` as in `ranks_to_place`.
    """
    parts = _placed(workload, placement, pods)
    if not any(lacking_slots(workload, plan, pod_set, members) for pod_set, plan, members in parts):
        return None
    kept: dict[str, dict[int, KeptSlot]] = {}
    counts: dict[str, int] = {}
    of_pod_set = {ask.name: ask for ask in asks}
    more = 0
    without: list[Pod] = []
    for pod_set, plan, members in parts:
        counts[pod_set.name] = wanted_slots(workload, pod_set, members)
        holders = _holders(pod_set, plan, members)
        slots, taken = _numbered(plan), _taken(plan, holders)
        stays = _split(pod_set, plan, members, holders, needed=pod_set.needed, blocked=gone, taken=taken)[0]
        done = set[int]()
        if rank_is_slot(pod_set) and (ask := of_pod_set.get(pod_set.name)) is not None:
            done = done_ranks(pod_set, ()).union((completed or {}).get(pod_set.name, ()))
            idle = done.difference(holders, ranks_of_slices(replace(ask, count=pod_set.slots), done))
            stays = {rank: slot for rank, slot in stays.items() if rank not in idle}
        kept[pod_set.name] = stays
        without += [pod for rank, pod in holders.items() if rank not in slots and on_its_pin(pod)]
        more += max(0, counts[pod_set.name] - len(stays) - len(done.difference(stays)))
    if not more and not without:
        return None
    wanted = tuple(replace(ask, count=counts.get(ask.name, 0)) for ask in asks)
    returned = () if more else tuple(without)
    return ExtensionRequest(*_with_minimum(wanted, gang, kept), kept=kept, more=more, returned=returned)


def return_request(workload: Workload, placement: Placement, pods: Sequence[Pod]) -> ExtensionRequest | None:
    """Return a request to have slots where pods run; None if no pod has its slot elsewhere.

    Its slot was moved, and the pod did not follow, or somebody else has put it on its host: it must not be that its
    successor has no place.
    """
    kept: dict[str, dict[int, KeptSlot]] = {}
    counts: dict[str, int] = {}
    returned: list[Pod] = []
    for pod_set, plan, members in _placed(workload, placement, pods):
        slots = _numbered(plan)
        kept[pod_set.name], counts[pod_set.name] = {rank: KeptSlot(*slot) for rank, slot in slots.items()}, _size(plan)
        for rank, pod in _holders(pod_set, plan, members).items():
            if rank in slots and (host := pod.spec.node_name) and host != slots[rank][0]:
                kept[pod_set.name][rank] = KeptSlot(host, devices_of(pod) or (), pod)
                returned.append(pod)
    if not returned:
        return None
    asks = tuple(replace(ask, count=counts.get(ask.name, 0)) for ask in placement.pod_sets)
    return ExtensionRequest(*_with_minimum(asks, placement.gang, kept), kept=kept, returned=tuple(returned))


def _placed(
    workload: Workload, placement: Placement, pods: Iterable[Pod]
) -> list[tuple[PodSet, PodSetPlan, list[Pod]]]:
    assignment = placement.assignment
    if assignment is None:
        return []
    return [(pod_set, assignment.plan_of(pod_set.name), members) for pod_set, members in by_pod_set(workload, pods)]


def _with_minimum(
    asks: tuple[PodSetRequest, ...], gang: GangRequest | None, kept: Mapping[str, Mapping[int, KeptSlot]]
) -> tuple[tuple[PodSetRequest, ...], GangRequest | None]:
    """Set the minimum to the pods that stay.

    A gang with `min-available` grows by as many pods as fit, any other by all or none.
    """
    whole = gang.min_available if gang is not None else None
    total = sum(ask.count for ask in asks)
    if whole is not None and whole >= total and gang is not None:
        return tuple(replace(ask, min_available=ask.count) for ask in asks), replace(gang, min_available=None)
    least = []
    for ask in asks:
        stays = len(kept.get(ask.name, {}))
        minimum = min(ask.min_available, ask.count)
        partial = whole is not None or minimum < ask.count
        least.append(replace(ask, min_available=max(stays, minimum) if partial else ask.count))
    return tuple(least), gang


def _holders(pod_set: PodSet, plan: PodSetPlan, pods: Iterable[Pod]) -> dict[int, Pod]:
    """Map the rank, or the number of a slot, to its live pod with a host: bound, or released to it.

    A pod that no host counts holds nothing but its slot: what it is pinned to may be another gang's.
    """
    with_hosts = sorted(
        (pod for pod in pods if pod.live and host_of(pod) is not None),
        key=lambda pod: (not has_room(pod), pod.created, pod.uid),
    )
    found: dict[int, Pod] = {}
    if rank_is_slot(pod_set):
        by_rank = slot_by_rank(plan)
        for pod in with_hosts:
            rank = rank_of(pod, pod_set)
            if rank is None or rank >= pod_set.slots:
                continue
            if has_room(pod) or (rank in by_rank and by_rank[rank].host == host_of(pod)):
                found.setdefault(rank, pod)
        return found
    hosts = _numbered(plan)
    free: dict[str, list[int]] = {}
    for number, (host, _) in reversed(hosts.items()):
        free.setdefault(host, []).append(number)
    elsewhere: list[Pod] = []
    for pod in with_hosts:
        if numbers := free.get(host_of(pod) or ""):
            found[numbers.pop()] = pod
        elif has_room(pod):
            elsewhere.append(pod)
    # A pod that landed elsewhere takes a free slot; the last ones, as those go first when the gang shrinks.
    idle = [number for number in reversed(hosts) if number not in found]
    found.update(zip(idle, elsewhere, strict=False))
    return found


def _numbered(plan: PodSetPlan) -> dict[int, tuple[str, Uses]]:
    """Map the number of each slot to its host and devices; the number is its rank, or its place in the assignment."""
    if any(slot.ranks is not None for slot in plan.slots):
        devices = devices_by_rank(plan)
        by_rank = slot_by_rank(plan)
        return {rank: (by_rank[rank].host, devices.get(rank, ())) for rank in sorted(by_rank)}
    every = [
        (slot.host, slot.devices[place] if slot.devices is not None and place < len(slot.devices) else ())
        for slot in plan.slots
        for place in range(slot.count)
    ]
    return dict(enumerate(every))


def _split(
    pod_set: PodSet,
    plan: PodSetPlan,
    pods: list[Pod],
    holders: Mapping[int, Pod],
    *,
    needed: int,
    blocked: Blocked = lambda _host: False,
    missed: Missed = lambda _pod_set, _rank: True,
    taken: Collection[int] = (),
) -> tuple[dict[int, KeptSlot], tuple[int, ...]]:
    """Return the slots that stay, without those of `taken` ranks, and the ranks that are wanted and lost."""
    slots = {rank: slot for rank, slot in _numbered(plan).items() if rank not in taken}
    if rank_is_slot(pod_set):
        wanted = {rank for rank in slots if rank < pod_set.slots} - done_ranks(pod_set, pods)
    else:
        wanted = set(slots) if needed > len(holders) else set()
    kept = {}
    for rank, pod in holders.items():
        if (host := host_of(pod)) is not None:
            there = slots[rank][1] if rank in slots and slots[rank][0] == host else None
            kept[rank] = KeptSlot(host, devices_of(pod) or there or (), pod if there is None else None)
    kept |= {rank: KeptSlot(*slot) for rank, slot in slots.items() if rank not in kept and not blocked(slot[0])}
    vacant = [rank for rank in sorted(slots) if rank not in kept and rank in wanted]
    awaited = _awaited(pod_set, pods, vacant)
    lost = tuple(rank for rank in vacant if rank in awaited or missed(pod_set.name, rank))
    to_come = max(0, needed - len(holders))
    if len(lost) > to_come:  # a kind may count its completed pods without telling their ranks
        lost = tuple(sorted(sorted(lost, key=lambda rank: rank not in awaited)[:to_come]))
    kept |= {rank: KeptSlot(*slots[rank]) for rank in vacant if rank not in lost}
    order = sorted(kept)
    for rank in slots.keys() - kept.keys() - set(lost):
        # Its pod has ended: nothing will go to its slot again, so any slot that stays will do, one of a near rank.
        near = order[min(bisect(order, rank), len(order) - 1)] if order else None
        kept[rank] = replace(kept[near], devices=()) if near is not None else KeptSlot(slots[rank][0])
    return kept, lost


def _taken(plan: PodSetPlan, holders: Mapping[int, Pod]) -> set[int]:
    """Return the ranks without a pod whose slots have pods of other ranks.

    While a Job had more completions than pods its slots were of no ranks.
    """
    slots = _numbered(plan)
    others = Counter(
        host
        for rank, pod in holders.items()
        if (host := host_of(pod)) and (rank not in slots or slots[rank][0] != host)
    )
    found = set()
    for rank, (host, _) in slots.items() if others else ():
        if rank not in holders and others[host] > 0:
            others[host] -= 1
            found.add(rank)
    return found


def _some_blocked(plan: PodSetPlan, holders: Mapping[int, Pod], blocked: Blocked) -> bool:
    """True when a slot without a pod is on a blocked host: only such a slot can be lost."""
    return any(blocked(host) for number, (host, _) in _numbered(plan).items() if number not in holders)


def _needed(workload: Workload, pod_set: PodSet, pods: Iterable[Pod]) -> int:
    """Return how many pods run at a time, with those of a surge: each of them has a slot, and a successor."""
    return wanted_slots(workload, pod_set, pods) if workload.unit == "pod" else pod_set.needed


def _awaited(pod_set: PodSet, pods: Iterable[Pod], vacant: list[int]) -> set[int | None]:
    """Return the vacant ranks with a pod that is held, terminating or failed: they still need a slot."""
    waiting = [pod for pod in pods if pod.phase != "Succeeded" and (_held(pod) or pod.deleting or pod.finished)]
    if rank_is_slot(pod_set):
        return {rank_of(pod, pod_set) for pod in waiting}
    return set(vacant[: len(waiting)])


def _held(pod: Pod) -> bool:
    return names.GATE in pod.spec.gates


def _full(plan: PodSetPlan, pods: Iterable[Pod]) -> bool:
    """True when all slots have a pod."""
    return sum(1 for pod in pods if pod.live and host_of(pod) is not None) >= plan.count


def _size(plan: PodSetPlan) -> int:
    """Return the number of pods of a pod set's slots; with ranks, one more than the highest."""
    highest = max((last + 1 for slot in plan.slots for _, last in slot.ranks or ()), default=0)
    return max(highest, plan.count)
