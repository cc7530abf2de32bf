"""Why a gang does not fit, when it is the devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.device import DeviceRequest, DeviceUse, NodeDevices
from engine.api.objects import Node
from engine.api.pod import Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.policy.model import Gpu, Policy, default_policy
from engine.resources.request import asked_in_words, device_request
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import node, pod
from tests.support.gpu_hosts import GIB, asking, gpu_job, gpu_node, gpus, share, use, with_uses

ONE, HALF = asking(gpu=1), share(50)


def plan_on(
    nodes: Sequence[Node],
    shape: Shape,
    *,
    count: int = 1,
    devices: Sequence[NodeDevices] = (),
    held: dict[str, Sequence[DeviceUse]] | None = None,
    policy: Policy | None = None,
) -> Outcome:
    """The answer for a gang, where other pods hold devices (host -> one pod a use)."""
    stores = Stores()
    view = ClusterState(stores, policy)
    gang = gpu_job("g", shape, count=count, require=None, held=True)
    gang = replace(gang, annotations={**gang.annotations, names.UNCONSTRAINED: "true"})
    stores.nodes.replace(nodes)
    stores.devices.replace(devices)
    stores.workloads.replace([gang])
    others = []
    for host, uses in (held or {}).items():
        for number, one in enumerate(uses):
            asked = share(one.core)
            other = gpu_job("x", asked, count=1)
            others.append(with_uses(pod(other, 0, host=host, name=f"{host}-{number}"), one))
    stores.pods.replace(others)
    view.refresh()
    found = view.gangs.get(gang.uid)
    assert found is not None
    return schedule_gang(view, found)


def waits(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Waits), outcome
    return outcome.reason, outcome.message


def never(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Never), outcome
    return outcome.reason, outcome.message


def test_gpus_used_in_part_take_no_whole_gpu_pod() -> None:
    """Three of four are empty, and one is half used: four on one host are not there, and the sentence says how near."""
    uses = {"h0": [use(0, 50)], "h1": [use(0, 50), use(1, 50)]}
    outcome = plan_on([gpu_node("h0"), gpu_node("h1")], asking(gpu=4), devices=[gpus("h0"), gpus("h1")], held=uses)
    assert waits(outcome) == (
        "InsufficientFreeGPUs",
        "needs 1 host; none free; 2 nodes = 2 with GPUs used in part; "
        "each pod needs 4 GPUs on one host; the best host has 3 whole GPUs free and 1 used in part",
    )


def test_free_parts_are_not_a_free_gpu() -> None:
    """By its numbers the node has two GPUs' worth free; by its devices four halves."""
    outcome = plan_on(
        [gpu_node("h")], share(100), count=2, devices=[gpus("h")], held={"h": [use(minor, 50) for minor in range(4)]}
    )
    assert waits(outcome) == (
        "InsufficientFreeGPUs",
        "needs room for 2 pods x 1 GPU; there is room for no pod; 1 node = 1 with GPUs used in part; "
        "each pod needs 1 GPU on one host; the best host has no whole GPU free and 4 used in part",
    )


def test_devices_are_what_is_short_though_the_numbers_have_less_of_something_else() -> None:
    """CPU for one pod and numbers of GPUs for two, but no GPU that is free: it waits for GPUs, not for hosts."""
    whole = share(100)
    wanted = replace(whole, requests=tuple(sorted((*whole.requests, ("cpu", 50_000)))))
    halves = {"h": [use(minor, 50) for minor in range(4)]}
    outcome = plan_on([gpu_node("h")], wanted, devices=[gpus("h")], held=halves)
    assert waits(outcome)[0] == "InsufficientFreeGPUs"


def test_a_share_is_told_as_a_share() -> None:
    """60 percent of a GPU where 50 percent of each are free."""
    outcome = plan_on(
        [gpu_node("h")], share(60), devices=[gpus("h")], held={"h": [use(minor, 50) for minor in range(4)]}
    )
    assert waits(outcome) == (
        "InsufficientFreeGPUs",
        "needs room for 1 pod x 60% of a GPU; there is room for no pod; 1 node = 1 with GPUs used in part; "
        "each pod needs 60% of a GPU; no GPU has more than 50% free",
    )


def test_a_name_that_no_node_reports_is_never() -> None:
    """The scheduler looks for the very name: it is told, and what the nodes do report."""
    plain = node("h", allocatable={"cpu": 8000, "pods": 10, "nvidia.com/gpu": 4})
    assert never(plan_on([plain], HALF)) == (
        "UnknownResource",
        "no node reports koordinator.sh/gpu-core or koordinator.sh/gpu-memory-ratio, "
        "so no pod that asks for it is ever scheduled; nodes report nvidia.com/gpu",
    )
    sliced = node("h", allocatable={"cpu": 8000, "pods": 10, "nvidia.com/gpu.shared": 8, "nvidia.com/mig-1g.10gb": 7})
    assert never(plan_on([sliced], ONE))[1].endswith("; nodes report nvidia.com/gpu.shared and nvidia.com/mig-1g.10gb")
    others = node("h", allocatable={"cpu": 8000, "pods": 10, "example.com/gpu": 8, "example.com/npu": 8, "x.io/y": 8})
    assert never(plan_on([others], ONE))[1].endswith("; nodes report example.com/gpu")
    by_policy = default_policy().model_copy(update={"gpu": Gpu(vendors=("example.com/npu",))})
    told = never(plan_on([others], ONE, policy=by_policy))[1]
    assert told.endswith("; nodes report example.com/gpu and example.com/npu")
    bare = node("h", allocatable={"cpu": 8000, "pods": 10})
    assert never(plan_on([bare], ONE)) == (
        "UnknownResource",
        "no node reports nvidia.com/gpu, so no pod that asks for it is ever scheduled",
    )


