"""Gangs whose pod sets request GPUs in different ways, beside every division of their pods among the hosts.

A host holds what its numbers and its devices hold: whole GPUs by the vendor's name and shares by Koordinator's names
are parts of the same devices, whoever uses them already.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine.api import names
from engine.api.pod import Shape
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.key import key_of
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, job, pod
from tests.support.gpu_hosts import GIB, asking, gpu_node, gpus, share, use, with_uses
from tests.support.pod_sets import pods_of, several

WHOLE = (asking(gpu=1), asking(gpu=2), share(100), share(200))
SHARES = (share(30), share(50), share(60), asking(core=40, memory=20 * GIB), asking(memory=30 * GIB))
Vector = tuple[int, ...]


@st.composite
def clusters(draw: st.DrawFn, *, alike: bool) -> ClusterState:
    """Hosts in two racks, some GPUs in use in part; `alike`: all GPUs have the same memory."""
    stores = Stores()
    view = ClusterState(stores)
    nodes, objects, pods = [], [], []
    listed = draw(st.booleans())
    running = changed(job("running", count=20, require=None), annotations={names.UNCONSTRAINED: "true"})
    for rack, host in product(range(2), range(draw(st.integers(1, 2)))):
        name, count = f"r{rack}-h{host}", draw(st.integers(1, 4))
        memory = 80 * GIB if alike else draw(st.sampled_from([40, 80])) * GIB
        labels = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": f"r{rack}"}
        nodes.append(gpu_node(name, count, memory=memory, labels=labels))
        objects.append(gpus(name, count, memory=memory))
        for minor in draw(st.sets(st.integers(0, count - 1), max_size=2)):
            percent = draw(st.sampled_from([20, 50, 70]))
            made = pod(running, len(pods), host=name)
            made = replace(made, spec=replace(made.spec, shape=share(percent)))
            pods.append(with_uses(made, use(minor, percent, memory=memory)) if listed else made)
    stores.nodes.replace(nodes)
    if listed:
        stores.devices.replace(objects)
    stores.pods.replace(pods)
    return view


def scheduled(view: ClusterState, shapes: tuple[Shape, ...], counts: Vector, require: str) -> Outcome:
    asked = enumerate(zip(shapes, counts, strict=True))
    pod_sets = [pods_of(f"set-{number}", count, shape=shape) for number, (shape, count) in asked]
    workload = several(*pod_sets, says={names.REQUIRE: require})
    view.stores.workloads.replace([workload])
    view.refresh()
    gang = view.gangs.get(key_of(workload))
    assert gang is not None
    assert gang.request.errors == ()
    return schedule_gang(view, gang)


def holds(view: ClusterState, host: str, shapes: tuple[Shape, ...], pods: Vector) -> bool:
    """Whether a host has the numbers and the devices for so many pods of each shape."""
    needed: dict[str, int] = {}
    for shape, count in zip(shapes, pods, strict=True):
        for resource, amount in shape.requests:
            needed[resource] = needed.get(resource, 0) + amount * count
    free = view.capacity.free(host)
    if any(amount > free.get(resource, 0) for resource, amount in needed.items() if amount):
        return False
    asked = [(one.devices, count) for one, count in zip(shapes, pods, strict=True) if one.devices and count]
    return view.capacity.devices_fit(host, asked)


def fits(view: ClusterState, hosts: list[str], shapes: tuple[Shape, ...], counts: Vector) -> bool:
    """Whether some division of the pods among these hosts is one that every host holds."""
    reached: set[Vector] = {(0,) * len(counts)}
    for host in hosts:
        there = [pods for pods in product(*(range(n + 1) for n in counts)) if holds(view, host, shapes, pods)]
        sums = {tuple(map(sum, zip(before, more, strict=True))) for before, more in product(reached, there)}
        reached = {pods for pods in sums if all(n <= most for n, most in zip(pods, counts, strict=True))}
    return counts in reached


def beside_all_divisions(view: ClusterState, shapes: tuple[Shape, ...], counts: Vector, require: str) -> Outcome:
    """The outcome, which is a plan that every host holds, or nothing where no division of the pods is one."""
    outcome = scheduled(view, shapes, counts, require)
    if isinstance(outcome, Placed):
        by_host: dict[str, list[int]] = {}
        for number, plan in enumerate(outcome.pod_sets):
            for slot in plan.slots:
                by_host.setdefault(slot.host, [0] * len(counts))[number] += slot.count
        assert all(holds(view, host, shapes, tuple(pods)) for host, pods in by_host.items())
        assert tuple(map(sum, zip(*by_host.values(), strict=True))) == counts
        assert require == "block" or len({host[:2] for host in by_host}) == 1
    elif isinstance(outcome, Never) or outcome.reason != "SearchLimit":
        hosts = sorted(node.name for node in view.stores.nodes.values())
        domains = [hosts] if require == "block" else [[h for h in hosts if h[:2] == rack] for rack in ("r0", "r1")]
        assert not any(fits(view, domain, shapes, counts) for domain in domains), outcome
    return outcome


counted = st.lists(st.integers(1, 5), min_size=2, max_size=2).map(tuple)
levels = st.sampled_from(["rack", "block"])


@settings(max_examples=60)
@given(
    view=clusters(alike=True),
    shapes=st.tuples(st.sampled_from(WHOLE), st.sampled_from(SHARES)),
    counts=counted,
    require=levels,
)
def test_whole_gpus_and_shares_of_gpus_that_are_alike_are_placed_whenever_they_fit(
    view: ClusterState, shapes: tuple[Shape, ...], counts: Vector, require: str
) -> None:
    """The search never gives up: what one pod set takes of the other's GPUs is counted, not tried."""
    outcome = beside_all_divisions(view, shapes, counts, require)
    assert not (isinstance(outcome, Waits) and outcome.reason == "SearchLimit")


@settings(max_examples=60)
@given(
    view=clusters(alike=False),
    shapes=st.lists(st.sampled_from([*WHOLE, *SHARES]), min_size=2, max_size=3).map(tuple),
    counts=st.lists(st.integers(1, 4), min_size=3, max_size=3).map(tuple),
    require=levels,
)
def test_a_gang_that_mixes_gpu_requests_waits_for_room_only_where_it_does_not_fit(
    view: ClusterState, shapes: tuple[Shape, ...], counts: Vector, require: str
) -> None:
    """What was only not found is said to be that."""
    outcome = beside_all_divisions(view, shapes, counts[: len(shapes)], require)
    event(outcome.reason if not isinstance(outcome, Placed) else "placed")
