"""Slots where devices decide, and not the numbers of a node alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.device import DeviceUse, NodeDevices
from engine.api.pod import Pod, Shape
from engine.capacity.capacity import RECOUNT, Capacity
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import job, node, pod
from tests.support.gpu_hosts import GIB, asking, gpu_job, gpu_node, gpus, share, use, with_uses

HALF, ONE, TWO = share(50), asking(gpu=1), asking(gpu=2)


class Ledger:
    """A host with four GPUs, and what fits there by every way of counting; beside others, so that it is recounted."""

    def __init__(self, *, told: bool = True) -> None:
        self.capacity = Capacity()
        self.capacity.set_node("h", gpu_node("h"))
        if told:
            self.capacity.set_devices("h", gpus("h"))
        others = [gpu_node(f"other-{number}") for number in range(2 * RECOUNT)]
        for other in others:
            self.capacity.set_node(other.name, other)
        self.topology: Topology = build_topology("flat", (), [gpu_node("h"), *others])
        for shape in (HALF, ONE, TWO):
            self.capacity.slots(shape, self.topology, scarce="cpu")  # kept from here on

    def free(self, shape: Shape) -> int:
        host = self.topology.tree.index["h"]
        cold = int(self.capacity.count(shape, self.topology).free[host])
        warm = int(self.capacity.slots(shape, self.topology, scarce="cpu").slots[host])
        assert warm == cold
        empty = self.capacity.count(shape, self.topology).empty
        assert self.capacity.empty_slots(shape, self.topology).tolist() == empty.tolist()
        return cold

    def bind(self, name: str, shape: Shape, *uses: DeviceUse) -> Pod:
        made = pod(gpu_job(name, shape), 0, host="h", name=name)
        made = replace(made, spec=replace(made.spec, shape=shape))
        made = with_uses(made, *uses) if uses else made
        self.capacity.set_pod(made.key, made)
        return made


def test_a_half_used_gpu_takes_no_whole_gpu_pod() -> None:
    """Four halves on four devices: 200 percent are free, and not one whole GPU."""
    ledger = Ledger()
    for minor in range(4):
        ledger.bind(f"p{minor}", HALF, use(minor, 50))
    assert (ledger.free(HALF), ledger.free(ONE), ledger.free(share(100)), ledger.free(share(60))) == (4, 0, 0, 0)


def test_halves_of_which_the_devices_are_not_known_are_laid_together() -> None:
    """Two halves fill one device: three are free."""
    ledger = Ledger(told=False)
    ledger.bind("a", HALF)
    ledger.bind("b", HALF)
    assert (ledger.free(ONE), ledger.free(HALF), ledger.free(TWO)) == (3, 6, 1)


def test_the_names_that_stay_in_the_spec_always_count() -> None:
    """The kube-scheduler matches them: a node that does not report one takes no pod that asks for it."""
    capacity = Capacity()
    plain = node("h", allocatable={"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4})
    capacity.set_node("h", plain)
    capacity.set_devices("h", gpus("h"))
    topology = build_topology("flat", (), [plain])
    assert capacity.count(ONE, topology).free.tolist() == [4]
    assert capacity.count(HALF, topology).free.tolist() == [0]
    assert capacity.count(share(100), topology).built.tolist() == [0]


def test_the_smaller_of_devices_and_numbers_counts() -> None:
    """Three of four GPUs are healthy, the node still reports four: three; and the other way round."""
    ledger = Ledger()
    ledger.capacity.set_devices("h", gpus("h", sick=(2,)))
    assert (ledger.free(ONE), ledger.free(TWO)) == (3, 1)
    host = ledger.topology.tree.index["h"]
    assert ledger.capacity.count(ONE, ledger.topology).empty[host] == 3
    ledger.capacity.set_devices("h", gpus("h", 8))
    assert ledger.free(ONE) == 4


def test_a_device_object_counts_from_the_moment_it_comes_to_the_moment_it_goes() -> None:
    """Slots that are kept between decisions hear of it."""
    ledger = Ledger(told=False)
    assert ledger.free(ONE) == 4
    ledger.capacity.set_devices("h", gpus("h", 2))
    assert ledger.free(ONE) == 2
    ledger.capacity.set_devices("h", None)
    assert ledger.free(ONE) == 4


def test_a_device_object_may_come_before_its_node_and_outlive_it() -> None:
    """They are told by different watches."""
    capacity = Capacity()
    capacity.set_devices("h", gpus("h", 2))
    capacity.set_node("h", gpu_node("h"))
    topology = build_topology("flat", (), [gpu_node("h")])
    assert capacity.count(ONE, topology).free.tolist() == [2]
    capacity.set_node("h", None)
    assert capacity.count(ONE, topology).free.tolist() == [0]
    capacity.set_node("h", gpu_node("h"))
    assert capacity.count(ONE, topology).free.tolist() == [2]


@pytest.mark.parametrize("how", ["it ends", "it moves", "another one is bound"])
def test_what_becomes_of_pods_while_the_devices_of_a_host_do_not_count_is_known_afterwards(how: str) -> None:
    """A Device object goes and comes again: in between a pod ended, or is on other devices, or one more is there."""
    capacity = Capacity()
    plain = node("h", allocatable={"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4})
    capacity.set_node("h", plain)
    capacity.set_devices("h", gpus("h"))
    whole = Shape(requests=(("nvidia.com/gpu", 2), ("pods", 1)), devices=TWO.devices)

    def bound(name: str, *minors: int) -> Pod:
        made = pod(job(name), 0, host="h", name=name)
        made = replace(made, spec=replace(made.spec, shape=whole))
        return with_uses(made, *(use(minor) for minor in minors))

    first, second = bound("first", 0, 1), bound("second", 2, 3)
    capacity.set_pod(first.key, first)
    capacity.set_devices("h", None)
    if how == "it ends":
        capacity.set_pod(first.key, None)
    elif how == "it moves":
        capacity.set_pod(first.key, bound("first", 2, 3))
    else:
        capacity.set_pod(second.key, second)
    capacity.set_devices("h", gpus("h"))
    assert TWO.devices is not None
    chosen = capacity.choose("h", TWO.devices, 1)
    taken = {"it ends": (), "it moves": (2, 3), "another one is bound": (0, 1, 2, 3)}[how]
    free = [minor for minor in range(4) if minor not in taken]
    assert (chosen is None) == (len(free) < 2)
    assert chosen is None or {one.minor for one in chosen[0]} <= set(free)
    assert capacity.count(ONE, build_topology("flat", (), [plain])).free.tolist() == [len(free)]
    every = capacity.choose("h", TWO.devices, len(free) // 2) if free else ()
    assert every is not None
    assert sorted(one.minor for uses in every for one in uses) == free


def test_a_share_on_a_host_of_whole_gpus_counts_too() -> None:
    """A pod with half a GPU was bound where only nvidia.com/gpu is reported: three whole GPUs are left, not four."""
    capacity = Capacity()
    plain = node("h", allocatable={"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4})
    capacity.set_node("h", plain)
    topology = build_topology("flat", (), [plain])
    half = pod(job(), 0, host="h")
    half = replace(half, spec=replace(half.spec, shape=HALF))
    capacity.set_pod(half.key, half)
    assert capacity.count(ONE, topology).free.tolist() == [3]
    assert capacity.slots(ONE, topology, scarce="cpu").slots.tolist() == [3]
    capacity.set_pod(half.key, None)
    assert capacity.slots(ONE, topology, scarce="cpu").slots.tolist() == [4]


def test_a_pod_counts_where_its_annotation_says() -> None:
    """Two whole GPUs on 0 and 2: one pair of neighbours is left in neither PCIe scope, but two GPUs are."""
    ledger = Ledger()
    ledger.bind("a", TWO, use(0), use(2))
    assert ledger.capacity.choose("h", ONE.devices, 2) == (
        (replace(use(1), id="GPU-h-1"),),
        (replace(use(3), id="GPU-h-3"),),
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "uses",
    [
        pytest.param([DeviceUse("gpu", 0)], id="amounts left out"),
        pytest.param([use(0, 1)], id="less than is asked for"),
        pytest.param([use(minor) for minor in range(4)], id="more devices than are asked for"),
        pytest.param([DeviceUse("rdma", 0, share=100)], id="a device that is not asked for"),
        pytest.param([use(99)], id="a device that there is not"),
    ],
)
def test_an_annotation_neither_hides_nor_adds_use(uses: list[DeviceUse]) -> None:
    """Whoever wrote it: a pod that asks for one GPU has one GPU."""
    ledger = Ledger()
    ledger.bind("a", ONE, *uses)
    assert ledger.free(ONE) == 3


def given(*pods: Pod, minors: tuple[int, ...] = (2,)) -> NodeDevices:
    """The host's Device object whose checkpoint says that each of these pods has these GPUs."""
    return replace(gpus("h"), given={one.uid: tuple(("gpu", minor) for minor in minors) for one in pods})


