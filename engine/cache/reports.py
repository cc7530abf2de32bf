"""Reports of the cache: node coverage per topology and faults of Device objects, as metrics and log lines."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from engine import metrics
from engine.api.text import sanitize
from engine.topology.topology import OUTSIDE_SELECTOR, Topology, left_out

_topology_log = logging.getLogger("topogate.topologies")
_device_log = logging.getLogger("topogate.devices")

# With more faulty hosts than this they share one cause: the metric counts them.
MAX_NAMED: Final = 50
_MAX_FAULT_TEXT: Final = 200  # characters of one fault


class Coverage:
    """Reports the node coverage of the topologies in force at every change; for one thread at a time."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def changed(self, topologies: Mapping[str, Topology]) -> None:
        """Report the topologies that are in force now."""
        metrics.topology_nodes.clear()
        current: dict[str, str] = {}
        for name, topology in topologies.items():
            reasons = Counter(topology.outside.values())
            others = reasons.pop(OUTSIDE_SELECTOR, 0)
            counts = {"in": len(topology.tree.hosts), "unlabelled": reasons.total(), "unselected": others}
            for state, number in counts.items():
                metrics.topology_nodes.labels(name, state).set(number)
            current[name] = left_out(topology)
            if current[name] != self._reported.get(name, ""):
                _topology_log.warning("topology %s: %s", name, current[name] or "every node has its labels")
        self._reported = current


class DeviceFaults:
    """Reports faults of hosts' devices (`Reader`) as a metric and log lines; for one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def found(self, host: str, faults: tuple[str, ...]) -> None:
        """Record the faults of a host's devices; empty: it has none."""
        before = self._known.pop(host, ())
        if faults:
            self._known[host] = faults
        metrics.device_faults.set(len(self._known))
        fresh = [fault for fault in faults if fault not in before]
        if fresh and len(self._known) <= MAX_NAMED:
            _device_log.warning(
                "devices of %s: %s", sanitize(host), "; ".join(sanitize(fault, _MAX_FAULT_TEXT) for fault in fresh)
            )