def test_more_gpus_than_any_host_has_is_never() -> None:
    """Counted in GPUs, by whatever name they are asked for."""
    said = "one pod asks for 8 GPUs and no host has more than 4; use 4 per pod and more pods"
    assert never(plan_on([gpu_node("h")], asking(gpu=8), devices=[gpus("h")])) == ("HostTooSmall", said)
    assert never(plan_on([gpu_node("h")], share(800))) == ("HostTooSmall", said)


def test_more_memory_than_any_gpu_has_is_never() -> None:
    """The host has 320 GiB of GPU memory, and no GPU of it more than 80."""
    outcome = plan_on([gpu_node("h")], asking(memory=100 * GIB), devices=[gpus("h")])
    assert never(outcome) == (
        "HostTooSmall",
        "one pod asks for 100Gi of the memory of a GPU, more than any host has; ask for less per pod",
    )


def test_sick_devices_are_no_never() -> None:
    """They may be repaired: it waits, and the nodes are counted as what they are."""
    outcome = plan_on([gpu_node("h")], asking(gpu=4), devices=[gpus("h", sick=(2,))])
    assert waits(outcome) == (
        "NodesUnhealthy",
        "needs room for 1 pod x 4 GPUs; no node is left: 1 node = 1 with unhealthy devices",
    )


def test_devices_that_are_not_understood_are_told() -> None:
    """A device was left out of a faulty object, or the object and the node do not agree: it waits for the admin."""
    faulty = gpus("h", 3, faults=("devices[3].minor: Expected `int`, got `str`",))
    outcome = plan_on([gpu_node("h")], asking(gpu=4), devices=[faulty])
    assert waits(outcome) == (
        "NodesUnhealthy",
        "needs room for 1 pod x 4 GPUs; no node is left: 1 node = 1 with devices that cannot be read",
    )


def test_a_device_object_that_tells_of_fewer_than_its_node_is_told() -> None:
    """The smaller one counts, and the reader learns why."""
    outcome = plan_on([gpu_node("h")], asking(gpu=4), devices=[gpus("h", 3)])
    assert waits(outcome) == (
        "NodesUnhealthy",
        "needs room for 1 pod x 4 GPUs; no node is left: 1 node = 1 with devices that differ from its resources",
    )


def test_shares_fill_the_hosts_that_have_devices_for_them() -> None:
    """What fits is placed, and an ordinary shortage is told in its ordinary words."""
    assert isinstance(plan_on([gpu_node("h")], HALF, count=8, devices=[gpus("h")]), Placed)
    reason, message = never(plan_on([gpu_node("h")], HALF, count=9, devices=[gpus("h")]))
    assert (reason, message) == ("GangTooLarge", "9 pods, but the whole topology holds 8; use fewer pods")


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"nvidia.com/gpu": 1}, "1 GPU"),
        ({"koordinator.sh/gpu": 400}, "4 GPUs"),
        ({"koordinator.sh/gpu": 50}, "50% of a GPU"),
        ({"koordinator.sh/gpu-memory-ratio": 50}, "50% of the memory of a GPU"),
        ({"koordinator.sh/gpu-memory": 30 * GIB}, "30Gi of the memory of a GPU"),
        (
            {"koordinator.sh/gpu-core": 20, "koordinator.sh/gpu-memory": 30 * GIB},
            "30Gi of the memory and 20% of the compute of a GPU",
        ),
        (
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 100},
            "50% of the memory of each of 2 GPUs",
        ),
        ({"nvidia.com/gpu": 2, "koordinator.sh/rdma": 100}, "2 GPUs and 1 RDMA device"),
        ({"koordinator.sh/rdma": 50}, "50% of an RDMA device"),
        ({"koordinator.sh/fpga": 200}, "2 FPGAs"),
    ],
)
def test_what_a_pod_asks_for_in_words(requests: dict[str, int], words: str) -> None:
    """In devices, not in the units of resource names."""
    request = device_request(requests)
    assert isinstance(request, DeviceRequest)
    assert asked_in_words(request) == words


def test_percents_that_admission_wrote_in_bytes_are_told_in_percent() -> None:
    """As the user wrote them."""
    request = device_request({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": 40 * GIB}, translated=True)
    assert request is not None
    assert asked_in_words(request) == "50% of a GPU"
