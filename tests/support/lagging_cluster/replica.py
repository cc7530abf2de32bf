"""A replica of the service: caches that watches fill late, the real webhook's reader, controller and executor."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, cast

from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.cluster.client import KubeClient
from engine.cluster.events import Recorder, Regarding
from engine.cluster.lease import NotLeader
from engine.controller.controller import Controller
from engine.controller.executor import ActionExecutor
from engine.decoding import objects, placements, pods, workloads
from engine.policy.model import parse_policy
from tests.support.fake_api import Json
from tests.support.lagging_cluster.api import NODES, PLACEMENTS, PODS, FaultyClient
from tests.support.lagging_cluster.workloads import KINDS
from tests.support.lagging_cluster.world import World
from tests.support.leader import Later
from tests.support.raw_pods import ended
from webhook.admission.live_reader import LiveReader

TWICE = 0.1  # the part of events that a watch delivers twice
_UNREAD = 0.3  # of `World.faulty`: how often a new leader cannot read everything at first


class AtOnce(Executor):
    """Runs everything before `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Replica:
    """One replica; its writes wait in `pool`, what its watches show waits until `deliver`."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self._stores = Stores()
        self.view = ClusterState(self._stores, parse_policy(world.policy), clock=lambda: world.now)
        client = FaultyClient(
            world.api,
            world.rng,
            faulty=lambda: world.faulty,
            note=lambda *what: world.note(self.name, *what),
            wrote=world.wrote,
        )
        executor = ActionExecutor(
            self.view,
            cast(KubeClient, client),
            cast(Recorder, self),
            fence=self._fence,
            wall=lambda: world.wall,
        )
        executor._patchers.shutdown()
        executor._patchers = AtOnce()  # type: ignore[assignment]
        self.pool = Later()
        self._term = 0
        self.controller = Controller(
            self.view,
            executor,
            leads=lambda: world.leader == name,
            begin_term=self._begin,
            monotonic=lambda: world.now,
            wall=lambda: world.wall,
            pool=self.pool,
        )
        self.reader = LiveReader(
            self.view,
            own_username="topogate",
            own_namespace="topogate-system",
            policy_loaded=lambda: True,
            clock=lambda: world.now,
            wall=lambda: world.wall,
        )
        self._positions: dict[str, int] = {}
        self.list_all()

    def record(self, regarding: Regarding, *, reason: str, **_: Any) -> None:
        """Take an Event, as `Recorder` does."""
        if any(regarding.kind == one.kind for one in KINDS.values()):
            self._world.note(self.name, "event", regarding.name, reason)

    def list_all(self) -> None:
        for collection in self._world.collections:
            self.list(collection)

    def list(self, collection: str) -> None:
        """A watch begins anew, with a list."""
        api = self._world.api
        found = [self._decoded(collection, one) for one in api.objects(collection) if _watched(one)]
        self._store(collection).replace(found, resource_version=str(api.version))
        self._positions[collection] = api.seen()

    def deliver(self, collection: str, most: int | None = None) -> None:
        """The watch of a collection delivers its next events, all or `most`."""
        store, delivered = self._store(collection), 0
        for number, kind, body in self._world.api.changes(collection, self._positions[collection]):
            if delivered == most:
                return
            self._positions[collection] = number
            record, delivered = self._decoded(collection, body), delivered + 1
            gone = kind == "DELETED" or not _watched(body)
            store.apply("DELETED" if gone else kind, record)
            if not gone and self._world.rng.random() < TWICE:
                store.apply("MODIFIED", record)
        self._positions[collection] = self._world.api.seen()

    def work(self) -> None:
        """All that waits is written, in order."""
        while self.pool.waiting:
            self.pool.waiting.pop(0)()

    def catch_up(self) -> None:
        """Every watch delivers everything."""
        for collection in self._world.collections:
            self.deliver(collection)

    def _begin(self) -> bool:
        self._term = self._world.term
        if self._world.rng.random() < self._world.faulty * _UNREAD:
            return False
        self.list_all()
        return True

    def _fence(self) -> None:
        if (self._world.leader, self._world.term) != (self.name, self._term):
            raise NotLeader("does not lead")

    def _store(self, collection: str) -> Any:
        single = {NODES: self._stores.nodes, PODS: self._stores.pods, PLACEMENTS: self._stores.placements}
        if collection in single:
            return single[collection]
        return self._stores.workloads.part(*_group_and_kind(collection))

    def _decoded(self, collection: str, body: Json) -> Any:
        raw = json.dumps(body).encode()
        if collection == NODES:
            return objects.node(raw)
        if collection == PODS:
            return pods.pod(raw, labels=self.view.policy.pod_labels)
        if collection == PLACEMENTS:
            return placements.placement(raw)
        registry = self.view.registry
        entry = registry.find(*_group_and_kind(collection), collection.split("/")[3])
        assert entry is not None
        return workloads.workload(raw, entry=entry, registry=registry)


def _group_and_kind(collection: str) -> tuple[str, str]:
    return collection.split("/")[2], next(one.kind for one in KINDS.values() if one.collection == collection)


def _watched(body: Json) -> bool:
    """A pod that has ended is in no list, and its watch shows it as deleted."""
    return body.get("kind") != "Pod" or not ended(body)
