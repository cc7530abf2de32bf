"""How much pods prefer hosts: preferred node affinity, and taints with PreferNoSchedule that they do not tolerate.

The numbers are the kube-scheduler's: two plugins score 0 to 100 over the eligible nodes, and TaintToleration counts
three times, NodeAffinity twice. `engine.capacity.pod_preferences` has those that depend on the pods there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from engine.api.objects import Node, Taint
from engine.api.pod import Shape
from engine.capacity.eligibility import MAX_WEIGHT, Eligibility, weight_of
from engine.devices.ledger import Rows
from engine.planner.sums import HostScores
from engine.planner.tree import Bools, Ints64
from engine.resources.shape import tolerates

_SOFT: Final = "PreferNoSchedule"
_AFFINITY_WEIGHT: Final = 2
_TAINT_WEIGHT: Final = 3
_BEST: Final = 100
# Scores that are kept: 16 bytes a host each. They are counted afresh after any change of a node.
_MAX_KEPT: Final = 64

_Key = tuple[tuple[tuple[Shape, int], ...], int]


class NodePreferences:
    """The scores of hosts for pods; `nodes` is the capacity's own list, by row, None for a row without a node."""

    def __init__(self, nodes: Sequence[Node | None], eligibility: Eligibility) -> None:
        self._nodes = nodes
        self._eligibility = eligibility
        self._soft: dict[int, tuple[Taint, ...]] = {}  # by row: the taints with PreferNoSchedule
        self._kept: OrderedDict[_Key, tuple[Rows, Ints64, HostScores | None]] = OrderedDict()
        self._weight = 0

    @property
    def soft_taints(self) -> bool:
        """Whether any node has a taint with PreferNoSchedule."""
        return bool(self._soft)

    def changed(self, row: int) -> None:
        """Record that the node of a row has changed."""
        node = self._nodes[row]
        self._soft.pop(row, None)
        if node is not None and (soft := tuple(taint for taint in node.taints if taint.effect == _SOFT)):
            self._soft[row] = soft
        self._kept.clear()
        self._weight = 0

    def of(self, shapes: Mapping[Shape, int], rows: Rows, near: Ints64 | None = None) -> HostScores | None:
        """Return the scores of hosts (their rows) for so many pods of each shape; None where all are equal.

        `near`: what is added, by host.
        """
        total, scores = self._of_nodes(shapes, rows)
        if near is None:
            return scores
        eligible = np.logical_or.reduce([self._eligibility.of(shape).mask[rows] for shape in shapes])
        every = near if total is None else total + near
        return HostScores.of(np.where(eligible, every, every[eligible].min())) if eligible.any() else None

    def _of_nodes(self, shapes: Mapping[Shape, int], rows: Rows) -> tuple[Ints64 | None, HostScores | None]:
        if not self._soft and not any(shape.preferred for shape in shapes):
            return None, None
        key = (tuple(shapes.items()), id(rows))
        known = self._kept.get(key)
        if known is None or known[0] is not rows:
            total = np.zeros(len(rows), dtype=np.int64)
            for shape, count in shapes.items():
                total += self._scores(shape, rows) * count
            known = self._kept[key] = (rows, total, HostScores.of(total))
            self._weight += sum(map(weight_of, shapes))
            if len(self._kept) > _MAX_KEPT or self._weight > MAX_WEIGHT:
                self._kept.clear()
                self._weight = 0
        return known[1], known[2]

    def _scores(self, shape: Shape, rows: Rows) -> Ints64:
        eligible = self._eligibility.of(shape).mask[rows]
        found = np.zeros(len(rows), dtype=np.int64)
        if not eligible.any():
            return found
        if shape.preferred:
            worth = np.zeros(len(self._nodes), dtype=np.int64)
            for one in shape.preferred:
                worth += one.weight * self._eligibility.matching(one.term)
            found += _AFFINITY_WEIGHT * _scaled(worth[rows], eligible)
        if self._soft:
            taints = np.zeros(len(self._nodes), dtype=np.int64)
            for row, soft in self._soft.items():
                taints[row] = sum(not tolerates(shape.tolerations, taint) for taint in soft)
            found += _TAINT_WEIGHT * (_BEST - _scaled(taints[rows], eligible))
        # No pod goes to the others: they must not count as another score.
        scores: Ints64 = np.where(eligible, found, found[eligible].min())
        return scores


def _scaled(values: Ints64, among: Bools) -> Ints64:
    """Return the values in hundredths of the largest one among some."""
    largest = int(values[among].max())
    return values * _BEST // largest if largest else np.zeros_like(values)
