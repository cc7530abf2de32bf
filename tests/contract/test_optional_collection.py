"""An optional collection: watched where it is, an empty one where it is not."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from engine.api.objects import ConfigMap
from engine.cache.informers import Informers
from engine.cache.stores import Stores
from engine.cluster.client import KubeClient
from engine.cluster.reflector import ABSENT_CHECK, Reflector
from engine.cluster.store import Store
from tests.support.eventually import eventually
from tests.support.fake_api import Answer, FakeApi

ALL = "/apis/example.com/v1/things"


def project(raw: msgspec.Raw) -> ConfigMap:
    meta = msgspec.json.decode(raw)["metadata"]
    return ConfigMap("", meta["name"], meta["uid"], meta["resourceVersion"], {})


class Watched:
    """A reflector of an optional collection, its store, and how long it wished to wait."""

    def __init__(self, api: KubeClient) -> None:
        self.store: Store[ConfigMap] = Store(lambda record: record.name)
        self.delays: list[float] = []
        self.reflector: Reflector[ConfigMap] = Reflector(
            api, ALL, project, self.store, optional=True, rng=random.Random(1), wait=self._wait
        )
        self.reflector.start()

    def _wait(self, wake: threading.Event, seconds: float) -> None:
        self.delays.append(seconds)
        wake.wait(min(seconds, 0.01))


@pytest.fixture
def watch(api: KubeClient) -> Iterator[Callable[[], Watched]]:
    running: list[Watched] = []

    def begin() -> Watched:
        running.append(Watched(api))
        return running[-1]

    yield begin
    for one in running:
        one.reflector.stop()


def test_a_missing_collection_is_an_empty_one(fake: FakeApi, watch: Callable[[], Watched]) -> None:
    """It is synced, without a problem, and a new leader may begin."""
    fake.missing.add(ALL)
    watched = watch()
    assert watched.store.wait_synced(60)
    assert (watched.reflector.problem, len(watched.store)) == (None, 0)
    assert watched.reflector.refresh(60)


def test_what_we_may_not_read_counts_as_missing(fake: FakeApi, watch: Callable[[], Watched]) -> None:
    """A cluster role of an earlier version: the service runs, without devices."""
    fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path == ALL, times=1000)
    watched = watch()
    assert watched.store.wait_synced(60)
    assert watched.reflector.problem is None


def test_it_is_looked_for_at_a_steady_pace_without_a_word(
    fake: FakeApi, watch: Callable[[], Watched], caplog: pytest.LogCaptureFixture
) -> None:
    """Found within a bounded time whenever it comes; one line when it is missed, none for every look."""
    caplog.set_level(logging.INFO)
    fake.missing.add(ALL)
    watched = watch()
    eventually(lambda: len(watched.delays) >= 20)
    assert all(ABSENT_CHECK / 2 <= delay <= ABSENT_CHECK for delay in watched.delays[:20])
    assert watched.reflector.counts.faults == 0
    assert len([one for one in caplog.records if ALL in one.getMessage()]) == 1


def test_it_comes_and_goes_and_comes_again(fake: FakeApi, watch: Callable[[], Watched]) -> None:
    """A CRD that is installed later is watched; one that is removed leaves nothing behind."""
    fake.missing.add(ALL)
    watched = watch()
    assert watched.store.wait_synced(60)
    for turn in range(2):
        fake.put(f"{ALL}/one", data={"turn": str(turn)})
        fake.missing.clear()
        eventually(lambda: watched.store.get("one") is not None)
        fake.missing.add(ALL)
        fake.drop_watches()
        eventually(lambda: len(watched.store) == 0)
        assert watched.store.synced
        eventually(lambda: watched.reflector.problem is None)


def test_a_new_leader_reads_what_has_just_come(fake: FakeApi, watch: Callable[[], Watched]) -> None:
    """Between two looks the collection may have appeared: a term begins with what is there."""
    fake.missing.add(ALL)
    watched = watch()
    assert watched.store.wait_synced(60)
    fake.put(f"{ALL}/one")
    fake.missing.clear()
    assert watched.reflector.refresh(60)
    assert watched.store.get("one") is not None


def test_another_fault_is_no_absence(fake: FakeApi, watch: Callable[[], Watched]) -> None:
    """While the server is in trouble nobody knows whether there are devices: not synced, and the reason is told."""
    fake.fault(Answer(500, {"reason": "InternalError"}), when=lambda request: request.path == ALL, times=1000)
    watched = watch()
    eventually(lambda: len(watched.delays) >= 3)
    assert not watched.store.synced
    assert watched.reflector.problem is not None


def test_the_caches_do_without_device_objects(fake: FakeApi, api: KubeClient) -> None:
    """A cluster without the CRD of Koordinator: every cache is synced, none is missing, a term can begin."""
    fake.missing.add("/apis/scheduling.koordinator.sh/v1alpha1/devices")
    stores = Stores()
    caches = Informers(api, stores, namespace="topogate-system")
    caches.start()
    try:
        assert caches.wait_synced(60)
        assert caches.missing() == []
        assert caches.refresh(60)
    finally:
        caches.stop()


def test_the_caches_hold_device_objects(fake: FakeApi, api: KubeClient) -> None:
    """Where the CRD is, the devices of a node are known by its name."""
    device = {"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}
    fake.put("/apis/scheduling.koordinator.sh/v1alpha1/devices/host-1", spec={"devices": [device]})
    stores = Stores()
    caches = Informers(api, stores, namespace="topogate-system")
    caches.start()
    try:
        assert caches.wait_synced(60)
        known = stores.devices.get("host-1")
        assert known is not None and [one.minor for one in known.devices] == [0]
    finally:
        caches.stop()


def test_what_cannot_be_read_is_counted_while_it_is_there(fake: FakeApi, api: KubeClient) -> None:
    """One Device that is no Device, then a readable one of that name, then none."""
    path = "/apis/scheduling.koordinator.sh/v1alpha1/devices/host-1"
    fake.put(path, spec="none")
    caches = Informers(api, Stores(), namespace="topogate-system")
    caches.start()
    try:
        assert caches.wait_synced(60)
        assert caches.reflectors()["devices"].left_out == 1
        fake.put(path, spec={"devices": []})
        eventually(lambda: caches.reflectors()["devices"].left_out == 0)
        fake.put(path, spec="none")
        eventually(lambda: caches.reflectors()["devices"].left_out == 1)
        fake.remove(path)
        eventually(lambda: caches.reflectors()["devices"].left_out == 0)
    finally:
        caches.stop()
