"""Kinds of devices come and go with the policy while gangs run: what is in use stays counted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.devices import node_devices
from engine.devices.allocation import allocation, declared_uses
from engine.devices.hosts import NOT_UNDERSTOOD
from engine.policy.model import Policy, parse_policy
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import pod
from tests.support.gpu_hosts import gpu_job, gpu_node

NPU, CORE = "example.com/npu", "example.com/npu-core"
KIND = parse_policy(f"devices: {{kinds: [{{type: npu, resources: {{whole: {NPU}, core: {CORE}}}}}]}}")
NONE = parse_policy("{}")


def device_object(npus: int, *, core: str = "100") -> bytes:
    one = {"type": "npu", "health": True, "resources": {CORE: core}}
    spec = {"devices": [{**one, "minor": minor, "id": f"N{minor}"} for minor in range(npus)]}
    return json.dumps({"metadata": {"name": "h", "uid": "u", "resourceVersion": "1"}, "spec": spec}).encode()


class Host:
    """One host with four NPUs."""

    def __init__(self, policy: Policy, **amounts: int) -> None:
        self.stores = Stores()
        self.faults: dict[str, tuple[str, ...]] = {}
        self.view = ClusterState(self.stores, policy, device_faults=self.faults.__setitem__)
        self.shape = shape(**(amounts or {NPU: 2}))
        self.workload = gpu_job("g", self.shape, count=1, require=None, held=True)
        self.workload = replace(self.workload, annotations={**self.workload.annotations, names.UNCONSTRAINED: "true"})
        node = gpu_node("h")
        self.stores.nodes.replace([replace(node, allocatable={**node.allocatable, NPU: 4, CORE: 400})])
        self.stores.devices.replace([node_devices(device_object(4))])
        self.stores.workloads.replace([self.workload])
        self.view.refresh()

    def plan(self) -> Placement | None:
        gang = self.view.gangs.get(self.workload.uid)
        assert gang is not None
        outcome = schedule_gang(self.view, gang)
        return new_placement(gang, outcome, priority=0, now=0.0) if isinstance(outcome, Placed) else None

    def minors(self) -> list[int] | None:
        """The devices that the gang would get; None: it is not placed."""
        placement = self.plan()
        if placement is None or placement.assignment is None:
            return None
        (slot,) = placement.assignment.pod_sets[0].slots
        return [use.minor for uses in slot.devices or () for use in uses]

    def bound(self, name: str, *minors: int, annotation: str | None = None, **amounts: int) -> None:
        """Another pod is bound there, with the devices of its annotation."""
        text = annotation or json.dumps({"npu": [{"minor": minor} for minor in minors]})
        made = pod(self.workload, None, host="h", uid=name, name=name)
        spec = replace(made.spec, shape=shape(**amounts), annotations={names.DEVICE_ALLOCATED: text}, labels={})
        self.stores.pods.apply("ADDED", replace(made, spec=spec, owner=None))
        self.view.refresh()


def shape(**amounts: int) -> Shape:
    return Shape(requests=(("pods", 1), *sorted(amounts.items())), node_selector=(), affinity=None, tolerations=())


def test_a_kind_that_is_declared_later_counts_the_devices_in_use() -> None:
    host = Host(NONE)
    host.bound("other", 1, **{NPU: 1})
    assert host.minors() == []
    assert host.faults["h"] == ("npu is none of gpu, rdma, fpga",)
    assert host.view.capacity.device_problem("h") == NOT_UNDERSTOOD
    host.view.set_policy(KIND)
    assert host.minors() == [0, 2]
    assert host.faults["h"] == ()
    assert host.view.capacity.device_problem("h") == ""


def test_a_kind_that_is_removed_counts_by_number() -> None:
    """Three of four are in use: one pod more fits, whatever device it gets; two do not."""
    host = Host(KIND)
    host.bound("other", 1, 2, 3, **{NPU: 3})
    assert host.minors() is None
    host.view.set_policy(NONE)
    assert host.minors() is None
    host.bound("other", 1, **{NPU: 1})
    assert host.minors() == []
    host.view.set_policy(KIND)
    assert host.minors() == [0, 2]


def test_a_placement_outlives_its_kind() -> None:
    """Its reservation counts again, by device, when the kind is back; its pods need no device without it."""
    host = Host(KIND)
    placed = host.plan()
    assert placed is not None and placed.assignment is not None
    host.stores.placements.apply("ADDED", replace(placed, uid="u", resource_version="5"))
    host.view.refresh()

    def free() -> list[int]:
        chosen = host.view.capacity.choose("h", asked, 2)
        return [use.minor for uses in chosen or () for use in uses]

    asked = KIND.device_kinds.extended(None, ((NPU, 1),))
    assert asked is not None
    assert free() == [2, 3]
    host.view.set_policy(NONE)
    assert host.view.capacity.free("h")[NPU] == 2
    host.view.set_policy(KIND)
    assert free() == [2, 3]
    (slot,) = placed.assignment.pod_sets[0].slots
    assert slot.devices is not None
    assert declared_uses(slot.devices[0], NONE.device_kinds) == ()
    text = allocation(slot.devices[0], host.stores.devices.get("h"), KIND.device_kinds)
    part = {"resources": {CORE: "100"}}
    assert json.loads(text or "") == {"npu": [{"minor": n, **part, "id": f"N{n}"} for n in (0, 1)]}


def test_a_policy_with_other_names_counts_anew() -> None:
    """The dimension that the Device object does not report is zero now."""
    host = Host(KIND, **{CORE: 50})
    assert host.minors() == [0]
    other = parse_policy("devices: {kinds: [{type: npu, resources: {core: example.com/npu-core, memory: x/m}}]}")
    host.view.set_policy(other)
    assert other.device_kinds.extended(None, ((CORE, 50),)) is None
    host.view.set_policy(KIND)
    assert host.minors() == [0]


@pytest.mark.parametrize(
    "annotation",
    ['{"npu":[{"minor":-1}]}', '{"npu":7}', '{"npu":[{"minor":99}]}', '{"npu":[]}', "no json", '{"gpu":[{"minor":1}]}'],
)
def test_a_forged_annotation_hides_no_usage(annotation: str) -> None:
    """What the pod requests is in use on some device."""
    host = Host(KIND)
    host.bound("other", annotation=annotation, **{NPU: 3})
    assert host.minors() is None


def test_an_annotation_takes_no_more_than_the_pod_requests() -> None:
    host = Host(KIND)
    host.bound("other", 0, 1, 2, 3, **{NPU: 1})
    assert host.minors() == [1, 2]
    host.bound("nothing", 0, 1, 2, 3, cpu=1)
    assert host.minors() == [1, 2]
