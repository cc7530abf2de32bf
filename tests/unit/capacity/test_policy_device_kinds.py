"""Kinds of devices come and go with the policy while gangs run: what is in use stays counted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.devices import node_devices
from engine.devices.allocation import allocation, declared_uses
from engine.devices.hosts import NOT_UNDERSTOOD
from engine.gang.repair import growth_request
from engine.policy.model import Policy, parse_policy
from engine.scheduler.devices import reallocate_devices
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_extension, schedule_gang
from tests.support.cluster_records import changed, pod
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

    def __init__(self, policy: Policy, *, ranked: bool = True, count: int = 1, **amounts: int) -> None:
        self.stores = Stores()
        self.faults: dict[str, tuple[str, ...]] = {}
        self.view = ClusterState(self.stores, policy, device_faults=self.faults.__setitem__)
        self.shape = shape(**(amounts or {NPU: 2}))
        self.workload = gpu_job("g", self.shape, count=count, require=None, held=True, ranked=ranked)
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

    def bound_of_gang(self, *minors: int) -> None:
        """The pod of the gang is bound there, with the devices of its annotation."""
        self._of_gang(pod(self.workload, 0, host="h", uid="own", name="own"), minors)

    def released_of_gang(self, *minors: int) -> None:
        """A pod of the gang, which has no ranks, is on its way there, with the devices of its annotation."""
        self._of_gang(pod(self.workload, None, pin="h", uid="c", name="c"), minors)

    def _of_gang(self, made: Pod, minors: Iterable[int]) -> None:
        annotations = {names.DEVICE_ALLOCATED: json.dumps({"npu": [{"minor": minor} for minor in minors]})}
        self.stores.pods.apply("ADDED", replace(made, spec=replace(made.spec, annotations=annotations)))

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


def test_a_part_of_a_device_is_reserved_in_full_for_a_pod_that_is_released_and_not_bound() -> None:
    """Its annotation names the device, and its request the part."""
    host = Host(KIND, ranked=False, **{CORE: 60})
    placed = host.plan()
    assert placed is not None
    host.stores.placements.apply("ADDED", replace(placed, uid="u", resource_version="5"))
    host.released_of_gang(0)
    host.view.refresh()
    asked = KIND.device_kinds.extended(None, ((CORE, 60),))
    assert asked is not None
    chosen = host.view.capacity.choose("h", asked, 3)
    assert [use.minor for uses in chosen or () for use in uses] == [1, 2, 3]
    assert host.view.capacity.choose("h", asked, 4) is None


def test_a_sick_device_is_not_replaced_by_one_that_a_released_pod_has() -> None:
    """The first pod is on its way to device 0, and device 1, of the second one, turns sick."""
    host = Host(KIND, ranked=False, count=2, **{CORE: 60})
    placed = host.plan()
    assert placed is not None
    host.stores.placements.apply("ADDED", replace(placed, uid="u", resource_version="5"))
    host.released_of_gang(0)
    known = host.stores.devices.get("h")
    assert known is not None
    sick = tuple(replace(one, healthy=one.minor != 1) for one in known.devices)
    host.stores.devices.apply("MODIFIED", replace(known, devices=sick, resource_version="2"))
    host.view.refresh()
    gang = host.view.gangs.get(host.workload.uid)
    assert gang is not None
    after = reallocate_devices(gang, host.view.capacity)
    assert after is not None
    (slot,) = after.pod_sets[0].slots
    assert [use.minor for uses in slot.devices or () for use in uses] == [0, 2]


def test_a_gang_that_grows_keeps_the_parts_of_devices_of_its_pods() -> None:
    """When one of them is replaced, its part is reserved in full, and told to the new pod as before."""
    host = Host(KIND, **{CORE: 50})
    placed = host.plan()
    assert placed is not None and placed.assignment is not None
    (slot,) = placed.assignment.pod_sets[0].slots
    host.stores.placements.apply("ADDED", replace(placed, uid="u", resource_version="5"))
    host.bound_of_gang(0)
    host.workload = changed(host.workload, resource_version=str(10**6), suspended=False, slots=2, total=2, remaining=2)
    host.stores.workloads.apply("MODIFIED", host.workload)
    host.view.refresh()
    gang = host.view.gangs.get(host.workload.uid)
    assert gang is not None and gang.placement is not None
    more = growth_request(gang.workload, gang.placement, gang.pods, asks=gang.request.pod_sets, gang=gang.request.gang)
    assert more is not None
    outcome = schedule_extension(host.view, gang, more)
    assert isinstance(outcome, Placed)
    assert [use for one in outcome.pod_sets[0].slots for use in one.devices or ()] == [*(slot.devices or ())] * 2


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
