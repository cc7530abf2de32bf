"""Certificates that somebody else makes: the real API server calls replicas that serve what is in a directory.

The kubelet and cert-manager's CA injector are imitated: files are swapped by a link, and the caBundle is written by an
admin. The service has no right for Secrets, and none to write the manifests' configurations. It asks its clients for a
certificate, and the API server presents one.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from engine.api import names
from local import webhook_client
from local.controlplane import ControlPlane
from local.service import NAMESPACE, Replica, Service
from tests.cluster.conftest import ENVIRONMENT
from tests.support.calls import Calls
from tests.support.certificates import DAY, TestAuthority, mount
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import job_body, require
from tests.support.imitations.cert_manager import NAMES, CertManager, apply_component, bundles
from tests.support.replica import request_bytes, review_body
from webhook.service.ca_rotation import mark

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
POLICY = """
topologies:
- {name: default, preset: demo}
schedulers: [default-scheduler, other]
"""


@pytest.fixture(scope="module")
def plane(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server presents a certificate to webhooks."""
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane.start(folder, programs=programs, environment=ENVIRONMENT, webhook_client=True) as running:
        yield running


@pytest.fixture(scope="module")
def clients(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the CA of those who may call."""
    path = tmp_path_factory.mktemp("clients") / "ca.crt"
    path.write_bytes(plane.webhook_client.ca_certificate.read_bytes())
    return path


@pytest.fixture(scope="module")
def issuer(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> CertManager:
    made = CertManager(plane.client, tmp_path_factory.mktemp("certificates") / "mounted")
    made.issue()
    return made


@pytest.fixture(scope="module")
def service(plane: ControlPlane, issuer: CertManager, clients: Path) -> Iterator[Service]:
    """Two replicas without a CA of their own, with the rights that they need then; only the API server may call."""
    installed = Service.install(plane)
    apply_component(installed)
    client = plane.client
    policy = {"metadata": {"name": names.POLICY_NAME}, "data": {names.POLICY_KEY: POLICY}}
    client.create(CONFIG_MAPS, policy)
    issuer.inject(issuer.authority)
    installed.options = (
        *("--certificates-from", str(issuer.directory)),
        *("--client-ca", str(clients), "--client-name", webhook_client.NAME),
    )
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


def readiness(service: Service, check: str = "certificate") -> set[str]:
    """What the replicas say of their certificates, or of their clients."""
    return {re.findall(rf"^(\[.\] {check}\b.*)$", one.page("/readyz")[1], re.MULTILINE)[0] for one in service.running()}


def value_of(replica: Replica, name: str) -> float:
    """What a replica says."""
    return float(re.findall(rf"^{re.escape(name)} (\S+)$", replica.page("/metrics")[1], re.MULTILINE)[0])


def metric(service: Service, name: str) -> set[float]:
    """What the replicas say."""
    return {value_of(one, name) for one in service.running()}


def serves(service: Service, end: float) -> bool:
    """True when every replica serves the certificate that ends then."""
    return metric(service, 'topogate_certificate_end_timestamp_seconds{certificate="leaf"}') == {end}


def test_the_service_serves_and_has_no_ca_of_its_own(service: Service, issuer: CertManager, calls: Calls) -> None:
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


def test_a_new_certificate_is_served_without_a_restart(service: Service, issuer: CertManager, calls: Calls) -> None:
    """cert-manager renews it every few hours."""
    issuer.issue()
    eventually(lambda: serves(service, issuer.end), message="every replica serves the new one")


def test_a_new_ca_is_followed_and_no_call_fails(service: Service, issuer: CertManager, calls: Calls) -> None:
    """Kubelet and injector come in any order: a certificate of the new CA waits until the configurations trust it."""
    old, issuer.authority = issuer.authority, TestAuthority.make(now=time.time(), name="next")
    before = issuer.end
    issuer.issue()
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
    service: Service, issuer: CertManager, calls: Calls
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
        lambda: all(one.startswith(f"{where}clients that call {NAMES[0]} refuse") for one in readiness(service)),
        message="the wrong name is told",
    )
    calls.go_on(10)
    assert serves(service, before)
    issuer.issue()
    eventually(lambda: serves(service, issuer.end), message="the next good one is served")
    assert readiness(service) == {"[+] certificate"}
    assert all(one.log().count("holds no certificates") == 1 for one in service.running())


def test_a_bundle_that_does_not_trust_it_is_told(service: Service, issuer: CertManager) -> None:
    """Somebody writes another CA into the configurations: calls fail, and the metric of the alert says so."""
    issuer.inject(TestAuthority.make(now=time.time()))
    eventually(lambda: metric(service, "topogate_certificate_trusted") == {0.0}, message="it is told")
    told = "MutatingWebhookConfiguration topogate does not trust it"  # not only another one, which was seen first
    eventually(lambda: all(told in one for one in readiness(service)), message="the first of them is named")
    issuer.inject(issuer.authority)
    eventually(lambda: metric(service, "topogate_certificate_trusted") == {1.0}, message="it is in order again")


def caller(service: Service, folder: Path, files: dict[str, bytes] | None) -> str:
    """Why a review by somebody with this certificate is not answered; "" if it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        (folder / "client.pem").write_bytes(files["tls.key"] + files["tls.crt"])
        context.load_cert_chain(folder / "client.pem")
    try:
        with (
            socket.create_connection(("127.0.0.1", service.port), timeout=60) as plain,
            context.wrap_socket(plain) as sock,
        ):
            sock.sendall(request_bytes(review_body()))
            answer = sock.recv(65_536)
    except ssl.SSLError as error:
        return str(error.reason)
    return "" if answer.startswith(b"HTTP/1.1 200 ") else f"closed: {answer[:100]!r}"


def refused(service: Service, reason: str) -> float:
    """How many clients the replicas have refused for this."""
    return sum(value_of(one, f'topogate_clients_refused_total{{reason="{reason}"}}') for one in service.running())


def test_only_the_api_server_may_call(
    service: Service, plane: ControlPlane, clients: Path, calls: Calls, tmp_path: Path
) -> None:
    """Its calls pass; whoever else reaches the port is refused in the handshake and counted, until its CA is added."""
    of_plane, now = plane.webhook_client.directory, time.time()
    api_server = {name: (of_plane / name).read_bytes() for name in ("tls.crt", "tls.key")}
    others = TestAuthority.make(now=now)
    options = {"begin": now - 60, "end": now + DAY, "usage": ExtendedKeyUsageOID.CLIENT_AUTH}
    foreign = others.leaf(**options, common_name=webhook_client.NAME)  # type: ignore[arg-type]
    assert caller(service, tmp_path, api_server) == ""
    assert caller(service, tmp_path, None) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert caller(service, tmp_path, foreign) == "TLSV1_ALERT_UNKNOWN_CA"
    for reason in ("no-certificate", "untrusted"):
        eventually(lambda reason=reason: refused(service, reason) == 1.0, message="it is counted")  # type: ignore[misc]
    only, name = clients.read_bytes(), webhook_client.NAME
    assert readiness(service, "clients") == {f"[+] clients: certificates of CA {mark(only)} named {name}"}
    clients.write_bytes(only[:100])
    kept = f"[!] clients: {clients} holds no certificates, or not all of them (PEM); the CAs before stay in force"
    eventually(lambda: readiness(service, "clients") == {kept}, message="half a file is told")
    calls.go_on(10)
    clients.write_bytes(only + others.pem)
    both = f"[+] clients: certificates of CA {mark(only)}, {mark(others.pem)} named {name}"
    eventually(lambda: readiness(service, "clients") == {both}, message="another CA is accepted too")
    assert caller(service, tmp_path, foreign) == ""
    other_name = others.leaf(**options, common_name="system:node:a")  # type: ignore[arg-type]
    assert caller(service, tmp_path, other_name).startswith(("closed", "EOF", "UNEXPECTED_EOF"))
    eventually(lambda: refused(service, "name") == 1.0, message="the name is counted")
