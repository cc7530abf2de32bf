"""Ports, credentials, logs and command lines of an instance."""

from __future__ import annotations

import datetime
import json
import socket
import stat
from pathlib import Path

import pytest
from cryptography import x509

from local import commands, ports
from local.controlplane import admin_token
from local.credentials import USERS, kubeconfig, make_credentials
from local.processes import tail

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_ports_are_different_and_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that somebody listens on is never handed out; too few free ones is an error."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "LAST", port + 3)
        found = ports.free_ports(1)
        assert port not in found
        with pytest.raises(OSError, match="no 3 free ports"):
            ports.free_ports(3)


def test_ports_stay_out_of_the_kernels_own_range() -> None:
    """No outgoing connection of anybody can take one between our look and the bind."""
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert all(20_000 <= port < 32_000 for port in found)


@pytest.mark.parametrize("shares", [True, False])
def test_a_held_port_is_given_to_nobody_and_leads_to_its_servers(monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    """Before the first of them listens, while some do, and after the last has ended.

    The kernel treats a server of another user as one that does not share its port.
    """
    port = ports.held_port()
    monkeypatch.setattr(ports, "FIRST", port)
    monkeypatch.setattr(ports, "LAST", port + 1)
    for _ in range(2):
        with pytest.raises(OSError, match="no 1 free ports"):
            ports.free_ports(1)
        with (
            socket.create_server(("127.0.0.1", port), reuse_port=shares) as server,
            socket.create_connection(("127.0.0.1", port), timeout=5.0),
        ):
            server.settimeout(5.0)
            server.accept()[0].close()


def test_every_file_with_a_secret_is_its_owners(tmp_path: Path) -> None:
    """Keys, tokens and certificates: mode 0600, and tokens differ between users and instances."""
    made = make_credentials(tmp_path / "pki", now=NOW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pki").iterdir()} == {0o600}
    other = make_credentials(tmp_path / "other", now=NOW)
    assert len({*made.tokens.values(), *other.tokens.values()}) == 2 * len(USERS)


def test_the_serving_certificate_is_signed_by_the_ca_for_the_loopback(tmp_path: Path) -> None:
    """A client that trusts ca.crt accepts https://127.0.0.1."""
    made = make_credentials(tmp_path, now=NOW)
    ca = x509.load_pem_x509_certificate(made.ca_certificate.read_bytes())
    serving = x509.load_pem_x509_certificate(made.serving_certificate.read_bytes())
    serving.verify_directly_issued_by(ca)
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_kubeconfig_holds_all_that_kubectl_needs(tmp_path: Path) -> None:
    """Server, CA and token are in the file itself, so it can be copied elsewhere."""
    made = make_credentials(tmp_path, now=NOW)
    text = kubeconfig("https://127.0.0.1:1", ca_certificate=made.ca_certificate, user="admin", token="secret")
    config = json.loads(text)
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert config["users"] == [{"name": "admin", "user": {"token": "secret"}}]
    assert "certificate-authority-data" in config["clusters"][0]["cluster"]


@pytest.mark.parametrize("edited", ["users: []\n", "apiVersion: v1\nkind: Config\n", "{", None])
def test_the_admin_is_known_whatever_people_do_to_their_kubeconfig(tmp_path: Path, edited: str | None) -> None:
    """`kubectl config` writes YAML, other users, other contexts; the instance can be asked and ended all the same."""
    made = make_credentials(tmp_path / "pki", now=NOW)
    if edited is not None:
        (tmp_path / "kubeconfig").write_text(edited)
    assert admin_token(tmp_path) == made.tokens["admin"]


def test_the_controller_manager_acts_under_service_accounts(tmp_path: Path) -> None:
    """Without that flag every controller looks like the admin, and the webhooks' checks of who asks test nothing."""
    layout = commands.Layout(
        directory=tmp_path,
        programs={"kube-controller-manager": Path("/p/kcm")},
        credentials=make_credentials(tmp_path / "pki", now=NOW),
        etcd_port=1,
        etcd_peer_port=2,
        api_port=3,
    )
    assert "--use-service-account-credentials=true" in commands.controller_manager(layout)


def test_no_stage_ends_a_pod_that_did_not_ask_for_it() -> None:
    """A stage that makes pods Succeeded or Failed is bound to an annotation or to a deletion."""
    for path in commands.STAGES.glob("pod-*.yaml"):
        text = path.read_text()
        if "phase: Succeeded" in text or "phase: Failed" in text:
            assert "operator: Exists" in text, path


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"", "  (the log is empty)"),
        (b"a\n\nb\nc\n", "  b\n  c"),
        (b"\xff\xfe broken\n", "  �� broken"),
        (b"x" * 100_000 + b"\n", "  " + "x" * 400),
    ],
    ids=["empty", "blank lines", "not utf-8", "one long line"],
)
def test_the_end_of_a_log_is_quoted_whatever_is_in_it(tmp_path: Path, content: bytes, shown: str) -> None:
    """The last lines, bounded in number and length."""
    log = tmp_path / "x.log"
    log.write_bytes(content)
    assert tail(log, lines=2) == shown
    assert tail(tmp_path / "absent.log") == "(no log)"
