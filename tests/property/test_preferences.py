"""The scores of all nodes at once are the kube-scheduler's numbers for each node alone, after any history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.objects import Node
from engine.api.pod import PreferredTerm, SelectorTerm, Shape
from engine.capacity.eligibility import Eligibility
from engine.capacity.preferences import NodePreferences
from engine.planner.sums import HostScores
from engine.resources.shape import exclusion, tolerates
from tests.property.test_eligibility import NAMES, expressions, fields, shapes, there

preferred = st.lists(
    st.builds(PreferredTerm, st.integers(1, 100), st.builds(SelectorTerm, expressions, fields)), max_size=3
).map(tuple)
asking = st.builds(lambda shape, terms: replace(shape, preferred=terms), shapes, preferred)
changes = st.lists(st.tuples(st.integers(0, len(NAMES) - 1), st.none() | there), max_size=12)


def score(shape: Shape, node: Node, eligible: list[Node]) -> int:
    """NodeAffinity and TaintToleration, each normalised over the eligible nodes, with the scheduler's weights."""

    def wanted(one: Node) -> int:
        only = Shape((), tolerations=shape.tolerations)
        clear = replace(one, taints=(), unschedulable=False, ready=True)
        return sum(
            each.weight for each in shape.preferred if exclusion(replace(only, affinity=(each.term,)), clear) is None
        )

    def unwanted(one: Node) -> int:
        soft = [taint for taint in one.taints if taint.effect == "PreferNoSchedule"]
        return sum(not tolerates(shape.tolerations, taint) for taint in soft)

    most, worst = max(map(wanted, eligible)), max(map(unwanted, eligible))
    affinity = wanted(node) * 100 // most if most else 0
    return 2 * affinity + 3 * (100 - (unwanted(node) * 100 // worst if worst else 0))


@settings(max_examples=200, deadline=None)
@given(st.lists(asking, min_size=1, max_size=2), changes, changes)
def test_scores_are_those_of_each_node(
    asked: list[Shape], first: list[tuple[int, Node | None]], then: list[tuple[int, Node | None]]
) -> None:
    """Nodes come, go and change between two questions; those that are not eligible count as the least wanted."""
    nodes: list[Node | None] = [None] * len(NAMES)
    eligibility = Eligibility(nodes)
    preferences = NodePreferences(nodes, eligibility)
    rows = np.arange(len(NAMES), dtype=np.intp)
    for row in rows.tolist():
        eligibility.changed(row)
    for history in (first, then):
        for number, one in history:
            nodes[number] = one and replace(one, name=NAMES[number])
            eligibility.changed(number)
            preferences.changed(number)
        for shape in asked:
            found = preferences.of({shape: 2}, rows)
            eligible = [one for one in nodes if one is not None and exclusion(shape, one) is None]
            if not eligible:
                assert found is None
                continue
            scores = {one.name: score(shape, one, eligible) for one in eligible}
            least = min(scores.values())
            expected = HostScores.of(2 * np.array([scores.get(name, least) for name in NAMES], dtype=np.int64))
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.values.tolist() == expected.values.tolist()
            again = preferences.of({shape: 2}, rows)
            assert (again is None) == (found is None)
