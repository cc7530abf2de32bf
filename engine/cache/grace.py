"""Room of pods that may be on their way although their gang is gone: it is kept for a moment.

The watches of workloads and of pods are two: a pod that was made and pinned just before its workload was deleted,
suspended, or lost its slots may be seen after that. Until it must have been seen its slot is promised to nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.api.workload import Workload
from engine.cache.capacity import Capacity
from engine.gang.gang import host_of
from engine.gang.shape import with_requests

# By how much a pod may be seen later than what its controller learned after making it: a create that is under way, and
# a slow watch. Seconds.
LINGER = 3.0


@dataclass(slots=True)
class _Late:
    """Slots of one gang: pod set -> host -> pods, and what one of them needs."""

    until: float
    placement: tuple[str, str]
    hosts: dict[str, Counter[str]]
    shapes: Mapping[str, Shape]


class GraceReservations:
    """What is kept, written into the ledger under keys of its own; not safe to share between threads by itself."""

    def __init__(self, capacity: Capacity, clock: Callable[[], float], *, seconds: float = LINGER) -> None:
        self._capacity = capacity
        self._clock = clock
        self._seconds = seconds
        self._late: dict[str, _Late] = {}
        self._suspended: dict[str, float] = {}  # uid -> when it was seen to be suspended
        self._number = 0

    @property
    def end(self) -> float | None:
        """When the next of it goes, on the clock; None while nothing is kept."""
        return min((late.until for late in self._late.values()), default=None)

    def suspended(self, uid: str) -> None:
        """Take in that a workload that ran is suspended now."""
        self._suspended[uid] = self._clock()

    def ran(self, workload: Workload) -> float | None:
        """Until when pods of a workload may have been made; None when that is long ago."""
        return self._suspended.get(workload.uid) if workload.suspended else self._clock()

    def keep(
        self, placement: Placement, hosts: Mapping[str, Mapping[str, int]], shapes: Mapping[str, Shape], *, since: float
    ) -> None:
        """Keep slots (pod set -> host -> pods) for a moment from `since` on."""
        open_ = {name: found for name, counts in hosts.items() if (found := +Counter(counts))}
        if open_ and since + self._seconds > self._clock():
            self._number += 1
            key = f"late/{self._number}"
            self._late[key] = _Late(since + self._seconds, placement.key, open_, shapes)
            self._write(key, open_)

    def keep_all(self, placement: Placement, pods: Iterable[Pod]) -> None:
        """Keep whatever is free on the hosts of a Placement without a workload: nobody knows what its pods need."""
        there = Counter(host_of(pod) for pod in pods)
        counts: Counter[str] = Counter()
        for plan in placement.assignment.pod_sets if placement.assignment is not None else ():
            for slot in plan.slots:
                counts[slot.host] += slot.count
        shapes = {}
        for host, count in counts.items():
            free = tuple(sorted((name, left) for name, left in self._capacity.free(host).items() if left > 0))
            if count > there[host] and free:
                shapes[host] = with_requests(Shape(()), free)
        self.keep(placement, {host: {host: 1} for host in shapes}, shapes, since=self._clock())

    def arrived(self, pod: Pod) -> None:
        """Take in that a pod has a host now: from here on it counts itself."""
        host, placement = host_of(pod), (pod.namespace, pod.spec.labels.get(names.GANG, ""))
        for key, late in self._late.items():
            if late.placement == placement:
                own = pod.spec.labels.get(names.POD_SET, "")
                for name in sorted(late.hosts, key=lambda name: name != own):
                    if host is not None and late.hosts[name][host] > 0:
                        late.hosts[name][host] -= 1
                        self._write(key, {name: late.hosts[name]})
                        return

    def pass_by(self) -> bool:
        """Let go of what was kept long enough; True when there was such."""
        now = self._clock()
        for uid in [uid for uid, when in self._suspended.items() if when + self._seconds <= now]:
            del self._suspended[uid]
        over = [key for key, late in self._late.items() if late.until <= now]
        for key in over:
            self._write(key, {name: Counter[str]() for name in self._late.pop(key).hosts})
        return bool(over)

    def _write(self, key: str, hosts: Mapping[str, Mapping[str, int]]) -> None:
        late = self._late.get(key)
        for name, counts in hosts.items():
            shape = late.shapes[name] if late is not None else Shape(())
            self._capacity.reserve(key, counts, shape.requests, pod_set=name, devices=shape.devices)
