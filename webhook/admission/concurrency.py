"""Which reviews compute and which wait: a few turns at a time, and a bounded number of reviews that wait beside them.

More reviews that compute at once than the interpreter can run only make each other slower. A review that waits for
something (an object on its way into the cache, the ledger) computes nothing: it gives its turn back and holds no more
than one of many places for those who wait. Anybody who may create pods can make reviews wait; so the places are
bounded, and one namespace gets half of them. Who finds none does not wait: he goes without what he would have got.
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
    """`count` turns, handed on in the order of asking, and `places` for those who wait without one."""

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
        """Wait for a turn, and hold it."""
        self._take()
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            self._give_back()

    @contextmanager
    def aside(self, namespace: str) -> Iterator[bool]:
        """Give the turn back for a while. False: no place is left, or none for that namespace: then do not wait.

        The turn is there again at the end, at once, since a deadline is near: whoever comes next waits the longer. Who
        has no turn does not wait at all.
        """
        if not getattr(self._mine, "held", False) or not self._sit(namespace):
            yield False
            return
        self._give_back()
        try:
            yield True
        finally:
            with self._lock:
                self._free -= 1
                self._waiting[namespace] -= 1
                if not self._waiting[namespace]:
                    del self._waiting[namespace]

    def _take(self) -> None:
        with self._lock:
            if self._free > 0 and not self._queue:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        mine.acquire()

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1
            if self._free > 0 and self._queue:
                self._free -= 1
                self._queue.popleft().release()

    def _sit(self, namespace: str) -> bool:
        with self._lock:
            share = max(1, self.places // 2)
            if self._waiting.total() >= self.places or self._waiting[namespace] >= share:
                return False
            self._waiting[namespace] += 1
            return True
