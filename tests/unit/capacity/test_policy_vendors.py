"""Names of whole GPUs that only the policy knows: their pods hold GPUs as those of the built-in names do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.pod import Pod, Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.devices.allocation import spare_devices
from engine.gang.gang import Gang
from engine.gang.summary import gpu_count
from engine.policy.model import Policy, parse_policy
from engine.resources.request import device_request
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import changed, pod
from tests.support.gpu_hosts import gpu_job, gpu_node, gpus, share, use, with_uses
from webhook.queries.hosts import holders_of

NAME = "example.com/accelerator"
KNOWN = parse_policy(f"gpu: {{vendors: [amd.com/gpu, {NAME}]}}")
UNKNOWN = parse_policy("{}")
HALF = share(50)


def asking(count: int, **more: int) -> Shape:
    """As a pod is read, which knows no name of the policy."""
    requests = {"pods": 1, NAME: count, **more}
    return Shape(requests=tuple(sorted(requests.items())), devices=device_request(requests))


class Host:
    """One host with four GPUs, two on a PCIe scope, that its node also reports by the policy's name; and a gang."""

    def __init__(self, policy: Policy, shape: Shape, *, count: int = 1, ranked: bool = True, listed: int = 4) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores, policy)
        job = gpu_job("g", shape, count=count, require=None, held=True, ranked=ranked)
        self.workload = replace(job, annotations={**job.annotations, names.UNCONSTRAINED: "true"})
        node = gpu_node("h")
        amounts = {key: amount for key, amount in node.allocatable.items() if key != "nvidia.com/gpu"}
        self.stores.nodes.replace([replace(node, allocatable={**amounts, NAME: 4})])
        self.stores.devices.replace([gpus("h", listed)])
        self.stores.workloads.replace([self.workload])
        self.view.refresh()

    @property
    def gang(self) -> Gang:
        gang = self.view.gangs.get(self.workload.uid)
        assert gang is not None
        return gang

    def place(self) -> list[list[int]]:
        """Place the gang; the GPUs of each pod."""
        outcome = schedule_gang(self.view, self.gang)
        assert isinstance(outcome, Placed), outcome
        placed = new_placement(self.gang, outcome, priority=0, now=0.0)
        self.stores.placements.apply("ADDED", replace(placed, uid="u", resource_version="5"))
        self.view.refresh()
        return [[use.minor for use in uses] for slot in outcome.pod_sets[0].slots for uses in slot.devices or ()]

    def show(self, *pods: Pod) -> None:
        for one in pods:
            self.stores.pods.apply("ADDED", one)
        self.view.refresh()

    def bound(self, name: str, shape: Shape, *minors: int) -> Pod:
        """A pod of nobody's gang."""
        made = pod(gpu_job(name, shape), None, host="h", name=name)
        made = replace(made, owner=None, spec=replace(made.spec, shape=shape, labels={}))
        return with_uses(made, *map(use, minors)) if minors else made

    def free(self, shape: Shape = HALF) -> int:
        return int(self.view.capacity.count(shape, self.view.topologies["default"]).free[0])


def test_gpus_that_pods_hold_by_a_name_of_the_policy_leave_no_room_for_parts() -> None:
    """Four of four GPUs are taken, whether the pods say which they have or not."""
    host = Host(KNOWN, HALF)
    host.show(host.bound("a", asking(2), 0, 1), host.bound("b", asking(2)))
    assert host.free() == 0


def test_gpus_that_a_gang_is_to_get_by_a_name_of_the_policy_leave_no_room_for_parts() -> None:
    host = Host(KNOWN, asking(2), count=2)
    assert host.place() == [[0, 1], [2, 3]]
    assert host.free() == 0


def test_a_gang_by_a_name_of_the_policy_gets_gpus_that_nobody_has() -> None:
    """By its part of a GPU one pod leaves three whole ones."""
    host = Host(KNOWN, asking(1), count=3)
    host.show(with_uses(host.bound("half", HALF), use(2, 50)))
    assert sorted(host.place()) == [[0], [1], [3]]


