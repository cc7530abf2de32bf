"""What pods near each other require, as part of a plan: messages, kept pods, reservations, and what changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.api import names
from engine.api.pod import OwnerRef, Pod, PodConstraints, PodTerm, SelectorRequirement, SpreadConstraint
from engine.api.workload import Workload
from engine.capacity.nearby_pods import MAX_QUERIES, PodQuery
from engine.gang.key import key_of
from engine.gang.repair import growth_request, repair_request
from engine.scheduler.outcome import Outcome, Placed, Waits
from engine.scheduler.schedule import new_placement, schedule_extension
from engine.scheduler.separation import separation_key
from tests.support.cluster_records import gpu_nodes, job, node, placement, pod, pod_set, shape, spec
from tests.support.small_cluster import SmallCluster

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
IS_WEB = (SelectorRequirement("app", "In", ("web",)),)
APART = PodConstraints(anti_affinity=(PodTerm(RACK, IS_WEB, ("default",)),))
NEAR = PodConstraints(affinity=(PodTerm(RACK, IS_WEB, ("default",)),))


def template(constraints: PodConstraints | None = None, app: str = "web", gpu: int = 1, **more: Any) -> Any:
    return spec(
        shape=shape(gpu=gpu),
        gates=(names.GATE,),
        labels={names.MANAGED: "true"},
        own_labels=("app", app),
        constraints=constraints,
        **more,
    )


def other(name: str, host: str, *, app: str = "db", constraints: PodConstraints | None = None, **more: Any) -> Pod:
    own = spec(shape=shape(), node_name=host, own_labels=("app", app), constraints=constraints)
    return replace(pod(job("x"), None, host=host, name=name), owner=None, spec=own, **more)


def gang(name: str = "train", count: int = 2, constraints: PodConstraints | None = None, **more: Any) -> Workload:
    return job(
        name,
        count=count,
        require=None,
        annotations={names.UNCONSTRAINED: "true"},
        template=template(constraints),
        **more,
    )


class Cluster(SmallCluster):
    """2 blocks of 2 racks of 2 hosts with 8 GPUs, unless told otherwise."""

    def __init__(self, *workloads: Workload, pods: tuple[Pod, ...] = (), nodes: Any = None) -> None:
        super().__init__(workloads, nodes=gpu_nodes(2, 2, 2) if nodes is None else nodes, pods=pods)

    def hosts(self, workload: Workload) -> list[str]:
        return [slot.host for one in self.placed(workload).pod_sets for slot in one.slots for _ in range(slot.count)]


def racks(hosts: list[str]) -> list[str]:
    return sorted(host.rpartition("-")[0] for host in hosts)


def test_the_message_names_each_term_with_its_hosts() -> None:
    """And what the gang's own pods must keep to."""
    constraints = PodConstraints(anti_affinity=(PodTerm(BLOCK, IS_WEB, ("default",)), *APART.anti_affinity))
    train = gang(count=3, constraints=constraints)
    away = PodConstraints(anti_affinity=(PodTerm(BLOCK, IS_WEB, (), ()),))
    cluster = Cluster(train, pods=(other("db", "b0-r0-h0", constraints=away), other("web", "b0-r0-h1", app="web")))
    outcome = cluster.plan(train)
    assert outcome == Waits(
        "PodConstraints",
        "needs room for 3 pods among 8 hosts; "
        f"4 hosts excluded by podAntiAffinity of other pods on {BLOCK}; "
        f"4 hosts excluded by podAntiAffinity on {BLOCK} with app=web; "
        f"2 hosts excluded by podAntiAffinity on {RACK} with app=web; "
        f"its own pods must keep to podAntiAffinity on {BLOCK} with app=web, podAntiAffinity on {RACK} with app=web",
    )


def test_a_full_cluster_counts_the_excluded_hosts_beside_the_others() -> None:
    """When room is missing as well, the reason is that, and the nodes add up."""
    train = gang(count=2, constraints=NEAR)
    full = tuple(
        replace(other(f"full-{host}", host), spec=spec(shape=shape(gpu=8), node_name=host, own_labels=("app", "db")))
        for host in (one.name for one in gpu_nodes(2, 2, 2))
    )
    outcome = Cluster(train, pods=(*full, other("web", "b0-r0-h0", app="web"))).plan(train)
    assert isinstance(outcome, Waits)
    assert outcome.reason == "InsufficientFreeGPUs"
    assert f"6 excluded by podAffinity on {RACK} with app=web" in outcome.message
    assert "2 in use" in outcome.message


