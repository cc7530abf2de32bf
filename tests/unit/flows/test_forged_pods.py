"""Pods that say they are somebody else's, or carry our marks: they take no slot and no room of anybody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import RESOURCE_CLAIMS, OwnerRef, Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.key import key_of
from engine.gang.ownership import OwnerResolver, Ownership
from tests.support.cluster_records import gpu_nodes, job, node, pinned, placement, pod, shape, spec
from tests.support.families import plain
from tests.support.leader import Leader

HOST = "b0-r0-h0"


def seen(workload: Workload, *pods: Pod, hosts: int = 2) -> ClusterState:
    stores = Stores()
    view = ClusterState(stores)
    stores.nodes.replace(gpu_nodes(1, 1, hosts))
    stores.workloads.replace([workload])
    stores.placements.replace([placement(workload, {HOST: 1})])
    stores.pods.replace(pods)
    view.refresh()
    return view


def loose(of: Workload, *, namespace: str = "elsewhere", host: str = HOST, **requests: int) -> Pod:
    """A pod of another namespace that was let go by its own user, and names the victim's workload as its owner."""
    made = pod(of, 0, pin=host, name="thief", uid="uid-thief")
    return replace(
        made, namespace=namespace, spec=replace(made.spec, shape=pinned(shape(**requests), host)), **_unbound()
    )


def _unbound() -> dict[str, Any]:
    return {"unschedulable": "0/1 nodes are available"}


def test_a_pod_of_another_namespace_does_not_swell_what_a_gang_keeps() -> None:
    """It names the uid of the workload: its own requests count for itself, and the gang's for the gang."""
    victim = replace(job(count=1, require="rack"), started=True)
    alone = seen(victim).capacity.free(HOST)
    on_its_way = replace(loose(victim, host="b0-r0-h1", cpu=90_000), unschedulable="")
    view = seen(victim, on_its_way)
    assert view.capacity.free(HOST) == alone
    assert view.capacity.free("b0-r0-h1")["cpu"] == 6_000
    assert dict(view.capacity.reserved(victim.uid)) == {HOST: 1}


def test_a_pod_that_fits_nowhere_takes_no_room() -> None:
    """Our label on a pod that is pinned by its user and larger than the host: nobody is overbooked by it."""
    victim = replace(job(count=1), started=True)
    view = seen(victim, loose(victim, cpu=10**12), loose(job("other"), gpu=9))
    assert not view.capacity.overcommitted(HOST, victim.template.shape.requests)
    assert view.capacity.free(HOST) == seen(victim).capacity.free(HOST)


def test_one_of_the_gang_s_own_workload_takes_none_either() -> None:
    """Whoever may write pods may give them his own Job as their owner."""
    own = replace(job("mine", count=1), finished=True)
    view = seen(own, loose(own, namespace="default", cpu=10**12))
    assert view.capacity.free(HOST)["cpu"] == 96_000


def test_a_pod_on_its_way_counts_once_its_host_is_known() -> None:
    """Also when the host is seen after the pod, or grows."""
    gone = job(count=1)
    stores = Stores()
    view = ClusterState(stores)
    stores.pods.replace([pod(gone, 0, pin="late")])
    view.refresh()
    stores.nodes.replace([node("late", allocatable={"cpu": 1000, "pods": 9, "nvidia.com/gpu": 4})])
    view.refresh()
    assert view.capacity.free("late")["nvidia.com/gpu"] == 4
    stores.nodes.replace([node("late", allocatable={"cpu": 1000, "pods": 9, "nvidia.com/gpu": 8})])
    view.refresh()
    assert view.capacity.free("late")["nvidia.com/gpu"] == 0


