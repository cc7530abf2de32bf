"""A namespace's quota takes a whole gang or none of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.objects import Quota
from engine.api.pod import PodSpec
from engine.capacity.quota import applies, shortfall
from tests.support.cluster_records import shape, spec


def quota(hard: dict[str, int], used: dict[str, int] | None = None, **more: object) -> Quota:
    fields: dict[str, object] = {"namespace": "default", "name": "team", "scopes": ()}
    return Quota(hard=hard, used=used or {}, **(fields | more))  # type: ignore[arg-type]


GPUS: PodSpec = spec(shape=shape(cpu=1000, gpu=8))


def test_a_quota_with_room_takes_the_gang() -> None:
    """Exactly enough is enough."""
    assert shortfall([quota({"requests.nvidia.com/gpu": 32, "pods": 4})], [(GPUS, 4)], {}) is None


def test_a_quota_that_is_too_small_says_what_is_missing() -> None:
    """The quota, what it leaves, what the gang needs."""
    why = shortfall([quota({"requests.nvidia.com/gpu": 32}, {"requests.nvidia.com/gpu": 16})], [(GPUS, 4)], {})
    assert why == "quota team leaves 16 of requests.nvidia.com/gpu, 4 pods need 32"


@pytest.mark.parametrize("name", ["pods", "count/pods", "cpu", "requests.cpu", "requests.nvidia.com/gpu"])
def test_every_name_of_a_pod_resource_counts(name: str) -> None:
    """Short and long names mean the same."""
    assert shortfall([quota({name: 1})], [(GPUS, 4)], {}) is not None


def test_limits_count_against_limit_quotas() -> None:
    """limits.* is compared with the effective limits."""
    limited = replace(GPUS, limits=(("memory", 1024),))
    assert shortfall([quota({"limits.memory": 4095})], [(limited, 4)], {}) is not None
    assert shortfall([quota({"limits.memory": 4096})], [(limited, 4)], {}) is None


def test_what_other_placed_gangs_will_still_use_is_counted() -> None:
    """Two placed gangs never share the same quota room."""
    assert shortfall([quota({"pods": 8})], [(GPUS, 4)], {"pods": 5}) is not None
    assert shortfall([quota({"pods": 8})], [(GPUS, 4)], {"pods": 4}) is None


def test_resources_that_the_gang_does_not_ask_for_do_not_matter() -> None:
    """A used-up quota of something else holds nobody."""
    assert shortfall([quota({"requests.storage": 0, "count/jobs.batch": 0})], [(GPUS, 4)], {}) is None


@pytest.mark.parametrize(
    ("scope", "matching", "other"),
    [
        (("BestEffort", "Exists", ()), spec(shape=shape(gpu=8)), GPUS),
        (("NotBestEffort", "Exists", ()), GPUS, spec(shape=shape(gpu=8))),
        (("Terminating", "Exists", ()), replace(GPUS, deadline=True), GPUS),
        (("NotTerminating", "Exists", ()), GPUS, replace(GPUS, deadline=True)),
        (("PriorityClass", "In", ("high",)), replace(GPUS, priority_class="high"), GPUS),
        (("PriorityClass", "NotIn", ("high",)), GPUS, replace(GPUS, priority_class="high")),
        (("PriorityClass", "Exists", ()), replace(GPUS, priority_class="any"), GPUS),
        (("PriorityClass", "DoesNotExist", ()), GPUS, replace(GPUS, priority_class="any")),
    ],
)
def test_a_scope_decides_whether_the_quota_applies(
    scope: tuple[str, str, tuple[str, ...]], matching: PodSpec, other: PodSpec
) -> None:
    """As in Kubernetes' own evaluator."""
    assert applies(quota({}, scopes=(scope,)), matching)
    assert not applies(quota({}, scopes=(scope,)), other)


def test_a_quota_that_can_never_take_the_gang_is_told_first() -> None:
    """The one that is full now comes first by name, and ending gangs would not help."""
    full = quota({"pods": 4}, {"pods": 4}, name="a")
    small = quota({"requests.nvidia.com/gpu": 24}, name="b")
    why = shortfall([full, small], [(GPUS, 4)], {})
    assert why == "quota b allows 24 of requests.nvidia.com/gpu in all, 4 pods need 32: it never has room"
