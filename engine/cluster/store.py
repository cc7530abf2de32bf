"""Thread-safe stores of watched records: by key, with an index and subscribers; one collection or several as one.

The reflector writes, all threads read. What a write of ours answered goes in at once (`apply_own_write`), so that the
next decision sees it, and an older watch event that arrives later does not take it back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

R = TypeVar("R")
EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Subscriber = Callable[[Hashable, R | None, R | None], None]

# Uids of deleted objects kept to refuse the late answer of a write; a write is answered within 30 s.
TOMBSTONES: Final = 8192

_log = logging.getLogger(__name__)


class Store(Generic[R]):
    """The records of one collection; every method may be called from any thread.

    `key` gives the record's key. `index` gives a second value to look records up by (None: not indexed), and `finer`
    another one, which no record has as its first.
    Subscribers get (key, old, new), old None for a new object and new None for a deleted one, once per change and in
    order, outside the lock: a subscriber may read and write the store. Another thread may be running them when the
    call that made the change returns. An exception in a subscriber is logged and goes no further.
    """

    def __init__(
        self,
        key: Callable[[R], Hashable],
        *,
        index: Callable[[R], Hashable | None] | None = None,
        finer: Callable[[R], Hashable | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._indexes = tuple(one for one in (index, finer) if one is not None)
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._items: dict[Hashable, R] = {}
        self._by_index: dict[Hashable, dict[Hashable, R]] = {}
        self._subscribers: list[Subscriber[R]] = []
        self._outbox: deque[tuple[Hashable, R | None, R | None]] = deque()
        self._queued_count = 0  # changes put into the outbox
        self._delivered_count = 0  # changes that every subscriber has received
        self._delivering = threading.Lock()
        self._own: dict[Hashable, int] = {}  # our writes that the watch has not confirmed: key -> resourceVersion
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._seen = -1
        self._synced = False
        self._last_event: float | None = None

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Hashable) -> R | None:
        """Return the record of a key, or None."""
        return self._items.get(key)

    def values(self) -> list[R]:
        """Return all records at this moment."""
        with self._changed:
            return list(self._items.values())

    def get_by(self, value: Hashable) -> list[R]:
        """Return the records with this index value."""
        with self._changed:
            return list(self._by_index.get(value, {}).values())

    def by_version(self) -> dict[tuple[str, str] | None, R]:
        """Return the records of objects with a uid and a version, by both: each is one state of one object."""
        versions = ((_uid(record), _version(record), record) for record in self.values())
        return {(uid, version): record for uid, version, record in versions if uid and version}

    def subscribe(self, callback: Subscriber[R]) -> None:
        """Call `callback` for every change from now on."""
        with self._changed:
            self._subscribers.append(callback)

    @property
    def synced(self) -> bool:
        """True once a whole list has been applied; stays true when the watch breaks (see `age`)."""
        return self._synced

    @property
    def age(self) -> float:
        """Seconds since the last message of the watch; infinite before the first list."""
        return float("inf") if self._last_event is None else max(0.0, self._clock() - self._last_event)

    @property
    def seen(self) -> int:
        """The newest resourceVersion up to which this store is complete; -1 when unknown."""
        return self._seen

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the first whole list, and until subscribers know it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._synced and self._delivered_count >= self._queued_count, timeout)

    def wait_seen(self, version: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds until every change up to `version` is applied, and subscribers know it."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._seen >= version and self._delivered_count >= self._queued_count, timeout
            )

    def replace(self, items: Iterable[R], *, resource_version: str = "", anew: bool = False) -> None:
        """Apply a whole list at once: objects not in it are deleted, except own writes that are newer than the list.

        `anew`: records are made in another way than before, and may differ although the objects do not.
        """
        fresh = {self._key(record): record for record in items}
        version = version_number(resource_version)
        with self._changed:
            if version is not None and version < self._seen:
                # Time went back (a restored etcd): none of our writes can be trusted any more.
                self._own.clear()
            for key, written in list(self._own.items()):
                if version is None or written <= version:
                    del self._own[key]
                elif (known := self._items.get(key)) is not None and _uid(known) not in self._tombstones:
                    fresh[key] = known
            for key, record in self._items.items():
                if key not in fresh:
                    self._add_tombstone(record)
                    self._queue_change((key, record, None))
            for key, record in fresh.items():
                before = self._items.get(key)
                if before is not None and (before == record if anew else _same(before, record)):
                    fresh[key] = before
                else:
                    self._queue_change((key, before, record))
            if self._tombstones:
                for record in fresh.values():
                    self._tombstones.pop(_uid(record), None)  # it came back into the selection
            self._items = fresh
            self._by_index = {}
            for key, record in fresh.items():
                self._add_to_index(key, record)
            self._synced = True
            self._seen = -1 if version is None else version
            self._note_event()
        self._deliver()

    def apply(self, event: EventType, record: R) -> None:
        """Apply one watch event; an ADDED or MODIFIED older than the stored version of the object is dropped.

        A stored record of another object of that name counts only when we wrote it ourselves: else the watch is right.
        """
        key = self._key(record)
        version = version_number(_version(record))
        with self._changed:
            self._note_event()
            if version is not None:
                self._seen = max(self._seen, version)
            before = self._items.get(key)
            if event == "DELETED":
                # Also without a record of it: the answer of a write may still be on its way.
                self._add_tombstone(record)
                if before is not None and _uid(before) == _uid(record):
                    self._take_out(key, before)
            else:
                self._tombstones.pop(_uid(record), None)
                comparable = before is not None and (key in self._own or _uid(before) == _uid(record))
                if before is None or not (comparable and _older(version, before)):
                    self._own.pop(key, None)
                    self._put(key, before, record)
        self._deliver()

    def apply_own_write(self, record: R) -> None:
        """Apply the answer to a write of ours, unless the watch has shown a newer version or the deletion."""
        key = self._key(record)
        version = version_number(_version(record))
        with self._changed:
            before = self._items.get(key)
            if _uid(record) in self._tombstones or (
                before is not None and (_same(before, record) or _older(version, before))
            ):
                return
            if version is not None and version > self._seen:
                self._own[key] = version
            elif before is None and version is not None:
                # The watch is past this version and does not know the object: it is gone, or outside of the selector.
                return
            self._put(key, before, record)
        self._deliver()

    def discard(self, namespace: str, name: str) -> None:
        """Remove the record of an object that can no longer be read (searches all records)."""
        with self._changed:
            self._note_event()
            for key, record in self._items.items():
                if getattr(record, "name", None) == name and getattr(record, "namespace", "") == namespace:
                    self._take_out(key, record)
                    break
        self._deliver()

    def bookmark(self, resource_version: str) -> None:
        """Record that every change up to this version has arrived.

        A write of ours up to it that the watch never showed is outside of the watch's selector: it is removed.
        """
        version = version_number(resource_version)
        with self._changed:
            self._note_event()
            if version is not None:
                self._seen = max(self._seen, version)
                for key in [key for key, written in self._own.items() if written <= version]:
                    if (record := self._items.get(key)) is not None:
                        self._take_out(key, record)
        self._deliver()

    def confirm(self, versions: AbstractSet[tuple[str, str]], resource_version: str) -> bool:
        """Confirm that a list of this version had exactly the stored objects, by uid and version of their own.

        False, and nothing is recorded, when the store holds others. So a quiet collection is known to be unchanged
        without a whole list being applied.
        """
        version = version_number(resource_version)
        with self._changed:
            held = {(_uid(record), _version(record)) for record in self._items.values()}
            if version is None or held != versions or len(held) != len(self._items):
                return False
            self._note_event()
            self._seen = max(self._seen, version)
            for key in [key for key, written in self._own.items() if written <= version]:
                del self._own[key]
        return True

    def wait_delivered(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until subscribers know every change made so far; not for use in one of them."""
        with self._changed:
            queued = self._queued_count
            return self._changed.wait_for(lambda: self._delivered_count >= queued, timeout)

    def _queue_change(self, change: tuple[Hashable, R | None, R | None]) -> None:
        self._queued_count += 1
        self._outbox.append(change)

    def _note_event(self) -> None:
        self._last_event = self._clock()
        self._changed.notify_all()

    def _put(self, key: Hashable, before: R | None, record: R) -> None:
        if before is not None:
            self._remove_from_index(key, before)
        self._items[key] = record
        self._add_to_index(key, record)
        if before is None or not _same(before, record):
            self._queue_change((key, before, record))

    def _take_out(self, key: Hashable, record: R) -> None:
        self._own.pop(key, None)
        self._remove_from_index(key, record)
        del self._items[key]
        self._queue_change((key, record, None))

    def _add_tombstone(self, record: R) -> None:
        if uid := _uid(record):
            self._tombstones[uid] = None
            while len(self._tombstones) > TOMBSTONES:
                self._tombstones.popitem(last=False)

    def _add_to_index(self, key: Hashable, record: R) -> None:
        for index in self._indexes:
            if (value := index(record)) is not None:
                self._by_index.setdefault(value, {})[key] = record

    def _remove_from_index(self, key: Hashable, record: R) -> None:
        for index in self._indexes:
            if (value := index(record)) is not None:
                bucket = self._by_index[value]
                del bucket[key]
                if not bucket:
                    del self._by_index[value]

    def _deliver(self) -> None:
        # One thread at a time empties the outbox. A thread that finds it busy leaves its change to that one, which
        # checks again after letting go: order is kept, no thread waits, and a subscriber may write without deadlock.
        while self._outbox and self._delivering.acquire(blocking=False):
            try:
                while self._outbox:
                    change = self._outbox.popleft()
                    for callback in tuple(self._subscribers):
                        try:
                            callback(*change)
                        except Exception:
                            _log.exception("a subscriber failed on %s", change[0])
                    self._delivered_count += 1
            finally:
                self._delivering.release()
                with self._changed:
                    self._changed.notify_all()