@pytest.mark.parametrize("deleting", [False, True])
def test_terminating_pods_count_for_affinity_and_not_for_spread(deleting: bool) -> None:
    """As in Kubernetes."""
    web = other("web", "b1-r1-h0", app="web", deleting=deleting)
    near = gang("near", constraints=NEAR)
    even = gang("even", count=2, constraints=PodConstraints(spread=(SpreadConstraint(BLOCK, 1, IS_WEB),)))
    cluster = Cluster(near, even, pods=(web,))
    assert set(racks(cluster.hosts(near))) == {"b1-r1"}
    blocks = sorted(host.partition("-")[0] for host in cluster.hosts(even))
    assert blocks == (["b0", "b1"] if deleting else ["b0", "b0"])


def test_reserved_slots_count_like_their_pods() -> None:
    """A placed gang without pods keeps others away, attracts others, and stops to when it is gone."""
    first, second = gang("first", count=3, constraints=APART), gang("second", count=1, constraints=APART)
    near = gang("near")
    near = replace(near, pod_sets=(replace(near.pod_sets[0], template=template(NEAR, app="near")),))
    cluster = Cluster(first, second, near)
    assert isinstance(cluster.plan(near), Waits)
    placed = cluster.plan(first)
    assert isinstance(placed, Placed)
    found = cluster.view.gangs.get(key_of(first))
    assert found is not None
    taken = set(racks([slot.host for slot in placed.pod_sets[0].slots]))
    assert len(taken) == 3
    cluster.view.assume(key_of(first), new_placement(found, placed, priority=0, now=0.0))
    assert set(racks(cluster.hosts(second))).isdisjoint(taken)
    assert set(racks(cluster.hosts(near))) <= taken
    cluster.view.retract(key_of(first))
    assert len(set(racks(cluster.hosts(first)))) == 3


def test_growth_counts_the_pods_that_stay() -> None:
    """One pod in each of three racks; the fourth goes to the last one, a fifth does not fit."""
    train = gang(count=4, constraints=APART)
    hosts = {"b0-r0-h0": 1, "b0-r1-h0": 1, "b1-r0-h0": 1}
    known = placement(replace(train, pod_sets=gang(count=3).pod_sets), hosts)
    running = [
        replace(one, spec=replace(one.spec, own_labels=("app", "web"), constraints=APART))
        for rank, host in enumerate(hosts)
        for one in [pod(train, rank, host=host)]
    ]
    for count, fits in ((4, True), (5, False)):
        grown = replace(train, pod_sets=(replace(train.pod_sets[0], slots=count, total=count, remaining=count),))
        cluster = Cluster(grown, pods=tuple(running))
        cluster.stores.placements.replace([known])
        cluster.view.refresh()
        found = cluster.view.gangs.get(key_of(grown))
        assert found is not None and found.placement is not None
        extension = growth_request(
            found.workload, found.placement, found.pods, asks=found.request.pod_sets, gang=found.request.gang
        )
        assert extension is not None
        outcome = schedule_extension(cluster.view, found, extension)
        if fits:
            assert isinstance(outcome, Placed)
            assert len(set(racks([slot.host for slot in outcome.pod_sets[0].slots]))) == 4
        else:
            assert isinstance(outcome, Waits)
            assert outcome.reason == "PodConstraints"


def most_even(rooms: Sequence[int], skew: int, count: int) -> int:
    """The most pods that these domains can have while none has more than `skew` above the one with the fewest."""
    return min(count, max(sum(min(room, least + skew) for room in rooms) for least in range(min(rooms) + 1)))


