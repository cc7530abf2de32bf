"""Thread-safe stores of watched records: by key, with an index and subscribers; one collection or several as one.

The reflector writes, everybody reads. What a write of ours answered goes in at once (`apply_own_write`), so that the
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

    `key` gives the record's key. `index` gives a second value to look records up by (None: not indexed).
    Subscribers get (key, old, new), old None for a new object and new None for a deleted one, once per change and in
    order, outside the lock: a subscriber may read and write the store. Another thread may be running them when the
    call that made the change returns. An exception in a subscriber is logged and goes no further.
    """

    def __init__(
        self,
        key: Callable[[R], Hashable],
        *,
        index: Callable[[R], Hashable | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = key
        self._index = index
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._items: dict[Hashable, R] = {}
        self._by_index: dict[Hashable, dict[Hashable, R]] = {}
        self._subscribers: list[Subscriber[R]] = []
        self._outbox: deque[tuple[Hashable, R | None, R | None]] = deque()
        self._said = 0  # changes put into the outbox
        self._told = 0  # changes that every subscriber has been told of
        self._delivering = threading.Lock()
        self._own: dict[Hashable, int] = {}  # our writes that the watch has not confirmed: key -> resourceVersion
        self._gone: OrderedDict[str, None] = OrderedDict()
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
        """Return the records whose index function gives `value`."""
        with self._changed:
            return list(self._by_index.get(value, {}).values())

    def subscribe(self, callback: Subscriber[R]) -> None:
        """Call `callback` for every change from now on."""
        with self._changed:
            self._subscribers.append(callback)

    @property
    def synced(self) -> bool:
        """True once a whole list has been taken in; stays true when the watch breaks (see `age`)."""
        return self._synced

    @property
    def age(self) -> float:
        """Seconds since the watch last said anything; infinite before the first list."""
        return float("inf") if self._last_event is None else max(0.0, self._clock() - self._last_event)

    @property
    def seen(self) -> int:
        """The newest resourceVersion up to which this store is complete; -1 when unknown."""
        return self._seen

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the first whole list, and until subscribers know it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._synced and self._told >= self._said, timeout)

    def wait_seen(self, version: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds until every change up to `version` is in, and subscribers know it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._seen >= version and self._told >= self._said, timeout)

    def replace(self, items: Iterable[R], *, resource_version: str = "", anew: bool = False) -> None:
        """Take a whole list at once: what is not in it is deleted, except own writes that are newer than the list.

        `anew`: records are made in another way than before, and may differ although the objects do not.
        """
        fresh = {self._key(record): record for record in items}
        version = _number(resource_version)
        with self._changed:
            if version is not None and version < self._seen:
                # Time went back (a restored etcd): nothing that we wrote can be believed any more.
                self._own.clear()
            for key, written in list(self._own.items()):
                if version is None or written <= version:
                    del self._own[key]
                elif (known := self._items.get(key)) is not None and _uid(known) not in self._gone:
                    fresh[key] = known
            for key, record in self._items.items():
                if key not in fresh:
                    self._bury(record)
                    self._say((key, record, None))
            for key, record in fresh.items():
                before = self._items.get(key)
                if before is not None and (before == record if anew else _same(before, record)):
                    fresh[key] = before
                else:
                    self._say((key, before, record))
            if self._gone:
                for record in fresh.values():
                    self._gone.pop(_uid(record), None)  # it came back into the selection
            self._items = fresh
            self._by_index = {}
            for key, record in fresh.items():
                self._file(key, record)
            self._synced = True
            self._seen = -1 if version is None else version
            self._heard()
        self._deliver()

    def apply(self, event: EventType, record: R) -> None:
        """Take one watch event; an ADDED or MODIFIED that is older than what we hold of the object is dropped.

        Held of another object of that name counts only when we wrote it ourselves: else the watch is right.
        """
        key = self._key(record)
        version = _number(_version(record))
        with self._changed:
            self._heard()
            if version is not None:
                self._seen = max(self._seen, version)
            before = self._items.get(key)
            if event == "DELETED":
                # Also without a record of it: the answer of a write may still be on its way.
                self._bury(record)
                if before is not None and _uid(before) == _uid(record):
                    self._take_out(key, before)
            else:
                self._gone.pop(_uid(record), None)
                comparable = before is not None and (key in self._own or _uid(before) == _uid(record))
                if before is None or not (comparable and _older(version, before)):
                    self._own.pop(key, None)
                    self._put(key, before, record)
        self._deliver()

    def apply_own_write(self, record: R) -> None:
        """Take what a write of ours answered, unless the watch already told something newer or that it is gone."""
        key = self._key(record)
        version = _number(_version(record))
        with self._changed:
            before = self._items.get(key)
            if _uid(record) in self._gone or (
                before is not None and (_same(before, record) or _older(version, before))
            ):
                return
            if version is not None and version > self._seen:
                self._own[key] = version
            elif before is None and version is not None:
                # The watch is past this version and does not know the object: it is gone, or not ours to see.
                return
            self._put(key, before, record)
        self._deliver()

    def discard(self, namespace: str, name: str) -> None:
        """Take out the record of an object that can no longer be read (looks through all records)."""
        with self._changed:
            self._heard()
            for key, record in self._items.items():
                if getattr(record, "name", None) == name and getattr(record, "namespace", "") == namespace:
                    self._take_out(key, record)
                    break
        self._deliver()

    def bookmark(self, resource_version: str) -> None:
        """Note that every change up to this version has been told.

        A write of ours up to it that the watch never showed is outside of the watch's selector: it goes.
        """
        version = _number(resource_version)
        with self._changed:
            self._heard()
            if version is not None:
                self._seen = max(self._seen, version)
                for key in [key for key, written in self._own.items() if written <= version]:
                    if (record := self._items.get(key)) is not None:
                        self._take_out(key, record)
        self._deliver()

    def confirm(self, versions: AbstractSet[tuple[str, str]], resource_version: str) -> bool:
        """Take in that a list of this version held exactly these objects, by uid and version of their own.

        False, and nothing is noted, when the store holds others. So a quiet collection is known to be as it was without
        a whole list being taken in.
        """
        version = _number(resource_version)
        with self._changed:
            held = {(_uid(record), _version(record)) for record in self._items.values()}
            if version is None or held != versions or len(held) != len(self._items):
                return False
            self._heard()
            self._seen = max(self._seen, version)
            for key in [key for key, written in self._own.items() if written <= version]:
                del self._own[key]
        return True

    def wait_told(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until subscribers know every change made so far; not for use in one of them."""
        with self._changed:
            said = self._said
            return self._changed.wait_for(lambda: self._told >= said, timeout)

    def _say(self, change: tuple[Hashable, R | None, R | None]) -> None:
        self._said += 1
        self._outbox.append(change)

    def _heard(self) -> None:
        self._last_event = self._clock()
        self._changed.notify_all()

    def _put(self, key: Hashable, before: R | None, record: R) -> None:
        if before is not None:
            self._unfile(key, before)
        self._items[key] = record
        self._file(key, record)
        if before is None or not _same(before, record):
            self._say((key, before, record))

    def _take_out(self, key: Hashable, record: R) -> None:
        self._own.pop(key, None)
        self._unfile(key, record)
        del self._items[key]
        self._say((key, record, None))

    def _bury(self, record: R) -> None:
        if uid := _uid(record):
            self._gone[uid] = None
            while len(self._gone) > TOMBSTONES:
                self._gone.popitem(last=False)

    def _file(self, key: Hashable, record: R) -> None:
        if self._index is not None and (value := self._index(record)) is not None:
            self._by_index.setdefault(value, {})[key] = record

    def _unfile(self, key: Hashable, record: R) -> None:
        if self._index is not None and (value := self._index(record)) is not None:
            bucket = self._by_index[value]
            del bucket[key]
            if not bucket:
                del self._by_index[value]

    def _deliver(self) -> None:
        # One thread at a time empties the outbox. Whoever finds it busy leaves its change to that thread, which looks
        # again after letting go: order is kept, nobody waits, and a subscriber that writes does not lock itself out.
        while self._outbox and self._delivering.acquire(blocking=False):
            try:
                while self._outbox:
                    change = self._outbox.popleft()
                    for callback in tuple(self._subscribers):
                        try:
                            callback(*change)
                        except Exception:
                            _log.exception("a subscriber failed on %s", change[0])
                    self._told += 1
            finally:
                self._delivering.release()
                with self._changed:
                    self._changed.notify_all()


def _uid(record: Any) -> str:
    return str(getattr(record, "uid", ""))


def _version(record: Any) -> str:
    return str(getattr(record, "resource_version", ""))


def _number(version: str) -> int | None:
    # Versions of one collection are ordered, but nothing says that they are numbers for ever: then nothing is "older".
    return int(version) if version.isascii() and version.isdigit() else None


def _older(version: int | None, held: Any) -> bool:
    known = _number(_version(held))
    return version is not None and known is not None and version < known


def _same(before: Any, after: Any) -> bool:
    if _version(before) and _version(before) == _version(after):
        return _uid(before) == _uid(after)
    return bool(before == after)


class Keyed(Protocol):
    """A record with a key whose first two parts are the group and the kind."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Group, kind, namespace and name."""

    @property
    def uid(self) -> str:
        """The object's uid."""


K = TypeVar("K", bound=Keyed)


class KindStores(Generic[K]):
    """One `Store` for each group and kind, indexed by uid, with the reading and writing side of a single store.

    Changes are told in order within a kind; between kinds there is no order, as between watches.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], Store[K]] = {}
        self._subscribers: list[Subscriber[K]] = []
        self._lock = threading.Lock()

    def part(self, group: str, kind: str) -> Store[K]:
        """Return the store of one kind, made when it is first asked for."""
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
        """Take all records of all kinds at once: what is not among them is deleted."""
        by_part: dict[tuple[str, str], list[K]] = {key: [] for key in list(self._parts)}
        for record in items:
            by_part.setdefault(record.key[:2], []).append(record)
        for (group, kind), records in by_part.items():
            self.part(group, kind).replace(records, resource_version=resource_version)

    def apply(self, event: EventType, record: K) -> None:
        """Take one watch event (`Store.apply`)."""
        self.part(*record.key[:2]).apply(event, record)

    def apply_own_write(self, record: K) -> None:
        """Take what a write of ours answered (`Store.apply_own_write`)."""
        self.part(*record.key[:2]).apply_own_write(record)

    def wait_told(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until subscribers know every change made so far."""
        end = time.monotonic() + timeout
        return all(part.wait_told(max(0.0, end - time.monotonic())) for part in self._all())

    def _all(self) -> list[Store[K]]:
        return list(self._parts.values())


def _key(record: Keyed) -> Hashable:
    return record.key


def _uid_of(record: Keyed) -> Hashable | None:
    return record.uid or None
