"""Leader election as pure functions of the reads and writes of one Lease: no I/O, no clock.

Safety: a leader stops believing `renew_deadline` seconds after it *sent* its last successful renewal; a candidate takes
over when it has seen no change for `duration` seconds, which begin after that renewal arrived. So two never believe at
once, as long as clocks run at the same pace to within `duration / renew_deadline`; no clock is ever compared with that
of another machine. Differs from client-go in counting from the sending, and in waiting after a deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# A Lease that names a longer time than this is not believed for longer (a hostile or mistyped value).
LONGEST_DURATION: Final = 300.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The times of the election in seconds: a lease lasts `duration`, its holder trusts it for `renew_deadline`.

    Others see a renewal up to `retry` late: a crash costs `duration` and `retry` at most, 9.5 s, so that the next gang
    is planned within 12 s. No two lead while their clocks' paces differ by less than `duration` / `renew_deadline` =
    1.5. An API server that answers no renewal for `renew_deadline` - `retry` = 3.8 s costs a term: nothing could be
    written in that time either, and the next leader reads the cluster afresh.
    """

    duration: float = 8.0
    renew_deadline: float = 5.3
    retry: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise ValueError(f"wanted 0 < retry < renew_deadline < duration, got {self}")


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease object as read; `holder` is "" when it was released, `duration` is its own in seconds."""

    holder: str
    duration: float
    transitions: int
    acquired: str
    uid: str
    resource_version: str
    renewed: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """One candidate's view of the Lease, and the time until which it leads.

    The Lease as last seen and since when it is unchanged, since when there has been none (None: there is one), and
    until when this candidate leads (None: it does not).
    """

    observed: Lease | None = None
    observed_at: float = 0.0
    absent_since: float | None = None
    leads_until: float | None = None

    def leads(self, now: float) -> bool:
        """True when no other candidate can be leading at `now`."""
        return self.leads_until is not None and now < self.leads_until


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Lease: create it in our name."""


@dataclass(frozen=True, slots=True)
class Take:
    """Write our name into the Lease, if it is still the one that we saw; `transitions` is its new count."""

    lease: Lease
    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Write a new renewal time into our Lease, if it is still the one that we saw."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Wait:
    """Another candidate leads; its lease runs out in `seconds` unless renewed."""

    seconds: float


Action = Create | Take | Renew | Wait


def renewal(state: State, *, identity: str, now: float) -> Renew | None:
    """Return the renewal that a leader may try without reading first; None for a candidate that has to `observe`.

    The server refuses it when anyone has written the Lease since: it carries the version of our own last write.
    """
    held = state.observed
    return Renew(held) if held is not None and held.holder == identity and state.leads(now) else None


def observe(state: State, lease: Lease | None, *, identity: str, terms: Terms, now: float) -> tuple[State, Action]:
    """Apply the Lease as read at `now` (None: there is none) and return the next action.

    `now` must be read after the answer. Times are monotonic seconds of this process alone.
    """
    if lease is None:
        # The Lease was deleted. Its holder may not know yet and trusts it until its deadline: only the holder, and one
        # who never saw a Lease (a new cluster), may create it at once. (A second deletion while this candidate is cut
        # off would go unnoticed; the writes' preconditions are left then.)
        led = state.leads(now)
        since = now if state.absent_since is None else state.absent_since
        state = replace(state, leads_until=None, absent_since=since)
        if state.observed is not None and not led and (left := since + _holds(state.observed, terms) - now) > 0:
            return state, Wait(left)
        return state, Create()
    before = state.observed
    if before is None or (before.uid, before.resource_version) != (lease.uid, lease.resource_version):
        state = replace(state, observed=lease, observed_at=now)
    state = replace(state, absent_since=None)
    if lease.holder == identity:
        return state, Renew(lease)
    state = replace(state, leads_until=None)
    left = state.observed_at + _holds(lease, terms) - now
    if lease.holder and left > 0:
        return state, Wait(left)
    return state, Take(lease, lease.transitions + 1)


@dataclass(slots=True)
class LeaseWatch:
    """Watches a Lease as a candidate does, for one who takes no part: by observation alone, whether it is held."""

    _state: State = State()

    def seconds_left(self, lease: Lease | None, now: float) -> float:
        """Return for how long the Lease as read at `now` is held unless it is renewed; 0.0 if it is not held.

        None: there is none. `now` is monotonic seconds.
        """
        self._state, action = observe(self._state, lease, identity="", terms=Terms(), now=now)
        return action.seconds if isinstance(action, Wait) else 0.0


def written(state: State, lease: Lease, *, sent_at: float, now: float, terms: Terms) -> State:
    """Apply the answer `lease` to our write of the Lease, sent at `sent_at`."""
    leads_until = sent_at + terms.renew_deadline
    return replace(state, observed=lease, observed_at=now, absent_since=None, leads_until=leads_until)


def lost(state: State) -> State:
    """Record that the Lease is no longer ours, or that we release it."""
    return replace(state, leads_until=None)


def _holds(lease: Lease, terms: Terms) -> float:
    # Of two configurations during an upgrade the longer one counts.
    return max(terms.duration, min(lease.duration, LONGEST_DURATION))
