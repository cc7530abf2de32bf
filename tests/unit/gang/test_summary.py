"""The columns of tables about gangs."""

from __future__ import annotations

import pytest

from engine.gang.summary import gpus_of
from engine.resources.request import device_request


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ((("nvidia.com/gpu", 8),), 8),
        ((("cpu", 8000), ("memory", 1)), 0),
        ((("koordinator.sh/gpu-core", 150),), 2),
        ((("koordinator.sh/gpu-core", 50), ("koordinator.sh/gpu-memory-ratio", 50)), 1),
    ],
)
def test_gpus_are_counted_whole(requests: tuple[tuple[str, int], ...], gpus: int) -> None:
    """A part of a GPU counts as one."""
    assert gpus_of(requests, device_request(dict(requests))) == gpus
    assert gpus_of(requests, None) == gpus


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ((("koordinator.sh/gpu-memory-ratio", 30),), 1),
        ((("koordinator.sh/gpu-memory-ratio", 200),), 2),
        ((("koordinator.sh/gpu-memory", 8 << 30),), 1),
        ((("koordinator.sh/gpu-memory-ratio", 100), ("koordinator.sh/gpu.shared", 2)), 2),
        ((("koordinator.sh/rdma", 100),), 0),
        ((("example.com/gpu", 2), ("koordinator.sh/rdma", 100)), 2),
    ],
)
def test_gpus_are_counted_by_whatever_is_requested_of_them(requests: tuple[tuple[str, int], ...], gpus: int) -> None:
    """Memory alone is requested of a GPU too, and a share may span several."""
    assert gpus_of(requests, device_request(dict(requests))) == gpus
