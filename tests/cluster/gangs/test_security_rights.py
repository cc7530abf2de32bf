"""The service works with its own role and nothing more, and keeps its CA in force."""

from __future__ import annotations

import base64
import re
import ssl
import threading
import time
from typing import Any

import urllib3

from certs.secret import DROP, NEXT_KEY, RENEW, ensure_ca
from engine.api import names
from engine.cluster.client import connect
from local.client import Client
from local.controlplane import ControlPlane
from local.service import CONFIGURATIONS, NAMESPACE, Service
from tests.cluster.gangs.conftest import TEST_POLICY, PolicyInForce
from tests.support.calls import Calls
from tests.support.eventually import eventually
from tests.support.gangs import Namespace, job_body, require

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
LAST_GOOD = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.LAST_GOOD_POLICY_NAME}"
CONNECTIONS = 24


def bundles(client: Client) -> set[str]:
    """Every caBundle that stands in our webhook configurations."""
    return {
        hook["clientConfig"].get("caBundle", "") for path in CONFIGURATIONS for hook in client.get(path)["webhooks"]
    }


def test_a_whole_life_needs_no_right_that_the_role_lacks(
    gangs: Namespace, service: Service, policy: PolicyInForce, client: Client
) -> None:
    """From start to end, nothing is forbidden: CA, Lease, place, wait, release, resume, Events, forget, policy kept."""
    service.stop()
    before = {number: len(replica.log()) for number, replica in service.replicas.items()}
    service.start(2)
    eventually(service.leader, message="a replica leads")
    text = TEST_POLICY + "timeouts: {bind: 61s}\n"
    policy.set(text)
    eventually(
        lambda: (client.find(LAST_GOOD) or {"data": {}})["data"].get("policy.yaml") == text, message="policy kept"
    )
    gangs.fleet.grid("1x1x2")
    gangs.submit("unranked", pods=2, annotations=require("rack"), indexed=False)  # released by PATCH
    gangs.all_bound("unranked", 2)
    gangs.submit("waits", pods=2, annotations=require("rack"))
    gangs.waits("waits")
    events = f"/apis/events.k8s.io/v1/namespaces/{gangs.name}/events"
    eventually(
        lambda: [event for event in client.items(events) if event["regarding"]["name"] == "waits"],
        message="the Job's readers are told",
    )
    client.delete(f"{gangs.jobs_path}/unranked")
    gangs.all_bound("waits", 2)
    gangs.submit("lets-go", pods=2, annotations=require("rack"))
    gangs.waits("lets-go")
    client.patch(f"{gangs.jobs_path}/lets-go", {"metadata": {"annotations": dict.fromkeys(require("rack"))}})
    eventually(lambda: gangs.placement("lets-go") is None, message="the Placement of what asks no more is deleted")
    for number, replica in service.replicas.items():
        said = replica.log()[before[number] :]
        assert "serving on port" in said
        assert not re.search(r"\b403\b|[Ff]orbidden", said), said


def test_an_overwritten_ca_bundle_is_repaired(gangs: Namespace, client: Client) -> None:
    """Somebody writes another CA into one webhook: the leader puts ours back, and Jobs are answered again."""
    for path in CONFIGURATIONS:
        hook = client.get(path)["webhooks"][0]["name"]
        change = {"webhooks": [{"name": hook, "clientConfig": {"caBundle": None}}]}
        client.patch(path, change, kind="strategic")
    # As the Secret has it by then: a renewal of another test may be under way.
    eventually(lambda: bundles(client) == {stored(client)["data"]["ca.crt"]}, message="every webhook has our CA again")


def trusted(service: Service, bundle: bytes) -> bool:
    """True when whoever answers on the service's port has a certificate of this CA; asked on many connections."""
    for _ in range(CONNECTIONS):
        context = ssl.create_default_context(cadata=bundle.decode())
        with urllib3.HTTPSConnectionPool("127.0.0.1", service.port, ssl_context=context, retries=False) as pool:
            try:
                pool.request("GET", "/")
            except urllib3.exceptions.SSLError:
                return False
    return True


def calls_of(gangs: Namespace) -> Calls:
    """Calls for a Job on this test's nodes."""
    body = job_body("calls", pods=1, selector=gangs.fleet.selector, annotations=require("rack"))
    return Calls(gangs.client, gangs.jobs_path, body)


def stored(client: Client) -> Any:
    """The Secret of the CA; None while there is none."""
    return client.find(f"{SECRETS}/{names.CA_SECRET_NAME}")


def count(secret: Any) -> int:
    """How many CAs a Secret trusts."""
    return base64.b64decode(secret["data"]["ca.crt"]).count(b"BEGIN")


def signers(service: Service) -> set[str]:
    """The CAs of the leaves that the replicas serve; an AssertionError while one does not say."""
    found = [
        re.findall(r'topogate_ca_info\{signer="(\w+)"\} 1.0', one.page("/metrics")[1]) for one in service.running()
    ]
    assert all(found), found
    return {signer for of_replica in found for signer in of_replica}


