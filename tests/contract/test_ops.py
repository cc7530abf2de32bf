"""The plain-HTTP port: probes and metrics, whatever its clients do."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.loopback import LOOPBACK
from webhook.server import plain_http
from webhook.server.fault_log import FaultLog
from webhook.server.metrics import CONTENT_TYPE, Metrics
from webhook.server.ops import Check, pages
from webhook.server.plain_http import MAX_CLIENTS, Page, PlainServer

TIMEOUT = 20.0


class Ops:
    """A running server whose readiness the test sets."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.metrics = Metrics()
        self.table = dict(pages(ready=lambda: self.checks, metrics=lambda: (CONTENT_TYPE, self.metrics.exposition())))
        self.table["/broken"] = self.broken
        self.server = PlainServer(self.table, port=0, fault=FaultLog(self.metrics, "ops").report)
        self.server.start()

    def broken(self) -> Page:
        raise RuntimeError("secret")

    def get(self, path: str, method: str = "GET", *, address: str = "127.0.0.1") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(address, self.server.port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.headers.get_content_type(), response.read().decode()

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=TIMEOUT)


@pytest.fixture(scope="module")
def running() -> Iterator[Ops]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_http, "CLIENT_SECONDS", 1.0)
        server = Ops()
        yield server
        server.server.close()


@pytest.fixture
def ops(running: Ops) -> Ops:
    running.checks = [Check("policy", ok=True)]
    return running


def test_healthz_is_200_whatever_the_readiness(ops: Ops) -> None:
    """Liveness depends on nothing but the process."""
    ops.checks = [Check("caches", ok=False)]
    assert ops.get("/healthz") == (200, "text/plain", "ok\n")


@pytest.mark.parametrize("address", LOOPBACK)
def test_probes_are_answered_over_both_families(ops: Ops, address: str) -> None:
    """A kubelet calls the first of a pod's addresses, which may be of IPv6."""
    assert ops.get("/healthz", address=address) == (200, "text/plain", "ok\n")


def test_readyz_lists_its_checks_and_fails_with_any_of_them(ops: Ops) -> None:
    """200 when every check holds, else 503; the text names each one."""
    ops.checks = [Check("policy", ok=True, detail="3f2a"), Check("certificate", ok=True)]
    assert ops.get("/readyz?verbose") == (200, "text/plain", "[+] policy: 3f2a\n[+] certificate\n")
    ops.checks.append(Check("caches", ok=False, detail="pods not synced"))
    status, _, text = ops.get("/readyz")
    assert status == 503
    assert "[-] caches: pods not synced\n" in text


def test_metrics_are_in_prometheus_text(ops: Ops) -> None:
    """Our own, the process's and the garbage collector's."""
    ops.metrics.answered("mutate", operation="CREATE", kind="Pod", outcome="allowed", seconds=0.002)
    status, content_type, text = ops.get("/metrics")
    assert (status, content_type) == (200, "text/plain")
    assert 'topogate_review_duration_seconds_bucket{le="0.0025",outcome="allowed",path="mutate"} 1.0' in text
    assert "process_resident_memory_bytes" in text
    assert "python_gc_collections_total" in text


@pytest.mark.parametrize("path", ["/", "/mutate", "/healthz/", "/%2e%2e/etc/passwd"])
def test_an_unknown_path_is_404(ops: Ops, path: str) -> None:
    """Nothing else is served here."""
    assert ops.get(path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "__CLASS__"])
def test_other_methods_are_405(ops: Ops, method: str) -> None:
    """Reading is all that one can do."""
    assert ops.get("/healthz", method)[0] == 405


def test_head_has_no_body(ops: Ops) -> None:
    """HEAD answers like GET, without the text."""
    assert ops.get("/healthz", "HEAD") == (200, "text/plain", "")


def test_a_page_that_fails_is_500_without_details(ops: Ops) -> None:
    """A fault in a check is logged, not shown."""
    status, _, text = ops.get("/broken")
    assert (status, text) == (500, "internal error\n")


