"""The service on the session's control plane: two replicas, real TLS, real Lease, its own ServiceAccount."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.policy.model import parse_policy
from local.client import Client
from local.controllers.building import Built
from local.controllers.running import Controllers
from local.controlplane import ControlPlane
from local.service import NAMESPACE, Service
from tests.cluster.conftest import ENVIRONMENT
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, fleet_name
from tests.support.gang_steps import delete_job
from tests.support.gangs import Namespace
from tests.support.metric_pages import every_replica_tells
from tests.support.seen_fleet import SeenFleet

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
POLICY = f"{CONFIG_MAPS}/topogate-policy"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
POLICY_CONFIGURATIONS = (
    f"{HOOKS}/mutatingwebhookconfigurations/topogate-policy",
    f"{HOOKS}/validatingwebhookconfigurations/topogate-policy",
)
# Nodes count at once here, or every test would wait for 15 s.
TEST_POLICY = """
topologies:
- {name: default, preset: demo}
nodes: {settle: 0s}
"""


class PolicyInForce:
    """Writes the policy and waits until every replica has taken it."""

    def __init__(self, client: Client, service: Service) -> None:
        self._client = client
        self._service = service

    def set(self, text: str) -> None:
        """Make a good policy effective on every running replica."""
        body = {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": text}}
        known = self._client.find(POLICY)
        if known is None:
            self._client.create(CONFIG_MAPS, body)
        elif known["data"].get("policy.yaml") != text:
            self._client.patch(POLICY, {"data": body["data"]})
        in_force = f'topogate_policy_info{{hash="{parse_policy(text).hash}"}} 1.0'
        every_replica_tells(self._service, in_force, "every replica has taken the new policy")


@pytest.fixture(scope="session")
def control_plane(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: other tests hold pods and Jobs by hand, and our leader would act on them."""
    folder = tmp_path_factory.mktemp("control-plane-with-topogate")
    with ControlPlane.start(folder, programs=programs, environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture(scope="session")
def controllers(control_plane: ControlPlane, built_controllers: dict[str, Built]) -> Controllers:
    """The controllers of other kinds on this control plane (`jobset`, `lws` ... start them)."""
    return Controllers(control_plane, built_controllers)


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> Iterator[Service]:
    """The manifests applied; replicas are started by `service`."""
    service = Service.install(control_plane)
    yield service
    service.stop()


@pytest.fixture
def nodes(client: Client, installed: Service, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Makes this test's nodes, and changes them; the replicas that run have seen it."""
    fleet = SeenFleet(client, fleet_name(request.node.name, secrets.token_hex(2)), installed)
    yield fleet
    fleet.clear()


@pytest.fixture
def service(installed: Service) -> Service:
    """Two replicas that serve, one of which leads; those that a test killed are started again."""
    installed.start(2)
    eventually(installed.leader, message="a replica leads")
    return installed


@pytest.fixture
def policy(client: Client, service: Service) -> Iterator[PolicyInForce]:
    """`policy.set(text)` during one test; the tests' own policy stands before and after."""
    writer = PolicyInForce(client, service)
    writer.set(TEST_POLICY)
    eventually(
        lambda: not any(client.get(path).get("webhooks") for path in POLICY_CONFIGURATIONS),
        message="the leader has taken away what the policy of another test added",
    )
    yield writer
    service.start(2)
    writer.set(TEST_POLICY)


@pytest.fixture
def gangs(client: Client, namespace: str, nodes: Fleet, policy: PolicyInForce) -> Namespace:
    """This test's namespace, nodes and Jobs, with the service running."""
    return Namespace(client, namespace, nodes)


@pytest.fixture
def beside(client: Client, gangs: Namespace) -> Iterator[Namespace]:
    """Another namespace on the same nodes, emptied afterwards."""
    name = f"{gangs.name}-b"
    client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    eventually(lambda: client.find(account), message=f"the default service account of namespace {name}")
    found = Namespace(client, name, gangs.fleet)
    yield found
    for one in client.items(found.jobs_path):
        delete_job(found, one["metadata"]["name"])
    eventually(lambda: not client.items(f"/api/v1/namespaces/{name}/pods"), message="its pods are gone")
    client.delete(f"/api/v1/namespaces/{name}")
