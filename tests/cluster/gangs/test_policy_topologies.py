"""Where levels come from, on a running service: Topology objects of Kueue, and several topologies in one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from local.client import Client, ClientError
from local.nodes import BLOCK, RACK
from local.service import Service
from tests.cluster.gangs.conftest import PolicyInForce
from tests.support.definitions import Definition
from tests.support.eventually import eventually
from tests.support.gang_steps import delete_job, status_of
from tests.support.gangs import Namespace, job_body, require
from tests.support.metric_pages import every_replica_tells

KUEUE = "kueue.x-k8s.io"
LEVEL = RACK.rpartition("/")[2]
# Kueue's own schema, as far as it matters.
LEVELS = {"type": "array", "items": {"type": "object", "properties": {"nodeLabel": {"type": "string"}}}}
SPEC = {"type": "object", "properties": {"levels": LEVELS}}
SCHEMA = {"type": "object", "properties": {"spec": SPEC}}
TOPOLOGIES = Definition(KUEUE, "Topology", "topologies", ("v1beta1",), scope="Cluster", schema=SCHEMA)
OBJECTS = f"/apis/{KUEUE}/v1beta1/topologies"
FROM_OBJECT = f"""
topologies:
- {{name: default, fromObject: {{group: {KUEUE}, name: fabric}}}}
nodes: {{settle: 0s}}
"""
TWO = f"""
topologies:
- name: ib
  levels: [{{name: leaf, keys: [{RACK}]}}]
  nodeSelector: {{example.com/fabric: ib}}
- name: nvl
  levels: [{{name: island, keys: [{BLOCK}]}}, {{name: nvlink, keys: [{RACK}]}}]
  nodeSelector: {{example.com/fabric: nvl}}
