"""Pods that say they are somebody else's, or carry our marks: they take no slot and no room of anybody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.gang.ownership import OwnerResolver, Ownership
from tests.support.cluster_records import gpu_nodes, job, node, pinned, placement, pod, shape

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
