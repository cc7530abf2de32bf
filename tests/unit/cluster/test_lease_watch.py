"""Whether somebody holds the Lease, for those who take no part in the election."""

from __future__ import annotations

from engine.cluster.election import Lease, LeaseWatch


def lease(version: str, holder: str = "one", duration: float = 8.0) -> Lease:
    return Lease(holder=holder, duration=duration, transitions=0, acquired="", uid="u", resource_version=version)


def test_a_lease_is_over_when_nobody_renews_it() -> None:
    """Seen unchanged for as long as it lasts, given back, or deleted."""
    watch = LeaseWatch()
    assert watch.seconds_left(lease("1"), 0.0) == 8.0
    assert watch.seconds_left(lease("1"), 7.5) == 0.5
    assert watch.seconds_left(lease("2"), 7.9) == 8.0
    assert watch.seconds_left(lease("2"), 15.9) == 0.0
    assert LeaseWatch().seconds_left(lease("1", holder=""), 0.0) == 0.0
    assert LeaseWatch().seconds_left(None, 0.0) == 0.0


def test_a_lease_that_is_given_back_ends_at_once() -> None:
    watch = LeaseWatch()
    assert watch.seconds_left(lease("1"), 0.0)
    assert watch.seconds_left(lease("2", holder=""), 1.0) == 0.0


def test_the_holder_of_a_deleted_lease_may_not_know_yet() -> None:
    """It trusts its last renewal for as long as the Lease lasted, as the other replicas assume."""
    watch = LeaseWatch()
    assert watch.seconds_left(lease("1"), 0.0)
    assert watch.seconds_left(None, 1.0) == 8.0
    assert watch.seconds_left(None, 9.0) == 0.0


def test_nobody_holds_a_lease_for_longer_than_five_minutes() -> None:
    assert LeaseWatch().seconds_left(lease("1", duration=1e9), 0.0) == 300.0
