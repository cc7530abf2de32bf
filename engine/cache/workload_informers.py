"""The informers of workloads: one for each kind that the API server serves at the moment.

A kind that is not served costs only its name in a discovery, every ten to twenty seconds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from engine.api.workload import Owned, Workload
from engine.cache.stores import Stores
from engine.cluster.client import ApiFault, KubeClient
from engine.cluster.discovery import Collection, Discovery, wanted_kinds
from engine.cluster.reflector import Reflector
from engine.cluster.store import Store
from engine.decoding import workloads
from engine.gang.gang import ours
from engine.kinds.registry import Registry
from engine.kinds.schema import KindEntry
from engine.policy.model import Policy

CHECK_EVERY: Final = (10.0, 20.0)
# Before the first discovery has succeeded, and between discoveries that are asked for.
CHECK_SOON: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How objects of a collection are decoded: any difference here gives other records of the same objects."""

    collection: Collection
    entry: KindEntry | None
    contained: Registry | None  # of kinds with objects that contain objects of other kinds


@dataclass(slots=True)
class _Watch:
    reading: _Reading
    reflector: Reflector[Any]
    store: Store[Any]


class WorkloadInformers:
    """Owns the reflectors of workloads; `start` once, `stop` once. `policy` returns the policy in force."""

    def __init__(
        self,
        api: KubeClient,
        stores: Stores,
        *,
        policy: Callable[[], Policy],
        rng: random.Random | None = None,
        every: tuple[float, float] = CHECK_EVERY,
        soon: float = CHECK_SOON,
    ) -> None:
        self._api = api
        self._stores = stores
        self._policy = policy
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._every = every
        self._soon = soon
        self._discovery = Discovery(api)
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._first: set[tuple[str, str]] = set()  # the kinds served at the start: readiness waits for them
        self._problem: str | None = "not looked yet"
        self._discovered = threading.Event()
        self._looking = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    def start(self) -> None:
        """Start the discovery of kinds."""
        self._thread.start()

    def stop(self) -> list[Reflector[Any]]:
        """Stop the discovery; returns the reflectors that are to be stopped."""
        self._stop.set()
        self._wake.set()
        # A discovery that still waits for the API server starts no informer when its answer arrives.
        if self._looking.acquire(timeout=0.5):
            self._looking.release()
        return [watch.reflector for watch in list(self._watches.values())]

    def wake(self) -> None:
        """Discover kinds at once, because a new kind was seen or the policy names others."""
        self._wake.set()

    def wait_for_kind(self, group: str, kind: str) -> None:
        """Discover at once when an object of a registered kind was seen that is not watched."""
        if (group, kind) not in self._watches and self._policy().registry.of_kind(group, kind):
            self.wake()

    def look(self) -> bool:
        """Discover kinds now; False when the API server could not be asked, and everything stays as it is."""
        with self._looking:
            policy = self._policy()  # once: what is asked for and how it is read must be of the same one
            try:
                asked = wanted_kinds(policy.registry)
                self._follow(self._discovery.look(asked), {(one.group, one.kind) for one in asked}, policy)
            except ApiFault as fault:
                if self._problem is None:
                    _log.warning("the kinds of the cluster are unknown at the moment: %s", fault)
                self._problem = str(fault)
                return False
            self._problem = None
            if not self._discovered.is_set():
                self._first = set(self._watches)
                self._discovered.set()
            return True

    def reflectors(self) -> dict[str, Reflector[Any]]:
        """Return the running reflectors, by name of the collection."""
        return {watch.reading.collection.name: watch.reflector for watch in list(self._watches.values())}

    def hidden(self) -> AbstractSet[tuple[str, str]]:
        """Return the served kinds, by group and name, that may not be read."""
        return {key for key, watch in list(self._watches.items()) if watch.reflector.forbidden}

    def missing(self) -> list[str]:
        """Return the collections that readiness waits for: the first discovery, then the kinds that it found."""
        if not self._discovered.is_set():
            return [f"workload kinds ({self._problem})"]
        found = []
        for key, watch in list(self._watches.items()):
            if key in self._first and not watch.reflector.synced:
                name, problem = watch.reading.collection.name, watch.reflector.problem
                found.append(f"{name} ({problem})" if problem else name)
        return found

    def wait_synced(self, timeout: float) -> bool:
        """Wait until nothing is missing."""
        end = time.monotonic() + timeout
        if not self._discovered.wait(timeout):
            return False
        watches = [watch for key, watch in list(self._watches.items()) if key in self._first]
        return all(watch.store.wait_synced(max(0.0, end - time.monotonic())) for watch in watches)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                self.look()
            except Exception:
                # Informers that do not follow the cluster any more would go unnoticed.
                _log.exception("looking for kinds failed")
            # Not more often, however many unknown kinds are heard of.
            self._stop.wait(self._soon)
            if self._discovered.is_set():
                self._wake.wait(self._rng.uniform(*self._every))

    def _follow(self, served: tuple[Collection, ...], asked: set[tuple[str, str]], policy: Policy) -> None:
        """Watch the kinds that are served; stop a kind that is not, once its own collection is absent too.

        A server that has just started may leave groups out of its list, and objects that seem to go take their gangs'
        Placements along. A kind that is not asked for any more, or only as a link to workloads, is watched as it was
        until we hold nothing of it: only we would release it.
        """
        wanted = {(one.group, one.kind): _reading(one, policy) for one in served}
        for key in self._watches.keys() - wanted.keys():
            reflector = self._watches[key].reflector
            if key in asked and not reflector.absent:
                reflector.list_again()
                continue
            if key not in asked and not reflector.absent and self._holds(key):
                continue
            self._end(key)
            self._store(key, registered=True).replace([])
            self._store(key, registered=False).replace([])
        for key, reading in wanted.items():
            watch, registered = self._watches.get(key), reading.collection.registered
            if watch is None:
                self._begin(key, reading, policy.registry)
            elif watch.reading.collection != reading.collection:
                other = watch.reading.collection.registered != registered
                if other and not registered and self._holds(key):
                    continue
                self._end(key)
                if other:
                    watch.store.replace([])
                self._begin(key, reading, policy.registry)
            elif watch.reading != reading:
                watch.reflector.read_anew(_projection(reading, policy.registry))
                watch.reading = reading

    def _begin(self, key: tuple[str, str], reading: _Reading, registry: Registry) -> None:
        if self._stop.is_set():
            return
        collection = reading.collection
        store = self._store(key, registered=collection.registered)
        reflector: Reflector[Any] = Reflector(
            self._api,
            collection.path,
            _projection(reading, registry),
            store,
            # Between two discoveries it may go, and a right to read it may come later than the kind.
            optional=key != ("batch", "Job"),
        )
        _log.info("watching %s in %s", collection.name, collection.api_version)
        self._watches[key] = _Watch(reading, reflector, store)
        reflector.start()

    def _end(self, key: tuple[str, str]) -> None:
        watch = self._watches.pop(key)
        self._first.discard(key)
        _log.info("%s is no longer watched in %s", watch.reading.collection.name, watch.reading.collection.version)
        watch.reflector.stop()

    def _holds(self, key: tuple[str, str]) -> bool:
        """True when the stores have workloads of a kind, or held pods belong to one."""
        return any(ours(workload) for workload in self._stores.workloads.part(*key).values())

    def _store(self, key: tuple[str, str], *, registered: bool) -> Store[Any]:
        workloads_or_owned: Any = self._stores.workloads if registered else self._stores.owned
        store: Store[Any] = workloads_or_owned.part(*key)
        return store


def _reading(collection: Collection, policy: Policy) -> _Reading:
    registry = policy.registry
    entry = registry.find(collection.group, collection.kind, collection.version) if collection.registered else None
    contained = registry if entry is not None and entry.contains is not None else None
    return _Reading(collection, entry, contained)


def _projection(reading: _Reading, registry: Registry) -> Callable[[Any], Workload | Owned]:
    collection, entry = reading.collection, reading.entry
    if entry is None:
        return partial(workloads.owned, api_version=collection.api_version, kind=collection.kind)
    if (collection.group, collection.kind) == ("batch", "Job"):
        return workloads.job
    return partial(workloads.workload_or_stub, entry=entry, registry=registry, version=collection.version)
