"""The leaf in force: renewed in good time, swapped whole."""

from __future__ import annotations

import ssl

import pytest

from certs.authority import Authority, AuthorityError, new_authority
from certs.serving import ServingCertificate, serving_context

START = 1_800_000_000.0
DAY = 86_400.0


class World:
    """A clock, the CA in the Secret, and a certificate that looks at both."""

    def __init__(self) -> None:
        self.now = START
        self.authority = new_authority(now=START, name="ca")
        self.certificate = ServingCertificate(self.current, dns_names=["a.test"], clock=lambda: self.now)

    def current(self) -> Authority:
        return self.authority


def served(context: ssl.SSLContext, authority: Authority) -> bytes | None:
    """The certificate that a client sees which trusts `authority`."""
    client_context = ssl.create_default_context(cadata=authority.bundle.decode())
    client_context.verify_flags = ssl.VERIFY_X509_STRICT
    client_context.check_hostname = True
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="a.test")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert(binary_form=True)


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_renewed_after_two_thirds_and_not_before(world: World) -> None:
    """A poll that comes early does nothing; the first one that is due swaps the context."""
    first = world.certificate.context
    world.now = START + 4.6 * DAY
    assert world.certificate.renew_if_due() is False
    assert world.certificate.context is first
    world.now = START + 4.7 * DAY
    assert world.certificate.renew_if_due() is True
    assert world.certificate.context is not first
    assert world.certificate.leaf.not_after == pytest.approx(world.now + 7 * DAY, abs=1)


def test_it_is_renewed_when_another_authority_signs(world: World) -> None:
    """A rotated CA is followed at the next poll."""
    world.authority = new_authority(now=START, name="next")
    assert world.certificate.renew_if_due() is True
    assert world.certificate.renew_if_due() is False


def test_it_is_renewed_when_the_clock_goes_back_before_its_begin(world: World) -> None:
    """A clock that was days ahead is set right: what was signed by it would be accepted only days later."""
    world.authority = new_authority(now=START - 90 * DAY, name="ca")
    world.certificate.renew_if_due()
    world.now = START - 1800
    assert world.certificate.renew_if_due() is False
    world.now = START - 2 * DAY
    assert world.certificate.renew_if_due() is True
    assert world.certificate.renew_if_due() is False
    assert world.certificate.leaf.not_after == pytest.approx(world.now + 7 * DAY, abs=1)


def test_it_is_valid_until_its_end(world: World) -> None:
    """Readiness asks this: a process that was paused too long is not ready."""
    assert world.certificate.valid
    world.now = world.certificate.leaf.not_after
    assert not world.certificate.valid


def test_a_renewal_that_fails_leaves_the_old_one_in_force(world: World) -> None:
    """A CA that cannot sign raises, and what is served stays."""
    before, end = world.certificate.context, world.certificate.leaf.not_after
    world.now = START + 4000 * DAY
    with pytest.raises(AuthorityError):
        world.certificate.renew_if_due()
    assert (world.certificate.context, world.certificate.leaf.not_after) == (before, end)


def test_the_context_speaks_tls_1_3_only(world: World) -> None:
    """Nothing older, and no session tickets for clients that keep none."""
    assert world.certificate.context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert world.certificate.context.num_tickets == 0


def test_a_key_of_another_certificate_is_refused(world: World) -> None:
    """Parts that do not fit are an error before anything is served."""
    other = new_authority(now=START, name="other")
    with pytest.raises(ssl.SSLError):
        serving_context(world.authority.bundle, other.key)


def test_a_client_that_trusts_the_authority_accepts_the_leaf() -> None:
    """OpenSSL verifies chain, name and strictness (Go's verifier is alike)."""
    import time

    authority = new_authority(now=time.time(), name="ca")
    certificate = ServingCertificate(lambda: authority, dns_names=["a.test"], clock=time.time)
    assert served(certificate.context, authority)
    with pytest.raises(ssl.SSLCertVerificationError):
        served(certificate.context, new_authority(now=time.time(), name="ca"))
