"""More clients than the server has places, memory or time for: some lose their connection, and nobody else anything."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.replica import Replica, post, read_answer, request_bytes, review_body

PLACES = 64  # with so few files that the server has the least number of places
FILES = 264
REFUSED = b"POST /mutate HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"


@pytest.fixture(scope="module")
def replica(folder: Path) -> Iterator[Replica]:
    """One worker for all tests that are not the end of theirs."""
    with Replica(folder, files=FILES, threads=2) as running:
        yield running


@pytest.fixture(autouse=True)
def _nobody_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "replica" in request.fixturenames:
        replica = request.getfixturevalue("replica")
        assert replica.worker_lives()
        eventually(lambda: replica.metric("topogate_connections") == 0, message="all connections are given back")


@contextlib.contextmanager
def stopped(replica: Replica) -> Iterator[None]:
    """Whatever happens meanwhile, the worker sees in one turn of its poller, in the order in which it happened."""
    os.kill(replica.worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(replica.worker, signal.SIGCONT)


def assert_answered(replica: Replica) -> None:
    status, response = replica.ask()
    assert (status, response["allowed"]) == (200, True)


def refuse(client: socket.socket) -> None:
    """Make the server linger: it has answered for the last time and waits for the rest of the request."""
    client.sendall(REFUSED)
    assert read_answer(client)[0] == 417


def given_up(client: socket.socket) -> bool:
    """True once the server has closed or reset the connection."""
    client.setblocking(False)
    try:
        return client.recv(65_536) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


@pytest.mark.parametrize("stage", ["arriving", "idle", "leaving"])
def test_who_speaks_just_when_room_is_made_does_no_harm(replica: Replica, stage: str) -> None:
    """A connection that has to go in the turn in which it becomes readable goes once, and the worker goes on."""
    with contextlib.ExitStack() as stack:
        connect = replica.tcp if stage == "arriving" else replica.tls
        old = [stack.enter_context(connect()) for _ in range(PLACES - 2)]
        if stage == "leaving":
            for client in old:
                refuse(client)
        with stopped(replica):
            for _ in range(8):
                stack.enter_context(replica.tcp())
            for client in old:
                with contextlib.suppress(OSError):
                    client.sendall(b"\x16")
        assert_answered(replica)
        assert replica.metric("topogate_connections") <= PLACES
        assert replica.metric("topogate_server_faults_total", port="webhook") == 0


@pytest.mark.parametrize("files", [FILES, 60], ids=["places", "file descriptors"])
def test_connections_are_counted_right_whatever_ends_them(folder: Path, files: int) -> None:
    """Those that went to make room, in any stage, are neither forgotten nor counted twice."""
    with Replica(folder, files=files) as replica:
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                for number in range(PLACES + 20):
                    with contextlib.suppress(OSError):
                        client = stack.enter_context((replica.tcp, replica.tls)[number % 2]())
                        if number % 4 == 1:
                            refuse(client)
                assert 0 <= replica.metric("topogate_connections") <= PLACES
        assert replica.metric("topogate_connections_ended_total", reason="room") > 0
        eventually(lambda: replica.metric("topogate_connections") == 0)
        assert_answered(replica)


def test_a_crowd_of_strangers_ends_no_connection_that_was_used(replica: Replica) -> None:
    """Whoever has had a review answered keeps his place, however long he was silent; strangers make room."""
    with contextlib.ExitStack() as stack:
        used = replica.client()
        stack.enter_context(contextlib.closing(used))
        assert post(used)[0] == 200
        sock = used.sock
        for _ in range(2 * PLACES):
            stack.enter_context(replica.tls())
        assert post(used)[0] == 200
        assert used.sock is sock


def test_used_connections_do_not_keep_a_newcomer_out(replica: Replica) -> None:
    """Who proves himself on more connections than there are places loses the oldest of them to others."""
    with contextlib.ExitStack() as stack:
        for _ in range(PLACES + 10):
            client = replica.client()
            stack.enter_context(contextlib.closing(client))
            assert post(client)[0] == 200
        assert_answered(replica)


def test_a_crowd_from_one_address_ends_nobody_from_another(replica: Replica) -> None:
    """A silent connection, such as the API server dials ahead, outlives any number of them from elsewhere."""
    with contextlib.ExitStack() as stack:
        ahead = stack.enter_context(replica.tls("127.0.0.2"))
        for _ in range(2 * PLACES):
            stack.enter_context(replica.tls())
        ahead.sendall(request_bytes(review_body("ahead")))
        status, body = read_answer(ahead)
        assert (status, json.loads(body)["response"]["uid"]) == (200, "ahead")


def test_unfinished_requests_are_bounded_in_memory(folder: Path) -> None:
    """When they take more than their limit, the oldest goes; the others are answered once they are whole."""
    whole = request_bytes(review_body("late", size=40_000))
    with Replica(folder, max_partial=100_000) as replica, contextlib.ExitStack() as stack:
        clients = []
        for _ in range(3):
            clients.append(stack.enter_context(replica.tls()))
            clients[-1].sendall(whole[:-1])
        eventually(lambda: given_up(clients[0]))
        assert replica.metric("topogate_connections_ended_total", reason="memory") == 1
        for client in clients[1:]:
            client.sendall(whole[-1:])
            assert read_answer(client)[0] == 200


@pytest.mark.parametrize("method", ["advance", "discard"], ids=["in the pool", "on the poller"])
def test_an_error_of_ours_ends_one_connection_and_is_counted_and_logged(folder: Path, method: str) -> None:
    """Whatever nobody has thought of costs the client his connection, and the worker nothing."""
    with Replica(folder) as replica, replica.tls() as client:
        replica.command(f"break {method}")
        replica.event("broken")
        # The server lingers after a refusal for one second only: what it then discards is there before it refuses. It
        # reads a few records before that, to see if the client hung up and to end TLS.
        with stopped(replica), contextlib.suppress(OSError):  # the end of the handshake may have met it already
            for data in (REFUSED, *[b"x"] * 8):
                client.sendall(data)
        eventually(lambda: given_up(client))
        assert_answered(replica)
        assert replica.worker_lives()
        # The client of a refused request is told the end before the server has met the rest of it.
        eventually(lambda: replica.metric("topogate_server_faults_total", port="webhook") == 1)
        eventually(lambda: replica.log.read_text().count("RuntimeError: unheard of") == 1)


def test_the_worker_needs_no_thread_that_it_does_not_have(folder: Path) -> None:
    """When the system gives no more threads (here: no memory for a stack), reviews are answered by those there are."""
    with Replica(folder, threads=4) as replica:
        pages = int(Path(f"/proc/{replica.worker}/statm").read_text().split()[0])
        room = (pages * resource.getpagesize() + (4 << 20),) * 2
        resource.prlimit(replica.worker, resource.RLIMIT_AS, room)
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(replica.tls())
            assert_answered(replica)
        assert replica.worker_lives()


def test_a_review_does_not_wait_behind_handshakes(folder: Path) -> None:
    """Whoever has a connection is answered while a crowd that began its handshakes before him still waits."""
    hello = ssl.MemoryBIO()
    shaking = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="topogate.test")
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    first_flight = hello.read()
    with Replica(folder) as replica, contextlib.ExitStack() as stack:
        client = stack.enter_context(replica.tls())
        crowd = [stack.enter_context(replica.tcp()) for _ in range(200)]
        eventually(lambda: replica.metric("topogate_connections") == 1 + len(crowd))
        with stopped(replica):
            for other in crowd:
                other.sendall(first_flight)
            client.sendall(request_bytes(review_body()))
        assert read_answer(client)[0] == 200
        ready, _, _ = select.select(crowd, [], [], 0)
        assert len(ready) < len(crowd) * 3 // 4
