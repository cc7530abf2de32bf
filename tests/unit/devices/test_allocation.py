"""Which devices the pods of a gang get: chosen, written down, handed out, chosen anew."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from engine.api import names
from engine.api.device import DeviceUse, NodeDevices
from engine.api.placement import Placement
from engine.api.pod import Pod, Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.placements import placement, placement_body
from engine.devices.allocation import allocation, devices_by_rank, devices_of, gpu_limits, visible_devices
from engine.gang.gang import Gang, rank_of
from engine.gang.pin import placed_pod, release_patch
from engine.gang.slots import assign_slots, scaled_down, slots_of
from engine.lifecycle.actions import Extend, ReassignDevices, Release, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.reconcile import reconcile
from engine.resources.names import CORE, MEMORY, RATIO
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_extension, schedule_gang
from tests.support.cluster_records import changed, pinned, pod
from tests.support.gpu_hosts import GIB, asking, gpu_job, gpu_node, gpus, share, use, with_uses

ONE, HALF = asking(gpu=1), share(50)


class Site:
    """A view of one host with four GPUs (two a PCIe scope) and one gang there; writes come back at once."""

    def __init__(self, shape: Shape, *, count: int, told: bool = True, ranked: bool = True, **more: object) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        self.workload = gpu_job("g", shape, count=count, require=None, held=True, ranked=ranked, **more)
        self.workload = replace(self.workload, annotations={**self.workload.annotations, names.UNCONSTRAINED: "true"})
        self.stores.nodes.replace([gpu_node("h")])
        self.stores.devices.replace([gpus("h")] if told else [])
        self.stores.workloads.replace([self.workload])
        self.version = 10**6
        self.view.refresh()

    @property
    def gang(self) -> Gang:
        gang = self.view.gangs.get(self.workload.uid)
        assert gang is not None
        return gang

    def plan(self) -> Placement:
        outcome = schedule_gang(self.view, self.gang)
        assert isinstance(outcome, Placed), outcome
        return self.write(new_placement(self.gang, outcome, priority=0, now=0.0))

    def write(self, proposal: Placement) -> Placement:
        """As the API server has it: a leader that starts now reads the same."""
        self.version += 1
        body = placement_body(proposal)
        body["metadata"] |= {"uid": "u", "resourceVersion": str(self.version), "generation": 1}
        written = placement(json.dumps(body).encode())
        self.stores.placements.apply("MODIFIED", written)
        self.view.refresh()
        return written

    def run(self) -> None:
        self.workload = replace(self.workload, suspended=False, resource_version=str(self.version))
        self.stores.workloads.apply("MODIFIED", self.workload)
        self.view.refresh()

    def grow(self, **counts: int) -> Placed:
        """The workload has these numbers of pods now; the plan of the slots that it lacks."""
        self.workload = changed(self.workload, resource_version=str(self.version + 1), **counts)
        self.stores.workloads.apply("MODIFIED", self.workload)
        self.view.refresh()
        grow = self.decide()
        assert isinstance(grow, Extend), grow
        outcome = schedule_extension(self.view, self.gang, grow.extension)
        assert isinstance(outcome, Placed), outcome
        return outcome

    def tell(self, devices: NodeDevices) -> None:
        self.stores.devices.apply("MODIFIED", devices)
        self.view.refresh()

    def show(self, *pods: Pod) -> None:
        for one in pods:
            self.version += 1
            self.stores.pods.apply("MODIFIED", replace(one, resource_version=str(self.version)))
        self.view.refresh()

    def held(self, rank: int | None) -> Pod:
        return pod(self.workload, rank, gated=True, uid=f"uid-{rank}", name=f"g-{rank}")

    def bound(self, rank: int | None, *uses: DeviceUse, name: str | None = None) -> Pod:
        made = pod(self.workload, rank, host="h", uid=f"uid-{name or rank}", name=name or f"g-{rank}")
        return with_uses(made, *uses) if uses else made

    def decide(self) -> object:
        gang = self.gang
        hosts = HostHealth(gang, self.view.capacity, self.view.topologies, now=0.0)
        return reconcile(gang, timers=Timers(), policy=self.view.policy, now=0.0, hosts=hosts).action


def minors(devices: Iterable[Iterable[DeviceUse]] | None) -> list[list[int]]:
    return [[use.minor for use in uses] for uses in devices or ()]


def devices_in(placement: Placement) -> list[list[int]]:
    assert placement.assignment is not None
    return [one for slot in slots_of(placement.assignment) for one in minors(slot.devices)]


def test_each_rank_gets_its_devices_with_its_slot() -> None:
    """Written in the Placement in the order of the ranks, without ids."""
    placed = Site(asking(gpu=2), count=2).plan()
    assert devices_in(placed) == [[0, 1], [2, 3]]
    assert placed.assignment is not None
    assert all(use.id == "" for slot in slots_of(placed.assignment) for uses in slot.devices or () for use in uses)


def test_shares_are_packed_on_one_device() -> None:
    """Two halves on the first GPU, the next two on the second."""
    assert devices_in(Site(HALF, count=4).plan()) == [[0], [0], [1], [1]]


def test_a_host_that_does_not_tell_its_devices_gives_none() -> None:
    """Its slots count all the same."""
    placed = Site(ONE, count=4, told=False).plan()
    assert placed.assignment is not None
    assert [(slot.count, slot.devices) for slot in slots_of(placed.assignment)] == [(4, None)]


def test_devices_that_others_hold_are_left_alone() -> None:
    """A bound pod's annotation counts, also that of a pod of nobody's gang."""
    site = Site(ONE, count=2)
    stranger = gpu_job("x", HALF, count=1)
    site.show(with_uses(pod(stranger, 0, host="h"), use(0, 50)))
    assert devices_in(site.plan()) == [[1], [2]]


def test_held_pods_take_the_devices_of_their_ranks() -> None:
    """Whatever order they come in."""
    site = Site(ONE, count=3)
    placed = site.plan()
    site.run()
    seats = assign_slots(site.workload, placed, [site.held(2), site.held(0), site.held(1)]).assignments
    assert {one.rank: [use.minor for use in one.devices] for one in seats} == {
        rank: minors for rank, minors in enumerate(devices_in(placed))
    }


def test_the_ranks_that_have_not_completed_get_devices_for_themselves_alone() -> None:
    """Four GPUs are enough for the rest of six pods; each rank gets the one written for it."""
    site = Site(ONE, count=6, finished_ranks=((0, 0), (2, 2)), remaining=4)
    placed = site.plan()
    assert placed.assignment is not None
    assert [slot.ranks for slot in slots_of(placed.assignment)] == [((1, 1), (3, 5))]
    assert devices_in(placed) == [[0], [1], [2], [3]]
    site.run()
    seats = assign_slots(site.workload, placed, [site.held(rank) for rank in (5, 3, 4, 1)]).assignments
    assert {one.rank: [use.minor for use in one.devices] for one in seats} == {1: [0], 3: [1], 4: [2], 5: [3]}


def test_a_rank_that_runs_keeps_its_devices_where_others_have_completed() -> None:
    """Rank 2 of four runs on GPU 0; the gang grows by two ranks, which get others."""
    site = Site(ONE, count=4, finished_ranks=((0, 1),), remaining=2)
    site.plan()
    site.run()
    site.show(site.bound(2, use(0)), site.bound(3, use(1)))
    outcome = site.grow(slots=6, total=6, remaining=4)
    after = {rank: uses for plan in outcome.pod_sets for rank, uses in devices_by_rank(plan).items()}
    assert {rank: [use.minor for use in uses or ()] for rank, uses in after.items()} == {2: [0], 3: [1], 4: [2], 5: [3]}


@pytest.mark.parametrize("shape", [HALF, asking(memory=30 * GIB), asking(core=20, memory=50 * GIB), ONE])
@pytest.mark.parametrize("ranked", [True, False])
def test_a_pod_that_replaces_one_of_a_gang_that_has_grown_gets_the_same_amounts(shape: Shape, ranked: bool) -> None:
    """The device of a running pod is read from the pod, which says no amount that it does not request."""
    site = Site(shape, count=1, ranked=ranked)
    (before,) = slots_of(site.plan().assignment)
    assert before.devices is not None
    site.run()
    site.show(site.bound(0 if ranked else None, *before.devices[0]))
    outcome = site.grow(slots=2, total=2, remaining=2)
    after = [uses for plan in outcome.pod_sets for slot in plan.slots for uses in slot.devices or ()]
    assert len(after) == 2
    assert before.devices[0] in after
    told = [allocation(uses, site.stores.devices.get("h")) for uses in (before.devices[0], *after)]
    assert len({gpu_limits(one) for one in told}) == 1


def test_unranked_pods_take_what_no_live_pod_of_the_gang_has() -> None:
    """One runs on the second device of the slot: the next two take the first and the third."""
    site = Site(ONE, count=3, ranked=False)
    placed = site.plan()
    site.run()
    (first,), (second,), (third,) = devices_in(placed)
    seats = assign_slots(
        site.workload, placed, [site.bound(None, use(second), name="a"), site.held(None), site.held(None)]
    ).assignments
    assert [[use.minor for use in one.devices] for one in seats] == [[first], [third]]


def test_the_release_tells_the_pod_its_devices() -> None:
    """In the same PATCH as the pin, with the ids of now."""
    site = Site(ONE, count=1)
    placed = site.plan()
    site.run()
    (one,) = assign_slots(site.workload, placed, [site.held(0)]).assignments
    told = allocation(one.devices, site.stores.devices.get("h"))
    assert told is not None
    pinned = placed_pod(one.pod, one.slot, placement=placed, pod_set="main", rank=0, pin_labels={}, devices=told)
    patch = release_patch(one.pod, pinned)
    written = json.loads(patch["metadata"]["annotations"][names.DEVICE_ALLOCATED])
    assert [(device["minor"], device["id"]) for device in written["gpu"]] == [(0, "GPU-h-0")]
    read = with_uses(site.held(0), *[replace(use, id="x") for use in one.devices])
    assert [use.minor for use in devices_of(read) or ()] == [0]


def test_an_allocation_of_a_device_that_is_sick_or_gone_is_none() -> None:
    """Nobody gets it."""
    wanted = (use(3),)
    assert allocation(wanted, gpus("h")) is not None
    assert allocation(wanted, gpus("h", sick=(3,))) is None
    assert allocation(wanted, gpus("h", 3)) is None
    assert allocation(wanted, None) is None


def test_the_reservation_holds_the_very_devices_until_the_pods_have_them() -> None:
    """Before, while and after a pod is bound the same devices are free."""
    site = Site(ONE, count=2)
    (first,), (second,) = devices_in(site.plan())
    site.run()

    def free() -> list[list[int]]:
        return minors(site.view.capacity.choose("h", ONE.devices, 2))  # type: ignore[arg-type]

    before = free()
    assert sorted(minor for (minor,) in before) == sorted({0, 1, 2, 3} - {first, second})
    site.show(site.bound(1, use(second)))
    assert free() == before
    site.show(site.bound(0, use(first)))
    assert free() == before


def test_a_pod_bound_elsewhere_gives_its_devices_back() -> None:
    """Somebody has put it there: the slot of its rank is filled, so its devices are nobody's."""
    site = Site(asking(gpu=2), count=2)
    site.plan()
    site.run()
    site.stores.nodes.apply("ADDED", gpu_node("other"))
    elsewhere = pod(site.workload, 1, host="other", pin="h", uid="uid-1", name="g-1")
    site.show(elsewhere)
    assert minors(site.view.capacity.choose("h", ONE.devices, 2)) == [[2], [3]]  # type: ignore[arg-type]


