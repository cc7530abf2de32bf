"""Virtual functions of RDMA devices: in the annotation, of pods with and without a known one, in Placements."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engine.api import names
from engine.api.device import Device, DeviceRequest, DeviceUse, NodeDevices, VirtualFunction
from engine.api.placement import Slot
from engine.decoding import wire
from engine.decoding.placements import device_uses, uses_body
from engine.decoding.wire import ProjectionError
from engine.devices.allocation import (
    allocation,
    devices_of,
    format_allocated,
    limit_to_request,
    parse_allocated,
    spare_devices,
)
from engine.devices.choose import MAX_JOINT
from engine.devices.hosts import HostDevices
from engine.devices.inventory import Inventory
from engine.devices.usage import DeviceHolding, free_devices
from engine.resources.names import MAX_FUNCTIONS, RDMA
from tests.support.cluster_records import node
from tests.support.cluster_records import pod as pod_of
from tests.support.devices import HeldDevices, gpu, whole
from tests.support.gpu_hosts import gpu_job, share, with_uses

ANY = DeviceRequest(rdma=1, vf_selector=())


def card(minor: int, *buses: str, pcie: str = "p0", healthy: bool = True) -> Device:
    functions = tuple(VirtualFunction(at, bus) for at, bus in enumerate(buses))
    return Device("rdma", minor, f"card-{minor}", healthy, share=100, pcie=pcie, functions=functions)


def use(minor: int, *buses: str, share: int = 1) -> DeviceUse:
    return DeviceUse("rdma", minor, share=share, functions=tuple(VirtualFunction(0, bus) for bus in buses))


def test_written_as_koordinator_writes_it() -> None:
    """A minor of 0 is left out there (omitempty), the resources are text, the extension comes last."""
    uses = [
        DeviceUse("rdma", 1, "0000:1f:00.0", share=1, functions=(VirtualFunction(0, "0000:1f:00.2"),)),
        DeviceUse("rdma", 2, "0000:90:00.0", share=1, functions=(VirtualFunction(16, "0000:90:02.2"),)),
    ]
    assert format_allocated(uses) == (
        '{"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"1"},"id":"0000:1f:00.0",'
        '"extension":{"vfs":[{"busID":"0000:1f:00.2"}]}},'
        '{"minor":2,"resources":{"koordinator.sh/rdma":"1"},"id":"0000:90:00.0",'
        '"extension":{"vfs":[{"minor":16,"busID":"0000:90:02.2"}]}}]}'
    )
    assert parse_allocated(format_allocated(uses)) == (tuple(uses), "")


@pytest.mark.parametrize(
    ("extension", "functions"),
    [
        (None, ()),
        ({}, ()),
        ({"vfs": None}, ()),
        ({"vfs": []}, ()),
        ({"gpuSharedResourceTemplate": "vir01"}, ()),
        ({"vfs": [{"minor": 3}]}, ()),  # without an address it names nothing
        ({"vfs": [{"busID": "a", "x": 1}, {"minor": 2, "busID": "b"}, {"busID": "a"}]}, ((0, "a"), (2, "b"))),
    ],
)
def test_what_an_extension_names(extension: Any, functions: tuple[tuple[int, str], ...]) -> None:
    text = json.dumps({"rdma": [{"minor": 0, "resources": {RDMA: 1}, "extension": extension}]})
    uses, error = parse_allocated(text)
    assert error == ""
    assert uses is not None
    assert [(one.minor, one.bus) for one in uses[0].functions] == list(functions)


@pytest.mark.parametrize(
    ("extension", "told"),
    [
        ([], "rdma[0].extension: not an object"),
        ({"vfs": {}}, f"rdma[0].extension.vfs: not a list of {MAX_FUNCTIONS} at most"),
        ({"vfs": [{"busID": "a"}] * 257}, f"rdma[0].extension.vfs: not a list of {MAX_FUNCTIONS} at most"),
        ({"vfs": ["a"]}, "rdma[0].extension.vfs[0].minor: not a number from 0"),
        ({"vfs": [{"minor": -1, "busID": "a"}]}, "rdma[0].extension.vfs[0].minor: not a number from 0"),
        ({"vfs": [{"minor": True, "busID": "a"}]}, "rdma[0].extension.vfs[0].minor: not a number from 0"),
        ({"vfs": [{"busID": 7}]}, "rdma[0].extension.vfs[0].busID: not a plain text of 63 characters at most"),
        ({"vfs": [{"busID": "x" * 64}]}, "rdma[0].extension.vfs[0].busID: not a plain text of 63 characters at most"),
        ({"vfs": [{"busID": "a\nb"}]}, "rdma[0].extension.vfs[0].busID: not a plain text of 63 characters at most"),
    ],
)
def test_an_extension_that_cannot_be_read(extension: Any, told: str) -> None:
    text = json.dumps({"rdma": [{"minor": 0, "resources": {RDMA: 1}, "extension": extension}]})
    assert parse_allocated(text) == (None, told)


def test_a_pod_keeps_its_functions_whatever_it_requests() -> None:
    """A pod with GPUs may have an RDMA device for each; of further ones only the functions count."""
    reported = [use(minor, f"f{minor}", share=100) for minor in range(4)]
    plain = limit_to_request(reported, DeviceRequest(rdma=1)) or ()
    assert [(one.share, [f.bus for f in one.functions]) for one in plain] == [
        (1, ["f0"]),
        (0, ["f1"]),
        (0, ["f2"]),
        (0, ["f3"]),
    ]
    joint = limit_to_request(reported, replace(whole(2), rdma=1)) or ()
    assert [one.share for one in joint] == [1, 1, 0, 0]
    nothing = limit_to_request(reported[:1], DeviceRequest()) or ()
    assert [(one.share, len(one.functions)) for one in nothing] == [(0, 1)]
    assert limit_to_request([use(0)], DeviceRequest()) is None


def test_an_annotation_takes_no_more_functions_than_the_pod_is_due() -> None:
    """One of each device, none without RDMA: whoever may change a pod may write it, and the rest is others'."""
    text = format_allocated([use(minor, f"{minor}a", f"{minor}b") for minor in range(3)])

    def functions(request: DeviceRequest) -> list[list[str]]:
        pod = pod_of(gpu_job("g", share(50), count=1), 0, host="h")
        spec = replace(pod.spec, annotations={names.DEVICE_ALLOCATED: text})
        spec = replace(spec, shape=replace(spec.shape, devices=request))
        return [[one.bus for one in taken.functions] for taken in devices_of(replace(pod, spec=spec)) or ()]

    for request in (DeviceRequest(rdma=1), DeviceRequest(rdma=200), replace(whole(2), rdma=1)):
        assert functions(request) == [["0a"], ["1a"], ["2a"]]
    assert functions(whole(2)) == functions(DeviceRequest()) == []


