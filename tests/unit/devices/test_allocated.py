"""The annotation that tells a pod's devices, in Koordinator's form."""

from __future__ import annotations

import json

import pytest

from engine.api.device import DeviceUse
from engine.devices.allocation import format_allocated, parse_allocated
from tests.support.devices import GIB

CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"


def test_written_byte_for_byte_as_koordinator_writes_it() -> None:
    """Kinds and resources by name, quantities as text, memory in the largest unit that leaves a whole number."""
    uses = (
        DeviceUse("gpu", 0, "GPU-8c25", 100, 100, 16 * GIB),
        DeviceUse("gpu", 3, "", 0, 34, 5228428001),
        DeviceUse("rdma", 1, "0000:1f:00.0", share=100),
        DeviceUse("fpga", 0, share=50),
    )
    assert format_allocated(uses) == (
        '{"fpga":[{"minor":0,"resources":{"koordinator.sh/fpga":"50"}}],'
        '"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"16Gi",'
        '"koordinator.sh/gpu-memory-ratio":"100"},"id":"GPU-8c25"},'
        '{"minor":3,"resources":{"koordinator.sh/gpu-memory":"5228428001","koordinator.sh/gpu-memory-ratio":"34"}}],'
        '"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"100"},"id":"0000:1f:00.0"}]}'
    )


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1536 * 2**20, "1536Mi"),
        (80 * GIB, "80Gi"),
        (2**40, "1Ti"),
        (2**50, "1Pi"),
    ],
)
def test_memory_as_quantities_are_written(amount: int, text: str) -> None:
    """BinarySI."""
    written = json.loads(format_allocated([DeviceUse("gpu", 0, memory=amount)]))
    assert written["gpu"][0]["resources"] == {MEMORY: text}


def test_numbers_and_further_fields_are_read_as_well() -> None:
    """Numbers instead of text, memory in any unit, an extension, kinds and resources that we do not know."""
    text = json.dumps(
        {
            "gpu": [{"minor": 1, "resources": {CORE: 50, MEMORY: "1.5Gi", RATIO: "5e1", "x": "?"}, "extension": {}}],
            "rdma": [{"minor": 2, "resources": {"koordinator.sh/rdma": 100}, "id": None}],
            "fpga": None,
            "npu": "whatever",
        }
    )
    assert parse_allocated(text) == (
        (DeviceUse("gpu", 1, "", 50, 50, 3 * GIB // 2), DeviceUse("rdma", 2, share=100)),
        "",
    )


@pytest.mark.parametrize(
    ("text", "uses"), [("{}", ()), ('{"gpu":[]}', ()), ('{"gpu":[{"minor":4}]}', (DeviceUse("gpu", 4),))]
)
def test_little_is_read_as_little(text: str, uses: tuple[DeviceUse, ...]) -> None:
    """No devices, or a device without amounts."""
    assert parse_allocated(text) == (uses, "")


def _gpu(**resources: object) -> str:
    names = {"core": CORE, "ratio": RATIO, "memory": MEMORY}
    return json.dumps({"gpu": [{"minor": 0, "resources": {names[key]: one for key, one in resources.items()}}]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("{", "not JSON", id="cut off"),
        pytest.param("[]", "not a JSON object", id="a list"),
        pytest.param("null", "not a JSON object", id="null"),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        pytest.param('{"gpu":' + "9" * 5000 + "}", "not JSON", id="a number without end"),
        pytest.param(" " * 300_000, "longer than 262,144 characters", id="long"),
        pytest.param('{"gpu":{}}', "gpu: not a list", id="no list"),
        pytest.param('{"gpu":[7]}', "gpu[0]: not an object", id="no object"),
        pytest.param('{"gpu":[{}]}', "gpu[0].minor: not a number from 0", id="no minor"),
        pytest.param('{"gpu":[{"minor":true}]}', "gpu[0].minor: not a number from 0", id="a truth as minor"),
        pytest.param('{"gpu":[{"minor":-1}]}', "gpu[0].minor: not a number from 0", id="minor below 0"),
        pytest.param('{"gpu":[{"minor":4294967296}]}', "gpu[0].minor: not a number from 0", id="huge minor"),
        pytest.param(
            '{"gpu":[{"minor":0,"id":5}]}', "gpu[0].id: not a plain text of 253 characters at most", id="id of a number"
        ),
        pytest.param(
            '{"gpu":[{"minor":0,"id":"a\\nb"}]}', "gpu[0].id: not a plain text of 253 characters at most", id="odd id"
        ),
        pytest.param(
            '{"gpu":[{"minor":0,"resources":[]}]}', "gpu[0].resources: not an object", id="resources of a list"
        ),
        pytest.param('{"gpu":[{"minor":0},{"minor":0}]}', "gpu: names a device twice", id="twice"),
        pytest.param(_gpu(core="-1"), f'gpu[0].resources[{CORE}]: "-1" is not from 0 to 100', id="negative"),
        pytest.param(_gpu(core=101), f'gpu[0].resources[{CORE}]: "101" is not from 0 to 100', id="more than a device"),
        pytest.param(_gpu(ratio="500m"), f"gpu[0].resources[{RATIO}]: '500m' must be a whole number", id="a fraction"),
        pytest.param(
            _gpu(memory="2Ei"),
            f'gpu[0].resources[{MEMORY}]: "2Ei" is not from 0 to 1,125,899,906,842,624',
            id="huge memory",
        ),
        pytest.param(_gpu(memory=[1]), f"gpu[0].resources[{MEMORY}]: expected a quantity, got list", id="wrong type"),
        pytest.param(
            _gpu(memory=None), f"gpu[0].resources[{MEMORY}]: expected a quantity, got NoneType", id="null amount"
        ),
    ],
)
def test_nonsense_is_read_as_nothing_with_a_reason(text: str, reason: str) -> None:
    """Malformed, wrong-typed, absent, hostile: never an exception."""
    assert parse_allocated(text) == (None, reason)


def test_more_devices_than_a_host_has_are_not_read() -> None:
    """Bounded."""
    text = json.dumps({"rdma": [{"minor": at} for at in range(257)]})
    assert parse_allocated(text) == (None, "rdma: more than 256 devices")