@given(
    rooms=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    skew=st.integers(1, 3),
    count=st.integers(2, 24),
    least=st.integers(1, 24),
)
@example(rooms=[8, 2], skew=1, count=8, least=4)
def test_a_gang_with_a_minimum_gets_as_many_pods_as_a_spread_constraint_lets_be_placed(
    rooms: list[int], skew: int, count: int, least: int
) -> None:
    """Not the full number or none: with one rack full, the others may have little more than it has."""
    least = min(least, count)
    even = PodConstraints(spread=(SpreadConstraint(RACK, skew, IS_WEB),))
    minimum = {names.UNCONSTRAINED: "true", names.MIN_AVAILABLE: str(least)}
    train = job("train", count=count, require=None, annotations=minimum, template=template(even))
    large = {"cpu": 96_000, "memory": 1_048_576, "pods": 110}
    nodes = [
        node(f"h{number}", labels={BLOCK: "b0", RACK: f"r{number}"}, allocatable={**large, "nvidia.com/gpu": room})
        for number, room in enumerate(rooms)
    ]
    outcome = Cluster(train, nodes=nodes).plan(train)
    most = most_even(rooms, skew, count)
    placed = outcome.count if isinstance(outcome, Placed) else 0
    assert placed == (most if most >= least else 0)


@pytest.mark.parametrize(
    ("rooms", "count", "most"), [((8, 4), 16, 12), ((4, 8, 4), 20, 16), ((8, 8, 4), 24, 20), ((12, 4), 16, 12)]
)
def test_slices_stay_whole_where_a_spread_constraint_lets_a_part_be_placed(
    rooms: tuple[int, ...], count: int, most: int
) -> None:
    even = PodConstraints(spread=(SpreadConstraint(RACK, 4, IS_WEB),))
    sliced = {names.SLICE_TOPOLOGY: "rack", names.SLICE_SIZE: "4", names.MIN_AVAILABLE: "4"}
    train = job("train", count=count, require=None, annotations=sliced, template=template(even))
    large = {"cpu": 96_000, "memory": 1_048_576, "pods": 110}
    nodes = [
        node(f"h{number}", labels={BLOCK: "b0", RACK: f"r{number}"}, allocatable={**large, "nvidia.com/gpu": room})
        for number, room in enumerate(rooms)
    ]
    assert Cluster(train, nodes=nodes).placed(train).count == most


def test_pod_sets_under_one_rule_share_its_domains() -> None:
    """A leader and three workers with the same labels: one pod a rack, whichever template it is of."""
    sets = tuple(pod_set(name, count=count, template=template(APART)) for name, count in (("lead", 1), ("work", 3)))
    train = replace(gang(), pod_sets=sets)
    assert len(set(racks(Cluster(train).hosts(train)))) == 4
    more = replace(train, pod_sets=(sets[0], replace(sets[1], slots=4, total=4, remaining=4)))
    outcome = Cluster(more).plan(more)
    assert isinstance(outcome, Waits)
    assert outcome.reason == "PodConstraints"
    assert outcome.message.endswith("; not every way to place several templates under one rule was tried")


def test_a_rule_that_any_plan_keeps_takes_no_room_from_pod_sets() -> None:
    """Spread over the only rack: a leader and workers that fill it exactly start, at once and with proof."""
    even = PodConstraints(spread=(SpreadConstraint(RACK, 1, IS_WEB),))
    sets = (
        pod_set("lead", count=1, template=template(even, gpu=8)),
        pod_set("work", count=8, template=template(even)),
    )
    train = replace(gang(), pod_sets=sets)
    placed = Cluster(train, nodes=gpu_nodes(1, 1, 2)).placed(train)
    assert placed.count == 9
    assert placed.proven


def test_a_plan_in_one_of_several_domains_does_not_claim_the_fewest_hosts() -> None:
    """Pods with affinity to each other go to the tightest rack, though in another one they would share a host."""
    train = gang(count=2, constraints=NEAR)
    full = tuple(
        replace(other(host, host), spec=spec(shape=shape(gpu=7), node_name=host)) for host in ("b0-r0-h0", "b0-r0-h1")
    )
    placed = Cluster(train, pods=full).placed(train)
    assert placed.domains_used["host"] == 2
    assert not placed.proven