@pytest.mark.parametrize(
    ("uses", "request_"),
    [
        ([DeviceUse("gpu", 0, core=100, ratio=100, functions=(VirtualFunction(0, "a"),))], whole(1)),
        ([DeviceUse("gpu", minor, "gpu-0", core=100, ratio=100) for minor in (0, 1)], whole(2)),
        ([use(0, "a", share=100), use(1, "a", share=100)], DeviceRequest(rdma=200)),
        ([DeviceUse("npu", 9, core=100, ratio=100)], DeviceRequest(others=(("npu", whole(1)),))),
        (
            [DeviceUse("npu", minor, "npu-0", core=100, ratio=100) for minor in (0, 1)],
            DeviceRequest(others=(("npu", whole(2)),)),
        ),
    ],
)
def test_an_annotation_hides_no_device(uses: list[DeviceUse], request_: DeviceRequest) -> None:
    """By the address of another device's function, by the id of another device, by one that does not exist."""
    devices = [
        *(Device("gpu", minor, f"gpu-{minor}", True, core=100, ratio=100) for minor in range(3)),
        *(Device("npu", minor, f"npu-{minor}", True, core=100, ratio=100) for minor in range(3)),
        card(0, "a", "b"),
        card(1, "c"),
        card(2, "d"),
    ]
    holding = DeviceHolding(request_, (tuple(uses),))
    left = free_devices(Inventory(tuple(devices)), {("pod",): holding})
    kind = uses[0].kind
    wanted = {"gpu": request_.gpus, "rdma": request_.cards[0], "npu": sum(part.gpus for _, part in request_.others)}
    assert {one.device.kind for one in left if one.holders} == {kind}
    assert sum(not one.empty for one in left) == wanted[kind]


