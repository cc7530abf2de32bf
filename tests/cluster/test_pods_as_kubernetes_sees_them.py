"""What we read of pods, and how we pin them, against the real API server, quota evaluator and scheduler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.api import names
from engine.api.placement import Assignment, PodSetPlan, Slot
from engine.cluster.server_version import release_of
from engine.decoding import objects
from engine.decoding import pods as cluster_pods
from engine.gang.pin import placed_pod, release_patch
from engine.resources.shape import merge_runtime_class
from local.client import Client
from local.nodes import BLOCK, RACK
from tests.support.cluster_records import job, placement
from tests.support.eventually import eventually
from tests.support.fleet import Fleet

pytestmark = pytest.mark.core


def container(name: str, cpu: str, memory: str, gpus: int = 0, **more: Any) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "8Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    requests = {"cpu": cpu, "memory": memory} if cpu else {}
    return {"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}, **more}


def held(name: str, **spec: Any) -> dict[str, Any]:
    gate = [{"name": names.GATE}]
    return {"metadata": {"name": name}, "spec": {"schedulingGates": gate, "restartPolicy": "Never", **spec}}


def raw(found: Any) -> bytes:
    return json.dumps(found).encode()


@pytest.fixture
def runtime_class(client: Client, namespace: str) -> Iterator[Any]:
    """A RuntimeClass with overhead, of this test's own."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    body = {
        "metadata": {"name": namespace},
        "handler": "none",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"example.com/sandbox": "yes"}, "tolerations": [{"operator": "Exists"}]},
    }
    yield client.create(path, body)
    client.delete(f"{path}/{namespace}")


def test_quota_counts_what_we_count(client: Client, namespace: str, runtime_class: Any) -> None:
    """Kubernetes' own evaluator uses the same formula: init containers, sidecars, overhead, pod-level resources."""
    pods = [
        held("plain", containers=[container("a", "500m", "1Gi", 2), container("b", "", "")]),
        held(
            "sidecars",
            containers=[container("a", "1", "1Gi", 1)],
            initContainers=[
                container("i", "3", "2Gi", 4),
                container("s", "500m", "512Mi", restartPolicy="Always"),
                container("j", "2", "3Gi", 1),
                container("t", "250m", "256Mi", restartPolicy="Always"),
            ],
        ),
        held("sandboxed", containers=[container("a", "1", "1Gi")], runtimeClassName=namespace),
        held(
            "pod-level",
            containers=[container("a", "1", "1Gi", 1), container("b", "500m", "1Gi")],
            resources={"requests": {"cpu": "3"}, "limits": {"cpu": "9", "memory": "20Gi", "hugepages-2Mi": "4Mi"}},
        ),
    ]
    if (release_of(client.get("/version")["gitVersion"]) or ()) < (1, 34):
        del pods[-1]  # an older server drops the resources of a pod
    counted = ("cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi")
    hard = {f"requests.{resource}": "1000Gi" for resource in counted}
    hard |= {"limits.cpu": "1000", "limits.memory": "1000Gi", "pods": "100"}
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    client.create(quotas, {"metadata": {"name": "all"}, "spec": {"hard": hard}})
    eventually(lambda: client.get(f"{quotas}/all").get("status", {}).get("used"), message="the quota is reckoned")

    expected: Counter[str] = Counter()
    for body in pods:
        created = cluster_pods.pod(raw(client.create(f"/api/v1/namespaces/{namespace}/pods", body)))
        for resource, units in created.spec.shape.requests:
            expected["pods" if resource == "pods" else f"requests.{resource}"] += units
        for resource, units in created.spec.limits:
            if resource in ("cpu", "memory"):
                expected[f"limits.{resource}"] += units
        template = cluster_pods.pod(body).spec.shape
        if body["metadata"]["name"] == "sandboxed":
            template = merge_runtime_class(template, objects.runtime_class(raw(runtime_class)))
            assert set(template.tolerations) <= set(created.spec.shape.tolerations)
            assert created.spec.shape.node_selector == template.node_selector
        assert created.spec.shape.requests == template.requests

    used = objects.quota(raw(client.get(f"{quotas}/all"))).used
    assert {resource: units for resource, units in used.items() if units} == expected


