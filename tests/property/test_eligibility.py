"""What is said of all nodes at once is what is said of each node alone, after any history."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.objects import Node, Taint
from engine.api.pod import SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.capacity import eligibility
from engine.capacity.eligibility import Eligibility
from engine.resources.shape import exclusion
from tests.support.cluster_records import node

NAMES = [f"h{number}" for number in range(6)]
KEYS = ["zone", "gen", "metadata.name", "", "absent", "\ud800"]
# Numbers at and beyond the bounds of int64, what only looks like one, and text that no node should have.
VALUES = ["", "a", "b", "h1", "0", "5", "+5", "-5", "05", "5.0", "1_0", "٣", "x" * 70, "\x00\udfff", *map(str, (
    2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**25,
))]  # fmt: skip
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule", ""]
TAINTS = ["gpu", "spot", "node.kubernetes.io/unschedulable", "node.kubernetes.io/disk-pressure", ""]

key, value = st.sampled_from(KEYS), st.sampled_from(VALUES)
labels = st.dictionaries(key, value, max_size=4)
taints = st.lists(st.builds(Taint, st.sampled_from(TAINTS), value, st.sampled_from(EFFECTS)), max_size=2).map(tuple)
there = st.builds(
    lambda labels, taints, unschedulable, ready: replace(
        node("any"), labels=labels, taints=taints, unschedulable=unschedulable, ready=ready
    ),
    labels,
    st.just(()) | taints,
    st.sampled_from([False, False, True]),
    st.sampled_from([True, True, False]),
)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like", ""])
values = st.lists(value, max_size=3).map(tuple)
expressions = st.lists(st.builds(SelectorRequirement, key, operators, values), max_size=3).map(tuple)
fields = st.lists(
    st.builds(
        SelectorRequirement,
        st.sampled_from(["metadata.name", "metadata.uid"]),
        operators,
        st.lists(st.sampled_from([*NAMES, "5"]), max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
tolerations = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(TAINTS),
        st.sampled_from(["Exists", "Equal", "", "Gt", "Lt", "Like"]),
        value,
        st.sampled_from(EFFECTS),
    ),
    max_size=3,
).map(tuple)
terms = st.lists(st.builds(SelectorTerm, expressions, fields), max_size=3).map(tuple)
shapes = st.builds(
    Shape,
    st.just((("pods", 1),)),
    st.dictionaries(key, value, max_size=2).map(lambda found: tuple(sorted(found.items()))),
    st.none() | terms,
    tolerations,
    volumes=st.just(()) | st.lists(terms, max_size=2).map(tuple),
)
step = st.one_of(
    st.tuples(st.just("set"), st.integers(0, len(NAMES) - 1), st.none() | there),
    st.tuples(st.just("churn"), st.integers(0, len(NAMES) - 1), st.none() | there),
    st.tuples(st.just("ask"), st.integers(0, 3), st.none()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(shapes, min_size=4, max_size=4), st.lists(step, max_size=24), st.sampled_from([0, 2, 32]))
def test_verdicts_are_those_of_each_node(
    asked: list[Shape], history: list[tuple[str, int, Node | None]], few: int
) -> None:
    """Nodes come, go and change between questions, whether they are looked at one by one or all at once."""
    nodes: list[Node | None] = []
    with (
        patch.object(eligibility, "FEW", few),
        patch.object(eligibility, "MAX_CLASSES", 3),
        patch.object(eligibility, "MAX_CELLS", 8),
        patch.object(eligibility, "MAX_VALUES", 6),
        patch.object(eligibility, "SPARE", 1),
    ):
        verdicts = Eligibility(nodes)
        for what, number, one in [*history, *(("ask", number, None) for number in range(4))]:
            if what != "ask":
                while number >= len(nodes):
                    nodes.append(None)
                    verdicts.changed(len(nodes) - 1)
                nodes[number] = one and replace(one, name=NAMES[number])
                for _ in range(1 if what == "set" else 300):  # so many that the log of changes is begun anew
                    verdicts.changed(number)
                continue
            expected = ["absent" if each is None else exclusion(asked[number], each) or "" for each in nodes]
            answer = verdicts.of(asked[number])
            assert answer.reasons == expected
            assert answer.mask.tolist() == [not reason for reason in expected]
