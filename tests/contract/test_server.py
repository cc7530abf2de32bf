"""The server process over real TLS: whoever misbehaves, others are answered at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from local.ports import free_ports
from tests.support.eventually import eventually
from tests.support.loopback import LOOPBACK
from tests.support.replica import (
    PATIENCE,
    Replica,
    api_server_request,
    post,
    read_answer,
    request_bytes,
    review_body,
)
from webhook.connections.connection import LARGE, WRITE_SECONDS

THREADS = 2
# Seconds. A healthy answer takes milliseconds, more on a busy machine; a thread that waits for a client at least the
# 3 s of ARRIVAL_SECONDS.
PROMPT = 2.5


@pytest.fixture(scope="module")
def replica(folder: Path) -> Iterator[Replica]:
    with Replica(folder, threads=THREADS) as running:
        yield running


def assert_prompt(replica: Replica) -> None:
    begin = time.monotonic()
    status, response = replica.ask()
    took = time.monotonic() - begin
    assert (status, response["allowed"]) == (200, True)
    assert took < PROMPT, f"answered after {took:.2f} s"


def test_silent_connections_hold_up_nobody(replica: Replica) -> None:
    """64 clients that shook hands and say nothing (Go dials ahead like that) do not delay another."""
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(replica.tls())
        assert_prompt(replica)


@pytest.mark.parametrize("address", LOOPBACK)
def test_reviews_are_answered_over_both_families(replica: Replica, address: str) -> None:
    """In a cluster whose pods have addresses of IPv6 alone, the API server calls over IPv6."""
    status, response = replica.ask(address=address)
    assert (status, response["allowed"]) == (200, True)


def test_half_open_connections_hold_up_nobody(replica: Replica) -> None:
    """Clients that connect and never begin the handshake, or stop in the middle of it, do not delay another."""
    hello = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="topogate.test")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    first_flight = hello.read()
    with contextlib.ExitStack() as stack:
        for cut in [0, 1, 40, len(first_flight)] * 8:
            stack.enter_context(replica.tcp()).sendall(first_flight[:cut])
        assert_prompt(replica)


@pytest.mark.parametrize("files", [264, 60], ids=["connection limit", "no file descriptors"])
def test_more_silent_connections_than_the_server_holds_keep_nobody_out(folder: Path, files: int) -> None:
    """At its limit of connections (64 here) or of open files the server lets the longest silent client go."""
    with Replica(folder, files=files) as replica, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(replica.tls())
        for _ in range(5):
            assert_prompt(replica)


@pytest.mark.parametrize("cut", [1, 60, -1], ids=["one byte", "half a head", "all but the last byte"])
def test_half_sent_requests_hold_up_nobody(replica: Replica, cut: int) -> None:
    """More half requests than there are threads do not delay another client."""
    with contextlib.ExitStack() as stack:
        for _ in range(THREADS * 4):
            stack.enter_context(replica.tls()).sendall(request_bytes(review_body())[:cut])
        assert_prompt(replica)


def test_a_half_sent_request_is_given_up(replica: Replica) -> None:
    """A request that does not arrive whole in its time limit costs the client its connection."""
    with replica.tls() as client:
        client.sendall(request_bytes(review_body())[:-1])
        assert client.recv(1) == b""


def test_a_handshake_that_does_not_begin_is_given_up(replica: Replica) -> None:
    """A connection that never says anything at all is closed by the server."""
    with replica.tcp() as client:
        assert client.recv(1) == b""


def test_a_request_in_pieces_is_answered(replica: Replica) -> None:
    """A slow but honest client gets its answer."""
    with replica.tls() as client:
        data = request_bytes(review_body("pieces", size=50_000))
        for start in range(0, len(data), 10_000):
            client.sendall(data[start : start + 10_000])
            assert_prompt(replica)
        status, body = read_answer(client)
        assert (status, json.loads(body)["response"]["uid"]) == (200, "pieces")


def slow_reader(replica: Replica, stack: contextlib.ExitStack) -> ssl.SSLSocket:
    """A client of another address whose socket takes next to nothing before it is read."""
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(PATIENCE)
    sock.bind(("127.0.0.9", 0))
    sock.connect(("127.0.0.1", replica.port))
    return stack.enter_context(replica.context().wrap_socket(sock, server_hostname="topogate.test"))


def ended_late(replica: Replica) -> float:
    return replica.metric("topogate_connections_ended_total", reason="late")


def large_answers(replica: Replica) -> float:
    return replica.metric("topogate_reviews_total", path="mutate", operation="CREATE", kind="Pod", outcome="patched")


def test_who_never_reads_its_answer_loses_the_connection(replica: Replica) -> None:
    """It is waited for a while, and counted with those that send too slowly."""
    before = ended_late(replica)
    with contextlib.ExitStack() as stack:
        slow_reader(replica, stack).sendall(request_bytes(review_body(name="large")))
        eventually(lambda: ended_late(replica) == before + 1)
        assert replica.ask()[0] == 200


@pytest.mark.parametrize("size", [0, 2 * LARGE], ids=["small reviews", "large reviews"])
def test_who_does_not_read_takes_no_thread_while_it_is_waited_for(replica: Replica, size: int) -> None:
    """Others are answered, however long those are waited for; who reads at last gets its whole answer."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(contextlib.closing(replica.client()))
        assert post(api, name="large")[0] == 200
        before = large_answers(replica)
        replica.command("wait-for-readers 600")
        stack.callback(replica.command, f"wait-for-readers {WRITE_SECONDS}")
        slow = [slow_reader(replica, stack) for _ in range(4 * THREADS)]
        for number, client in enumerate(slow):
            client.sendall(request_bytes(review_body(f"slow{number}", name="large", size=size)))
        eventually(lambda: large_answers(replica) == before + len(slow), message="the answers of all are made")
        api.request("POST", "/mutate?timeout=10s", review_body(size=size), {"Content-Type": "application/json"})
        assert api.getresponse().read()
        assert replica.metric("topogate_connections") == len(slow) + 1
        status, body = read_answer(slow[0])
        assert (status, json.loads(body)["response"]["uid"]) == (200, "slow0")
        slow[0].sendall(request_bytes(review_body("again")))
        assert read_answer(slow[0])[0] == 200


