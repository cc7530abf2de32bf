"""Where clients must have a certificate, nobody else gets as far as a request."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.certificates import DAY, TestAuthority
from tests.support.eventually import eventually
from tests.support.replica import Replica, request_bytes, review_body, write_authority
from tests.support.replica_process import CLIENT_NAME, CLIENTS

NOW = time.time()
CA = TestAuthority.make(now=NOW, name="clients")
REFUSED = "topogate_clients_refused_total"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("strict")
    write_authority(folder, now=NOW)
    (folder / CLIENTS).write_bytes(CA.pem)
    with Replica(folder, threads=2) as running:
        yield running


def context(replica: Replica, *, authority: TestAuthority | None, name: str = CLIENT_NAME) -> ssl.SSLContext:
    """A client with a certificate, or without one."""
    made = replica.context()
    if authority is not None:
        times = {"begin": NOW - 60, "end": NOW + DAY}
        files = authority.leaf("a.test", **times, common_name=name, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        (replica.folder / "client.pem").write_bytes(files["tls.key"] + files["tls.crt"])
        made.load_cert_chain(replica.folder / "client.pem")
    return made


def ask(replica: Replica, client: ssl.SSLContext) -> int:
    """The status of the answer to a review."""
    with client.wrap_socket(replica.tcp(), server_hostname="topogate.test") as sock:
        sock.sendall(request_bytes(review_body()))
        if not (answer := sock.recv(65_536)):
            raise ConnectionResetError("closed without an answer")
        return int(answer.split()[1])


def test_a_client_with_the_right_certificate_is_answered(strict: Replica) -> None:
    """By its common name, or by a DNS name of its certificate."""
    assert ask(strict, context(strict, authority=CA)) == 200
    alias = CA.leaf(CLIENT_NAME, begin=NOW - 60, end=NOW + DAY, common_name="x", usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    (strict.folder / "alias.pem").write_bytes(alias["tls.key"] + alias["tls.crt"])
    client = strict.context()
    client.load_cert_chain(strict.folder / "alias.pem")
    assert ask(strict, client) == 200


@pytest.mark.parametrize(
    ("client", "reason", "told"),
    [
        ({"authority": None}, "no-certificate", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        ({"authority": TestAuthority.make(now=NOW)}, "untrusted", "TLSV1_ALERT_UNKNOWN_CA"),
        ({"authority": CA, "name": "system:node:a"}, "name", ""),
    ],
)
def test_nobody_else_is_and_each_is_counted(strict: Replica, client: dict[str, object], reason: str, told: str) -> None:
    """TLS itself tells them why; the server goes on for others."""
    before = strict.metric(REFUSED, reason=reason)
    with pytest.raises(OSError) as refused:
        ask(strict, context(strict, **client))  # type: ignore[arg-type]
    if told:
        assert getattr(refused.value, "reason", "") == told, refused.value
    # The client may read the refusal before the server has counted it.
    eventually(lambda: strict.metric(REFUSED, reason=reason) == before + 1, message="it is counted")
    assert ask(strict, context(strict, authority=CA)) == 200
    assert strict.worker_lives()


def test_many_refusals_are_few_lines_and_leave_no_connection(strict: Replica) -> None:
    """Anybody who reaches the port can cause them."""
    before = strict.metric(REFUSED, reason="no-certificate")
    for _ in range(20):
        with pytest.raises(OSError):
            ask(strict, context(strict, authority=None))
    eventually(lambda: strict.metric(REFUSED, reason="no-certificate") == before + 20, message="each is counted")
    eventually(lambda: strict.metric("topogate_connections") == 0.0, message="all connections are closed")
    assert strict.log.read_text().count("it has no client certificate") == 1


def test_without_that_option_everybody_is_answered(folder: Path) -> None:
    """And what is counted stays 0."""
    with Replica(folder, threads=2) as replica:
        assert replica.ask()[0] == 200
        assert replica.metric(REFUSED, reason="no-certificate") == 0.0
