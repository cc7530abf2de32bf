"""Gangs on Volcano's HyperNodes: a tree of objects that a Job names as its topology, on a running service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from local.client import Client, ClientError
from local.service import Service
from tests.cluster.gangs.conftest import PolicyInForce
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, pod_of_index, replaced, status_of
from tests.support.gangs import Namespace, job_body, require
from tests.support.metric_pages import every_replica_tells

GROUP = "topology.volcano.sh"
HYPER_NODES = Definition(
    GROUP,
    "HyperNode",
    "hypernodes",
    ("v1alpha1",),
    scope="Cluster",
    schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
)
OBJECTS = f"/apis/{GROUP}/v1alpha1/hypernodes"
NAMED = {"topogate.dev/topology": "hypernodes"}


@pytest.fixture
def hyper_nodes(client: Client) -> Iterator[None]:
    """The kind is served, without any object."""
    HYPER_NODES.install(client)
    yield
    HYPER_NODES.remove(client)


def exact(*names: str, kind: str = "Node") -> list[dict[str, Any]]:
    return [{"type": kind, "selector": {"exactMatch": {"name": name}}} for name in names]


def create(client: Client, name: str, tier: int, members: Sequence[dict[str, Any]], **more: Any) -> None:
    client.create(OBJECTS, body(name, {"tier": tier, "members": list(members), **more}))


def body(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


def refusal(gangs: Namespace, asks: dict[str, str]) -> str:
    """What a Job with these annotations is refused with; "" when it is admitted. It is not stored."""
    body = job_body("probe", pods=1, annotations=asks, selector=gangs.fleet.selector)
    try:
        gangs.client.create(gangs.jobs_path, body, dry_run=True)
    except ClientError as error:
        return str(error)
    return ""


def test_a_gang_lands_in_one_hyper_node_and_stays_within_it(
    gangs: Namespace, service: Service, policy: PolicyInForce, hyper_nodes: None
) -> None:
    """The tree goes across the racks; a lost pod comes back in its HyperNode; when the kind goes, the gang stays."""
    policy.set("nodes: {settle: 0s}")
    hosts = gangs.fleet.grid("1x2x2")
    trees = {"s0": (hosts[0], hosts[2]), "s1": (hosts[1], hosts[3])}
    create(gangs.client, "top", 2, exact("s0", "s1", kind="HyperNode"))
    create(gangs.client, "s0", 1, exact(*trees["s0"]), tierName="leaf")
    pattern = f"^({'|'.join(trees['s1'])})$"
    create(gangs.client, "s1", 1, [{"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}])
    asks = {**require("leaf"), **NAMED}
    whole = 'topogate_topology_nodes{state="in",topology="hypernodes"} 4.0'
    every_replica_tells(service, whole, "every replica has the whole tree")
    assert refusal(gangs, asks) == ""
    assert "is a level of topology hypernodes; add topogate.dev/topology: hypernodes" in refusal(gangs, require("leaf"))
    landed = {}
    for name in ("one", "two"):
        gangs.submit(name, pods=2, gpus=8, annotations=asks, spec={"backoffLimit": 6})
        landed[name] = set(gangs.all_bound(name, 2).values())
    assert sorted(map(sorted, landed.values())) == sorted(map(sorted, trees.values()))
    placement = gangs.placement("one")
    assert placement is not None
    assert (placement["spec"]["topology"], placement["spec"]["podSets"][0]["require"]) == ("hypernodes", "leaf")
    domains = {pod["metadata"]["annotations"]["topogate.dev/domain"].rpartition("/")[0] for pod in gangs.pods("one")}
    assert domains == {f"top/{name}" for name, members in trees.items() if set(members) == landed["one"]}
    gangs.submit("both", pods=4, gpus=8, annotations={**require("tier-2"), **NAMED})
    gangs.waits("both", "InsufficientFreeGPUs")
    delete_job(gangs, "two")
    gangs.waits("both", "InsufficientFreeGPUs")
    pod = pod_of_index(gangs, "one", 0)
    gangs.client.delete(f"/api/v1/namespaces/{gangs.name}/pods/{pod['metadata']['name']}")
    replaced(gangs, "one", 0, pod["metadata"]["uid"])
    assert set(gangs.all_bound("one", 2).values()) == landed["one"]
    HYPER_NODES.remove(gangs.client)
    eventually(lambda: '"hypernodes": allowed:' in refusal(gangs, asks), message=lambda: refusal(gangs, asks))
    eventually(
        lambda: status_of(gangs, "both").get("reason") in ("UnknownLevel", "UnknownTopology"),
        message=lambda: f"the waiting gang says what is gone: {status_of(gangs, 'both')}",
    )
    assert set(gangs.bound("one").values()) == landed["one"]


def test_garbage_among_hyper_nodes_leaves_the_rest_in_use(
    gangs: Namespace, policy: PolicyInForce, hyper_nodes: None
) -> None:
    """Through the policy's own topology: it waits while there is nothing, and starts on what can be used."""
    hosts = gangs.fleet.grid("1x1x2")
    policy.set(
        f"topologies: [{{name: fabric, fromObject: {{group: {GROUP}, name: hypernodes}}}}]\nnodes: {{settle: 0s}}\n"
    )
    gangs.submit("first", pods=2, annotations=require("tier-1"))
    gangs.waits("first", "LabelsMissing")
    eventually(lambda: "there are no HyperNodes" in status_of(gangs, "first").get("message", ""))
    create(gangs.client, "loop", 3, exact("loop", kind="HyperNode"))
    create(gangs.client, "bad", 1, [{"type": "Node", "selector": {"regexMatch": {"pattern": "^(("}}}])
    gangs.client.create(OBJECTS, body("worse", {"tier": "x"}))
    create(gangs.client, "good", 1, exact(*hosts))
    create(gangs.client, "top", 3, exact("good", kind="HyperNode"))
    gangs.all_bound("first", 2)
