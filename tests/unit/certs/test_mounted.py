"""A directory that others renew: what is good in it is served, what is not is named and the last good one stays."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.mounted import CertificateUnusable, MountedCertificate
from certs.trust import refusal
from tests.support.certificates import DAY, TestAuthority, mount

HOSTS = ("topogate.topogate-system.svc", "127.0.0.1")
NOW = time.time()
CA = TestAuthority.make(now=NOW)
NEXT = TestAuthority.make(now=NOW, name="the next CA")


def good(authority: TestAuthority = CA, *, days: float = 1.0) -> dict[str, bytes]:
    return authority.leaf(*HOSTS, begin=NOW - 60, end=NOW + days * DAY)


class World:
    """A directory with a good certificate, who reads it, a clock, and what the configurations trust."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOW
        self.bundle = CA.pem + NEXT.pem
        mount(directory, good())
        self.certificate = MountedCertificate(
            directory,
            hosts=HOSTS,
            clock=lambda: self.now,
            trusted=lambda context: not refusal(context, bundle=self.bundle, host=HOSTS[0]),
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "certificates")


def served_by(world: World, authority: TestAuthority) -> bool:
    return not refusal(world.certificate.context, bundle=authority.pem, host=HOSTS[0])


def test_a_certificate_that_is_swapped_is_served(world: World) -> None:
    """From the next look on; nothing happens at a look that finds the same."""
    before = world.certificate.context
    assert not world.certificate.renew_if_due()
    assert world.certificate.context is before
    mount(world.directory, good(NEXT, days=2))
    assert world.certificate.renew_if_due()
    assert served_by(world, NEXT)
    assert not served_by(world, CA)
    assert world.certificate.leaf.not_after == int(NOW + 2 * DAY)
    assert world.certificate.signer == NEXT.pem


def test_its_renewal_is_overdue_when_a_seventh_of_its_life_is_left(world: World) -> None:
    """Of a day three and a half hours, where a fixed day would always be an alert."""
    leaf = world.certificate.leaf
    assert leaf.not_after - leaf.overdue_at == pytest.approx((DAY + 60) / 7, abs=2)
    assert world.certificate.served.signer_end - world.certificate.served.signer_overdue > 12 * DAY


def leaf(**options: float) -> dict[str, bytes]:
    return CA.leaf(*HOSTS, **{"begin": NOW - 60, "end": NOW + DAY, **options})


