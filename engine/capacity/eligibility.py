"""Which hosts may take pods of a shape, regardless of what is free there: verdicts by row of the capacity.

Verdicts are kept for every class of shapes. A class that is asked for again checks only the nodes that have changed; a
new one, and one that has missed many changes, checks all of them at once.

For that the properties of nodes (labels, names, whether they are open) are kept by column, each value under a number.
A requirement's cost goes by the values that it names and by one operation on an array, so that a pod with hundreds of
requirements takes no longer than others. Only keys that a selector named have a column; it is brought up to date when
it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

import numpy as np

from engine.api.objects import Node, Taint
from engine.api.pod import SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.devices.ledger import Rows
from engine.planner.tree import Bools, Ints64
from engine.resources.shape import NODE_AFFINITY, NODE_SELECTOR, VOLUMES, exclusion, int64

ClassKey = tuple[object, object, object, object]

# Nodes times keys whose labels are kept by number (8 bytes each), and the values of all of them (some 100 bytes each):
# 130 keys on 100,000 nodes are 100 MB, five keys with another value on each of these nodes 50 MB. Smaller clusters keep
# every key that their nodes have: reading a label of 5,000 nodes again takes milliseconds.
MAX_CELLS: Final = 13_000_000
MAX_VALUES: Final = 500_000
SPARE: Final = 256  # values and keys of nodes that are gone stay until there are twice as many, and so many more

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
    mask: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    weight: int = 0
    seen: int = 0  # position in the log of changed rows up to which the verdicts are current


def weight_of(shape: Shape) -> int:
    """Return the weight of a shape's selectors and tolerations: one for each key and each value."""
    terms = [*(shape.affinity or ()), *chain.from_iterable(shape.volumes), *(one.term for one in shape.preferred)]
    expressions = [one for term in terms for one in (*term.expressions, *term.fields)]
    words = [word for one in expressions for word in (one.key, *one.values)]
    words += [word for pair in shape.node_selector for word in pair]
    words += [word for one in shape.tolerations for word in (one.key, one.value)]
    return 1 + len(terms) + len(words) + sum(map(len, words)) // LONG_WORD


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
        """Record that the node of a row has changed."""
        self._changed.append(row)
        self._trim()

    def of(self, shape: Shape) -> Verdicts:
        """Return the current verdicts for a shape; they must not be kept."""
        key: ClassKey = (shape.node_selector, shape.affinity, shape.tolerations, shape.volumes)
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

    def matching(self, term: SelectorTerm) -> Bools:
        """Return, by row, which nodes match a term."""
        self._update_columns()
        return self._columns.matching(term)

    def label(self, key: str) -> Column | None:
        """Return the number of each row's value of a label (0: none); None when no node has the label."""
        self._update_columns()
        return self._columns.label(key)

    def selected(self, shape: Shape, *, affinity: bool, taints: bool) -> Bools:
        """Return the rows that a shape's nodeSelector and node affinity select (`affinity`), with tolerated `taints`.

        Whether a node is ready or cordoned does not count.
        """
        self._update_columns()
        return self._columns.selected(shape, affinity=affinity, taints=taints)

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


