"""The ledger's size: what is in the cluster now, not all that ever was."""

from __future__ import annotations

from dataclasses import replace

from engine.api.pod import SelectorRequirement, SelectorTerm
from engine.capacity.capacity import Capacity
from engine.capacity.eligibility import MAX_WEIGHT, weight_of
from engine.planner.plan import Plan, PlanRequest
from engine.topology.levels import Level
from engine.topology.topology import build_topology
from tests.support.cluster_records import job, node, pod, shape


def test_rows_of_nodes_that_are_gone_are_used_again() -> None:
    """An autoscaler never repeats a name: after months there are as many rows as nodes at a time."""
    ledger = Capacity()
    gang = job(count=1)
    for serial in range(200):
        name = f"node-{serial}"
        ledger.set_node(name, node(name))
        ledger.set_pod(("default", f"p{serial}"), pod(gang, 0, host=name))
        ledger.reserve(f"gang-{serial}", {name: 1}, (("cpu", 1), ("pods", 1)))
        ledger.set_node(name, None)
        assert ledger.free(name)["pods"] == -2
        ledger.set_pod(("default", f"p{serial}"), None)
        ledger.reserve(f"gang-{serial}", {}, ())
        assert ledger.free(name) == {}
    assert len(ledger._nodes) == 1
    assert len(ledger._eligibility._changed) <= 4 * 64
    assert not ledger._fresh
    assert ledger.reserving() == []


def test_a_used_row_belongs_to_its_new_node_alone() -> None:
    """Nothing of the old node is left in it: neither amounts nor verdicts."""
    ledger = Capacity()
    ledger.set_node("old", node("old", labels={"rack": "r0"}, unschedulable=True))
    small = shape(gpu=1)
    levels = (Level("rack", ("rack",)),)
    before = build_topology("t", levels, [node("old", labels={"rack": "r0"})])
    assert ledger.count(small, before).free.tolist() == [0]
    ledger.set_node("old", None)
    ledger.set_node("new", node("new", labels={"rack": "r0"}))
    after = build_topology("t", levels, [node("new", labels={"rack": "r0"})])
    assert ledger.count(small, after).free.tolist() == [8]
    assert ledger.count(small, before).free.tolist() == [0]


def test_a_topology_that_still_has_a_gone_node_gets_nothing_of_the_one_in_its_row() -> None:
    """A decision that began before the change is answered for the hosts that it names."""
    ledger = Capacity()
    ledger.set_node("old", node("old", labels={"rack": "r0"}))
    before = build_topology("t", (Level("rack", ("rack",)),), [node("old", labels={"rack": "r0"})])
    assert ledger.count(shape(gpu=1), before).free.tolist() == [8]
    ledger.set_node("old", None)
    ledger.set_node("new", node("new", labels={"rack": "r0"}))
    assert ledger.count(shape(gpu=1), before).free.tolist() == [0]
    assert ledger.slots(shape(gpu=1), before, scarce="cpu").slots.tolist() == [0]


def test_slots_are_kept_for_the_resource_that_ties_go_by() -> None:
    """The same shape, asked for with ties by another resource, is planned by that one."""
    kinds = (("a", 8000, 4), ("b", 7000, 8))  # room for five pods on each
    nodes = [node(name, allocatable={"cpu": cpu, "pods": 5, "nvidia.com/gpu": gpus}) for name, cpu, gpus in kinds]
    ledger = Capacity()
    for one in nodes:
        ledger.set_node(one.name, one)
    topology, wanted = build_topology("t", (), nodes), shape(cpu=1000)

    def chosen(scarce: str) -> str:
        answer = ledger.slots(wanted, topology, scarce=scarce).plan(PlanRequest(count=1))
        assert isinstance(answer, Plan)
        return topology.tree.hosts[answer.hosts[0][0]]

    assert (chosen("nvidia.com/gpu"), chosen("cpu"), chosen("nvidia.com/gpu")) == ("a", "b", "a")


