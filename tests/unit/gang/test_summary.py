"""The columns of tables about gangs."""

from __future__ import annotations

import pytest

from engine.gang.summary import gpus_of


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
    assert gpus_of(requests) == gpus
