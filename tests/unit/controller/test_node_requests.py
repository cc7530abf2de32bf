"""What the writes of requests for nodes make of the API server's answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from engine.api import names
from engine.api.objects import RuntimeClass
from engine.autoscaling.attempts import AskForNodes
from engine.autoscaling.demand import NodeDemand, demand_of
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import ApiError, KubeClient
from engine.controller.gang_events import GangEvents
from engine.controller.node_requests import NodeRequests
from engine.gang.gang import Gang
from engine.gang.key import key_of
from engine.policy.model import parse_policy
from tests.support.cluster_records import changed, gpu_nodes, job, placement
from tests.support.leader import POLICY
from tests.support.provisioning import rules

NAME = "job-train-0-0a1b2c3d-1"


class Taken:
    """An API server on which the names of a request and its templates are taken."""

    def __init__(self, **metadata: Any) -> None:
        self.metadata = metadata
        self.events: list[str] = []
        self.made: list[Any] = []

    def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "POST":
            self.made.append(more.get("body"))
            raise ApiError(409, "AlreadyExists", "already exists")
        if "provisioningrequests" in path:
            metadata = {"name": NAME, "namespace": "default", "uid": "u", **self.metadata}
            body = {"apiVersion": "autoscaling.x-k8s.io/v1", "metadata": metadata, "spec": {}}
            return json.dumps(body).encode()
        return json.dumps({"spec": {"template": {"spec": {"containers": []}}}}).encode()  # the workload

    def publish(self, gang: Gang, reason: str, *_more: object, **_fields: object) -> None:
        self.events.append(reason)


def ask(
    server: Taken,
    runtime_class: RuntimeClass | None = None,
    *,
    policy: str = POLICY,
    elsewhere: tuple[str, ...] = (),
    together: bool = True,
) -> tuple[str, Stores, Gang]:
    """Ask for nodes for a gang of 4 pods, of a runtime class or none, which need one domain or do not."""
    stores = Stores()
    view = ClusterState(stores, parse_policy(policy))
    stores.nodes.replace(gpu_nodes(1, 1, 1))
    workload = job("train", count=4, held=True, require="rack" if together else None)
    if not together:
        workload = replace(workload, annotations={**workload.annotations, names.UNCONSTRAINED: "true"})
    if runtime_class is not None:
        stores.runtime_classes.apply("ADDED", runtime_class)
        template = replace(workload.template, runtime_class=runtime_class.name)
        workload = changed(workload, template=template)
    stores.workloads.apply("ADDED", workload)
    stores.placements.apply("ADDED", placement(workload, None))
    view.refresh()
    gang = view.gangs.get(key_of(workload))
    assert gang is not None and gang.placement is not None
    demand = demand_of(gang, {})
    assert isinstance(demand, NodeDemand)
    writes = NodeRequests(view, cast(KubeClient, server), cast(GangEvents, server), fence=lambda: None)
    step = AskForNodes(NAME, rules("{className: first}").classes[0], 1)
    return writes.ask(gang, demand, step, version="v1", elsewhere=elsewhere), stores, gang


def test_what_an_earlier_leader_has_made_is_ours() -> None:
    _, _, gang = ask(Taken())
    assert gang.placement is not None
    server = Taken(labels={names.GANG: gang.placement.name})
    problem, stores, _ = ask(server)
    assert (problem, server.events) == ("", [])
    assert [one.name for one in stores.provisioning_requests.values()] == [NAME]


def test_a_template_of_the_workload_gets_what_its_runtime_class_adds_to_pods() -> None:
    server = Taken()
    ask(server, RuntimeClass("sandbox", overhead={}, node_selector={"sandbox": "yes"}, tolerations=()))
    assert server.made[0]["template"]["spec"]["nodeSelector"] == {"sandbox": "yes"}


@pytest.mark.parametrize("added", [True, False])
def test_a_template_of_the_workload_tolerates_what_its_pods_will(added: bool) -> None:
    """Where the API server adds tolerations to pods: else an autoscaler adds no node that has such a taint."""
    server = Taken()
    ask(server, policy=POLICY.replace("settle: 0s", f"settle: 0s, extendedResourceToleration: {str(added).lower()}"))
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert server.made[0]["template"]["spec"].get("tolerations") == ([toleration] if added else None)


@pytest.mark.parametrize("together", [True, False])
def test_only_pods_that_need_one_domain_must_not_use_hosts_of_today(together: bool) -> None:
    server = Taken()
    ask(server, elsewhere=("h1",), together=together)
    assert ("affinity" in server.made[0]["template"]["spec"]) is together


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "has not been made for this gang"),
        ({"labels": {names.GANG: "another"}}, "has not been made for this gang"),
        ({"labels": "of the gang", "deletionTimestamp": "2027-01-15T08:00:00Z"}, "is still being deleted"),
    ],
)
def test_a_name_that_is_taken_is_a_refusal(metadata: dict[str, Any], why: str) -> None:
    """So it is tried again later and later: otherwise a user who has the name would be asked for it every second."""
    if metadata.get("labels") == "of the gang":
        _, _, gang = ask(Taken())
        assert gang.placement is not None
        metadata = {**metadata, "labels": {names.GANG: gang.placement.name}}
    server = Taken(**metadata)
    problem, stores, _ = ask(server)
    assert problem == f"the ProvisioningRequest for its nodes was refused: the one of its name {why}"
    assert server.events == ["ProvisioningRequestRefused"]
    assert not len(stores.provisioning_requests)
