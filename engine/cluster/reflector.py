"""Keeps a store equal to a collection of the API server: paged list, then watch, with backoff after failures.

Life: LIST (consistent, in pages) -> replace the store -> WATCH from the list's version, with bookmarks -> on a regular
end watch again from the last version -> on 410 or an unreadable answer list again -> on every other fault wait
(`backoff`) and watch again. Rules and their reasons: client-go's reflector.

Numbers are client-go's reflector: 0.8 s doubling to 30 s, back to the start after 2 minutes without a failure; to 8 s
only while the server cannot be reached.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec

from engine import metrics
from engine.cluster.client import ApiError, ApiFault, ApiUnavailable, KubeClient, Stream, status_error
from engine.cluster.store import Store, version_number
from engine.decoding.wire import UNREADABLE

# Of `Backoff`: the first and the longest delay, and the time without a failure after which it starts over (s).
FIRST: Final = 0.8
LIMIT: Final = 30.0
HEALTHY: Final = 120.0
# Seconds, at most, while the server cannot be reached at all: it restarts, and nothing is spared by coming late.
UNREACHABLE_LIMIT: Final = 8.0

# The first list should be quick; a later one runs beside reviews, and a page holds the GIL while it is parsed.
FIRST_PAGE: Final = 500
LATER_PAGE: Final = 100
# The server ends a watch after this long (s); spread out, so that replicas do not come back together.
WATCH_SECONDS: Final = (240, 480)
# Bookmarks come about every 60 s: a watch that is silent for longer than this is dead.
READ_TIMEOUT: Final = 100.0
LIST_TIMEOUT: Final = (5.0, 60.0)
# How long a new leader trusts the running watch to catch up before it lists afresh.
CATCH_UP: Final = 0.3
# Of a collection with more objects than this a bookmark proves that it is fresh, at the price of a few seconds: listing
# it anew would cost more. The server sends one 2 s before the time of a watch is over, and looks about every second.
LARGE: Final = 2_000
PROOF_SECONDS: Final = 3
PROOF_WAIT: Final = 4.0
# A watch that ends sooner without a word counts as a fault (client-go's "very short watch").
SHORT_WATCH: Final = 1.0
# After these the next attempt lists: the version is not understood, or the collection is not there (a missing CRD).
VERSION_REFUSED: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
REMEMBERED_BAD: Final = 1024
# An optional collection that is not there (its CRD is not installed, or we may not read it) is looked for this often
# (s): one request that the server answers out of its routing table.
ABSENT_CHECK: Final = 20.0
ABSENT: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)

R = TypeVar("R")

_log = logging.getLogger(__name__)


class Backoff:
    """Delays in seconds between half and all of 0.8, 1.6, 3.2, ... 30; not for use by several threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        first: float = FIRST,
        limit: float = LIMIT,
        healthy: float = HEALTHY,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._first = first
        self._limit = limit
        self._healthy = healthy
        self._next = first
        self._resume_at: float | None = None

    def delay(self, *, at_least: float | None = None, at_most: float | None = None) -> float:
        """Return the delay after one more failure; `at_least` is the server's Retry-After, never undercut.

        A Retry-After beyond an hour is taken as an hour. `at_most` is for this failure alone.
        """
        now = self._clock()
        if self._resume_at is not None and now - self._resume_at >= self._healthy:
            self._next = self._first
        delay = min(self._next, self._limit if at_most is None else at_most) * self._rng.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._limit)
        if at_least is not None:
            # Jitter goes on top: every client got the same number.
            delay += min(at_least, 3600.0)
        self._resume_at = now + delay
        return delay


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    next_page: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_object = msgspec.json.Decoder(_Object).decode


def _name(raw: msgspec.Raw) -> tuple[str, str]:
    """Return the namespace and name of an object; empty where not even they can be read."""
    try:
        meta = _decode_object(raw).metadata
    except UNREADABLE:
        return "", ""
    return meta.namespace, meta.name


def _identity(raw: msgspec.Raw) -> tuple[str, str] | None:
    """Return the uid and the version of an object; None where they cannot be read. Ten times as fast as decoding it."""
    try:
        meta = _decode_object(raw).metadata
    except UNREADABLE:
        return None
    return meta.uid, meta.resource_version


class _ListAgain(Exception):
    """The held resourceVersion cannot be used any more."""


class _Absent(Exception):
    """The optional collection is not served, or `forbidden`: it is unknown whether it is."""

    def __init__(self, why: str, *, forbidden: bool) -> None:
        super().__init__(why)
        self.forbidden = forbidden


@dataclass(slots=True)
class Counts:
    """Counters of a reflector since it started; written by its thread alone."""

    lists: int = 0
    faults: int = 0
    expired: int = 0
    unreadable: int = 0


