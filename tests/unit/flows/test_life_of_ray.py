"""A RayCluster with workers of several hosts: replicas keep their indexes when another one is removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.pod import OwnerRef, Pod
from engine.api.workload import Workload
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


def _pod(gang: Workload, pod_set: str, rank: int, host: str) -> Pod:
    one = replace(gang, pod_sets=tuple(one for one in gang.pod_sets if one.name == pod_set))
    made = cluster_records.pod(one, None, host=host, name=f"ray-{pod_set}-{rank}")
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


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_replica_that_is_removed_leaves_nothing_reserved_whichever_it_is(removed: int) -> None:
    """The others run on as they were, and the gang is whole: nothing restarts it."""
    leader = Leader(nodes=gpu_nodes(1, 1, 8), policy=POLICY + "incomplete: restart\n")
    leader.has(ray_cluster(3, "1", suspend=True))
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
    assert len(pods) == 7
    leader.has(*pods.values())
    leader.later(10.0)
    assert leader.status("ray") == ("Running", "")
    leader.has(ray_cluster(2, leader.hands.version()))
    for rank in (2 * removed, 2 * removed + 1):
        leader.stores.pods.apply("DELETED", pods["gpu", rank])
    for _ in range(15):
        leader.later(60.0)
    assert dict(leader.view.capacity.reserved_by("uid-ray")) == {}
    assert leader.status("ray") == ("Running", "")
    assert leader.hands.of("suspend") == []