def chosen(ledger: Ledger, shape: Shape, count: int = 1) -> list[int]:
    """The GPUs that pods more of a shape would get."""
    assert shape.devices is not None
    uses = ledger.capacity.choose("h", shape.devices, count) or ()
    return [use.minor for one in uses for use in one]


@pytest.mark.parametrize("first", ["the pod", "the object"])
def test_a_gpu_that_the_hosts_checkpoint_says_a_pod_has_is_not_given_again(first: str) -> None:
    """A pod without an annotation is on the devices that its host tells, whichever is known first."""
    ledger = Ledger()
    old = Ledger().bind("old", ONE)
    if first == "the object":
        ledger.capacity.set_devices("h", given(old))
    ledger.capacity.set_pod(old.key, old)
    if first == "the pod":
        assert chosen(ledger, ONE, 3) == [1, 2, 3]  # laid where it would be put
        ledger.capacity.set_devices("h", given(old))
    assert sorted(chosen(ledger, ONE, 3)) == [0, 1, 3]
    assert ledger.free(ONE) == 3
    ledger.capacity.set_devices("h", gpus("h"))
    assert chosen(ledger, ONE, 3) == [1, 2, 3]


def test_a_checkpoint_ends_with_the_node_that_reported_it() -> None:
    """A node that comes back without the Device object's word has its pods where they would be put."""
    ledger = Ledger()
    ledger.capacity.set_devices("h", given(ledger.bind("old", ONE)))
    assert sorted(chosen(ledger, ONE, 3)) == [0, 1, 3]
    ledger.capacity.set_node("h", None)
    ledger.capacity.set_devices("h", None)
    ledger.capacity.set_node("h", gpu_node("h"))
    ledger.capacity.set_devices("h", gpus("h"))
    assert chosen(ledger, ONE, 3) == [1, 2, 3]