class Reflector(Generic[R]):
    """Feeds one store from one collection, in a daemon thread of its own.

    `path` is the collection's URL path, `query` its selectors, `project` makes a record of an object's bytes and raises
    ValueError (ProjectionError) for one that it cannot read: that object is left out of the store, counted, and named
    once in the log. `wait` sleeps until the event is set or the seconds are over.

    An `optional` collection may be missing, come later and go again: a missing one counts as empty and synced.
    """

    def __init__(
        self,
        api: KubeClient,
        path: str,
        project: Callable[[msgspec.Raw], R],
        store: Store[R],
        *,
        query: Mapping[str, str] | None = None,
        optional: bool = False,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        first_page: int = FIRST_PAGE,
        read_timeout: float = READ_TIMEOUT,
        large: int = LARGE,
    ) -> None:
        self.store = store
        self.counts = Counts()
        self._api = api
        self._path = path
        self._events = metrics.watch_events.labels(path.rpartition("/")[2])
        self._project = project
        self._query = dict(query or {})
        self._optional = optional
        self._absent = False
        self._forbidden = False
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._wait = wait
        self._page = first_page
        self._read_timeout = read_timeout
        self._large = large
        self._proving = False  # the next watch is short, for the bookmark at its end
        self._backoff = Backoff(clock=clock, rng=self._rng)
        # A server that refuses a version is there: after an outage the list does not wait as long as the calls before.
        self._expiry_backoff = Backoff(clock=clock, rng=self._rng)
        self._problem: str | None = "not listed yet"
        self._version: str | None = None
        self._unreadable: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._listed_unreadable: set[tuple[str, str]] = set()  # of those, the ones that the list under way has shown
        self._stopping = False
        self._list_requested = False
        self._anew = True
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None

    @property
    def synced(self) -> bool:
        """True once the store has held a whole list."""
        return self.store.synced

    @property
    def problem(self) -> str | None:
        """The reason why the store is not up to date, as text; None when it is."""
        return self._problem

    @property
    def left_out(self) -> int:
        """The number of objects left out because they cannot be read (counted up to 1024)."""
        return len(self._unreadable)

    @property
    def absent(self) -> bool:
        """True while the optional collection is not served, by the server's own answer to a request for it."""
        return self._absent

    @property
    def forbidden(self) -> bool:
        """True while the collection may not be read: the store is out of date, or empty."""
        return self._forbidden

    def list_again(self) -> None:
        """Have the whole collection listed at once."""
        self._interrupt(stop=False)

    def start(self) -> None:
        """Start the thread; once."""
        if self._thread is not None:
            raise RuntimeError(f"the reflector of {self._path} was started before")
        self._thread = threading.Thread(target=self.run, name=f"reflector {self._path}", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 0.8) -> None:
        """End the watch; returns within `timeout` seconds, even if a request is still being given up."""
        self._interrupt(stop=True)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def read_anew(self, project: Callable[[msgspec.Raw], R]) -> None:
        """Decode all objects with another projection from now on, known ones too."""
        with self._lock:
            self._project, self._anew = project, True
        self._interrupt(stop=False)

    def refresh(self, timeout: float) -> bool:
        """Update the store to at least the cluster's current state; False when `timeout` seconds were not enough.

        Of an optional collection that may not be read nothing newer can be had: True.

        Asks the server for its newest version (a quorum read) and waits until the watch has passed it; when it does not
        (a quiet collection gets a bookmark only once a minute), the whole collection is listed afresh; a large one
        only if the bookmark at the end of a short watch does not come or is older. A collection that fits one page is
        read with that first request, and most often equals the store already.
        """
        deadline = self._clock() + timeout
        small = self.store.synced and len(self.store) < LATER_PAGE
        try:
            page = self._get_page(
                self._query | {"limit": str(LATER_PAGE if small else 1)}, (min(5.0, timeout), timeout)
            )
            newest = int(page.metadata.resource_version)
            if small and not page.metadata.next_page:
                self._confirm(page)
        except _Absent:
            if len(self.store):
                self._interrupt(stop=False)  # it was there a moment ago: the list decides
            return True
        except (ApiFault, _ListAgain, ValueError) as fault:
            _log.warning("%s: cannot be read afresh: %s", self._path, fault)
            # A right to an optional collection may be gone for good: what is known of it has to do, as it does for
            # whoever uses the store already.
            return self._optional and isinstance(fault, ApiError) and fault.status == HTTPStatus.FORBIDDEN
        patience = min(CATCH_UP, deadline - self._clock())
        if self.store.synced and self.store.wait_seen(newest, max(0.0, patience)):
            return True
        if self.store.synced and len(self.store) > self._large:
            self._prove()
            if self.store.wait_seen(newest, max(0.0, min(PROOF_WAIT, deadline - self._clock()))):
                return True
        self._interrupt(stop=False)
        return self.store.wait_seen(newest, max(0.0, deadline - self._clock()))

    def run(self) -> None:
        """Do the work until `stop`; `start` calls this in a thread."""
        while not self._stopping:
            retry_after, at_most, backoff = None, None, self._backoff
            try:
                if self._pop_list_request() or self._version is None:
                    self._list()
                self._watch()
                continue
            except _Absent as reason:
                self._note_absent(reason)
                self._wait(self._wake, ABSENT_CHECK * self._rng.uniform(0.5, 1.0))
                continue
            except _ListAgain as reason:
                self.counts.expired += 1
                backoff = self._expiry_backoff
                self._problem, self._version = f"GET {self._path}: listing again: {reason}", None
            except ApiFault as fault:
                self.counts.faults += 1
                self._problem, retry_after = str(fault), fault.retry_after
                at_most = UNREACHABLE_LIMIT if isinstance(fault, ApiUnavailable) else None
                self._forbidden = isinstance(fault, ApiError) and fault.status == HTTPStatus.FORBIDDEN
                if isinstance(fault, ApiError) and fault.status in VERSION_REFUSED:
                    self._version = None
            except Exception:
                # A cache that has stopped for ever is worse than one that lists again.
                self.counts.faults += 1
                self._problem, self._version = "an internal fault", None
                _log.exception("%s: the watch failed", self._path)
            delay = backoff.delay(at_least=retry_after, at_most=at_most)
            if not self._stopping:
                _log.info("%s; again in %.1f s", self._problem, delay)
                self._wait(self._wake, delay)

    def _list(self) -> None:
        self._version = None
        with self._lock:
            anew, self._anew = self._anew, False
        try:
            self._list_pages(anew)
        except BaseException:
            self._anew = self._anew or anew
            raise

    def _list_pages(self, anew: bool) -> None:
        records: list[R] = []
        # What has the version that is held is not decoded again: of 100,000 pods that would take seconds.
        held = {} if anew else self.store.by_version()
        self._listed_unreadable.clear()
        query = self._query | {"limit": str(self._page)}
        while True:
            # Without a resourceVersion: a quorum read, so a list never goes back in time.
            page = self._get_page(query, LIST_TIMEOUT)
            version = version_number(page.metadata.resource_version)
            if not anew and version is not None and version < self.store.seen:
                # A restored etcd gives the versions that we have seen to other contents.
                anew, held = True, {}
            for raw in page.items or ():
                record = held.get(_identity(raw)) if held else None
                if record is None and (record := self._read(raw)) is None:
                    continue
                records.append(record)
            if self._stopping:
                raise ApiUnavailable("stopping")
            if not page.metadata.next_page:
                break
            if query.get("continue") == page.metadata.next_page:
                raise ApiUnavailable(f"GET {self._path}: the same page over and over")
            query["continue"] = page.metadata.next_page
        for key in [key for key in self._unreadable if key not in self._listed_unreadable]:
            del self._unreadable[key]
        self._page = min(self._page, LATER_PAGE)
        self.counts.lists += 1
        self._problem, self._forbidden = None, False
        if self._absent:
            self._absent = False
            _log.info("%s was found and is watched", self._path)
        self.store.replace(records, resource_version=page.metadata.resource_version, anew=anew)
        self._version = page.metadata.resource_version

    def _get_page(self, query: Mapping[str, str], timeout: tuple[float, float]) -> _Page:
        try:
            return _decode_page(self._api.request("GET", self._path, query=query, timeout=timeout))
        except ApiError as error:
            if error.status == HTTPStatus.GONE:
                raise _ListAgain("a page has expired") from None
            if self._optional and error.status in ABSENT and not self._right_was_lost(error):
                raise _Absent(str(error), forbidden=error.status == HTTPStatus.FORBIDDEN) from None
            raise
        except UNREADABLE as error:
            raise ApiUnavailable(f"GET {self._path}: not a list: {error}") from None

    def _right_was_lost(self, error: ApiError) -> bool:
        """True when a right was removed while the store has objects: they may still exist, so none is deleted."""
        return error.status == HTTPStatus.FORBIDDEN and len(self.store) > 0

    def _note_absent(self, reason: _Absent) -> None:
        """Empty the store of an absent collection, and log this once."""
        self._version = None
        self._problem = None
        self._unreadable.clear()
        reported = self._absent and self._forbidden == reason.forbidden
        # Set before the store counts as synced: a reader must not take the empty store for an answer.
        self._absent, self._forbidden = True, reason.forbidden
        self.store.replace([])
        if not reported and reason.forbidden:
            _log.warning(
                "%s may not be read: its objects are ignored; tried again every %.0f s (%s)",
                *(self._path, ABSENT_CHECK, reason),
            )
        elif not reported:
            _log.info(
                "%s not found: nothing to watch; checked again every %.0f s (%s)", self._path, ABSENT_CHECK, reason
            )

    def _confirm(self, page: _Page) -> None:
        """Confirm the store when it holds exactly the objects of a page that is the whole list."""
        metas = [_decode_object(raw).metadata for raw in page.items or ()]
        versions = {(meta.uid, meta.resource_version) for meta in metas}
        if len(versions) == len(metas):
            self.store.confirm(versions, page.metadata.resource_version)

    def _watch(self) -> None:
        query = self._query | {
            "watch": "1",
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._seconds()),
        }
        opened, lines = self._clock(), 0
        try:
            with self._api.stream(self._path, query, read_timeout=self._read_timeout) as stream:
                if not self._register_stream(stream):
                    return
                self._problem, self._forbidden = None, False
                for line in stream:
                    if self._interrupted():
                        return
                    self._apply_event(line)
                    lines += 1
        except ApiError as error:
            if error.status == HTTPStatus.GONE:
                raise _ListAgain("the version has expired") from None
            if self._optional and error.status in ABSENT:
                raise _ListAgain("it may be gone") from None
            raise
        finally:
            self._stream = None
        if not lines and self._clock() - opened < SHORT_WATCH and not (self._interrupted() or self._proving):
            # Without this a server that ends every watch at once would be asked in a tight loop.
            raise ApiUnavailable(f"GET {self._path}: the watch ended at once")

    def _apply_event(self, line: bytes) -> None:
        try:
            event = _decode_event(line)
            if event.type == "ERROR":
                raise status_error(event.object)
            meta = _decode_object(event.object).metadata
        except UNREADABLE as error:
            raise _ListAgain(f"an event that cannot be read: {error}") from None
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED" as kind:
                self._events.inc()
                readable = (meta.namespace, meta.name) not in self._unreadable
                if (record := self._read(event.object)) is not None:
                    self.store.apply(kind, record)
                elif readable:
                    self.store.discard(meta.namespace, meta.name)
                if kind == "DELETED":
                    self._unreadable.pop((meta.namespace, meta.name), None)
            case "BOOKMARK":
                self.store.bookmark(meta.resource_version)
            case other:
                raise _ListAgain(f"an event of an unknown type: {other[:32]!r}")
        if meta.resource_version:
            self._version = meta.resource_version

    def _read(self, raw: msgspec.Raw) -> R | None:
        try:
            record = self._project(raw)
        except Exception as error:
            # Not only ProjectionError: one object must never stop the collection, whatever it does to the projection.
            self.counts.unreadable += 1
            self._add_unreadable(raw, error)
            return None
        if self._unreadable:
            self._unreadable.pop(_name(raw), None)
        return record

    def _add_unreadable(self, raw: msgspec.Raw, error: Exception) -> None:
        key = _name(raw)
        self._listed_unreadable.add(key)
        if key not in self._unreadable:
            _log.warning("%s: %s/%s cannot be read and is left out: %s", self._path, *key, error)
            self._unreadable[key] = None
            while len(self._unreadable) > REMEMBERED_BAD:
                self._unreadable.popitem(last=False)

    def _prove(self) -> None:
        """Have the watch opened again for a short time: before its end the server sends a bookmark."""
        with self._lock:
            self._proving = True
            self._wake.set()
            stream = self._stream
        if stream is not None:
            stream.close()

    def _seconds(self) -> int:
        with self._lock:
            proving, self._proving = self._proving, False
            if proving and not self._interrupted():
                self._wake.clear()
        return PROOF_SECONDS if proving else self._rng.randint(*WATCH_SECONDS)

    def _interrupt(self, *, stop: bool) -> None:
        with self._lock:
            if stop:
                self._stopping = True
            else:
                self._list_requested = True
            self._wake.set()
            stream = self._stream
        if stream is not None:
            stream.close()

    def _interrupted(self) -> bool:
        return self._stopping or self._list_requested

    def _pop_list_request(self) -> bool:
        with self._lock:
            wanted, self._list_requested = self._list_requested, False
            if not self._stopping:
                self._wake.clear()  # it has ended one wait, and must not end the next one, after a fault
            return wanted

    def _register_stream(self, stream: Stream) -> bool:
        with self._lock:
            if self._interrupted() or self._proving:
                return False
            self._stream = stream
            return True
