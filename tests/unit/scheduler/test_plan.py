"""From a request and the view of the cluster to an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.api import names
from engine.api.objects import Node, Taint
from engine.api.pod import PreferredTerm, SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.capacity.capacity import Capacity, SlotCounts
from engine.policy.model import Policy, parse_policy
from engine.resources.shape import EXCLUSIVE
from engine.scheduler.outcome import Never, Outcome, Placed, Waits
from engine.scheduler.plan import PlanConditions, plan_placement
from engine.topology.topology import Topology
from tests.support.cluster_records import gpu_nodes, job, node, placement, pod_set, shape, spec
from tests.support.leader import Leader

RACK = "cloud.provider.com/topology-rack"


def plan_on(
    nodes: list[Node],
    workload: Workload,
    *,
    placed: dict[str, int] | None = None,
    policy: Policy | None = None,
    **conditions: Any,
) -> Outcome:
    """The answer for a Job on these nodes, where another gang may hold some hosts."""
    stores = Stores()
    view = ClusterState(stores, policy)
    stores.nodes.replace(nodes)
    if placed:
        other = job("other", count=sum(placed.values()))
        stores.workloads.replace([other])
        stores.placements.replace([placement(other, placed)])
    view.refresh()
    return plan_in(view, workload, **conditions)


def plan_in(view: ClusterState, workload: Workload, **conditions: Any) -> Outcome:
    """The answer for a Job in this state."""
    request = view.request_of(workload)
    assert request.errors == ()
    return plan_placement(
        request,
        {pod_set.name: pod_set.template.shape for pod_set in workload.pod_sets},
        capacity=view.capacity,
        topology=view.topologies.get(request.topology or ""),
        policy=view.policy,
        conditions=PlanConditions(**conditions),
    )


def hosts_of(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Placed), outcome
    return [slot.host for slot in outcome.pod_sets[0].slots]


def test_a_required_rack_takes_the_whole_gang() -> None:
    """All pods land in one rack, in rank order."""
    outcome = plan_on(gpu_nodes(2, 2, 4), job(count=4))
    assert isinstance(outcome, Placed)
    assert outcome.domains_used == {"block": 1, "rack": 1, "host": 4}
    assert [slot.ranks for slot in outcome.pod_sets[0].slots] == [((0, 0),), ((1, 1),), ((2, 2),), ((3, 3),)]


def test_a_required_rack_that_is_too_small_is_never() -> None:
    """More pods than the largest rack could ever hold."""
    outcome = plan_on(gpu_nodes(1, 2, 4), job(count=5))
    assert isinstance(outcome, Never)
    assert outcome.reason == "GangTooLarge"


def test_room_in_total_but_in_no_rack_is_fragmented() -> None:
    """Enough in total, not in one domain: the reason that topology users need."""
    outcome = plan_on(gpu_nodes(1, 2, 4), job(count=4), placed={"b0-r0-h0": 1, "b0-r1-h0": 1})
    assert isinstance(outcome, Waits)
    assert outcome.reason == "Fragmented"
    assert "needs 4 hosts in one rack" in outcome.message


def test_a_preferred_rack_spreads_over_as_few_as_possible() -> None:
    """prefer falls back to more racks."""
    gang = job(count=6, require=None, annotations={names.PREFER: "rack"})
    outcome = plan_on(gpu_nodes(2, 2, 4), gang)
    assert isinstance(outcome, Placed)
    assert outcome.domains_used["rack"] == 2
    assert outcome.domains_used["block"] == 1


def test_required_auto_waits_for_the_tightest_level_that_could_hold_it() -> None:
    """`auto` counts allocatable, not free: with one host of each rack in use it waits for a whole rack."""
    gang = job(count=4, require="auto")
    assert isinstance(plan_on(gpu_nodes(1, 2, 4), gang), Placed)
    waits = plan_on(gpu_nodes(1, 2, 4), gang, placed={"b0-r0-h0": 1, "b0-r1-h0": 1})
    assert isinstance(waits, Waits)
    wider = plan_on(gpu_nodes(1, 2, 4), job(count=6, require="auto"))
    assert isinstance(wider, Placed)
    assert wider.require == "block"


def test_what_is_preferred_is_nothing_where_auto_went_below_it() -> None:
    """One pod fits on a host: that is required, and within one host no rack is left to prefer."""
    said = {names.REQUIRE: "auto", names.PREFER: "rack"}
    outcome = plan_on(gpu_nodes(2, 2, 4), job(count=1, annotations=said))
    assert isinstance(outcome, Placed)
    assert (outcome.require, outcome.prefer) == ("host", None)
    wider = plan_on(gpu_nodes(2, 2, 4), job(count=6, annotations=said))
    assert isinstance(wider, Placed)
    assert (wider.require, wider.prefer) == ("block", "rack")


def test_hosts_left_out_are_not_used() -> None:
    """A host in back-off takes no pod of the gang this time."""
    outcome = plan_on(gpu_nodes(1, 1, 4), job(count=3), excluded=frozenset({"b0-r0-h0"}))
    assert "b0-r0-h0" not in hosts_of(outcome)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """The shapes whose slots were counted on all hosts, one for each time."""
    found: list[Shape] = []
    count = Capacity.count

    def counted(self: Capacity, shape: Shape, topology: Topology) -> SlotCounts:
        found.append(shape)
        return count(self, shape, topology)

    monkeypatch.setattr(Capacity, "count", counted)
    return found


@pytest.mark.parametrize("excluded", [(), ("b0-r0-h0",)])
def test_hosts_left_out_do_not_let_all_hosts_be_counted_again(counts: list[Shape], excluded: tuple[str, ...]) -> None:
    """The slots that are kept between decisions suffice: in a large cluster counting takes longer than the plan."""
    assert isinstance(plan_on(gpu_nodes(1, 1, 4), job(count=3), excluded=frozenset(excluded)), Placed)
    assert len(counts) == 1


def test_auto_lets_all_hosts_be_counted_again_only_when_a_node_has_changed(counts: list[Shape]) -> None:
    """What is in use does not move the level that `auto` means; a node that grows does."""
    view, gang = ClusterState(Stores()), job(count=4, require="auto")
    nodes = gpu_nodes(2, 2, 4)
    view.stores.nodes.replace(nodes)
    view.refresh()
    placed = plan_in(view, gang)
    assert isinstance(placed, Placed)
    assert placed.require == "rack"
    other = job("other", count=1)
    view.stores.workloads.replace([other])
    view.stores.placements.replace([placement(other, {"b0-r0-h0": 1})])
    view.refresh()
    counts.clear()
    assert plan_in(view, gang) != placed
    assert counts == []
    more = {resource: 4 * amount for resource, amount in nodes[7].allocatable.items()}
    view.stores.nodes.replace([*nodes[:7], replace(nodes[7], resource_version="99", allocatable=more), *nodes[8:]])
    view.refresh()
    grown = plan_in(view, gang)
    assert isinstance(grown, Placed)
    assert grown.require == "host"


def test_a_node_counts_only_after_it_has_settled() -> None:
    """A node that became ready a moment ago is left out until its DaemonSets are there."""
    nodes = gpu_nodes(1, 1, 2)
    nodes[0] = replace(nodes[0], settled_at=1_000.0)
    assert isinstance(plan_on(nodes, job(count=2), settled_before=999.0), Waits)
    assert isinstance(plan_on(nodes, job(count=2), settled_before=1_001.0), Placed)


def test_a_node_whose_clock_was_hours_ahead_when_it_became_ready_counts() -> None:
    """Its kubelet writes since when it is Ready: a clock that was corrected later must not keep it unused for hours."""
    nodes = gpu_nodes(1, 1, 2)
    nodes[0] = replace(nodes[0], settled_at=10_000.0 + 8 * 3600)
    assert isinstance(plan_on(nodes, job(count=2), settled_before=9_985.0), Placed)
    nodes[0] = replace(nodes[0], settled_at=10_030.0)  # clocks are never quite the same
    assert isinstance(plan_on(nodes, job(count=2), settled_before=9_985.0), Waits)


def test_without_a_time_to_settle_a_node_counts_at_once() -> None:
    """Also one whose clock is a little ahead: nothing would look at it again when that time has come."""
    nodes = gpu_nodes(1, 1, 2)
    nodes[0] = replace(nodes[0], settled_at=1_002.0)
    policy = parse_policy("nodes: {settle: 0s}")
    assert isinstance(plan_on(nodes, job(count=2), settled_before=1_000.0, policy=policy), Placed)


@pytest.mark.parametrize("change", [{"ready": False}, {"unschedulable": True}], ids=["not ready", "cordoned"])
def test_an_unhealthy_host_is_not_used(change: dict[str, bool]) -> None:
    """Cordoned and NotReady hosts take no new pods; the gang waits for them to come back."""
    nodes = gpu_nodes(1, 1, 2)
    nodes[0] = replace(nodes[0], **change)  # type: ignore[arg-type]
    outcome = plan_on(nodes, job(count=2))
    assert isinstance(outcome, Waits)
    assert outcome.reason == "NodesUnhealthy"


def test_nodes_without_the_level_labels_are_outside() -> None:
    """A node without its rack label belongs to no rack, however free it is."""
    nodes = [*gpu_nodes(1, 1, 2), node("stray")]
    outcome = plan_on(nodes, job(count=3))
    assert not isinstance(outcome, Placed)


def test_without_nodes_a_known_alias_waits_for_labels() -> None:
    """No node is there yet: the gang waits, its level may come with the nodes."""
    outcome = plan_on([], job(count=2))
    assert isinstance(outcome, Waits)
    assert outcome.reason == "LabelsMissing"


@pytest.mark.parametrize("nodes", [[], [node("stray")]], ids=["none", "without labels"])
def test_a_topology_without_hosts_lets_a_gang_wait(nodes: list[Node]) -> None:
    """The policy names a topology that no node belongs to yet: an answer, not a fault."""
    policy = parse_policy("topologies:\n- {name: default, preset: demo}\n")
    outcome = plan_on(nodes, job(count=2), policy=policy)
    assert isinstance(outcome, Waits)


def test_a_gang_of_nothing_is_placed_nowhere() -> None:
    """parallelism 0: no slots, no wait."""
    outcome = plan_on(gpu_nodes(1, 1, 1), job(count=0))
    assert isinstance(outcome, Placed)
    assert outcome.pod_sets[0].slots == ()


def test_an_unranked_gang_has_slots_without_ranks() -> None:
    """Pods without a rank take any slot."""
    outcome = plan_on(gpu_nodes(1, 1, 2), job(count=2, ranked=False))
    assert isinstance(outcome, Placed)
    assert [slot.ranks for slot in outcome.pod_sets[0].slots] == [None, None]


def test_a_toleration_that_would_make_room_is_named() -> None:
    """What would make it fit is computed: the tainted hosts have the room, and only they do."""
    nodes = gpu_nodes(1, 2, 2)
    nodes[2:] = [replace(one, taints=(Taint("team", "blue", "NoSchedule"),)) for one in nodes[2:]]
    waits = plan_on(nodes, job(count=2), placed={"b0-r0-h0": 1})
    assert isinstance(waits, Waits)
    assert waits.message.endswith("with a toleration for team it would fit now")


def test_a_toleration_that_would_not_help_is_not_named() -> None:
    """The tainted hosts are too few as well."""
    nodes = gpu_nodes(1, 2, 2)
    nodes[3] = replace(nodes[3], taints=(Taint("team", "blue", "NoSchedule"),))
    waits = plan_on(nodes, job(count=2), placed={"b0-r0-h0": 1, "b0-r1-h0": 1})
    assert isinstance(waits, Waits)
    assert "toleration" not in waits.message


@pytest.mark.parametrize("excluded", ["b0-r1-h0", "b0-r1-h1"])
def test_hosts_left_out_for_the_gang_make_no_toleration_helpful(excluded: str) -> None:
    """Neither a free host, nor the tainted one itself: the toleration would open no rack of two."""
    nodes = gpu_nodes(1, 2, 2)
    nodes[3] = replace(nodes[3], taints=(Taint("team", "blue", "NoSchedule"),))
    waits = plan_on(nodes, job(count=2), placed={"b0-r0-h0": 1}, excluded=frozenset({excluded}))
    assert isinstance(waits, Waits)
    assert "toleration" not in waits.message


@pytest.mark.parametrize("excluded", [0, 1])
def test_domains_of_other_gangs_make_no_toleration_helpful(excluded: int) -> None:
    """A rack that an exclusive gang keeps stays closed, whether the tainted host is in it or the other one."""
    nodes = gpu_nodes(1, 2, 1)
    nodes[1] = replace(nodes[1], taints=(Taint("team", "blue", "NoSchedule"),))
    barred = {EXCLUSIVE: np.arange(2) == excluded}
    waits = plan_on(nodes, job(count=2, require="block"), barred=barred)
    assert isinstance(waits, Waits)
    assert "toleration" not in waits.message
    assert "1 in domains of exclusive gangs" in waits.message


SLICES = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4"}


def test_slices_stay_whole_in_their_domains() -> None:
    """Each four consecutive ranks share a rack, where racks with three free hosts would have been fewer hosts apart."""
    nodes = gpu_nodes(1, 3, 6)
    taken = {"b0-r0-h0": 1, "b0-r0-h1": 1, "b0-r0-h2": 1}
    outcome = plan_on(nodes, job(count=8, annotations={names.PREFER: "rack", **SLICES}), placed=taken)
    assert isinstance(outcome, Placed)
    racks = [slot.domain[1] for slot in outcome.pod_sets[0].slots]
    assert racks == ["b0-r1"] * 4 + ["b0-r2"] * 4
    assert [slot.ranks for slot in outcome.pod_sets[0].slots] == [((rank, rank),) for rank in range(8)]


def test_room_that_no_whole_slice_can_use_does_not_count() -> None:
    """Eight hosts are free, but only one rack has four of them: the answer counts whole slices and says so."""
    taken = {f"b0-r{rack}-h{host}": 1 for rack in (1, 2) for host in range(4)}
    outcome = plan_on(gpu_nodes(1, 3, 6), job(count=8, annotations={names.REQUIRE: "block", **SLICES}), placed=taken)
    assert isinstance(outcome, Waits)
    assert outcome.message.startswith("needs 8 hosts in one block, 4 at a time in one rack; best is b0 with 4 (")


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (
            {names.REQUIRE: "block"},
            "needs 8 hosts in one block, 4 at a time in one rack; no block has {} (1 block looked",
        ),
        ({}, "needs 8 hosts, 4 at a time in one rack; there is {}; 12 nodes"),
    ],
)
def test_hosts_that_make_no_whole_slice_are_free_all_the_same(asks: dict[str, str], text: str) -> None:
    """Three hosts of each rack are free: it is not for want of a free host, or of GPUs on one."""
    taken = {f"b0-r{rack}-h0": 1 for rack in range(3)}
    outcome = plan_on(gpu_nodes(1, 3, 4), job(count=8, annotations={**SLICES, **asks}), placed=taken)
    assert isinstance(outcome, Waits)
    room = "room for a slice of 4 pods" if asks else "no room for a slice of 4 pods"
    assert outcome.message.startswith(text.format(room))
    assert outcome.message.endswith("12 nodes = 3 in use + 9 with room")


def test_slices_larger_than_any_domain_are_never() -> None:
    """No rack could ever hold a slice of it."""
    outcome = plan_on(gpu_nodes(1, 4, 3), job(count=8, annotations=SLICES))
    assert isinstance(outcome, Never)
    assert outcome.reason == "GangTooLarge"
    assert "4 at a time in one rack" in outcome.message


def test_required_auto_counts_whole_slices() -> None:
    """The lowest level with a domain that could hold the gang in whole slices: not the rack of six, but the block."""
    outcome = plan_on(gpu_nodes(2, 2, 6), job(count=8, annotations={names.REQUIRE: "auto", **SLICES}))
    assert isinstance(outcome, Placed)
    assert outcome.require == "block"


def test_slots_that_are_too_many_for_one_object_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server would refuse the Placement, and nobody would hear of it."""
    monkeypatch.setattr("engine.scheduler.schedule._SURELY_FITS", 4)
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    leader.has(job("small", count=1, held=True), job("large", count=3, held=True))
    leader.settle()
    assert sorted(leader.hands.of("place")) == ["large", "small"]
    monkeypatch.setattr("engine.scheduler.schedule._LARGEST", 200)
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    leader.has(job("small", count=1, held=True), job("large", count=4, held=True))
    leader.settle()
    leader.later(5)
    assert leader.hands.of("place") == ["small"]
    assert [status.reason for name, status in leader.hands.told if name == "large"] == ["GangLimitExceeded"]


