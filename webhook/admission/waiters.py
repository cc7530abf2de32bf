"""Wakes reviews that wait for an object on its way into the caches of this replica."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TypeVar

from engine.api.placement import Placement
from engine.api.pod import Pod
from engine.cache.stores import Stores
from engine.gang.key import placed_key

Found = TypeVar("Found")


class ObjectWaiters:
    """Waits for Placements by gang key, and for pods and owners by group, kind, namespace and name."""

    def __init__(self, stores: Stores, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Hashable, list[threading.Event]] = {}
        self._lock = threading.Lock()
        stores.placements.subscribe(self._placement)
        stores.pods.subscribe(self._pod)
        stores.workloads.subscribe(lambda key, _old, _new: self._notify(key))
        stores.owned.subscribe(lambda key, _old, _new: self._notify(key))

    def wait(self, key: Hashable, look: Callable[[], Found | None], until: float) -> Found | None:
        """Return the result of `look`, called at least once and again after each event for the key.

        Waits until `until` on the clock at most.
        """
        came = threading.Event()
        with self._lock:
            self._waiting.setdefault(key, []).append(came)
        try:
            while (found := look()) is None:
                left = until - self._clock()
                if left <= 0:
                    return None
                came.wait(left)
                came.clear()
            return found
        finally:
            with self._lock:
                others = self._waiting[key]
                others.remove(came)
                if not others:
                    del self._waiting[key]

    def _placement(self, _key: Hashable, _old: Placement | None, new: Placement | None) -> None:
        if new is not None:
            self._notify(placed_key(new))

    def _pod(self, _key: Hashable, _old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._notify(("", "Pod", new.namespace, new.name))

    def _notify(self, key: Hashable) -> None:
        if not self._waiting:
            return  # nearly always
        with self._lock:
            for event in self._waiting.get(key, ()):
                event.set()