def test_a_kept_alive_connection_serves_many_reviews(replica: Replica) -> None:
    """Reviews that follow each other share one connection."""
    connection = replica.client()
    with contextlib.closing(connection):
        assert post(connection)[0] == 200
        sock = connection.sock
        for index in range(20):
            status, response = post(connection, uid=f"u{index}", path="/validate?timeout=2s")
            assert (status, response["uid"]) == (200, f"u{index}")
        assert connection.sock is sock


def test_reviews_in_the_api_servers_form_are_answered_like_all_others(replica: Replica) -> None:
    """On one connection by turns: also a fault, and one that is refused."""
    found = {}
    with replica.tls() as sock:
        for extra, name in product(("", "X-Other: 1\r\n"), ("t1", "boom", "not-synced")):
            sock.sendall(api_server_request(review_body(name=name), extra=extra))
            response = http.client.HTTPResponse(sock)
            response.begin()
            body = response.read()
            found[extra, name] = (response.status, dict(response.headers) | {"Date": ""}, body)
    assert [found["", name][0] for name in ("t1", "boom", "not-synced")] == [200, 500, 503]
    assert all(found["", name] == found["X-Other: 1\r\n", name] for name in ("t1", "boom", "not-synced"))


def test_a_handshake_is_counted_once_however_many_reviews_follow(replica: Replica) -> None:
    """And one that is never finished is not counted."""
    before = replica.metric("topogate_handshakes_total")
    with replica.tcp(), replica.tls() as sock:
        for _ in range(3):
            sock.sendall(api_server_request(review_body()))
            assert read_answer(sock)[0] == 200
        assert replica.metric("topogate_handshakes_total") == before + 1


