"""How one CA follows another: what the Secret is to hold next, as a function of what it holds, of trust and of time.

A renewal is three writes of the Secret, and after each of them everything may end and go on later:

    one CA -> ANNOUNCED    a second one is trusted beside it and signs nothing yet
    ANNOUNCED -> TAKEN OVER   the second one signs, once every webhook configuration has trusted it for SETTLE
    TAKEN OVER -> one CA   the first one is trusted no more, once no certificate of it can be alive

So a replica never serves what a webhook configuration does not trust, however far each of them has got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from certs.authority import LEAF_LIFETIME, Authority

# API servers read a changed configuration within a moment; one that lags for longer is in trouble of its own (s).
SETTLE: Final = 20.0
# A replica that is cut off serves what it signed last until that ends; a day more for clocks that differ (s).
RETIRE: Final = LEAF_LIFETIME.total_seconds() + 86_400.0
# CAs that are trusted at a time: whoever asks for renewals in a loop waits for the oldest ones to go.
MOST: Final = 6


@dataclass(frozen=True, slots=True)
class StoredAuthority:
    """What the Secret holds: who is trusted and who signs, who signs next, since when the former does, what is asked.

    `following` is the announced CA; its certificate is among the trusted ones of `authority`. `since` is in seconds
    since the epoch; None when nobody wrote it down.
    """

    authority: Authority
    following: Authority | None = None
    since: float | None = None
    renew_asked: bool = False
    drop_asked: bool = False

    @property
    def bundle(self) -> bytes:
        """What the webhook configurations are to trust."""
        return self.authority.bundle

    @property
    def retired(self) -> tuple[bytes, ...]:
        """Certificates that are trusted and sign nothing, now or next."""
        signers = {self.authority.signer, None if self.following is None else self.following.signer}
        return tuple(one for one in self.authority.certificates if one not in signers)


@dataclass(frozen=True, slots=True)
class Deleted:
    """There is no Secret any more."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """The Secret is there, and what it holds is no CA."""


Found = StoredAuthority | Deleted | Unusable


def advanced(
    kept: StoredAuthority, *, carried_for: float | None, now: float, make: Callable[[], Authority]
) -> StoredAuthority | None:
    """Return what the Secret is to hold next; None when it is right as it is.

    `carried_for`: since how many seconds every webhook configuration trusts all of `kept`; None when one does not.
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
    """Return what the Secret ought to hold when what is found in it would break the trust in `known`; else None.

    `known` is what a replica has gone by until now, `carried` says whether every webhook configuration trusts a
    certificate. A deletion asks for a renewal. A CA that nobody announced is taken for one that is to follow.
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
        return None if old in found.authority.certificates else _with(found, known.authority.certificates, now=now)
    following = replace(found.authority, certificates=(signer,))
    pending = None if known.following is None else known.following.signer
    mine = tuple(one for one in known.authority.certificates if one not in (pending, signer))
    return StoredAuthority(replace(known.authority, certificates=(*mine, signer)), following, known.since)


def _announced(kept: StoredAuthority, make: Callable[[], Authority]) -> StoredAuthority | None:
    """Trust a second CA; None when too many are trusted already."""
    if len(kept.authority.certificates) >= MOST:
        return None
    following = make()
    trusted = replace(kept.authority, certificates=(*kept.authority.certificates, following.signer))
    return replace(kept, authority=trusted, following=following, renew_asked=False)


def _taken_over(kept: StoredAuthority, following: Authority, *, now: float) -> StoredAuthority:
    # In the same order: the webhook configurations stay as they are.
    authority = replace(following, certificates=kept.authority.certificates)
    return replace(kept, authority=authority, following=None, since=now, renew_asked=False)


def _with(kept: StoredAuthority, certificates: tuple[bytes, ...], *, now: float) -> StoredAuthority:
    """Trust some more, as if they had just been followed."""
    both = tuple(dict.fromkeys((*certificates, *kept.authority.certificates)))
    return replace(kept, authority=replace(kept.authority, certificates=both), since=now)
