"""The threads that work on connections, with connections that are only described."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from webhook.admission.concurrency import ReviewSlots
from webhook.connections.connection import Progress
from webhook.connections.thread_pool import ThreadPool

LONG = 10.0  # seconds until a test gives up


@dataclass
class Described:
    """What `ThreadPool` looks at of a connection."""

    address: str = "10.0.0.1"
    handshaken: bool = True
    large: bool = False
    complete: bool = False
    buffer: bytes = b""

    def advance(self) -> Progress:
        """What has arrived is a whole review; that of a large one is for other threads to continue."""
        return Progress.LARGE if self.large else Progress.ANSWER


SORTS = {
    "handshake": {"handshaken": False},
    "small": {},
    "large, being read": {"large": True},
    "large, complete": {"large": True, "complete": True},
}


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    running = ThreadPool(ReviewSlots(1, places=2))
    yield running
    running.shutdown()


def described(address: str, sort: str) -> Any:
    return Described(address=address, **SORTS[sort])


@pytest.mark.parametrize("sort", SORTS)
def test_a_crowd_from_one_address_keeps_only_itself_waiting(threads: ThreadPool, sort: str) -> None:
    """Whoever comes from another address is next, however many of the crowd came before him."""
    go, log = threading.Event(), []

    def work(connection: Any) -> Progress:
        assert go.wait(LONG)
        log.append(connection.address)
        return Progress.BYTES

    futures = [threads.submit(work, described("10.0.0.66", sort)) for _ in range(30)]
    futures.append(threads.submit(work, described("10.0.0.1", sort)))
    go.set()
    assert {future.result(LONG) for future in futures} == {Progress.BYTES}
    # One of the crowd was under way, and one may have been next.
    assert log.index("10.0.0.1") <= 2
    assert len(log) == 31


def test_one_large_request_too_many_is_refused_while_others_wait(threads: ThreadPool) -> None:
    """It is here as a whole: reading it again would send it back to where there is no place for it."""
    go, under_way, refused = threading.Event(), threading.Event(), []

    def work(connection: Any, busy: bool = False) -> Progress:
        under_way.set()
        assert go.wait(LONG)
        if busy:
            refused.append(connection)
        return Progress.BYTES

    def large() -> Any:
        return Described(buffer=b"x" * 9_000_000, **SORTS["large, complete"])

    futures = [threads.submit(work, Described())]
    assert under_way.wait(LONG)
    futures += [threads.submit(work, one) for one in (large(), large(), Described())]
    go.set()
    assert {future.result(LONG) for future in futures} == {Progress.BYTES}
    assert len(refused) == 1


def review(namespace: str, *, user: str = "alice") -> bytes:
    request = {"uid": "u", "name": "a", "namespace": namespace, "userInfo": {"username": user}, "object": {}}
    return b"POST /mutate HTTP/1.1\r\n\r\n" + json.dumps({"request": request}, separators=(",", ":")).encode()


@pytest.mark.parametrize("sort", ["small", "large, complete"])
def test_a_flood_of_one_tenant_keeps_only_itself_waiting(threads: ThreadPool, sort: str) -> None:
    """All come from one API server: a review of another namespace is next, however many of the flood came before it.

    A namespace is one tenant, whoever acts in it.
    """
    go, under_way, log = threading.Event(), threading.Event(), []

    def work(connection: Any) -> Progress:
        under_way.set()
        assert go.wait(LONG)
        log.append(connection.buffer)
        return Progress.BYTES

    flood = [review("crowd", user=f"robot-{number}") for number in range(30)]
    futures = [threads.submit(work, Described(buffer=flood[0], **SORTS[sort]))]
    assert under_way.wait(LONG)
    for buffer in (*flood[1:], review("ml"), review("other"), review("ml")):
        futures.append(threads.submit(work, Described(buffer=buffer, **SORTS[sort])))
    go.set()
    assert {future.result(LONG) for future in futures} == {Progress.BYTES}
    assert log[1:6] == [flood[1], review("ml"), review("other"), flood[2], review("ml")]
    assert len(log) == 33


def test_what_is_no_review_gives_way_while_others_wait(threads: ThreadPool) -> None:
    """Bytes that are no whole request yet, and a connection that broke: each comes back to its owner."""
    go, under_way = threading.Event(), threading.Event()

    class Incomplete(Described):
        def advance(self) -> Progress:
            return Progress.BYTES

    class Broken(Described):
        def advance(self) -> Progress:
            raise ConnectionResetError

    class Faulty(Described):
        def advance(self) -> Progress:
            raise RuntimeError("unheard of")

    def work(connection: Any) -> Progress:
        under_way.set()
        assert go.wait(LONG)
        return Progress.CLOSE if isinstance(connection, Broken) else Progress.ANSWER

    futures = [threads.submit(work, Described())]
    assert under_way.wait(LONG)
    futures += [threads.submit(work, one()) for one in (Incomplete, Broken, Faulty, Described)]
    go.set()
    assert [futures[number].result(LONG) for number in (0, 1, 2, 4)] == [
        Progress.ANSWER,
        Progress.BYTES,
        Progress.CLOSE,
        Progress.ANSWER,
    ]
    with pytest.raises(RuntimeError, match="unheard of"):
        futures[3].result(LONG)


def test_of_many_at_once_none_is_forgotten() -> None:
    """With several threads that choose at the same time; each gets its result."""
    threads = ThreadPool(ReviewSlots(4, places=2))
    try:
        everybody = [Described(buffer=review(f"n{number % 7}")) for number in range(3000)]
        futures = [threads.submit(lambda _: Progress.BYTES, one) for one in everybody]
        assert {future.result(LONG) for future in futures} == {Progress.BYTES}
    finally:
        threads.shutdown()


def test_what_work_raises_is_the_futures(threads: ThreadPool) -> None:
    """And the thread goes on."""

    def broken(_: Any) -> Progress:
        raise RuntimeError("unheard of")

    with pytest.raises(RuntimeError, match="unheard of"):
        threads.submit(broken, described("a", "small")).result(LONG)
    assert threads.submit(lambda _: Progress.CLOSE, described("a", "small")).result(LONG) is Progress.CLOSE


@pytest.mark.parametrize("sort", ["large, being read", "large, complete"])
def test_large_requests_rest_between_pieces(threads: ThreadPool, sort: str) -> None:
    """Reading and answering of large requests together leave the processor to others half of the time."""
    ends, begins, used = [], [], []

    def work(_: Any) -> Progress:
        begins.append(time.monotonic())
        start = time.thread_time()
        while time.thread_time() - start < 0.05:
            pass
        used.append(time.thread_time() - start)
        ends.append(time.monotonic())
        return Progress.BYTES

    for one in ("large, complete", sort):
        threads.submit(work, described("a", one)).result(LONG)
    assert begins[1] - ends[0] >= 0.9 * used[0]
