"""Reading an installation: the pages of the replicas, a Lease that looks old, the Secret without its key."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.cluster.client import KubeClient, connect
from engine.policy.model import Policy
from tests.support.fake_api import Answer, FakeApi, Request, Stall
from webhook.checks.own_rights import CA_RIGHTS, needed_rights
from webhook.snapshot import live_installation
from webhook.snapshot.connection import ConnectionProblem
from webhook.snapshot.granted_rights import NeededRight
from webhook.snapshot.installation import Installation
from webhook.snapshot.live_installation import read_installation

NAMESPACE = "topogate-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/topogate"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
KIND = """
kinds:
- name: mine
  match: {group: example.com, versions: [v1], kind: Mine, resource: mines}
  podSets: [{name: {text: main}, template: .spec.template, count: {path: .spec.replicas}}]
  gang: {unit: workload, creation: all-at-once}
  suspend: {path: .spec.suspend}
  replace: {cost: free}
"""
LABELS = {"app.kubernetes.io/name": "topogate", "app.kubernetes.io/component": "service"}


@pytest.fixture
def server() -> Iterator[FakeApi]:
    with FakeApi() as running:
        version = Answer(200, {"gitVersion": "v1.36.3"})
        running.fault(version, when=lambda request: request.path == "/version", times=1000)
        granted = Answer(201, {"status": {"allowed": True}})
        running.fault(granted, when=lambda request: request.path.endswith("reviews"), times=10_000)
        yield running


@pytest.fixture
def api(server: FakeApi, tmp_path: Path) -> KubeClient:
    return client_of(server, tmp_path)


def client_of(server: FakeApi, folder: Path) -> KubeClient:
    path = folder / "config"
    context = {"name": "mine", "context": {"cluster": "fake", "user": "me"}}
    clusters, users = [{"name": "fake", "cluster": {"server": server.url}}], [{"name": "me", "user": {}}]
    config = {"current-context": "mine", "clusters": clusters, "users": users, "contexts": [context]}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | config))
    return connect(kubeconfig=str(path), user_agent="test")


def read(api: KubeClient, *, now: float = NOW, pause: Any = lambda _seconds: None) -> Installation:
    return read_installation(
        api, namespace=NAMESPACE, try_in="default", needed=needed_rights, wall=lambda: now, pause=pause
    )


def lease(server: FakeApi, renewed: str, holder: str = "topogate-0") -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 8, "renewTime": renewed}
    server.put(LEASE, spec=spec)


def test_a_lease_that_looks_old_is_read_again(server: FakeApi, api: KubeClient) -> None:
    """The clocks of holder and caller may differ: what counts is that it changes within its own duration."""
    pauses: list[float] = []
    lease(server, "2025-12-31T23:59:55.000000Z")
    assert read(api, pause=pauses.append).lease_renewed
    assert pauses == []
    lease(server, "2025-12-31T23:00:00.000000Z")
    assert not read(api, pause=pauses.append).lease_renewed
    assert pauses == [8.0]
    assert read(api, pause=lambda _: lease(server, "2025-12-31T23:00:02.000000Z")).lease_renewed
    lease(server, "tomorrow")
    assert not read(api).lease_renewed
    lease(server, "2025-12-31T23:59:59.000000Z", holder="")
    assert not read(api).lease_renewed


def test_each_replica_is_asked_through_the_proxy(server: FakeApi, api: KubeClient) -> None:
    """A page, a replica that is not ready, one that cannot be reached, and no right to the proxy."""
    for name in ("a", "b", "c", "d"):
        phase = {"phase": "Pending"} if name == "d" else {"phase": "Running", "podIP": "10.0.0.1"}
        server.put(f"{PODS}/{name}", status=phase, metadata={"labels": LABELS})
    unreachable = {"kind": "Status", "reason": "ServiceUnavailable", "message": "dial tcp 10.0.0.1:8080: no route"}
    for name, answer in (
        ("a", Answer(200, b"[+] caches\n")),
        ("b", Answer(503, b"[-] caches: pods\n")),
        ("c", Answer(503, unreachable)),
    ):

        def hit(request: Request, name: str = name) -> bool:
            return request.path == f"{PODS}/{name}:8080/proxy/readyz"

        server.fault(answer, when=hit)
    pages = {one.pod: one for one in read(api).pages}
    assert set(pages) == {"a", "b", "c"}
    assert (pages["a"].ready, pages["a"].text) == (True, "[+] caches\n")
    assert (pages["b"].ready, pages["b"].why) == (False, "")
    assert pages["c"].why == "dial tcp 10.0.0.1:8080: no route"
    forbidden = Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"})
    server.fault(forbidden, when=lambda request: "/proxy/" in request.path, times=10)
    assert [one.forbidden for one in read(api).pages] == [True] * 3


def test_with_certificates_of_others_no_right_for_a_ca_is_needed(server: FakeApi, api: KubeClient) -> None:
    """Neither Secrets nor writing the bundle: both are needed for a CA of our own alone. Its Secret is not read."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/topogate"
    counts = []
    for arguments in (["serve"], ["serve", "--certificates-from", "/certificates"]):
        server.put(path, spec={"template": {"spec": {"containers": [{"args": arguments}]}}})
        counts.append(read(api).rights.looked_at)
    assert counts[0] - counts[1] == len(CA_RIGHTS)
    assert [request for request in server.requests if "/secrets/" in request.path][1:] == []


