"""Limits how many reviews compute at once, and how many wait beside them.

More reviews that compute at once than the interpreter can run only make each other slower. A review that waits for
something (an object on its way into the cache, the ledger) computes nothing: it releases its slot and takes one of many
places for waiting reviews. Anybody who may create pods can make reviews wait; so the places are bounded, and one
namespace gets half of them. A review without a place does not wait and does without the object.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TURNS: Final = 4
PLACES: Final = 32  # a sleeping thread each


class ReviewSlots:
    """`count` slots for computing, granted in the order of requests, and `places` for reviews that wait without one."""

    def __init__(self, count: int = TURNS, *, places: int = PLACES) -> None:
        self.count = count
        self.places = places
        self._free = count
        self._queue: deque[threading.Lock] = deque()
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._mine = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a slot, and hold it."""
        self._acquire()
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            self._release()

    @contextmanager
    def released(self, namespace: str) -> Iterator[bool]:
        """Release the slot for a while; yield False if the caller must not wait, because no place is left.

        A namespace may use half of the places. At the end the slot is there again at once, since a deadline is near:
        the next review waits the longer. A caller without a slot must not wait at all.
        """
        if not getattr(self._mine, "held", False) or not self._take_place(namespace):
            yield False
            return
        self._release()
        try:
            yield True
        finally:
            with self._lock:
                self._free -= 1
                self._waiting[namespace] -= 1
                if not self._waiting[namespace]:
                    del self._waiting[namespace]

    def _acquire(self) -> None:
        with self._lock:
            if self._free > 0 and not self._queue:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        mine.acquire()

    def _release(self) -> None:
        with self._lock:
            self._free += 1
            if self._free > 0 and self._queue:
                self._free -= 1
                self._queue.popleft().release()

    def _take_place(self, namespace: str) -> bool:
        with self._lock:
            share = max(1, self.places // 2)
            if self._waiting.total() >= self.places or self._waiting[namespace] >= share:
                return False
            self._waiting[namespace] += 1
            return True