def test_a_gang_with_a_minimum_is_told_what_it_needs_to_start() -> None:
    """One host is free, two of four pods are enough: it lacks one, not three."""
    annotations = {names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: "2"}
    outcome = plan_on(
        gpu_nodes(1, 1, 4),
        job(count=4, require=None, annotations=annotations),
        placed={"b0-r0-h0": 1, "b0-r0-h1": 1, "b0-r0-h2": 1},
    )
    assert isinstance(outcome, Waits)
    assert outcome.message.startswith("needs 2 of 4 hosts; 1 free; ")


def test_a_minimum_that_fits_an_empty_cluster_waits() -> None:
    """That all of its pods never fit is no reason to call it too large."""
    annotations = {names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: "2"}
    outcome = plan_on(
        gpu_nodes(1, 1, 3), job(count=4, require=None, annotations=annotations), placed={"b0-r0-h0": 1, "b0-r0-h1": 1}
    )
    assert isinstance(outcome, Waits), outcome


def test_a_pod_with_more_memory_than_any_host_is_told_both_numbers() -> None:
    """What one pod asks for, and the most that a host has."""
    large = job(count=1)
    large = replace(
        large,
        pod_sets=(replace(large.pod_sets[0], template=replace(large.template, shape=shape(memory=2 * 1024 * 1024))),),
    )
    outcome = plan_on(gpu_nodes(1, 1, 2), large)
    assert outcome == Never(
        "HostTooSmall", "one pod asks for memory 2Ti and no host has more than 1Ti; ask for less per pod"
    )


