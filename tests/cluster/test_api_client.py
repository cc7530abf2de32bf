from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from engine import metrics
from engine.api import names
from engine.api.objects import ConfigMap
from engine.api.pod import Pod
from engine.cluster import writes
from engine.cluster.client import ApiError, KubeClient, connect, object_path
from engine.cluster.election import Terms
from engine.cluster.events import Recorder, Regarding
from engine.cluster.lease import LeaseCandidate
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from engine.cluster.writes import Conflict, Done, Gone, Refused
from engine.decoding import objects, pods, workloads
from local.client import Client
from local.controlplane import ControlPlane
from tests.support.eventually import eventually

pytestmark = pytest.mark.core


@pytest.fixture
def api(control_plane: ControlPlane) -> KubeClient:
    return connect(kubeconfig=str(control_plane.kubeconfig), user_agent="topogate-test")


def ok() -> None:
    """A fence that lets pass."""


def config_map(namespace: str, name: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": {"x": text}}


@pytest.fixture
def reflector(api: KubeClient, namespace: str) -> Iterator[Reflector[ConfigMap]]:
    store: Store[ConfigMap] = Store(lambda item: item.name)
    path = object_path("v1", "configmaps", namespace=namespace)
    reflector = Reflector(api, path, objects.config_map, store, first_page=2)
    reflector.start()
    yield reflector
    reflector.stop()


def test_a_reflector_follows_a_real_collection(
    api: KubeClient, client: Client, namespace: str, reflector: Reflector[ConfigMap]
) -> None:
    """Pages, watch, deletion, and a fresh read on request, over TLS."""
    path = object_path("v1", "configmaps", namespace=namespace)
    for number in range(5):
        client.create(path, config_map(namespace, f"m{number}", "1"))
    eventually(lambda: {f"m{number}" for number in range(5)} <= {item.name for item in reflector.store.values()})
    assert reflector.refresh(60)
    body = {"data": {"x": "é漢🚀"}}
    answer = api.request("PATCH", f"{path}/m1", body=body, content_type="application/merge-patch+json")
    version = int(objects.config_map(answer).resource_version)
    assert reflector.store.wait_seen(version, 60)
    changed = reflector.store.get("m1")
    assert changed is not None
    assert changed.data == {"x": "é漢🚀"}
    api.request("DELETE", f"{path}/m2")
    eventually(lambda: reflector.store.get("m2") is None)
    assert reflector.problem is None
    assert reflector.refresh(60)


@pytest.mark.since("1.31", "the API server asks etcd how far it is")
def test_a_large_collection_is_proved_fresh_without_another_list(
    api: KubeClient, client: Client, namespace: str
) -> None:
    """A real API server sends a bookmark just before a short watch is over, as new as the quorum read before it."""
    path = object_path("v1", "configmaps", namespace=namespace)
    for number in range(101):  # more than one page: few enough are compared at once
        client.create(path, config_map(namespace, f"m{number}", "1"))
    store: Store[ConfigMap] = Store(lambda item: item.name)
    reflector = Reflector(api, path, objects.config_map, store, large=100)
    reflector.start()
    try:
        assert store.wait_synced(60)
        fresh: list[bool] = []

        def without_list() -> bool:
            """It needs one when the API server is too busy to send the bookmark in time."""
            before, secrets = reflector.counts.lists, object_path("v1", "secrets", namespace=namespace)
            other = client.create(secrets, {"metadata": {"generateName": "other-"}})
            fresh.append(reflector.refresh(60) and store.seen >= int(other["metadata"]["resourceVersion"]))
            return reflector.counts.lists == before

        eventually(without_list, message="no list was needed")
        assert all(fresh)
    finally:
        reflector.stop()


def test_a_lease_is_created_by_one_of_two(api: KubeClient, client: Client, namespace: str) -> None:
    """Two candidates race on a real API server: one leads, and hands over when it stops."""
    terms = Terms(duration=90.0, renew_deadline=60.0, retry=0.5)  # so long that nobody loses it by being slow
    candidates = [LeaseCandidate(api, namespace, "race", f"c{number}", terms=terms) for number in range(2)]
    barrier = threading.Barrier(2)

    def run(candidate: LeaseCandidate) -> None:
        barrier.wait()
        candidate.step()

    threads = [threading.Thread(target=run, args=(candidate,)) for candidate in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(candidate.is_leader for candidate in candidates) == 1
    for candidate in candidates:
        candidate.start()
    first = next(candidate for candidate in candidates if candidate.is_leader)
    other = next(candidate for candidate in candidates if candidate is not first)
    first.stop()
    eventually(lambda: other.is_leader)
    lease = client.get(object_path("coordination.k8s.io/v1", "leases", namespace=namespace, name="race"))
    assert lease["spec"]["leaseTransitions"] == 1
    other.stop()


def test_a_lease_is_created_with_rights_to_its_name_alone(
    control_plane: ControlPlane, client: Client, namespace: str, tmp_path: Path
) -> None:
    """A service account that may write only the Lease of this name creates, renews and releases it."""
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["topogate"],
        "verbs": ["get", "create", "update", "patch"],
    }
    client.create(f"{roles}/roles", {"metadata": {"name": "lease"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lease"}
    client.create(f"{roles}/rolebindings", {"metadata": {"name": "lease"}, "roleRef": role, "subjects": [subject]})
    asked = client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {}})
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": asked["status"]["token"]}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    api = connect(kubeconfig=str(kubeconfig), user_agent="topogate-test")

    def leads(name: str) -> bool:
        candidate = LeaseCandidate(api, namespace, name, "me")
        candidate.step()
        if not candidate.is_leader:
            return False
        candidate.step()
        candidate.stop()
        candidate.run()
        return True

    eventually(lambda: leads("topogate"))
    lease = client.get(object_path("coordination.k8s.io/v1", "leases", namespace=namespace, name="topogate"))
    assert lease["spec"].get("holderIdentity", "") == ""
    assert not leads("another")


def gated(client: Client, namespace: str, name: str) -> Pod:
    body = {
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": names.GATE}, {"name": "example.com/theirs"}],
            "containers": [{"name": "c", "image": "example.com/x"}],
        },
    }
    created = client.create(object_path("v1", "pods", namespace=namespace), body)
    return pods.pod(msgspec.json.encode(created))


def test_releases_are_answered_as_the_writes_expect(api: KubeClient, client: Client, namespace: str) -> None:
    """Twice is done twice, another uid is gone, a pin without a gate is told apart."""
    pod = gated(client, namespace, "p")
    body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GATE}], "nodeSelector": {"a": "b"}}}
    assert isinstance(writes.release_pod(api, pod, body, fence=ok), Done)
    result = writes.release_pod(api, pod, body, fence=ok)
    assert isinstance(result, Done)
    released = pods.pod(result.body)
    assert released.spec.gates == ("example.com/theirs",)
    assert writes.release_pod(api, replace(pod, uid="0" * 36), body, fence=ok) == Gone()
    api.request(
        "PATCH",
        object_path("v1", "pods", namespace=namespace, name="p"),
        body={"spec": {"schedulingGates": []}},
        content_type="application/merge-patch+json",
    )
    late = writes.release_pod(api, pod, {"spec": {"nodeSelector": {"c": "d"}}}, fence=ok)
    assert isinstance(late, Refused)