def test_pipelined_requests_are_answered_in_order(replica: Replica) -> None:
    """Requests that arrive together are all answered, in their order."""
    with replica.tls() as client:
        client.sendall(b"".join(request_bytes(review_body(f"p{index}")) for index in range(5)))
        uids = []
        reader = client.makefile("rb")
        for _ in range(5):
            length = 0
            while (line := reader.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            uids.append(json.loads(reader.read(length))["response"]["uid"])
    assert uids == [f"p{index}" for index in range(5)]


def test_connection_close_is_honoured_although_the_client_holds_on(replica: Replica) -> None:
    """`Connection: close` from clients that do not close themselves delays nobody, and the server closes."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(replica.tls()) for _ in range(THREADS * 4)]
        for client in clients:
            client.sendall(request_bytes(review_body(), extra="Connection: close\r\n"))
        assert_prompt(replica)
        for client in clients:
            assert read_answer(client)[0] == 200
            assert client.recv(1) == b""


def test_plain_http_on_the_tls_port_is_told_so_and_holds_up_nobody(replica: Replica) -> None:
    """HTTP without TLS gets 400 in clear and its connection closed."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(replica.tcp()) for _ in range(THREADS * 4)]
        for client in clients:
            client.sendall(request_bytes(review_body()))
        assert_prompt(replica)
        for client in clients:
            status, body = read_answer(client)
            assert (status, b"HTTPS only" in body) == (400, True)


def test_tls_1_2_is_refused(replica: Replica) -> None:
    """Only TLS 1.3 is spoken."""
    old = replica.context(maximum=ssl.TLSVersion.TLSv1_2)
    with replica.tcp() as tcp, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(tcp, server_hostname="topogate.test")
    with replica.tls() as client:
        assert client.version() == "TLSv1.3"


def test_a_client_that_distrusts_the_certificate_is_named_in_the_log_once(replica: Replica) -> None:
    """The usual fault of an installation, a stale caBundle, is said in plain words, and not once a request."""
    stranger = ssl.create_default_context()
    for _ in range(3):
        with replica.tcp() as tcp, pytest.raises(ssl.SSLCertVerificationError):
            stranger.wrap_socket(tcp, server_hostname="topogate.test")
    eventually(lambda: replica.log.read_text().count("is caBundle current?") == 1)
    assert "('127.0.0.1', " in replica.log.read_text().partition(" does not trust our certificate")[0].splitlines()[-1]
    assert_prompt(replica)
    assert replica.log.read_text().count("is caBundle current?") == 1


LENGTH = "Content-Type: application/json\r\nContent-Length: "


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        pytest.param(f"POST /mutate HTTP/1.1\r\n{LENGTH}{8 << 20}\r\n", b"x" * 100_000, 413, id="too long"),
        pytest.param(f"POST /mutate HTTP/1.1\r\n{LENGTH}{'9' * 30}\r\n", b"", 413, id="absurdly long"),
        pytest.param("POST /mutate HTTP/1.1\r\nContent-Type: application/json\r\n", b"", 411, id="no length"),
        pytest.param(
            "POST /mutate HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
            b"5\r\nhello\r\n",
            411,
            id="chunked and unfinished",
        ),
        pytest.param(f"POST /mutate HTTP/1.1\r\n{LENGTH}minus\r\n", b"", 400, id="length is no number"),
        pytest.param(f"POST /mutate HTTP/1.1\r\n{LENGTH}2\r\nContent-Length: 3\r\n", b"{}", 400, id="two lengths"),
        pytest.param(f"POST /mutate HTTP/1.1\r\n{LENGTH}9\r\nExpect: 100-continue\r\n", b"", 417, id="expects"),
        pytest.param("POST /mutate HTTP/9.9\r\n", b"", 400, id="no such HTTP"),
        pytest.param("PO ST / HTTP/1.1\r\n", b"", 400, id="no request line"),
        pytest.param(f"GET /{'a' * 5000} HTTP/1.1\r\n", b"", 414, id="long target"),
        pytest.param(f"GET / HTTP/1.1\r\nA: {'a' * 70_000}\r\n", b"", 431, id="long head"),
        pytest.param("GET /mutate HTTP/1.1\r\n", b"", 405, id="another method"),
        pytest.param("POST /elsewhere HTTP/1.1\r\nContent-Length: 0\r\n", b"", 404, id="another path"),
    ],
)
def test_what_is_no_review_is_refused_at_once(replica: Replica, head: str, body: bytes, status: int) -> None:
    """Every malformed request is answered with its status promptly, however much of its body is missing."""
    with replica.tls() as client:
        begin = time.monotonic()
        client.sendall(head.encode() + b"Host: t\r\n\r\n" + body)
        assert read_answer(client)[0] == status
        assert time.monotonic() - begin < PROMPT