def test_a_selector_of_the_topology_is_not_told_as_the_users() -> None:
    """He has none, and cannot loosen it: his admin can."""
    policy = parse_policy(
        "apiVersion: topogate.dev/v1alpha1\nkind: Policy\ntopologies:\n"
        "- {name: default, preset: demo, nodeSelector: {pool: gpu}}\n"
    )
    outcome = plan_on(gpu_nodes(1, 1, 2), job(count=2, require=None, annotations={names.PREFER: "host"}), policy=policy)
    assert isinstance(outcome, Waits)
    assert outcome.reason == "LabelsMissing"
    assert "2 nodes = 2 outside the topology's nodeSelector" in outcome.message


PACKED, EMPTY = {"b0-r0"}, {"b0-r1"}
DEMO = "topologies: [{name: a, preset: demo%s}]"


@pytest.mark.parametrize(
    ("asked", "of_topology", "of_planner", "racks"),
    [
        (None, "", "", PACKED),
        (None, "", "planner: {profile: spread}", EMPTY),
        (None, ", profile: spread", "", EMPTY),
        (None, ", profile: pack", "planner: {profile: spread}", PACKED),
        ("spread", ", profile: pack", "", EMPTY),
        ("pack", ", profile: spread", "planner: {profile: spread}", PACKED),
    ],
)
def test_the_profile_is_the_workload_s_or_its_topology_s_or_the_planner_s(
    asked: str | None, of_topology: str, of_planner: str, racks: set[str]
) -> None:
    """Of two racks with room the fuller one, or with `spread` the emptier one."""
    policy = parse_policy("\n".join((DEMO % of_topology, of_planner)))
    annotations = {names.REQUIRE: "rack"} | ({names.PROFILE: asked} if asked else {})
    outcome = plan_on(
        gpu_nodes(1, 2, 4), replace(job(count=2), annotations=annotations), placed={"b0-r0-h0": 1}, policy=policy
    )
    assert isinstance(outcome, Placed)
    assert {slot.domain[1] for slot in outcome.pod_sets[0].slots} == racks