def _uid(record: Any) -> str:
    return str(getattr(record, "uid", ""))


def _version(record: Any) -> str:
    return str(getattr(record, "resource_version", ""))


def version_number(version: str) -> int | None:
    """Return a resourceVersion as a number, by which those of one collection are ordered; None if it is no number."""
    # Nothing says that they are numbers for ever: then nothing is "older".
    return int(version) if version.isascii() and version.isdigit() else None


def _older(version: int | None, held: Any) -> bool:
    known = version_number(_version(held))
    return version is not None and known is not None and version < known


def _same(before: Any, after: Any) -> bool:
    if _version(before) and _version(before) == _version(after):
        return _uid(before) == _uid(after)
    return bool(before == after)


class Keyed(Protocol):
    """A record with a key that begins with the group and the kind."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


K = TypeVar("K", bound=Keyed)


class KindStores(Generic[K]):
    """One `Store` for each group and kind, indexed by uid, with the methods of a single store.

    Changes are delivered in order within a kind; between kinds there is no order, as between watches.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Store[K]] = {}
        self._subscribers: list[Subscriber[K]] = []
        self._lock = threading.Lock()

    def part(self, group: str, kind: str) -> Store[K]:
        """Return the store of one kind, created on first use."""
        with self._lock:
            found = self._parts.get((group, kind))
            if found is None:
                found = Store(key=_key, index=_uid_of)
                for callback in self._subscribers:
                    found.subscribe(callback)
                self._parts[(group, kind)] = found
            return found

    def __len__(self) -> int:
        return sum(len(part) for part in self._all())

    def get(self, key: tuple[str, str, str, str]) -> K | None:
        """Return the record of a key, or None."""
        part = self._parts.get(key[:2])
        return part.get(key) if part is not None else None

    def values(self) -> list[K]:
        """Return all records, those of each kind at one moment."""
        return [record for part in self._all() for record in part.values()]

    def get_by(self, uid: Hashable) -> list[K]:
        """Return the records of a uid."""
        return [record for part in self._all() if len(part) for record in part.get_by(uid)]

    def subscribe(self, callback: Subscriber[K]) -> None:
        """Call `callback` for every change from now on, of kinds that come later too."""
        with self._lock:
            self._subscribers.append(callback)
            for part in self._parts.values():
                part.subscribe(callback)

    def replace(self, items: Iterable[K], *, resource_version: str = "") -> None:
        """Apply all records of all kinds at once: others are deleted."""
        by_part: dict[tuple[str, str], list[K]] = {key: [] for key in list(self._parts)}
        for record in items:
            by_part.setdefault(record.key[:2], []).append(record)
        for (group, kind), records in by_part.items():
            self.part(group, kind).replace(records, resource_version=resource_version)

    def apply(self, event: EventType, record: K) -> None:
        """Apply one watch event (`Store.apply`)."""
        self.part(*record.key[:2]).apply(event, record)

    def apply_own_write(self, record: K) -> None:
        """Apply the answer to a write of ours (`Store.apply_own_write`)."""
        self.part(*record.key[:2]).apply_own_write(record)

    def wait_delivered(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until subscribers know every change made so far."""
        end = time.monotonic() + timeout
        return all(part.wait_delivered(max(0.0, end - time.monotonic())) for part in self._all())

    def _all(self) -> list[Store[K]]:
        return list(self._parts.values())


def _key(record: Keyed) -> Hashable:
    return record.key


def _uid_of(record: Keyed) -> Hashable | None:
    return record.uid or None