nodes: {{settle: 0s}}
"""


@pytest.fixture
def kueue_topologies(client: Client) -> Iterator[None]:
    """The kind is served, without any object."""
    TOPOLOGIES.install(client)
    yield
    TOPOLOGIES.remove(client)


def spec_of(*keys: str) -> dict[str, Any]:
    return {"spec": {"levels": [{"nodeLabel": key} for key in keys]}}


def accepted(gangs: Namespace, asks: dict[str, str]) -> bool:
    """Whether a Job with these annotations is admitted each time, so that no replica refuses it; it is not stored."""
    return not any(refusal(gangs, asks) for _ in range(8))


def refusal(gangs: Namespace, asks: dict[str, str]) -> str:
    """Why a Job with these annotations is refused; "" when it is admitted. It is not stored."""
    body = job_body("probe", pods=1, annotations=asks, selector=gangs.fleet.selector)
    try:
        gangs.client.create(gangs.jobs_path, body, dry_run=True)
    except ClientError as error:
        return str(error)
    return ""


def says(gangs: Namespace, job: str, words: str) -> None:
    """Wait until a gang waits for its levels and says why."""
    gangs.waits(job, "LabelsMissing")
    eventually(
        lambda: words in status_of(gangs, job).get("message", ""), message=lambda: f"{words!r}: {status_of(gangs, job)}"
    )


def test_levels_of_an_object_that_comes_goes_wrong_and_is_mended(
    gangs: Namespace, policy: PolicyInForce, kueue_topologies: None
) -> None:
    """Without it a gang waits and names it; it starts when that is there; while it is bad, others wait and are told."""
    gangs.fleet.grid("1x1x2")
    policy.set(FROM_OBJECT)
    gangs.submit("first", pods=2, annotations=require(LEVEL))
    says(gangs, "first", f"the Topology fabric of {KUEUE} was not found")
    body = {"apiVersion": f"{KUEUE}/v1beta1", "kind": "Topology", "metadata": {"name": "fabric"}}
    gangs.client.create(OBJECTS, {**body, **spec_of(BLOCK, RACK, "kubernetes.io/hostname")})
    first = gangs.all_bound("first", 2)
    gangs.submit("second", pods=2, annotations=require(LEVEL))
    gangs.waits("second", "InsufficientFreeGPUs")
    gangs.client.patch(f"{OBJECTS}/fabric", spec_of(BLOCK, "no label key!"))
    says(gangs, "second", f'the Topology fabric of {KUEUE} cannot be used: "no label key!" is not a node label key')
    assert gangs.bound("first") == first
    gangs.client.patch(f"{OBJECTS}/fabric", spec_of(BLOCK, RACK))
    delete_job(gangs, "first")
    gangs.all_bound("second", 2)


def test_without_topologies_in_the_policy_an_object_is_a_topology(
    gangs: Namespace, service: Service, policy: PolicyInForce, kueue_topologies: None
) -> None:
    """A Job names it, and the part of its label key as a level; the words of the presets name the same level.

    Names of objects may have dots.
    """
    gangs.fleet.grid("1x1x2")
    policy.set("nodes: {settle: 0s}")
    body = {"apiVersion": f"{KUEUE}/v1beta1", "kind": "Topology", "metadata": {"name": "gke.default"}}
    gangs.client.create(OBJECTS, {**body, **spec_of(BLOCK, RACK)})
    named = {**require(LEVEL), "topogate.dev/topology": "gke.default"}
    every_replica_tells(service, 'topology="gke.default"', "every replica has the object's topology")
    assert accepted(gangs, named)
    gangs.submit("first", pods=2, annotations=require("rack"))
    gangs.all_bound("first", 2)
    placement = gangs.placement("first")
    assert placement is not None
    assert (placement["spec"]["topology"], placement["spec"]["podSets"][0]["require"]) == ("gke.default", LEVEL)


def test_beside_topologies_of_the_policy_a_job_may_name_an_object(
    gangs: Namespace, policy: PolicyInForce, kueue_topologies: None
) -> None:
    """It has the object's levels then; a Job that names none has those of the policy."""
    gangs.fleet.grid("1x1x2")
    policy.set(f"topologies: [{{name: main, levels: [{{name: leaf, keys: [{RACK}]}}]}}]\nnodes: {{settle: 0s}}\n")
    body = {"apiVersion": f"{KUEUE}/v1beta1", "kind": "Topology", "metadata": {"name": "fabric"}}
    gangs.client.create(OBJECTS, {**body, **spec_of(BLOCK, RACK)})
    named = {**require(LEVEL), "topogate.dev/topology": "fabric"}
    eventually(lambda: accepted(gangs, named), message="every replica takes the object's topology")
    gangs.submit("names", pods=1, annotations=named)
    gangs.submit("says-nothing", pods=1, annotations=require("leaf"))
    for job, topology in (("names", "fabric"), ("says-nothing", "main")):
        gangs.all_bound(job, 1)
        assert (gangs.placement(job) or {})["spec"]["topology"] == topology
    gangs.client.patch(f"{OBJECTS}/fabric", spec_of("a.example/rack", "b.example/rack"))
    why = f'the Topology fabric of {KUEUE} cannot be used: two levels would be called "rack"; allowed: main'
    eventually(lambda: why in refusal(gangs, named), message="who names it now reads what is wrong with it")


def test_the_nodes_that_a_job_asks_for_choose_its_topology(gangs: Namespace, policy: PolicyInForce) -> None:
    """Its nodeSelector, or the annotation; each topology has its own levels, and gangs in the nodes of their own."""
    gangs.fleet.grid("1x1x2", labels={"example.com/fabric": "ib"})
    fast = gangs.fleet.host("fast-0", block="b", rack="r0"), gangs.fleet.host("fast-1", block="b", rack="r0")
    for host in fast:
        gangs.fleet.patch(host, {"metadata": {"labels": {"example.com/fabric": "nvl"}}})
    policy.set(TWO)
    own = {**gangs.fleet.selector, "example.com/fabric": "nvl"}
    gangs.submit("selects", pods=1, gpus=8, annotations=require("nvlink"), selector=own)
    named = {**require("nvlink"), "topogate.dev/topology": "nvl"}
    gangs.submit("names", pods=1, gpus=8, annotations=named)
    gangs.submit("says-nothing", pods=2, gpus=8, annotations=require("leaf"))
    found = {**gangs.all_bound("selects", 1), **{1: gangs.all_bound("names", 1)[0]}}
    assert set(found.values()) == set(fast)
    assert not set(gangs.all_bound("says-nothing", 2).values()) & set(fast)
    topologies = {job: (gangs.placement(job) or {})["spec"]["topology"] for job in ("selects", "names", "says-nothing")}
    assert topologies == {"selects": "nvl", "names": "nvl", "says-nothing": "ib"}