def test_halves_that_a_checkpoint_puts_apart_leave_no_whole_gpu_between_them() -> None:
    """Where the kubelet put each of four halves on a GPU of its own, no whole GPU is free."""
    ledger = Ledger()
    halves = [ledger.bind(f"p{minor}", HALF) for minor in range(4)]
    assert ledger.free(ONE) == 2
    told = {one.uid: (("gpu", minor),) for minor, one in enumerate(halves)}
    ledger.capacity.set_devices("h", replace(gpus("h"), given=told))
    assert (ledger.free(ONE), ledger.free(HALF)) == (0, 4)


def test_a_pods_own_annotation_goes_before_the_checkpoint() -> None:
    """The annotation is what we wrote; agents leave such pods out of the checkpoint."""
    ledger = Ledger()
    ledger.capacity.set_devices("h", given(ledger.bind("ours", ONE, use(0))))
    assert chosen(ledger, ONE, 3) == [1, 2, 3]


def test_a_checkpoint_adds_no_use_to_what_a_pod_asks_for() -> None:
    """Three GPUs told of a pod that asks for one are one; those of pods that are gone are none."""
    ledger = Ledger()
    old = ledger.bind("old", ONE)
    ledger.capacity.set_devices("h", given(old, minors=(1, 2, 3)))
    assert ledger.free(ONE) == 3
    ledger.capacity.set_pod(old.key, None)
    assert ledger.free(ONE) == 4