def test_of_the_secret_only_the_certificates_are_kept(server: FakeApi, api: KubeClient) -> None:
    data = {"ca.crt": base64.b64encode(b"PEM").decode(), "ca.key": base64.b64encode(b"KEY").decode()}
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/topogate-ca"
    server.put(path, data=data)
    found = read(api)
    assert (found.secret.body, found.bundle) == ({}, b"PEM")
    server.put(path, data={"ca.crt": "no base64"})
    assert read(api).bundle == b""
    server.remove(path)
    assert read(api).secret.absent


def test_a_server_that_cannot_be_asked_ends_the_reading(tmp_path: Path) -> None:
    for answer, told in ((Answer(401, b"none"), "does not know the caller"), (Answer(200, b"none"), "cannot be asked")):
        with FakeApi() as server:
            server.fault(answer)
            with pytest.raises(ConnectionProblem, match=told):
                read(client_of(server, tmp_path))


@pytest.mark.parametrize(
    ("policy", "last_good", "mine"), [(KIND, None, True), ("mode: no", KIND, True), (None, KIND, False)]
)
def test_the_rights_that_are_needed_follow_the_policy_in_force(
    server: FakeApi, api: KubeClient, policy: str | None, last_good: str | None, mine: bool
) -> None:
    """Those of its kinds; without a ConfigMap the service follows the default, not the last good policy."""
    for name, text in (("topogate-policy", policy), ("topogate-policy-last-good", last_good)):
        if text is not None:
            server.put(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}", data={"policy.yaml": text})
    asked: list[Policy] = []

    def needed(policy: Policy, *, own_ca: bool) -> Sequence[NeededRight]:
        asked.append(policy)
        return needed_rights(policy, own_ca=own_ca)

    read_installation(api, namespace=NAMESPACE, try_in="default", needed=needed, pause=lambda _seconds: None)
    (in_force,) = asked
    assert (in_force.registry.find("example.com", "Mine", "v1") is not None) == mine


@pytest.mark.parametrize(
    "answer",
    [
        Stall(threading.Event()),
        Answer(504, {"kind": "Status", "reason": "Timeout", "message": "request did not complete within 34s"}),
        Answer(
            500,
            {
                "kind": "Status",
                "reason": "InternalError",
                "message": 'failed calling webhook "jobs.example.org": context deadline exceeded',
            },
        ),
    ],
)
def test_a_dry_run_without_an_answer_in_time_is_told_apart_from_a_refusal(
    server: FakeApi, api: KubeClient, monkeypatch: pytest.MonkeyPatch, answer: Answer | Stall
) -> None:
    monkeypatch.setattr(live_installation, "TRIAL_TIMEOUT", (1.0, 0.3))
    refused = Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: q"})
    for one in (answer, refused):
        server.fault(one, when=lambda request: request.path.endswith("/jobs"))
    found = read(api)
    assert (found.gang.late, found.wrong.late) == (True, False)