def test_workers_go_where_their_leader_goes() -> None:
    """Affinity to the pods of another template of the gang: all of them in one rack."""
    sets = (
        pod_set("lead", count=1, template=template(gpu=8)),
        pod_set("work", count=6, template=template(NEAR, app="worker")),
    )
    train = replace(gang(), pod_sets=sets)
    assert len(set(racks(Cluster(train).hosts(train)))) == 1


def test_a_label_of_no_node_excludes_every_host_or_none() -> None:
    """Affinity and spread need the label; anti-affinity is satisfied without it."""
    nowhere = "example.com/nowhere"
    term = PodTerm(nowhere, IS_WEB, ("default",))
    for constraints, fits in (
        (PodConstraints(affinity=(term,)), False),
        (PodConstraints(anti_affinity=(term,)), True),
        (PodConstraints(spread=(SpreadConstraint(nowhere, 1, IS_WEB),)), False),
    ):
        train = gang(constraints=constraints)
        assert isinstance(Cluster(train).plan(train), Placed) is fits


def test_gangs_share_an_answer_only_under_the_same_rules() -> None:
    """Their labels count when a selector may see them, and only then."""
    plain, also = gang("plain"), gang("also")
    also = replace(also, pod_sets=(replace(also.pod_sets[0], template=template(app="db")),))
    ruled = gang("ruled", constraints=APART)
    cluster = Cluster(plain, also, ruled)

    def key(workload: Workload) -> object:
        found = cluster.view.gangs.get(key_of(workload))
        assert found is not None
        return separation_key(cluster.view, found)

    assert key(plain) == key(also) != key(ruled)
    away = PodConstraints(anti_affinity=(PodTerm(RACK, IS_WEB, ("default",)),))
    cluster.stores.pods.apply("ADDED", other("away", "b0-r0-h0", constraints=away))
    cluster.view.refresh()
    assert key(plain) != key(also)


def test_a_pod_that_is_waited_for_wakes_the_queue() -> None:
    """No capacity is freed when it is bound, but a gang with affinity to it may fit now."""
    train = gang(
        constraints=PodConstraints(
            affinity=(PodTerm(RACK, (SelectorRequirement("app", "In", ("db",)),), ("default",)),)
        )
    )
    cluster = Cluster(train)
    assert cluster.plan(train) == Waits(
        "PodConstraints", f"needs room for 2 pods among 8 hosts; 8 hosts excluded by podAffinity on {RACK} with app=db"
    )
    cluster.view.take_changes()
    cluster.stores.pods.apply("ADDED", other("web", "b0-r0-h0", app="web"))
    assert not cluster.view.take_changes().capacity_freed
    cluster.stores.pods.apply("ADDED", other("db", "b0-r0-h1"))
    assert cluster.view.take_changes().capacity_freed
    assert set(racks(cluster.hosts(train))) == {"b0-r0"}


def test_nodes_that_come_and_go_leave_no_trace_in_the_counts() -> None:
    """A row of the capacity is used again by another host: its counts are those of the new one."""
    train = gang(count=1, constraints=APART)
    web = other("web", "old", app="web")
    cluster = Cluster(train, pods=(web,), nodes=[node("old", labels={RACK: "r0", BLOCK: "b0"})])
    assert isinstance(cluster.plan(train), Waits)
    cluster.stores.pods.apply("DELETED", web)
    cluster.stores.nodes.replace([node("new", labels={RACK: "r0", BLOCK: "b0"})])
    cluster.view.refresh()
    assert cluster.hosts(train) == ["new"]


def test_owned_pods_of_the_gang_itself_do_not_stand_in_its_way() -> None:
    """A gang that is planned again: its terminating pods are not others' pods."""
    train = gang(count=2, constraints=APART, held=True)
    leaving = replace(
        pod(train, 0, host="b0-r0-h0", deleting=True),
        owner=OwnerRef("batch/v1", "Job", train.name, train.uid, True),
    )
    leaving = replace(leaving, spec=replace(leaving.spec, own_labels=("app", "web"), constraints=APART))
    small = [one for one in gpu_nodes(1, 2, 1)]
    assert racks(Cluster(train, pods=(leaving,), nodes=small).hosts(train)) == ["b0-r0", "b0-r1"]


DB = (SelectorRequirement("app", "In", ("db",)),)
NEAR_DB = PodConstraints(affinity=(PodTerm(RACK, DB, ("default",)),))


