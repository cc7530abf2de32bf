"""Whose a pod is, in the view: chains of owners, seen in any order, and what they do not prove."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.controller.orphans import ORPHANED_AFTER
from engine.gang import ownership
from engine.gang.request import PlacementRequest, parse_request
from engine.policy.model import parse_policy
from tests.support.cluster_records import gpu_nodes, job, pod
from tests.support.families import below, child_job, jobset, leader_worker_set, link, owner_of, replica, worker
from tests.support.leader import Leader


def folded(*records: object) -> ClusterState:
    view = ClusterState(Stores())
    show(view, *records)
    return view


def show(view: ClusterState, *records: object, event: str = "MODIFIED") -> None:
    for record in records:
        stores = view.stores
        store = (
            stores.pods
            if isinstance(record, Pod)
            else stores.workloads
            if isinstance(record, Workload)
            else stores.owned
        )
        store.apply(event, record)  # type: ignore[arg-type]
    view.refresh()


def names_of(pods: tuple[Pod, ...]) -> set[str]:
    return {one.name for one in pods}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_pod_of_a_job_of_a_jobset_is_of_the_jobset(order: tuple[int, ...]) -> None:
    """Whatever of the chain is seen first."""
    top = jobset()
    middle = child_job(top)
    lowest = worker(middle, 0)
    view = folded(*((top, middle, lowest)[index] for index in order))
    assert names_of(view.gangs.pods_of(top.uid)) == {lowest.name}
    assert view.gangs.pods_of(middle.uid) == ()
    assert view.gangs.gang_of(lowest) == top.uid


def test_a_job_of_a_jobset_that_asks_is_part_of_its_gang() -> None:
    """It gets no Placement and is never suspended by us."""
    top = jobset()
    view = folded(top, child_job(top))
    assert view.request_of(child_job(top)).ignored == "PartOfGang"
    assert view.request_of(top).pod_sets


def test_a_job_of_a_jobset_that_is_not_known_yet_decides_nothing() -> None:
    """Else it would be placed for itself in the moment before its JobSet is seen."""
    top = jobset()
    middle = replace(child_job(top), annotations={names.REQUIRE: "rack"})
    view = folded(middle, worker(middle, 0))
    assert view.request_of(middle).ignored == "PartOfGang"
    assert view.gangs.pods_of(middle.uid) == ()


def test_a_job_that_asks_below_a_jobset_that_does_not_is_its_own_gang() -> None:
    top = jobset(require=None)
    middle = replace(child_job(top), annotations={names.REQUIRE: "rack"})
    view = folded(top, middle, worker(middle, 0))
    assert view.request_of(middle).pod_sets
    assert len(view.gangs.pods_of(middle.uid)) == 1


def test_what_is_below_a_jobset_that_stands_aside_is_left_alone() -> None:
    top = replace(jobset(require=None), labels={names.KUEUE_QUEUE: "q"})
    middle = replace(child_job(top), annotations={names.REQUIRE: "rack"})
    view = folded(top, middle)
    assert view.request_of(middle).ignored == "ManagedByKueue"


def test_pods_move_when_the_jobset_is_gone() -> None:
    """Its Jobs follow soon; until then their pods are nobody's."""
    top = jobset()
    middle, lowest = child_job(top), worker(child_job(top), 0)
    view = folded(top, middle, lowest)
    view.take_changes()
    show(view, top, event="DELETED")
    assert view.gangs.gang_of(lowest) is None
    assert top.uid in view.take_changes().gangs


def test_pods_move_when_the_workload_above_starts_to_ask() -> None:
    top = jobset(require=None)
    middle = replace(child_job(top), annotations={names.REQUIRE: "rack"})
    lowest = worker(middle, 0)
    view = folded(top, middle, lowest)
    show(view, replace(top, annotations={names.REQUIRE: "rack"}, resource_version="99999999"))
    assert view.gangs.gang_of(lowest) == top.uid


def test_a_change_of_status_files_no_pod_anew() -> None:
    """A Job of 512 pods changes its status hundreds of times while they start."""
    one = job(count=512)
    view = folded(one, *(pod(one, rank) for rank in range(512)))
    asked: list[Pod] = []
    indexing = view._pods._index
    view._pods._index = lambda each, owners: (asked.append(each), indexing(each, owners))[1]  # type: ignore[method-assign]
    show(view, replace(one, started=True, resource_version="99999999"))
    assert asked == []