def shares_of(outcome: Outcome, level: int) -> list[int]:
    assert isinstance(outcome, Placed), outcome
    held = Counter[tuple[str, ...]]()
    for slot in outcome.pod_sets[0].slots:
        held[slot.domain[: level + 1]] += slot.count
    return sorted(held.values())


BALANCED = {names.PREFER: "rack", names.PROFILE: "balanced"}


@pytest.mark.parametrize(("asked", "shares"), [({}, [1, 15]), ({names.PROFILE: "balanced"}, [8, 8])], ids=str)
def test_a_balanced_gang_has_as_many_pods_in_each_rack(asked: dict[str, str], shares: list[int]) -> None:
    """Sixteen pods on racks of fifteen hosts: two racks either way; neighbouring ranks stay together."""
    outcome = plan_on(gpu_nodes(1, 3, 15), replace(job(count=16), annotations={names.PREFER: "rack", **asked}))
    assert isinstance(outcome, Placed)
    assert (outcome.domains_used, outcome.proven) == ({"block": 1, "rack": 2, "host": 16}, True)
    assert shares_of(outcome, 1) == shares
    ranks = [first for slot in outcome.pod_sets[0].slots for first, _ in slot.ranks or ()]
    assert ranks == [*range(16)]


def test_a_balanced_gang_keeps_its_slices_whole() -> None:
    """Twenty pods in slices of four on racks of fifteen hosts: twelve and eight, not ten and ten."""
    annotations = {**BALANCED, names.SLICES: "rack=4"}
    outcome = plan_on(gpu_nodes(1, 3, 15), replace(job(count=20), annotations=annotations))
    assert shares_of(outcome, 1) == [8, 12]


