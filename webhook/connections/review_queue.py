"""A queue in which addresses take turns, and the tenants of an address among themselves. Thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from webhook.connections.fair_queue import FairQueue

READ_AT_ONCE: Final = 32  # about the processor time of one review

T = TypeVar("T")


@dataclass(slots=True)
class _Line(Generic[T]):
    """The items of one address: those that wait to be read, and the others by tenant."""

    unread: deque[T] = field(default_factory=deque)
    read: FairQueue[T] = field(default_factory=FairQueue)


class ReviewQueue(Generic[T]):
    """Items by address and tenant: round robin between addresses, and in the turns of an address between its tenants.

    All reviews come from an API server's address, so it takes turns of tenants to keep the flood of one from delaying
    the others. Addresses come first because a client that bypasses the API server can name any tenant: it shares the
    turns of its own address among them.

    `read` returns the tenant of an item, or None for one that is dealt with and leaves the queue. It is called only
    where an address has several items, by one thread at a time, and in a turn of that address: what a crowd sends is
    read at the crowd's expense.
    """

    def __init__(self, read: Callable[[T], str | None]) -> None:
        self._read = read
        self._lines: dict[str, _Line[T]] = {}  # in the order of the addresses' turns
        self._lock = threading.Lock()  # never held while reading: the poller must be able to put
        self._taking = threading.Lock()

    def put(self, address: str, item: T) -> None:
        """Append an item."""
        with self._lock:
            line = self._lines.get(address)
            if line is None:
                line = self._lines[address] = _Line()
            line.unread.append(item)

    def take(self) -> T | None:
        """Remove at least one item, if there is any, and return the next; None if all that it removed are dealt with.

        So as many calls as there were items leave none.
        """
        with self._taking:
            with self._lock:
                if not self._lines:
                    return None
                address = next(iter(self._lines))
                line = self._lines[address]
                if len(line.unread) == 1 and line.read.empty:
                    del self._lines[address]
                    return line.unread[0]  # nobody to take turns with
                batch = [line.unread.popleft() for _ in range(min(len(line.unread), READ_AT_ONCE))]
            for item in batch:
                tenant = self._read(item)
                if tenant is not None:
                    line.read.put(tenant, item)
            taken = None if line.read.empty else line.read.take()
            with self._lock:
                del self._lines[address]
                if line.unread or not line.read.empty:
                    self._lines[address] = line  # at the end of the round
            return taken