@pytest.mark.parametrize(
    "lie",
    [
        {"uid": "another"},
        {"uid": ""},
        {"name": "another"},
        {"kind": "JobSet"},
        {"controller": False},
        {"api_version": "batch.volcano.sh/v1"},
    ],
)
def test_a_reference_that_lies_joins_nothing(lie: dict[str, object]) -> None:
    one = job()
    liar = replace(pod(one, 0), owner=owner_of(one, **lie))
    view = folded(one, liar)
    assert view.gangs.pods_of(one.uid) == ()
    assert view.gangs.gang_of(liar) is None


def test_a_pod_of_another_namespace_joins_nothing() -> None:
    one = job()
    view = folded(one, pod(one, 0, namespace="elsewhere"))
    assert view.gangs.pods_of(one.uid) == ()


def test_an_owner_of_another_version_of_the_kind_is_the_same_owner() -> None:
    top = jobset()
    middle = replace(child_job(top), owner=owner_of(top, api_version="jobset.x-k8s.io/v9"))
    view = folded(top, middle, worker(middle, 0))
    assert len(view.gangs.pods_of(top.uid)) == 1


def test_a_cycle_of_owners_is_nobody() -> None:
    first, second = link("apps/v1", "ReplicaSet", "a"), link("apps/v1", "ReplicaSet", "b")
    lowest = replace(pod(job(), 0), owner=owner_of(first))
    view = folded(below(first, second), below(second, first), lowest)
    assert view.gangs.gang_of(lowest) is None


def test_a_pod_that_a_pod_of_a_job_made_is_not_of_the_job() -> None:
    """Whatever is seen first; the groups of a LeaderWorkerSet, whose leaders make pods, are tested with their kind."""
    top = job(count=2, require="rack")
    driver = pod(top, 0, host="b0-r0-h0", name="driver", uid="uid-driver")
    executor = replace(
        pod(top, 1, gated=True, name="executor", uid="uid-executor"),
        owner=OwnerRef("v1", "Pod", "driver", "uid-driver", controller=True),
    )
    for order in itertools.permutations((top, driver, executor)):
        view = folded(*order)
        assert names_of(view.gangs.pods_of(view.gangs.gang_of(driver) or top.uid)) == {"driver"}
        assert view.gangs.gang_of(executor) is None


def test_a_pod_of_a_replica_set_is_of_its_deployment() -> None:
    above = replace(job("web"), api_version="apps/v1", kind="Deployment", unit="pod")
    between = link("apps/v1", "ReplicaSet", "web-1", above)
    view = folded(above, between, below(pod(job(), 0, name="web-1-x"), between))
    assert names_of(view.gangs.pods_of(above.uid)) == {"web-1-x"}


def test_a_pod_whose_replica_set_is_gone_is_of_nobody() -> None:
    """The chain is broken, although the Deployment above it is still there; it is whole again with the next one."""
    above = replace(job("web"), api_version="apps/v1", kind="Deployment", unit="pod")
    between = link("apps/v1", "ReplicaSet", "web-1", above)
    lowest = below(pod(job(), 0, name="web-1-x"), between)
    view = folded(above, between, lowest)
    show(view, between, event="DELETED")
    assert view.gangs.pods_of(above.uid) == ()
    assert view.gangs.gang_of(lowest) is None


def test_a_pod_of_a_ray_cluster_is_of_the_ray_job_that_asks() -> None:
    top = replace(job("ray"), api_version="ray.io/v1", kind="RayJob")
    cluster = below(replace(job("ray-c", require=None), api_version="ray.io/v1", kind="RayCluster"), top)
    view = folded(top, cluster, below(pod(job(), 0, name="head"), cluster))
    assert names_of(view.gangs.pods_of(top.uid)) == {"head"}


# -- one workload placed through another ------------------------------------------------------------------------------


def train_job(require: str | None = "rack") -> Workload:
    made = job("set", require=require)
    return replace(
        made,
        uid="uid-train",
        api_version="trainer.kubeflow.org/v1alpha1",
        kind="TrainJob",
        resource="trainjobs",
        pod_sets=(),
        handling="through",
    )