@pytest.mark.parametrize("whose", ["its own", "of the others"])
def test_pods_of_emptied_hosts_keep_nobody_away(whose: str) -> None:
    """Hosts are kept for a gang on the condition that their pods end first; the other hosts stay as they are."""
    train = gang(count=1, constraints=APART if whose == "its own" else None)
    hosts = ["b0-r0-h0", "b0-r1-h0", "b1-r0-h0", "b1-r1-h0"]
    away = None if whose == "its own" else APART
    cluster = Cluster(train, pods=tuple(other(f"on-{host}", host, app="web", constraints=away) for host in hosts))
    assert not isinstance(cluster.plan(train), Placed)
    outcome = cluster.plan(train, emptied=frozenset({"b1-r0-h0"}))
    assert isinstance(outcome, Placed)
    assert racks([slot.host for one in outcome.pod_sets for slot in one.slots]) == ["b1-r0"]


def test_a_pod_that_is_waited_for_wakes_the_queue_even_if_its_selector_was_dropped() -> None:
    """There are more selectors than are kept counted."""
    train = gang(constraints=NEAR_DB)
    cluster = Cluster(train)
    assert isinstance(cluster.plan(train), Waits)
    for number in range(MAX_QUERIES):
        term = PodTerm(RACK, (SelectorRequirement("app", "In", (str(number),)),), ("default",))
        cluster.view.capacity.nearby(cluster.view.nearby, PodQuery((term,)))
    cluster.view.take_changes()
    cluster.stores.pods.apply("ADDED", other("db", "b0-r0-h1"))
    assert cluster.view.take_changes().capacity_freed
    assert set(racks(cluster.hosts(train))) == {"b0-r0"}


def test_a_running_pod_with_other_labels_wakes_the_queue() -> None:
    """It may no longer be one that a gang keeps away from, though nothing is freed."""
    train = gang(count=1, constraints=PodConstraints(anti_affinity=(PodTerm(BLOCK, DB, ("default",)),)))
    cluster = Cluster(train, pods=(other("one", "b0-r0-h0"), other("two", "b1-r0-h0")))
    assert isinstance(cluster.plan(train), Waits)
    cluster.view.take_changes()
    cluster.stores.pods.apply("MODIFIED", other("two", "b1-r0-h0", app="web"))
    assert cluster.view.take_changes().capacity_freed
    assert cluster.hosts(train)[0].startswith("b1")


def repaired(cluster: Cluster, train: Workload, lost: str) -> Outcome:
    found = cluster.view.gangs.get(key_of(train))
    assert found is not None and found.placement is not None and found.placement.assignment is not None
    request = repair_request(found.workload, found.placement, found.pods, blocked=lambda host: host == lost)
    assert request is not None
    stays = request.kept_part(found.placement.assignment)
    with cluster.view.release_slots(found.key, stays=stays):
        return schedule_extension(cluster.view, found, request, excluded=frozenset({lost}))


@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize("terminating", [True, False])
def test_a_lost_pod_comes_back_apart_from_those_that_stay(room: bool, terminating: bool) -> None:
    """To its own rack, which its terminating pod does not close to it, or to a fourth one; never beside the others."""
    train = gang(count=3, constraints=APART)
    hosts = {"b0-r0-h0": 1, "b0-r1-h0": 1, "b1-r0-h0": 1}
    own = [pod(train, rank, host=host) for rank, host in enumerate(hosts)]
    running = [replace(one, spec=replace(one.spec, own_labels=("app", "web"), constraints=APART)) for one in own]
    running[2:] = [replace(running[2], deleting=True)] if terminating else []
    taken = () if room else (other("far", "b1-r1-h0", app="web"), other("near", "b1-r0-h1", app="web"))
    cluster = Cluster(train, pods=(*running, *taken))
    cluster.stores.placements.replace([placement(train, hosts)])
    cluster.view.refresh()
    outcome = repaired(cluster, train, "b1-r0-h0")
    if not room:
        assert isinstance(outcome, Waits)
        assert outcome.reason == "PodConstraints"
        return
    assert isinstance(outcome, Placed)
    by_rank = {first: slot.host for slot in outcome.pod_sets[0].slots for first, _ in slot.ranks or ()}
    assert (by_rank[0], by_rank[1]) == ("b0-r0-h0", "b0-r1-h0")
    assert by_rank[2] in {"b1-r0-h1", "b1-r1-h0", "b1-r1-h1"}
    assert isinstance(repaired(cluster, train, "b1-r0-h0"), Placed)  # the attempt has left no trace in the counts


