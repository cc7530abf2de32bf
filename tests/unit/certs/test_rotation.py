"""Single steps of a CA's renewal; the whole of it is tried in tests/property/test_ca_rotation.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from certs.authority import Authority
from certs.rotation import RETIRE, SETTLE, Deleted, StoredAuthority, Unusable, advanced, mended

NOW = 1_800_000_000.0
DAY = 86_400.0


def ca(name: bytes, *trusted: bytes) -> Authority:
    return Authority((*trusted, name), name, name, renew_at=NOW + DAY, not_after=NOW + 2 * DAY)


def make() -> Authority:
    return ca(b"<made>")


def step(kept: StoredAuthority, *, carried_for: float | None = None, now: float = NOW) -> StoredAuthority | None:
    return advanced(kept, carried_for=carried_for, now=now, make=make)


def mend(
    known: StoredAuthority, found: StoredAuthority | Deleted | Unusable, *trusted: bytes, now: float = NOW
) -> StoredAuthority | None:
    return mended(known, found, carried=lambda one: one in trusted, now=now, make=make)


def test_a_renewal_that_is_asked_for_or_due_announces_a_second_ca() -> None:
    """Both are trusted, the old one signs, and the request is gone with the write that fulfils it."""
    kept = StoredAuthority(ca(b"<old>"))
    assert step(kept) is None
    asked = step(replace(kept, renew_asked=True))
    assert asked is not None
    assert (asked.authority.certificates, asked.authority.signer) == ((b"<old>", b"<made>"), b"<old>")
    assert asked.following is not None
    assert (asked.following.signer, asked.renew_asked) == (b"<made>", False)
    assert step(kept, now=NOW + DAY) == asked


ANNOUNCED = StoredAuthority(replace(ca(b"<old>"), certificates=(b"<old>", b"<new>")), ca(b"<new>"))


@pytest.mark.parametrize("carried_for", [None, 0.0, SETTLE - 1])
def test_the_second_ca_signs_nothing_before_everybody_trusts_it(carried_for: float | None) -> None:
    """Not while one configuration is without it, nor as long as an API server may be behind."""
    assert step(ANNOUNCED, carried_for=carried_for, now=NOW + 10 * DAY) is None


def test_the_second_ca_takes_over_and_the_first_stays_trusted() -> None:
    """The bundle is the same, byte for byte: no configuration has to be written for it."""
    after = step(ANNOUNCED, carried_for=SETTLE)
    assert after is not None
    assert (after.authority.signer, after.bundle, after.following) == (b"<new>", ANNOUNCED.bundle, None)
    assert after.since == NOW


TAKEN_OVER = StoredAuthority(ca(b"<new>", b"<old>"), since=NOW)


def test_the_first_ca_goes_when_no_leaf_of_it_can_be_alive() -> None:
    """After the life of a leaf and a day."""
    young = replace(TAKEN_OVER, authority=replace(TAKEN_OVER.authority, renew_at=NOW + 99 * DAY))
    assert step(young, carried_for=RETIRE, now=NOW + RETIRE - 1) is None
    after = step(young, now=NOW + RETIRE)
    assert after is not None
    assert (after.authority.certificates, after.since) == ((b"<new>",), None)


def test_the_first_ca_goes_sooner_when_it_is_asked_for_but_not_before_replicas_could_follow() -> None:
    """A key that got out: its CA is dropped on request, once replicas have had the time to serve new leaves."""
    asked = replace(TAKEN_OVER, drop_asked=True)
    assert step(asked, carried_for=SETTLE, now=NOW + SETTLE - 1) is None
    assert step(asked, carried_for=None, now=NOW + SETTLE) is None
    after = step(asked, carried_for=SETTLE, now=NOW + SETTLE)
    assert after is not None
    assert (after.authority.certificates, after.drop_asked) == ((b"<new>",), False)


def test_a_request_to_drop_what_is_not_there_is_taken_back() -> None:
    """Else it would drop the old CA of the next renewal at once."""
    assert step(StoredAuthority(ca(b"<one>"), drop_asked=True)) == StoredAuthority(ca(b"<one>"))


def test_a_second_renewal_starts_the_clock_of_the_retired_again() -> None:
    """Leaves of the CA that signed until now live for as long as any."""
    again = replace(ANNOUNCED, since=NOW - RETIRE + 1)
    after = step(again, carried_for=SETTLE)
    assert after is not None
    assert after.since == NOW


@pytest.mark.parametrize("since", [None, NOW + DAY])
def test_without_a_time_that_can_be_right_it_counts_from_now(since: float | None) -> None:
    """Somebody took the annotation away, or wrote one of the future."""
    assert step(replace(TAKEN_OVER, since=since)) == TAKEN_OVER


def test_a_deleted_secret_comes_back_with_a_renewal() -> None:
    """The old CA signs and stays trusted: no call fails for it."""
    after = mend(StoredAuthority(ca(b"<old>"), drop_asked=True), Deleted(), b"<old>")
    assert after is not None
    assert (after.authority.signer, after.authority.certificates) == (b"<old>", (b"<old>", b"<made>"))
    assert (after.following is not None, after.drop_asked) == (True, False)
    assert mend(ANNOUNCED, Deleted(), b"<old>") == ANNOUNCED


def test_a_garbled_secret_comes_back_as_it_was() -> None:
    """That nobody can read it asks for nothing."""
    assert mend(TAKEN_OVER, Unusable(), b"<new>") == TAKEN_OVER


def test_a_ca_whose_time_is_over_is_not_put_back() -> None:
    """Nobody trusts it any more: a new one stands alone, at once."""
    assert mend(TAKEN_OVER, Deleted(), b"<new>", now=NOW + 2 * DAY) == StoredAuthority(make())
    assert mend(TAKEN_OVER, Unusable(), b"<new>", now=NOW + 2 * DAY) == StoredAuthority(make())


def test_a_ca_that_nobody_announced_is_to_follow() -> None:
    """An admin puts his own into the Secret: it is trusted first, and signs after that."""
    after = mend(TAKEN_OVER, StoredAuthority(ca(b"<theirs>")), b"<new>", b"<old>")
    assert after is not None
    assert (after.authority.signer, after.authority.certificates) == (b"<new>", (b"<old>", b"<new>", b"<theirs>"))
    assert after.following == ca(b"<theirs>")


def test_an_older_secret_that_is_put_back_drops_nobody() -> None:
    """A backup's CA is trusted still and signs again; leaves of the newer one are trusted for as long as they live."""
    after = mend(TAKEN_OVER, StoredAuthority(ca(b"<old>")), b"<new>", b"<old>")
    assert after is not None
    assert (after.authority.signer, set(after.authority.certificates)) == (b"<old>", {b"<old>", b"<new>"})
    assert after.since == NOW


def test_a_replica_that_was_away_for_long_follows_whom_everybody_trusts() -> None:
    """What it knows is of no use to anybody: nothing is mended by its light."""
    assert mend(StoredAuthority(ca(b"<ancient>")), TAKEN_OVER, b"<new>") is None