def test_a_train_job_has_the_pods_of_its_jobset() -> None:
    top = train_job()
    between = below(jobset(require=None), top)
    middle = child_job(between)
    view = folded(top, between, middle, worker(middle, 0))
    gang = view.gangs.get(top.uid)
    assert gang is not None
    assert [(one.name, one.count) for one in gang.request.pod_sets] == [("workers", 4)]
    assert len(gang.pods) == 1
    assert view.request_of(between).ignored == "PartOfGang"


def test_a_train_job_waits_for_its_jobset() -> None:
    top = train_job()
    view = folded(top)
    gang = view.gangs.get(top.uid)
    assert gang is not None
    assert [error.reason for error in gang.request.errors] == ["WaitingForMembers"]
    view.take_changes()
    show(view, below(jobset(require=None), top))
    assert top.uid in view.take_changes().gangs


def test_a_jobset_of_the_train_jobs_name_that_is_not_its_own_lends_it_no_pods() -> None:
    top = train_job()
    view = folded(top, jobset(require=None))
    gang = view.gangs.get(top.uid)
    assert gang is not None
    assert not gang.request.pod_sets


# -- a gang per replica -----------------------------------------------------------------------------------------------


def serving(groups: int = 2) -> tuple[Workload, list[object]]:
    """A LeaderWorkerSet as its controller makes it: leaders of one StatefulSet, workers of one of each leader's own."""
    top = leader_worker_set(groups=groups)
    leaders = link("apps/v1", "StatefulSet", "serve", top)
    made: list[object] = [top, leaders]
    for group in range(groups):
        leader = replica(top, str(group), 0, leaders)
        workers = link("apps/v1", "StatefulSet", f"serve-{group}", leader)
        made += [leader, workers, replica(top, str(group), 1, workers)]
    return top, made


def test_every_replica_is_a_gang_of_its_own() -> None:
    top, made = serving()
    view = folded(*reversed(made))
    assert names_of(view.gangs.pods_of(f"{top.uid}/0")) == {"serve-0-0", "serve-0-1"}
    assert names_of(view.gangs.pods_of(f"{top.uid}/1")) == {"serve-1-0", "serve-1-1"}
    assert view.gangs.get(top.uid) is None
    assert sorted(view.gangs.keys()) == [f"{top.uid}/0", f"{top.uid}/1"]


def test_replicas_are_placed_each_for_itself() -> None:
    """In racks of two hosts: a Placement, and a reservation, for each."""
    _, made = serving()
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(*made)  # type: ignore[arg-type]
    leader.settle()
    placed = {one.group: one for one in leader.view.gangs.placements()}
    assert set(placed) == {"0", "1"}
    racks = [{slot.host[:5] for slot in one.assignment.pod_sets[0].slots} for one in placed.values() if one.assignment]
    assert [len(found) for found in racks] == [1, 1]
    assert {one.name.rpartition("-")[2] for one in placed.values()} == {"0", "1"}
    assert sorted(leader.hands.of("release")) == ["serve-0-0", "serve-0-1", "serve-1-0", "serve-1-1"]


def test_a_replica_that_is_scaled_away_gives_its_slots_back_and_is_forgotten() -> None:
    top, made = serving()
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(*made)  # type: ignore[arg-type]
    leader.settle()
    leader.has(replace(top, groups=1, resource_version=leader.hands.version()))
    for one in leader.stores.pods.values():
        if one.name.startswith("serve-1-"):
            leader.stores.pods.apply("DELETED", one)
    leader.settle()
    assert leader.view.capacity.reserved(f"{top.uid}/1") == {}
    leader.later(31)
    leader.later(31)
    assert [name.rpartition("-")[2] for name in leader.hands.of("forget")] == ["1"]


@pytest.mark.parametrize("group", ["2", "01", "-1", "x", "", None, "99999999999999999999"])
def test_a_group_label_that_names_no_replica_joins_none(group: str | None) -> None:
    top, made = serving()
    odd = replace(replica(top, group, 7, made[1]), name="odd")  # type: ignore[arg-type]
    view = folded(*made, odd)
    assert view.gangs.gang_of(odd) is None