def test_a_balanced_gang_that_fits_in_one_rack_stays_there() -> None:
    """Even shares never cost a domain."""
    outcome = plan_on(gpu_nodes(1, 3, 4), replace(job(count=4), annotations=BALANCED))
    assert shares_of(outcome, 1) == [4]


def test_a_balanced_gang_of_a_minimum_is_divided_as_far_as_it_fits() -> None:
    """Of twelve pods eight are enough, and eight hosts in two racks are free: four in each."""
    annotations = {**BALANCED, names.MIN_AVAILABLE: "8"}
    outcome = plan_on(gpu_nodes(1, 2, 4), replace(job(count=12), annotations=annotations))
    assert shares_of(outcome, 1) == [4, 4]


# -- what pods prefer ------------------------------------------------------------------------------------------------


def wishing(*racks: tuple[str, int]) -> tuple[PreferredTerm, ...]:
    """Preferred racks with weights."""
    return tuple(
        PreferredTerm(weight, SelectorTerm((SelectorRequirement(RACK, "In", (rack,)),), ())) for rack, weight in racks
    )


def with_wish(workload: Workload, wish: tuple[PreferredTerm, ...]) -> Workload:
    pod_sets = [
        replace(one, template=replace(one.template, shape=replace(one.template.shape, preferred=wish)))
        for one in workload.pod_sets
    ]
    return replace(workload, pod_sets=tuple(pod_sets))


