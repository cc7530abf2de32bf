"""One leader term: the state of every gang, the writes in progress, and the rate at which status is written.

Updating a text is worth a write, and its numbers are worth a plan, but neither may delay a gang that could start, nor
other clients of the API server. So however many gangs wait, only a fixed number of them per period is served; those due
for longest go first.

Reporting costs three writes a gang (a Placement, a status, an Event). A namespace that brings thousands would keep the
writers and the API server busy while gangs of others could start.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, Generic, TypeVar

from engine import metrics
from engine.api.workload import GangKey
from engine.cache.state import ClusterState
from engine.capacity.counts import add
from engine.cluster.client import ApiFault
from engine.cluster.lease import NotLeader
from engine.controller.extension_queue import ExtensionQueue
from engine.controller.writer import StaleObject
from engine.decoding.wire import ProjectionError
from engine.lifecycle.actions import Status
from engine.lifecycle.gang_state import GangState
from engine.lifecycle.status import BurstDetector
from engine.scheduler.fairness import WriteLines
from engine.scheduler.queue import GangQueue
from engine.scheduler.starvation import Nomination, Nominator

T = TypeVar("T")


class DeferredQueue(Generic[T]):
    """A queue with one item per gang, the latest, that releases at most `batch` gangs in `every` seconds."""

    def __init__(self, *, batch: int, every: float) -> None:
        self._batch = batch
        self._every = every
        self._waiting: dict[GangKey, tuple[float, T]] = {}
        self._opens = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: GangKey, item: T, *, due: float) -> None:
        """Add or replace the item of a gang; a replaced one keeps its place."""
        known = self._waiting.get(key)
        self._waiting[key] = (due if known is None else min(due, known[0]), item)

    def drop(self, key: GangKey) -> None:
        """Remove the item of a gang."""
        self._waiting.pop(key, None)

    def take(self, now: float, *, busy: Container[GangKey]) -> list[tuple[GangKey, T]]:
        """Remove and return the items that are due, as many as the rate allows; those of `busy` gangs wait."""
        if now < self._opens:
            return []
        ready = sorted((due, key) for key, (due, _) in self._waiting.items() if due <= now and key not in busy)
        taken = [(key, self._waiting.pop(key)[1]) for _, key in ready[: self._batch]]
        if taken:
            self._opens = now + self._every
        return taken

    def next(self, *, busy: Container[GangKey]) -> float | None:
        """Return when `take` should be called next; None if no gang waits that is not busy."""
        times = [due for key, (due, _) in self._waiting.items() if key not in busy]
        return max(self._opens, min(times)) if times else None


BURST: Final = 100.0
EACH_SECOND: Final = 20.0


class RateLimiter:
    """Limits reports by namespace: each counts for as long as it takes to be allowed again."""

    def __init__(self) -> None:
        self._ahead: dict[str, float] = {}  # until when earlier reports count

    def __len__(self) -> int:
        """Return how many namespaces are tracked."""
        return len(self._ahead)

    def wait(self, namespace: str, now: float) -> float:
        """Count one more report and return 0, or return in how many seconds the next is allowed."""
        if len(self._ahead) > BURST:
            self._ahead = {name: until for name, until in self._ahead.items() if until > now}
        until = max(self._ahead.get(namespace, now), now)
        late = until - now - (BURST - 1) / EACH_SECOND
        if late > 0:
            return late
        self._ahead[namespace] = until + 1 / EACH_SECOND
        return 0.0


class SearchPace:
    """Spaces searches, of which each makes many plans while nothing else is decided.

    After one, `rest` times its duration belong to everything else, and at least `least` seconds.
    """

    def __init__(self, monotonic: Callable[[], float], *, rest: float, least: float = 0.0) -> None:
        self.opens = float("-inf")
        self._monotonic = monotonic
        self._rest = rest
        self._least = least

    def run(self, search: Callable[[], None]) -> None:
        """Run one search, and note when the next one may begin."""
        began = self._monotonic()
        search()
        ended = self._monotonic()
        self.opens = ended + max(self._least, self._rest * (ended - began))


log = logging.getLogger("topogate.controller")

# Concurrent actions; each waits for the API server most of the time.
WRITERS: Final = 16
# Text updates of all gangs together: a write each, ten a second at most. So the texts of a hundred gangs are never more
# than ten seconds old, and ten thousand gangs cost the API server no more than a hundred.
TEXTS: Final = (10, 1.0)
# Plans that are made only for their numbers, as it is clear that the gang does not fit.
PLANS_FOR_TEXTS: Final = (4, 1.0)
# Writes for nothing but another place in the queue, at most four a second: when a gang leaves, all behind it move up.
PLACES: Final = (4, 1.0)


class LeaderTerm:
    """The state of one term. One thread decides with it; actions end in threads of the pool."""

    def __init__(
        self, view: ClusterState, pool: Executor, *, monotonic: Callable[[], float], fenced: Callable[[], None]
    ) -> None:
        """Take `fenced`, which is called when a write was stopped because its term is over."""
        self._view = view
        self._lines = WriteLines(pool, writers=WRITERS)
        self._monotonic = monotonic
        self._fenced = fenced
        self.gang_state: dict[GangKey, GangState] = {}
        self.counted: Counter[str] = Counter()  # gangs that count towards the limit, by namespace
        # Namespace and uid of a workload (none of gangs of pods) -> its gangs above the limit, ever.
        self.limit_reported: dict[tuple[str, str], set[GangKey]] = {}
        self.busy: set[GangKey] = set()
        self.queue = GangQueue()
        self.extensions = ExtensionQueue()
        self.nominator = Nominator()
        self.preempting: dict[GangKey, Nomination] = {}  # the hosts of gangs for which others end
        self.moving: dict[GangKey, Nomination] = {}  # the new hosts of gangs that restart elsewhere for another one
        self.bursts = BurstDetector()
        self.report_limiter = RateLimiter()
        self.texts: DeferredQueue[Status] = DeferredQueue(batch=TEXTS[0], every=TEXTS[1])
        self.places: DeferredQueue[None] = DeferredQueue(batch=PLACES[0], every=PLACES[1])
        self.numbers: DeferredQueue[None] = DeferredQueue(batch=PLANS_FOR_TEXTS[0], every=PLANS_FOR_TEXTS[1])

    def of(self, key: GangKey) -> GangState:
        """Return the state of a gang, created if it is new."""
        found = self.gang_state.get(key)  # `setdefault` would make a new one at every call
        if found is None:
            found = self.gang_state[key] = GangState()
        return found

    def first_in_queue(self, keys: Iterable[GangKey]) -> GangKey | None:
        """Return the gang that goes first of these; None if there is none."""
        return min(keys, key=lambda key: self.queue.turn(key) or (), default=None)

    def nominations_before(self, key: GangKey, priority: int) -> list[Nomination]:
        """Return the nominations that a gang must respect: those of others with no lower priority."""
        kept = (*self.preempting.values(), *self.moving.values())
        # The plan in which others move for this gang has a place for them: it leaves them that at any priority.
        others = (one for one in kept if one.key != key and (one.priority >= priority or one.moves_for == key))
        return [*self.nominator.before(key, priority), *others]

    def blocks(self, key: GangKey) -> bool:
        """Return True if a gang waits for capacity; one with a problem for its users to correct blocks no other."""
        gang_state = self.gang_state.get(key)
        return gang_state is None or not gang_state.unschedulable_alone

    def forget(self, key: GangKey) -> None:
        """Remove a deleted gang."""
        self.count(key, False)
        if (gang_state := self.gang_state.pop(key, None)) is not None:
            gang_state.end_wait("withdrawn", self._monotonic())
            of = gang_state.above_limit
            if of is not None and (above := self.limit_reported.get(of)):
                above.discard(key)
                if not above:
                    del self.limit_reported[of]
        self.queue.drop(key)
        self.extensions.drop(key)
        self.preempting.pop(key, None)
        self.moving.pop(key, None)
        self.texts.drop(key)
        self.places.drop(key)
        self.numbers.drop(key)

    def count(self, key: GangKey, counts: bool) -> None:
        """Record whether a gang counts towards the limit of its namespace."""
        gang_state = self.gang_state.get(key)
        if gang_state is not None and gang_state.counts != counts:
            gang_state.counts = counts
            add(self.counted, gang_state.namespace, 1 if counts else -1)

    def retry_waiting(self) -> None:
        """Have all waiting gangs and extensions planned again."""
        self.queue.capacity_freed = True
        self.extensions.retry_all()

    def guarded(self, key: GangKey, now: float, step: Callable[[], None]) -> None:
        """Run one step for one gang: an exception is logged, affects only that gang, and the step is retried later."""
        try:
            step()
        except Exception:
            log.exception("an action for %s failed", key)
            metrics.controller_faults.inc()
            self.of(key).back_off(now)

    def send(self, key: GangKey, action: Callable[[], None], *, also: Iterable[GangKey] = ()) -> None:
        """Run one action in its namespace's turn; the gang is busy until it is done, then reconciled again.

        `also`: further gangs that the action is about.
        """
        keys = (key, *also)
        self.busy.update(keys)
        gang_state = self.gang_state.get(key)
        try:
            self._lines.submit(
                gang_state.namespace if gang_state is not None else "",
                lambda: self._done(keys, failed=self._fails(action)),
            )
        except RuntimeError:  # the pool is shut down: we are stopping
            self.busy.difference_update(keys)

    def send_for_orphan(self, action: Callable[[], None]) -> None:
        """Run one action for a pod without a gang."""

        def work() -> None:
            self._fails(action)
            self._view.changed.set()

        with suppress(RuntimeError):  # the pool is shut down: we are stopping
            self._lines.submit("", work)

    def _fails(self, action: Callable[[], None]) -> bool:
        """Run an action; return whether it failed. Faults are logged; a write that comes after the term is none."""
        try:
            action()
        except NotLeader:
            log.info("no longer the leader: a write was skipped")
            self._fenced()
            return False
        except StaleObject as error:
            log.info("a newer version exists, reconciling again: %s", error)
        except (ApiFault, ProjectionError) as error:
            log.warning("a write failed and is tried again: %s", error)
        except Exception:
            log.exception("an action failed")
            metrics.controller_faults.inc()
        else:
            return False
        return True

    def _done(self, keys: Sequence[GangKey], *, failed: bool) -> None:
        for key in keys:
            gang_state = self.gang_state.get(key)
            if gang_state is not None and failed:
                gang_state.back_off(self._monotonic())
            elif gang_state is not None:
                gang_state.failures = 0
        # In this order: a gang must not be reconciled while its plan is assumed without being written, and a change
        # that comes too early, while the gang is busy, is signalled once more.
        try:
            for key in keys:
                self._view.confirm(key, failed=failed)
        finally:
            self.busy.difference_update(keys)  # whatever happens: no term begins while a gang is busy
        for key in keys:
            # One that is not known here has no back-off: new pods may have taken the name of a gang that was gone.
            if not failed or key not in self.gang_state:
                self._view.reconsider(key)
        self._view.changed.set()