def test_a_name_that_the_policy_gets_later_counts_the_gpus_in_use() -> None:
    """And without it they count by number alone again."""
    host = Host(UNKNOWN, HALF)
    host.show(host.bound("a", asking(2), 0, 3))
    assert host.free() == 8
    host.view.set_policy(KNOWN)
    assert host.free() == 4
    assert [one.device.minor for one in host.view.capacity._devices.left(0) if not one.empty] == [0, 3]
    host.view.set_policy(UNKNOWN)
    assert host.free() == 8


def test_a_placed_gang_keeps_its_gpus_while_the_policy_knows_its_name() -> None:
    host = Host(KNOWN, asking(2), count=1)
    assert host.place() == [[0, 1]]
    host.view.set_policy(UNKNOWN)
    assert host.free() == 8
    host.view.set_policy(KNOWN)
    assert host.free() == 4


def test_pods_without_ranks_are_told_apart_by_the_gpus_of_their_annotations() -> None:
    """One runs on the second GPU of the slot: the first and the third are left for the others."""
    host = Host(KNOWN, asking(1), count=3, ranked=False)
    assert host.place() == [[0], [1], [2]]
    assert host.gang.placement is not None and host.gang.placement.assignment is not None
    (slot,) = host.gang.placement.assignment.pod_sets[0].slots
    made = pod(host.workload, None, host="h", name="a")
    spare = spare_devices(slot, [with_uses(made, use(1))])
    assert [[use.minor for use in uses] for uses in spare] == [[0], [2]]
    host.show(with_uses(made, use(1)))
    assert host.free() == 2


def test_a_pod_with_further_devices_keeps_them() -> None:
    host = Host(KNOWN, asking(1, **{"koordinator.sh/rdma": 100}))
    devices = host.gang.shapes["main"].devices
    assert devices is not None
    assert (devices.gpus, devices.whole, devices.rdma, devices.name) == (1, True, 100, NAME)


@pytest.mark.parametrize(("policy", "told"), [(KNOWN, []), (UNKNOWN, ["the pods request no GPU"])])
def test_a_scope_may_be_required_of_gpus_by_a_name_of_the_policy(policy: Policy, told: list[str]) -> None:
    host = Host(policy, asking(2))
    near = changed(
        host.workload, annotations={**host.workload.annotations, names.DEVICE_SCOPE: "pcie"}, resource_version="9" * 7
    )
    host.stores.workloads.apply("MODIFIED", near)
    host.view.refresh()
    assert [error.message.split(", and ")[1].split(";")[0] for error in host.gang.request.errors] == told
    if not told:
        assert host.place() == [[0, 1]]


def test_the_gpus_of_a_gang_are_counted_by_a_name_of_the_policy() -> None:
    host = Host(KNOWN, asking(2), count=2)
    assert gpu_count(host.gang) == 4
    host.place()
    host.show(host.bound("other", asking(1)))
    found = holders_of(host.view)
    assert (found.reserved_gpus["h"], found.others["h"]) == (4, 1)
    host.show(with_uses(pod(host.workload, 0, host="h", name="a"), use(0), use(1)))
    assert [(one.pods, one.reserved, one.gpus) for one in holders_of(host.view).holdings["h"]] == [(1, 1, 4)]


def test_a_gang_is_told_the_gpus_that_are_left() -> None:
    """Parts of GPUs are used on all four: the node's number alone would have room."""
    host = Host(KNOWN, asking(1))
    host.show(*(with_uses(host.bound(f"p{minor}", HALF), use(minor, 50)) for minor in range(4)))
    outcome = schedule_gang(host.view, host.gang)
    assert not isinstance(outcome, Placed)
    assert "1 GPU" in outcome.message


def test_a_device_object_with_fewer_gpus_than_the_node_reports_counts() -> None:
    host = Host(KNOWN, asking(1), listed=3)
    assert host.free(host.gang.shapes["main"]) == 3
    (note,) = host.view.capacity.device_notes("h")
    assert f"{NAME} 4" in note and "3 counted" in note


def test_an_annotation_of_a_pod_without_gpus_is_no_use_of_them() -> None:
    """Whoever wrote it."""
    host = Host(KNOWN, HALF)
    host.show(host.bound("forged", Shape(requests=(("pods", 1),)), 0, 1, 2, 3))
    assert host.free() == 8
    assert json.loads(host.stores.pods.get(("default", "forged")).spec.annotations[names.DEVICE_ALLOCATED])["gpu"]  # type: ignore[union-attr]
