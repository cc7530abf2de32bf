"""A CustomResourceDefinition on a real API server: watched once it is there, forgotten once it is gone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from engine.cache.stores import Stores
from engine.cache.workload_informers import WorkloadInformers
from engine.cluster import writes
from engine.cluster.client import KubeClient, connect
from engine.cluster.writes import Conflict, Done
from engine.policy.model import default_policy
from local.client import Client
from local.controlplane import ControlPlane
from tests.support.definitions import Definition
from tests.support.eventually import eventually

GROUP = "fleets.topogate.example.com"
FLEETS = Definition(GROUP, "Fleet", "fleets", ("v3",))
TASK = ".spec.tasks[*]"
ENTRY: dict[str, Any] = {
    "name": "fleet",
    "match": {"group": GROUP, "versions": ["*"], "kind": "Fleet", "resource": "fleets"},
    "podSets": [
        {
            "forEach": TASK,
            "name": {"path": ".name"},
            "role": "worker",
            "template": ".template",
            "count": {"path": ".size"},
        }
    ],
    "gang": {"unit": "workload", "creation": "all-at-once"},
    "suspend": {"path": ".spec.hold"},
    "replace": {"cost": "retry"},
}


@pytest.fixture
def api(control_plane: ControlPlane) -> KubeClient:
    return connect(kubeconfig=str(control_plane.kubeconfig), user_agent="topogate-test")


@pytest.fixture
def caches(api: KubeClient, client: Client) -> Iterator[tuple[WorkloadInformers, Stores]]:
    stores = Stores()
    policy = default_policy().model_copy(update={"kinds": (ENTRY,)})
    made = WorkloadInformers(api, stores, policy=lambda: policy, rng=random.Random(1), every=(0.2, 0.3), soon=0.1)
    made.start()
    yield made, stores
    for reflector in made.stop():
        reflector.stop()
    client.delete(FLEETS.path)


def test_a_definition_comes_and_goes(
    api: KubeClient, client: Client, namespace: str, caches: tuple[WorkloadInformers, Stores]
) -> None:
    """Its objects are read, resumed by a JSON Patch bound to what they ask for, and forgotten with it."""
    kinds, stores = caches
    assert kinds.wait_synced(60)
    FLEETS.install(client)
    collection = f"/apis/{GROUP}/v3/namespaces/{namespace}/fleets"
    tasks = [
        {"name": "a", "size": 2, "template": {"spec": {"containers": []}}},
        {"name": "b", "size": 3, "template": {"metadata": {"annotations": {"x": "y"}}, "spec": {"containers": []}}},
    ]
    body = {"apiVersion": f"{GROUP}/v3", "kind": "Fleet", "metadata": {"name": "f"}}
    eventually(lambda: kinds.reflectors().get(f"fleets.{GROUP}"))
    client.create(collection, {**body, "spec": {"hold": True, "tasks": tasks}})
    key = (GROUP, "Fleet", namespace, "f")
    eventually(lambda: stores.workloads.get(key) is not None)
    known = stores.workloads.get(key)
    assert known is not None
    assert (known.api_version, known.slots, known.suspended) == (f"{GROUP}/v3", 5, True)
    client.patch(f"{collection}/f", {"spec": {"tasks": [tasks[1], tasks[0]]}})
    assert isinstance(writes.resume_workload(api, known, placement="p", revision=2, fence=ok), Conflict)

    def newest() -> bool:
        found = stores.workloads.get(key)
        return found is not None and found.resource_version != known.resource_version

    eventually(newest)
    known = stores.workloads.get(key)
    assert known is not None
    assert isinstance(writes.resume_workload(api, known, placement="p", revision=2, fence=ok), Done)
    stored = client.get(f"{collection}/f")
    told = [one["template"]["metadata"]["annotations"] for one in stored["spec"]["tasks"]]
    wanted = {"topogate.dev/placement": "p", "topogate.dev/revision": "2"}
    assert (stored["spec"]["hold"], told) == (False, [{"x": "y"} | wanted, wanted])
    FLEETS.remove(client)
    eventually(lambda: stores.workloads.get(key) is None)
    eventually(lambda: f"fleets.{GROUP}" not in kinds.reflectors())


def ok() -> None:
    """A fence that lets pass."""
