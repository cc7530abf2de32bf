"""One term of the leader: what it remembers of every gang, and which errands are under way. Lost with the term."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from engine import metrics
from engine.actions import Status
from engine.cache.state import View
from engine.cluster.client import ApiFault
from engine.cluster.lease import NotLeader
from engine.cluster.wire import ProjectionError
from engine.extension_queue import ExtensionQueue
from engine.lane import Lane
from engine.pace import Pace
from engine.rush import Rush
from engine.scheduler.fairness import ErrandLines
from engine.scheduler.outcome import Placed
from engine.scheduler.queue import Queue
from engine.scheduler.starvation import KeptRoom
from engine.timers import Timers
from engine.written import Outdated

log = logging.getLogger("topogate.controller")

# Errands at a time; each waits for the API server most of the time.
WRITERS: Final = 16
# A failed write is tried again after this long, doubling (seconds).
RETRY_FIRST: Final = 0.5
RETRY_MOST: Final = 30.0
# Texts that are brought up to date, of all gangs together: a write each, ten a second at most. So a hundred gangs are
# never more than ten seconds behind, and ten thousand cost the API server no more than they do.
TEXTS: Final = (10, 1.0)
# Plans that are made for their numbers alone, where it is clear that nothing fits.
PLANS_FOR_TEXTS: Final = (4, 1.0)


@dataclass(slots=True)
class Memory:
    """What the leader remembers of one gang; lost with the term."""

    namespace: str = ""  # of its workload; "" of what has none
    counts: bool = False  # among the gangs that its namespace may have
    timers: Timers = field(default_factory=Timers)
    facts: Placed | None = None
    told: Status | None = None
    told_at: float = float("-inf")
    waiting_since: str | None = None  # as the Placement says; it may be deleted by hand
    telling: tuple[float, Status] | None = None  # due, what
    told_pods: dict[str, str] = field(default_factory=dict)  # uid -> reason that its Event gave for being held
    refused: frozenset[str] = frozenset()  # uids of pods whose Event went out
    wake: float | None = None
    rests_until: float = float("-inf")  # its last look was dear: not before
    failures: int = 0
    own_trouble: bool = False  # it fits nowhere ever, or its namespace's quota does not take it

    def wake_at(self, when: float | None) -> None:
        """Have the gang looked at by then; None: it needs no look."""
        if when is not None:
            self.wake = when if self.wake is None else min(self.wake, when)

    def back_off(self, now: float) -> None:
        """Take in that something failed: it is tried again after a pause, and told again."""
        self.failures += 1
        self.wake = self.timers.retry_at = now + min(RETRY_FIRST * 2 ** min(self.failures - 1, 10), RETRY_MOST)
        self.told = None


class Term:
    """One thread decides with it; errands end in threads of the pool."""

    def __init__(
        self, view: View, pool: Executor, *, monotonic: Callable[[], float], fenced: Callable[[], None]
    ) -> None:
        """`fenced` is called when a write was stopped: the term in which it was decided is over."""
        self._view = view
        self._lines = ErrandLines(pool, writers=WRITERS)
        self._monotonic = monotonic
        self._fenced = fenced
        self.memory: dict[str, Memory] = {}
        self.counted: Counter[str] = Counter()  # gangs that count, by namespace
        self.told_beyond: set[str] = set()  # uids of workloads of which gangs do not count, for want of a place
        self.busy: set[str] = set()
        self.queue = Queue()
        self.parts = ExtensionQueue()
        self.room = KeptRoom()
        self.rush = Rush()
        self.pace = Pace()
        self.texts: Lane[Status] = Lane(batch=TEXTS[0], every=TEXTS[1])
        self.numbers: Lane[None] = Lane(batch=PLANS_FOR_TEXTS[0], every=PLANS_FOR_TEXTS[1])

    def of(self, key: str) -> Memory:
        """What is remembered of a gang, from now on."""
        return self.memory.setdefault(key, Memory())

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self.count(key, False)
        self.memory.pop(key, None)
        self.queue.drop(key)
        self.parts.drop(key)
        self.texts.drop(key)
        self.numbers.drop(key)

    def count(self, key: str, counts: bool) -> None:
        """Take in whether a gang is one of those that its namespace may have at a time."""
        memory = self.memory.get(key)
        if memory is not None and memory.counts != counts:
            memory.counts = counts
            self.counted[memory.namespace] += 1 if counts else -1

    def room_appeared(self) -> None:
        """All that wait for room are tried again."""
        self.queue.room = True
        self.parts.room()

    def guarded(self, key: str, now: float, step: Callable[[], None]) -> None:
        """Do one step for one gang: whatever it raises is that gang's trouble alone, and is tried again later."""
        try:
            step()
        except Exception:
            log.exception("a step for %s failed", key)
            metrics.controller_faults.inc()
            self.of(key).back_off(now)

    def send(self, key: str, errand: Callable[[], None]) -> None:
        """Run one errand when it is its namespace's turn; the gang is busy until it is done, then looked at again."""
        self.busy.add(key)
        memory = self.memory.get(key)

        def work() -> None:
            failed = False
            try:
                errand()
            except NotLeader:
                log.info("not the leader any more: a write was left undone")
                self._fenced()
            except Outdated as error:
                failed = True
                log.info("somebody was faster: %s", error)
            except (ApiFault, ProjectionError) as error:
                failed = True
                log.warning("a write failed and is tried again: %s", error)
            except Exception:
                failed = True
                log.exception("an errand failed")
                metrics.controller_faults.inc()
            finally:
                self._done(key, failed=failed)

        try:
            self._lines.submit(memory.namespace if memory is not None else "", work)
        except RuntimeError:  # the pool is shut down: we are stopping
            self.busy.discard(key)

    def _done(self, key: str, *, failed: bool) -> None:
        memory = self.memory.get(key)
        if memory is not None and failed:
            memory.back_off(self._monotonic())
        elif memory is not None:
            memory.failures = 0
        # In this order: nobody may look at a gang whose plan is still held without being written, and whoever looks
        # too early, while it counts as busy, is told once more.
        self._view.settle(key, failed=failed)
        self.busy.discard(key)
        if failed:
            self._view.changed.set()
        else:
            self._view.look_again(key)