def test_questions_about_unknown_resources_leave_no_trace() -> None:
    """Whoever asks for a thousand invented devices gets none, and costs nothing."""
    ledger = Capacity()
    ledger.set_node("a", node("a", labels={"rack": "r0"}))
    topology = build_topology("t", (Level("rack", ("rack",)),), [node("a", labels={"rack": "r0"})])
    known = len(ledger._amounts.columns)
    for serial in range(100):
        asked = shape(**{f"example.com/device-{serial}": 1})
        assert ledger.count(asked, topology).free.tolist() == [0]
        assert ledger.largest(f"example.com/device-{serial}", topology) == 0
        assert not ledger.overcommitted("a", asked.requests)
        assert not ledger.overcommitted(f"unknown-{serial}", asked.requests)
    assert len(ledger._amounts.columns) == known
    assert len(ledger._nodes) == 1


def test_questions_with_huge_selectors_are_not_kept() -> None:
    """Thousands of expressions in each of many dry runs: what is kept of them is bounded, and small ones stay kept."""
    ledger = Capacity()
    ledger.set_node("a", node("a", labels={"rack": "r0"}))
    topology = build_topology("t", (Level("rack", ("rack",)),), [node("a", labels={"rack": "r0"})])
    for serial in range(40):
        absent = tuple(SelectorRequirement(f"k{serial}x{number}", "DoesNotExist", ()) for number in range(5_000))
        asked = replace(shape(gpu=1), affinity=(SelectorTerm(absent, ()),))
        assert ledger.slots(asked, topology, scarce="cpu").slots.tolist() == [8]
        assert ledger.count(asked, topology).free.tolist() == [8]
    small = [replace(shape(gpu=1), node_selector=(("rack", f"r{serial}"),)) for serial in range(50)]
    for asked in small:
        ledger.slots(asked, topology, scarce="cpu")
    kept = [wanted for _, wanted in ledger._warm]
    assert set(small) <= set(kept)
    assert sum(map(weight_of, kept)) <= MAX_WEIGHT
    assert ledger._eligibility.weight == sum(verdicts.weight for verdicts in ledger._eligibility._classes.values())
    assert ledger._eligibility.weight <= MAX_WEIGHT


def test_long_values_in_questions_are_not_kept() -> None:
    """A selector's value may be as long as an object: few of such are kept, however many come."""
    ledger = Capacity()
    ledger.set_node("a", node("a", labels={"rack": "r0"}))
    topology = build_topology("t", (Level("rack", ("rack",)),), [node("a", labels={"rack": "r0"})])
    long = 1_000_000
    for serial in range(15):
        text = f"{serial}".ljust(long, "x")
        for more in (
            {"node_selector": (("rack", text),)},
            {"affinity": (SelectorTerm((SelectorRequirement("rack", "In", (text,)),), ()),)},
        ):
            ledger.slots(replace(shape(gpu=1), **more), topology, scarce="cpu")
    kept = {key[:2] for key in ledger._eligibility._classes} | {
        (wanted.node_selector, wanted.affinity) for _, wanted in ledger._warm
    }
    assert sum(len(repr(one)) for one in kept) <= 15 * long


def test_pods_with_invented_resources_leave_no_trace() -> None:
    """Anybody may bind a pod to a node by its name: what it invents is counted while it is there, and then forgotten.

    A column costs every host some bytes, and one pod can name tens of thousands of resources.
    """
    ledger = Capacity()
    ledger.set_node("a", node("a"))
    known, room = len(ledger._amounts.columns), ledger._amounts.free.shape
    invented = tuple((f"example.com/device-{serial}", 2) for serial in range(5_000))
    bound = pod(job(count=1), 0, host="a")
    asks = replace(bound.spec.shape, requests=(*invented, ("pods", 1)))
    ledger.set_pod(("default", "p"), replace(bound, spec=replace(bound.spec, shape=asks)))
    assert len(ledger._amounts.columns) == known
    assert ledger._amounts.free.shape == room
    assert ledger.free("a")["example.com/device-7"] == -2
    assert ledger.overcommitted("a", (("example.com/device-7", 1),))
    ledger.set_node("a", None)
    assert ledger.free("a")["example.com/device-7"] == -2
    ledger.set_node("a", node("a", allocatable={"pods": 1, "example.com/device-7": 3}))
    assert ledger.free("a")["example.com/device-7"] == 1
    ledger.set_pod(("default", "p"), None)
    assert ledger.free("a") == {name: 0 for name in ledger._amounts.columns} | {"pods": 1, "example.com/device-7": 3}
    assert not ledger._amounts._unnamed