def test_a_sick_device_is_chosen_anew_on_the_same_host() -> None:
    """Before its pod is there: another device of the host, in a new revision; the others keep theirs."""
    site = Site(ONE, count=2)
    (first,), (second,) = devices_in(site.plan())
    site.run()
    site.show(site.bound(0, use(first)), site.held(1))
    site.tell(gpus("h", sick=(second,)))
    action = site.decide()
    assert isinstance(action, ReassignDevices)
    written = site.write(replace(site.gang.placement, assignment=action.assignment))  # type: ignore[type-var]
    (kept,), (other,) = devices_in(written)
    assert kept == first and other not in (first, second)
    release = site.decide()
    assert isinstance(release, Release)
    assert [[use.minor for use in one.devices] for one in release.assignments] == [[other]]


def test_a_device_that_another_pod_took_is_chosen_anew() -> None:
    """Somebody's pod was bound on it by somebody else's scheduler."""
    site = Site(ONE, count=1)
    ((mine,),) = devices_in(site.plan())
    site.run()
    site.show(site.held(0), with_uses(pod(gpu_job("x", HALF, count=1), 0, host="h"), use(mine, 50)))
    action = site.decide()
    assert isinstance(action, ReassignDevices)
    (slot,) = slots_of(action.assignment)
    assert minors(slot.devices) != [[mine]]