def test_a_pod_that_asks_for_no_device_has_none() -> None:
    """An annotation alone takes no capacity from others."""
    ledger = Ledger()
    ledger.bind("a", asking(), *[use(minor) for minor in range(4)])
    assert ledger.free(ONE) == 4


def test_a_reservation_takes_the_devices_that_it_names() -> None:
    """And gives them back."""
    ledger = Ledger()
    ledger.capacity.reserve(
        "g", {"h": 2}, HALF.requests, devices=HALF.devices, uses={"h": ((use(0, 50),), (use(1, 50),))}
    )
    assert (ledger.free(ONE), ledger.free(HALF)) == (2, 6)
    ledger.capacity.reserve("g", {"h": 2}, HALF.requests, devices=HALF.devices)
    assert (ledger.free(ONE), ledger.free(HALF)) == (3, 6)
    ledger.capacity.reserve("g", {}, ())
    assert ledger.free(ONE) == 4


def test_devices_of_different_size_count_by_their_bytes() -> None:
    """60 GiB fit once on an 80 GiB device, not at all on a 40 GiB one."""
    small = replace(gpus("h"), devices=tuple(replace(one, memory=40 * GIB) for one in gpus("h", 2).devices))
    ledger = Ledger()
    assert ledger.free(asking(memory=60 * GIB)) == 4
    ledger.capacity.set_devices("h", small)
    assert ledger.free(asking(memory=60 * GIB)) == 0
    assert ledger.free(asking(memory=20 * GIB)) == 4


def test_lost_devices_are_seen_by_the_gang_that_was_to_get_them() -> None:
    """A device turns sick, is gone, or another pod sits on it; what happens to other devices is nothing to the gang."""
    ledger = Ledger()
    capacity = ledger.capacity
    capacity.reserve("g", {"h": 1}, ONE.requests, devices=ONE.devices, uses={"h": ((use(1),),)})
    assert not capacity.lost_devices("g", "h")
    capacity.set_devices("h", gpus("h", sick=(0,)))
    assert not capacity.lost_devices("g", "h")
    capacity.set_devices("h", gpus("h", sick=(1,)))
    assert capacity.lost_devices("g", "h")
    capacity.set_devices("h", gpus("h", 1))
    assert capacity.lost_devices("g", "h")
    capacity.set_devices("h", gpus("h"))
    assert not capacity.lost_devices("g", "h")
    intruder = ledger.bind("x", HALF, use(1, 50))
    assert capacity.lost_devices("g", "h")
    capacity.set_pod(intruder.key, None)
    assert not capacity.lost_devices("g", "h")


def test_devices_counted_by_number_are_lost_when_too_few_are_left() -> None:
    """A reservation that names no devices needs as many as it has pods."""
    ledger = Ledger()
    ledger.capacity.reserve("g", {"h": 3}, ONE.requests, devices=ONE.devices)
    assert not ledger.capacity.lost_devices("g", "h")
    ledger.capacity.set_devices("h", gpus("h", sick=(0, 1)))
    assert ledger.capacity.lost_devices("g", "h")


