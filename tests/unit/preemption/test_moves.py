"""Which running gangs would restart elsewhere for another one, on a cluster of three racks with two hosts each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine.api import names
from engine.api.objects import Quota
from engine.api.placement import Assignment, PodSetPlan, Separation, Slot
from engine.api.pod import OwnerRef
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.making_room import Protect
from engine.policy.model import parse_policy
from engine.preemption.movable import movable
from engine.preemption.moves import Defragmentation, MoveLimits, moves_for_split, moves_for_waiting, replan
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import schedule_gang
from tests.support.cluster_records import changed, gpu_nodes, job, placement, pod, shape
from tests.support.pod_sets import pods_of, several

A0, A1, B0, B1, C0, C1 = (f"b0-r{rack}-h{host}" for rack in range(3) for host in range(2))
NOW = 5000.0


class Cluster:
    """Running gangs by name, and one that waits."""

    def __init__(self, racks: int = 3) -> None:
        self.stores = Stores()
        self.view = ClusterState(self.stores)
        self.stores.nodes.replace(gpu_nodes(1, racks, 2))

    def runs(
        self,
        name: str,
        hosts: Mapping[str, int],
        *,
        gpu: int = 8,
        priority: int = 0,
        annotations: Mapping[str, str] | None = None,
        started: float = 1000.0,
        **more: Any,
    ) -> Workload:
        """Add a running gang; host -> pods."""
        workload = job(name, count=sum(hosts.values()), require=None, **more)
        template = replace(workload.template, shape=shape(gpu=gpu), priority=priority)
        asked = annotations or {names.UNCONSTRAINED: "true"}
        workload = replace(changed(workload, template=template), annotations=asked)
        self.stores.workloads.apply("ADDED", workload)
        slots, first = [], 0
        for host, count in hosts.items():
            slots.append(Slot((host[:2], host.rpartition("-")[0], host), count, ((first, first + count - 1),)))
            for rank in range(first, first + count):
                self.stores.pods.apply("ADDED", pod(workload, rank, host=host, created=started))
            first += count
        plan = placement(workload, hosts, created=started, priority=priority, topology="default")
        plan = replace(plan, namespace=workload.namespace)
        plan = replace(plan, assignment=Assignment(1, (PodSetPlan("main", tuple(slots)),)))
        if exclusive := asked.get(names.EXCLUSIVE):
            plan = replace(plan, separation=Separation(exclusive=exclusive))
        self.stores.placements.apply("ADDED", plan)
        self.view.refresh()
        return workload

    def waiting(self, count: int, *, gpu: int = 8, priority: int = 0, require: str | None = "rack") -> Gang:
        workload = job("waiting", count=count, require=require, held=True)
        template = replace(workload.template, shape=shape(gpu=gpu), priority=priority)
        self.stores.workloads.apply("ADDED", changed(workload, template=template))
        self.view.refresh()
        return self.gang(workload)

    def gang(self, workload: Workload) -> Gang:
        found = self.view.gangs.get(key_of(workload))
        assert found is not None
        return found

    def moves(
        self, gang: Gang, *, protect: Protect | None = None, limits: MoveLimits | None = None
    ) -> Defragmentation | None:
        view, priority = self.view, self.view.pod_shapes.priority_of(gang.workload)
        about = {
            "plan_moved": partial(replan, view, None),
            "candidates": list(movable(view, priority=priority, protect=protect or Protect(), now=NOW)),
            "limits": limits or MoveLimits(),
        }
        if gang.placement is not None:
            return moves_for_split(view, gang, **about)
        plan = lambda one, out: schedule_gang(view, one, excluded=out)  # noqa: E731
        return moves_for_waiting(view, gang, plan=plan, **about)

    def moved(self, gang: Gang, *, protect: Protect | None = None, limits: MoveLimits | None = None) -> object:
        """The moved gangs with their new hosts; None without moves."""
        found = self.moves(gang, protect=protect, limits=limits)
        return None if found is None else {one.victim.name: hosts(one.placed) for one in found.restarts}


def hosts(placed: Placed) -> list[str]:
    return sorted(slot.host for plan in placed.pod_sets for slot in plan.slots for _ in range(slot.count))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def fragmented(cluster: Cluster, **more: Any) -> Gang:
    """One pod in each rack, so that two pods fit in none of them, and the gang that needs a rack."""
    cluster.runs("a", {A0: 1}, **more)
    cluster.runs("b", {B0: 1}, **{"started": 2000.0, **more})
    cluster.runs("c", {C0: 1}, **more)
    return cluster.waiting(2)


def test_one_gang_makes_a_rack_whole(cluster: Cluster) -> None:
    """The youngest goes to a free host of another rack, and the waiting gang gets the rack."""
    gang = fragmented(cluster)
    before = cluster.view.capacity.count(gang.shapes["main"], cluster.view.topologies["default"]).free.tolist()
    found = cluster.moves(gang)
    assert found is not None
    assert hosts(found.placed) == [B0, B1]
    assert [(one.victim.name, one.pods) for one in found.restarts] == [("b", 1)]
    assert hosts(found.restarts[0].placed)[0] in {A1, C1}
    assert found.proven
    after = cluster.view.capacity.count(gang.shapes["main"], cluster.view.topologies["default"]).free.tolist()
    assert after == before
    assert not isinstance(schedule_gang(cluster.view, gang), Placed)


@pytest.mark.parametrize(
    ("whole", "each"),
    [
        ({names.REQUIRE: "auto"}, ({}, {})),
        ({}, ({names.REQUIRE: "auto", names.COLOCATE: "x"}, {names.COLOCATE: "x"})),
        ({}, ({names.PREFER: "host", names.COLOCATE: "x"}, {names.REQUIRE: "block", names.COLOCATE: "x"})),
    ],
)
def test_pod_sets_that_share_a_block_get_one_of_its_hosts_after_the_other(
    cluster: Cluster, whole: dict[str, str], each: tuple[dict[str, str], dict[str, str]]
) -> None:
    """The level of the domain is that of all pod sets together, not what the largest of them would need or prefers."""
    cluster.stores.nodes.replace(gpu_nodes(2, 2, 2))
    for number, host in enumerate(("b0-r0-h0", "b0-r1-h0", "b1-r0-h0", "b1-r1-h0")):
        cluster.runs(f"other-{number}", {host: 1})
    sets = [pods_of(name, 2, says=says, shape=shape(gpu=8)) for name, says in zip("ab", each, strict=True)]
    workload = several(*sets, says=whole, held=True)
    cluster.stores.workloads.apply("ADDED", workload)
    cluster.view.refresh()
    found = cluster.moves(cluster.gang(workload))
    assert found is not None
    assert len(found.restarts) == 2
    assert len({host[:2] for host in hosts(found.placed)}) == 1


def test_a_gang_that_keeps_a_block_for_itself_gets_one_of_its_racks_after_the_other(cluster: Cluster) -> None:
    """It requires a rack, and no other gang may stay in the block of that: those of its other rack are in the way."""
    cluster.stores.nodes.replace(gpu_nodes(2, 2, 1))
    for number, host in enumerate(("b0-r0-h0", "b0-r1-h0", "b1-r0-h0", "b1-r1-h0")):
        cluster.runs(f"other-{number}", {host: 1}, gpu=4)
    workload = job("waiting", count=1, held=True)
    workload = replace(workload, annotations={**workload.annotations, names.EXCLUSIVE: "block"})
    cluster.stores.workloads.apply("ADDED", workload)
    cluster.view.refresh()
    found = cluster.moves(cluster.gang(workload))
    assert found is not None
    assert len({pod.spec.node_name[:2] for one in found.restarts for pod in one.victim.pods}) == 1
    assert len(found.restarts) == 2


@pytest.mark.parametrize(("taken", "moved"), [(False, {"a": [B0]}), (True, None)])
def test_an_exclusive_gang_does_not_restart_beside_the_one_that_gets_its_rack(
    cluster: Cluster, taken: bool, moved: dict[str, list[str]] | None
) -> None:
    """It has no right to its rack any more once that is given to another gang."""
    cluster.stores.nodes.replace([one for one in gpu_nodes(1, 2, 2) if one.name != B1])
    cluster.runs("a", {A0: 1}, gpu=4, annotations={names.REQUIRE: "host", names.EXCLUSIVE: "rack"})
    if taken:
        cluster.runs("b", {B0: 1}, gpu=2, priority=10)
    assert cluster.moved(cluster.waiting(3, gpu=4)) == moved


def test_an_exclusive_gang_is_in_the_way_on_the_hosts_of_its_domain_that_it_does_not_use(cluster: Cluster) -> None:
    """Its own host is too small for the waiting gang, which needs the large one of the rack."""
    small = {"cpu": 96_000, "pods": 110, "nvidia.com/gpu": 2}
    a0, a1, b0 = gpu_nodes(1, 1, 2) + gpu_nodes(1, 2, 1)[1:]
    cluster.stores.nodes.replace([replace(a0, allocatable=small), a1, replace(b0, allocatable=small)])
    cluster.runs("other", {a0.name: 1}, gpu=2, annotations={names.REQUIRE: "host", names.EXCLUSIVE: "rack"})
    assert cluster.moved(cluster.waiting(2, gpu=4, require="host")) == {"other": [b0.name]}


def test_a_full_cluster_has_no_moves(cluster: Cluster) -> None:
    """A moved gang needs a place; nothing ends."""
    for name, host in zip("abcdef", (A0, A1, B0, B1, C0, C1), strict=True):
        cluster.runs(name, {host: 1})
    assert cluster.moved(cluster.waiting(2)) is None


def test_a_moved_gang_keeps_its_own_rack(cluster: Cluster) -> None:
    """Two pods that need a rack have none but that of the waiting gang; one that needs none moves instead."""
    cluster.runs("pair", {A0: 2}, gpu=4, annotations={names.REQUIRE: "rack"})
    cluster.runs("b", {B0: 1})
    cluster.runs("c", {C0: 1}, gpu=8, priority=5)
    found = cluster.moves(cluster.waiting(2))
    assert found is not None
    for one in found.restarts:
        assert len({host.rpartition("-")[0] for host in hosts(one.placed)}) == 1


def test_a_gang_in_the_way_of_a_moved_one_moves_too(cluster: Cluster) -> None:
    """The pair needs a rack of its own: there is one when what is on it goes to a third."""
    cluster.runs("pair", {A0: 1, A1: 1}, annotations={names.REQUIRE: "rack"})
    cluster.runs("b", {B0: 1}, priority=1)
    cluster.runs("c", {C0: 1})
    gang = cluster.waiting(2, gpu=8)
    assert cluster.moved(gang) == {"c": [B1]}


@pytest.mark.parametrize(("priority", "moves"), [(-1, True), (0, True), (1, False)])
def test_a_gang_of_a_higher_priority_is_not_moved(cluster: Cluster, priority: int, *, moves: bool) -> None:
    """A restart costs it something: only a gang of at least its priority is worth that."""
    assert (cluster.moved(fragmented(cluster, priority=priority)) is not None) is moves


@pytest.mark.parametrize(
    "protect",
    [Protect(runningFor="3000s"), Protect(namespaces=("def*",))],
)
def test_protected_gangs_are_not_moved(cluster: Cluster, protect: Protect) -> None:
    """Those that run for long, and those of a namespace; `b` alone is young."""
    gang = fragmented(cluster, started=1500.0)
    assert cluster.moved(gang, protect=protect) is None
    assert cluster.moved(gang, protect=Protect(runningFor="3501s")) is not None


@pytest.mark.parametrize(
    "more",
    [
        {"suspendable": False},
        {"group_label": "leaderworkerset.sigs.k8s.io/group-index"},
        {"owner": OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "set", "uid-set", True)},
        {"annotations": {names.REQUIRE: "a level that the policy has lost"}},
    ],
)
def test_only_whole_workloads_that_can_be_suspended_are_moved(cluster: Cluster, more: dict[str, Any]) -> None:
    """Not a kind without suspend, not one replica of several, not the Job of another workload.

    Nor one that would not be planned again: the search ended with an error there.
    """
    assert cluster.moved(fragmented(cluster, **more)) is None


def test_a_moved_gang_gets_no_more_domains_than_it_prefers(cluster: Cluster) -> None:
    """It would be torn apart: that only moves the problem."""
    cluster.runs("pair", {A0: 1, A1: 1}, annotations={names.PREFER: "rack"})
    cluster.runs("b", {B0: 1}, priority=1)
    cluster.runs("c", {C0: 1}, priority=1)
    assert cluster.moved(cluster.waiting(2)) is None


@pytest.mark.parametrize(("places", "moved"), [(1, ["small-0", "small-1"]), (3, ["big"])])
def test_a_gang_moves_for_the_first_choice_of_the_waiting_one(cluster: Cluster, places: int, moved: list[str]) -> None:
    """Nobody tells the waiting gang to leave that its place, unless the caller keeps it.

    Without `big` both racks have room, and the one that the planner takes is the one that `big` could go to.
    """
    nodes = gpu_nodes(1, 2, 3)
    left, right = [[one.name for one in nodes[first : first + 3]] for first in (0, 3)]
    cluster.stores.nodes.replace(nodes)
    cluster.runs("small-0", {right[2]: 1}, gpu=2)
    cluster.runs("small-1", {right[0]: 1}, gpu=2)
    cluster.runs("big", {left[0]: 1, left[1]: 1, right[1]: 1})
    found = cluster.moves(cluster.waiting(4, gpu=4), limits=MoveLimits(places=places))
    assert found is not None
    assert [one.victim.name for one in found.restarts] == moved


def test_the_moved_gangs_are_in_the_order_in_which_each_finds_its_place(cluster: Cluster) -> None:
    """The smaller one needs a whole host, and the other one would take it."""
    nodes = gpu_nodes(1, 2, 3)
    cluster.stores.nodes.replace(nodes)
    _, _, whole, three, half, full = (one.name for one in nodes)
    cluster.runs("full", {full: 4}, gpu=2)
    cluster.runs("three", {three: 3}, gpu=2)
    cluster.runs("whole", {whole: 1})
    cluster.runs("half", {half: 1}, gpu=4)
    found = cluster.moves(cluster.waiting(11, gpu=2))
    assert found is not None
    assert [one.victim.name for one in found.restarts] == ["whole", "three"]


def test_no_more_gangs_than_the_limit(cluster: Cluster) -> None:
    """Both gangs of a rack would have to move."""
    for name, host in (("a", A0), ("b", A1), ("c", B0), ("d", B1)):
        cluster.runs(name, {host: 1}, gpu=4)
    cluster.runs("e", {C0: 1}, priority=1)
    cluster.runs("f", {C1: 1}, priority=1)
    gang = cluster.waiting(2)
    found = cluster.moves(gang)
    assert found is not None
    assert len(found.restarts) == 2
    assert cluster.moved(gang, limits=MoveLimits(gangs=1)) is None
    assert cluster.moved(gang, limits=MoveLimits(plans=1)) is None


def test_the_halves_of_hosts_are_put_together(cluster: Cluster) -> None:
    """A gang without a rack needs whole hosts, and two half ones become one."""
    for number, host in enumerate((A0, A1, B0, B1, C0, C1)):
        cluster.runs(f"half-{number}", {host: 1}, gpu=4)
    found = cluster.moves(cluster.waiting(1, require="host"))
    assert found is not None
    assert len(found.restarts) == 1


def test_moves_need_no_quota_of_the_moved(cluster: Cluster) -> None:
    """A full quota of its namespace is its own."""
    gang = fragmented(cluster, namespace="team")
    known = cluster.moved(gang)
    assert known is not None
    quota = Quota(namespace="team", name="all", resource_version="1", hard={"pods": 3}, used={"pods": 3}, scopes=())
    cluster.stores.quotas.apply("ADDED", quota)
    cluster.view.refresh()
    assert cluster.moved(gang) == known


def test_a_gang_that_had_to_split_gets_one_rack_when_it_restarts_alone(cluster: Cluster) -> None:
    """What was in its way has ended since; nothing else moves."""
    split = cluster.runs("split", {A0: 1, B0: 1}, annotations={names.PREFER: "rack"})
    found = cluster.moves(cluster.gang(split))
    assert found is not None
    assert found.restarts == ()
    assert found.placed.domains_used["rack"] == 1


def test_a_gang_that_had_to_split_gets_one_rack_when_another_moves(cluster: Cluster) -> None:
    """Alone it would be split as before."""
    split = cluster.runs("split", {A0: 1, B0: 1}, annotations={names.PREFER: "rack"})
    cluster.runs("a", {A1: 1})
    cluster.runs("b", {B1: 1}, priority=1)
    cluster.runs("c", {C0: 1})
    cluster.runs("d", {C1: 1}, priority=1)
    found = cluster.moves(cluster.gang(split))
    assert found is not None
    assert found.placed.domains_used["rack"] == 1
    assert len(found.restarts) == 1


def test_a_gang_that_is_as_close_as_it_can_be_has_no_moves(cluster: Cluster) -> None:
    """And one that prefers nothing has none either."""
    whole = cluster.runs("whole", {A0: 1, A1: 1}, annotations={names.PREFER: "rack"})
    apart = cluster.runs("apart", {B0: 1, C0: 1})
    assert cluster.moves(cluster.gang(whole)) is None
    assert cluster.moves(cluster.gang(apart)) is None


def test_with_a_limit_of_hosts_nothing_is_proven(cluster: Cluster) -> None:
    """A gang may fit beside gangs of its namespace, and not without them: their hosts are no new ones."""
    gang = fragmented(cluster)
    rules = "namespaces: {rules: [{namespaces: [default], maxReservedHosts: 6}]}"
    cluster.view.set_policy(parse_policy(rules))
    found = cluster.moves(gang)
    assert found is not None
    assert not found.proven
