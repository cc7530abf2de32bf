"""A queue in which addresses take turns, so that a crowd from one of them waits for itself. Thread-safe, no I/O."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by address: of one address in the order of arrival, of several one of each in turn.

    The API servers and whoever else reaches the port come from different addresses; behind a network that hides them
    all share one, and this is a plain queue.
    """

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}  # in the order in which the addresses are next
        self._lock = threading.Lock()

    def put(self, address: str, item: T) -> None:
        """Append an item."""
        with self._lock:
            self._items.setdefault(address, deque()).append(item)

    def take(self) -> T:
        """Remove and return the next item. Raises StopIteration when there is none."""
        with self._lock:
            address = next(iter(self._items))
            items = self._items.pop(address)
            item = items.popleft()
            if items:
                self._items[address] = items  # behind the others
            return item