def test_silent_clients_lose_their_connection(ops: Ops) -> None:
    """Clients that fill every place and say nothing are ended by the time limit."""
    with contextlib.ExitStack() as stack:
        for client in [stack.enter_context(ops.tcp()) for _ in range(MAX_CLIENTS)]:
            assert client.recv(1) == b""


def test_a_probe_is_answered_beside_any_number_of_silent_clients(ops: Ops) -> None:
    """Of those who say nothing the oldest makes room: kubelets always get through."""
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            for _ in range(MAX_CLIENTS):
                stack.enter_context(ops.tcp()).sendall(b"GET ")
            assert ops.get("/healthz")[0] == 200


def test_a_client_who_has_asked_is_answered_before_he_makes_room(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes between a request's arrival and the look at it, nobody is turned away unheard."""
    asking, go = threading.Event(), threading.Event()

    def slow() -> Page:
        asking.set()
        assert go.wait(TIMEOUT)
        return Page(200, "text/plain", b"")

    monkeypatch.setitem(ops.table, "/slow", slow)
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(ops.tcp())
        early.sendall(b"GET /healthz HT")
        holding = threading.Thread(target=ops.get, args=("/slow",))
        holding.start()
        assert asking.wait(TIMEOUT)
        for _ in range(2 * MAX_CLIENTS):
            stack.enter_context(ops.tcp())
        early.sendall(b"TP/1.0\r\n\r\n")
        go.set()
        holding.join(TIMEOUT)
        assert early.recv(4096).startswith(b"HTTP/1.0 200 OK")


def test_no_client_needs_a_thread(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the system gives no more threads, every probe is answered all the same."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(20):
        assert ops.get("/healthz")[0] == 200


def test_a_probe_is_answered_when_no_file_descriptor_is_left(ops: Ops) -> None:
    """One is kept for it, also for the next."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert ops.get("/healthz")[0] == 200
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(4)]
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (clients[-1].fileno() + 64, hard))
        with contextlib.suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(0))
        for client in clients:
            client.settimeout(TIMEOUT)
            client.connect(("127.0.0.1", ops.server.port))
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.0 200 OK")
    assert ops.get("/healthz")[0] == 200


def test_an_error_of_ours_ends_one_client_and_is_told(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever nobody has thought of costs the client his connection, and the server nothing."""

    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("unheard of")

    with monkeypatch.context() as patch, ops.tcp() as client:
        patch.setattr(PlainServer, "_answer", broken)
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert client.recv(1) == b""
    assert ops.get("/healthz")[0] == 200
    assert 'topogate_server_faults_total{port="ops"} 1.0' in ops.metrics.exposition().decode()


def test_who_sends_without_end_holds_up_nobody(ops: Ops) -> None:
    """The refusal of an endless request is sent, and the rest read beside all others until the time is up."""
    stop = threading.Event()

    def send() -> None:
        with ops.tcp() as client, contextlib.suppress(OSError):
            client.sendall(b"POST /healthz HTTP/1.0\r\n\r\n")
            while not stop.is_set():
                client.sendall(b"x" * 65_536)

    endless = threading.Thread(target=send)
    endless.start()
    try:
        for _ in range(5):
            assert ops.get("/healthz")[0] == 200
    finally:
        stop.set()
        endless.join(TIMEOUT)


def test_a_client_that_drips_is_ended_by_the_limit_for_the_whole_request(ops: Ops) -> None:
    """A byte now and then does not extend the time."""
    with ops.tcp() as client:
        client.settimeout(0.2)
        client.sendall(b"GET /healthz HTTP/1.0\r\n")
        for _ in range(100):
            with contextlib.suppress(TimeoutError):
                assert client.recv(1) == b""
                return
            client.sendall(b"A: b\r\n")
    pytest.fail("the connection was never ended")


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"\r\n\r\n", b"GET\r\n\r\n", b"A" * 70_000 + b"\r\n"])
def test_garbage_ends_only_its_own_connection(ops: Ops, garbage: bytes) -> None:
    """TLS on the plain port, empty lines and endless lines do not disturb the next client."""
    with ops.tcp() as client, contextlib.suppress(ConnectionError):
        client.sendall(garbage)
        while client.recv(4096):
            pass
    assert ops.get("/healthz")[0] == 200
