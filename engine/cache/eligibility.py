"""Which hosts may take pods of a shape, regardless of what is free there: verdicts by row of the capacity.

Verdicts are kept for every class of shapes. A class that is asked for again checks only the nodes that have changed; a
new one, and one that has missed many changes, checks all of them at once (`engine.cache.node_columns`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.api.objects import Node
from engine.api.pod import Shape
from engine.cache.node_columns import Mask, NodeColumns
from engine.gang.shape import exclusion

ClassKey = tuple[object, object, object]

# Distinct (nodeSelector, affinity, tolerations) classes with kept verdicts per host; a cluster rarely has more than
# a few dozen. The bounds keep a hostile stream of selectors from growing the cache: a pod may carry tens of thousands
# of expressions (1.5 MiB), and they are the key of its class.
MAX_CLASSES = 256
MAX_WEIGHT = 50_000
# So many characters weigh one more. A review comes before any check of a label's length: it may have 3 MiB.
LONG_WORD = 256
# Up to so many changes are checked one by one, and more of them while they are fewer than one in so many nodes.
FEW = 32
FEW_OF = 32


@dataclass(slots=True)
class Verdicts:
    """The verdicts of one class: `reasons[row]` is why a host is not eligible ("" if it is), `mask` where it is."""

    reasons: list[str] = field(default_factory=list)
    mask: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    weight: int = 0
    seen: int = 0  # position in the log of changed rows up to which the verdicts are current


def weight_of(shape: Shape) -> int:
    """Return the weight of a shape's selectors and tolerations: one for each key and each value."""
    expressions = [one for term in shape.affinity or () for one in (*term.expressions, *term.fields)]
    words = [word for one in expressions for word in (one.key, *one.values)]
    words += [word for pair in shape.node_selector for word in pair]
    words += [word for one in shape.tolerations for word in (one.key, one.value)]
    return 1 + len(shape.affinity or ()) + len(words) + sum(map(len, words)) // LONG_WORD


class Eligibility:
    """The verdicts of all classes; `nodes` is the capacity's own list, by row, None for a row without a node."""

    def __init__(self, nodes: Sequence[Node | None]) -> None:
        self._nodes = nodes
        self._classes: OrderedDict[ClassKey, Verdicts] = OrderedDict()
        self._changed: list[int] = []
        self._weight = 0
        self._columns = NodeColumns(nodes)
        self._columns_seen = 0  # position in the log of changed rows up to which the columns are current

    @property
    def weight(self) -> int:
        """The weight of all selectors that are kept, as `weight_of` counts."""
        return self._weight

    def changed(self, row: int) -> None:
        """Record that a row has another node, or a changed one."""
        self._changed.append(row)
        self._trim()

    def of(self, shape: Shape) -> Verdicts:
        """Return the current verdicts for a shape; they must not be kept."""
        key: ClassKey = (shape.node_selector, shape.affinity, shape.tolerations)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = Verdicts(weight=weight_of(shape))
            self._weight += found.weight
            while len(self._classes) > 1 and (len(self._classes) > MAX_CLASSES or self._weight > MAX_WEIGHT):
                self._weight -= self._classes.popitem(last=False)[1].weight
        self._classes.move_to_end(key)
        if (behind := len(self._changed) - found.seen) > 0:
            rows = len(self._nodes)
            if behind > FEW and behind * FEW_OF > rows:
                self._update_columns()
                found.reasons, found.mask = self._columns.verdicts(shape)
            else:
                if len(found.reasons) < rows:
                    found.reasons.extend(["absent"] * (rows - len(found.reasons)))
                    found.mask = np.concatenate([found.mask, np.zeros(rows - len(found.mask), dtype=np.bool_)])
                for row in set(self._changed[found.seen :]):
                    node = self._nodes[row]
                    reason = "absent" if node is None else (exclusion(shape, node) or "")
                    found.reasons[row] = reason
                    found.mask[row] = reason == ""
            found.seen = len(self._changed)
        self._trim()
        return found

    def _update_columns(self) -> None:
        self._columns.changed(self._changed[self._columns_seen :])
        self._columns_seen = len(self._changed)

    def _trim(self) -> None:
        """Drop the part of the log that every class has read, once it is worth the copy."""
        if len(self._changed) < 4 * max(64, len(self._nodes)):
            return
        for verdicts in list(self._classes.values()):
            if verdicts.seen < len(self._changed):
                verdicts.seen = 0
            else:
                verdicts.seen = len(self._nodes)
        self._update_columns()
        self._columns_seen = len(self._nodes)
        self._changed = list(range(len(self._nodes)))
