"""The server process over real TLS: what is dear to answer, or waits, costs the others no place in a queue."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from tests.support.eventually import PROMPT
from tests.support.replica import PATIENCE, Replica, read_answer, request_bytes, review_body, write_authority
from webhook.admission.concurrency import PLACES
from webhook.connections.connection import LARGE
from webhook.connections.thread_pool import MAX_WAITING

THREADS = 2
NEARLY_ALL = 6 * 1024 * 1024  # bytes of a body that is below the limit of all bodies


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    write_authority(tmp_path, now=time.time())
    with Replica(tmp_path, threads=THREADS) as running:
        yield running


def send(replica: Replica, stack: contextlib.ExitStack, uid: str, *, name: str = "t1", size: int = 0) -> socket.socket:
    client = stack.enter_context(replica.tls())
    client.sendall(request_bytes(review_body(uid, name=name, size=size)))
    return client


def answer(client: socket.socket) -> tuple[int, str]:
    status, body = read_answer(client)
    return status, json.loads(body)["response"]["uid"] if status == 200 else body.decode().strip()


def assert_prompt(replica: Replica) -> None:
    begin = time.monotonic()
    assert replica.ask()[0] == 200
    assert time.monotonic() - begin < PROMPT


def test_large_requests_take_turns_and_leave_the_others_alone(replica: Replica) -> None:
    """More large reviews than there are threads: one is worked on, the next follow it, small ones do not wait."""
    with contextlib.ExitStack() as stack:
        first = send(replica, stack, "first", name="hold", size=LARGE)
        replica.event("entered")
        others = [send(replica, stack, f"l{n}", name="hold", size=100_000 * n) for n in range(1, THREADS + 2)]
        for _ in range(3):
            assert_prompt(replica)
        assert [line for line in replica.seen if line.startswith("entered")] == ["entered first"]
        replica.command("go")
        assert {answer(client)[0] for client in (first, *others)} == {200}


def test_no_more_large_requests_wait_than_memory_is_meant_for(replica: Replica) -> None:
    """What is too much is turned away at once, to come again; what waits is answered, and then there is room again."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor())
        first = send(replica, stack, "first", name="hold", size=LARGE)
        replica.event("entered")
        uids = [f"w{n}" for n in range(MAX_WAITING // NEARLY_ALL + 1)]
        answers = [pool.submit(answer, send(replica, stack, uid, size=NEARLY_ALL)) for uid in uids]
        turned_away = next(as_completed(answers, PATIENCE))
        assert turned_away.result() == (503, "too many large reviews at a time")
        assert [one for one in answers if one.done()] == [turned_away]
        replica.command("go")
        assert answer(first) == (200, "first")
        assert {one.result(PATIENCE)[0] for one in answers if one is not turned_away} == {200}
        assert answer(send(replica, stack, "again", size=NEARLY_ALL)) == (200, "again")


def test_reviews_that_wait_hold_no_turn_and_are_bounded(replica: Replica) -> None:
    """As many of one namespace as may wait do not delay another review; one more does not wait."""
    with contextlib.ExitStack() as stack:
        clients = [send(replica, stack, f"w{n}", name="wait") for n in range(PLACES // 2)]
        assert {replica.event("waiting") for _ in clients} == {"waiting True"}
        for _ in range(3):
            assert_prompt(replica)
        assert answer(send(replica, stack, "late", name="wait")) == (200, "late")
        assert replica.event("waiting") == "waiting False"
        replica.command("go")
        assert {answer(client)[0] for client in clients} == {200}
