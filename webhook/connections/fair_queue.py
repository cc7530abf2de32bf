"""A queue in which addresses (or tenants) take turns, so that a crowd delays only itself. Thread-safe, no I/O."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by address: first in, first out within an address, round robin between addresses.

    The API servers and other clients of the port have different addresses. Behind a network that hides them all share
    one, and this is a plain queue.
    """

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}  # in the order of the addresses' turns
        self._lock = threading.Lock()

    def put(self, address: str, item: T) -> None:
        """Append an item."""
        with self._lock:
            self._items.setdefault(address, deque()).append(item)

    def take(self) -> T:
        """Remove and return the next item. Raises StopIteration if the queue is empty."""
        with self._lock:
            address = next(iter(self._items))
            items = self._items.pop(address)
            item = items.popleft()
            if items:
                self._items[address] = items  # at the end of the round
            return item

    @property
    def empty(self) -> bool:
        """Return True if there is no item."""
        return not self._items
