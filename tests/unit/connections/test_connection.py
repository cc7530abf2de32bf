"""A connection over a socket, without TLS: what it reads of what a client sends."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.support.eventually import eventually
from webhook.connections.connection import Connection, Progress

REQUEST = b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's end of a TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        contextlib.closing(listener.accept()[0]) as server,
    ):
        client.setblocking(False)
        yield client, server


def shaken(sock: socket.socket) -> Connection:
    """A connection after its handshake, as if there had been one."""
    found = Connection(sock, ("127.0.0.1", 1), ("127.0.0.1", 2), context=ssl.create_default_context, max_body=1024)
    found.handshaken = True
    return found


def test_who_sends_ahead_takes_no_more_memory_with_each_request(ends: tuple[socket.socket, socket.socket]) -> None:
    """A client that sends requests faster than they are answered waits with the rest: it is left in its socket."""
    client, connection = ends[0], shaken(ends[1])
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            while client.send(REQUEST * 1000):
                pass
        assert connection.advance() is Progress.ANSWER
        assert not connection.hung_up()
        assert connection.take()[0] == REQUEST
    assert len(connection.buffer) <= 2 * 65_536


def test_who_hung_up_after_a_request_is_seen(ends: tuple[socket.socket, socket.socket]) -> None:
    """Of a client that sent no more than the request, it is seen before it is answered."""
    client, connection = ends[0], shaken(ends[1])
    client.send(REQUEST)
    eventually(lambda: connection.advance() is Progress.ANSWER)
    assert not connection.hung_up()
    client.close()
    eventually(connection.hung_up)


def test_a_request_that_begins_before_an_answer_is_read_keeps_its_own_time_limit(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """The time to read an answer ends with the answer, and is none for the bytes that follow."""
    client, connection = ends[0], shaken(ends[1])
    client.send(REQUEST + REQUEST[:5])
    eventually(lambda: connection.advance() is Progress.ANSWER and len(connection.buffer) == len(REQUEST) + 5)
    connection.take()
    limit = connection.timeout
    answer = b"x" * 10_000_000
    assert connection.answer(answer, after=Progress.BYTES) is Progress.READER
    assert (connection.timeout != limit, connection.held) == (True, len(answer) + 5)
    read = bytearray()

    def sent() -> Progress:
        with contextlib.suppress(BlockingIOError):
            read.extend(client.recv(1_000_000))
        return connection.send() if connection.outgoing else Progress.ANSWER

    eventually(lambda: sent() is Progress.ANSWER)
    assert (connection.timeout, connection.held) == (limit, 5)
    with contextlib.suppress(BlockingIOError):
        while len(read) < len(answer):
            read.extend(client.recv(1_000_000))
    assert read == answer