def racks_of(outcome: Outcome) -> set[str]:
    assert isinstance(outcome, Placed), outcome
    return {slot.host.rpartition("-")[0] for one in outcome.pod_sets for slot in one.slots}


@pytest.mark.parametrize("require", ["rack", "host", None])
def test_of_equal_racks_the_preferred_one(require: str | None) -> None:
    """By weight, and only between equals: without a wish the first, with one for a rack of their own all the same."""
    count = 1 if require == "host" else 3
    plain = job(count=count, require=require)
    if require is None:
        plain = replace(plain, annotations={names.UNCONSTRAINED: "true"})
    assert racks_of(plan_on(gpu_nodes(2, 2, 4), plain)) == {"b0-r0"}
    wish = wishing(("b0-r1", 10), ("b1-r1", 40), ("b1-r0", 30))
    assert racks_of(plan_on(gpu_nodes(2, 2, 4), with_wish(plain, wish))) == {"b1-r1"}


def test_a_fuller_rack_counts_more_than_a_wish() -> None:
    """Empty racks stay empty."""
    wish = with_wish(job(count=2), wishing(("b1-r1", 100)))
    assert racks_of(plan_on(gpu_nodes(2, 2, 4), wish, placed={"b0-r1-h0": 1})) == {"b0-r1"}


