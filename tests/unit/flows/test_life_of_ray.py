"""A RayCluster with workers of several hosts: replicas keep their indexes when another one is removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
from engine.gang.gang import pinned_host
from tests.support import cluster_records
from tests.support.cluster_records import gpu_nodes
from tests.support.kinds import workload_of
from tests.support.leader import POLICY, Leader

Json = dict[str, Any]

KEY = ("ray.io", "RayCluster", "default", "ray")


def _template() -> Json:
    container = {"name": "main", "image": "example.com/ray", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"schedulingGates": [{"name": names.GATE}], "containers": [container]}
    return {"metadata": {"labels": {names.MANAGED: "true"}}, "spec": spec}


def ray_cluster(replicas: int, version: str, *, suspend: bool = False) -> Workload:
    """A head and replicas of two hosts each."""
    held = {names.HELD_BY: names.HELD_BY_SUSPEND} if suspend else {}
    group = {"groupName": "gpu", "replicas": replicas, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2}
    raw = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "ray",
            "namespace": "default",
            "uid": "uid-ray",
            "resourceVersion": version,
            "generation": 1 + replicas,
            "annotations": {names.REQUIRE: "rack", **held},
        },
        "spec": {
            "suspend": suspend,
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"template": _template()},
            "workerGroupSpecs": [{**group, "template": _template()}],
        },
    }
    return workload_of(raw)


def _pod(gang: Workload, pod_set: str, rank: int, host: str = "") -> Pod:
    """A pod that is bound to a host, or held without one."""
    one = replace(gang, pod_sets=tuple(one for one in gang.pod_sets if one.name == pod_set))
    made = cluster_records.pod(one, None, host=host, gated=not host, name=f"ray-{pod_set}-{rank}")
    labels = {names.MANAGED: "true", "ray.io/cluster": "ray", "ray.io/node-type": "head"}
    if pod_set == "gpu":
        labels |= {
            "ray.io/node-type": "worker",
            "ray.io/group": "gpu",
            "ray.io/worker-group-replica-index": str(rank // 2),
            "ray.io/replica-host-index": str(rank % 2),
        }
    owner = OwnerRef("ray.io/v1", "RayCluster", "ray", "uid-ray", controller=True)
    return replace(made, owner=owner, spec=replace(made.spec, labels=labels))


def _running(leader: Leader, replicas: int) -> dict[tuple[str, int], Pod]:
    """Let a cluster run; its pods by pod set and rank."""
    leader.has(ray_cluster(replicas, "1", suspend=True))
    leader.settle()
    gang = leader.stores.workloads.get(KEY)
    assert gang is not None
    assert not gang.suspended
    placed = leader.placed("ray")
    assert placed is not None
    assert placed.assignment is not None
    pods = {
        (plan.name, rank): _pod(gang, plan.name, rank, slot.host)
        for plan in placed.assignment.pod_sets
        for slot in plan.slots
        for first, last in slot.ranks or ()
        for rank in range(first, last + 1)
    }
    assert len(pods) == 1 + 2 * replicas
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status("ray") == ("Running", "")
    return pods


def _scale(leader: Leader, replicas: int, *, removed: Iterable[Pod] = (), created: Iterable[int] = ()) -> None:
    """The autoscaler sets the number of replicas; KubeRay removes pods, and creates those of these ranks."""
    leader.has(gang := ray_cluster(replicas, leader.hands.version()))
    for pod in removed:
        leader.stores.pods.apply("DELETED", pod)
    leader.has(*(_pod(gang, "gpu", rank) for rank in created))
    leader.settle()


def _bind(leader: Leader) -> None:
    """The scheduler binds what it may."""
    for pod in list(leader.stores.pods.values()):
        host = pinned_host(pod.spec.shape)
        if host is not None and not pod.spec.gates and not pod.spec.node_name:
            leader.has(replace(pod, spec=replace(pod.spec, node_name=host), resource_version=leader.hands.version()))
    leader.later(10.0)


def _hosts_of_workers(leader: Leader) -> dict[str, str]:
    """The hosts of the workers that are bound, by name."""
    pods = [pod for pod in leader.stores.pods.values() if pod.spec.labels.get("ray.io/group") == "gpu"]
    return {pod.name: pod.spec.node_name for pod in pods if pod.spec.node_name}


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_replica_that_is_removed_leaves_nothing_reserved_whichever_it_is(removed: int) -> None:
    """The others run on as they were, and the gang is whole: nothing restarts it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8), policy=POLICY + "incomplete: restart\n")
    pods = _running(leader, 3)
    _scale(leader, 2, removed=[pods["gpu", 2 * removed], pods["gpu", 2 * removed + 1]])
    for _ in range(15):
        leader.later(60.0)
    assert dict(leader.view.capacity.reserved_by("uid-ray")) == {}
    assert leader.status("ray") == ("Running", "")
    assert leader.hands.of("suspend") == []


