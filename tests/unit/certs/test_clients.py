"""Who may call: the CA of clients in a file, and what a handshake says to those without its certificate."""

from __future__ import annotations

import contextlib
import ssl
import time
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import new_authority
from certs.clients import ClientAuthority, ClientAuthorityUnusable, read_client_authority
from certs.mounted import MountedCertificate
from certs.serving import ServingCertificate
from certs.trust import refusal
from tests.support.certificates import DAY, TestAuthority, mount

NOW = time.time()
CA = TestAuthority.make(now=NOW, name="clients")
OTHER = TestAuthority.make(now=NOW, name="others")
ENDED = TestAuthority.make(now=NOW - 9 * DAY, days=1)


def handshake(server_context: ssl.SSLContext, folder: Path, files: dict[str, bytes] | None) -> str:
    """The word of the server on a client with these files; "" if it accepts it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        (folder / "client.pem").write_bytes(files["tls.key"] + files["tls.crt"])
        context.load_cert_chain(folder / "client.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        try:
            server.do_handshake()
            return ""
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            return error.reason
    raise AssertionError("the handshake does not end")


def certificate(authority: TestAuthority, **times: float) -> dict[str, bytes]:
    begin, end = times.get("begin", NOW - 60), times.get("end", NOW + DAY)
    return authority.leaf(begin=begin, end=end, common_name="kube-apiserver", usage=ExtendedKeyUsageOID.CLIENT_AUTH)


def test_only_clients_of_the_ca_are_accepted(tmp_path: Path) -> None:
    """Ours may have any CA; what counts is theirs, and that it is a client's certificate that has not expired."""
    ours = new_authority(now=NOW, name="ca")
    context = ServingCertificate(
        lambda: ours, dns_names=["a.test"], clock=time.time, clients=lambda: CA.pem + ENDED.pem
    ).context
    assert handshake(context, tmp_path, certificate(CA)) == ""
    assert handshake(context, tmp_path, None) == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    server = CA.leaf("a.test", begin=NOW - 60, end=NOW + DAY)
    for files in (certificate(OTHER), certificate(CA, begin=NOW - DAY, end=NOW - 60), server):
        assert handshake(context, tmp_path, files) == "CERTIFICATE_VERIFY_FAILED"
    assert refusal(context, bundle=ours.bundle, host="a.test") == "", "what we serve is trusted, whoever asks"


def test_another_ca_counts_from_the_next_handshake_on(tmp_path: Path) -> None:
    """With our own certificate, and with one from a directory; ours stays the same."""
    accepted = [CA.pem]
    ours = new_authority(now=NOW, name="ca")
    mount(tmp_path / "mounted", OTHER.leaf("a.test", begin=NOW - 60, end=NOW + DAY))
    own = ServingCertificate(lambda: ours, dns_names=["a.test"], clock=time.time, clients=lambda: accepted[0])
    mounted = MountedCertificate(tmp_path / "mounted", hosts=["a.test"], clock=time.time, clients=lambda: accepted[0])
    ends = own.leaf.not_after, mounted.leaf.not_after
    for one in (own, mounted):
        accepted[0] = CA.pem
        one.renew_if_due()
        assert handshake(one.context, tmp_path, certificate(OTHER)) == "CERTIFICATE_VERIFY_FAILED"
        accepted[0] = OTHER.pem
        one.renew_if_due()
        assert handshake(one.context, tmp_path, certificate(OTHER)) == ""
        assert handshake(one.context, tmp_path, certificate(CA)) == "CERTIFICATE_VERIFY_FAILED"
    assert mounted.leaf.not_after == ends[1]


BAD = {
    "garbage": (b"-----BEGIN", "holds no certificates, or not all of them"),
    "empty": (b"", "holds no certificates, or not all of them"),
    "half": (CA.pem + OTHER.pem[:200], "holds no certificates, or not all of them"),
    "large": (CA.pem * 200, "is too large"),
    "expired": (ENDED.pem, "have expired"),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_wrong_with_the_file_is_told_and_the_last_good_one_stays(tmp_path: Path, bad: str) -> None:
    """Without a good one the port stays closed: nobody may call by mistake."""
    content, text = BAD[bad]
    path = tmp_path / "clients.crt"
    path.write_bytes(CA.pem)
    authority = ClientAuthority(path, clock=lambda: NOW)
    path.write_bytes(content)
    assert not authority.follow()
    assert text in authority.problem
    assert authority.certificates == (CA.pem,)
    with pytest.raises(ClientAuthorityUnusable, match=text):
        ClientAuthority(path, clock=lambda: NOW)
    path.write_bytes(CA.pem + ENDED.pem + OTHER.pem)
    assert authority.follow()
    assert (authority.problem, authority.certificates) == ("", (CA.pem, OTHER.pem))
    assert not authority.follow()


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClientAuthorityUnusable, match="cannot be read: No such file"):
        read_client_authority(tmp_path / "none", now=NOW)
