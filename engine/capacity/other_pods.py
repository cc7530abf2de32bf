"""The pods around a gang: those of others that its rules and preferences look at, by row of the capacity's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from engine.api.pod import Pod, PodConstraints
from engine.api.workload import ReservationKey
from engine.capacity.capacity import Capacity
from engine.capacity.nearby_pods import Labels, NearbyPods, PodQuery, ReservedPods, hosted, keep_away, labels_of
from engine.planner.tree import Ints64


class OtherPods:
    """The pods on each host, running ones and those to come, without the gang's own.

    `key` and `pods`: of the gang itself; `emptied`: hosts that count as empty. For one plan: the state must not change.
    """

    def __init__(
        self,
        nearby: NearbyPods,
        capacity: Capacity,
        *,
        key: ReservationKey,
        pods: Iterable[Pod],
        emptied: Iterable[str] = (),
    ) -> None:
        self.nearby = nearby
        self.capacity = capacity
        self._key = key
        self._pods = pods
        self._hosts = emptied

    @cached_property
    def own(self) -> list[tuple[str, Labels, bool, int, PodConstraints | None]]:
        """The gang's own pods on hosts: namespace, labels, whether they are being deleted, row, constraints."""
        return [
            (pod.namespace, labels_of(pod.spec.own_labels), pod.deleting, row, pod.spec.constraints)
            for pod, host in hosted(self._pods)
            if (row := self.capacity.row_of(host)) is not None
        ]

    @cached_property
    def coming(self) -> list[ReservedPods]:
        """The gang's own pods that are to come to reserved slots."""
        return list(self.nearby.reserved(self._key))

    @cached_property
    def emptied(self) -> list[int]:
        """The rows of the hosts that count as empty."""
        return self.rows(self._hosts)

    def rows(self, hosts: Iterable[str]) -> list[int]:
        """Return the rows of those hosts that the table has."""
        return [row for host in hosts if (row := self.capacity.row_of(host)) is not None]

    def matching(self, query: PodQuery) -> Ints64:
        """Return how many pods of others a query matches, by row; not to be written to."""
        there = self.capacity.nearby(self.nearby, query)
        own = [row for space, labels, deleting, row, _ in self.own if query.matches(space, labels, deleting=deleting)]
        coming = [one for one in self.coming if query.matches(one.namespace, one.labels)]
        if not (own or coming or self.emptied):
            return there
        there = there.copy()
        there[self.emptied] = 0
        np.subtract.at(there, own, 1)
        for reserved in coming:
            self._add(there, reserved.hosts, -1)
        return np.maximum(there, 0, out=there)

    def keeping_away(self, namespace: str, labels: Labels) -> dict[str, Ints64]:
        """Return how many pods of others keep away a pod with these labels, by topology key and row."""
        found, known = dict[str, Ints64](), self.capacity.has_label
        for term, hosts in self.nearby.keeping_away(namespace, labels, known):
            if (there := found.get(term.topology_key)) is None:
                there = found[term.topology_key] = np.zeros(self.capacity.rows, dtype=np.int64)
            self._add(there, hosts, 1)
        if not found:
            return found
        for _, _, _, row, constraints in self.own:
            terms = constraints.anti_affinity if constraints is not None else ()
            for term in keep_away(terms, namespace, labels, known):
                if (there := found.get(term.topology_key)) is not None:
                    there[row] -= 1
        for reserved in self.coming:
            for term in keep_away(reserved.anti_affinity, namespace, labels, known):
                if (there := found.get(term.topology_key)) is not None:
                    self._add(there, reserved.hosts, -1)
        for there in found.values():
            there[self.emptied] = 0
        return found

    def _add(self, there: Ints64, hosts: Mapping[str, int], sign: int) -> None:
        for host, number in hosts.items():
            if (row := self.capacity.row_of(host)) is not None:
                there[row] += sign * number
