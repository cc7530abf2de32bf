"""The rotation of the CA: the next content of the Secret as a function of its content, of trust and of time.

A renewal is three writes of the Secret; after each of them it may be interrupted and continued later:

    one CA -> ANNOUNCED    a second one is trusted beside it and signs nothing yet
    ANNOUNCED -> TAKEN OVER   the second one signs, once every webhook configuration has trusted it for SETTLE
    TAKEN OVER -> one CA   the first one is no longer trusted, once no certificate of it can be alive

So a replica never serves a certificate that a webhook configuration does not trust, however far each of them has got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from certs.authority import LEAF_LIFETIME, Authority

# Seconds. API servers read a changed configuration within a moment; one that lags for longer has a problem of its own.
SETTLE: Final = 20.0
# Seconds. A replica that is cut off serves its last leaf until that ends; a day more for clocks that differ.
RETIRE: Final = LEAF_LIFETIME.total_seconds() + 86_400.0
# CAs that are trusted at a time: renewals requested in a loop wait until the oldest ones are removed.
MOST: Final = 6


@dataclass(frozen=True, slots=True)
class StoredAuthority:
    """The CA state in the Secret: trusted certificates, the signing key, the next one, and pending requests.

    `following` is the announced CA; its certificate is among the trusted ones of `authority`. `since` is when
    `authority` began to sign, in seconds since the epoch; None if that is not recorded. `renew_asked` and `drop_asked`
    are requests of people for a renewal and for removing retired certificates.
    """

    authority: Authority
    following: Authority | None = None
    since: float | None = None
    renew_asked: bool = False
    drop_asked: bool = False

    @property
    def bundle(self) -> bytes:
        """Return the certificates that the webhook configurations should trust."""
        return self.authority.bundle

    @property
    def retired(self) -> tuple[bytes, ...]:
        """Return the trusted certificates that do not sign, now or next."""
        signers = {self.authority.signer, None if self.following is None else self.following.signer}
        return tuple(one for one in self.authority.certificates if one not in signers)


@dataclass(frozen=True, slots=True)
class Deleted:
    """The Secret does not exist any more."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The Secret exists, but holds no usable CA."""


Found = StoredAuthority | Deleted | Unusable


def advanced(
    kept: StoredAuthority, *, carried_for: float | None, now: float, make: Callable[[], Authority]
) -> StoredAuthority | None:
    """Return the next state of the Secret; None if it is right already.

    `carried_for` is for how many seconds every webhook configuration has trusted all of `kept`; None if one does not.
    `now` is in seconds since the epoch, `make` makes a new CA.
    """
    settled = carried_for is not None and carried_for >= SETTLE
    if kept.following is not None:
        return _taken_over(kept, kept.following, now=now) if settled else None
    if kept.renew_asked or now >= kept.authority.renew_at:
        if (announced := _announced(kept, make)) is not None:
            return announced
    elif kept.drop_asked and not kept.retired:
        return replace(kept, drop_asked=False)
    if not kept.retired:
        return None
    if kept.since is None or kept.since > now:
        return replace(kept, since=now)
    if now < kept.since + (SETTLE if kept.drop_asked and settled else RETIRE):
        return None
    alone = replace(kept.authority, certificates=(kept.authority.signer,))
    return replace(kept, authority=alone, since=None, drop_asked=False)


def mended(
    known: StoredAuthority, found: Found, *, carried: Callable[[bytes], bool], now: float, make: Callable[[], Authority]
) -> StoredAuthority | None:
    """Return the corrected state if the state in the Secret would break the trust in `known`; else None.

    `known` is the state that a replica has used until now, `carried` returns whether every webhook configuration trusts
    a certificate. A deletion counts as a request for renewal. A CA that was not announced is taken for the next one.
    """
    over = known.authority.not_after <= now
    match found:
        case Deleted() | Unusable() if over:
            return StoredAuthority(make())
        case Deleted():
            announced = None if known.following is not None else _announced(known, make)
            return replace(announced or known, renew_asked=False, drop_asked=False)
        case Unusable():
            return replace(known, renew_asked=False, drop_asked=False)
    signer, old = found.authority.signer, known.authority.signer
    if signer == old or over or not carried(old):
        return None
    if carried(signer):
        return (
            None if old in found.authority.certificates else _with_trusted(found, known.authority.certificates, now=now)
        )
    following = replace(found.authority, certificates=(signer,))
    pending = None if known.following is None else known.following.signer
    mine = tuple(one for one in known.authority.certificates if one not in (pending, signer))
    return StoredAuthority(replace(known.authority, certificates=(*mine, signer)), following, known.since)


def _announced(kept: StoredAuthority, make: Callable[[], Authority]) -> StoredAuthority | None:
    """Return the state that also trusts a second CA; None if too many are trusted already."""
    if len(kept.authority.certificates) >= MOST:
        return None
    following = make()
    trusted = replace(kept.authority, certificates=(*kept.authority.certificates, following.signer))
    return replace(kept, authority=trusted, following=following, renew_asked=False)


def _taken_over(kept: StoredAuthority, following: Authority, *, now: float) -> StoredAuthority:
    # Keep the order, so that the webhook configurations need no write.
    authority = replace(following, certificates=kept.authority.certificates)
    return replace(kept, authority=authority, following=None, since=now, renew_asked=False)


def _with_trusted(kept: StoredAuthority, certificates: tuple[bytes, ...], *, now: float) -> StoredAuthority:
    """Return the state that also trusts these certificates, as if they had just been replaced."""
    both = tuple(dict.fromkeys((*certificates, *kept.authority.certificates)))
    return replace(kept, authority=replace(kept.authority, certificates=both), since=now)
