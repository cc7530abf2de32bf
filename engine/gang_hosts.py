"""How the hosts of a placed gang stand: what the gang state machine asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from engine.api.placement import Slot
from engine.cache.capacity import Capacity
from engine.gang.gang import GONE, Gang
from engine.gang.shape import exclusion
from engine.gang.slots import moved
from engine.topology.topology import Topology


class GangHosts:
    """For one look at one gang; `now` is the time of day (seconds since the epoch)."""

    def __init__(self, gang: Gang, capacity: Capacity, topologies: Mapping[str, Topology], *, now: float) -> None:
        self._gang = gang
        self._capacity = capacity
        self._topologies = topologies
        self._now = now

    def down(self, host: str) -> float | None:
        """For how long a node is not ready (seconds); None when it is."""
        node = self._capacity.node(host)
        if node is None:
            return GONE
        return None if node.ready else max(0.0, self._now - node.settled_at) if node.settled_at else 0.0

    def overbooked(self, host: str) -> bool:
        """True when others took room that is reserved there for pods of the gang, or devices of theirs."""
        return self._capacity.lost_devices(self._gang.key, host) or any(
            self._capacity.overbooked(host, self._gang.shapes[name].requests) for name, _ in self._slots.get(host, ())
        )

    def usable(self, host: str) -> bool:
        """True when the pods of the gang that were to go there still can."""
        node, placement = self._capacity.node(host), self._gang.placement
        if node is None or placement is None:
            return node is not None
        topology = self._topologies.get(placement.topology)
        return not any(
            exclusion(self._gang.shapes[name], node) is not None or moved(placement, slot, topology, pod_set=name)
            for name, slot in self._slots.get(host, ())
        )

    @cached_property
    def _slots(self) -> dict[str, list[tuple[str, Slot]]]:
        """The gang's slots by host, with the names of their pod sets; read once, when it is first asked."""
        assignment = self._gang.placement.assignment if self._gang.placement is not None else None
        found: dict[str, list[tuple[str, Slot]]] = {}
        for plan in assignment.pod_sets if assignment is not None else ():
            for slot in plan.slots if plan.name in self._gang.shapes else ():
                found.setdefault(slot.host, []).append((plan.name, slot))
        return found
