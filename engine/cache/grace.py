"""Keeps the slots of pods that may still appear after their gang is gone, for a short grace period.

Workloads and pods are watched separately: a pod that was created and pinned just before its workload was deleted,
suspended, or lost its slots may be seen after that. Until it must have been seen its slot is given to no other gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.api import names
from engine.api.placement import Placement, slots_by_host
from engine.api.pod import Pod, Shape
from engine.api.workload import ReservationKey, Workload
from engine.capacity.capacity import Capacity
from engine.gang.gang import host_of
from engine.gang.key import grace_key
from engine.resources.shape import with_requests

# How much later a pod may be seen than what its controller learned after creating it: a create under way, and
# a slow watch. Seconds.
GRACE_SECONDS = 3.0


@dataclass(slots=True)
class _GraceSlots:
    """The slots kept for one gang (pod set -> host -> pods), and the shape of a pod of each pod set."""

    until: float
    placement: tuple[str, str]
    hosts: dict[str, Counter[str]]
    shapes: Mapping[str, Shape]


class GraceReservations:
    """Writes grace-period reservations into the capacity, under separate keys; not thread-safe."""

    def __init__(self, capacity: Capacity, clock: Callable[[], float], *, seconds: float = GRACE_SECONDS) -> None:
        self._capacity = capacity
        self._clock = clock
        self._seconds = seconds
        self._slots: dict[ReservationKey, _GraceSlots] = {}
        self._suspended: dict[str, float] = {}  # uid -> when it was seen to be suspended
        self._number = 0

    @property
    def end(self) -> float | None:
        """When the next grace period ends, on the clock; None while there is none."""
        return min((grace.until for grace in self._slots.values()), default=None)

    def suspended(self, uid: str) -> None:
        """Record that a workload that ran is suspended now."""
        self._suspended[uid] = self._clock()

    def created_until(self, workload: Workload) -> float | None:
        """Return until when pods of a workload may have been created; None when that is long ago."""
        return self._suspended.get(workload.uid) if workload.suspended else self._clock()

    def keep(
        self, placement: Placement, hosts: Mapping[str, Mapping[str, int]], shapes: Mapping[str, Shape], *, since: float
    ) -> None:
        """Keep slots (pod set -> host -> pods) for the grace period that begins at `since`."""
        open_ = {name: found for name, counts in hosts.items() if (found := +Counter(counts))}
        if open_ and since + self._seconds > self._clock():
            self._number += 1
            key = grace_key(self._number)
            self._slots[key] = _GraceSlots(since + self._seconds, placement.key, open_, shapes)
            self._write(key, open_)

    def keep_all(self, placement: Placement, pods: Iterable[Pod]) -> None:
        """Keep all free capacity on the hosts of a Placement without a workload: the needs of its pods are unknown."""
        there = Counter(host_of(pod) for pod in pods)
        counts = slots_by_host(placement.assignment.pod_sets if placement.assignment is not None else ())
        shapes = {}
        for host, count in counts.items():
            free = tuple(sorted((name, left) for name, left in self._capacity.free(host).items() if left > 0))
            if count > there[host] and free:
                shapes[host] = with_requests(Shape(()), free)
        self.keep(placement, {host: {host: 1} for host in shapes}, shapes, since=self._clock())

    def arrived(self, pod: Pod) -> None:
        """Release the slot of a pod that has a host now, because the pod itself counts from now on."""
        host, placement = host_of(pod), (pod.namespace, pod.spec.labels.get(names.GANG, ""))
        for key, grace in self._slots.items():
            if grace.placement == placement:
                own = pod.spec.labels.get(names.POD_SET, "")
                for name in sorted(grace.hosts, key=lambda name: name != own):
                    if host is not None and grace.hosts[name][host] > 0:
                        grace.hosts[name][host] -= 1
                        self._write(key, {name: grace.hosts[name]})
                        return

    def wanted_again(self, placement: Placement, hosts: Mapping[str, Mapping[str, int]]) -> None:
        """Release slots (pod set -> host -> pods) of a gang that are reserved for it again: they count once."""
        left = {name: Counter(counts) for name, counts in hosts.items()}
        for key, grace in self._slots.items():
            if grace.placement == placement.key:
                for name in grace.hosts.keys() & left.keys():
                    given = grace.hosts[name] & left[name]
                    grace.hosts[name] -= given
                    left[name] -= given
                    self._write(key, {name: grace.hosts[name]})

    def renew(self) -> set[ReservationKey]:
        """Write all slots again, as devices are counted in another way now; return the keys of the reservations."""
        for key, grace in self._slots.items():
            self._write(key, grace.hosts)
        return set(self._slots)

    def release_expired(self) -> bool:
        """Release the slots of every grace period that is over; True when there was one."""
        now = self._clock()
        for uid in [uid for uid, when in self._suspended.items() if when + self._seconds <= now]:
            del self._suspended[uid]
        over = [key for key, grace in self._slots.items() if grace.until <= now]
        for key in over:
            self._write(key, {name: Counter[str]() for name in self._slots.pop(key).hosts})
        return bool(over)

    def _write(self, key: ReservationKey, hosts: Mapping[str, Mapping[str, int]]) -> None:
        grace = self._slots.get(key)
        for name, counts in hosts.items():
            shape = grace.shapes[name] if grace is not None else Shape(())
            self._capacity.reserve(key, counts, shape.requests, pod_set=name, devices=shape.devices)
