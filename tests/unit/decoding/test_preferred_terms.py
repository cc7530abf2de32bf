"""Preferred node affinity of pods and templates: what counts, how much of it, and what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api.pod import PodSpec, PreferredTerm, SelectorRequirement, SelectorTerm
from engine.decoding.pods import MAX_PREFERRED, pod
from engine.decoding.wire import ProjectionError

RACK = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
TERM = SelectorTerm((SelectorRequirement("rack", "In", ("r1",)),), ())


def read(preferred: Any) -> PodSpec:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    body = {"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": {"affinity": affinity}}
    return pod(json.dumps(body).encode()).spec


@pytest.mark.parametrize(
    ("preferred", "found"),
    [
        (None, ()),
        ([], ()),
        ([{"weight": 7, "preference": RACK}], (PreferredTerm(7, TERM),)),
        ([{"weight": 1_000, "preference": RACK}], (PreferredTerm(100, TERM),)),
        ([{"weight": 7, "preference": {}}, {"weight": 7, "preference": None}, {"weight": 7}], ()),
        ([{"weight": 0, "preference": RACK}, {"weight": -5, "preference": RACK}, {"preference": RACK}], ()),
        (
            [
                {
                    "weight": 2,
                    "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
                }
            ],
            (PreferredTerm(2, SelectorTerm((), (SelectorRequirement("metadata.name", "In", ("a",)),))),),
        ),
    ],
)
def test_terms_with_a_weight_and_a_requirement_count(preferred: Any, found: tuple[PreferredTerm, ...]) -> None:
    """The API server refuses pods with other weights; templates of other kinds may have them."""
    assert read(preferred).shape.preferred == found
    assert read(preferred).preferences == ()


def test_so_many_terms_count_and_the_rest_is_told() -> None:
    many = read([{"weight": 1, "preference": RACK}] * (MAX_PREFERRED + 1))
    assert len(many.shape.preferred) == MAX_PREFERRED
    assert many.preferences == ("node affinity beyond 100 terms",)
    assert read([{"weight": 1, "preference": RACK}] * MAX_PREFERRED).preferences == ()


@pytest.mark.parametrize(
    ("preferred", "path"),
    [
        ("x", "preferredDuringSchedulingIgnoredDuringExecution"),
        ([7], "preferredDuringSchedulingIgnoredDuringExecution[0]"),
        ([{"weight": "7"}], "preferredDuringSchedulingIgnoredDuringExecution[0].weight"),
        ([{"weight": 1, "preference": []}], "preferredDuringSchedulingIgnoredDuringExecution[0].preference"),
    ],
)
def test_what_is_no_list_of_terms_is_an_error_with_its_path(preferred: Any, path: str) -> None:
    with pytest.raises(ProjectionError) as raised:
        read(preferred)
    assert path in str(raised.value)
