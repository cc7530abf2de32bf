"""A namespace's quota takes a whole gang or none of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.objects import Quota
from engine.api.pod import PodSpec
from engine.capacity.quota import applies, lacking, minimum_shortfall, shortfall
from tests.support.cluster_records import shape, spec


def quota(hard: dict[str, int], used: dict[str, int] | None = None, **more: object) -> Quota:
    fields: dict[str, object] = {"namespace": "default", "name": "team", "scopes": ()}
    return Quota(hard=hard, used=used or {}, **(fields | more))  # type: ignore[arg-type]


GPUS: PodSpec = spec(shape=shape(cpu=1000, gpu=8))


def test_a_quota_with_room_takes_the_gang() -> None:
    """Exactly enough is enough."""
    assert shortfall([quota({"requests.nvidia.com/gpu": 32, "pods": 4})], [(GPUS, 4)], []) is None


def test_a_quota_that_is_too_small_says_what_is_missing() -> None:
    """The quota, what it leaves, what the gang needs."""
    why = shortfall([quota({"requests.nvidia.com/gpu": 32}, {"requests.nvidia.com/gpu": 16})], [(GPUS, 4)], [])
    assert why == "quota team leaves 16 of requests.nvidia.com/gpu, 4 pods need 32"


@pytest.mark.parametrize("name", ["pods", "count/pods", "cpu", "requests.cpu", "requests.nvidia.com/gpu"])
def test_every_name_of_a_pod_resource_counts(name: str) -> None:
    """Short and long names mean the same."""
    assert shortfall([quota({name: 1})], [(GPUS, 4)], []) is not None


def test_limits_count_against_limit_quotas() -> None:
    """limits.* is compared with the effective limits."""
    limited = replace(GPUS, limits=(("memory", 1024),))
    assert shortfall([quota({"limits.memory": 4095})], [(limited, 4)], []) is not None
    assert shortfall([quota({"limits.memory": 4096})], [(limited, 4)], []) is None


def test_a_quota_of_huge_pages_counts_under_both_of_its_names() -> None:
    huge = replace(GPUS, shape=replace(GPUS.shape, requests=(*GPUS.shape.requests, ("hugepages-2Mi", 1024))))
    for name in ("hugepages-2Mi", "requests.hugepages-2Mi"):
        assert shortfall([quota({name: 4095})], [(huge, 4)], []) is not None
        assert shortfall([quota({name: 4096})], [(huge, 4)], []) is None


def test_pods_to_come_of_other_gangs_count_in_the_quotas_that_apply_to_them() -> None:
    high, low = replace(GPUS, priority_class="high"), replace(GPUS, priority_class="low")
    of_high = quota({"pods": 4}, scopes=(("PriorityClass", "In", ("high",)),))
    assert shortfall([of_high], [(high, 4)], [(low, 4)]) is None
    assert shortfall([of_high], [(high, 4)], [(high, 1)]) is not None
    assert lacking([of_high], [(high, 4, 4)], 4, [(low, 4)]) == []
    assert lacking([of_high], [(high, 4, 4)], 4, [(high, 1)]) == [(of_high, "pods", 1)]


def test_a_quota_of_classes_of_volumes_counts_no_pod() -> None:
    of_volumes = quota({"pods": 0}, scopes=(("VolumeAttributesClass", "Exists", ()),))
    assert shortfall([of_volumes], [(GPUS, 4)], []) is None


def test_what_other_placed_gangs_will_still_use_is_counted() -> None:
    """Two placed gangs never share the same quota room."""
    assert shortfall([quota({"pods": 8})], [(GPUS, 4)], [(GPUS, 5)]) is not None
    assert shortfall([quota({"pods": 8})], [(GPUS, 4)], [(GPUS, 4)]) is None


def test_resources_that_the_gang_does_not_ask_for_do_not_matter() -> None:
    """A used-up quota of something else holds nobody."""
    assert shortfall([quota({"requests.storage": 0, "count/jobs.batch": 0})], [(GPUS, 4)], []) is None


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
        (("CrossNamespacePodAffinity", "Exists", ()), replace(GPUS, cross_namespace=True), GPUS),
    ],
)
def test_a_scope_decides_whether_the_quota_applies(
    scope: tuple[str, str, tuple[str, ...]], matching: PodSpec, other: PodSpec
) -> None:
    """As in Kubernetes' own evaluator."""
    assert applies(quota({}, scopes=(scope,)), matching)
    assert not applies(quota({}, scopes=(scope,)), other)


AMOUNTS = st.integers(0, 12)
TEMPLATES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(1, 3))


@given(templates=st.lists(TEMPLATES, min_size=1, max_size=3), hard=st.tuples(AMOUNTS, AMOUNTS, AMOUNTS), data=st.data())
def test_a_minimum_that_is_refused_fits_with_no_choice_of_its_pods(
    templates: list[tuple[int, int, int, int]], hard: tuple[int, int, int], data: st.DataObject
) -> None:
    """Each template: CPUs and GPUs of a pod, fewest and most pods. With one resource that is exact."""
    of = quota({"pods": hard[0], "requests.cpu": hard[1], "requests.nvidia.com/gpu": hard[2]})
    if data.draw(st.booleans(), label="one resource"):
        of = quota({"requests.cpu": hard[1]})
    specs = [spec(shape=shape(cpu=cpu, gpu=gpu)) for cpu, gpu, _, _ in templates]
    count = data.draw(st.integers(sum(one[2] for one in templates), sum(one[3] for one in templates)), label="count")
    wanted = [(one, least, most) for one, (_, _, least, most) in zip(specs, templates, strict=True)]
    choices = [
        numbers
        for numbers in product(*(range(least, most + 1) for _, least, most in wanted))
        if sum(numbers) == count and shortfall([of], list(zip(specs, numbers, strict=True)), []) is None
    ]
    refused = minimum_shortfall([of], wanted, count, [])
    assert refused is None or not choices
    if len(of.hard) == 1:
        assert (refused is None) is bool(choices)


def test_a_minimum_that_the_quota_does_not_admit_is_told_with_what_it_needs() -> None:
    """As for all pods: what is left, or that it never has room; pods that come and go count."""
    wanted = [(GPUS, 1, 4), (GPUS, 1, 4)]
    assert minimum_shortfall([quota({"pods": 6})], wanted, 6, []) is None
    said = minimum_shortfall([quota({"pods": 6}, {"pods": 1})], wanted, 6, [])
    assert said == "quota team leaves 5 of pods, 6 pods need 6 at least"
    said = minimum_shortfall([quota({"requests.nvidia.com/gpu": 40})], wanted, 6, [])
    assert said == "quota team allows 40 of requests.nvidia.com/gpu in all, 6 pods need 48 at least: it never has room"
    assert minimum_shortfall([quota({"pods": 7})], wanted, 6, [(GPUS, 2)]) is not None
    assert minimum_shortfall([quota({"pods": 7})], wanted, 6, [(GPUS, 2)], [GPUS]) is None


def test_a_quota_that_can_never_take_the_gang_is_told_first() -> None:
    """The one that is full now comes first by name, and ending gangs would not help."""
    full = quota({"pods": 4}, {"pods": 4}, name="a")
    small = quota({"requests.nvidia.com/gpu": 24}, name="b")
    why = shortfall([full, small], [(GPUS, 4)], [])
    assert why == "quota b allows 24 of requests.nvidia.com/gpu in all, 4 pods need 32: it never has room"
