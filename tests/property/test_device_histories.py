"""Whatever happens to gangs, pods and devices: no device is promised more often than it is there."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.device import DeviceUse
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding.placements import placement, placement_body
from engine.devices.allocation import allocation, devices_by_rank, parse_allocated
from engine.gang.gang import Gang, rank_of
from engine.gang.slots import done_ranks, slot_by_rank, slots_of
from engine.lifecycle.actions import ReassignDevices, Release, Unplace
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.reconcile import reconcile
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from tests.support.cluster_records import node, pinned, pod
from tests.support.gpu_hosts import GIB, asking, gpu_job, gpu_node, gpus, share

TOLD, COUNTED, PLAIN = ("told-0", "told-1", "told-2"), "counted", "plain"
SIZE = 80 * GIB
SHAPES = (share(50), share(30), asking(gpu=1), asking(gpu=2), asking(memory=30 * GIB), asking(core=20, memory=50 * GIB))
JOBS = range(8)
WEIGHTS = (8, 4, 6, 10, 10, 6, 2, 3)

step = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(JOBS), st.integers(0, len(SHAPES) - 1), st.integers(1, 4)),
    st.tuples(st.just("start"), st.sampled_from(JOBS), st.integers(0, len(SHAPES) - 1), st.integers(1, 4)),
    st.tuples(st.just("place"), st.sampled_from(JOBS), st.integers(0, len(SHAPES) - 1), st.integers(1, 4)),
    st.tuples(st.just("plan"), st.sampled_from(JOBS), st.just(0), st.just(0)),
    st.tuples(st.just("create"), st.sampled_from(JOBS), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("look"), st.sampled_from(JOBS), st.just(0), st.just(0)),
    st.tuples(st.just("bind"), st.sampled_from(JOBS), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("end"), st.sampled_from(JOBS), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.sampled_from(JOBS), st.just(0), st.just(0)),
    st.tuples(st.just("health"), st.integers(0, 2), st.sampled_from([0, 1, 2, 4, 6, 8]), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0), st.just(0)),
)


class World:
    """Hosts with four GPUs each: three tell their devices, one counts them, one knows only nvidia.com/gpu."""

    def __init__(self, *, ranked: bool) -> None:
        self.ranked = ranked
        self.stores = Stores()
        self.view = ClusterState(self.stores, grace=0.0)
        self.version = 10**6
        self.made = 0
        plain = node(PLAIN, allocatable={"cpu": 96_000, "pods": 110, "nvidia.com/gpu": 4})
        self.stores.nodes.replace([*map(gpu_node, TOLD), gpu_node(COUNTED), plain])
        self.stores.devices.replace([gpus(host) for host in TOLD])
        self.view.refresh()

    def next(self) -> str:
        self.version += 1
        return str(self.version)

    def gang(self, number: int) -> Gang | None:
        found = self.stores.workloads.get(("batch", "Job", "default", f"j{number}"))
        return None if found is None else self.view.gangs.get(found.uid)

    def write(self, proposal: Placement) -> None:
        body = placement_body(proposal)
        body["metadata"] |= {"uid": f"p-{proposal.workload.uid}", "resourceVersion": self.next(), "generation": 1}
        written = placement(json.dumps(body).encode())
        self.view.assume(proposal.workload.uid, proposal)
        self.stores.placements.apply_own_write(written)
        self.view.confirm(proposal.workload.uid, failed=False)

    def apply(self, what: str, number: int, one: int, other: int) -> None:
        match what:
            case "submit":
                self.submit(number, SHAPES[one], other)
            case "start":
                self.apply("place", number, one, other)
                for rank in range(other):
                    self.create(number, rank)
                self.view.refresh()
                self.look(number)
            case "place":
                self.submit(number, SHAPES[one], other)
                self.view.refresh()
                self.plan(number)
            case "plan":
                self.plan(number)
            case "create":
                self.create(number, one)
            case "look":
                self.look(number)
            case "bind":
                self.bind(number, one)
            case "end":
                self.end(number, one, how=other)
            case "delete":
                if (gang := self.gang(number)) is not None:
                    self.stores.workloads.apply("DELETED", replace(gang.workload, resource_version=self.next()))
                    for pod in gang.pods:
                        self.stores.pods.apply("DELETED", replace(pod, resource_version=self.next()))
            case "health":
                sick = tuple(minor for minor in range(4) if one >> minor & 1)
                self.stores.devices.apply("MODIFIED", gpus(TOLD[number], sick=sick, resource_version=self.next()))
                self.view.refresh()
                for job in JOBS:
                    self.look(job)
            case "restart":
                self.view = self.fresh()
        self.view.refresh()

    def submit(self, number: int, shape: object, count: int) -> None:
        if self.gang(number) is None:
            self.made += 1
            name = f"j{number}"
            job = gpu_job(name, shape, count=count, require=None, ranked=self.ranked, uid=f"{name}-{self.made}")  # type: ignore[arg-type]
            job = replace(job, annotations={names.UNCONSTRAINED: "true"}, resource_version=self.next())
            self.stores.workloads.apply("ADDED", job)

    def plan(self, number: int) -> None:
        gang = self.gang(number)
        if gang is not None and (gang.placement is None or gang.placement.assignment is None):
            outcome = schedule_gang(self.view, gang)
            if isinstance(outcome, Placed):
                self.write(new_placement(gang, outcome, priority=0, now=0.0))

    def create(self, number: int, rank: int) -> None:
        gang = self.gang(number)
        if gang is None or rank >= gang.workload.pod_sets[0].slots or any(name_of(one, rank) for one in gang.pods):
            return
        self.made += 1
        made = pod(gang.workload, rank if self.ranked else None, gated=True, name=f"{gang.workload.name}-{rank}")
        self.stores.pods.apply("ADDED", replace(made, uid=f"pod-{self.made}", resource_version=self.next()))

    def look(self, number: int) -> None:
        """What the leader does about a gang: choose devices anew, give back, or release."""
        gang = self.gang(number)
        if gang is None:
            return
        hosts = HostHealth(gang, self.view.capacity, self.view.topologies, now=0.0)
        action = reconcile(gang, timers=Timers(), policy=self.view.policy, now=0.0, hosts=hosts).action
        assert gang.placement is not None or not isinstance(action, ReassignDevices | Unplace | Release)
        match action:
            case ReassignDevices(assignment=assignment):
                self.write(replace(gang.placement, assignment=assignment))  # type: ignore[type-var]
            case Unplace():
                self.write(replace(gang.placement, assignment=None))  # type: ignore[type-var]
            case Release(assignments=seats):
                for seat in seats:
                    self.release(seat.pod, seat.slot.host, seat.devices)

    def release(self, one: Pod, host: str, uses: tuple[DeviceUse, ...]) -> None:
        annotations = dict(one.spec.annotations)
        if uses:
            told = allocation(uses, self.stores.devices.get(host))
            assert told is not None, "a sick device was handed out"
            annotations[names.DEVICE_ALLOCATED] = told
        spec = replace(one.spec, gates=(), shape=pinned(one.spec.shape, host), annotations=annotations)
        self.stores.pods.apply_own_write(replace(one, spec=spec, resource_version=self.next()))

    def bind(self, number: int, rank: int) -> None:
        for one in self.pods(number, rank):
            if not one.spec.gates and not one.spec.node_name:
                host = one.spec.shape.affinity[0].fields[0].values[0]  # type: ignore[index]
                spec = replace(one.spec, node_name=host)
                self.stores.pods.apply(
                    "MODIFIED", replace(one, spec=spec, phase="Running", resource_version=self.next())
                )

    def end(self, number: int, rank: int, *, how: int) -> None:
        for one in self.pods(number, rank):
            gone = replace(one, resource_version=self.next())
            match how:
                case 0:
                    self.stores.pods.apply("DELETED", gone)
                case 1:
                    self.stores.pods.apply("MODIFIED", replace(gone, phase="Failed"))
                case _:
                    self.stores.pods.apply("MODIFIED", replace(gone, deleting=True))

    def pods(self, number: int, rank: int) -> list[Pod]:
        gang = self.gang(number)
        return [] if gang is None else [one for one in gang.pods if name_of(one, rank)]

    def fresh(self) -> ClusterState:
        """The view of a leader that starts now: it has nothing but what the API server keeps."""
        stores = Stores()
        view = ClusterState(stores, grace=0.0)
        for name, store in self.stores.all().items():
            stores.all()[name].replace(store.values())
        view.refresh()
        self.stores = stores
        return view

    def promised(self) -> dict[tuple[str, int], list[int]]:
        """Device -> core, ratio and bytes that pods hold or Placements keep for ranks of which no pod has them yet."""
        total: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        for one in self.stores.pods.values():
            text = one.spec.annotations.get(names.DEVICE_ALLOCATED)
            going = one.deleting and not one.spec.node_name  # nobody binds it any more
            if text is not None and not one.finished and not going:
                host = one.spec.node_name or one.spec.shape.affinity[0].fields[0].values[0]  # type: ignore[index]
                add(total, host, parse_allocated(text)[0] or ())
        for number in JOBS:
            gang = self.gang(number)
            if gang is None or not self.ranked or gang.placement is None or gang.placement.assignment is None:
                continue
            (plan,), (pod_set,) = gang.placement.assignment.pod_sets, gang.workload.pod_sets
            by_rank, devices = slot_by_rank(plan), devices_by_rank(plan)
            live = {rank_of(one, pod_set) for one in gang.pods if not one.finished and names.GATE not in one.spec.gates}
            for rank in set(range(pod_set.slots)) - done_ranks(pod_set, gang.pods):
                if rank in by_rank and rank not in live:
                    add(total, by_rank[rank].host, devices.get(rank, ()))
        return total


def name_of(one: Pod, rank: int) -> bool:
    return one.name.endswith(f"-{rank}") and not one.finished


def add(total: dict[tuple[str, int], list[int]], host: str, uses: tuple[DeviceUse, ...]) -> None:
    for use in uses:
        amounts = total[host, use.minor]
        for place, amount in enumerate((use.core, use.ratio, use.memory)):
            amounts[place] += amount


def check(world: World) -> None:
    for (host, minor), (core, ratio, memory) in world.promised().items():
        assert host in TOLD
        assert core <= 100 and ratio <= 100 and memory <= SIZE, (host, minor)


def slots(view: ClusterState) -> list[tuple[list[int], list[int]]]:
    """The free and the empty slots of every shape, counted now."""
    topology = view.topologies["default"]
    counts = [view.capacity.count(shape, topology) for shape in SHAPES]
    return [(one.free.tolist(), one.empty.tolist()) for one in counts]


def warm_slots(view: ClusterState) -> list[tuple[list[int], list[int]]]:
    """The same as they are kept between decisions."""
    capacity, topology = view.capacity, view.topologies["default"]
    return [
        (
            capacity.slots(shape, topology, scarce="cpu").slots.tolist(),
            capacity.empty_slots(shape, topology).tolist(),
        )
        for shape in SHAPES
    ]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, min_size=10, max_size=60), st.booleans())
def test_no_device_is_promised_more_often_than_it_is_there(
    history: list[tuple[str, int, int, int]], ranked: bool
) -> None:
    """Plans, releases, binds, ends, sick devices, restarts: never above 100 percent of a device, nor of its bytes."""
    world = World(ranked=ranked)
    for one in history:
        world.apply(*one)
        check(world)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=30), st.booleans())
def test_any_history_of_devices_leaves_the_slots_that_counting_afresh_gives(
    history: list[tuple[str, int, int, int]], ranked: bool
) -> None:
    """Kept up event by event, or read once: the same slots for every shape, warm and cold."""
    world = World(ranked=ranked)
    warm_slots(world.view)  # kept from here on
    for one in history:
        world.apply(*one)
    before = world.view
    known = slots(before)
    assert known == slots(world.fresh())
    assert warm_slots(before) == known


@pytest.mark.parametrize("seed", range(16))
def test_long_lives_of_many_gangs(seed: int) -> None:
    """The same over hundreds of steps, most of them the ordinary ones, on a cluster that stays nearly full."""
    rng = random.Random(seed)
    world = World(ranked=seed % 4 != 0)
    for _ in range(150):
        what = rng.choices(("place", "start", "create", "look", "bind", "end", "delete", "health"), WEIGHTS)[0]
        number = rng.randrange(3) if what == "health" else rng.choice(JOBS)
        one = (
            rng.choice((0, 1, 2, 4, 6, 8)) if what == "health" else rng.randrange(4 + 2 * (what in ("place", "start")))
        )
        world.apply(what, number, one, rng.randrange(1, 5))
        check(world)
    assert slots(world.view) == slots(world.fresh())


def test_placements_name_devices_only_of_hosts_that_tell_them() -> None:
    """The histories above do reach all three kinds of hosts."""
    world = World(ranked=True)
    hosts = {}
    for number in JOBS[:5]:
        world.apply("submit", number, 2, 4)
        world.apply("plan", number, 0, 0)
        gang = world.gang(number)
        assert gang is not None and gang.placement is not None and gang.placement.assignment is not None
        hosts |= {slot.host: slot.devices for slot in slots_of(gang.placement.assignment)}
    assert set(hosts) == {*TOLD, COUNTED, PLAIN}
    assert {host for host, devices in hosts.items() if devices is not None} == set(TOLD)
