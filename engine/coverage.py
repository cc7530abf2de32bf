"""How much of the cluster each topology covers: told in metrics, and in the log when what is left out changes.

A node without the label of a level cannot be placed on by that topology; nobody would see why, were it not counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from engine import metrics
from engine.api.text import plural
from engine.topology import OUTSIDE_SELECTOR, Level, Topology

log = logging.getLogger("topogate.topologies")


def left_out(topology: Topology) -> str:
    """Why nodes that belong to a topology are not in it, with their numbers; "" when nothing is wrong."""
    reasons = Counter(topology.outside.values())
    del reasons[OUTSIDE_SELECTOR]
    parts = [f"{plural(number, 'node')} with {why}" for why, number in sorted(reasons.items())]
    return topology.waits or ("left out: " + ", ".join(parts) if parts else _nearly(topology))


def _nearly(topology: Topology) -> str:
    """Which presets fit but for one level, so that nobody wonders why there are only hosts."""
    missed = [f"{name}, but no node has a label of its {_labels_of(level)}" for name, level in topology.nearly]
    return f"hosts alone, as no preset fits; nearest: {'; '.join(missed)}" if missed else ""


def _labels_of(level: Level) -> str:
    return f"level {level.name} ({' or '.join(level.keys)})"


def uncovered(topology: Topology) -> str:
    """Why a topology takes no node; "" when it takes some."""
    if topology.waits or topology.tree.hosts:
        return topology.waits
    if not topology.outside:
        return "there is none"
    unlabelled = sum(1 for reason in topology.outside.values() if reason != OUTSIDE_SELECTOR)
    if not unlabelled:
        return f"no node of {len(topology.outside):,} has the labels of its nodeSelector"
    bare = [level for level in topology.levels if topology.coverage.get(level.name, (1, 1))[0] == 0]
    return f"no node of {unlabelled:,} has a label of {_labels_of(bare[0]) if bare else 'every level'}"


def covered(topology: Topology) -> str:
    """What a topology takes of the nodes: `480 nodes; left out: 8 nodes with no label rack; 24 not selected`."""
    others = sum(1 for reason in topology.outside.values() if reason == OUTSIDE_SELECTOR)
    parts = (plural(len(topology.tree.hosts), "node"), left_out(topology), f"{others:,} not selected" if others else "")
    return "; ".join(part for part in parts if part)


class Coverage:
    """Tells of the topologies in force at every change; for one thread at a time."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def changed(self, topologies: Mapping[str, Topology]) -> None:
        """Take over the topologies that are in force now."""
        metrics.topology_nodes.clear()
        told: dict[str, str] = {}
        for name, topology in topologies.items():
            reasons = Counter(topology.outside.values())
            others = reasons.pop(OUTSIDE_SELECTOR, 0)
            counts = {"in": len(topology.tree.hosts), "unlabelled": reasons.total(), "unselected": others}
            for state, number in counts.items():
                metrics.topology_nodes.labels(name, state).set(number)
            told[name] = left_out(topology)
            if told[name] != self._told.get(name, ""):
                log.warning("topology %s: %s", name, told[name] or "every node has its labels")
        self._told = told