def test_a_corrupted_secret_is_restored_and_no_call_fails(gangs: Namespace, service: Service, client: Client) -> None:
    """A key that is garbage, half a certificate, nothing at all: what was in it stands there again."""
    eventually(service.leader, message="a replica leads")
    eventually(lambda: NEXT_KEY not in stored(client)["data"], message="no other CA is to sign soon")
    path, before = f"{SECRETS}/{names.CA_SECRET_NAME}", stored(client)["data"]
    with calls_of(gangs) as calls:
        for damage in (
            {"ca.key": base64.b64encode(b"garbage").decode()},
            {"ca.crt": base64.b64encode(base64.b64decode(before["ca.crt"])[:200]).decode()},
            {"ca.crt": None, "ca.key": None},
        ):
            client.patch(path, {"data": damage})
            eventually(
                lambda: (
                    {key: (stored(client).get("data") or {}).get(key) for key in ("ca.crt", "ca.key")}
                    == {key: before[key] for key in ("ca.crt", "ca.key")}
                ),
                message=f"{sorted(damage)} are restored",
            )
            calls.go_on(10)
    assert calls.failed == []
    assert trusted(service, base64.b64decode(before["ca.crt"]))


def test_the_secret_of_the_ca_is_deleted_and_no_call_fails(gangs: Namespace, service: Service, client: Client) -> None:
    """The leader writes it anew with the CA in use, which signs on, and a second one that is to follow."""
    eventually(service.leader, message="a replica leads")
    before = stored(client)
    with calls_of(gangs) as calls:
        calls.go_on()
        client.delete(f"{SECRETS}/{names.CA_SECRET_NAME}")
        after = eventually(lambda: stored(client), message="the Secret is back")
        eventually(lambda: bundles(client) == {after["data"]["ca.crt"]}, message="what it trusts is in every webhook")
        calls.go_on()
    assert calls.failed == []
    assert after["data"]["ca.key"] == before["data"]["ca.key"]
    assert count(after) == count(before) + 1


def test_the_ca_is_renewed_on_request_and_no_call_fails(gangs: Namespace, service: Service, client: Client) -> None:
    """Old and new overlap; every replica comes to serve the new one; the old one is dropped where that is asked for."""
    eventually(service.leader, message="a replica leads")
    path, key = f"{SECRETS}/{names.CA_SECRET_NAME}", stored(client)["data"]["ca.key"]
    old = eventually(lambda: signers(service), message="every replica says whose its leaf is")
    with calls_of(gangs) as calls:
        client.patch(path, {"metadata": {"annotations": {RENEW: "true", DROP: "true"}}})
        eventually(lambda: count(stored(client)) > 1, message="two are trusted")
        eventually(lambda: stored(client)["data"]["ca.key"] != key, message="the new one signs")
        eventually(
            lambda: len(signers(service)) == 1 and signers(service).isdisjoint(old), message="every replica serves it"
        )
        eventually(lambda: count(stored(client)) == 1, message="the old one is dropped")
        after = stored(client)
        eventually(lambda: bundles(client) == {after["data"]["ca.crt"]}, message="no webhook trusts the old one")
        calls.go_on()
    assert calls.failed == []
    assert not {RENEW, DROP} & set(after["metadata"].get("annotations") or {})
    assert trusted(service, base64.b64decode(after["data"]["ca.crt"]))


def test_two_replicas_started_at_once_agree_on_one_ca(gangs: Namespace, service: Service, client: Client) -> None:
    """On a fresh installation one of them makes the Secret, and both sign with what is in it."""
    old = client.get(f"{SECRETS}/{names.CA_SECRET_NAME}")["data"]["ca.crt"]
    service.stop()
    client.delete(f"{SECRETS}/{names.CA_SECRET_NAME}")
    service.start(2)
    bundle = client.get(f"{SECRETS}/{names.CA_SECRET_NAME}")["data"]["ca.crt"]
    assert bundle != old
    eventually(lambda: bundles(client) == {bundle}, message="the new CA is in every webhook")
    assert trusted(service, base64.b64decode(bundle))
    gangs.fleet.grid("1x1x1")
    gangs.submit("train", pods=1, annotations=require("rack"))
    gangs.all_bound("train", 1)


def test_of_many_who_make_the_ca_one_comes_first(control_plane: ControlPlane, client: Client) -> None:
    """Twelve at once on the real API server: all are answered with one CA, the one in the Secret."""
    api = connect(kubeconfig=str(control_plane.kubeconfig), user_agent="test")
    start, answers = threading.Barrier(12), list[Any]()

    def come() -> None:
        start.wait()
        answers.append(ensure_ca(api, namespace=NAMESPACE, name="race", now=time.time()))

    threads = [threading.Thread(target=come) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = base64.b64decode(client.get(f"{SECRETS}/race")["data"]["ca.crt"])
    client.delete(f"{SECRETS}/race")
    assert [answer.bundle for answer in answers] == [stored] * 12