def test_a_slot_counts_once_when_its_pod_is_bound() -> None:
    """As a reservation, then as the pod, then as the terminating pod; no more when it is gone."""
    train, query = gang(count=1, constraints=APART), PodQuery((APART.anti_affinity[0],))
    cluster = Cluster(train)
    row = cluster.view.capacity.row_of("b0-r0-h0")
    pinned = pod(train, 0, pin="b0-r0-h0")
    pinned = replace(pinned, spec=replace(pinned.spec, own_labels=("app", "web"), constraints=APART))
    own = replace(pinned, spec=replace(pinned.spec, node_name="b0-r0-h0"))

    def seen() -> tuple[int, int]:
        cluster.view.refresh()
        away = cluster.view.nearby.keeping_away("default", {"app": "web"}, cluster.view.capacity.has_label)
        number = sum(sum(hosts.values()) for _, hosts in away)
        return int(cluster.view.capacity.nearby(cluster.view.nearby, query)[row]), number

    assert seen() == (0, 0)
    cluster.stores.placements.replace([placement(train, {"b0-r0-h0": 1})])
    assert seen() == (1, 1)
    life = (
        pinned,
        replace(pinned, nominated_node="b0-r0-h0"),
        own,
        replace(own, phase="Running"),
        replace(own, phase="Running", deleting=True),
    )
    for number, one in enumerate(life):
        cluster.stores.pods.apply("MODIFIED" if number else "ADDED", replace(one, resource_version=f"{9000 + number}"))
        assert seen() == (1, 1), one
    cluster.stores.placements.replace([])
    cluster.stores.workloads.replace([])
    assert seen() == (1, 1)
    cluster.stores.pods.apply("DELETED", replace(own, resource_version="9999"))
    assert seen() == (0, 0)


def test_other_constraints_of_a_waiting_gang_are_a_new_problem() -> None:
    """An UPDATE of the template before anything runs: the answer is not the one that is kept of the old problem."""
    before = gang(count=5, constraints=APART)
    cluster = Cluster(before)
    found = cluster.view.gangs.get(key_of(before))
    assert found is not None
    assert isinstance(cluster.plan(before), Waits)
    old = separation_key(cluster.view, found)
    after = replace(before, pod_sets=gang(count=5).pod_sets, resource_version="changed")
    cluster.view.take_changes()
    cluster.stores.workloads.apply("MODIFIED", after)
    assert found.key in cluster.view.take_changes().gangs
    found = cluster.view.gangs.get(key_of(after))
    assert found is not None
    assert separation_key(cluster.view, found) != old
    assert len(cluster.hosts(after)) == 5


def test_exclusive_gangs_and_pod_constraints_hold_together() -> None:
    """Blocks of others are closed by exclusive-topology, racks by anti-affinity; the message names what is short."""
    exclusive = {names.UNCONSTRAINED: "true", names.EXCLUSIVE: "block"}
    train = replace(gang(count=2, constraints=APART), annotations=exclusive)
    neighbour = replace(gang("neighbour", count=1), annotations={names.UNCONSTRAINED: "true"})
    member = pod(neighbour, 0, host="b0-r0-h0")
    cluster = Cluster(train, neighbour, pods=(member,))
    cluster.stores.placements.replace([placement(neighbour, {"b0-r0-h0": 1})])
    cluster.view.refresh()
    assert racks(cluster.hosts(train)) == ["b1-r0", "b1-r1"]
    cluster.stores.pods.apply("ADDED", other("web", "b1-r0-h0", app="web"))
    cluster.view.refresh()
    outcome = cluster.plan(train)
    assert isinstance(outcome, Waits)
    assert outcome.reason in ("PodConstraints", "ExclusiveDomains"), outcome
    assert "needs room for 2 pods" in outcome.message