def test_the_annotation_of_a_pod_has_the_functions_as_they_are_now() -> None:
    """With their present numbers; none when one of them is gone, or its device sick."""
    present = NodeDevices("h", "u", "1", (card(0, "a", "b"),))
    text = allocation((use(0, "b"),), present)
    assert text is not None
    assert json.loads(text)["rdma"][0]["extension"] == {"vfs": [{"minor": 1, "busID": "b"}]}
    assert allocation((use(0, "c"),), present) is None
    assert allocation((use(0, "a"),), NodeDevices("h", "u", "1", (card(0, "a", healthy=False),))) is None


def test_a_function_is_found_wherever_it_is() -> None:
    """Its device may have another number since the annotation was written, or be unknown: it stays taken."""
    ledger = HeldDevices(Inventory((card(0, "a", "b"), card(1, "c"))))
    ledger.hold(0, ("moved",), ANY, ((use(1, "a"),),))
    ledger.hold(0, ("unknown",), ANY, ((use(9, "c"),),))
    assert [[one.bus for one in free.functions] for free in ledger.left(0)] == [["b"], []]
    assert ledger.slots_of(0, ANY) == 1
    assert ledger.choose(0, ANY, 2)[0][0].functions[0].bus == "b"


def test_a_reservation_whose_functions_are_unknown_takes_some() -> None:
    """Counted as the chooser would take them, so that nobody is promised one that is spoken for."""
    ledger = HeldDevices(Inventory((card(0, "a", "b"), card(1, "c"))))
    ledger.hold(0, ("gang",), ANY, count=2)
    assert ledger.slots_of(0, ANY) == 1
    ledger.release(0, ("gang",))
    assert ledger.slots_of(0, ANY) == 3


def test_whole_devices_and_functions_exclude_each_other() -> None:
    """A pod with 100 percent has the device alone; one with a function leaves no whole device."""
    ledger = HeldDevices(Inventory((card(0, "a"), card(1, "b"))))
    alone = DeviceRequest(rdma=100)
    ledger.hold(0, ("function",), ANY, ((use(0, "a"),),))
    assert ledger.slots_of(0, alone) == 1
    ledger.hold(0, ("whole",), alone, ((use(1, share=100),),))
    assert (ledger.slots_of(0, alone), ledger.slots_of(0, ANY)) == (0, 0)


def test_a_slot_tells_pods_on_one_device_apart_by_their_functions() -> None:
    """Of two pods with the same device, the function of the missing one is free, not that of the one that runs."""
    first, second = (use(0, "a"),), (use(0, "b"),)
    slot = Slot(domain=("h",), count=2, ranks=((0, 1),), devices=(first, second))
    job = gpu_job("g", share(50), count=2)
    template = replace(job.pod_sets[0].template.shape, devices=ANY)
    running = with_uses(pod_of(job, 1, host="h"), *second)
    running = replace(running, spec=replace(running.spec, shape=template))
    assert spare_devices(slot, [running]) == [first]


