"""Several collections as one store: each kind has its own list and watch, readers look through all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from engine.cluster.store import EventType, Store, Subscriber


class Keyed(Protocol):
    """A record with a key whose first two parts are the group and the kind."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


R = TypeVar("R", bound=Keyed)


class Parts(Generic[R]):
    """One `Store` for each group and kind, indexed by uid, with the reading and writing side of a single store.

    Changes are told in order within a kind; between kinds there is no order, as between watches.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Store[R]] = {}
        self._subscribers: list[Subscriber[R]] = []
        self._lock = threading.Lock()

    def part(self, group: str, kind: str) -> Store[R]:
        """Return the store of one kind, made when it is first asked for."""
        with self._lock:
            found = self._parts.get((group, kind))
            if found is None:
                found = Store(key=_key, index=_uid)
                for callback in self._subscribers:
                    found.subscribe(callback)
                self._parts[(group, kind)] = found
            return found

    def __len__(self) -> int:
        return sum(len(part) for part in self._all())

    def get(self, key: tuple[str, str, str, str]) -> R | None:
        """Return the record of a key, or None."""
        part = self._parts.get(key[:2])
        return part.get(key) if part is not None else None

    def values(self) -> list[R]:
        """Return all records, those of each kind at one moment."""
        return [record for part in self._all() for record in part.values()]

    def get_by(self, uid: Hashable) -> list[R]:
        """Return the records of a uid."""
        return [record for part in self._all() if len(part) for record in part.get_by(uid)]

    def subscribe(self, callback: Subscriber[R]) -> None:
        """Call `callback` for every change from now on, of kinds that come later too."""
        with self._lock:
            self._subscribers.append(callback)
            for part in self._parts.values():
                part.subscribe(callback)

    def replace(self, items: Iterable[R], *, resource_version: str = "") -> None:
        """Take all records of all kinds at once: what is not among them is deleted."""
        by_part: dict[tuple[str, str], list[R]] = {key: [] for key in list(self._parts)}
        for record in items:
            by_part.setdefault(record.key[:2], []).append(record)
        for (group, kind), records in by_part.items():
            self.part(group, kind).replace(records, resource_version=resource_version)

    def apply(self, event: EventType, record: R) -> None:
        """Take one watch event (`Store.apply`)."""
        self.part(*record.key[:2]).apply(event, record)

    def apply_own_write(self, record: R) -> None:
        """Take what a write of ours answered (`Store.apply_own_write`)."""
        self.part(*record.key[:2]).apply_own_write(record)

    def wait_told(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until subscribers know every change made so far."""
        end = time.monotonic() + timeout
        return all(part.wait_told(max(0.0, end - time.monotonic())) for part in self._all())

    def _all(self) -> list[Store[R]]:
        return list(self._parts.values())


def _key(record: Keyed) -> Hashable:
    return record.key


def _uid(record: Keyed) -> Hashable | None:
    return record.uid or None
