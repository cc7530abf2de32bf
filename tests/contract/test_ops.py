"""The plain-HTTP port: probes and metrics, whatever its clients do."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest

import webhook.ops
from webhook.metrics import CONTENT_TYPE, Metrics
from webhook.ops import Check, OpsServer, Page, pages

TIMEOUT = 20.0


class Ops:
    """A running server whose readiness the test sets."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.metrics = Metrics()
        table = dict(pages(ready=lambda: self.checks, metrics=lambda: (CONTENT_TYPE, self.metrics.exposition())))
        table["/broken"] = self.broken
        self.server = OpsServer(table, host="127.0.0.1", port=0)
        self.server.start()

    def broken(self) -> Page:
        raise RuntimeError("secret")

    def get(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.headers.get_content_type(), response.read().decode()

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=TIMEOUT)


@pytest.fixture(scope="module")
def running() -> Iterator[Ops]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhook.ops, "CLIENT_SECONDS", 1.0)
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
    assert 'topogate_review_duration_seconds_bucket{le="0.0025",path="mutate"} 1.0' in text
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


def test_silent_clients_lose_their_connection_and_their_place(ops: Ops) -> None:
    """Clients that fill every place and say nothing are ended by the time limit; then probes are answered."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(ops.tcp()) for _ in range(webhook.ops.MAX_CLIENTS)]
        for client in silent:
            assert client.recv(1) == b""
        assert ops.get("/healthz")[0] == 200


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


def test_more_clients_than_places_are_turned_away_at_once(ops: Ops) -> None:
    """The port never holds more threads than it has places."""
    with contextlib.ExitStack() as stack:
        for _ in range(webhook.ops.MAX_CLIENTS):
            stack.enter_context(ops.tcp()).sendall(b"GET ")
        with ops.tcp() as extra:
            assert extra.recv(1) == b""


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"\r\n\r\n", b"GET\r\n\r\n", b"A" * 70_000 + b"\r\n"])
def test_garbage_ends_only_its_own_connection(ops: Ops, garbage: bytes) -> None:
    """TLS on the plain port, empty lines and endless lines do not disturb the next client."""
    with ops.tcp() as client, contextlib.suppress(ConnectionError):
        client.sendall(garbage)
        while client.recv(4096):
            pass
    assert ops.get("/healthz")[0] == 200