def test_devices_are_chosen_only_where_a_device_object_names_them() -> None:
    """The numbers of a node do not say which GPU is which."""
    assert Ledger(told=False).capacity.choose("h", HALF.devices, 1) is None  # type: ignore[arg-type]
    nics = replace(gpus("h"), devices=())
    ledger = Ledger()
    ledger.capacity.set_devices("h", nics)
    assert ledger.capacity.choose("h", HALF.devices, 1) is None  # type: ignore[arg-type]
    assert ledger.capacity.choose("elsewhere", HALF.devices, 1) is None  # type: ignore[arg-type]


def test_what_is_wrong_with_a_hosts_devices_is_told() -> None:
    """What was left out of its object, and where object and node disagree."""
    ledger = Ledger()
    assert ledger.capacity.device_notes("h") == ()
    ledger.capacity.set_devices("h", gpus("h", 3, faults=("devices[3].minor: Expected `int`, got `str`",)))
    first, second = ledger.capacity.device_notes("h")
    assert first == "devices[3].minor: Expected `int`, got `str`"
    assert "its Device object 3" in second and "3 counted" in second


@pytest.mark.parametrize("scope", ["", "pcie", "numa", "nvlink"])
@pytest.mark.parametrize("spread", [False, True])
def test_neither_a_scope_nor_a_strategy_gives_a_used_gpu_away(scope: str, spread: bool) -> None:
    """One GPU is a pod's by the checkpoint, one a running pod's by its annotation; the two others share nothing."""
    ledger = Ledger()
    old = Ledger().bind("old", ONE)
    ledger.capacity.set_pod(old.key, old)
    ledger.capacity.set_devices("h", replace(given(old), partitions={2: ((0, 1), (2, 3))}))
    assert TWO.devices is not None
    asked = replace(TWO, devices=replace(TWO.devices.within(scope) if scope else TWO.devices, spread=spread))
    assert chosen(ledger, asked) == [0, 1]
    assert 2 not in chosen(ledger, asked)
    ledger.bind("run", ONE, use(1))
    assert ledger.free(asked) == (0 if scope in ("pcie", "nvlink") else 1)
    assert chosen(ledger, asked) == ([] if scope in ("pcie", "nvlink") else [0, 3])


def test_scopes_come_and_go_with_the_objects_that_report_them() -> None:
    """Hosts that count their GPUs have none, and no slots for pods that require one."""
    ledger = Ledger(told=False)
    assert TWO.devices is not None
    near = replace(TWO, devices=TWO.devices.within("pcie"))
    assert (ledger.capacity.device_scopes, ledger.free(near), ledger.free(TWO)) == (frozenset(), 0, 2)
    ledger.capacity.set_devices("h", gpus("h"))
    assert (ledger.capacity.device_scopes, ledger.free(near)) == ({"pcie", "numa"}, 2)
    ledger.capacity.set_devices("h", replace(gpus("h"), partitions={2: ((0, 1),)}))
    assert ledger.capacity.device_scopes == {"nvlink", "pcie", "numa"}
    ledger.capacity.set_devices("h", None)
    assert (ledger.capacity.device_scopes, ledger.free(near)) == (frozenset(), 0)


def test_gpus_without_the_labels_count_for_nothing() -> None:
    """Of four two are of the model; one of these is used. Hosts without a Device object have none."""
    ledger = Ledger()
    devices = tuple(
        replace(one, labels=(("model", "A"), ("pool", "x")) if one.minor % 2 else ()) for one in gpus("h").devices
    )
    ledger.capacity.set_devices("h", replace(gpus("h"), devices=devices))
    assert ONE.devices is not None
    wants = replace(ONE, devices=replace(ONE.devices, selector=(("model", "A"),)))
    assert (ledger.free(wants), chosen(ledger, wants, 2)) == (2, [1, 3])
    ledger.bind("run", ONE, use(3))
    assert (ledger.free(wants), chosen(ledger, wants)) == (1, [1])
    assert int(ledger.capacity.count(wants, ledger.topology).empty.sum()) == 2
    ledger.capacity.set_devices("h", None)
    assert ledger.free(wants) == 0