def test_a_refused_body_does_not_reset_the_refusal_away(replica: Replica) -> None:
    """A client that insists on sending 8 MiB first still gets to read 413."""
    with replica.tls() as client:
        size = 8 << 20
        client.sendall(f"POST /mutate HTTP/1.1\r\nHost: t\r\n{LENGTH}{size}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            client.sendall(b"x" * (1 << 20))
        assert read_answer(client)[0] == 413


def test_a_body_of_almost_seven_mebibytes_is_read(replica: Replica) -> None:
    """The limit leaves room for two objects of 3 MiB."""
    with replica.tls() as client:
        client.sendall(request_bytes(review_body("big", size=(7 << 20) - 400)))
        assert read_answer(client)[0] == 200


def test_a_broken_handler_is_500_and_never_a_denial(replica: Replica) -> None:
    """An exception in a handler is an HTTP error without any detail; the log names the review."""
    before = replica.log.read_text().count("RuntimeError: the handler is broken")
    status, answer = replica.ask(name="boom", uid="boom-7")
    assert (status, answer["text"]) == (500, "internal error\n")
    log = replica.log.read_text()
    assert "review boom-7 on mutate failed" in log
    assert log.count("RuntimeError: the handler is broken") == before + 1


def test_a_handler_that_is_not_ready_is_503_with_retry_after(replica: Replica) -> None:
    """The API server retries inside its own time limit when it is told to."""
    status, answer = replica.ask(name="not-synced")
    assert (status, answer["text"], answer["headers"]["Retry-After"]) == (503, "cache not synced\n", "1")


def test_a_new_certificate_is_served_without_ending_a_connection(folder: Path) -> None:
    """After a renewal new handshakes see the new certificate, and connections that stand go on."""
    with Replica(folder) as replica:
        old = replica.client()
        with contextlib.closing(old):
            assert post(old)[0] == 200
            assert isinstance(old.sock, ssl.SSLSocket)
            before = old.sock.getpeercert(binary_form=True)
            sock = old.sock
            replica.command("renew")
            replica.event("renewed")
            with replica.tls() as fresh:
                assert fresh.getpeercert(binary_form=True) != before
            assert post(old)[0] == 200
            assert old.sock is sock


def test_the_port_is_closed_until_the_service_is_ready(folder: Path) -> None:
    """Before readiness connections are refused by the kernel; then they are answered."""
    with Replica(folder, wait=True, port=free_ports(1)[0]) as replica:
        with pytest.raises(ConnectionRefusedError):
            replica.tcp()
        replica.command("ready")
        replica.event("listening")
        assert_prompt(replica)


def test_sigterm_before_readiness_ends_at_once(folder: Path) -> None:
    """A replica that never became ready stops with status 0 and still drains and stops its service."""
    with Replica(folder, wait=True, port=free_ports(1)[0]) as replica:
        replica.terminate()
        assert replica.process.wait(PATIENCE) == 0
        replica.event("drain")
        replica.event("stop")


def test_sigterm_finishes_a_review_in_flight(folder: Path) -> None:
    """A review in flight is answered after SIGTERM; the Lease goes first, the process ends with status 0."""
    with Replica(folder) as replica:
        answers: list[tuple[int, bool]] = []

        def hold() -> None:
            status, response = replica.ask(name="hold", uid="held")
            answers.append((status, response["allowed"]))

        client = threading.Thread(target=hold)
        client.start()
        replica.event("entered")
        replica.terminate()
        replica.event("drain")
        assert answers == []
        replica.command("go")
        client.join(PATIENCE)
        assert answers == [(200, True)]
        replica.event("stop")
        assert replica.process.wait(PATIENCE) == 0


def test_sigterm_does_not_wait_for_silent_connections(folder: Path) -> None:
    """Idle and half-open connections do not hold up the end; kept-alive ones may still send one more request.

    The grace period is far longer than the test's patience, so that it cannot be what ended the process.
    """
    with Replica(folder, graceful=10 * int(PATIENCE)) as replica, contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(replica.tcp())
            stack.enter_context(replica.tls())
        connection = replica.client()
        stack.enter_context(contextlib.closing(connection))
        assert post(connection)[0] == 200
        replica.terminate()
        replica.event("drain")
        assert post(connection)[0] == 200
        assert replica.process.wait(PATIENCE) == 0


def test_whoever_is_connected_when_a_worker_stops_is_answered_by_it(folder: Path) -> None:
    """Connections that nobody has accepted yet are taken over before the port is closed: none is reset."""
    with Replica(folder) as replica, contextlib.ExitStack() as stack:
        os.kill(replica.worker, signal.SIGSTOP)
        waiting = [stack.enter_context(replica.tcp()) for _ in range(8)]
        os.kill(replica.worker, signal.SIGTERM)
        os.kill(replica.worker, signal.SIGCONT)
        for sock in waiting:
            with replica.context().wrap_socket(sock, server_hostname="topogate.test") as client:
                client.sendall(request_bytes(review_body()))
                status, body = read_answer(client)
            assert (status, json.loads(body)["response"]["warnings"]) == (200, [str(replica.worker)])


def test_the_worker_ends_when_its_parent_is_killed(folder: Path) -> None:
    """kill -9 of the arbiter leaves no orphan: the worker drains, stops and goes."""
    with Replica(folder) as replica:
        replica.process.kill()
        replica.event("drain")
        replica.event("stop")


def test_a_killed_worker_is_replaced(folder: Path) -> None:
    """kill -9 of the worker brings a new one."""
    with Replica(folder) as replica:
        os.kill(replica.worker, 9)
        replica.event("started")
        replica.port = int(replica.event("listening").split()[1])
        assert_prompt(replica)


def test_two_replicas_share_a_port_and_one_may_be_killed(folder: Path) -> None:
    """With SO_REUSEPORT the survivor answers every new connection after kill -9 of the other."""
    with Replica(folder) as first, Replica(folder, port=first.port) as second:
        seen: set[str] = set()
        for _ in range(200):  # the kernel chooses by the client's port: one of two never comes in 2^199 cases
            seen.update(second.ask()[1]["warnings"])
            if len(seen) == 2:
                break
        assert seen == {str(first.worker), str(second.worker)}
        first.kill_both()
        for _ in range(30):
            status, response = second.ask()
            assert (status, response["warnings"]) == (200, [str(second.worker)])


def test_a_replica_that_stops_hands_every_connection_to_the_other(folder: Path) -> None:
    """While one of two replicas on a port drains, new connections are answered by the other and none gets stuck."""
    with Replica(folder) as first, Replica(folder, port=first.port) as second, contextlib.ExitStack() as stack:
        for _ in range(200):
            # A kept-alive connection keeps the first one draining for two seconds.
            connection = stack.enter_context(contextlib.closing(first.client()))
            if post(connection)[1]["warnings"] == [str(first.worker)]:
                break
        first.terminate()
        first.event("drain")
        asked = 0
        while first.process.poll() is None:
            # Who knocks just while the port is left is let in by the other when TCP knocks again, after a second; who
            # got stuck would have no answer in PATIENCE.
            status, response = second.ask()
            assert (status, response["allowed"]) == (200, True)
            asked += 1
        assert (asked > 1, first.process.returncode) == (True, 0)