def test_a_replica_that_is_held_takes_the_slots_of_one_that_is_removed() -> None:
    """Its index is beyond the replicas that are left, and KubeRay never gives it another one."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    pods = _running(leader, 2)
    _scale(leader, 3, created=[4, 5])
    assert leader.hands.of("release") == [], "there is no room for a third"
    _scale(leader, 2, removed=[pods["gpu", 0], pods["gpu", 1]])
    assert leader.hands.of("release") == ["ray-gpu-4", "ray-gpu-5"]
    freed = {pods["gpu", rank].spec.node_name for rank in (0, 1)}
    assert dict(leader.view.capacity.reserved_by("uid-ray")) == {"gpu": 2}
    _bind(leader)
    hosts = _hosts_of_workers(leader)
    assert {hosts["ray-gpu-4"], hosts["ray-gpu-5"]} == freed
    assert dict(leader.view.capacity.reserved_by("uid-ray")) == {}
    assert leader.status("ray") == ("Running", "")


def test_a_replica_whose_slots_another_one_has_taken_gets_those_that_the_cluster_grows_by() -> None:
    """KubeRay gives the lowest free index to a new replica, which is that of the one that was removed."""
    leader = Leader(nodes=gpu_nodes(1, 1, 5))
    pods = _running(leader, 2)
    _scale(leader, 3, created=[4, 5])
    _scale(leader, 2, removed=[pods["gpu", 0], pods["gpu", 1]])
    _bind(leader)
    before = _hosts_of_workers(leader)
    assert before.keys() == {"ray-gpu-2", "ray-gpu-3", "ray-gpu-4", "ray-gpu-5"}
    leader.stores.nodes.replace(gpu_nodes(1, 1, 7))
    _scale(leader, 3, created=[0, 1])
    _bind(leader)
    after = _hosts_of_workers(leader)
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 6, "each worker has a host of its own"
    assert leader.status("ray") == ("Running", "")


def test_the_hosts_of_a_replica_that_is_held_share_the_slots_of_one_other() -> None:
    """Pods of a replica appear one after another; slots of two replicas would be in two domains."""
    leader = Leader(nodes=gpu_nodes(1, 1, 7))
    pods = _running(leader, 3)
    _scale(leader, 4, created=[6])
    _scale(leader, 3, removed=[pods["gpu", rank] for rank in (2, 3)])
    assert leader.hands.of("release") == ["ray-gpu-6"]
    _scale(leader, 3, created=[7])
    _bind(leader)
    hosts = _hosts_of_workers(leader)
    assert {hosts["ray-gpu-6"], hosts["ray-gpu-7"]} == {pods["gpu", rank].spec.node_name for rank in (2, 3)}


def test_a_held_pod_of_a_ray_cluster_that_is_in_no_gang_is_freed() -> None:
    """It came while no webhook answered, with the gate of the template that it is made from."""
    leader = Leader(nodes=gpu_nodes(1, 1, 6), policy=POLICY)
    _running(leader, 1)
    gang = leader.stores.workloads.get(KEY)
    assert gang is not None
    cleaned = replace(gang, beside=((("ray.io/node-type", "redis-cleanup"),),), resource_version=leader.hands.version())
    pod = _pod(gang, "headgroup", 0)
    labels = {names.MANAGED: "true", "ray.io/cluster": "ray", "ray.io/node-type": "redis-cleanup"}
    leader.has(cleaned, replace(pod, name="cleanup", uid="uid-cleanup", spec=replace(pod.spec, labels=labels)))
    leader.settle()
    leader.later(15.0)
    assert leader.hands.of("free") == ["cleanup"]
    assert leader.hands.pod_events == []
