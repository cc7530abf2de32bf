"""Making and reading certificates."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from certs.authority import Authority, AuthorityError, new_authority, new_leaf, read_authority

NOW = 1_800_000_000.5
DAY = 86_400.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority(now=NOW, name="topogate-ca")


def leaf_of(authority: Authority, now: float = NOW) -> x509.Certificate:
    made = new_leaf(authority, dns_names=["topogate.ns.svc"], addresses=["127.0.0.1", "::1"], now=now)
    return x509.load_pem_x509_certificate(made.chain)


def verify(leaf: x509.Certificate, bundle: bytes, *, name: x509.GeneralName, now: float = NOW) -> None:
    store = Store(x509.load_pem_x509_certificates(bundle))
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC).replace(tzinfo=None)
    assert isinstance(name, x509.DNSName | x509.IPAddress)
    PolicyBuilder().store(store).time(moment).build_server_verifier(name).verify(leaf, [])


def test_a_leaf_verifies_against_the_bundle_by_name_and_address(authority: Authority) -> None:
    """A strict verifier accepts the leaf for its host name and its addresses."""
    leaf = leaf_of(authority)
    verify(leaf, authority.bundle, name=x509.DNSName("topogate.ns.svc"))
    verify(leaf, authority.bundle, name=x509.IPAddress(ipaddress.ip_address("::1")))
    with pytest.raises(x509.verification.VerificationError):
        verify(leaf, authority.bundle, name=x509.DNSName("other.ns.svc"))


def test_a_leaf_lives_seven_days_and_is_renewed_after_two_thirds(authority: Authority) -> None:
    """Valid from an hour before (clocks differ), to be renewed when a third of its life is left."""
    made = new_leaf(authority, dns_names=["a"], now=NOW)
    certificate = x509.load_pem_x509_certificate(made.chain)
    assert certificate.not_valid_before_utc.timestamp() == int(NOW) - 3600
    assert certificate.not_valid_after_utc.timestamp() == int(NOW) + 7 * DAY == made.not_after
    assert made.renew_at == pytest.approx(NOW + 7 * DAY * 2 / 3, abs=1)


def test_a_leaf_never_outlives_its_authority(authority: Authority) -> None:
    """In the CA's last days the leaf ends with it."""
    end = x509.load_pem_x509_certificate(authority.signer).not_valid_after_utc.timestamp()
    made = new_leaf(authority, dns_names=["a"], now=end - DAY)
    assert made.not_after == end


def test_keys_are_ecdsa_p256_and_never_in_a_repr(authority: Authority) -> None:
    """A key does not get into a log by way of repr."""
    made = new_leaf(authority, dns_names=["a"], now=NOW)
    for holder, key in ((authority, authority.key), (made, made.key)):
        private = serialization.load_pem_private_key(key, None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert isinstance(private.curve, ec.SECP256R1)
        assert b"PRIVATE" not in repr(holder).encode()


@pytest.mark.parametrize(("names", "addresses"), [([], []), (["a"], ["not an address"]), (["ü.example"], [])])
def test_a_leaf_for_nothing_or_nonsense_is_refused(
    authority: Authority, names: list[str], addresses: list[str]
) -> None:
    """No names, malformed addresses and names outside ASCII are errors of the caller."""
    with pytest.raises(ValueError):
        new_leaf(authority, dns_names=names, addresses=addresses, now=NOW)


def test_reading_gives_back_what_was_made(authority: Authority) -> None:
    """The CA survives its Secret."""
    assert read_authority(authority.bundle, authority.key, now=NOW) == authority


def test_old_and_new_stand_side_by_side_and_the_keys_own_signs(authority: Authority) -> None:
    """Whatever the order in the bundle, the certificate that belongs to the key signs and all are trusted."""
    other = new_authority(now=NOW, name="topogate-ca")
    for bundle in (authority.bundle + other.bundle, other.bundle + authority.bundle):
        found = read_authority(bundle, other.key, now=NOW)
        assert found.signer == other.signer
        verify(leaf_of(found), other.bundle, name=x509.DNSName("topogate.ns.svc"))
        assert set(found.certificates) == {authority.signer, other.signer}


def test_an_expired_companion_leaves_the_bundle(authority: Authority) -> None:
    """Certificates that ended are not handed to clients any more."""
    old = new_authority(now=NOW - 3650 * DAY - 10, name="old")
    found = read_authority(old.bundle + authority.bundle, authority.key, now=NOW)
    assert found.certificates == (authority.signer,)


def self_signed(*, ca: bool | None) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    start = datetime.datetime.fromtimestamp(NOW - DAY, datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=start,
        not_valid_after=start + datetime.timedelta(days=10),
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), pem(key)


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def of_unknown_version(certificate: bytes) -> bytes:
    """A certificate (PEM) that says of itself that it is of a version which never was."""
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    third, unknown = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x42"
    assert der.count(third) == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(third, unknown)).encode()


GOOD = new_authority(now=NOW, name="good")
RSA = pem(rsa.generate_private_key(65537, 2048))


@pytest.mark.parametrize(
    ("bundle", "key", "says"),
    [
        pytest.param(b"", GOOD.key, "empty", id="no certificates"),
        pytest.param(GOOD.bundle, b"", "empty", id="no key"),
        pytest.param(GOOD.bundle * 200, GOOD.key, "too large", id="too many certificates"),
        pytest.param(b"garbage", GOOD.key, "not PEM", id="garbage certificates"),
        pytest.param(GOOD.bundle[:-40], GOOD.key, "not PEM", id="half a certificate"),
        pytest.param(of_unknown_version(GOOD.bundle), GOOD.key, "not PEM", id="unknown version"),
        pytest.param(
            GOOD.bundle + of_unknown_version(GOOD.bundle), GOOD.key, "not PEM", id="unknown version beside it"
        ),
        pytest.param(GOOD.key, GOOD.key, "not PEM", id="a key for a certificate"),
        pytest.param(GOOD.bundle, b"garbage", "private key", id="garbage key"),
        pytest.param(GOOD.bundle, GOOD.key[:-60], "private key", id="half a key"),
        pytest.param(GOOD.bundle, GOOD.bundle, "private key", id="a certificate for a key"),
        pytest.param(GOOD.bundle, RSA, "not an ECDSA key", id="RSA"),
        pytest.param(GOOD.bundle, new_authority(now=NOW, name="x").key, "none of the certificates", id="other key"),
        pytest.param(*self_signed(ca=False), "not a CA certificate", id="a leaf"),
        pytest.param(*self_signed(ca=None), "not a self-signed CA certificate", id="no constraints"),
    ],
)
def test_an_unusable_authority_is_refused_with_a_reason(bundle: bytes, key: bytes, says: str) -> None:
    """Missing, cut, swapped, foreign and wrong-typed parts each say what is wrong, without key material."""
    with pytest.raises(AuthorityError, match=says) as caught:
        read_authority(bundle, key, now=NOW)
    assert len(str(caught.value)) < 200


def test_an_authority_outside_its_time_is_refused(authority: Authority) -> None:
    """Expired and not yet valid CAs neither read nor sign."""
    for now, says in ((NOW + 4000 * DAY, "expired on"), (NOW - 2 * DAY, "not valid before")):
        with pytest.raises(AuthorityError, match=says):
            read_authority(authority.bundle, authority.key, now=now)
        with pytest.raises(AuthorityError, match=says):
            new_leaf(authority, dns_names=["a"], now=now)
