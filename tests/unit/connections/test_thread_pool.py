"""The threads that work on connections, with connections that are only described."""

from __future__ import annotations

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