# -- pods that no gang claims -----------------------------------------------------------------------------------------


def told(leader: Leader, *records: object) -> list[tuple[str, str]]:
    leader.has(*records)  # type: ignore[arg-type]
    leader.settle()
    leader.later(ORPHANED_AFTER + 1)
    return leader.hands.pod_events


def test_a_held_pod_with_an_odd_group_label_is_told_why() -> None:
    top, made = serving()
    leader = Leader(nodes=gpu_nodes(1, 2, 4))
    odd = replica(top, "x", 7, made[1])  # type: ignore[arg-type]
    assert ("serve-x-7", "HeldWithoutGang") in told(leader, *made, odd)
    why = leader.hands.orphan_reason(odd)
    assert (
        why == 'leaderworkerset.sigs.k8s.io/group-index="x" is not a replica of LeaderWorkerSet serve: it joins no gang'
    )


def test_a_held_pod_whose_owner_is_of_another_namespace_is_told_why() -> None:
    one, leader = job(count=1), Leader(nodes=gpu_nodes(1, 1, 4))
    claims = pod(one, 0, gated=True, namespace="elsewhere", name="thief")
    assert told(leader, one, claims) == [("thief", "HeldWithoutGang")]
    assert "was not found in this namespace" in (leader.hands.orphan_reason(claims) or "")
    assert leader.hands.of("free") == []


def test_a_held_pod_of_an_unknown_owner_that_asks_is_placed_by_itself() -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    base = pod(job(), None, gated=True, name="alone")
    asks = replace(base.spec, annotations={names.REQUIRE: "rack"})
    claims = replace(base, spec=asks, owner=OwnerRef("example.com/v1", "Thing", "t", "u", True))
    assert told(leader, claims) == []
    assert leader.hands.of("release") == ["alone"]


def test_a_held_pod_that_asks_for_nothing_is_freed() -> None:
    leader = Leader(nodes=gpu_nodes(1, 1, 4))
    claims = replace(
        pod(job(), None, gated=True, name="alone"), owner=OwnerRef("example.com/v1", "Thing", "t", "u", True)
    )
    assert told(leader, claims) == []
    assert leader.hands.of("free") == ["alone"]


TRAINER = """
apiVersion: topogate.dev/v1alpha1
kind: Policy
kinds:
- name: trainer
  match: {group: example.com, versions: [v7], kind: Trainer, resource: trainers}
  podSets: [{name: {text: main}, template: .spec.template, count: {path: .spec.replicas}}]
  gang: {unit: workload, creation: all-at-once}
  replace: {cost: free}
"""


def test_an_owner_of_a_kind_with_one_version_may_be_seen_after_its_pods() -> None:
    """The entry names a version, and none stands for all others: its pods are awaited all the same."""
    view = folded()
    view.set_policy(parse_policy(TRAINER))
    owner = OwnerRef("example.com/v7", "Trainer", "t", "uid-t", controller=True)
    lowest = replace(pod(job(), 0, gated=True), owner=owner)
    assert view.owners.watched(owner)
    assert view.owners.owner_of(lowest).missing == owner


# -- children that are gangs of their own -----------------------------------------------------------------------------


def service(**more: Any) -> Workload:
    """A RayService, which asks for a rack: each RayCluster that is made of it is a gang."""
    made = job("serve", count=2, require="rack")
    kind = {"api_version": "ray.io/v1", "kind": "RayService", "resource": "rayservices", "unit": "child"}
    return replace(made, suspend_path=None, suspendable=False, **(kind | more))


def cluster(above: Workload, name: str, *, count: int = 2) -> Workload:
    made = job(name, count=count, require=None)
    kind = {"api_version": "ray.io/v1", "kind": "RayCluster", "resource": "rayclusters"}
    return replace(made, **kind, owner=owner_of(above))


def gated(of: Workload, count: int = 2) -> list[Pod]:
    return [below(pod(of, rank, gated=True, name=f"{of.name}-{rank}"), of) for rank in range(count)]


