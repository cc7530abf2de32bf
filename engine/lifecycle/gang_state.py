"""The leader's memory of one gang between reconciles; losing it at a fail-over only restarts waiting times."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from engine import metrics
from engine.api.names import AUTO
from engine.api.placement import FailedStarts
from engine.api.pod import Pod
from engine.api.reasons import Why
from engine.gang.request import PlacementRequest
from engine.history.record import GangName
from engine.lifecycle.actions import NodesNote, RestartProposal, Status
from engine.scheduler.outcome import Placed
from engine.scheduler.queue import QueuePlace

# Back-off of a host that the scheduler refused, per gang: doubles from the first value to the second (seconds).
EXCLUDE_FIRST = 60.0
EXCLUDE_MOST = 1800.0
# A pod that still exists after its eviction was requested is evicted again after this (seconds): a disruption budget
# may allow it later.
REMOVE_AGAIN = 30.0
# Seconds. A gang with a problem that other hosts do not solve is retried after this, which doubles from the first value
# to the second: with timeouts.bind of 30 s it holds slots for a third of the time at first, for a twentieth in the end.
PAUSE_FIRST = 60.0
PAUSE_MOST = 600.0


@dataclass(frozen=True, slots=True)
class WithdrawnPlan:
    """A plan that was withdrawn while no pod was released: its revision, why, and when (the leader's own clock)."""

    revision: int
    reason: Why
    since: float


@dataclass(slots=True)
class Timers:
    """The timers of one gang, all in seconds of the leader's own clock."""

    empty_since: float | None = None  # since when it is placed and resumed without a single pod
    resumed_since: float | None = None  # since when its workload, which has slots, is tried to be resumed
    expired: bool = False  # its slots were released because no pod appeared
    unbound_since: dict[str, float] = field(default_factory=dict)  # pod uid -> first seen released and unbound
    excluded_for: set[str] = field(default_factory=set)  # uids of late pods that had their host excluded
    excluded: dict[str, tuple[float, float]] = field(default_factory=dict)  # host -> (until, back-off)
    removed: dict[str, float] = field(default_factory=dict)  # pod uid -> time of the last eviction request
    gone_since: dict[str, float] = field(default_factory=dict)  # host of live pods -> since when the node is gone
    # rank on a lost host -> since when it is empty
    vacant_since: dict[tuple[str, int], float] = field(default_factory=dict)
    unready_since: dict[str, float] = field(default_factory=dict)  # uid of a pod that was ready -> since when it is not
    failed_revision: int = 0  # of the last failed start with hosts that are excluded here
    forgotten_revision: int = 0  # of the last failed start after which the user has intervened
    restarts: int = 0  # in a row, of a gang that was ready only for a short time before each
    restarted_revision: int = 0  # the assignment of the last one
    incomplete_since: float | None = None
    retry_at: float = 0.0  # not planned again before this
    last_pause: float = 0.0  # the last of the growing delays
    withdrawn: WithdrawnPlan | None = None  # the last one

    def given_back(self, now: float, *, rest: float, unused: WithdrawnPlan | None) -> None:
        """Restart the waiting times after the slots were released; the gang is not planned again for `rest` seconds.

        `unused`: the plan, if no pod was released by it.
        """
        self.withdrawn = unused or self.withdrawn
        self.empty_since = self.resumed_since = None
        self.unbound_since.clear()
        self.retry_at = now + rest

    def pause(self, now: float) -> None:
        """Delay the next plan of the gang, twice as long as the last time."""
        self.last_pause = min(max(PAUSE_FIRST, self.last_pause * 2), PAUSE_MOST)
        self.retry_at = now + self.last_pause

    def forget_pauses(self) -> None:
        """Reset the delays, because the problem is solved or a user has intervened."""
        self.last_pause = 0.0

    def exclude(self, host: str, now: float) -> None:
        """Exclude a host for a while, twice as long as the last time."""
        _, backoff = self.excluded.get(host, (0.0, EXCLUDE_FIRST / 2))
        backoff = min(backoff * 2, EXCLUDE_MOST)
        self.excluded[host] = (now + backoff, backoff)

    def failed_start(self, starts: FailedStarts, now: float, *, hosts: Iterable[str], retry_at: float) -> None:
        """Exclude the hosts of a failed start from the plan at `retry_at`, and for a while after it; at most once."""
        if self.failed_revision != starts.revision:
            self.failed_revision = starts.revision
            for host in hosts:
                self.exclude(host, max(now, retry_at))

    def restart(self, revision: int, *, lasted: bool) -> int:
        """Count the restart of a gang that does not recover, once for an assignment; return how many are in a row.

        `lasted`: it had been ready for long before, so that none of them counts any more, and this one neither.
        """
        if self.restarted_revision != revision:
            self.restarted_revision = revision
            self.restarts = 0 if lasted else self.restarts + 1
        return self.restarts

    def forget_failed_starts(self, starts: FailedStarts) -> None:
        """Let the hosts of failed starts count again; once, as they may be excluded for something else later."""
        self.restarts = 0
        if self.forgotten_revision != starts.revision:
            self.forgotten_revision = starts.revision
            for host in starts.hosts:
                self.excluded.pop(host, None)

    def turned_unready(self, since: Mapping[str, float]) -> float | None:
        """Record the pods (by uid) that are not ready, each with its own time; return the earliest.

        A pod that is ready in between for a moment only keeps its time.
        """
        for uid in self.unready_since.keys() - since.keys():
            del self.unready_since[uid]
        for uid, when in since.items():
            self.unready_since.setdefault(uid, when)
        return min(self.unready_since.values(), default=None)

    def exclude_host(self, pod: Pod, host: str | None, now: float) -> None:
        """Exclude the host of a pod that did not start in time from the next plan; at most once per pod."""
        if pod.uid not in self.excluded_for:
            self.excluded_for.add(pod.uid)
            if host is not None:
                self.exclude(host, now)

    def keep_excluded(self, host: str | None, now: float) -> None:
        """Exclude the host of a pod that still has not started for a while more, no longer than the first time."""
        until, backoff = self.excluded.get(host or "", (0.0, 0.0))
        if host is not None and until <= now:
            self.excluded[host] = (now + EXCLUDE_FIRST, backoff)

    def remove(self, pods: Iterable[Pod], now: float) -> tuple[Pod, ...]:
        """Return the pods to evict now, and record them: an eviction takes a while to show, and may be refused."""
        due = tuple(pod for pod in pods if now - self.removed.get(pod.uid, float("-inf")) >= REMOVE_AGAIN)
        self.removed = {uid: when for uid, when in self.removed.items() if now - when < REMOVE_AGAIN}
        self.removed |= {pod.uid: now for pod in due}
        return due

    def hosts_out(self, now: float) -> frozenset[str]:
        """Return the hosts that are excluded now."""
        return frozenset(host for host, (until, _) in self.excluded.items() if until > now)

    def next_back(self, now: float) -> float | None:
        """Return when the next excluded host counts again; None if none is excluded."""
        return min((until for until, _ in self.excluded.values() if until > now), default=None)

    def miss(self, vacant: Iterable[tuple[str, int]], now: float) -> None:
        """Record the ranks (pod set, rank) that have lost their host and have no pod now."""
        current = set(vacant)
        for rank in self.vacant_since.keys() - current:
            del self.vacant_since[rank]
        for rank in current:
            self.vacant_since.setdefault(rank, now)

    def age(self, unbound: Iterable[Pod], now: float) -> None:
        """Record the pods that are released and not bound now."""
        current = {pod.uid for pod in unbound}
        for uid in self.unbound_since.keys() - current:
            del self.unbound_since[uid]
        self.excluded_for &= current
        for uid in current:
            self.unbound_since.setdefault(uid, now)


# Upper bounds of the sizes of gangs in metrics, in pods.
SIZES: Final = (1, 8, 64, 512)
WaitOutcome = Literal["placed", "timed_out", "withdrawn"]


@dataclass(frozen=True, slots=True)
class QueuedWait:
    """The wait of a gang from the moment it was first queued, as the metrics count it; `since` is monotonic."""

    since: float
    level: str  # the required level, or `none`; `other` if the topology has no such level
    size: str

    @classmethod
    def of(cls, request: PlacementRequest, levels: Container[str], since: float) -> QueuedWait:
        """Return the wait of a gang; `levels` are those of its topology."""
        asked = [request.gang.require] if request.gang is not None else []
        asked += [one.require for one in request.pod_sets]
        level = next((one for one in asked if one), None)
        named = "none" if level is None else level if level == AUTO or level in levels else "other"
        return cls(since, named, size_class(request.count))

    def end(self, outcome: WaitOutcome, now: float) -> None:
        """Count the wait, which is over."""
        metrics.wait_seconds.labels(self.level, self.size, outcome).observe(max(0.0, now - self.since))


def size_class(pods: int) -> str:
    """Return the class of a gang's size in metrics: `1`, `2-8`, `9-64`, `65-512` or `>512`."""
    below = 0
    for most in SIZES:
        if pods <= most:
            return str(most) if below + 1 >= most else f"{below + 1}-{most}"
        below = most
    return f">{SIZES[-1]}"


# A failed write is tried again after this long, doubling (seconds).
RETRY_FIRST: Final = 0.5
RETRY_MOST: Final = 30.0


@dataclass(slots=True)
class GangState:
    """The leader's memory of one gang; lost with the term."""

    namespace: str = ""  # of its workload; "" if it has none
    name: GangName | None = None  # while it is managed
    counts: bool = False  # towards the limit of its namespace
    above_limit: tuple[str, str] | None = None  # namespace and uid of its workload, if it was above that limit ever
    timers: Timers = field(default_factory=Timers)
    last_plan: Placed | None = None
    reported: Status | None = None
    reported_at: float = float("-inf")
    current: Status | None = None  # of the last reconcile or plan, reported or not
    place: QueuePlace | None = None  # in the queue, as written last
    place_known: bool = False
    details: tuple[int, dict[str, Any]] | None = None  # numbers written last, and the generation that they were for
    lacks: Why = ""  # why its last plan found no slots; its status may tell of the hosts that are kept for it instead
    planned_on: tuple[int, int] | None = None  # version of the capacity that its last plan has seen
    waiting_since: str | None = None  # copied from the Placement, which may be deleted by hand
    wait: QueuedWait | None = None  # while it is queued
    requeues: int | None = None  # counted in its status, as far as is known here
    requeue_told_at: float = float("-inf")  # when an Event last reported that it was requeued
    pending_status: tuple[float, Status] | None = None  # when due, status
    due_since: float | None = None  # since when its status is due, while that waits for the end of a burst
    reason_due: tuple[float, str] | None = None  # when a reason is due that the first status has left out, and which
    failed_pods: str | None = None  # the sentence about failed pods in a status about missing ones; None: not read yet
    failed_pods_for: str = ""  # the message that they were read for
    reported_pods: dict[str, str] = field(default_factory=dict)  # uid -> reason for holding it in its Event
    refused: frozenset[str] = frozenset()  # uids of pods that had their Event
    nodes: NodesNote | None = None  # of the request for nodes that was made for it
    restarts: RestartProposal | None = None  # with which it would fit, as far as was found
    restarts_reported: bool | None = None  # whether an Event has reported that since it waits; None: not known
    plain_status: Status | None = None  # reported last, without these
    nodes_reported: tuple[str, str] | None = None  # name and state of the request that had an Event last
    nodes_unwanted_since: float | None = None  # since when it waits for something else while it has a request
    wake: float | None = None
    rests_until: float = float("-inf")  # not reconciled before, because the last time was expensive
    failures: int = 0
    unschedulable_alone: bool = False  # never fits, or exceeds its namespace's quota: waiting for others will not help

    def end_wait(self, outcome: WaitOutcome, now: float) -> None:
        """Count the wait of the gang as over, if it was queued."""
        if self.wait is not None:
            self.wait.end(outcome, now)
            self.wait = None

    def wake_at(self, when: float | None) -> None:
        """Schedule a reconcile of the gang by then; None: none is needed."""
        if when is not None:
            self.wake = when if self.wake is None else min(self.wake, when)

    def back_off(self, now: float) -> None:
        """Record a failure: retry after a delay, and report the status again. A pause that lasts longer goes on."""
        self.failures += 1
        self.wake = now + min(RETRY_FIRST * 2 ** min(self.failures - 1, 10), RETRY_MOST)
        self.timers.retry_at = max(self.timers.retry_at, self.wake)
        self.reported = self.details = None
        self.place_known = False