def test_jobs_are_suspended_and_resumed_as_we_know_them(api: KubeClient, client: Client, namespace: str) -> None:
    """Resume names the Placement in the template; another spec meanwhile is a conflict, another status is none."""
    path = object_path("batch/v1", "jobs", namespace=namespace)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/x"}]}}
    created = client.create(path, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}})
    job = workloads.job(msgspec.json.encode(created))
    client.patch(f"{path}/j", {"spec": {"parallelism": 2}})
    # By the server's words: were they others, it would be asked again without the template, for another conflict.
    conflict = Conflict("the server rejected our request due to an error in our request")
    assert writes.resume_workload(api, job, placement="p", revision=3, fence=ok) == conflict
    job = workloads.job(msgspec.json.encode(client.patch(f"{path}/j", {"spec": {"parallelism": 1}})))
    eventually(lambda: client.get(f"{path}/j")["status"].get("conditions"))
    client.patch(f"{path}/j", {"metadata": {"labels": {"a": "b"}}})
    result = writes.resume_workload(api, job, placement="p", revision=3, fence=ok)
    assert isinstance(result, Done)
    resumed = msgspec.json.decode(result.body)
    annotations = resumed["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {names.PLACEMENT: "p", names.REVISION: "3"}

    def suspend() -> bool:
        job = workloads.job(api.request("GET", f"{path}/j"))
        return isinstance(writes.suspend_workload(api, job, fence=ok), Done)

    eventually(suspend)
    held = client.get(f"{path}/j")
    assert held["spec"]["suspend"] is True
    assert held["metadata"]["annotations"][names.HELD_BY] == "suspend"


def test_events_are_accepted(api: KubeClient, client: Client, namespace: str) -> None:
    """The API server takes our Events, also one with a note that had to be cut."""
    metrics.events.clear()
    recorder = Recorder(api, instance="topogate-0")
    recorder.start()
    about = Regarding("v1", "Pod", namespace, "p", "u")
    recorder.record(about, reason="Fragmented", note="é" * 3000, action="Place", warning=True)
    recorder.record(replace(about, namespace=""), reason="Placed", note="n", action="Place")
    recorder.stop(60)
    of = [metrics.registry.get_sample_value("topogate_events_total", {"result": one}) for one in ("posted", "failed")]
    assert of == [2, None]
    found = client.get(object_path("events.k8s.io/v1", "events", namespace=namespace))["items"]
    assert [item["reason"] for item in found if item["reportingController"] == "topogate.dev/engine"] == ["Fragmented"]


def test_the_last_good_policy_is_kept(api: KubeClient, client: Client, namespace: str) -> None:
    """The ConfigMap is made and changed by one kind of request."""
    for text in ("one", "two"):
        assert isinstance(writes.keep_policy(api, namespace, text, fence=ok), Done)
    path = object_path("v1", "configmaps", namespace=namespace, name=names.LAST_GOOD_POLICY_NAME)
    assert client.get(path)["data"] == {names.POLICY_KEY: "two"}


def test_a_missing_kind_is_a_404(api: KubeClient) -> None:
    """Before the CRD is installed a list is answered 404."""
    with pytest.raises(ApiError) as caught:
        api.request("GET", object_path("missing.topogate.dev/v1", "things"))
    assert caught.value.status == 404