def test_a_change_of_a_workload_concerns_nobody_in_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pods of a neighbour name its uid: whose they are is not asked again."""
    victim = job(count=1)
    view = seen(victim, loose(victim), pod(victim, 0, gated=True, name="own"))
    asked: list[str] = []
    claim = OwnerResolver.owner_of

    def noted(owners: OwnerResolver, one: Pod) -> Ownership:
        asked.append(one.name)
        return claim(owners, one)

    monkeypatch.setattr(OwnerResolver, "owner_of", noted)
    view.stores.workloads.apply("MODIFIED", replace(victim, labels={"a": "b"}, resource_version="999999"))
    view.refresh()
    assert asked == ["own"]


@pytest.mark.parametrize("uid", ["grace", "grace/1", "pod", "pods", "pods/default/mesh", ""])
def test_an_owner_whose_uid_looks_like_a_key_of_ours_harms_nobody(uid: str) -> None:
    """Whoever creates a pod writes the uid of its owner, and any text is accepted."""
    leader = Leader(nodes=gpu_nodes(1, 1, 2))
    leader.has(job("train", count=1, held=True))
    leader.settle()
    leader.stores.workloads.apply("DELETED", leader.workload("train"))  # its slot is kept for a while
    leader.view.refresh()
    before = leader.view.capacity.free(HOST)
    for name, asks in (("evil", {names.REQUIRE: "rack"}), ("other", {})):
        made = plain(name, size=None)
        owner = OwnerRef("example.com/v1", "Foo", "foo", uid, True)
        made = replace(made, owner=owner, spec=replace(made.spec, annotations=asks, shape=shape(cpu=1)))
        leader.has(made)
        leader.settle()
        leader.has(replace(made, resource_version="999998", spec=replace(made.spec, labels={"a": "b"})))
        assert leader.view.capacity.free(HOST)["nvidia.com/gpu"] == before["nvidia.com/gpu"]
        leader.stores.pods.apply("DELETED", replace(made, resource_version="999999"))
        leader.settle()
    leader.later(60)
    leader.has(job("later", count=2, held=True))
    leader.settle()
    assert leader.placed("later").assignment is not None
    assert not leader.controller._term.busy


@pytest.mark.parametrize("why", ["scheduling group", "resource claim"])
def test_a_pod_that_the_scheduler_never_looks_at_takes_no_room(why: str) -> None:
    """Its PodGroup or its claim does not exist: it is never bound, and never refused."""
    other = job("other", count=1)
    made = replace(loose(other, gpu=8, host="b0-r0-h1"), unschedulable="")
    group, claims = why == "scheduling group", () if why == "scheduling group" else (RESOURCE_CLAIMS,)
    stuck = replace(made, spec=replace(made.spec, has_scheduling_group=group, unmodelled=claims))
    victim = replace(job(count=1, require="rack"), started=True)
    assert seen(victim, made).capacity.free("b0-r0-h1")["nvidia.com/gpu"] == 0
    assert seen(victim, stuck).capacity.free("b0-r0-h1")["nvidia.com/gpu"] == 8


@pytest.mark.parametrize("ranked", [True, False])
def test_refused_pods_of_a_gang_take_no_more_than_its_slots(ranked: bool) -> None:
    """However many of them their user pins to a host of the gang, and however large they are."""
    small = spec(shape=shape(cpu=10), gates=(names.GATE,), labels={names.MANAGED: "true"})
    mine = replace(job("mine", count=1, ranked=ranked, template=small), started=True)
    extra = []
    for number in range(3):
        made = loose(mine, namespace="default", gpu=8)
        labels = {**made.spec.labels, names.COMPLETION_INDEX: "5"}
        extra.append(replace(made, name=f"evil-{number}", uid=f"e{number}", spec=replace(made.spec, labels=labels)))
    bound = pod(mine, 0, host=HOST)
    assert seen(mine, bound, *extra).capacity.free(HOST) == seen(mine, bound).capacity.free(HOST)


def test_pods_of_an_exclusive_gang_keep_no_more_domains_than_it_has_pods() -> None:
    """Their user may create any number of them on hosts of other racks, with the Job as their controller."""
    leader = Leader(nodes=gpu_nodes(1, 4, 1))
    mine = job("mine", count=1, require="rack", held=True)
    leader.has(replace(mine, annotations={**mine.annotations, names.EXCLUSIVE: "rack"}))
    leader.settle()
    leader.has(pod(leader.workload("mine"), 0, host=HOST))
    leader.has(*(pod(leader.workload("mine"), 9, host=f"b0-r{rack}-h0", name=f"evil-{rack}") for rack in (1, 2, 3)))
    leader.settle()
    kept = leader.view.gangs.kept_domains.of(key_of(leader.workload("mine")))
    assert sum(len(plan.slots) for one in kept for plan in one.assignment.pod_sets) == 2
