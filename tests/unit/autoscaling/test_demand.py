"""Which pods of a gang nodes are requested for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.api import names
from engine.api.workload import Workload
from engine.autoscaling.demand import NodeDemand, demand_of
from engine.gang.key import key_of
from tests.support.cluster_records import gpu_nodes, job, pod, pod_set, shape, spec
from tests.support.leader import POLICY, Leader
from tests.support.small_cluster import SmallCluster
from tests.unit.controller.test_pod_group_gangs import member


def two_templates(**asked: str) -> Workload:
    """Four feeders on CPUs and four trainers on GPUs."""
    gang = job("train", count=4, require=None, annotations={names.UNCONSTRAINED: "true", **asked})
    held = {"gates": (names.GATE,), "labels": {names.MANAGED: "true"}}
    feeder, trainer = (spec(shape=shape(**each), **held) for each in ({"cpu": 90_000}, {"gpu": 8}))
    sets = (pod_set("feeder", count=4, template=feeder), pod_set("trainer", count=4, template=trainer))
    return replace(gang, pod_sets=sets)


def wanted(leader: Leader | SmallCluster, gang: Workload) -> dict[str, int]:
    known = leader.view.gangs.get(key_of(gang))
    assert known is not None
    demand = demand_of(known, {})
    assert isinstance(demand, NodeDemand)
    return {one.pod_set.name: one.count for one in demand.pods}


@pytest.mark.parametrize(("least", "counts"), [(2, (1, 1)), (4, (3, 1)), (6, (4, 2)), (8, (4, 4)), (None, (4, 4))])
def test_nodes_are_requested_for_a_minimum_in_which_each_template_has_its_own(
    least: int | None, counts: tuple[int, int]
) -> None:
    """A gang without one of its templates does not start, whatever nodes come."""
    gang = two_templates(**({} if least is None else {names.MIN_AVAILABLE: str(least)}))
    assert wanted(SmallCluster([gang], nodes=[]), gang) == dict(zip(("feeder", "trainer"), counts, strict=True))


@pytest.mark.parametrize(("count", "least", "size", "nodes"), [(8, 5, 4, 8), (8, 2, 4, 4), (6, 3, 2, 4), (8, 4, 4, 4)])
def test_nodes_are_requested_for_whole_slices(count: int, least: int, size: int, nodes: int) -> None:
    """Fewer pods are never placed: on as many nodes as a minimum between slices says the gang would wait on."""
    slices = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: str(size)}
    asked = {names.REQUIRE: "block", names.MIN_AVAILABLE: str(least), **slices}
    gang = job(
        "train", count=count, require=None, held=True, annotations={**asked, names.HELD_BY: names.HELD_BY_SUSPEND}
    )
    assert wanted(SmallCluster([gang], nodes=[]), gang) == {"main": nodes}


@pytest.mark.parametrize(("least", "count"), [(8, 4), (3, 3), (1, 1)])
def test_nodes_are_requested_for_a_member_of_a_pod_group_up_to_the_minimum_of_the_group(least: int, count: int) -> None:
    """With one node for each member it would wait for ever, and no more would be requested."""
    leader = Leader(nodes=[], policy=POLICY)
    members = [member(name, least=least) for name in ("a", "b")]
    leader.has(*members)
    leader.settle()
    assert [wanted(leader, one) for one in members] == [{"main": count}] * 2


@pytest.mark.parametrize(
    ("whole", "each", "together"),
    [
        ({}, {"trainer": {names.REQUIRE: "rack"}}, {"trainer"}),
        ({names.REQUIRE: "rack"}, {}, {"feeder", "trainer"}),
        ({}, {"trainer": {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "2"}}, {"trainer"}),
        (
            {},
            {name: {names.REQUIRE: "rack", names.COLOCATE: "x"} for name in ("feeder", "trainer")},
            {"feeder", "trainer"},
        ),
        ({}, {"trainer": {names.PREFER: "rack"}}, set()),
    ],
)
def test_pods_need_one_domain_if_they_are_asked_to(
    whole: dict[str, str], each: dict[str, dict[str, str]], together: set[str]
) -> None:
    gang = two_templates()
    sets = (
        replace(one, template=replace(one.template, annotations=each.get(one.name, {names.UNCONSTRAINED: "true"})))
        for one in gang.pod_sets
    )
    gang = replace(gang, annotations=whole, pod_sets=tuple(sets) if each else gang.pod_sets)
    known = SmallCluster([gang], nodes=gpu_nodes(1, 1, 1)).view.gangs.get(key_of(gang))
    assert known is not None
    demand = demand_of(known, {})
    assert isinstance(demand, NodeDemand)
    assert {one.pod_set.name for one in demand.pods if one.together} == together


def test_no_nodes_can_be_requested_for_pods_of_which_nothing_is_known_yet() -> None:
    """A SparkApplication may have no templates: what its pods need shows when they exist."""
    gang = two_templates()
    feeder, trainer = (replace(one, selector=(("role", one.name),)) for one in gang.pod_sets)
    gang = replace(gang, pod_sets=(feeder, replace(trainer, templated=False)))
    known = SmallCluster([gang], nodes=[]).view.gangs.get(key_of(gang))
    assert known is not None
    assert demand_of(known, {}) == "what its pods need is not known before they exist"
    held = pod(gang, 0, gated=True)
    held = replace(held, spec=replace(held.spec, labels={**held.spec.labels, "role": "trainer"}))
    assert wanted(SmallCluster([gang], nodes=[], pods=[held]), gang) == {"feeder": 4, "trainer": 4}
