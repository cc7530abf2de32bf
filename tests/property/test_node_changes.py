"""A change of a node: the gangs that are reconciled are those for which it changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.objects import Node, Taint
from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.api.workload import GangKey, Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.lifecycle.actions import Decision
from engine.lifecycle.gang_state import Timers
from engine.lifecycle.host_health import HostHealth
from engine.lifecycle.reconcile import reconcile
from engine.topology.topology import Topology
from tests.support.cluster_records import gpu_nodes, job, node, placement, pod

NODES = {one.name: one for one in gpu_nodes(2, 1, 2)}
HOSTS = tuple(NODES)
NAMES = ("a", "b", "c")
CHANGES = ("gone", "cordoned", "unready", "tainted", "small", "moved", "bare", "labelled", "all others")
OTHER_LEVELS = [f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup")]
HOUR = 3600.0


event = st.tuples(st.sampled_from(HOSTS), st.sampled_from(CHANGES))


def gang_objects(name: str, draw: st.DrawFn) -> tuple[Workload, Placement | None, list[Pod]]:
    """A gang in any state: waiting, placed, running, half lost, suspended; its pods on their slots or elsewhere."""
    held = draw(st.booleans())
    workload = job(name, count=2, held=held, require=draw(st.sampled_from(["rack", "block", None])))
    if draw(st.booleans()):
        return workload, None, []
    slots: dict[str, int] = {}
    for host in draw(st.lists(st.sampled_from(HOSTS), min_size=2, max_size=2)):
        slots[host] = slots.get(host, 0) + 1
    phase = draw(st.sampled_from(["Placed", "Starting", "Running", "Incomplete", "Finished"]))
    placed = placement(workload, slots, name=f"p-{name}", status={"phase": phase})
    assert placed.assignment is not None
    (plan,) = placed.assignment.pod_sets
    in_place = tuple(replace(one, domain=(one.host[:2], one.host[:5], one.host)) for one in plan.slots)
    placed = replace(placed, assignment=replace(placed.assignment, pod_sets=(replace(plan, slots=in_place),)))
    pods = []
    for rank, slot in enumerate(host for host, count in slots.items() for _ in range(count)):
        state = draw(st.sampled_from(["none", "gated", "pinned", "bound", "elsewhere", "terminating"]))
        if state == "none":
            continue
        host = draw(st.sampled_from(HOSTS)) if state == "elsewhere" else slot
        pods.append(
            pod(
                workload,
                rank,
                host="" if state in ("gated", "pinned") else host,
                pin=host if state == "pinned" else "",
                gated=state == "gated",
                deleting=state == "terminating",
                uid=f"uid-{name}-{rank}",
            )
        )
    return workload, placed, pods


def other_node(old: Node | None, name: str, how: str) -> Node | None:
    """The node after a change."""
    base = old or NODES[name]
    labels, tainted = dict(base.labels), (Taint("sick", "", "NoExecute"),)
    match how:
        case "gone":
            return None
        case "cordoned":
            return replace(base, unschedulable=not base.unschedulable)
        case "unready":
            return replace(base, ready=not base.ready, settled_at=HOUR)
        case "tainted":
            return replace(base, taints=() if base.taints else tainted)
        case "small":
            return replace(base, allocatable={"cpu": 8000, "pods": 1, "nvidia.com/gpu": 4})
        case "moved":
            return replace(base, labels=labels | {"cloud.provider.com/topology-rack": "b9-r9"})
        case "bare":
            return node(name)
        case "all others":
            return node(name, labels=dict.fromkeys(OTHER_LEVELS, name[:2]))
        case _:
            return replace(base, labels=labels | {"example.com/other": "x"})


def trees(topologies: Mapping[str, Topology]) -> object:
    return {name: (one.levels, one.tree.paths, one.pins, one.outside, one.coverage) for name, one in topologies.items()}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_gang_that_is_not_reconciled_after_a_node_changed_would_decide_the_same(data: st.DataObject) -> None:
    """Compared with a reconcile of all gangs before and after each change."""
    stores = Stores()
    view = ClusterState(stores)
    known: dict[str, Node | None] = dict(NODES)
    stores.nodes.replace(NODES.values())
    timers: dict[GangKey, Timers] = {}
    for name in NAMES:
        workload, placed, pods = gang_objects(name, data.draw)
        stores.workloads.apply("ADDED", workload)
        if placed is not None:
            stores.placements.apply("ADDED", placed)
        for one in pods:
            stores.pods.apply("ADDED", one)
    view.take_changes()

    def decide(key: GangKey) -> tuple[Gang | None, Decision | None, list[object]]:
        gang = view.gangs.get(key)
        if gang is None:
            return None, None, []
        health = HostHealth(gang, view.capacity, view.topologies, now=2 * HOUR)
        memory = deepcopy(timers.setdefault(key, Timers()))
        decision = reconcile(gang, timers=memory, policy=view.policy, now=100.0, wall=2 * HOUR, hosts=health)
        return gang, decision, [memory]

    for serial, (name, how) in enumerate(data.draw(st.lists(event, min_size=1, max_size=6))):
        keys = view.gangs.keys()
        before = {key: decide(key) for key in keys}
        for one in HOSTS if how == "all others" else (name,):
            old, new = known[one], other_node(known[one], one, how)
            if new is not None:
                new = replace(new, resource_version=str(10_000_000 + serial * len(HOSTS) + HOSTS.index(one)))
                stores.nodes.apply("MODIFIED", new)
            elif old is not None:
                stores.nodes.apply("DELETED", old)
            known[one] = new
        changes = view.take_changes()
        assert trees(view.topologies) == trees(view.topologies_under(view.policy))
        for key in () if changes.everything else keys:
            if key not in changes.gangs:
                assert decide(key) == before[key]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_gangs_of_a_host_are_those_with_slots_or_pods_there_after_any_history(data: st.DataObject) -> None:
    """Plans that come, change and go, also before they are written; pods that are bound, end and go."""
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(NODES.values())
    for serial in range(data.draw(st.integers(2, 10))):
        name = data.draw(st.sampled_from(NAMES[:2]))
        workload, placed, pods = gang_objects(name, data.draw)
        version = str(10_000_000 + serial)
        stores.workloads.apply("MODIFIED", replace(workload, resource_version=version))
        match data.draw(st.sampled_from(["write", "assume", "drop", "delete"])):
            case "write" if placed is not None:
                stores.placements.apply("MODIFIED", replace(placed, resource_version=version))
            case "assume" if placed is not None:
                view.refresh()
                view.assume(workload.uid, placed)
            case "drop":
                view.retract(workload.uid)
            case "delete":
                for one in stores.placements.values():
                    if one.workload.uid == workload.uid:
                        stores.placements.apply("DELETED", replace(one, resource_version=version))
        for one in stores.pods.values():
            if one.owner is not None and one.owner.uid == workload.uid:
                stores.pods.apply("DELETED", replace(one, resource_version=version))
        for one in pods:
            stores.pods.apply("ADDED", replace(one, uid=f"{one.uid}-{serial}", resource_version=version))
        view.refresh()
        expected: dict[str, set[GangKey]] = {host: set() for host in HOSTS}
        for gang in filter(None, map(view.gangs.get, view.gangs.keys())):
            plans = (gang.placement, view.gangs.placement_of(gang.key))
            hosts = {host for plan in plans if plan and plan.assignment for host in plan.assignment.hosts}
            for host in hosts | {one.spec.node_name for one in gang.pods if one.spec.node_name}:
                expected[host].add(gang.key)
        assert {host: view.gangs.on_host(host) for host in HOSTS} == expected