def test_two_clusters_of_one_service_are_two_gangs() -> None:
    """An upgrade: each is placed as the service asks, in a rack of its own, and the service has no Placement."""
    above = service()
    old, new = (cluster(above, name) for name in ("old", "new"))
    leader = Leader(nodes=gpu_nodes(1, 2, 2))
    leader.has(above, old, *gated(old), new, *gated(new))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["new-0", "new-1", "old-0", "old-1"]
    assert sorted(one.workload.name for one in leader.view.gangs.placements()) == ["new", "old"]
    assert all(one.pod_sets[0].require == "rack" for one in leader.view.gangs.placements())
    assert not leader.view.gangs.knows(above.uid)


def test_the_old_cluster_gives_its_slots_back_when_it_goes() -> None:
    """The new one, which had no room beside it, takes them."""
    above = service()
    old, new = (cluster(above, name) for name in ("old", "new"))
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(above, old, *gated(old))
    leader.settle()
    leader.has(new, *gated(new))
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["old-0", "old-1"]
    for one in leader.view.gangs.pods_of(old.uid):
        leader.stores.pods.apply("DELETED", one)
    leader.stores.workloads.apply("DELETED", old)
    leader.settle()
    leader.later(5)  # the room of pods that may be on their way
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["new-0", "new-1", "old-0", "old-1"]


def test_a_cluster_waits_until_its_service_is_known() -> None:
    above = service()
    one = cluster(above, "old")
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(one, *gated(one))
    leader.settle()
    assert leader.hands.of("release") == []
    leader.has(above)
    leader.settle()
    assert sorted(leader.hands.of("release")) == ["old-0", "old-1"]


def test_a_cluster_of_a_service_that_does_not_ask_decides_for_itself() -> None:
    above = service(annotations={})
    one = replace(cluster(above, "old"), annotations={names.REQUIRE: "block"})
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(above, one, *gated(one))
    leader.settle()
    assert [each.pod_sets[0].require for each in leader.view.gangs.placements()] == ["block"]


def test_a_request_that_is_made_later_is_one_for_the_clusters_too() -> None:
    """What was understood before must not stand."""
    above = service(annotations={})
    one = cluster(above, "old")
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(above, one)
    leader.settle()
    assert leader.view.request_of(one).ignored == "NoTopologyRequested"
    leader.has(replace(above, annotations={names.REQUIRE: "rack"}, resource_version="999999"))
    leader.settle()
    assert [ask.require for ask in leader.view.request_of(one).pod_sets] == ["rack"]


def test_a_cluster_that_was_read_before_its_service_is_known_is_read_again() -> None:
    """A Job below it was looked at first: whether what is above it decides for it."""
    above = service()
    one = cluster(above, "old")
    helper = replace(job("helper", count=1, require=None), owner=owner_of(one))
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(one, helper, *gated(one))
    leader.settle()
    assert leader.view.request_of(helper).ignored == "PartOfGang"
    leader.has(above)
    leader.settle()
    assert [ask.require for ask in leader.view.request_of(one).pod_sets] == ["rack"]
    assert sorted(leader.hands.of("release")) == ["old-0", "old-1"]


def test_services_that_own_each_other_end_nowhere() -> None:
    one, other = service(), replace(service(), name="other", uid="uid-other")
    one, other = replace(one, owner=owner_of(other)), replace(other, owner=owner_of(one))
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    child = cluster(one, "old")
    leader.has(one, other, child, *gated(child))
    leader.settle()
    assert all(each.workload.kind != "RayService" for each in leader.view.gangs.placements())


def test_workload_request_and_key_of_a_pod_are_resolved_at_once() -> None:
    """The request is that of the workload that decides, and no reason stands against it."""
    top = jobset()
    middle = child_job(top)
    found = folded(top, middle).owners.resolve(worker(middle, 0))
    assert (found.key, found.reason) == (top.uid, None)
    assert found.workload is not None
    assert found.workload.key == top.key
    assert found.request is not None
    assert found.request.pod_sets


def test_why_a_workload_is_none_of_ours_is_resolved_with_it() -> None:
    """Somebody else places it."""
    gang = replace(job("train"), labels={names.KUEUE_QUEUE: "q"})
    found = folded(gang).owners.resolve(pod(gang, 0))
    assert (found.key, found.reason) == (gang.uid, "ManagedByKueue")