@dataclass(slots=True)
class Column:
    """One property of all nodes: `codes[row]` is the number of its value, 0 where a node has none."""

    read: Callable[[Node], Hashable]
    values: dict[Hashable, int] = field(default_factory=lambda: {None: 0})
    codes: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    version: int = -1
    numbers: Ints64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    numeric: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    stamp: object = field(default_factory=object)  # another one whenever the code of some row is

    def take(self, nodes: Sequence[Node | None], rows: Rows) -> None:
        """Read the nodes of some rows again."""
        if len(self.codes) < len(nodes):
            self.codes = np.concatenate([self.codes, np.zeros(len(nodes) - len(self.codes), dtype=np.intp)])
        if len(self.values) > 2 * len(nodes) + SPARE:
            self.values, rows = {None: 0}, np.arange(len(nodes))
            self.numbers, self.numeric = self.numbers[:0], self.numeric[:0]
        values, read = self.values, self.read
        codes = np.array(
            [
                values.setdefault(None if (node := nodes[row]) is None else read(node), len(values))
                for row in rows.tolist()
            ],
            dtype=np.intp,
        )
        if not np.array_equal(self.codes[rows], codes):
            self.codes[rows] = codes
            self.stamp = object()

    def among(self, wanted: Iterable[Hashable]) -> Bools:
        """Return the mask of rows with one of these values."""
        codes = [code for value in wanted if (code := self.values.get(value, 0))]
        if len(codes) == 1:
            mask: Bools = self.codes == codes[0]
            return mask
        table = np.zeros(len(self.values), dtype=np.bool_)
        table[codes] = True
        return table[self.codes]

    def compares(self, operator: str, bound: str) -> Bools | bool:
        """Return the mask of rows with a number beyond the bound (Gt or Lt)."""
        limit = int64(bound)
        if limit is None:
            return False
        if len(self.numbers) < len(self.values):
            read = [
                int64(value) if isinstance(value, str) else None
                for value in islice(self.values, len(self.numbers), None)
            ]
            self.numbers = np.concatenate([self.numbers, np.array([one or 0 for one in read], dtype=np.int64)])
            self.numeric = np.concatenate([self.numeric, np.array([one is not None for one in read], dtype=np.bool_)])
        beyond = self.numbers > limit if operator == "Gt" else self.numbers < limit
        return (beyond & self.numeric)[self.codes]


