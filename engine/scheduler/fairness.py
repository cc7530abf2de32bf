"""Fairness between namespaces: the order of their gangs, a share of a pass's time, and a queue of pending writes each.

Within a priority the gangs of the namespace that uses least go first, if the policy says so (`queue.fairness`): its
usage, bound or reserved, is divided by its weight. Its oldest gang is planned, then the usage is compared again. The
order follows from the current usage alone, so any replica can tell it. A gang that does not fit leaves the capacity to
the next one (`queue.order: best-effort`), or all others wait behind it (`strict`).

A namespace with thousands of writes keeps the writers as busy as before, but a write of another one waits for one
writer to become free, not for thousands of writes. Work beyond a namespace's share of time is done in later turns;
other namespaces do not wait for it.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Final, TypeVar

from engine.cache.state import ClusterState
from engine.capacity.quota import Usage
from engine.policy.namespaces import weight_of

Item = TypeVar("Item")


# The weighted usage of a namespace: GPUs (in percent of one), pods.
Share = tuple[float, float]
# The place of a gang in the queue, smaller goes first: minus its priority, the share of its namespace (NO_SHARE where
# that does not count), since when it waits (seconds since the epoch), namespace/name of its workload.
Turn = tuple[int, Share, float, str]
NO_SHARE: Final[Share] = (0.0, 0.0)


class WeightedUsage:
    """The usage of namespaces divided by their weights, as it is in one turn; `changes` counts changes of it."""

    def __init__(self, usage: Mapping[str, Usage], weight: Callable[[str], int]) -> None:
        self.changes = 0
        self._usage = dict(usage)
        self._weight = weight
        self._shares: dict[str, Share] = {}

    def share(self, namespace: str) -> Share:
        """Return the weighted usage of a namespace."""
        found = self._shares.get(namespace)
        if found is None:
            used, weight = self._usage.get(namespace, Usage()), self._weight(namespace)
            found = self._shares[namespace] = (used.gpus / weight, used.pods / weight)
        return found

    def update(self, usage: Mapping[str, Usage]) -> None:
        """Replace the usage of all namespaces."""
        self._usage = dict(usage)
        self._shares.clear()
        self.changes += 1

    def charge(self, namespace: str, more: Usage) -> None:
        """Add a gang's new slots to the usage of its namespace."""
        self._usage[namespace] = self._usage.get(namespace, Usage()) + more
        self._shares.pop(namespace, None)
        self.changes += 1


def weighted_usage(view: ClusterState) -> WeightedUsage | None:
    """Return the weighted usage of namespaces now; None where the policy orders gangs by age alone."""
    if view.policy.queue.fairness.mode == "none":
        return None
    return WeightedUsage(view.usage(), lambda namespace: weight_of(namespace, view.policy))


def turn_of(priority: int, since: float, name: str, usage: WeightedUsage | None) -> Turn:
    """Return the place of a gang (namespace/name) that has waited since a time."""
    return (-priority, usage.share(name.partition("/")[0]) if usage is not None else NO_SHARE, since, name)


def in_turns(items: Sequence[Item], turn: Callable[[Item], Turn], usage: WeightedUsage) -> Iterator[Item]:
    """Yield items, given by their turns, by the turns that they have when `usage` grows while this iterates."""
    began, place = usage.changes, 0
    while place < len(items) and usage.changes == began:
        yield items[place]
        place += 1
    # The first item was placed: from here on the first ones of the namespaces are compared at each step.
    lines: dict[tuple[int, str], deque[Item]] = {}
    for item in items[place:]:
        minus_priority, _, _, name = turn(item)
        lines.setdefault((minus_priority, name.partition("/")[0]), deque()).append(item)
    heap = [(turn(line[0]), space, line) for (_, space), line in lines.items()]
    heapq.heapify(heap)
    while heap:
        (_, share, _, _), space, line = heap[0]
        if share != usage.share(space):
            heapq.heapreplace(heap, (turn(line[0]), space, line))
            continue
        yield line.popleft()
        if line:
            heapq.heapreplace(heap, (turn(line[0]), space, line))
        else:
            heapq.heappop(heap)


class WriteLines:
    """Passes writes of all namespaces in turn to `pool`, at most `writers` at a time. Thread-safe."""

    def __init__(self, pool: Executor, *, writers: int) -> None:
        self._pool = pool
        self._free = writers
        self._lock = threading.Lock()
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()

    def submit(self, namespace: str, write: Callable[[], None]) -> None:
        """Run a write when it is its turn; it must not raise. Raises RuntimeError if the pool is shut down."""
        with self._lock:
            if self._free == 0:
                self._lines.setdefault(namespace, deque()).append(write)
                return
            self._free -= 1
        self._start(write)

    def _start(self, write: Callable[[], None]) -> None:
        def run() -> None:
            try:
                write()
            finally:
                self._writer_freed()

        try:
            self._pool.submit(run)
        except RuntimeError:
            with self._lock:
                self._free += 1
            raise

    def _writer_freed(self) -> None:
        with self._lock:
            if not self._lines:
                self._free += 1
                return
            namespace, line = self._lines.popitem(last=False)
            write = line.popleft()
            if line:
                self._lines[namespace] = line  # at the end of the round
        self._start(write)


# Seconds of a turn that all namespaces together have for one sort of work, and the minimum for each, however many there
# are. Reconciling a small gang takes some 0.1 ms, a plan 0.1 to 2 ms.
WHOLE: Final = 0.1
LEAST: Final = 0.01
# With more gangs than this the work takes several turns anyway. They are shorter: what comes during a turn waits for
# its end. With fewer, short turns would only cost more: every turn has its own.
MANY: Final = 1_000
SHORT: Final = 0.15


class Shares:
    """The shares of one pass; a namespace may start more work until it has used up its share.

    `due`: all gangs; `part`: of the share that there is for one sort of work.
    """

    def __init__(self, namespaces: Collection[str], clock: Callable[[], float], *, due: int, part: float = 1.0) -> None:
        whole = part * (SHORT if due > MANY else 1.0)
        self._share = whole * max(LEAST, WHOLE / max(1, len(namespaces)))
        self._clock = clock
        self._used: defaultdict[str, float] = defaultdict(float)

    def left(self, namespace: str) -> bool:
        """Return True while a namespace has used less than its share."""
        return self._used[namespace] < self._share

    @contextmanager
    def used_by(self, namespace: str) -> Iterator[None]:
        """Charge the namespace for the time inside."""
        began = self._clock()
        try:
            yield
        finally:
            self._used[namespace] += self._clock() - began
