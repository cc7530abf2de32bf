"""The queue of gangs that wait for capacity: highest priority first, then oldest, then by name.

If the policy says so, the gangs of the namespace that uses least go before older ones of the same priority
(`engine.scheduler.fairness`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from engine.api.names import AUTO
from engine.api.pod import Shape
from engine.api.workload import GangKey
from engine.gang.key import order_of
from engine.gang.request import PlacementRequest
from engine.scheduler.fairness import Turn, WeightedUsage, in_turns, turn_of
from engine.scheduler.outcome import Never, Waits


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A waiting gang; not planned before `not_before`, starving from `patient_until` on (monotonic seconds)."""

    priority: int
    created: float
    name: str
    not_before: float = 0.0
    patient_until: float = inf
    topology: str = ""

    @property
    def namespace(self) -> str:
        """Return the namespace of its workload."""
        return self.name.partition("/")[0]

    def turn(self, usage: WeightedUsage | None) -> Turn:
        """Return its place in the queue."""
        return turn_of(self.priority, self.created, self.name, usage)


# Positions up to this one, and lengths of a queue up to twice of it, are shown as they are.
_EXACT: Final = 10


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The position of a waiting gang in the queue of its topology, from 1, and the length of that queue."""

    position: int
    length: int

    def is_near(self, other: QueuePlace) -> bool:
        """Return True if another place is not worth a write: when one gang leaves, all behind it move up.

        Far behind, a tenth is no news. So of 1,000 gangs some 60 are written when one leaves, and not all.
        """
        return _near(self.position, other.position, _EXACT) and _near(self.length, other.length, 2 * _EXACT)


def written_place(status: Mapping[str, Any]) -> QueuePlace | None:
    """Return the place that a Placement's status has; None if it has none, or no readable one."""
    position, length = status.get("queuePosition"), status.get("queueLength")
    return QueuePlace(position, length) if isinstance(position, int) and isinstance(length, int) else None


def _near(one: int, other: int, exact: int) -> bool:
    return one == other or (min(one, other) > exact and abs(one - other) * 10 <= max(one, other))