def test_placements_keep_functions() -> None:
    """Written and read; an address twice counts once, one that is none is refused."""
    uses = (use(0, "a"), use(1, "b", "c"))
    body = uses_body(uses)
    assert body[0] == {"type": "rdma", "minor": 0, "share": 1, "vfs": [{"minor": 0, "busID": "a"}]}
    raw = [msgspec.convert(one, wire.PlacementDevice) for one in body]
    assert device_uses(raw, "$") == uses
    assert "vfs" not in uses_body([use(0)])[0]
    with pytest.raises(ProjectionError):
        device_uses([raw[0], raw[0]], "$")


def test_a_function_that_is_lost_is_told() -> None:
    """Reserved for a pod to come, and then taken by another pod, or gone from the Device object."""
    hosts = HostDevices()
    hosts.set_host(0, node("h"))
    devices = NodeDevices("h", "u", "1", (card(0, "a", "b"), gpu(0)))
    hosts.set_device_object("h", devices, row=0)
    gang = ("gang", "g", "main")
    hosts.hold(0, gang, DeviceHolding(ANY, ((use(0, "a"),),)))
    assert not hosts.lost_devices(0, gang)
    hosts.hold(0, ("pod", "n", "p"), DeviceHolding(DeviceRequest(rdma=1), ((use(0, "a"),),)))
    assert hosts.lost_devices(0, gang)
    hosts.hold(0, ("pod", "n", "p"), None)
    assert not hosts.lost_devices(0, gang)
    hosts.set_device_object("h", replace(devices, devices=(card(0, "b"), gpu(0))), row=0)
    assert hosts.lost_devices(0, gang)


def test_functions_of_the_checkpoint_count_while_their_pod_lives() -> None:
    """Also of a pod that names no device: another plugin's resource; the object may come before or after the pod."""
    hosts = HostDevices()
    hosts.set_host(0, node("h"))
    devices = NodeDevices(
        "h", "u", "1", (card(0, "a", "b"),), given_functions={"uid": ((0, "a"),), "gone": ((0, "b"),)}
    )
    pod = ("pod", "n", "p")
    hosts.hold(0, pod, DeviceHolding(DeviceRequest(), count=0, uid="uid"))
    hosts.set_device_object("h", devices, row=0)
    assert hosts.slots(0, ANY) == 1
    hosts.set_device_object("h", replace(devices, given_functions={}), row=0)
    assert hosts.slots(0, ANY) == 2
    hosts.hold(0, pod, None)
    hosts.set_device_object("h", devices, row=0)
    assert hosts.slots(0, ANY) == 2
    hosts.hold(0, pod, DeviceHolding(DeviceRequest(), count=0, uid="uid"))
    assert hosts.slots(0, ANY) == 1


def test_of_pods_with_parts_of_several_gpus_near_rdma_devices_few_count() -> None:
    """Each is chosen alone: a hundred of them on every host would hold all decisions up for minutes."""
    devices = [gpu(0, pcie="p0"), gpu(1, pcie="p0"), card(0, *(f"f{number}" for number in range(64)))]
    ledger = HeldDevices(Inventory(tuple(devices)))
    parts = DeviceRequest(gpus=2, core=1, ratio=1, rdma=1, rdma_scope="pcie", vf_selector=())
    assert ledger.slots_of(0, replace(parts, rdma_scope="")) == 64
    assert ledger.slots_of(0, parts) == MAX_JOINT


def test_functions_of_two_cards_in_one_entry_are_both_taken() -> None:
    """Another program's annotation may list them so: none of them is given to a second pod."""
    ledger = HeldDevices(Inventory((card(0, "a", "b"), card(1, "c", "d"))))
    ledger.hold(0, ("foreign",), ANY, ((use(0, "a", "c"),),))
    assert [[one.bus for one in free.functions] for free in ledger.left(0)] == [["b"], ["d"]]
    assert {one.functions[0].bus for uses in ledger.choose(0, ANY, 2) for one in uses} == {"b", "d"}