def test_every_amount_that_the_server_admits_is_read(client: Client, namespace: str) -> None:
    """Devices are whole; of a native resource that nobody has, the server admits a fraction: such a pod counts, too."""
    amounts = {"cpu": "1", "kubernetes.io/odd": "1500m"}
    body = {"name": "a", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    created = client.create(f"/api/v1/namespaces/{namespace}/pods", held("odd", containers=[body]))
    found = cluster_pods.pod(raw(created)).spec.shape.requests
    assert dict(found) == {"cpu": 1000, "kubernetes.io/odd": 2, "pods": 1}


def test_a_release_pins_the_pod_and_keeps_the_rest(client: Client, namespace: str, nodes: Fleet) -> None:
    """One PATCH: our gate off, terms pinned, an empty term and all other affinity as they were; then it is bound."""
    nodes.grid("1x1x2")
    host = nodes.names[1]
    mine = {
        "matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in nodes.selector.items()]
    }
    affinity: dict[str, Any] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [mine, {}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": mine}],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
            ]
        },
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    body = held("p", containers=[container("a", "1", "1Gi")], affinity=affinity, nodeSelector=nodes.selector)
    record = cluster_pods.pod(raw(client.create(pods, body)))

    block, rack = nodes.rack_of(host)
    labels = {BLOCK: block, RACK: rack, **nodes.selector}
    slot = Slot((block, rack, host), 1, ((3, 3),))
    gang = replace(
        placement(job("x", count=4), {host: 1}),
        name="job-x-12345678",
        assignment=Assignment(2, (PodSetPlan("main", (slot,)),)),
    )
    placed = placed_pod(record, slot, placement=gang, pod_set="main", rank=3, pin_labels=labels)
    patch = release_patch(record, placed)
    released = client.patch(f"{pods}/p", patch, kind="strategic")

    pin = {"key": "metadata.name", "operator": "In", "values": [host]}
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [{**mine, "matchFields": [pin]}, {}]
    }
    assert released["spec"]["affinity"] == affinity
    assert released["spec"]["nodeSelector"] == labels
    assert "schedulingGates" not in released["spec"]
    eventually(lambda: client.get(f"{pods}/p")["spec"].get("nodeName") == host, message="the pod is bound to its host")

    bound = cluster_pods.pod(raw(client.get(f"{pods}/p")))
    assert bound.spec.annotations[names.DOMAIN_PATH] == f"{block}/{rack}/{host}"
    assert (bound.spec.annotations[names.RANK], bound.spec.labels[names.GANG]) == ("3", "job-x-12345678")
    assert client.patch(f"{pods}/p", patch, kind="strategic")["spec"]["affinity"] == affinity


@pytest.mark.parametrize(("reason", "free"), [("Infeasible", 86), ("Deferred", 6)])
def test_a_change_of_resources_counts_as_the_scheduler_counts_it(
    client: Client, namespace: str, nodes: Fleet, reason: str, free: int
) -> None:
    """A pod has 10 CPUs of 96 and asks for 90: what the scheduler still binds beside it is what we say is free."""
    if (release_of(client.get("/version")["gitVersion"]) or ()) < (1, 33):
        pytest.skip("an older server changes no resources of pods, unless a feature gate is set")
    nodes.grid("1x1x1")
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def asks(name: str, cpu: int) -> dict[str, Any]:
        one = {"name": "a", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
        return {"metadata": {"name": name}, "spec": {"containers": [one], "nodeSelector": nodes.selector}}

    client.create(pods, asks("first", 10))
    eventually(lambda: client.get(f"{pods}/first")["status"].get("phase") == "Running", message="the pod runs")
    has = {"requests": {"cpu": "10"}}
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    known = [{"name": "a", "image": "none", "imageID": "", "ready": True, "restartCount": 0}]
    status = {
        "conditions": [pending],
        "containerStatuses": [{**known[0], "resources": has, "allocatedResources": has["requests"]}],
    }
    client.patch(f"{pods}/first/status", {"status": status}, kind="strategic")
    change = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "90"}}}]}}
    client.patch(f"{pods}/first/resize", change, kind="strategic")
    changed = client.get(f"{pods}/first")
    assert changed["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "90"
    counts = dict(cluster_pods.pod(raw(changed)).spec.shape.requests)["cpu"]
    assert 96_000 - counts == free * 1000

    client.create(pods, asks("too-much", free + 1))
    client.create(pods, asks("fits", free))
    eventually(lambda: client.get(f"{pods}/fits")["spec"].get("nodeName"), message="what is free is bound")
    assert "nodeName" not in client.get(f"{pods}/too-much")["spec"]
