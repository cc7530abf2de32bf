"""What pods take of each other's GPUs, as units that add up."""

from __future__ import annotations

import pytest

from engine.api.device import DeviceRequest
from engine.api.pod import Shape
from engine.devices.units import unit_of, units_taken
from tests.support.gpu_hosts import GIB, asking, share


def request_of(shape: Shape) -> DeviceRequest:
    assert shape.devices is not None
    return shape.devices


@pytest.mark.parametrize(
    ("shape", "unit", "taken"),
    [
        pytest.param(share(50), share(50), 1, id="one of its own"),
        pytest.param(asking(gpu=2), share(50), 4, id="of a whole GPU all"),
        pytest.param(asking(gpu=2), share(100), 2, id="a whole GPU has two names"),
        pytest.param(share(70), share(30), 2, id="a multiple"),
        pytest.param(share(30), share(70), 0, id="a smaller part may fit beside"),
        pytest.param(share(50), asking(gpu=1), 0, id="a part joins parts first"),
        pytest.param(asking(core=20, ratio=60), share(30), 0, id="less compute, more memory"),
        pytest.param(asking(memory=8 * GIB), share(1), 0, id="bytes of a GPU of unknown size"),
        pytest.param(asking(memory=8 * GIB), asking(memory=2 * GIB), 0, id="bytes, which round up"),
        pytest.param(asking(core=40, memory=8 * GIB), asking(core=40, memory=8 * GIB), 1, id="the same bytes"),
    ],
)
def test_a_pod_takes_at_least_so_many_units(shape: Shape, unit: Shape, taken: int) -> None:
    """Of GPUs that have two units each."""
    assert units_taken(request_of(shape), unit_of(request_of(unit)), whole=2) == taken


def test_the_unit_of_a_request_is_its_part_of_one_gpu_and_nothing_else() -> None:
    asked = DeviceRequest(gpus=2, core=50, ratio=50, rdma=100, selector=(("model", "A100"),), spread=True)
    assert unit_of(asked) == DeviceRequest(gpus=1, core=50, ratio=50)
