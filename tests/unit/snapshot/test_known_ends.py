"""When what runs ends at the latest, as far as the object declares it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.snapshot.known_ends import known_end

START = "2026-01-01T00:00:00Z"
AT = 1_767_225_600.0


def workload(spec: object, start: object = START) -> dict[str, Any]:
    return {"metadata": {"uid": "u"}, "spec": spec, "status": {"startTime": start}}


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (workload({"activeDeadlineSeconds": 60}), AT + 60),
        (workload({"runPolicy": {"activeDeadlineSeconds": 60}}), AT + 60),
        (workload({"runPolicy": {"activeDeadlineSeconds": 60}, "activeDeadlineSeconds": 30}), AT + 30),
        (workload({"activeDeadlineSeconds": 0}), AT),
        (workload({"activeDeadlineSeconds": None}), None),
        (workload({"activeDeadlineSeconds": 60}, None), None),  # suspended
        (workload({"activeDeadlineSeconds": -1}), None),
        (workload({"activeDeadlineSeconds": 2**62}), None),
        (workload({"activeDeadlineSeconds": "60"}), None),
        (workload({"activeDeadlineSeconds": 60}, "soon"), None),
        (workload(["activeDeadlineSeconds"]), None),
        ({"spec": {"activeDeadlineSeconds": 60}, "status": {"startTime": START}}, None),  # no uid
        ({}, None),
    ],
)
def test_a_declared_deadline_counts_from_the_start(found: dict[str, Any], end: float | None) -> None:
    """The shortest one, from bytes as from a file; nothing else says when an object ends."""
    expected = None if end is None else ("u", end)
    assert known_end(found) == expected
    assert known_end(json.dumps(found).encode()) == expected


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(spec=ANY, deadline=ANY, start=ANY)
def test_no_object_makes_it_fail(spec: Any, deadline: Any, start: Any) -> None:
    """Whatever a custom resource holds in these fields."""
    for found in (workload(spec, start), workload({"activeDeadlineSeconds": deadline, "runPolicy": spec}, start)):
        known = known_end(found)
        assert known is None or known[0] == "u"
