"""Watches Topology objects of Kueue and KAI, for as long as the policy takes levels from them.

It does so by name (`fromObject`), or of all of them by naming no topology at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.cluster.client import Api, ApiFault
from engine.cluster.discovery import Discovery, Wanted
from engine.cluster.objects import topology_object
from engine.cluster.reflector import Reflector
from engine.policy.model import Policy
from engine.stores import Stores
from engine.topology.objects import GROUPS, PLURAL

LOOK_EVERY: Final = 15.0  # seconds between looks whether the objects' kind has come or gone

log = logging.getLogger("topogate.topologies")


class TopologyWatch:
    """Owns at most one reflector per API group; `follow` again and again, from one thread; `stop` once."""

    def __init__(self, api: Api, stores: Stores, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._stores = stores
        self._discovery = Discovery(api)
        self._clock = clock
        self._looked_for: Sequence[str] = ()
        self._look_at = 0.0
        self._watched: dict[str, tuple[str, Reflector[Any]]] = {}  # by group, with the path

    def follow(self, policy: Policy) -> None:
        """Watch what the policy names, or all where it names no topology; end what it names no more, or what has gone.

        Raises ApiFault when nobody can tell what is served: everything stays as it is then.
        """
        named = {spec.from_object.group for spec in policy.topologies if spec.from_object is not None}
        groups = sorted(named if policy.topologies else GROUPS)
        if groups == list(self._looked_for) and (not groups or self._clock() < self._look_at):
            return
        served: dict[str, str] = {}
        if groups:
            wanted = [
                Wanted(group, "Topology", (), any_version=True, resource=PLURAL, registered=False) for group in groups
            ]
            served = {one.group: one.path for one in self._discovery.look(wanted)}
        self._looked_for, self._look_at = groups, self._clock() + LOOK_EVERY
        for group, (path, reflector) in list(self._watched.items()):
            if served.get(group) != path:
                reflector.stop()
                self._stores.topology_objects[group].replace([])
                del self._watched[group]
                log.info("the Topology objects of %s are not watched any more", group)
        for group, path in served.items():
            if group not in self._watched:
                store = self._stores.topology_objects[group]
                reflector = Reflector(self._api, path, topology_object, store, optional=True)
                self._watched[group] = (path, reflector)
                reflector.start()
                log.info("watching %s", path)

    def wait_synced(self, timeout: float) -> bool:
        """Wait until every object that is watched has been seen; False when the time is over."""
        end = self._clock() + timeout
        stores = [self._stores.topology_objects[group] for group in self._watched]
        return all(store.wait_synced(max(0.0, end - self._clock())) for store in stores)

    def stop(self) -> None:
        """End every watch."""
        for _, reflector in self._watched.values():
            reflector.stop()
        self._watched.clear()


def follow_quietly(watch: TopologyWatch, policy: Policy) -> None:
    """Follow a policy; that nobody can be asked is told and left for the next time."""
    try:
        watch.follow(policy)
    except ApiFault as error:
        log.warning("whether there are Topology objects could not be asked: %s", error)
