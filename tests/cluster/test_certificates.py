"""Certificates that somebody else makes: the real API server calls replicas that serve what is in a directory.

The kubelet and cert-manager's CA injector are imitated: files are swapped by a link, and the caBundle is written by an
admin. The service has no right for Secrets, and none to write the manifests' configurations.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import names
from local.client import Client
from local.controlplane import ControlPlane
from local.service import NAMESPACE, Service
from tests.support.calls import Calls
from tests.support.certificates import DAY, TestAuthority, mount
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import job_body, require
from webhook.service.own_objects import CONFIGURATIONS

HOOKS = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
POLICY = """
topologies:
- {name: default, preset: demo}
schedulers: [default-scheduler, other]
"""
OURS = (f"topogate.{NAMESPACE}.svc", "127.0.0.1")


class Issuer:
    """cert-manager: it signs into the directory that is mounted, and its CA injector writes what is to be trusted."""

    def __init__(self, client: Client, directory: Path) -> None:
        self.client = client
        self.directory = directory
        self.authority = TestAuthority.make(now=time.time())
        self.days = 1.0

    def files(self, *hosts: str) -> dict[str, bytes]:
        """A certificate that lives a little longer than the last one, so that they can be told apart."""
        self.days += 0.1
        return self.authority.leaf(*(hosts or OURS), begin=time.time() - 60, end=self.end)

    @property
    def end(self) -> int:
        return int(START + self.days * DAY)

    def inject(self, *authorities: TestAuthority) -> None:
        """Write the bundle into every webhook of the four configurations."""
        bundle = base64.b64encode(b"".join(one.pem for one in authorities)).decode()
        for resource, name in CONFIGURATIONS:
            path = f"{HOOKS}/{resource}/{name}"
            webhooks = (self.client.find(path) or {}).get("webhooks") or []
            change = [{"name": one["name"], "clientConfig": {"caBundle": bundle}} for one in webhooks]
            self.client.patch(path, {"webhooks": change}, kind="strategic")


START = time.time()


@pytest.fixture(scope="module")
def issuer(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    made = Issuer(plane.client, tmp_path_factory.mktemp("certificates") / "mounted")
    mount(made.directory, made.files())
    return made


@pytest.fixture(scope="module")
def service(plane: ControlPlane, issuer: Issuer) -> Iterator[Service]:
    """Two replicas without a CA of their own, with the rights that they need then."""
    installed = Service.install(plane)
    client = plane.client
    role = f"{RBAC}/namespaces/{NAMESPACE}/roles/topogate"
    rules = [one for one in client.get(role)["rules"] if one["resources"] != ["secrets"]]
    client.patch(role, {"rules": rules})
    cluster_role = client.get(f"{RBAC}/clusterroles/topogate")["rules"]
    for one in cluster_role:
        if one["apiGroups"] == ["admissionregistration.k8s.io"]:
            one["verbs"] = ["get", "list", "watch"]
            patches = one | {"resourceNames": [names.POLICY_CONFIGURATION], "verbs": ["patch"]}
    client.patch(f"{RBAC}/clusterroles/topogate", {"rules": [*cluster_role, patches]})
    policy = {"metadata": {"name": names.POLICY_NAME}, "data": {names.POLICY_KEY: POLICY}}
    client.create(CONFIG_MAPS, policy)
    issuer.inject(issuer.authority)
    installed.options = ("--certificates-from", str(issuer.directory))
    Fleet(client, "certificates").grid("1x1x2")
    installed.start(2)
    eventually(installed.leader, message="a replica leads")
    yield installed
    installed.stop()


@pytest.fixture
def calls(plane: ControlPlane, service: Service) -> Iterator[Calls]:
    """Calls to both webhooks of workloads, all the time; none of them fails."""
    body = job_body("calls", pods=1, annotations=require("rack"))
    with Calls(plane.client, JOBS, body) as going:
        going.go_on(1)
        yield going
        going.go_on(10)
    assert going.failed == []


def readiness(service: Service) -> set[str]:
    """What the replicas say of their certificates."""
    return {
        re.findall(r"^(\[.\] certificate.*)$", one.page("/readyz")[1], re.MULTILINE)[0] for one in service.running()
    }


def metric(service: Service, name: str) -> set[float]:
    """What the replicas say."""
    return {
        float(re.findall(rf"^{re.escape(name)} (\S+)$", one.page("/metrics")[1], re.MULTILINE)[0])
        for one in service.running()
    }


def serves(service: Service, end: float) -> bool:
    """True when every replica serves the certificate that ends then."""
    return metric(service, 'topogate_certificate_end_timestamp_seconds{certificate="leaf"}') == {end}


def bundles(client: Client, name: str) -> set[bytes]:
    """What the entries of one pair of configurations trust."""
    found: list[dict[str, Any]] = []
    for resource, of in CONFIGURATIONS:
        found += (client.get(f"{HOOKS}/{resource}/{of}").get("webhooks") or []) if of == name else []
    return {base64.b64decode(one["clientConfig"].get("caBundle") or "") for one in found}


def test_the_service_serves_and_has_no_ca_of_its_own(service: Service, issuer: Issuer, calls: Calls) -> None:
    """No Secret, no bundle of ours: entries that the policy adds begin with what the injector wrote."""
    client = issuer.client
    eventually(
        lambda: bundles(client, names.POLICY_CONFIGURATION) == {issuer.authority.pem},
        message="the entries of the policy trust the same CA",
    )
    assert readiness(service) == {"[+] certificate"}
    assert metric(service, "topogate_certificate_trusted") == {1.0}
    assert client.find(f"{SECRETS}/{names.CA_SECRET_NAME}") is None
    for replica in service.running():
        assert not re.search(r"\b403\b|[Ff]orbidden", replica.log()), replica.log()


def test_a_new_certificate_is_served_without_a_restart(service: Service, issuer: Issuer, calls: Calls) -> None:
    """cert-manager renews it every few hours."""
    mount(issuer.directory, issuer.files())
    eventually(lambda: serves(service, issuer.end), message="every replica serves the new one")


def test_a_new_ca_is_followed_and_no_call_fails(service: Service, issuer: Issuer, calls: Calls) -> None:
    """Kubelet and injector come in any order: a certificate of the new CA waits until the configurations trust it."""
    old, issuer.authority = issuer.authority, TestAuthority.make(now=time.time(), name="next")
    before = issuer.end
    mount(issuer.directory, issuer.files())
    waits = "[!] certificate: a newer certificate is there; the webhook configurations do not trust it yet"
    eventually(lambda: readiness(service) == {waits}, message="the new one waits")
    assert serves(service, before)
    calls.go_on(10)
    issuer.inject(old, issuer.authority)
    eventually(lambda: serves(service, issuer.end), message="every replica serves the new one")
    calls.go_on(10)
    issuer.inject(issuer.authority)
    calls.go_on(20)
    assert readiness(service) == {"[+] certificate"}


def test_what_cannot_be_served_is_told_and_the_last_good_one_goes_on(
    service: Service, issuer: Issuer, calls: Calls
) -> None:
    """Half-written files, and a certificate that somebody made for another name."""
    before = issuer.end
    good = issuer.files()
    mount(issuer.directory, good | {"tls.crt": good["tls.crt"][:200]})
    where = f"[!] certificate: {issuer.directory}: "
    half = f"{where}tls.crt holds no certificates, or not all of them (PEM)"
    eventually(lambda: readiness(service) == {half}, message="half of it is told")
    mount(issuer.directory, issuer.files("topogate.example.com", "127.0.0.1"))
    eventually(
        lambda: all(one.startswith(f"{where}clients that call {OURS[0]} refuse") for one in readiness(service)),
        message="the wrong name is told",
    )
    calls.go_on(10)
    assert serves(service, before)
    mount(issuer.directory, issuer.files())
    eventually(lambda: serves(service, issuer.end), message="the next good one is served")
    assert readiness(service) == {"[+] certificate"}
    assert all(one.log().count("holds no certificates") == 1 for one in service.running())


def test_a_bundle_that_does_not_trust_it_is_told(service: Service, issuer: Issuer) -> None:
    """Somebody writes another CA into the configurations: calls fail, and the metric of the alert says so."""
    issuer.inject(TestAuthority.make(now=time.time()))
    eventually(lambda: metric(service, "topogate_certificate_trusted") == {0.0}, message="it is told")
    assert all("MutatingWebhookConfiguration topogate does not trust it" in one for one in readiness(service))
    issuer.inject(issuer.authority)
    eventually(lambda: metric(service, "topogate_certificate_trusted") == {1.0}, message="it is in order again")
