"""PodGroups of scheduler-plugins, as their users write them and as they should not."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decoding.objects import pod_group_object
from engine.decoding.wire import ProjectionError


def raw(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g", "namespace": "ml", **metadata}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "minimum", "timeout"),
    [
        ({"minMember": 4}, 4, None),
        ({"minMember": 4, "scheduleTimeoutSeconds": 600, "minResources": {"cpu": "3"}}, 4, 600.0),
        ({"minMember": 1, "scheduleTimeoutSeconds": 1}, 1, 10.0),  # no shorter time-out is kept
        ({"minMember": 1, "scheduleTimeoutSeconds": 0}, 1, None),
        ({"minMember": 1, "scheduleTimeoutSeconds": "soon"}, 1, None),
    ],
)
def test_a_pod_group_says_how_many_start_together_and_how_long_they_wait(
    spec: Any, minimum: int, timeout: float | None
) -> None:
    found = pod_group_object(raw(spec))
    assert (found.namespace, found.name, found.minimum, found.timeout, found.problem) == (
        "ml",
        "g",
        minimum,
        timeout,
        "",
    )


@pytest.mark.parametrize("least", [0, -1, 1.5, "4", True, None, [], {"of": 4}, 10**12])
def test_a_minimum_that_is_no_number_of_pods_is_a_problem_and_no_fault(least: Any) -> None:
    found = pod_group_object(raw({"minMember": least}))
    assert found.minimum == 0
    assert found.problem.startswith("spec.minMember: must be a whole number")


@pytest.mark.parametrize("spec", [None, "x", 4, []])
def test_a_spec_that_is_no_object_is_the_same_problem(spec: Any) -> None:
    assert pod_group_object(raw(spec)).problem.startswith("spec.minMember: ")


@pytest.mark.parametrize("source", [b"4", b"{}", raw({}, name=None), raw({}, namespace=None)])
def test_what_has_no_name_is_no_object(source: Any) -> None:
    with pytest.raises(ProjectionError):
        pod_group_object(source)