FAULTS: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    "half written": (lambda: good() | {"tls.crt": good()["tls.crt"][:300]}, "tls.crt holds no certificates"),
    "half of the CAs": (
        lambda: good() | {"ca.crt": CA.pem + NEXT.pem[:300]},
        "ca.crt holds no certificates, or not all",
    ),
    "half of the key": (lambda: good() | {"tls.key": good()["tls.key"][:100]}, "tls.key is no unencrypted private key"),
    "not yet written": (lambda: good() | {"tls.key": b""}, "tls.key is missing or empty"),
    "without a file": (lambda: {"tls.crt": good()["tls.crt"]}, "tls.key is missing or empty"),
    "key of another": (lambda: good() | {"tls.key": good()["tls.key"]}, "tls.key is not the key of tls.crt"),
    "CA of another": (lambda: good() | {"ca.crt": NEXT.pem}, "ca.crt is not the CA of tls.crt: unable to get local"),
    "CA that is garbage": (lambda: good() | {"ca.crt": b"\x00\xff"}, "ca.crt holds no certificates"),
    "too large": (lambda: good() | {"ca.crt": CA.pem * 200}, "ca.crt is too large"),
    "expired": (lambda: leaf(begin=NOW - DAY, end=NOW - 60), "the certificate expired on 20"),
    "not yet valid": (lambda: leaf(begin=NOW + 3600), "the certificate is not valid before 20"),
    "other names": (lambda: CA.leaf("127.0.0.1", begin=NOW, end=NOW + DAY), "clients that call topogate.topogate-sys"),
    "one name missing": (lambda: CA.leaf(HOSTS[0], begin=NOW, end=NOW + DAY), "clients that call 127.0.0.1 refuse"),
    "no names": (lambda: CA.leaf(begin=NOW, end=NOW + DAY, common_name=HOSTS[0]), "Hostname mismatch"),
    "for clients": (
        lambda: CA.leaf(*HOSTS, begin=NOW, end=NOW + DAY, usage=ExtendedKeyUsageOID.CLIENT_AUTH),
        "unsuitable certificate purpose",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named_and_the_last_good_one_stays(world: World, tmp_path: Path, fault: str) -> None:
    """And a service that starts with it says the same; it serves the next good one without a restart."""
    files, text = FAULTS[fault]
    content, before = files(), world.certificate.context
    mount(world.directory, content)
    assert not world.certificate.renew_if_due()
    assert text in world.certificate.problem
    assert world.certificate.context is before
    mount(tmp_path / "new", content)
    with pytest.raises(CertificateUnusable, match=text.replace("(", r"\(")):
        MountedCertificate(tmp_path / "new", hosts=HOSTS, clock=lambda: NOW)
    mount(world.directory, good())
    assert world.certificate.renew_if_due()
    assert world.certificate.problem == ""


def test_no_key_stands_in_what_is_said(world: World) -> None:
    """The message of a key that cannot be read does not quote it."""
    mount(world.directory, good() | {"tls.key": b"-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"})
    world.certificate.renew_if_due()
    assert "secret" not in world.certificate.problem
    assert "PRIVATE KEY" not in repr(world.certificate.served)


def test_a_certificate_becomes_valid_while_it_waits(world: World) -> None:
    """It was put there too early; nobody has to touch it again."""
    mount(world.directory, leaf(begin=NOW - 1800))
    world.now = NOW - 3600
    assert not world.certificate.renew_if_due()
    assert "is not valid before" in world.certificate.problem
    world.now = NOW
    assert world.certificate.renew_if_due()


def test_files_may_be_written_one_after_the_other(tmp_path: Path) -> None:
    """Without the kubelet's link, each state on the way is refused, and the last one served."""
    directory = tmp_path / "plain"
    directory.mkdir()
    for name, content in good().items():
        (directory / name).write_bytes(content)
    certificate = MountedCertificate(directory, hosts=HOSTS, clock=lambda: NOW)
    files = list(good(NEXT).items())
    for name, content in files[:-1]:
        (directory / name).write_bytes(content)
        assert not certificate.renew_if_due()
        assert "is not the" in certificate.problem
    (directory / files[-1][0]).write_bytes(files[-1][1])
    assert certificate.renew_if_due()


def test_a_directory_that_is_gone_or_forbidden_changes_nothing(world: World) -> None:
    """It may be unmounted for a moment."""
    world.directory.rename(world.directory.with_name("elsewhere"))
    assert not world.certificate.renew_if_due()
    assert "tls.crt is missing or empty" in world.certificate.problem
    assert world.certificate.valid


def test_a_certificate_without_a_ca_file_is_served(world: World) -> None:
    """Some issuers have none to give: then who signed is not known."""
    mount(world.directory, {name: content for name, content in good().items() if name != "ca.crt"})
    assert world.certificate.renew_if_due()
    assert world.certificate.signer == b""


def test_one_that_is_not_trusted_yet_waits_while_the_other_is(world: World) -> None:
    """The CA injector may come later than the kubelet: until then calls succeed with the certificate before."""
    world.bundle = CA.pem
    mount(world.directory, good(NEXT))
    assert not world.certificate.renew_if_due()
    assert "do not trust it yet" in world.certificate.problem
    assert served_by(world, CA)
    world.bundle = NEXT.pem
    assert world.certificate.renew_if_due()
    assert served_by(world, NEXT)


def test_one_that_nobody_trusts_is_served_where_that_loses_nothing(world: World) -> None:
    """Where the one before is not trusted either, or is over, the newest is the best guess."""
    world.bundle = b""
    mount(world.directory, good(NEXT))
    assert world.certificate.renew_if_due()
    world.bundle = NEXT.pem
    mount(world.directory, good(CA, days=9))
    assert not world.certificate.renew_if_due()
    world.now = world.certificate.leaf.not_after
    assert not world.certificate.valid
    assert world.certificate.renew_if_due()


def test_a_chain_with_an_intermediate_is_followed_to_the_root(world: World) -> None:
    """`tls.crt` has the certificate first, then those of the CAs between."""
    middle = TestAuthority.make(now=NOW, name="between")
    builder = x509.CertificateBuilder(
        issuer_name=CA.certificate.subject,
        subject_name=middle.certificate.subject,
        public_key=middle.key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=middle.certificate.not_valid_before_utc,
        not_valid_after=middle.certificate.not_valid_after_utc,
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = TestAuthority(builder.sign(CA.key, hashes.SHA256()), middle.key)
    files = signed.leaf(*HOSTS, begin=NOW - 60, end=NOW + DAY)
    mount(world.directory, files | {"tls.crt": files["tls.crt"] + signed.pem, "ca.crt": NEXT.pem + CA.pem})
    assert world.certificate.renew_if_due()
    assert world.certificate.signer == CA.pem
    mount(world.directory, files | {"ca.crt": CA.pem})
    assert not world.certificate.renew_if_due()
    assert "ca.crt is not the CA of tls.crt" in world.certificate.problem


def test_the_context_speaks_tls_1_3_only(world: World) -> None:
    """As with our own certificates."""
    assert world.certificate.context.minimum_version is ssl.TLSVersion.TLSv1_3