class NodeColumns:
    """The columns of all nodes; `nodes` is the capacity's own list, by row, None for a row without a node."""

    def __init__(self, nodes: Sequence[Node | None]) -> None:
        self._nodes = nodes
        self._pending: set[int] = set()
        self._version = 0
        self._stamps = np.zeros(0, dtype=np.int64)  # by row: the version that its node came with
        self._state = Column(lambda node: (node.unschedulable, node.ready, node.taints))
        self._name = Column(lambda node: node.name)
        self._labels: OrderedDict[str, Column] = OrderedDict()
        self._keys: set[str] = set()  # of all labels, and some more of nodes that are gone
        self._keys_version = -1
        self._keys_bound = SPARE

    def changed(self, rows: Iterable[int]) -> None:
        """Record that the nodes of rows have changed."""
        self._pending.update(rows)

    def verdicts(self, shape: Shape) -> tuple[list[str], Bools]:
        """Return, by row, why a shape's pods cannot use the node ("": they can), and the mask of usable rows.

        The reasons are those of `engine.resources.shape.exclusion`; rows without a node are `absent`.
        """
        self._catch_up()
        state = self._current(self._state)
        reasons = ["absent", *(_closed(shape.tolerations, *one) for one in islice(state.values, 1, None))]  # type: ignore[misc]
        healthy = np.array([not reason for reason in reasons], dtype=np.bool_)[state.codes]
        found, left = state.codes.copy(), state.codes != 0
        if shape.node_selector:
            left = self._narrow(left, self._selected(shape), found, len(reasons))
            reasons.append(NODE_SELECTOR)
        if shape.affinity is not None:
            left = self._narrow(left, self._affine(shape.affinity), found, len(reasons))
            reasons.append(NODE_AFFINITY)
        for terms in shape.volumes:
            left = self._narrow(left, self._affine(terms), found, len(reasons))
            reasons.append(VOLUMES)
        named: list[str] = np.array(reasons, dtype=np.object_)[found].tolist()
        return named, left & healthy

    def matching(self, term: SelectorTerm) -> Bools:
        """Return the mask of rows whose node matches a term; rows without a node never match."""
        self._catch_up()
        mask: Bools = self._term(term) & (self._current(self._name).codes != 0)
        return mask

    def label(self, key: str) -> Column | None:
        """Return the column of a label; None when no node has it."""
        self._catch_up()
        return self._label(key)

    def selected(self, shape: Shape, *, affinity: bool, taints: bool) -> Bools:
        """Return the rows with a node that a shape's constraints select; see `Eligibility.selected`."""
        self._catch_up()
        mask: Bools = self._current(self._name).codes != 0
        if affinity:
            mask &= self._selected(shape)
            if shape.affinity is not None:
                mask &= self._affine(shape.affinity)
        if taints:
            state = self._current(self._state)
            tolerated = [not _closed(shape.tolerations, False, True, one[2]) for one in islice(state.values, 1, None)]  # type: ignore[index]
            mask &= np.array([False, *tolerated], dtype=np.bool_)[state.codes]
        return mask

    @staticmethod
    def _narrow(left: Bools, holds: Bools, found: Rows, reason: int) -> Bools:
        found[left & ~holds] = reason
        return left & holds

    def _selected(self, shape: Shape) -> Bools:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for key, value in shape.node_selector:
            column = self._label(key)
            mask &= False if column is None else column.among((value,))
        return mask

    def _affine(self, terms: Iterable[SelectorTerm]) -> Bools:
        mask = np.zeros(len(self._nodes), dtype=np.bool_)
        for term in terms:
            mask |= self._term(term)
        return mask

    def _term(self, term: SelectorTerm) -> Bools:
        mask = np.full(len(self._nodes), bool(term.expressions or term.fields), dtype=np.bool_)
        for one in term.expressions:
            mask &= _holds(one, self._label(one.key))
        for one in term.fields:
            mask &= one.key == "metadata.name" and _holds(one, self._current(self._name))
        return mask

    def _label(self, key: str) -> Column | None:
        """Return the column of a label; None when no node has it: invented keys cost nothing and are not kept."""
        column = self._labels.get(key)
        if column is None:
            self._read_keys()
            if key not in self._keys:
                return None
            column = self._current(Column(lambda node: node.labels.get(key)))
            self._labels[key] = column
            kept = sum(len(one.values) for one in self._labels.values())
            while len(self._labels) > 1 and (len(self._labels) * len(self._nodes) > MAX_CELLS or kept > MAX_VALUES):
                kept -= len(self._labels.popitem(last=False)[1].values)
        self._labels.move_to_end(key)
        return self._current(column)

    def _read_keys(self) -> None:
        if self._keys_version == self._version:
            return
        for row in np.flatnonzero(self._stamps > self._keys_version).tolist():
            if (node := self._nodes[row]) is not None:
                self._keys.update(node.labels)
        if len(self._keys) > self._keys_bound:
            self._keys = {key for node in self._nodes if node is not None for key in node.labels}
            self._keys_bound = 2 * len(self._keys) + SPARE
        self._keys_version = self._version

    def _catch_up(self) -> None:
        """Stamp the rows that have changed since the last read."""
        if not self._pending:
            return
        self._version += 1
        if len(self._stamps) < len(self._nodes):
            more = np.zeros(len(self._nodes) - len(self._stamps), dtype=np.int64)
            self._stamps = np.concatenate([self._stamps, more])
        self._stamps[list(self._pending)] = self._version
        self._pending.clear()

    def _current(self, column: Column) -> Column:
        if column.version < self._version:
            column.take(self._nodes, np.flatnonzero(self._stamps > column.version))
            column.version = self._version
        return column


def _closed(tolerations: tuple[Toleration, ...], unschedulable: bool, ready: bool, taints: tuple[Taint, ...]) -> str:
    """Return why nodes in that state do not accept pods with those tolerations; "" when they do."""
    node = Node(
        name="",
        uid="",
        resource_version="",
        labels={},
        allocatable={},
        taints=taints,
        unschedulable=unschedulable,
        ready=ready,
        settled_at=0.0,
    )
    return exclusion(Shape(requests=(), tolerations=tolerations), node) or ""


def _holds(expression: SelectorRequirement, column: Column | None) -> Bools | bool:
    """Return the mask of rows where a requirement holds; `column` None: no node has the label."""
    match expression.operator:
        case "In":
            return column is not None and column.among(expression.values)
        case "NotIn":
            return column is None or ~column.among(expression.values)
        case "Exists":
            return column is not None and column.codes != 0
        case "DoesNotExist":
            return column is None or column.codes == 0
        case "Gt" | "Lt":
            if column is None or len(expression.values) != 1:
                return False
            return column.compares(expression.operator, expression.values[0])
        case _:
            return False
