"""In which order a replica came to know nodes and pods decides nothing: all of them make the same plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api.objects import Node
from engine.api.pod import Pod, PodConstraints, PodTerm, SelectorRequirement, SpreadConstraint
from engine.capacity.capacity import Capacity
from engine.capacity.nearby_pods import NearbyPods
from engine.capacity.other_pods import OtherPods
from engine.capacity.pod_rules import PlannedPods, PodRules, pod_rules
from engine.planner.plan import Plan, PlanRequest
from engine.topology.levels import Level
from engine.topology.topology import Topology, build_topology
from tests.support.cluster_records import job, node, pod, shape

NODES = [
    node(
        f"h{number}",
        labels={"rack": f"r{number // 2}", "zone": f"z{number * 7 % 5}"},
        allocatable={"cpu": 4, "pods": 9},
    )
    for number in range(10)
]
ORDERS = (NODES, NODES[::-1], NODES[3:] + NODES[:3])
TOPOLOGY = build_topology("t", (Level("rack", ("rack",)),), NODES)
POD = shape(cpu=1)


def term(app: str) -> PodTerm:
    return PodTerm("zone", (SelectorRequirement("app", "In", (app,)),), ("default",))


def spread(app: str) -> SpreadConstraint:
    return SpreadConstraint("zone", 1, term(app).selector, min_domains=1, honor_affinity=True, honor_taints=False)


def rules_of(capacity: Capacity, topology: Topology, **constraints: PodConstraints) -> PodRules:
    """The rules of pod sets by name, which is their pods' label `app` too."""
    sets = [
        PlannedPods(name=name, namespace="default", labels={"app": name}, constraints=one, shape=POD)
        for name, one in constraints.items()
    ]
    found = pod_rules(sets, OtherPods(NearbyPods(lambda: ()), capacity, key="g", pods=()), topology=topology)
    assert found is not None
    return found


def told(nodes: list[Node]) -> Capacity:
    capacity = Capacity()
    for one in nodes:
        capacity.set_node(one.name, one)
    return capacity


@pytest.mark.parametrize(
    ("constraints", "count"),
    [
        (PodConstraints(affinity=(term("a"),)), 4),
        (PodConstraints(affinity=(term("a"),)), 40),
        (PodConstraints(anti_affinity=(term("a"),)), 2),
        (PodConstraints(spread=(spread("a"),)), 7),
    ],
    ids=["together", "together, too many", "apart", "spread"],
)
def test_equal_domains_are_taken_in_the_order_of_the_tree(constraints: PodConstraints, count: int) -> None:
    """A forecast names the domain that the leader takes, whichever of them was restarted last."""
    found = set()
    for nodes in ORDERS:
        capacity = told(nodes)
        slots = capacity.slots(POD, TOPOLOGY, scarce="cpu")
        ways = rules_of(capacity, TOPOLOGY, a=constraints).ways(
            "a", TOPOLOGY.tree, slots.slots, count=count, require=None, grain=(1, 1)
        )
        first = next(ways)
        answer = slots.plan_on_slots(first, PlanRequest(count=count), None)
        found.add((tuple(first.tolist()), answer.hosts if isinstance(answer, Plan) else ()))
    assert len(found) == 1


def test_domains_apart_are_given_in_the_order_of_the_tree() -> None:
    """Two pod sets in zones of their own get the same zones in every replica."""
    found = set()
    for nodes in ORDERS:
        capacity = told(nodes)
        slots = capacity.slots(POD, TOPOLOGY, scarce="cpu").slots
        rules = rules_of(capacity, TOPOLOGY, a=PodConstraints(anti_affinity=(term("b"),)), b=PodConstraints())
        choices = rules.choices({"a": slots, "b": slots}, {"a": 4, "b": 4})
        found.add(tuple(tuple(sorted((name, tuple(mask.tolist())) for name, mask in one.items())) for one in choices))
    assert len(found) == 1
    assert len(next(iter(found))) > 1


def keeping_away(name: str, key: str) -> Pod:
    """A pod that keeps those of `a` out of its domain of a label."""
    made = pod(job(count=1), None, name=name, host="h0")
    apart = PodConstraints(anti_affinity=(replace(term("a"), topology_key=key),))
    return replace(made, spec=replace(made.spec, constraints=apart))


def test_hosts_are_left_out_for_the_same_reason_whichever_pod_came_first() -> None:
    """Where pods with two rules keep others away, a message counts each host under the same one of them."""
    pods = [keeping_away("one", "rack"), keeping_away("two", "zone")]
    capacity, planned = (
        told(NODES),
        PlannedPods(name="a", namespace="default", labels={"app": "a"}, constraints=None, shape=POD),
    )
    found = []
    for there in (pods, pods[::-1]):
        nearby = NearbyPods(lambda there=there: there)  # type: ignore[misc]
        for one in there:
            nearby.set_pod(None, one)
        rules = pod_rules([planned], OtherPods(nearby, capacity, key="g", pods=()), topology=TOPOLOGY)
        assert rules is not None
        found.append(list(rules.barred_for("a")))
    assert found[0] == found[1]
    assert len(found[0]) == 2
