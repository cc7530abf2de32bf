"""The start of a replica: what it waits for, and from when on it says that it is ready."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from engine import metrics
from tests.support.eventually import eventually
from tests.support.fake_api import Answer, FakeApi, Request, Stall
from webhook.server.metrics import Metrics
from webhook.server.wsgi import Service
from webhook.service import runtime
from webhook.service.runtime import Runtime
from webhook.service.settings import Settings

TOPOLOGIES = "/apis/kueue.x-k8s.io/v1beta1/topologies"


@pytest.fixture
def replica(
    fake: FakeApi, kubeconfig: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Runtime, Service]]:
    """A replica that has begun to start, in this process: with metrics of its own, and without its way to collect."""
    monkeypatch.setattr(runtime, "Metrics", lambda _: Metrics())
    monkeypatch.setattr(runtime, "gc", SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None))
    interval = sys.getswitchinterval()
    fake.install("kueue.x-k8s.io/v1beta1", "topologies", "Topology")
    fake.put(f"{TOPOLOGIES}/default", spec={"levels": [{"nodeLabel": "x/rack"}]})
    made = Runtime(
        Settings(
            namespace="topogate-system",
            identity="a",
            kubeconfig=kubeconfig(fake.url),
            ops_host="127.0.0.1",
            ops_port=0,
        )
    )
    service = made.service()
    yield made, service
    service.drain()
    service.stop()
    sys.setswitchinterval(interval)


def ready(one: Runtime) -> bool:
    return all(check.ok for check in one.checks())


def test_a_replica_is_ready_when_its_port_is_open_and_not_before(replica: tuple[Runtime, Service]) -> None:
    """Else the API server is told to call a port at which nobody listens yet, and refuses what it would ask about."""
    one, service = replica
    service.start()
    while not service.ready(0.5):
        assert not ready(one)
    assert not ready(one)
    service.listening(8443)
    assert ready(one)


def test_the_topologies_of_others_are_waited_for(fake: FakeApi, replica: tuple[Runtime, Service]) -> None:
    """An API server that takes a second for the list is no reason to refuse workloads that name one of them."""
    one, service = replica
    late = threading.Event()
    timer = threading.Timer(1.5, late.set)

    def asked(request: Request) -> bool:
        if request.path == TOPOLOGIES:
            timer.start()
        return request.path == TOPOLOGIES

    fake.fault(Stall(late, then_work=True), when=asked)
    service.start()
    while not service.ready(0.5):
        pass
    assert list(one._stores.topology_objects["kueue.x-k8s.io"].values()) != []


def test_the_topologies_of_others_that_may_not_be_read_are_among_the_missing_rights(
    fake: FakeApi, replica: tuple[Runtime, Service]
) -> None:
    """The replica is ready without them; the metric on which the alert rests says which right it lacks."""
    one, service = replica
    fake.fault(Answer(403, {"reason": "Forbidden"}), when=lambda request: request.path == TOPOLOGIES, times=1000)
    service.start()
    while not service.ready(0.5):
        pass

    def missing() -> bool:
        one._exposition()
        labels = {"collection": "topologies.kueue.x-k8s.io"}
        return metrics.registry.get_sample_value("topogate_forbidden_collections", labels) == 1

    eventually(missing)
