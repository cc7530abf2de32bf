"""Whatever nodes, devices, pods and reservations were: the capacity answers as one that is told only what is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api.objects import Node, Taint
from engine.api.pod import Pod, SelectorRequirement, SelectorTerm, Shape
from engine.api.resources import host_port
from engine.capacity.capacity import Capacity
from engine.resources.request import device_request
from engine.topology.levels import Level
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import job, node, pod, shape
from tests.support.gpu_hosts import asking, gpu_node, gpus, share, use, with_uses

GANGS = ("gang", "other")
HOSTS = ("a", "b", "c")
RACK, TIER, PORT, NIC = "rack", "tier", host_port(80, "TCP"), "example.com/nic"
KINDS: dict[str, Any] = {
    "gone": None,
    "plain": node,
    "gpu": gpu_node,
    "fewer": lambda name, **more: gpu_node(name, 2, **more),
    "small": lambda name, **more: node(name, allocatable={"cpu": 8_000, "pods": 3}, **more),
    "nic": lambda name, **more: node(name, allocatable={"cpu": 8_000, "pods": 3, NIC: 2}, **more),
    "cordoned": lambda name, **more: gpu_node(name, unschedulable=True, **more),
    "tainted": lambda name, **more: gpu_node(name, taints=(Taint("x", "y", "NoSchedule"),), **more),
    "sick": lambda name, **more: gpu_node(name, ready=False, **more),
}
LABELS = [{}, {RACK: "r0"}, {RACK: "r1", TIER: "7"}, {RACK: "r0", TIER: "gold"}]
DEVICES: dict[str, Any] = {
    "gone": None,
    "four": gpus,
    "two": lambda name: gpus(name, 2),
    "sick": lambda name: gpus(name, sick=(0, 2)),
    "given": lambda name: gpus(name, given={"uid-0": (("gpu", 1),), "uid-1": (("gpu", 1), ("gpu", 3))}),
}


def of(**amounts: int) -> Shape:
    requests = {"pods": 1, **amounts}
    return Shape(requests=tuple(sorted(requests.items())), devices=device_request(requests))


def selecting(*rules: SelectorRequirement, fields: tuple[SelectorRequirement, ...] = ()) -> Shape:
    return replace(shape(cpu=1_000), affinity=(SelectorTerm(rules, fields),))


POD_SHAPES = (
    shape(cpu=4_000),
    asking(gpu=1),
    share(50),
    asking(gpu=2),
    of(**{PORT: 1, "cpu": 1_000}),
    of(**{NIC: 1}),
    of(**{"example.com/never": 5}),
)
SHAPES = (
    *POD_SHAPES,
    replace(asking(gpu=1), node_selector=((RACK, "r0"),)),
    selecting(SelectorRequirement(TIER, "Gt", ("3",))),
    selecting(
        SelectorRequirement(TIER, "NotIn", ("gold",)), fields=(SelectorRequirement("metadata.name", "In", ("b",)),)
    ),
)
SELECTING = SHAPES[-3:]

host = st.sampled_from(HOSTS)
step = st.one_of(
    st.tuples(st.just("node"), host, st.sampled_from(sorted(KINDS)), st.integers(0, len(LABELS) - 1)),
    st.tuples(st.just("devices"), host, st.sampled_from(sorted(DEVICES)), st.just(0)),
    st.tuples(st.just("pod"), st.sampled_from([None, *HOSTS]), st.integers(0, 3), st.integers(0, len(POD_SHAPES) + 1)),
    st.tuples(st.just("reserve"), host, st.integers(0, 2), st.integers(0, 3 * len(POD_SHAPES) - 1)),
    st.tuples(st.just("ask"), host, st.integers(0, len(SHAPES) - 1), st.just(0)),
)


class World:
    """What is there, and the capacity that was told of every change."""

    def __init__(self) -> None:
        self.capacity = Capacity()
        self.nodes: dict[str, Node] = {}
        self.devices: dict[str, Any] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.reserved: dict[tuple[str, str], tuple[dict[str, int], Shape]] = {}
        self.topology = build_topology("t", (Level(RACK, (RACK,)),), [])

    def apply(self, what: str, name: str | None, how: Any, number: int) -> None:
        match what:
            case "node":
                made = KINDS[how] and KINDS[how](name, labels=LABELS[number])
                _set(self.nodes, name, made)
                self.capacity.set_node(str(name), made)
                self.topology = build_topology("t", (Level(RACK, (RACK,)),), list(self.nodes.values()))
            case "devices":
                found = DEVICES[how] and DEVICES[how](name)
                _set(self.devices, name, found)
                self.capacity.set_devices(str(name), found)
            case "pod":
                key = ("default", f"p{how}")
                one = None if name is None else _pod(how, name, number)
                _set(self.pods, key, one)
                self.capacity.set_pod(key, one)
            case "reserve":
                asked, count = POD_SHAPES[number % len(POD_SHAPES)], number // len(POD_SHAPES)
                hosts = {str(name): count} if count else {}
                key = (GANGS[int(how) % len(GANGS)], str(how))
                _set(self.reserved, key, (hosts, asked) if hosts else None)
                _reserve(self.capacity, key, hosts, asked)
            case "ask":
                self.ask(self.capacity, SHAPES[how], self.topology)

    def fresh(self) -> Capacity:
        told = Capacity()
        for name, one in self.nodes.items():
            told.set_node(name, one)
        for name, devices in self.devices.items():
            told.set_devices(name, devices)
        for key, bound in self.pods.items():
            told.set_pod(key, bound)
        for gang, (hosts, asked) in self.reserved.items():
            _reserve(told, gang, hosts, asked)
        return told

    @staticmethod
    def ask(capacity: Capacity, asked: Shape, topology: Topology) -> dict[str, Any]:
        """All that depends on one shape."""
        counts = capacity.count(asked, topology)
        found: dict[str, Any] = {
            "free": counts.free.tolist(),
            "empty": counts.empty.tolist(),
            "built": counts.built.tolist(),
            "slots": capacity.slots(asked, topology, scarce="nvidia.com/gpu").slots.tolist(),
            "reasons": capacity.reasons(asked, topology),
            "eligible": sorted(capacity.eligible_hosts(asked)),
            "over": [
                capacity.overcommitted(name, asked.requests, gang=gang) for name in HOSTS for gang in (None, *GANGS)
            ],
        }
        if asked.devices is not None:
            found["chosen"] = [capacity.choose(name, asked.devices, 1) for name in HOSTS]
            found["fit"] = [capacity.devices_fit(name, [(asked.devices, 2)]) for name in HOSTS]
            found["freest"] = capacity.freest_gpu(asked.devices, topology).tolist()
        for affinity in (True, False):
            nodes, _ = capacity.spread_nodes(asked, RACK, (RACK,), affinity=affinity, taints=not affinity)
            rows = {name: capacity.row_of(name) for name in HOSTS}
            found[f"spread {affinity}"] = {name for name, row in rows.items() if row is not None and nodes[row]}
        return found

    def look(self, capacity: Capacity) -> dict[str, Any]:
        """All that others ask."""
        domains = capacity.domains(RACK, self.topology)
        ones = np.ones(len(self.topology.tree.hosts), dtype=np.int64)
        return {
            "shapes": [self.ask(capacity, asked, self.topology) for asked in SHAPES],
            "amounts": {name: {key: left for key, left in capacity.free(name).items() if left} for name in HOSTS},
            "domains": sorted(domains.sums(ones)[1:][domains.sums(ones)[1:] > 0].tolist()),
            "resources": capacity.hosts_by_resource(),
            "matter": capacity.devices_matter,
            "problems": [(capacity.device_problem(name), capacity.device_notes(name)) for name in HOSTS],
            "whole": capacity.whole_gpus("nvidia.com/gpu", self.topology).tolist(),
            "partly": [capacity.gpus_in_part(name) for name in HOSTS],
            "scopes": capacity.device_scopes,
            "counted": [capacity.reports_devices(name) for name in HOSTS],
            "lost": [capacity.lost_devices(gang, name) for name in HOSTS for gang in GANGS],
            "reserved": [(capacity.reserved(gang), capacity.reserved_by(gang)) for gang in GANGS],
            "unsettled": capacity.unsettled(-1.0, settle=15.0),
        }


def _set(there: dict[Any, Any], key: Any, item: Any) -> None:
    there.pop(key, None)
    if item is not None:
        there[key] = item


def _pod(serial: int, name: str, number: int) -> Pod:
    """A pod; beyond the shapes: one that has ended, and one that names its devices."""
    asked = POD_SHAPES[number] if number < len(POD_SHAPES) else share(50)
    made = pod(job(count=1), None, name=f"p{serial}", host=name, uid=f"uid-{serial}")
    made = replace(
        made, spec=replace(made.spec, shape=asked), phase="Failed" if number == len(POD_SHAPES) else "Running"
    )
    return with_uses(made, use(serial, 50)) if number > len(POD_SHAPES) else made


def _reserve(capacity: Capacity, key: tuple[str, str], hosts: dict[str, int], asked: Shape) -> None:
    """Reserve; beside an odd number of pods one of another shape. One of each is not released, and planned smaller."""
    at = POD_SHAPES.index(asked)
    other, planned = (POD_SHAPES[(at + number) % len(POD_SHAPES)] for number in (1, 2))
    others = {Shape(other.requests, devices=other.devices): {name: count % 2 for name, count in hosts.items()}}
    held = dict.fromkeys((*others, Shape(asked.requests, devices=asked.devices)), dict.fromkeys(hosts, 1))
    capacity.reserve(
        key[0],
        hosts,
        asked.requests,
        pod_set=key[1],
        devices=asked.devices,
        others=others,
        planned=planned,
        held=held,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(step, max_size=40))
def test_a_capacity_with_a_history_answers_as_a_fresh_one(history: list[tuple[str, str | None, Any, int]]) -> None:
    """Nodes that come back changed, sick devices, pods that move and end, reservations: none leaves a trace."""
    world = World()
    for change in history:
        world.apply(*change)
    assert world.look(world.capacity) == world.look(world.fresh())
