"""What the leader remembers of a gang between two reconciles. Losing it at a fail-over only restarts a waiting time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from engine.api.pod import Pod
from engine.controller.actions import Status
from engine.scheduler.outcome import Placed

# Back-off of a host that the scheduler refused, per gang: doubles from the first value to the second (seconds).
EXCLUDE_FIRST = 60.0
EXCLUDE_MOST = 1800.0
# A pod that was asked to go, and is there as ever, is asked again after this (seconds): a disruption budget allows it
# later perhaps.
REMOVE_AGAIN = 30.0
# A gang whose trouble no other host ends is let try again after this, which doubles from the first value to the second
# (seconds): with timeouts.bind of 30 s it holds room for a third of the time at first, for a twentieth in the end.
PAUSE_FIRST = 60.0
PAUSE_MOST = 600.0


@dataclass(slots=True)
class Timers:
    """All times from the leader's own clock (seconds)."""

    empty_since: float | None = None  # since when it is placed and not suspended, without a single pod
    expired: bool = False  # its slots went back because no pod appeared
    unbound_since: dict[str, float] = field(default_factory=dict)  # pod uid -> first seen released and unbound
    blamed: set[str] = field(default_factory=set)  # uids of the late pods whose hosts are left out on their account
    excluded: dict[str, tuple[float, float]] = field(default_factory=dict)  # host -> (until, back-off)
    removed: dict[str, float] = field(default_factory=dict)  # pod uid -> when it was last asked to go
    gone_since: dict[str, float] = field(default_factory=dict)  # host of live pods -> since when there is no such node
    vacant_since: dict[tuple[str, int], float] = field(default_factory=dict)  # rank on a lost host -> without any pod
    incomplete_since: float | None = None
    retry_at: float = 0.0  # not planned again before this
    last_pause: float = 0.0  # of those that grow

    def given_back(self, now: float, *, rest: float) -> None:
        """Start the waiting times afresh, as the slots are given back; not planned again for `rest` seconds."""
        self.empty_since = None
        self.unbound_since.clear()
        self.retry_at = now + rest

    def pause(self, now: float) -> None:
        """Have the gang planned again after a pause, twice as long as the last time."""
        self.last_pause = min(max(PAUSE_FIRST, self.last_pause * 2), PAUSE_MOST)
        self.retry_at = now + self.last_pause

    def forget_pauses(self) -> None:
        """The trouble is over, or somebody says so."""
        self.last_pause = 0.0

    def exclude(self, host: str, now: float) -> None:
        """Leave a host out for a while, twice as long as the last time."""
        _, backoff = self.excluded.get(host, (0.0, EXCLUDE_FIRST / 2))
        backoff = min(backoff * 2, EXCLUDE_MOST)
        self.excluded[host] = (now + backoff, backoff)

    def exclude_host(self, pod: Pod, host: str | None, now: float) -> None:
        """Leave the host of a late pod out, once for each pod."""
        if pod.uid not in self.blamed:
            self.blamed.add(pod.uid)
            if host is not None:
                self.exclude(host, now)

    def remove(self, pods: Iterable[Pod], now: float) -> tuple[Pod, ...]:
        """Those of these pods that are to be asked to go now: a request takes a while to show, and may be refused."""
        due = tuple(pod for pod in pods if now - self.removed.get(pod.uid, float("-inf")) >= REMOVE_AGAIN)
        self.removed |= {pod.uid: now for pod in due}
        return due

    def hosts_out(self, now: float) -> frozenset[str]:
        """Hosts that are left out at the moment."""
        return frozenset(host for host, (until, _) in self.excluded.items() if until > now)

    def next_back(self, now: float) -> float | None:
        """When the next of these hosts counts again; None when none is left out."""
        return min((until for until, _ in self.excluded.values() if until > now), default=None)

    def miss(self, vacant: Iterable[tuple[str, int]], now: float) -> None:
        """Take in which ranks (pod set, rank) have lost their host and have no pod at this moment."""
        current = set(vacant)
        for rank in self.vacant_since.keys() - current:
            del self.vacant_since[rank]
        for rank in current:
            self.vacant_since.setdefault(rank, now)

    def age(self, unbound: Iterable[Pod], now: float) -> None:
        """Take in which pods are released and not bound at this moment."""
        current = {pod.uid for pod in unbound}
        for uid in self.unbound_since.keys() - current:
            del self.unbound_since[uid]
        self.blamed &= current
        for uid in current:
            self.unbound_since.setdefault(uid, now)


# A failed write is tried again after this long, doubling (seconds).
RETRY_FIRST: Final = 0.5
RETRY_MOST: Final = 30.0


@dataclass(slots=True)
class GangState:
    """What the leader remembers of one gang; lost with the term."""

    namespace: str = ""  # of its workload; "" of what has none
    counts: bool = False  # among the gangs that its namespace may have
    timers: Timers = field(default_factory=Timers)
    last_plan: Placed | None = None
    reported: Status | None = None
    reported_at: float = float("-inf")
    waiting_since: str | None = None  # as the Placement says; it may be deleted by hand
    pending_status: tuple[float, Status] | None = None  # due, what
    reported_pods: dict[str, str] = field(default_factory=dict)  # uid -> reason that its Event gave for being held
    refused: frozenset[str] = frozenset()  # uids of pods whose Event went out
    wake: float | None = None
    rests_until: float = float("-inf")  # its last look was dear: not before
    failures: int = 0
    unschedulable_alone: bool = False  # it fits nowhere ever, or its namespace's quota does not take it

    def wake_at(self, when: float | None) -> None:
        """Have the gang looked at by then; None: it needs no look."""
        if when is not None:
            self.wake = when if self.wake is None else min(self.wake, when)

    def back_off(self, now: float) -> None:
        """Take in that something failed: it is tried again after a pause, and told again."""
        self.failures += 1
        self.wake = self.timers.retry_at = now + min(RETRY_FIRST * 2 ** min(self.failures - 1, 10), RETRY_MOST)
        self.reported = None
