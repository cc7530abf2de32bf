"""What is refused of GPU requests: the sentences that people read, at the paths that they wrote."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.field import FieldError
from engine.resources.containers import PodResources, pod_resources
from engine.resources.names import CORE, FPGA, GPU, MEMORY, NVIDIA, RATIO, RDMA, SHARED
from engine.resources.validation import device_errors
from tests.support.golden import golden
from tests.support.translations import pod_of

AMD = "amd.com/gpu"

REFUSED: dict[str, dict[str, object]] = {
    "compute alone": {CORE: "50"},
    "compute with gpu.shared, no memory": {CORE: "50", SHARED: "1"},
    "gpu.shared alone": {SHARED: "2"},
    "memory twice": {MEMORY: "8Gi", RATIO: "50"},
    "compute, memory twice, gpu.shared": {CORE: "50", MEMORY: "8Gi", RATIO: "50", SHARED: "1"},
    "nvidia and koordinator.sh/gpu": {NVIDIA: "1", GPU: "100"},
    "nvidia and compute": {NVIDIA: "1", CORE: "50"},
    "nvidia and memory": {NVIDIA: "1", MEMORY: "8Gi"},
    "nvidia and every dimension": {NVIDIA: "2", GPU: "200", CORE: "200", MEMORY: "32Gi", RATIO: "200"},
    "two vendors": {NVIDIA: "1", AMD: "1"},
    "amd and percent": {AMD: "1", GPU: "50"},
    "two drivers of one vendor": {"gpu.intel.com/i915": "1", "gpu.intel.com/xe": "1"},
    "koordinator.sh/gpu and compute": {GPU: "100", CORE: "30"},
    "koordinator.sh/gpu and gpu.shared": {GPU: "100", SHARED: "1"},
    "150 percent": {GPU: "150"},
    "101 percent of memory": {RATIO: "101"},
    "150 percent of compute with bytes": {CORE: "150", MEMORY: "24Gi"},
    "150 percent of compute and of memory": {CORE: "150", RATIO: "250"},
    "compute of two GPUs, memory of one": {CORE: "200", RATIO: "100"},
    "compute that gpu.shared does not divide": {CORE: "101", RATIO: "100", SHARED: "2"},
    "memory that gpu.shared does not divide": {RATIO: "101", SHARED: "2"},
    "more than the shared GPUs have": {RATIO: "300", SHARED: "2"},
    "half a GPU as a fraction": {NVIDIA: "0.5"},
    "half a GPU in thousandths": {NVIDIA: "500m"},
    "a fraction of percent": {GPU: "500m"},
    "a fraction of a byte": {MEMORY: "1500m"},
    "a fraction as a number": {RDMA: 0.5},
    "negative": {GPU: "-1"},
    "negative nvidia": {NVIDIA: "-1"},
    "zero percent": {GPU: "0"},
    "zero compute beside memory": {CORE: "0", RATIO: "50"},
    "zero memory": {CORE: "50", RATIO: "0"},
    "zero gpu.shared": {SHARED: "0", RATIO: "50"},
    "gibi percent": {GPU: "1Gi"},
    "a million GPUs": {NVIDIA: "1e6"},
    "shared by a million GPUs": {SHARED: "1M", RATIO: "1M"},
    "no host has it": {MEMORY: "1Ei"},
    "beyond counting": {NVIDIA: "1e999"},
    "empty": {GPU: ""},
    "a word": {GPU: "half"},
    "control characters": {GPU: "5\x00\n0\u202e"},
    "too long": {GPU: "1" * 70},
    "a list": {GPU: ["50"]},
    "true": {GPU: True},
    "null": {GPU: None},
    "rdma 150": {RDMA: "150"},
    "fpga 0": {FPGA: "0"},
    "gpu and rdma, both wrong": {GPU: "150", RDMA: "150"},
    "wrong in itself and together": {CORE: "500m"},
}


def errors(pod: PodResources) -> tuple[FieldError, ...]:
    return device_errors(pod, path="spec")


def lines(found: tuple[FieldError, ...]) -> str:
    return "\n".join(
        f"* {one.field}: {one.kind}{'' if one.value is None else f': {one.value}'}: {one.message}" for one in found
    )


def test_every_refusal_says_what_is_wrong_and_what_to_do() -> None:
    """Each refused combination and value has its sentence, kept as people read it."""
    told = {name: lines(errors(pod_of(limits))) for name, limits in REFUSED.items()}
    golden("gpu_requests", told)
    assert all(told.values())


def test_each_refusal_is_ours_and_in_one_line() -> None:
    """The reason code is GPURequestInvalid; nothing of what the user sent can break a line or hide a word."""
    for limits in REFUSED.values():
        for error in errors(pod_of(limits)):
            assert error.reason == "GPURequestInvalid"
            assert f"{error.value}{error.message}".isprintable()
            assert len(error.value or "") <= 63


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"cpu": "500m", "memory": "1.5Gi"},
        {NVIDIA: "8"},
        {NVIDIA: 8},
        {NVIDIA: "0"},
        {NVIDIA: "0", GPU: "50"},
        {AMD: "2"},
        {GPU: "1"},
        {GPU: "1e2"},
        {GPU: "1k"},
        {GPU: "100000m"},
        {RATIO: "50"},
        {RATIO: "800"},
        {MEMORY: "8Gi"},
        {MEMORY: "0.5Gi"},
        {CORE: "50", RATIO: "60"},
        {CORE: "60", MEMORY: "4Gi"},
        {CORE: "50", RATIO: "200"},
        {CORE: "300", MEMORY: "24Gi"},
        {SHARED: "4", MEMORY: "160Gi"},
        {SHARED: "2", RATIO: "100"},
        {SHARED: "2", CORE: "50", MEMORY: "8Gi"},
        {SHARED: "2", CORE: "100", RATIO: "200"},
        {RDMA: "50", FPGA: "200", NVIDIA: "1"},
        {"nvidia.com/mig-1g.5gb": "1", "huawei.com/npu-core": "10", "": 1},
    ],
    ids=str,
)
def test_accepts_what_goes_together(limits: dict[str, object]) -> None:
    """Every valid combination passes, in any writing of its quantities."""
    assert errors(pod_of(limits)) == ()


def test_tells_all_errors_at_once_where_they_stand() -> None:
    """All containers, init containers among them, under the path of the template."""
    pod = pod_of({GPU: "150"}, {"cpu": "1"}, {RDMA: "0"}, init=({CORE: "50"},))
    found = device_errors(pod, path="spec.template.spec")
    assert [one.field for one in found] == [
        f"spec.template.spec.containers[0].resources.limits[{GPU}]",
        f"spec.template.spec.containers[2].resources.limits[{RDMA}]",
        f"spec.template.spec.initContainers[0].resources.limits[{CORE}]",
    ]


def only(requests: dict[str, Any] | None, limits: dict[str, Any] | None) -> tuple[FieldError, ...]:
    resources = {"requests": requests, "limits": limits}
    return errors(pod_resources({"containers": [{"name": "main", "resources": resources}]}))


def test_requests_must_equal_limits() -> None:
    """Unequal sides are refused at the request; the same amount in another writing is the same amount."""
    assert lines(only({NVIDIA: "1"}, {NVIDIA: "2"})) == (
        "* spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: 1: must equal the limit (2): "
        "devices are not overcommitted; make them equal, or set only one"
    )
    assert only({GPU: "1k"}, {GPU: 1000}) == ()


def test_either_side_alone_is_enough() -> None:
    """Only requests, or only limits: the errors stand at the side that is there, once."""
    assert [one.field for one in only({GPU: "150"}, None)] == [
        "spec.containers[0].resources.requests[koordinator.sh/gpu]"
    ]
    assert [one.field for one in only(None, {GPU: "150"})] == [
        "spec.containers[0].resources.limits[koordinator.sh/gpu]"
    ]
    assert [one.field for one in only({GPU: "0.5"}, {GPU: "0.5"})] == [
        "spec.containers[0].resources.limits[koordinator.sh/gpu]"
    ]
    assert len(only({GPU: "0.5"}, {GPU: "0.7"})) == 2


TOGETHER = {
    "a GPU and a half": pod_of({GPU: "100"}, {GPU: "50"}),
    "nvidia here, percent there": pod_of({NVIDIA: "1"}, {GPU: "50"}),
    "one vendor here, one there": pod_of({NVIDIA: "1"}, {AMD: "1"}),
    "bytes here, percent there": pod_of({MEMORY: "8Gi"}, {RATIO: "50"}),
    "percent at first, dimensions then": pod_of({CORE: "50", RATIO: "50"}, init=({GPU: "100"},)),
    "rdma in parts": pod_of({RDMA: "50"}, {RDMA: "60"}),
}


def test_the_pod_as_a_whole_is_checked_too() -> None:
    """What each container may ask for, but not all of them together, is refused at the last one that asks for it."""
    golden("gpu_requests_together", {name: lines(errors(pod)) for name, pod in TOGETHER.items()})
    assert all(len(errors(pod)) == 1 for pod in TOGETHER.values())


@pytest.mark.parametrize(
    "pod",
    [
        pod_of({GPU: "50"}, {GPU: "50"}),
        pod_of({GPU: "50"}, init=({GPU: "100"},)),
        pod_of({NVIDIA: "1"}, {NVIDIA: "2"}, {"cpu": "1"}),
        pod_of({GPU: "50"}, {RDMA: "100"}),
    ],
)
def test_containers_that_go_together(pod: PodResources) -> None:
    """Sums of containers, and the larger one of init containers, are no contradiction of their own."""
    assert errors(pod) == ()


def test_a_wrong_container_is_told_once() -> None:
    """The pod's total says nothing more about devices of which a container is wrong already."""
    assert len(errors(pod_of({GPU: "150"}, {GPU: "50"}))) == 1
    assert len(errors(pod_of({GPU: "150"}, {GPU: "50", RDMA: "50"}, {RDMA: "60"}))) == 2


def test_the_policy_adds_vendors() -> None:
    """A vendor's name that the policy adds counts whole GPUs; it never takes the place of a name that is known."""
    pod = pod_of({"example.com/accelerator": "1", NVIDIA: "1"})
    assert errors(pod) == ()
    assert len(device_errors(pod, path="spec", vendors=("example.com/accelerator",))) == 1
    assert device_errors(pod_of({"cpu": "500m", GPU: "50"}), path="spec", vendors=("cpu", GPU)) == ()
