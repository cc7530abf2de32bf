"""Counts the gangs on each host, by their pods and their reservations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from engine.capacity.counts import add_in
from engine.planner.tree import Bools, Ints64, Tree
from engine.topology.topology import Topology


@dataclass(slots=True)
class _UsedHosts:
    """Which hosts of a tree have a gang, how many in each domain of a level, and what may have changed since.

    `outside`: hosts with a gang that the tree does not have.
    """

    tree: Tree
    used: Bools
    numbers: Ints64
    changed: set[str]
    outside: set[str] = field(default_factory=set)


class GangHosts:
    """The gangs on each host, by their pods and reservations; not thread-safe.

    A pod that outlives its workload counts as a gang of its own.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, int]] = {}  # host -> gang -> pods and reservations there
        self._hosts: dict[str, dict[str, int]] = {}  # gang -> host
        self._used: dict[tuple[str, int], _UsedHosts] = {}  # by topology and level

    def __len__(self) -> int:
        """Return the number of hosts with a gang."""
        return len(self._gangs)

    def change(self, gang: str, host: str, by: int) -> None:
        """Add to the number of a gang's pods and reservations on a host; at 0 the gang is removed from the host."""
        for index, one, other in ((self._gangs, host, gang), (self._hosts, gang, host)):
            add_in(index, one, other, by)
        for about, known in list(self._used.items()):
            known.changed.add(host)
            if len(known.changed) > len(known.tree.hosts):  # nobody has asked for long
                del self._used[about]

    def keep_topologies(self, names: Collection[str]) -> None:
        """Forget the numbers of topologies other than these."""
        self._used = {about: known for about, known in self._used.items() if about[0] in names}

    def on(self, host: str) -> Iterable[str]:
        """Return the gangs on a host."""
        return self._gangs.get(host, {}).keys()

    def of(self, gang: str) -> frozenset[str]:
        """Return the hosts of a gang."""
        return frozenset(self._hosts.get(gang, ()))

    def others(self, own: Collection[str], topology: Topology, level: int) -> Bools:
        """Return for each domain of a level of a topology whether a gang other than these is there."""
        tree, known = topology.tree, self._known(topology, level)
        domains = tree.domains[level]
        own_hosts = {host for key in own for host in self._hosts.get(key, ())}
        alone = [tree.index[host] for host in own_hosts if host in tree.index and self._gangs[host].keys() <= set(own)]
        if not alone:
            return known.numbers > 0
        numbers = known.numbers.copy()
        np.subtract.at(numbers, domains[alone], 1)
        return numbers > 0

    def outside(self, own: Collection[str], topology: Topology, level: int) -> list[tuple[str, str]]:
        """Return the hosts that a topology does not have, each with a gang other than these that is there."""
        known = self._known(topology, level)
        return [(host, gang) for host in sorted(known.outside) for gang in self._gangs[host] if gang not in own]

    def _known(self, topology: Topology, level: int) -> _UsedHosts:
        tree = topology.tree
        known = self._used.get((topology.name, level))
        if known is None or known.tree is not tree:
            nowhere, none = np.zeros(len(tree.hosts), dtype=np.bool_), np.zeros(tree.size(level), dtype=np.int64)
            known = self._used[(topology.name, level)] = _UsedHosts(tree, nowhere, none, set(self._gangs))
        domains = tree.domains[level]
        for host in known.changed:
            place, used = tree.index.get(host), host in self._gangs
            if place is None:
                (known.outside.add if used else known.outside.discard)(host)
            elif known.used[place] != used:
                known.used[place] = used
                known.numbers[domains[place]] += 1 if used else -1
        known.changed.clear()
        return known