def test_without_another_device_the_gang_goes_elsewhere() -> None:
    """All four GPUs are its own, one turns sick: the room is lost, as any other room that others took."""
    site = Site(ONE, count=4)
    site.plan()
    site.tell(gpus("h", sick=(1,)))
    action = site.decide()
    assert isinstance(action, Unplace)
    assert action.reason == "ReservedByOthers"


def test_a_running_gang_loses_nothing_by_a_device_that_turns_sick() -> None:
    """Its pod is there already: what becomes of it is told by the node, not by us."""
    site = Site(ONE, count=1)
    ((mine,),) = devices_in(site.plan())
    site.run()
    site.show(site.bound(0, use(mine)))
    site.tell(gpus("h", sick=(mine,)))
    assert not isinstance(site.decide(), ReassignDevices | Unplace)


def test_a_replacement_gets_the_devices_of_the_pod_that_it_replaces() -> None:
    """The terminating pod and the one that comes after it share the slot."""
    site = Site(ONE, count=2)
    placed = site.plan()
    site.run()
    (first,), (second,) = devices_in(placed)
    leaving = replace(site.bound(0, use(first)), deleting=True)
    site.show(leaving, site.bound(1, use(second)))
    again = replace(site.held(0), name="g-0-again", uid="again")
    (one,) = assign_slots(site.workload, placed, [leaving, site.bound(1, use(second)), again]).assignments
    assert [use.minor for use in one.devices] == [first]
    assert not isinstance(site.decide(), ReassignDevices)


