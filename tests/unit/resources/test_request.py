"""What effective requests mean in devices."""

from __future__ import annotations

import pytest

from engine.api.device import DeviceRequest
from engine.api.resources import MAX_UNITS
from engine.resources.names import CORE, FPGA, GPU, MEMORY, NVIDIA, RATIO, RDMA, SHARED
from engine.resources.request import device_request

GI = 2**30


@pytest.mark.parametrize(
    ("requests", "meant"),
    [
        ({NVIDIA: 2}, DeviceRequest(gpus=2, core=100, ratio=100, whole=True)),
        ({"amd.com/gpu": 1}, DeviceRequest(gpus=1, core=100, ratio=100, whole=True)),
        ({"gpu.intel.com/i915": 3}, DeviceRequest(gpus=3, core=100, ratio=100, whole=True)),
        ({GPU: 50}, DeviceRequest(gpus=1, core=50, ratio=50)),
        ({GPU: 300}, DeviceRequest(gpus=3, core=100, ratio=100, whole=True)),
        ({CORE: 50, RATIO: 60}, DeviceRequest(gpus=1, core=50, ratio=60)),
        ({CORE: 50, RATIO: 100}, DeviceRequest(gpus=1, core=50, ratio=100, whole=True)),
        ({CORE: 75, RATIO: 200}, DeviceRequest(gpus=2, core=38, ratio=100, whole=True)),
        ({RATIO: 30}, DeviceRequest(gpus=1, ratio=30)),
        ({MEMORY: 8 * GI}, DeviceRequest(gpus=1, memory=8 * GI)),
        ({CORE: 100, MEMORY: 80 * GI}, DeviceRequest(gpus=1, core=100, memory=80 * GI)),
        ({CORE: 300, MEMORY: 24 * GI}, DeviceRequest(gpus=3, core=100, memory=8 * GI)),
        ({SHARED: 4, MEMORY: 10}, DeviceRequest(gpus=4, memory=3)),
        ({SHARED: 2, CORE: 100, RATIO: 200}, DeviceRequest(gpus=2, core=50, ratio=100, whole=True)),
        ({SHARED: 1, RATIO: 100}, DeviceRequest(gpus=1, ratio=100, whole=True)),
        ({RDMA: 50}, DeviceRequest(rdma=50)),
        ({NVIDIA: 1, RDMA: 200, FPGA: 100}, DeviceRequest(gpus=1, core=100, ratio=100, whole=True, rdma=200, fpga=100)),
        ({NVIDIA: 0, "cpu": 4000, GPU: 20}, DeviceRequest(gpus=1, core=20, ratio=20)),
    ],
)
def test_means(requests: dict[str, int], meant: DeviceRequest) -> None:
    """Count, part of each GPU, and whether nobody else may be on it."""
    assert device_request(requests) == meant


@pytest.mark.parametrize(
    ("requests", "meant"),
    [
        ({CORE: 200, MEMORY: 160 * GI}, DeviceRequest(gpus=2, core=100, ratio=100, memory=80 * GI, whole=True)),
        ({CORE: 50, MEMORY: 40 * GI}, DeviceRequest(gpus=1, core=50, ratio=50, memory=40 * GI)),
        ({CORE: 20, MEMORY: 80 * GI}, DeviceRequest(gpus=1, core=20, ratio=20, memory=80 * GI)),
        ({CORE: 200, RATIO: 200}, DeviceRequest(gpus=2, core=100, ratio=100, whole=True)),
        ({NVIDIA: 2}, DeviceRequest(gpus=2, core=100, ratio=100, whole=True)),
        ({RDMA: 50}, DeviceRequest(rdma=50)),
    ],
)
def test_bytes_that_admission_wrote_for_percents_mean_these_too(requests: dict[str, int], meant: DeviceRequest) -> None:
    """Whole GPUs stay whole; the bytes count as well, so that nothing is hidden where they are more."""
    assert device_request(requests, translated=True) == meant


@pytest.mark.parametrize(
    "requests",
    [{}, {"cpu": 4000, "pods": 1}, {NVIDIA: 0}, {CORE: 50}, {GPU: 150}, {NVIDIA: 1, GPU: 50}, {NVIDIA: MAX_UNITS + 1}],
)
def test_means_no_device(requests: dict[str, int]) -> None:
    """Nothing is asked for, or what admission refuses: None, and never an exception."""
    assert device_request(requests) is None


def test_vendors_of_the_policy_are_whole_gpus() -> None:
    """A name that the policy adds counts whole GPUs, and nothing without it."""
    assert device_request({"example.com/npu": 2}) is None
    assert device_request({"example.com/npu": 2}, vendors=("example.com/npu",)) == DeviceRequest(
        gpus=2, core=100, ratio=100, whole=True
    )
