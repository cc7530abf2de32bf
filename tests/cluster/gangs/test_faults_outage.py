"""No replica answers: what is not ours passes, what is held stays held, what could start unplaced is refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from local.client import Client, ClientError
from local.controlplane import ControlPlane
from local.service import Service
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, fleet_name
from tests.support.gangs import Namespace, job_body, require
from tests.support.raw_pods import GATE, held

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def waiting_before(control_plane: ControlPlane, installed: Service) -> Iterator[Namespace]:
    """Two Jobs for which there are no nodes, submitted while the service runs."""
    client = control_plane.client
    fleet = Fleet(client, fleet_name("outage", secrets.token_hex(2)))
    client.create("/api/v1/namespaces", {"metadata": {"name": fleet.name}})
    jobs = Namespace(client, fleet.name, fleet)
    installed.start(2)
    for name in ("first", "second"):
        jobs.submit(name, pods=2, annotations=require("rack"))
        jobs.waits(name)
    yield jobs
    client.delete(jobs.jobs_path)
    client.delete(f"/api/v1/namespaces/{fleet.name}")


@pytest.fixture(scope="module")
def outage(installed: Service, waiting_before: Namespace) -> Iterator[Service]:
    """The manifests are in force and nobody answers, until the module is through."""
    installed.stop()
    yield installed
    installed.start(2)


@pytest.fixture
def waiting(outage: Service, waiting_before: Namespace) -> Namespace:
    """The Jobs that have waited since before the outage."""
    assert outage.running() == []
    return waiting_before


@pytest.fixture
def alone(outage: Service, client: Client, namespace: str, nodes: Fleet) -> Namespace:
    """A namespace with one rack of two hosts, and no service."""
    assert outage.running() == []
    nodes.grid("1x1x2")
    return Namespace(client, namespace, nodes)


def pod_body(name: str, selector: dict[str, str], **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/web:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeSelector": selector, "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def test_a_pod_that_is_not_ours_runs(alone: Namespace, client: Client) -> None:
    """A plain pod is created and bound as if we were not installed."""
    pods = f"/api/v1/namespaces/{alone.name}/pods"
    client.create(pods, pod_body("web", alone.fleet.selector))
    eventually(lambda: client.get(f"{pods}/web")["spec"].get("nodeName"), message="the pod is bound")


def test_a_job_that_is_not_ours_runs(alone: Namespace) -> None:
    """A Job without annotations starts."""
    alone.submit("plain", pods=2)
    alone.all_bound("plain", 2)


def test_a_job_that_asks_is_refused_with_a_word_on_why(alone: Namespace) -> None:
    """Nobody can hold it now, so it must not start anywhere: the message names our webhook."""
    with pytest.raises(ClientError) as error:
        alone.submit("train", pods=2, annotations=require("rack"))
    assert error.value.status == 500
    assert "workloads.topogate.dev" in error.value.message


def test_a_pod_that_asks_and_has_no_gate_is_refused(alone: Namespace, client: Client) -> None:
    """A required level is not broken by an outage."""
    body = pod_body("train", alone.fleet.selector, annotations=require("rack"))
    with pytest.raises(ClientError) as error:
        client.create(f"/api/v1/namespaces/{alone.name}/pods", body)
    assert error.value.status == 500
    assert "asking-pods.topogate.dev" in error.value.message


def test_a_managed_pod_is_admitted_and_held(alone: Namespace, client: Client) -> None:
    """With the marks of our template a pod comes in, and stays behind its gate."""
    body = pod_body("train-0", alone.fleet.selector, labels={"topogate.dev/managed": "true"})
    body["spec"]["schedulingGates"] = [{"name": GATE}]
    assert held(client.create(f"/api/v1/namespaces/{alone.name}/pods", body))


def test_a_job_that_waits_can_be_deleted(waiting: Namespace, client: Client) -> None:
    """Deletion, with the removal of finalizers that comes with it, needs none of us."""
    waiting.client.delete(f"{waiting.jobs_path}/first", propagation="Foreground")
    eventually(lambda: client.find(f"{waiting.jobs_path}/first") is None, message="the Job is gone")


def test_a_job_that_waits_cannot_be_resumed(waiting: Namespace, client: Client) -> None:
    """Its resumption would be seen by nobody: refused, and the Job stays as it is."""
    with pytest.raises(ClientError) as error:
        client.patch(f"{waiting.jobs_path}/second", {"spec": {"suspend": False}})
    assert error.value.status == 500
    assert "workloads.topogate.dev" in error.value.message
    assert waiting.job("second")["spec"]["suspend"] is True


def test_a_managed_job_s_foreign_labels_may_change(waiting: Namespace, client: Client) -> None:
    """What does not concern us is not sent to us."""
    client.patch(f"{waiting.jobs_path}/second", {"metadata": {"labels": {"team": "blue"}}})


KUEUE = {"kueue.x-k8s.io/podset-required-topology": "rack"}


def test_a_pod_of_somebody_else_s_group_runs(alone: Namespace, client: Client) -> None:
    """The label of a pod group asks us for nothing on a pod."""
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g"}
    path = f"/api/v1/namespaces/{alone.name}/pods"
    client.create(path, pod_body("member", alone.fleet.selector, labels=labels))
    eventually(lambda: client.get(f"{path}/member")["spec"].get("nodeName"), message="the pod is bound")


@pytest.mark.parametrize(
    ("labels", "pod_spec"),
    [
        ({"kueue.x-k8s.io/queue-name": "team"}, {}),
        ({}, {"schedulerName": "kai-scheduler"}),
        ({}, {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}),
    ],
    ids=["Kueue's", "another scheduler's", "admitted by Kueue"],
)
@pytest.mark.parametrize("annotations", [KUEUE, require("rack")], ids=["in its words", "in ours"])
def test_a_workload_that_is_left_to_others_is_made_and_so_are_its_pods(
    alone: Namespace, client: Client, annotations: dict[str, str], labels: dict[str, str], pod_spec: dict[str, Any]
) -> None:
    """As if we were not installed: nothing that we would only wave through waits for us."""
    body = job_body("theirs", pods=1, pod_spec=pod_spec)
    body["metadata"]["labels"] = labels
    template = body["spec"]["template"]
    template["metadata"] = {
        **template.get("metadata", {}),
        "annotations": {"kueue.x-k8s.io/workload": "w", **annotations},
    }
    client.create(alone.jobs_path, body)
    eventually(lambda: alone.pods("theirs"), message="its pod is made")
