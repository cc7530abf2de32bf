"""The requests of pods whose resources are being changed in place; the rules are kube-scheduler's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.decoding.pods import pod

Json = dict[str, Any]
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
READY = {"type": "Ready", "status": "True"}


def requests(cpu: str | None = None, memory: str | None = None, **more: str) -> Json:
    """A block of resources."""
    found = {"cpu": cpu, "memory": memory, **more}
    return {"requests": {name: amount for name, amount in found.items() if amount is not None}}


def container(name: str, resources: Json, **more: Any) -> Json:
    return {"name": name, "image": "example.com/a:1", "resources": resources, **more}


def has(name: str, allocated: Json, actual: Json | None = None) -> Json:
    """The status of a container: what is set aside for it, and what it has."""
    return {"name": name, "resources": actual or allocated, "allocatedResources": allocated["requests"]}


def of(spec: Json, *conditions: Json, **status: Any) -> dict[str, int]:
    """The requests of a bound pod."""
    body = {
        "metadata": {"namespace": "a", "name": "p", "uid": "u"},
        "spec": {"nodeName": "host-0", **spec},
        "status": {"phase": "Running", "conditions": [READY, *conditions], **status},
    }
    found, parsed = pod(json.dumps(body).encode()), pod(body)
    assert found == parsed
    return dict(found.spec.shape.requests)


@pytest.mark.parametrize(
    ("wanted", "allocated", "actual", "condition", "counts"),
    [
        ("4", "4", "2", IN_PROGRESS, 4000),
        ("1", "1", "2", IN_PROGRESS, 2000),
        ("1", "2", "2", DEFERRED, 2000),
        ("8", "2", "2", DEFERRED, 8000),
        ("100", "2", "2", INFEASIBLE, 2000),
        ("100", "2", "3", INFEASIBLE, 3000),
        ("100", "2", "2", READY, 100_000),
    ],
    ids=["growing", "shrinking", "will shrink", "will grow", "never", "never, and shrank", "nothing changes"],
)
def test_the_largest_amount_counts_unless_the_node_can_never_give_it(
    wanted: str, allocated: str, actual: str, condition: Json, counts: int
) -> None:
    found = of(
        {"containers": [container("a", requests(wanted, "1Gi"))]},
        condition,
        containerStatuses=[has("a", requests(allocated, "1Gi"), requests(actual, "1Gi"))],
    )
    assert found["cpu"] == counts
    assert found["memory"] == 1024  # MiB


@pytest.mark.parametrize(("seen", "counts"), [(1, 8000), (2, 2000)], ids=["not yet", "seen"])
def test_a_change_that_the_kubelet_has_not_seen_counts_beside_what_the_containers_have(seen: int, counts: int) -> None:
    """Between the user's request and the first condition; its generation says which spec a status is about."""
    status = {
        "phase": "Running",
        "observedGeneration": seen,
        "containerStatuses": [has("a", requests("8" if seen == 1 else "2"))],
    }
    spec = {"nodeName": "host-0", "containers": [container("a", requests("2"))]}
    meta = {"namespace": "a", "name": "p", "uid": "u", "generation": 2}
    found = pod({"metadata": meta, "spec": spec, "status": status})
    assert dict(found.spec.shape.requests)["cpu"] == counts


def test_a_container_without_a_request_by_now_has_none_although_it_has_a_limit() -> None:
    """A limit without a request would be one."""
    asked = {**requests("100"), "limits": {"cpu": "100"}}
    found = of(
        {"containers": [container("a", asked)]},
        INFEASIBLE,
        containerStatuses=[{"name": "a", "resources": {}, "allocatedResources": {}}],
    )
    assert found.get("cpu", 0) == 0


def test_containers_are_found_by_name_and_init_containers_count_as_their_spec_says() -> None:
    """The statuses come in any order; only init containers that run on beside the others can be changed."""
    spec = {
        "containers": [container("a", requests("1")), container("b", requests("50"))],
        "initContainers": [
            container("side", requests("60"), restartPolicy="Always"),
            container("first", requests("7")),
        ],
    }
    found = of(
        spec,
        INFEASIBLE,
        containerStatuses=[has("b", requests("2")), has("a", requests("1"))],
        initContainerStatuses=[has("first", requests("70")), has("side", requests("3"))],
    )
    assert found["cpu"] == 10_000  # the side container and the first one together


def test_a_pod_with_resources_of_its_own_has_them_in_its_own_status() -> None:
    spec = {"containers": [container("a", requests("1"))], "resources": requests("100", "8Gi")}
    one = {"containerStatuses": [has("a", requests("1"))]}
    two = {"resources": requests("6", "4Gi"), "allocatedResources": {"cpu": "6", "memory": "4Gi"}}
    assert of(spec, INFEASIBLE, **one, **two)["cpu"] == 6000
    assert of(spec, INFEASIBLE, **one)["cpu"] == 100_000


def test_other_resources_stay_as_they_are() -> None:
    """A GPU cannot be changed; a status that names one has it from the spec."""
    gpu = {"nvidia.com/gpu": "4"}
    found = of(
        {"containers": [container("a", requests("1", **gpu))]},
        IN_PROGRESS,
        containerStatuses=[has("a", requests("2", **{"nvidia.com/gpu": "8"}))],
    )
    assert found["cpu"] == 2000
    assert found["nvidia.com/gpu"] == of({"containers": [container("a", requests(**gpu))]})["nvidia.com/gpu"]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"containerStatuses": None},
        {"containerStatuses": [{"name": "a"}]},
        {"containerStatuses": [{"name": "b", "resources": requests("5")}]},
        {"containerStatuses": [{"name": "a", "resources": requests("many")}]},
        {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": []}}}]},
        {"containerStatuses": [{"name": "a", "resources": "none"}]},
        {"containerStatuses": [{"name": "a", "resources": {"requests": {"cpu": None}}, "allocatedResources": None}]},
    ],
    ids=["none", "null", "no amounts", "another name", "no number", "a list", "text", "null amounts"],
)
def test_without_readable_amounts_the_spec_counts(status: Json) -> None:
    """The pod is still counted: a pod that is left out would make room that is not there."""
    assert of({"containers": [container("a", requests("3"))]}, DEFERRED, **status)["cpu"] == 3000
