"""The generators of load keep their schedules, and leave nothing out of what they report."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice

import pytest

from bench.scale.calls import Call, Caller, Port, Reviews, schedule
from bench.scale.events import changes, writer
from bench.scale.generator import Period
from bench.scale.load import Latency
from bench.scale.objects import pod_items
from bench.scale.storage import OPERATIONS, Storage
from certs.authority import new_authority
from certs.serving import ServingCertificate
from engine.decoding import pods
from local.nodes import Grid

GRID = Grid(1, 2, 4)
STALL = 0.4  # seconds
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_reviews_are_spread_over_the_period_at_their_rates() -> None:
    """One of each sort in each of its intervals, at a moment that differs from interval to interval."""
    due = schedule(Period(100.0, 102.0, {"pods": 50.0, "Jobs": 5.0}), seed=1)
    assert due == sorted(due)
    moments = [at for at, what in due if what == "pods"]
    assert [int((at - 100.0) * 50) for at in moments] == list(range(100))
    assert len({round((at * 50) % 1, 3) for at in moments}) > 50
    assert sum(what == "Jobs" for _, what in due) == 10


@contextmanager
def stalling(after: int) -> Iterator[Port]:
    """A TLS server that answers everything at once, but stands still for a while after so many requests."""
    authority = new_authority(now=time.time(), name="bench")
    context = ServingCertificate(lambda: authority, dns_names=["b"], addresses=["127.0.0.1"], clock=time.time).context
    turn, seen = threading.Lock(), iter(range(1, 1_000_000))

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as client:
            while data := client.recv(65_536):
                assert data.endswith(b"\r\n\r\nbody")
                with turn:
                    if next(seen) == after:
                        time.sleep(STALL)
                client.sendall(ANSWER)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield Port(listener.getsockname()[1], authority.bundle.decode("ascii"))
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_what_was_due_while_the_service_stood_still_counts() -> None:
    """Also the reviews for which no connection was left: a closed loop would send, and count, a handful."""
    with stalling(after=20) as port, closing(Caller(port, {"pods": Reviews("mutate", [b"body"], b"{}")})) as ask:
        begin = time.monotonic() + 0.05
        calls = ask(Period(begin, begin + 1.0, {"pods": 200.0}))
    assert len(calls) == 200
    slow = [call for call in calls if call.answered - call.due > STALL / 4]
    assert len(slow) >= 40  # of the 80 that were due meanwhile
    assert any(call.waited for call in slow)


def test_an_answer_without_what_was_expected_is_told() -> None:
    with stalling(after=0) as port, closing(Caller(port, {"pods": Reviews("mutate", [b"body"], b'"patch"')})) as ask:
        begin = time.monotonic()
        calls = ask(Period(begin, begin + 0.1, {"pods": 50.0}))
    assert Latency.of(calls).bare == len(calls) == 5


def test_latency_counts_from_when_a_review_was_due() -> None:
    calls = [Call("pods", due=1.0, sent=1.0 + late, answered=1.5, waited=late > 0) for late in (0.0, 0.25, 0.25)]
    found = Latency.of(calls)
    assert (found.count, found.p50, found.most, found.waited) == (3, 500.0, 500.0, 2)
    assert found.sent == pytest.approx(250.0)


def test_changes_are_events_of_objects_that_exist() -> None:
    """Nothing is deleted twice or created beside its predecessor, and every fourth or so changes the set of pods."""
    alive = {key: json.loads(value)["metadata"]["uid"] for key, value in pod_items(GRID, 64)}
    heartbeats = created = deleted = 0
    for key, value in islice(changes(GRID, 64), 2_500):
        if "/minions/" in key:
            heartbeats += 1
        elif value is None:
            deleted += 1
            del alive[key]
        else:
            pod = pods.pod(value)
            created += key not in alive
            assert alive.setdefault(key, pod.uid) == pod.uid
    assert (heartbeats, created, deleted, len(alive)) == (100, 400, 400, 64)


def test_changes_are_written_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction has two changes of one object, which etcd refuses, or more than it takes."""
    written: list[list[tuple[str, bytes | None]]] = []
    monkeypatch.setattr(Storage, "write", lambda _, items: written.append(list(items)))
    begin = time.monotonic() - 0.5  # late by half a second: everything is written all the same
    found = writer("http://127.0.0.1:1", GRID, 64)()(Period(begin, begin + 1.0, 2_000))
    assert found.count == sum(map(len, written)) == 2_000
    assert all(len({key for key, _ in one}) == len(one) <= OPERATIONS for one in written)
