"""The slots that are kept current are those that counting afresh gives, after any history."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.pod import Shape
from engine.api.resources import anti_affinity, host_port
from engine.capacity.capacity import Capacity
from engine.topology.levels import presets
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import gpu_nodes, job, node, pod, shape

NODES = gpu_nodes(2, 2, 12)
HOSTS = [one.name for one in NODES]
PORT, APART = host_port(80, "TCP"), anti_affinity("default", "app=web")
SHAPES = (
    shape(gpu=8),
    shape(gpu=1, cpu=4000),
    Shape(requests=(("cpu", 1000), ("pods", 1)), node_selector=(("tier", "gold"),)),
    shape(gpu=1, **{"example.com/nic": 1}),
    Shape(requests=tuple(sorted({"cpu": 1000, "pods": 1, PORT: 1}.items()))),
    Shape(requests=tuple(sorted({"nvidia.com/gpu": 1, "pods": 1, PORT: 1, APART: 1}.items()))),
)

host = st.sampled_from(HOSTS)
step = st.one_of(
    st.tuples(st.just("pod"), host, st.integers(0, 5), st.integers(0, 8)),
    st.tuples(st.just("reserve"), host, st.integers(0, 3), st.integers(0, 8)),
    st.tuples(st.just("claim"), host, st.sampled_from(["port", "apart"]), st.integers(0, 3)),
    st.tuples(st.just("keep"), host, st.sampled_from(["port", "apart"]), st.integers(0, 2)),
    st.tuples(st.just("node"), host, st.sampled_from(["gone", "back", "cordoned", "gold", "small", "nic"]), st.just(0)),
    st.tuples(st.just("ask"), host, st.integers(0, len(SHAPES) - 1), st.just(0)),
)


def topology_of(capacity: Capacity) -> Topology:
    there = [known for name in HOSTS if (known := capacity.node(name)) is not None]
    return build_topology("default", presets()["demo"], there)


@settings(max_examples=120, deadline=None)
@given(st.lists(step, max_size=40))
def test_kept_slots_equal_counted_slots(history: list[tuple[str, str, int | str, int]]) -> None:
    """Pods, reservations and claims, nodes that come and go, labels, cordons, a resource that is new: warm = cold."""
    capacity = Capacity()
    for one in NODES:
        capacity.set_node(one.name, one)
    topology = topology_of(capacity)
    gang = job(count=1)
    for what, name, how, amount in history:
        match what:
            case "pod":
                placed = pod(gang, int(how), host=name)
                asks = replace(placed.spec.shape, requests=(("nvidia.com/gpu", amount), ("pods", 1)))
                capacity.set_pod(("default", str(how)), replace(placed, spec=replace(placed.spec, shape=asks)))
            case "reserve":
                capacity.reserve(f"gang-{how}", {name: amount // 3}, (("cpu", 30_000), ("nvidia.com/gpu", 2)))
            case "claim":
                claims = tuple(sorted({"pods": 1, PORT if how == "port" else APART: 1}.items()))
                one = pod(gang, None, name=f"claims-{amount}", host=name)
                taken = replace(one, spec=replace(one.spec, shape=replace(one.spec.shape, requests=claims)))
                capacity.set_pod(("default", f"claims-{amount}"), taken if amount else None)
            case "keep":
                claims = tuple(sorted({"pods": 1, PORT if how == "port" else APART: 1}.items()))
                capacity.reserve(f"claims-{how}", {name: min(amount, 1)}, claims)
            case "node":
                base = next(one for one in NODES if one.name == name)
                changed = {
                    "gone": None,
                    "back": base,
                    "cordoned": replace(base, unschedulable=True),
                    "gold": replace(base, labels={**base.labels, "tier": "gold"}),
                    "nic": replace(base, allocatable={**base.allocatable, "example.com/nic": 3}),
                    "small": replace(base, allocatable={"cpu": 8000, "pods": 2, "nvidia.com/gpu": 2}),
                }[str(how)]
                capacity.set_node(name, changed)
                topology = topology_of(capacity) if how in ("gone", "back") else topology
            case "ask":
                wanted = SHAPES[int(how)]
                warm = capacity.slots(wanted, topology, scarce="nvidia.com/gpu")
                assert warm.slots.tolist() == capacity.count(wanted, topology).free.tolist()
                assert (
                    capacity.empty_slots(wanted, topology).tolist() == capacity.count(wanted, topology).empty.tolist()
                )
    for wanted in SHAPES:
        warm = capacity.slots(wanted, topology, scarce="nvidia.com/gpu")
        assert warm.slots.tolist() == capacity.count(wanted, topology).free.tolist()
        assert capacity.empty_slots(wanted, topology).tolist() == capacity.count(wanted, topology).empty.tolist()


def test_a_claim_that_a_pod_takes_closes_its_host() -> None:
    """Slots that are kept current know of host ports and of pods that keep each other apart."""
    capacity, wanted, topology = kept(SHAPES[4])
    assert set(capacity.slots(wanted, topology, scarce="cpu").slots.tolist()) == {1}
    one = pod(job(count=1), 0, host=HOSTS[0])
    claims = (("pods", 1), (PORT, 1))
    capacity.set_pod(("default", "p"), replace(one, spec=replace(one.spec, shape=Shape(requests=claims))))
    slots = capacity.slots(wanted, topology, scarce="cpu").slots.tolist()
    assert slots == capacity.count(wanted, topology).free.tolist()
    assert slots.count(0) == 1


def test_a_resource_that_is_reported_later_counts() -> None:
    """A node that begins to report a resource has slots for the shapes that asked for it before."""
    capacity, wanted, topology = kept(SHAPES[3])
    capacity.reserve("gang", {HOSTS[1]: 1}, (("cpu", 1000),))  # from here on one host is counted at a time
    assert set(capacity.slots(wanted, topology, scarce="cpu").slots.tolist()) == {0}
    more = {**NODES[0].allocatable, "example.com/nic": 3}
    capacity.set_node(HOSTS[0], replace(NODES[0], allocatable=more))
    slots = capacity.slots(wanted, topology, scarce="cpu").slots.tolist()
    assert sorted(slots)[-2:] == [0, 3]


def kept(wanted: Shape) -> tuple[Capacity, Shape, Topology]:
    """All hosts, and a shape whose slots are kept from here on."""
    capacity = Capacity()
    for one in NODES:
        capacity.set_node(one.name, one)
    topology = topology_of(capacity)
    capacity.slots(wanted, topology, scarce="cpu")
    return capacity, wanted, topology


def test_a_log_that_grew_too_long_is_counted_afresh() -> None:
    """Thousands of changes between two questions: the answer is right, and the log stays bounded."""
    capacity = Capacity()
    nodes = [node(f"h{i}", labels={}) for i in range(3)]
    for one in nodes:
        capacity.set_node(one.name, one)
    topology = build_topology("flat", (), nodes)
    asked = shape(gpu=2)
    capacity.slots(asked, topology, scarce="nvidia.com/gpu")
    for turn in range(5000):
        capacity.reserve("gang", {"h1": turn % 4}, (("nvidia.com/gpu", 2),))
    assert capacity.slots(asked, topology, scarce="nvidia.com/gpu").slots.tolist() == [4, 1, 4]