@dataclass(frozen=True, slots=True)
class PlanKey:
    """The key of a planning problem: `about` is all that decides the answer except the number of pods.

    `count` decides whether they fit, `whole` only appears in the message: they differ if the gang has a minimum.
    """

    about: tuple[object, ...]
    count: int
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a problem has no plan now; `first`: the gang (namespace/name) that its hosts are nominated for."""

    outcome: Waits | Never
    first: str = ""


def plan_key(request: PlacementRequest, shapes: Mapping[str, Shape], *beside: object) -> PlanKey:
    """Return the key of a gang's planning problem; `beside`: further inputs, such as hosts that are left out.

    More pods never fit better than fewer, but this holds for equal pods only: for several pod sets, and if the number
    decides the level of `auto`, only exactly the same problem has the same answer.
    """
    asks, gang = request.pod_sets, request.gang
    about = [
        (
            ask.name,
            ask.require,
            ask.prefer,
            ask.slices,
            ask.colocate,
            ask.ranked,
            ask.device_scope,
            ask.device_selector,
            shapes[ask.name],
        )
        for ask in asks
    ]
    counts = [(ask.count, ask.min_available) for ask in asks]
    if len(asks) > 1 or gang is not None or asks[0].require == AUTO:
        whole = (request.topology, request.leave_hosts, request.levels, request.profile, gang)
        return PlanKey((*whole, *about, *counts, *beside), 0)
    return PlanKey((request.topology, request.leave_hosts, *about, *beside), min(counts[0]), counts[0][0])


class GangQueue:
    """Waiting gangs by key; when `capacity_freed` is True, gangs that did not fit may fit now.

    `usage`: what namespaces use in this turn, if their order depends on it.
    """

    def __init__(self) -> None:
        self.capacity_freed = False
        self.usage: WeightedUsage | None = None
        self._entries: dict[GangKey, QueueEntry] = {}
        self._fresh: set[GangKey] = set()  # not planned since they were added or requeued
        self._put_off: dict[GangKey, None] = {}  # postponed when they were due, in that order
        self._for_hosts: set[GangKey] = set()  # freed capacity on the current hosts does not help them
        self._for_pods: set[GangKey] = set()  # may fit on the current hosts; their pods cannot be created now
        self._limited: defaultdict[str, dict[GangKey, None]] = defaultdict(dict)  # behind others of their namespace
        self._retried = False
        self._orders: dict[str, list[GangKey]] = {}  # of this turn: the gangs of a namespace in order
        self._misses: dict[tuple[object, ...], tuple[float, Miss]] = {}
        self._may_fit: dict[tuple[object, ...], int] = {}  # the most pods that fit when all pods may be created
        self._answers: dict[PlanKey, Miss] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[GangKey]:
        """Iterate over all waiting gangs, in no order."""
        return iter(self._entries)

    def add(self, key: GangKey, entry: QueueEntry) -> None:
        """Add or replace a gang; it is planned in the next pass."""
        self._entries[key] = entry
        self._fresh.add(key)
        self._for_hosts.discard(key)
        self._for_pods.discard(key)

    def requeue(self, key: GangKey) -> None:
        """Requeue one gang for the next pass, without the others."""
        if key in self._entries:
            self._fresh.add(key)

    def drop(self, key: GangKey) -> None:
        """Remove a gang."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.retry_limited(entry.namespace)
        self._fresh.discard(key)
        self._put_off.pop(key, None)
        self._for_hosts.discard(key)
        self._for_pods.discard(key)

    def limit(self, key: GangKey) -> None:
        """Do not plan a gang until `retry_limited`, because too many of its namespace wait ahead of it."""
        if (entry := self._entries.get(key)) is not None:
            self._limited[entry.namespace][key] = None

    def retry_limited(self, namespace: str) -> None:
        """Requeue the gangs that waited behind others of a namespace."""
        if limited := self._limited.pop(namespace, None):
            self._fresh |= limited.keys() & self._entries.keys()
            self._retried = True

    def ahead_in_namespace(self, key: GangKey, now: float) -> Iterator[GangKey]:
        """Iterate over the gangs that wait ahead of a gang in its namespace and are not paused, in order."""
        namespace = self._entries[key].namespace
        if namespace not in self._orders:
            gangs = [other for other, entry in self._entries.items() if entry.namespace == namespace]
            self._orders[namespace] = sorted(gangs, key=self._unique_turn)
        for other in self._orders[namespace]:
            if other == key:
                return
            if (entry := self._entries.get(other)) is not None and entry.not_before <= now:
                yield other

    @property
    def behind(self) -> bool:
        """Return True if postponed gangs should be planned as soon as possible."""
        return bool(self._put_off) or self._retried

    def put_off(self, keys: Iterable[GangKey]) -> None:
        """Postpone gangs to a later pass, because their namespaces have used up their shares of this one."""
        waiting = [key for key in keys if key in self._entries]  # others were placed meanwhile, with their pod groups
        self._fresh.update(waiting)
        for key in waiting:
            self._put_off.setdefault(key, None)

    def planned(self, key: GangKey) -> None:
        """Record that a gang is being planned."""
        self._put_off.pop(key, None)

    def longest_put_off(self, keys: Iterable[GangKey]) -> list[GangKey]:
        """Sort gangs: postponed ones first, in the order of postponement, then the others in the given order."""
        places = {key: place for place, key in enumerate(self._put_off)}
        return sorted(keys, key=lambda key: places.get(key, len(places)))

    def waits_for_hosts(self, key: GangKey) -> None:
        """Record that freed capacity does not help a gang: it is not planned before the hosts change."""
        if key in self._entries:
            self._for_hosts.add(key)

    @property
    def for_hosts(self) -> Set[GangKey]:
        """Return the gangs that fit on no capacity of the current hosts."""
        return self._for_hosts

    def waits_for_pods(self, key: GangKey, problem: PlanKey) -> None:
        """Record that a gang whose pods cannot be created now may fit on the current hosts."""
        if key in self._entries:
            self._for_pods.add(key)
            self._may_fit[problem.about] = max(problem.count, self._may_fit.get(problem.about, 0))

    def may_fit(self, key: GangKey, problem: PlanKey) -> bool:
        """Return True for a gang that is known to fit on the current hosts once its pods can be created.

        It was asked before, or in this pass a gang like it that has as many pods.
        """
        if key not in self._for_pods and problem.count <= self._may_fit.get(problem.about, -1):
            self.waits_for_pods(key, problem)
        return key in self._for_pods

    def hosts_changed(self) -> None:
        """Record that hosts, devices or topologies have changed."""
        self._for_hosts.clear()
        self._for_pods.clear()

    def entry(self, key: GangKey) -> QueueEntry | None:
        """Return the entry of a waiting gang."""
        return self._entries.get(key)

    def unpaused(self, now: float) -> list[GangKey]:
        """Return the gangs that may be planned now, in no order."""
        return [key for key, entry in self._entries.items() if entry.not_before <= now]

    def impatient(self, now: float) -> list[GangKey]:
        """Return the starving gangs (they waited longer than the policy's patience) to place now, in order."""
        waited = [
            key
            for key, one in self._entries.items()
            if one.patient_until <= now and one.not_before <= now and key not in self._for_hosts
        ]
        return sorted(waited, key=self._unique_turn)

    def take(self, now: float, *, strict: bool) -> list[GangKey]:
        """Return the gangs to plan now, in order: all that freed capacity may help, else only new ones.

        With `strict` the order is binding: a new gang is only planned if none ahead of it waits, so all are taken.
        Nobody is postponed then; who was, before the policy became strict, is not waited for.
        """
        if strict:
            self._put_off.clear()
        self._misses.clear()
        self._may_fit.clear()
        self._answers.clear()
        self._orders.clear()
        self._retried = False
        wanted = set(self._entries) if strict and (self.capacity_freed or self._fresh) else set(self._fresh)
        if self.capacity_freed and not strict:
            wanted |= self._entries.keys() - self._for_hosts
        ready = {key for key in wanted if self._entries[key].not_before <= now}
        self.capacity_freed = False
        self._fresh -= ready
        return sorted(ready, key=self._unique_turn)

    def in_turns(self, keys: Sequence[GangKey]) -> Iterator[GangKey]:
        """Iterate over gangs that are in order, while some of them are placed and `usage` grows."""
        if self.usage is None:
            return iter(keys)
        usage, entries = self.usage, {key: self._entries[key] for key in keys}  # some are dropped meanwhile
        return in_turns(keys, lambda key: entries[key].turn(usage), usage)

    def first(self, now: float, *, blocks: Callable[[GangKey], bool]) -> GangKey | None:
        """Return the first waiting gang in order that blocks others and is not paused; None if there is none."""
        waiting = (key for key, one in self._entries.items() if one.not_before <= now and blocks(key))
        return min(waiting, key=self._unique_turn, default=None)

    def later_than(self, key: GangKey) -> list[GangKey]:
        """Return the gangs behind one in the queue."""
        mine = self._unique_turn(key)
        return sorted((other for other in self._entries if self._unique_turn(other) > mine), key=self._unique_turn)

    def stop_behind(self, key: GangKey) -> None:
        """Block the queue behind this gang; new gangs are planned when capacity is freed."""
        self._fresh -= set(self.later_than(key))

    def known_miss(self, problem: PlanKey) -> Miss | None:
        """Return the miss of the same problem with no more pods from this pass; None if there was none."""
        count, miss = self._misses.get(problem.about, (inf, None))
        return miss if problem.count >= count else None

    def answered(self, problem: PlanKey) -> Miss | None:
        """Return the miss of exactly the same problem from this pass; None if there was none."""
        return self._answers.get(problem)

    def record_miss(self, problem: PlanKey, miss: Miss) -> None:
        """Record a miss; valid until the next `take`, as plans only use capacity up."""
        self._answers.setdefault(problem, miss)
        if self.known_miss(problem) is None:
            self._misses[problem.about] = (problem.count, miss)

    def places(self, queues: Callable[[GangKey], bool]) -> dict[GangKey, QueuePlace | None]:
        """Return the place of every gang in the queue of its topology; None for those that `queues` leaves out."""
        lines: defaultdict[str, list[GangKey]] = defaultdict(list)
        found: dict[GangKey, QueuePlace | None] = dict.fromkeys(self._entries)
        for key in sorted(filter(queues, self._entries), key=self._unique_turn):
            lines[self._entries[key].topology].append(key)
        for line in lines.values():
            found |= {key: QueuePlace(position, len(line)) for position, key in enumerate(line, start=1)}
        return found

    def turn(self, key: GangKey) -> Turn | None:
        """Return the place of a waiting gang."""
        return self._turn(key) if key in self._entries else None

    def _unique_turn(self, key: GangKey) -> tuple[Turn, tuple[str, int, str]]:
        """Return the turn of a gang, made unique: replicas of a workload share one, and so do workloads of one name."""
        return self._turn(key), order_of(key)

    def _turn(self, key: GangKey) -> Turn:
        return self._entries[key].turn(self.usage)
