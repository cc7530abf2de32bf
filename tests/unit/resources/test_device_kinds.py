"""Kinds of devices that the policy declares: from amounts to requests, from Device objects to devices."""

from __future__ import annotations

import pytest

from engine.api.device import Device, DeviceRequest, DeviceUse
from engine.resources.kinds import NO_KINDS, DeviceKind, DeviceKinds, kinds_of
from engine.resources.request import asked_in_words

GIB = 2**30
FULL = DeviceKind("npu", whole="e.x/npu", core="e.x/core", ratio="e.x/ratio", memory="e.x/memory")
COUNTED = DeviceKind("asic", whole="e.x/asic")
SHARED = DeviceKind("dpu", core="e.x/dpu")
BYTES = DeviceKind("ssd", memory="e.x/ssd")
KINDS = DeviceKinds((FULL, COUNTED, SHARED, BYTES))


def part(gpus: int, core: int, ratio: int, memory: int, name: str) -> DeviceRequest:
    return DeviceRequest(gpus=gpus, core=core, ratio=ratio, memory=memory, whole=ratio == 100, name=name)


@pytest.mark.parametrize(
    ("amounts", "request_", "words"),
    [
        ({"e.x/npu": 2}, ("npu", part(2, 100, 100, 0, "e.x/npu")), "2 npu devices"),
        ({"e.x/core": 50, "e.x/ratio": 50}, ("npu", part(1, 50, 50, 0, "e.x/core")), "50% of a npu device"),
        ({"e.x/ratio": 200}, ("npu", part(2, 0, 100, 0, "e.x/ratio")), "2 npu devices"),
        ({"e.x/core": 200, "e.x/ratio": 300}, ("npu", part(3, 67, 100, 0, "e.x/core")), "3 npu devices"),  # rounded up
        ({"e.x/memory": 8 * GIB}, ("npu", part(1, 0, 0, 8 * GIB, "e.x/memory")), "8Gi of the memory of a npu device"),
        ({"e.x/asic": 1}, ("asic", part(1, 100, 100, 0, "e.x/asic")), "1 asic device"),
        ({"e.x/dpu": 30}, ("dpu", part(1, 30, 30, 0, "e.x/dpu")), "30% of a dpu device"),
        ({"e.x/dpu": 300}, ("dpu", part(3, 100, 100, 0, "e.x/dpu")), "3 dpu devices"),
        ({"e.x/ssd": GIB}, ("ssd", part(1, 0, 0, GIB, "e.x/ssd")), "1Gi of the memory of a ssd device"),
    ],
    ids=str,
)
def test_amounts_become_a_request(amounts: dict[str, int], request_: tuple[str, DeviceRequest], words: str) -> None:
    found = KINDS.extended(None, tuple(amounts.items()))
    assert found == DeviceRequest(others=(request_,))
    assert asked_in_words(found) == words


def test_other_devices_of_a_pod_stay() -> None:
    own = DeviceRequest(gpus=2, core=100, ratio=100, whole=True)
    found = KINDS.extended(own, (("cpu", 4), ("e.x/dpu", 100), ("e.x/asic", 1)))
    assert found is not None
    assert (found.gpus, [kind for kind, _ in found.others]) == (2, ["asic", "dpu"])
    assert asked_in_words(found) == "2 GPUs, 1 asic device and 1 dpu device"
    assert KINDS.extended(own, (("cpu", 4),)) is own
    assert NO_KINDS.extended(own, (("e.x/dpu", 100),)) is own
    assert KINDS.extended(None, (("e.x/dpu", 0),)) is None


@pytest.mark.parametrize(
    ("kind", "amounts", "device"),
    [
        (FULL, {"e.x/core": 100, "e.x/ratio": 100, "e.x/memory": GIB}, (100, 100, GIB, True)),
        (FULL, {}, (0, 0, 0, True)),
        (FULL, {"e.x/core": 101, "e.x/ratio": 100}, (0, 0, 0, False)),
        (COUNTED, {}, (100, 100, 0, True)),
        (COUNTED, {"e.x/asic": 1, "other": 7}, (100, 100, 0, True)),
        (SHARED, {"e.x/dpu": 80}, (80, 80, 0, True)),
        (BYTES, {"e.x/ssd": GIB}, (100, 100, GIB, True)),
    ],
    ids=str,
)
def test_devices_offer_what_their_object_says(
    kind: DeviceKind, amounts: dict[str, int], device: tuple[int, int, int, bool]
) -> None:
    """Dimensions without a name are there; declared ones that are missing are not."""
    raw = Device(kind.type, 1, "id", healthy=True, resources=tuple(amounts.items()))
    read = KINDS.device(raw)
    assert (read.core, read.ratio, read.memory, read.healthy) == device
    assert (read.kind, read.minor, read.id, read.resources) == (kind.type, 1, "id", ())


@pytest.mark.parametrize(
    ("use", "resources"),
    [
        (
            DeviceUse("npu", 0, core=50, ratio=50, memory=32 * GIB),
            {"e.x/core": "50", "e.x/memory": "32Gi", "e.x/ratio": "50"},
        ),
        (DeviceUse("asic", 0, core=100, ratio=100), {"e.x/asic": "1"}),
        (DeviceUse("dpu", 0, core=30, ratio=30), {"e.x/dpu": "30"}),
    ],
    ids=str,
)
def test_parts_are_written_under_the_names_of_the_kind(use: DeviceUse, resources: dict[str, str]) -> None:
    assert KINDS.resources(use) == resources


def test_equal_policies_share_their_kinds() -> None:
    assert kinds_of([FULL, SHARED]) is kinds_of([FULL, SHARED])
    assert kinds_of([]) == NO_KINDS
