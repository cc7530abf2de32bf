"""Reserves capacity for gangs: slots of pods to come, hosts of released pods without slots, domains that gangs keep."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.api import names
from engine.api.placement import Placement, Separation
from engine.api.pod import Pod, PodSpec, Shape
from engine.api.resources import is_claim, largest, less
from engine.api.workload import GangKey, ReservationKey, Workload
from engine.cache.larger_pods import LargerPods
from engine.cache.pod_shapes import PodShapes
from engine.capacity.capacity import Capacity
from engine.capacity.nearby_pods import NearbyPods
from engine.devices.allocation import Uses
from engine.gang.gang import pinned_host, pod_set_of, released
from engine.gang.reservation import Reservation, pods_of_slots, reservations, unreserved_pods
from engine.planner.tree import Bools, Ints64, Tree
from engine.resources.shape import with_requests

Ranges = tuple[tuple[int, int], ...]
# What the gangs have in common that are spread from each other.
SpreadName = tuple[str, str, str]

# Answers that are kept up to date: one for exclusive gangs, and one for each spread group that is being planned.
_MAX_ANSWERS: Final = 64
_MAX_CHANGES: Final = 10_000


class Reservations:
    """Writes the reservations of gangs into the capacity, by key; not thread-safe."""

    def __init__(
        self,
        capacity: Capacity,
        nearby: NearbyPods,
        pod_shapes: PodShapes,
        larger_pods: LargerPods,
        *,
        schedulers: Callable[[], Collection[str]],
    ) -> None:
        """`schedulers`: the names of the schedulers with pods that we place."""
        self._capacity = capacity
        self._nearby = nearby
        self._pod_shapes = pod_shapes
        self._larger_pods = larger_pods
        self._schedulers = schedulers
        self._unreserved: set[ReservationKey] = set()

    @property
    def unreserved(self) -> AbstractSet[ReservationKey]:
        """The keys with released pods that may be bound without a reservation."""
        return self._unreserved

    def keep(
        self,
        key: ReservationKey,
        workload: Workload | None,
        placement: Placement | None,
        *,
        pods: Sequence[Pod],
        related: Iterable[Pod],
        leave_hosts: Collection[str] = (),
        before: Placement | None = None,
    ) -> None:
        """Replace the reservation of a key: `pods` are those of the gang, `related` all pods that belong to the key.

        `leave_hosts`: hosts that the pods of the gang are to leave. Without a workload and a Placement nothing is
        reserved for pods that do not exist yet. `before`: the Placement that is in force until this one is written: of
        each host what the one or the other needs is reserved.

        A slot of a pod that exists is as large as that pod, whatever others of its gang request.
        """
        self._unreserved.discard(key)
        shapes: dict[str, Shape] = {}
        pod_sets = {one.name: one for one in workload.pod_sets} if workload is not None else {}
        hosts: dict[str, dict[Shape, Counter[str]]] = {}
        uses: dict[str, Mapping[str, tuple[Uses, ...]]] = {}
        larger: list[tuple[PodSpec, int]] = []
        limits: dict[str, Shape] = {}
        held: dict[str, dict[Shape, Counter[str]]] = {}
        if workload is not None and placement is not None:
            for kept in reservations(workload, placement, pods, leave_hosts=leave_hosts):
                if kept.hosts:
                    name = kept.pod_set.name
                    shapes[name], expected = self._shapes(workload, placement, kept)
                    limits[name], held[name] = _limit(placement, name, shapes[name]), {}
                    hosts[name] = self._by_shape(
                        workload, placement, kept, shapes[name], expected, larger=larger, held=held[name]
                    )
                    uses[name] = kept.uses
        self._larger_pods.set_pods(key, workload.namespace if workload is not None else "", larger)
        for name, members in _by_pod_set(related, workload).items():
            if not unreserved_pods(workload, placement, members):
                continue
            self._unreserved.add(key)
            pinned = [pod for pod in members if self._may_land(pod)]
            for pod in unreserved_pods(workload, placement, pinned):
                if (host := pinned_host(pod.spec.shape)) is not None:
                    hosts.setdefault(name, {}).setdefault(_needs(pod.spec.shape), Counter())[host] += 1
        if workload is not None and before is not None:
            for kept in reservations(workload, before, pods, leave_hosts=leave_hosts):
                if kept.hosts:
                    name = kept.pod_set.name
                    planned, expected = self._shapes(workload, before, kept)
                    shapes.setdefault(name, planned)
                    of_pod_set = hosts.setdefault(name, {})
                    for shape, counts in self._by_shape(workload, before, kept, planned, expected).items():
                        of_pod_set[shape] = of_pod_set.get(shape, Counter()) | counts
                    uses[name] = {**kept.uses, **uses.get(name, {})}
        for name in self._capacity.reserved_by(key).keys() | hosts.keys():
            shape, others = _needs(shapes.get(name) or Shape(())), hosts.get(name, {})
            total = sum(others.values(), Counter[str]())
            self._capacity.reserve(
                key,
                others.pop(shape, {}),
                shape.requests,
                pod_set=name,
                devices=shape.devices,
                uses=uses.get(name),
                others=others,
                planned=limits.get(name),
                held=held.get(name),
            )
            namespace = workload.namespace if workload is not None else ""
            self._nearby.reserve(key, name, total, namespace=namespace, pod_set=pod_sets.get(name))

    def _shapes(self, workload: Workload, placement: Placement, kept: Reservation) -> tuple[Shape, Shape]:
        assert placement.assignment is not None
        planned = placement.assignment.plan_of(kept.pod_set.name).requests
        return self._pod_shapes.shapes_of_slots(workload, kept.pod_set, planned, kept.pods)

    def _by_shape(
        self,
        workload: Workload,
        placement: Placement,
        kept: Reservation,
        planned: Shape,
        expected: Shape,
        *,
        larger: list[tuple[PodSpec, int]] | None = None,
        held: dict[Shape, Counter[str]] | None = None,
    ) -> dict[Shape, Counter[str]]:
        """Return what the pods to come need of their hosts: of each need, host -> number of pods.

        Beside a pod that is too small for its slot only the rest of the slot is needed.

        Pods that do not exist yet need what is `expected` of them, if that is more than what was `planned` and may
        come; they are added to `larger`. Those that are not released and may need more than planned, to `held`.
        """
        usual = {expected.requests}.issuperset(pod.spec.shape.requests for pod in kept.pods if not pod.finished)
        if usual and planned.requests == expected.requests and not kept.small:
            return {_needs(planned): Counter(kept.hosts)}
        found: dict[Shape, Counter[str]] = {}
        held = {} if held is None else held
        left = Counter(kept.hosts)
        for host, there in pods_of_slots(workload, placement, kept).items():
            left[host] -= len(there)
            for pod in there:
                # Most of a gang are alike: as those are to come.
                alike = next((one for one in (expected, planned) if one.requests == pod.spec.shape.requests), None)
                needs = _needs(alike or pod.spec.shape)
                found.setdefault(needs, Counter())[host] += 1
                if not released(pod):
                    held.setdefault(needs, Counter())[host] += 1
        for pod in kept.small:
            if left[host := pod.spec.node_name] > 0:
                left[host] -= 1
                rest = with_requests(planned, less(planned.requests, pod.spec.shape.requests))
                found.setdefault(_needs(rest), Counter())[host] += 1
        left = +left
        if left and planned.requests != expected.requests:
            if larger is not None:
                larger.append((self._pod_shapes.spec_of(workload, kept.pod_set), left.total()))
            if self._larger_pods.may_come(workload.namespace):
                planned = expected
        for counts in (found, held):
            counts[_needs(planned)] = counts.get(_needs(planned), Counter()) + left
        return found

    def _may_land(self, pod: Pod) -> bool:
        """False for a released pod that its host is too small for, or that no scheduler of ours will bind.

        Anybody may write our marks on such a pod.
        """
        if (pod.spec.scheduler_name or names.DEFAULT_SCHEDULER) not in self._schedulers():
            return False
        host = pinned_host(pod.spec.shape) if released(pod) else None
        node = self._capacity.node(host) if host is not None else None
        return host is None or (
            node is not None
            and all(
                is_claim(name) or amount <= node.allocatable.get(name, 0) for name, amount in pod.spec.shape.requests
            )
        )


def _limit(placement: Placement, pod_set: str, slot: Shape) -> Shape:
    """Return what a slot of a pod set is planned for, of which a template that has shrunk needs a part (`slot`)."""
    assert placement.assignment is not None
    planned = placement.assignment.plan_of(pod_set).requests
    return slot if planned is None else with_requests(slot, largest((slot.requests, planned)))


def _needs(shape: Shape) -> Shape:
    """Return a shape with only what a pod takes of its host."""
    return Shape(shape.requests, devices=shape.devices)


def _by_pod_set(pods: Iterable[Pod], workload: Workload | None) -> dict[str, list[Pod]]:
    """Return the pods by pod set; "" for those of none."""
    if workload is not None and len(workload.pod_sets) == 1 and not workload.pod_sets[0].selector:
        return {workload.pod_sets[0].name: list(pods)}
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        pod_set = pod_set_of(pod, workload) if workload is not None else None
        found.setdefault(pod_set.name if pod_set is not None else "", []).append(pod)
    return found


@dataclass(slots=True)
class _Keepers:
    """How many gangs keep each host of a tree, and what has changed since; `stamp`: whatever else decides it."""

    stamp: object
    numbers: Ints64
    changed: set[GangKey]
    ranges: dict[GangKey, Ranges] = field(default_factory=dict)


class KeptDomains:
    """The plans that keep other gangs out of their domains, with slots or pods there; not thread-safe by itself."""

    def __init__(self) -> None:
        self._plans: dict[GangKey, tuple[Placement, ...]] = {}
        self._exclusive: dict[GangKey, None] = {}
        self._spread: defaultdict[SpreadName, dict[GangKey, None]] = defaultdict(dict)
        self._answers: OrderedDict[tuple[object, ...], _Keepers] = OrderedDict()

    def set_plans(self, key: GangKey, plans: tuple[Placement, ...]) -> None:
        """Replace the plans of a gang, of which each has slots and a separation."""
        if plans == self._plans.get(key, ()):
            return  # most changes of its pods
        before = self._plans.pop(key, ())
        for plan in before:
            self._exclusive.pop(key, None)
            if (name := spread_name_of(plan)) is not None and name in self._spread:
                self._spread[name].pop(key, None)
                if not self._spread[name]:
                    del self._spread[name]
        if plans:
            self._plans[key] = plans
        for plan in plans:
            if plan.separation is not None and plan.separation.exclusive is not None:
                self._exclusive[key] = None
            if (name := spread_name_of(plan)) is not None:
                self._spread[name][key] = None
        for about, keepers in list(self._answers.items()) if before or plans else ():
            keepers.changed.add(key)
            if len(keepers.changed) > _MAX_CHANGES:  # nobody has asked for long
                del self._answers[about]

    def of(self, key: GangKey) -> tuple[Placement, ...]:
        """Return the plans of a gang."""
        return self._plans.get(key, ())

    def exclusive(self) -> Iterator[tuple[GangKey, Placement]]:
        """Yield the plans of exclusive gangs."""
        return ((key, plan) for key in self._exclusive for plan in self._plans[key])

    def hosts(
        self,
        name: SpreadName | None,
        scope: tuple[object, ...],
        *,
        besides: Collection[GangKey],
        size: int,
        stamp: object,
        ranges: Callable[[Placement], Ranges],
    ) -> Bools | None:
        """Return for each host of a tree of `size` hosts whether one of these gangs keeps it; None without a gang.

        Those of spread gangs of a name, or (None) the exclusive ones; `besides`: gangs that do not count. `ranges`
        returns the hosts that a plan keeps: always the same for the same `scope`, until `stamp` is another object.
        """
        keys = self._exclusive if name is None else self._spread.get(name, {})
        if not keys:
            return None
        about = (name, *scope)
        keepers = self._answers.get(about)
        if keepers is None or keepers.stamp is not stamp:
            keepers = self._answers[about] = _Keepers(stamp, np.zeros(size, dtype=np.int64), set(keys))
            if len(self._answers) > _MAX_ANSWERS:
                self._answers.popitem(last=False)
        self._answers.move_to_end(about)
        for key in keepers.changed:
            _add(keepers.numbers, keepers.ranges.pop(key, ()), -1)
            plans = self._plans[key] if key in keys else ()
            kept = tuple(one for plan in plans if _keeps(plan, name) for one in ranges(plan))
            if kept:
                keepers.ranges[key] = kept
                _add(keepers.numbers, kept, 1)
        keepers.changed.clear()
        numbers = keepers.numbers
        own = [one for key in besides for one in keepers.ranges.get(key, ())]
        if own:
            numbers = numbers.copy()
            _add(numbers, own, -1)
        return numbers > 0


def _add(numbers: Ints64, ranges: Iterable[tuple[int, int]], by: int) -> None:
    for first, end in ranges:
        numbers[first:end] += by


def _keeps(plan: Placement, name: SpreadName | None) -> bool:
    if name is not None:
        return spread_name_of(plan) == name
    return plan.separation is not None and plan.separation.exclusive is not None


def spread_name(namespace: str, uid: str, separation: Separation | None) -> SpreadName | None:
    """Return the common name of gangs that are spread among each other: a group's, or their workload's uid."""
    if separation is None or separation.spread is None:
        return None
    if separation.group is not None:
        return namespace, "group", separation.group
    return (namespace, "uid", uid) if uid else None


def spread_name_of(placement: Placement) -> SpreadName | None:
    """Return the name under which the gang of a Placement is spread; None when it is not."""
    return spread_name(placement.namespace, placement.workload.uid, placement.separation)


def ranges_of(placement: Placement, tree: Tree, level: int) -> Ranges:
    """Return the domains of a level with slots of a Placement, as ranges of hosts of a tree.

    A slot on a host that is gone counts for the domain that it was in.
    """
    domains: set[int] = set()
    gone: set[tuple[str, ...]] = set()
    for plan in placement.assignment.pod_sets if placement.assignment is not None else ():
        for slot in plan.slots:
            if (place := tree.index.get(slot.host)) is not None:
                domains.add(tree.domain_of(level, place))
            else:
                gone.add(slot.domain[: level + 1])
    domains.update(_of_paths(gone, tree, level))
    return tuple(tree.range(level, domain) for domain in sorted(domains))


def ranges_of_paths(paths: Collection[tuple[str, ...]], tree: Tree, level: int) -> Ranges:
    """Return those domains of a level that have one of these paths, as ranges of hosts of a tree."""
    return tuple(tree.range(level, domain) for domain in _of_paths(paths, tree, level))


def _of_paths(paths: Collection[tuple[str, ...]], tree: Tree, level: int) -> list[int]:
    return [one for one in range(tree.size(level)) if tree.path(level, one) in paths] if paths else []