def test_of_a_pod_that_is_placed_by_itself_no_request_is_resolved() -> None:
    """What is beside it decides, and the leader alone knows that."""
    one = pod(job("gone"), 0)
    alone = replace(one, owner=None, spec=replace(one.spec, annotations={names.REQUIRE: "rack"}))
    found = folded().owners.resolve(alone)
    assert found.key is not None
    assert (found.workload, found.request) == (None, None)


def test_the_request_of_a_plain_gang_is_read_from_the_pod_that_is_resolved() -> None:
    """The others may not be there yet."""
    one = pod(job("gone"), 0)
    said = {names.REQUIRE: "rack", names.GANG_NAME: "trio", names.GANG_SIZE: "3"}
    member = replace(one, owner=None, spec=replace(one.spec, annotations=said))
    found = folded().owners.resolve(member)
    assert found.request is not None
    assert [ask.count for ask in found.request.pod_sets] == [3]


def test_a_request_is_read_once_and_again_when_more_than_the_status_has_changed() -> None:
    """A Job changes with each of its pods; nothing of that is about its request."""
    gang = replace(job("train"), resource_version="1")
    owners = folded(gang).owners
    first = owners.request_of(gang)
    running = replace(gang, resource_version="2", started=True)
    assert owners.request_of(running) is first
    assert owners.request_of(replace(running, resource_version="3")) is first
    asks_less = replace(running, resource_version="4", annotations={})
    assert owners.request_of(asks_less) is not first
    assert owners.request_of(asks_less).ignored == "NoTopologyRequested"


def test_a_workload_below_another_one_is_read_in_every_version() -> None:
    """Its owner may not have been known when it was read before."""
    top = jobset()
    middle = child_job(top)
    known: dict[object, Workload] = {}
    owners = replace(folded(top, middle).owners, find=known.get)
    alone = owners.own_request(middle)
    newer = replace(middle, resource_version="later")
    assert owners.own_request(newer) == alone
    assert owners.own_request(newer) is not alone


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the workloads of which the request was parsed."""
    found: list[str] = []

    def noted(workload: Workload, **rest: Any) -> PlacementRequest:
        found.append(workload.name)
        return parse_request(workload, **rest)

    monkeypatch.setattr(ownership, "parse_request", noted)
    return found


def test_a_node_that_comes_lets_only_wrong_requests_be_read_again(read: list[str]) -> None:
    """With ten thousand gangs that would take seconds; why a topology is unknown may have changed."""
    nodes = gpu_nodes(1, 1, 3)
    good, wrong = job("good"), job("wrong", annotations={names.REQUIRE: "rack", names.TOPOLOGY: "none-such"})
    view = folded(good, wrong)
    for node in nodes:
        view.stores.nodes.apply("ADDED", node)
        view.refresh()
        assert view.request_of(good).errors == ()
        assert view.request_of(wrong).errors != ()
    assert read.count("good") < len(nodes)  # the first node brings the levels
    assert read.count("wrong") >= len(nodes)


def test_other_levels_let_every_request_be_read_again(read: list[str]) -> None:
    one = job("one", require="rack")
    view = folded(one)
    view.stores.nodes.replace(gpu_nodes(1, 1, 3))
    view.refresh()
    assert view.request_of(one).errors == ()
    read.clear()
    bare = [replace(node, labels={}, resource_version=f"9{at}") for at, node in enumerate(gpu_nodes(1, 1, 3))]
    view.stores.nodes.replace(bare)
    view.refresh()
    view.request_of(one)
    assert read == ["one"]


def test_a_request_that_was_mended_or_spoilt_is_read_as_it_is_now(read: list[str]) -> None:
    """Right and wrong ones are remembered apart: the same workload is never in both."""
    right = replace(job("train", require="host"), resource_version="1")
    wrong = replace(right, resource_version="2", annotations={names.REQUIRE: "host", names.MIN_AVAILABLE: "many"})
    view = folded(right)
    for version, (workload, faulty) in enumerate([(right, False), (wrong, True), (right, False), (wrong, True)]):
        now = replace(workload, resource_version=f"1{version}")
        assert bool(view.owners.request_of(now).errors) == faulty
        assert bool(view.owners.request_of(now).errors) == faulty
    assert len(read) == 4
    view.owners.forget(wrong.uid)
    assert view.owners.request_of(wrong).errors
    assert len(read) == 5
