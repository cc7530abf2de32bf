"""Counts the gangs on each host, by their pods and their reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np

from engine.planner.tree import Bools, Ints64, Tree
from engine.topology.topology import Topology


class GangHosts:
    """The gangs on each host, by their pods and reservations; not thread-safe.

    A pod that outlives its workload counts as a gang of its own.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, Counter[str]] = {}  # host -> gang -> pods and reservations there
        self._hosts: dict[str, Counter[str]] = {}  # gang -> host
        self._numbers: dict[str, tuple[Tree, Ints64, set[str]]] = {}  # by topology: gangs per host, and what changed

    def __len__(self) -> int:
        """Return the number of hosts with a gang."""
        return len(self._gangs)

    def change(self, gang: str, host: str, by: int) -> None:
        """Add to the number of a gang's pods and reservations on a host; at 0 the gang is removed from the host."""
        for index, one, other in ((self._gangs, host, gang), (self._hosts, gang, host)):
            counts = index.setdefault(one, Counter())
            counts[other] += by
            if not counts[other]:
                del counts[other]
                if not counts:
                    del index[one]
        for name, (tree, _, changed) in list(self._numbers.items()):
            changed.add(host)
            if len(changed) > len(tree.hosts):  # nobody has asked for long
                del self._numbers[name]

    def others(self, own: Collection[str], topology: Topology) -> Bools:
        """Return for each host of a topology whether a gang other than these is there."""
        tree = topology.tree
        known = self._numbers.get(topology.name)
        if known is None or known[0] is not tree:
            known = (tree, np.zeros(len(tree.hosts), dtype=np.int64), set(self._gangs))
            self._numbers[topology.name] = known
        _, numbers, changed = known
        for host in changed:
            if (place := tree.index.get(host)) is not None:
                numbers[place] = len(self._gangs.get(host, ()))
        changed.clear()
        there = Counter(host for key in own for host in self._hosts.get(key, ()))
        others = numbers > 0
        for host, gangs in there.items():
            if (place := tree.index.get(host)) is not None:
                others[place] = numbers[place] > gangs
        return others
