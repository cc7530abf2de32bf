"""The leader's metrics of the cluster: gangs by phase, free capacity and fragmentation of every level, GPUs by domain.

Made when the metrics are read, at most every EVERY seconds, with the numbers of `topogate topology show`. The state's
lock is held for the numbers of one topology at a time, some milliseconds for 10,000 hosts; the rest is done without it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from engine import metrics
from engine.api.placement import Placement, kept_hosts, last_transition
from engine.api.reasons import PHASES, known_code, known_phase, reason_of
from engine.cache.state import ClusterState
from engine.planner.tree import Ints64, Tree
from engine.topology.topology import Topology
from webhook.queries.hosts import Holders, HostTable, host_table, shares
from webhook.service.settings import MOST_DOMAINS
from webhook.snapshot.snapshot import Snapshot

EVERY: Final = 10.0  # anybody in the cluster may read the metrics
# A gang passes through these phases; in the others it may stay for any time.
PASSING: Final = ("Placed", "Starting", "Incomplete")
_GAUGES: Final = (
    metrics.gangs,
    metrics.oldest_phase,
    metrics.excess_domains,
    metrics.level_domains,
    metrics.largest_gang,
    metrics.fragmentation,
    metrics.topology_gpus,
    metrics.domain_gpus,
)


class CapacityReport:
    """Sets the metrics on the leader, and removes them elsewhere; `refresh` is called by one thread at a time."""

    def __init__(
        self,
        view: ClusterState,
        *,
        leads: Callable[[], bool],
        most_domains: int = MOST_DOMAINS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Take `most_domains`: a level is left out of the metrics by domain if there would be more with it."""
        self._view = view
        self._leads = leads
        self._most_domains = most_domains
        self._clock = clock
        self._wall = wall
        self._due = float("-inf")
        self._led = False

    def refresh(self) -> None:
        """Set the metrics if they are older than EVERY seconds, or if the replica became or ceased to be the leader."""
        leads, now = self._leads(), self._clock()
        if leads == self._led and now < self._due:
            return
        self._led, self._due = leads, now + EVERY
        tables, placements = self._read() if leads else ([], [])
        for gauge in _GAUGES:
            gauge.clear()
        if not leads:
            metrics.without_pods.set(0)  # without labels nothing is cleared
            return
        self._show_gangs(placements)
        left = self._most_domains
        for table in tables:
            left = _show_topology(table, domains_left=left)
            _show_excess(table.topology, placements)

    def _read(self) -> tuple[list[HostTable], list[Placement]]:
        """Return the hosts of every usable topology, and all Placements."""
        view = self._view
        snapshot = Snapshot(view=view, taken=self._wall(), ends={})
        with view.lock:
            topologies, placements = list(view.topologies.values()), view.gangs.placements()
        tables = []
        for topology in topologies:
            with view.lock:
                if topology.waits or not topology.tree.hosts or view.topologies.get(topology.name) is not topology:
                    continue
                kept = {host: key for key, _, one in view.gangs.keeping() for host in kept_hosts(one.status)}
                tables.append(host_table(snapshot, topology, Holders({}, {}, kept, {})))
        return tables, placements

    def _show_gangs(self, placements: Iterable[Placement]) -> None:
        phases, oldest, now = Counter[str](), dict.fromkeys(PASSING, 0.0), self._wall()
        without_pods = 0
        for placement in placements:
            phase = known_phase(placement.status.get("phase"))
            if phase is None:
                continue
            phases[phase] += 1
            # By the Placement: a gang that cannot be suspended is in no queue until one of its pods exists.
            reason = reason_of(known_code(placement.status.get("reason")))
            without_pods += phase == "Waiting" and reason is not None and reason.until == "pods"
            if phase in oldest and (since := last_transition(placement.status)) is not None:
                oldest[phase] = max(oldest[phase], now - since)
        for one in PHASES:
            metrics.gangs.labels(one).set(phases[one])
        for passing, seconds in oldest.items():
            metrics.oldest_phase.labels(passing).set(seconds)
        metrics.without_pods.set(without_pods)


def _show_topology(table: HostTable, *, domains_left: int) -> int:
    """Set the metrics of free capacity; return for how many domains there may be more series by domain."""
    topology, tree = table.topology, table.topology.tree
    states = {
        "used": table.used + table.reserved,
        "kept": table.kept,
        "out": table.out,
        "free": table.free,
    }
    for state, gpus in states.items():
        metrics.topology_gpus.labels(topology.name, state).set(int(gpus.sum()))
    for index, level in enumerate(topology.levels):
        sums = tree.sums(index, table.slots).tolist()
        largest = max(sums, default=0)
        metrics.level_domains.labels(topology.name, level.name).set(tree.size(index))
        metrics.largest_gang.labels(topology.name, level.name).set(largest)
        metrics.fragmentation.labels(topology.name, level.name).set(shares(sums, largest) or 0.0)
    for index, level in enumerate(topology.levels[:-1]):
        if tree.size(index) > domains_left:
            break  # finer levels have more
        domains_left -= tree.size(index)
        by_state = {state: tree.sums(index, gpus).tolist() for state, gpus in states.items()}
        for domain in range(tree.size(index)):
            path = "/".join(tree.path(index, domain))
            for state, counts in by_state.items():
                metrics.domain_gpus.labels(topology.name, level.name, path, state).set(counts[domain])
    return domains_left


def _show_excess(topology: Topology, placements: Sequence[Placement]) -> None:
    hosts = [found for one in placements if one.topology == topology.name and (found := _hosts(one, topology.tree))]
    for index, level in enumerate(topology.levels[:-1]):
        excess = _excess(topology.tree, index, hosts)
        metrics.excess_domains.labels(topology.name, level.name).set(excess)


def _hosts(placement: Placement, tree: Tree) -> list[int]:
    """Return the hosts of a gang that has slots and has not ended."""
    if placement.assignment is None or placement.status.get("phase") == "Finished":
        return []
    names = {slot.host for plan in placement.assignment.pod_sets for slot in plan.slots}
    return [tree.index[name] for name in names if name in tree.index]


def _excess(tree: Tree, level: int, gangs: Iterable[list[int]]) -> int:
    """Return how many domains the gangs use beyond the fewest with as many hosts, of all of them together."""
    sizes: Ints64 = np.diff(np.append(tree.starts[level], len(tree.hosts)))
    reach = np.cumsum(np.sort(sizes)[::-1])
    domains = tree.domains[level]
    return sum(len({*domains[hosts].tolist()}) - int(np.searchsorted(reach, len(hosts))) - 1 for hosts in gangs)
