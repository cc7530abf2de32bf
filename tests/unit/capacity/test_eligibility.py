"""What it costs to say which nodes take the pods of a class, and what is kept for it."""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsIndex, overload

import pytest

from engine.api.objects import Node, Taint
from engine.api.pod import SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.capacity import eligibility
from engine.capacity.eligibility import Eligibility
from engine.resources.shape import exclusion
from tests.support.cluster_records import node, shape

NODES = [
    node(
        f"h{number}", labels={"rack": f"r{number // 16}", "gen": str(number)}, taints=(Taint("gpu", "", "NoSchedule"),)
    )
    for number in range(512)
]


class Rows(list[Node | None]):
    """The ledger's list; counts how often a node is looked at."""

    looks = 0

    @overload
    def __getitem__(self, row: SupportsIndex, /) -> Node | None: ...
    @overload
    def __getitem__(self, row: slice, /) -> list[Node | None]: ...
    def __getitem__(self, row: SupportsIndex | slice, /) -> Node | list[Node | None] | None:
        self.looks += 1
        return super().__getitem__(row)


def ledger() -> tuple[Eligibility, Rows]:
    rows = Rows(NODES)
    found = Eligibility(rows)
    for row in range(len(rows)):
        found.changed(row)
    return found, rows


def asking(serial: int, key: str, operator: str, value: str) -> Shape:
    """A shape of a class of its own: 256 requirements."""
    asked = tuple(SelectorRequirement(key, operator, (value.format(number),)) for number in range(255))
    own = SelectorRequirement("rack", "NotIn", (f"serial-{serial}",))
    tolerated = (Toleration("gpu", "Exists", "", ""),)
    return replace(shape(), affinity=(SelectorTerm((*asked, own), ()),), tolerations=tolerated)


@pytest.mark.parametrize(
    ("key", "operator", "value", "takes"),
    [
        ("rack", "NotIn", "x{}", 512),
        ("rack", "In", "r0", 16),
        ("gen", "Gt", "-{}", 511),
        ("gen", "Lt", "4", 4),
        ("invented-{}", "DoesNotExist", "", 512),
    ],
)
def test_a_new_class_looks_at_no_node(key: str, operator: str, value: str, takes: int) -> None:
    """Ever new selectors with hundreds of requirements do not walk over all nodes: others wait meanwhile."""
    verdicts, rows = ledger()
    verdicts.of(asking(0, key, operator, value))
    rows.looks = 0
    for serial in range(1, 5):
        assert verdicts.of(asking(serial, key.format(serial), operator, value)).mask.sum() == takes
    assert rows.looks == 0


def test_a_changed_node_is_looked_at_alone() -> None:
    """A class that is asked for again looks at what has changed."""
    verdicts, rows = ledger()
    asked = asking(0, "rack", "In", "r0")
    verdicts.of(asked)
    rows[0] = None
    verdicts.changed(0)
    rows.looks = 0
    assert verdicts.of(asked).mask.sum() == 15
    assert rows.looks == 1


def test_labels_that_nobody_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept are the keys that selectors named lately, so many at most, and none that no node has."""
    monkeypatch.setattr(eligibility, "MAX_CELLS", 2 * len(NODES))
    verdicts, _ = ledger()
    for serial, key in enumerate(("rack", "invented", "gen", "invented too", "kubernetes.io/hostname", "gen")):
        verdicts.of(replace(shape(), node_selector=((key, str(serial)),)))
    assert list(verdicts._columns._labels) == ["kubernetes.io/hostname", "gen"]


def test_many_values_of_labels_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with another value on each node are not all kept."""
    monkeypatch.setattr(eligibility, "MAX_VALUES", 600)
    verdicts, _ = ledger()
    for key in ("gen", "rack", "kubernetes.io/hostname"):
        verdicts.of(replace(shape(), node_selector=((key, "x"),)))
    assert list(verdicts._columns._labels) == ["rack", "kubernetes.io/hostname"]


def test_values_of_nodes_that_are_gone_are_forgotten() -> None:
    """A label that changes with every heartbeat does not pile up."""
    verdicts, rows = ledger()
    for beat in range(40):
        for row, one in enumerate(NODES):
            rows[row] = replace(one, labels={"beat": f"{beat}-{row}", f"key-{beat}-{row}": ""})
            verdicts.changed(row)
        selector = (("beat", f"{beat}-7"), (f"key-{beat}-7", ""))
        found = verdicts.of(replace(asking(beat, "rack", "DoesNotExist", ""), node_selector=selector))
        assert found.mask.nonzero()[0].tolist() == [7]
    assert len(verdicts._columns._labels["beat"].values) <= 4 * len(NODES)
    assert len(verdicts._columns._keys) <= 4 * len(NODES)


def test_every_operator_on_every_value() -> None:
    """Numbers at the bounds of int64, what only looks like one, no value: as on each node alone."""
    bounds = (2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**25)
    values = ["", "0", "5", "+5", "-5", "05", "5.0", "1_0", "a", "\u0663", *map(str, bounds)]
    nodes: list[Node | None] = [replace(NODES[0], labels={"gen": value}, taints=()) for value in values]
    nodes += [replace(NODES[0], labels={}, taints=()), *NODES[:32]]
    verdicts = Eligibility(nodes)
    for row in range(len(nodes)):
        verdicts.changed(row)
    for operator in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"):
        for asked in ((), *((value,) for value in values), ("5", "a", "b")):
            term = SelectorTerm((SelectorRequirement("gen", operator, asked),), ())
            wanted = replace(shape(), affinity=(term,))
            expected = [exclusion(wanted, one) or "" for one in nodes if one is not None]
            assert verdicts.of(wanted).reasons == expected, term


def test_labels_that_were_not_asked_for_lately_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes changed several times since a label was named: each counts as it is now, in words and in numbers."""
    monkeypatch.setattr(eligibility, "FEW", 0)
    monkeypatch.setattr(eligibility, "SPARE", 0)
    nodes: list[Node | None] = [*NODES[:4]]
    verdicts = Eligibility(nodes)
    for row in range(4):
        verdicts.changed(row)
    for turn in range(20):
        for row in range(3):
            nodes[row] = replace(NODES[row], labels={"gen": f"{turn * 10 + row}", "rack": f"t{turn}"}, taints=())
            verdicts.changed(row)
            verdicts.of(replace(shape(), node_selector=(("rack", f"t{turn}"), ("turn", f"{turn}-{row}"))))
        later = SelectorTerm((SelectorRequirement("gen", "Gt", (f"{turn * 10}",)),), ())
        asked = replace(shape(), affinity=(later,))
        unchanged = "node affinity" if turn else "taint gpu"
        assert verdicts.of(asked).reasons == ["node affinity", "", "", unchanged]