def test_of_the_racks_of_a_preferred_level_the_wished_ones() -> None:
    """Two racks are needed: of equal ones the two with the highest weights."""
    wish = wishing(("b0-r3", 50), ("b0-r1", 30), ("b0-r2", 10))
    wanted = with_wish(replace(job(count=8), annotations={names.PREFER: "rack"}), wish)
    assert racks_of(plan_on(gpu_nodes(1, 4, 4), wanted)) == {"b0-r1", "b0-r3"}


def test_a_soft_taint_is_avoided_unless_it_is_tolerated() -> None:
    """PreferNoSchedule; where there is no other room it is no obstacle."""
    soft = Taint("gone-soon", "", "PreferNoSchedule")
    nodes = [replace(one, taints=(soft,)) if one.name.startswith("b0-r0") else one for one in gpu_nodes(1, 2, 4)]
    assert racks_of(plan_on(nodes, job(count=4))) == {"b0-r1"}
    assert racks_of(plan_on(nodes, job(count=4), placed={"b0-r1-h0": 1})) == {"b0-r0"}
    tolerant = job(count=4)
    shape_of = replace(tolerant.pod_sets[0].template.shape, tolerations=(Toleration("gone-soon", "Exists", "", ""),))
    template = replace(tolerant.pod_sets[0].template, shape=shape_of)
    tolerant = replace(tolerant, pod_sets=(replace(tolerant.pod_sets[0], template=template),))
    assert racks_of(plan_on(nodes, tolerant)) == {"b0-r0"}


def test_a_gang_of_several_pod_sets_goes_where_its_pods_wish_most() -> None:
    """Ten workers outvote their leader."""
    leader, workers = wishing(("b0-r2", 100)), wishing(("b0-r1", 100))
    gang = replace(
        job(),
        pod_sets=(
            pod_set("leader", count=1, template=spec(shape=replace(shape(gpu=1), preferred=leader))),
            pod_set("workers", count=3, template=spec(shape=replace(shape(gpu=8), preferred=workers))),
        ),
    )
    assert racks_of(plan_on(gpu_nodes(1, 3, 4), gang)) == {"b0-r1"}


def test_wishes_for_what_no_node_has_change_nothing() -> None:
    wish = wishing(("nowhere", 100))
    assert plan_on(gpu_nodes(2, 2, 4), with_wish(job(), wish)) == plan_on(gpu_nodes(2, 2, 4), job())