def test_a_gang_that_joins_its_running_part_keeps_the_devices_of_that_part() -> None:
    """Its Placement was deleted: the rank that runs keeps the device that it says itself."""
    site = Site(ONE, count=2)
    site.run()
    site.show(site.bound(1, use(3)), site.held(0))
    placed = site.plan()
    assert devices_in(placed) == [[2], [3]]


def test_a_scaled_down_gang_keeps_the_devices_of_the_ranks_that_stay() -> None:
    """The highest ranks go, and their devices with them."""
    site = Site(ONE, count=3)
    placed = site.plan()
    smaller = scaled_down(changed(site.workload, slots=2, total=2), placed, [])
    assert smaller is not None
    assert [one for slot in slots_of(smaller) for one in minors(slot.devices)] == devices_in(placed)[:2]


def test_an_unranked_gang_that_shrinks_keeps_the_devices_of_its_pods() -> None:
    """What no pod has goes first."""
    site = Site(ONE, count=3, ranked=False)
    placed = site.plan()
    last = devices_in(placed)[2][0]
    smaller = scaled_down(changed(site.workload, slots=1, total=1), placed, [site.bound(None, use(last), name="a")])
    assert smaller is not None
    assert [one for slot in slots_of(smaller) for one in minors(slot.devices)] == [[last]]


def test_a_rank_that_is_no_slot_takes_any_device_of_the_slot() -> None:
    """More completions than pods at a time: the leader gives the free slot, and with it the free device."""
    site = Site(ONE, count=2, total=6, remaining=6)
    placed = site.plan()
    site.run()
    (first,), (second,) = devices_in(placed)
    seating = assign_slots(site.workload, placed, [site.bound(3, use(first)), site.held(4)])
    assert [[use.minor for use in one.devices] for one in seating.assignments] == [[second]]
    assert [rank_of(one.pod, site.workload.pod_sets[0]) for one in seating.assignments] == [4]


def test_pods_that_were_let_go_keep_their_devices_reserved() -> None:
    """They can be bound at any moment."""
    site = Site(ONE, count=2, ranked=False)
    placed = site.plan()
    site.run()
    (_,), (second,) = devices_in(placed)
    coming = site.held(None)
    coming = replace(coming, spec=replace(coming.spec, gates=(), shape=pinned(coming.spec.shape, "h")))
    site.show(with_uses(coming, use(second)), site.bound(None, name="b"))
    chosen = site.view.capacity.choose("h", ONE.devices, 2)  # type: ignore[arg-type]
    assert [second] not in minors(chosen)


def test_gpus_are_named_by_uuid_or_minor() -> None:
    """Other devices are left out, and a GPU without a UUID has its minor."""
    text = json.dumps({"gpu": [{"minor": 3, "id": "GPU-3"}, {"minor": 5}], "rdma": [{"minor": 0, "id": "mlx5_0"}]})
    assert visible_devices(text, minors=False) == "GPU-3,5"
    assert visible_devices(text, minors=True) == "3,5"
    assert visible_devices('{"rdma":[{"minor":0}]}', minors=False) is None
    assert visible_devices(None, minors=False) is None


@pytest.mark.parametrize(
    ("resources", "limits"),
    [
        ([{CORE: "50", MEMORY: "40Gi", RATIO: "50"}], ("50", "40960m")),
        ([{CORE: "30", MEMORY: "24Gi", RATIO: "30"}, {CORE: "30", MEMORY: "12Gi", RATIO: "30"}], ("30", "12288m")),
        ([{MEMORY: "1500Ki", RATIO: "1"}], (None, "1m")),
        ([{MEMORY: "1000", RATIO: "1"}], (None, "1000")),
        ([{CORE: "50", RATIO: "50"}], ("50", None)),
        ([{CORE: "50", MEMORY: "80Gi", RATIO: "100"}], ("50", None)),
        ([{CORE: "100", MEMORY: "80Gi", RATIO: "100"}] * 2, (None, None)),
        ([], (None, None)),
    ],
    ids=str,
)
def test_limits_are_those_of_parts(resources: list[dict[str, str]], limits: tuple[str | None, str | None]) -> None:
    """In the library's units, rounded down; nothing where the size of a GPU is unknown."""
    text = json.dumps({"gpu": [{"minor": number, "resources": one} for number, one in enumerate(resources)]})
    assert gpu_limits(text) == limits
    assert gpu_limits(None) == (None, None)
