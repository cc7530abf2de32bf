from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.patch import Edits, PatchError, apply_patch

DOCUMENT = {"metadata": {"annotations": {"a/b": "1", "c~d": "2"}}, "items": [{"n": 1}, {"n": 2}], "none": None}

OPERATIONS: list[dict[str, Any]] = [
    {"op": "add", "path": "/metadata/annotations/topogate.dev~1x", "value": "y"},
    {"op": "replace", "path": "/metadata/annotations/a~1b", "value": "9"},
    {"op": "remove", "path": "/metadata/annotations/c~0d"},
    {"op": "add", "path": "/items/-", "value": {"n": 3}},
    {"op": "add", "path": "/items/0", "value": {"n": 0}},
    {"op": "remove", "path": "/items/1"},
    {"op": "replace", "path": "/items/0/n", "value": 7},
    {"op": "add", "path": "/none", "value": {"now": []}},
]


@pytest.mark.parametrize("count", range(len(OPERATIONS) + 1))
def test_it_does_what_a_full_implementation_does(count: int) -> None:
    """The operations that we write, one after the other, against the reference library."""
    before = copy.deepcopy(DOCUMENT)
    assert apply_patch(DOCUMENT, OPERATIONS[:count]) == jsonpatch.apply_patch(DOCUMENT, OPERATIONS[:count])
    assert before == DOCUMENT


KEYS = st.sampled_from(["a", "b/c", "d~e", "~1"])


@given(
    st.lists(st.tuples(st.sampled_from(["put", "drop", "append"]), st.lists(KEYS, min_size=1, max_size=3)), max_size=8)
)
def test_what_edits_write_gives_what_edits_hold(steps: list[tuple[str, list[str]]]) -> None:
    """The patch of any edits, played on the original, is the edited document."""
    original: dict[str, Any] = {"a": {"b/c": {"x": 1}}, "d~e": [1, 2]}
    edits = Edits(original)
    for number, (what, path) in enumerate(steps):
        try:
            if what == "put":
                edits.put(tuple(path), {"n": number})
            elif what == "drop":
                edits.drop(tuple(path))
            else:
                edits.append((*path, "list"), number)
        except (TypeError, AttributeError):
            break  # a path through a list: no caller does that
    assert apply_patch(original, edits.operations) == edits.document


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "remove", "path": "/absent"},
        {"op": "add", "path": "/absent/deeper", "value": 1},
        {"op": "add", "path": "/items/9", "value": 1},
        {"op": "add", "path": "/items/x", "value": 1},
        {"op": "remove", "path": "/items/-"},
        {"op": "remove", "path": "/none/a"},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "a", "value": {}},
        {"op": "add", "path": "/a"},
    ],
)
def test_what_does_not_fit_is_an_error(operation: dict[str, Any]) -> None:
    """As the API server, which answers such a patch with an error; never half of it."""
    with pytest.raises(PatchError, match="does not fit"):
        apply_patch(DOCUMENT, [operation])
