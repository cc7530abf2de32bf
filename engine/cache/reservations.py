"""Reserves capacity for gangs: slots of pods to be bound, and hosts of released pods without a slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.api.resources import is_claim, largest
from engine.api.workload import ReservationKey, Workload
from engine.cache.capacity import Capacity
from engine.cache.pod_shapes import PodShapes
from engine.devices.allocation import Uses
from engine.gang.gang import pinned_host, pod_set_of, released
from engine.gang.reservation import reservations, unreserved_pods
from engine.gang.shape import with_requests


class Reservations:
    """Writes the reservations of gangs into the capacity, by key; not thread-safe."""

    def __init__(self, capacity: Capacity, pod_shapes: PodShapes, *, schedulers: Callable[[], Collection[str]]) -> None:
        """`schedulers`: the names of the schedulers with pods that we place."""
        self._capacity = capacity
        self._pod_shapes = pod_shapes
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
    ) -> None:
        """Replace the reservation of a key: `pods` are those of the gang, `related` all pods that belong to the key.

        Without a workload and a Placement nothing is reserved for pods that do not exist yet.
        """
        self._unreserved.discard(key)
        shapes: dict[str, Shape] = {}
        hosts: dict[str, Counter[str]] = {}
        uses: dict[str, Mapping[str, tuple[Uses, ...]]] = {}
        if workload is not None and placement is not None:
            for kept in reservations(workload, placement, pods):
                if kept.hosts:
                    shapes[kept.pod_set.name] = self._pod_shapes.shape_of(workload, kept.pod_set)
                    hosts[kept.pod_set.name] = Counter(kept.hosts)
                    uses[kept.pod_set.name] = kept.uses
        for name, members in _by_pod_set(related, workload).items():
            if unreserved_pods(workload, placement, members):
                self._unreserved.add(key)
            pinned = [pod for pod in members if self._may_land(pod)]
            if unreserved := unreserved_pods(workload, placement, pinned):
                requests = shapes[name].requests if name in shapes else ()
                requests = largest((requests, *(pod.spec.shape.requests for pod in pinned)))
                shapes[name] = with_requests(shapes.get(name) or Shape(()), requests)
                hosts.setdefault(name, Counter()).update(unreserved)
        for name in self._capacity.reserved_by(key).keys() | hosts.keys():
            shape = shapes.get(name) or Shape(())
            self._capacity.reserve(
                key,
                hosts.get(name, {}),
                shape.requests,
                pod_set=name,
                devices=shape.devices,
                uses=uses.get(name),
            )

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


def _by_pod_set(pods: Iterable[Pod], workload: Workload | None) -> dict[str, list[Pod]]:
    """Return the pods by pod set; "" for those of none."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        pod_set = pod_set_of(pod, workload) if workload is not None else None
        found.setdefault(pod_set.name if pod_set is not None else "", []).append(pod)
    return found
