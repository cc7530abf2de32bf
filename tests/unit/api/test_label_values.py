"""Names of any length and alphabet as label values."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.api.placement import WorkloadRef
from engine.api.text import label_value

# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
VALID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@given(st.text(max_size=300))
@example("x" * 253)
@example("." * 70)
@example("")
@example("train\n")
def test_any_text_becomes_a_valid_label_value(text: str) -> None:
    """At most 63 characters of the right sort, at both ends a letter or digit."""
    assert VALID.fullmatch(label_value(text))


@given(st.from_regex(VALID, fullmatch=True))
def test_a_valid_value_stays_as_it_is(text: str) -> None:
    """So that a workload is selected by its own name."""
    assert label_value(text) == text


def test_long_names_that_begin_alike_have_different_labels() -> None:
    """The hash is of the whole name."""
    one, other = (label_value("train-" * 20 + end) for end in "ab")
    assert one != other
    assert one.rpartition("-")[0] == other.rpartition("-")[0]


@pytest.mark.parametrize("name", ["train", "a.b.c", "x" * 63])
def test_a_workload_is_selected_by_kind_and_name(name: str) -> None:
    """As the API writes them."""
    labels = WorkloadRef("batch/v1", "Job", name, "u").labels
    assert labels == {"topogate.dev/workload-kind": "Job", "topogate.dev/workload-name": name}
