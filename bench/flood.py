"""How long reviews of a quiet namespace wait beside the flood of another: `python -m bench.flood --help`.

The flood: pods of a gang, on many connections of one address, each the next one as soon as it has an answer. Beside it
one client of another namespace asks at fixed times. Two replicas take turns: one that knows the tenants of the reviews,
and one for which all are of the same. The load on the replica is the same in both.
"""

from __future__ import annotations

import argparse
import multiprocessing
import selectors
import socket
import ssl
import statistics
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rich.table import Table

from bench import processes, results
from bench.gang import CONTROLLER, PlacedGang, review_body
from bench.serving import ANNOTATIONS, children, request, serve_gang, trusting
from certs.authority import Authority, new_authority
from engine.decoding import pods
from local.nodes import Grid
from webhook.connections import thread_pool

QUIET = "quiet"
EVERY = 0.05  # seconds between the reviews of the quiet namespace
ORDERS = {"one queue": True, "tenants by turns": False}


@dataclass(frozen=True, slots=True)
class Target:
    """A replica, and what it is sent."""

    port: int
    pid: int
    tls: ssl.SSLContext
    flood: bytes
    quiet: bytes

    def connect(self) -> ssl.SSLSocket:
        """Return a new connection."""
        plain = socket.create_connection(("127.0.0.1", self.port))
        return self.tls.wrap_socket(plain, server_hostname="127.0.0.1")


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    parser.add_argument("--connections", type=int, default=200, help="reviews of the flood at a time (200)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round (4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each order (3)")
    options = parser.parse_args()
    console = results.console(120)
    gang = PlacedGang.make(Grid(8, 8, 8), pods=64, annotations=ANNOTATIONS)
    gang.view.stores.pods.replace([pods.pod(gang.stored(rank)) for rank in range(gang.pods // 2)])
    gang.view.refresh()
    authority = new_authority(now=time.time(), name="bench")
    flood = review_body(gang.pod(gang.pods // 2), group="", user=CONTROLLER)
    context = multiprocessing.get_context("fork")
    report: dict[str, list[tuple[list[float], int, float]]] = {order: [] for order in ORDERS}
    replicas, targets = [], {}
    try:
        for order, blind in ORDERS.items():
            ports: Any = context.SimpleQueue()
            replica = context.Process(target=_serve, args=(gang, authority, ports, blind))
            replica.start()
            replicas.append(replica)
            targets[order] = Target(ports.get(), replica.pid or 0, trusting(authority), flood, _quiet())
        for number in range(options.rounds + 1):
            for order, target in targets.items():
                found = _round(target, connections=options.connections, seconds=options.seconds)
                if number:  # the first warms up
                    report[order].append(found)
    finally:
        for replica in replicas:
            replica.terminate()
            replica.join()
    table = Table(box=None, pad_edge=False, title=f"a quiet namespace beside {options.connections} reviews of another")
    for column in ("ORDER", "MEDIAN ms", "P99 ms", "FLOOD A CPU SECOND"):
        table.add_column(column, justify="left" if column == "ORDER" else "right")
    for order, rounds in report.items():
        table.add_row(
            order,
            results.spread([statistics.median(waits) * 1e3 for waits, _, _ in rounds]),
            results.spread([statistics.quantiles(waits, n=100)[-1] * 1e3 for waits, _, _ in rounds]),
            results.spread([count / cpu for _, count, cpu in rounds]),
        )
    console.print(table)
    console.print(f"\n{results.write('flood', {'waits, reviews, CPU s': report}).relative_to(results.ROOT)}")
    return 0


def _serve(gang: PlacedGang, authority: Authority, ports: Any, blind: bool) -> None:
    with mock.patch.object(thread_pool, "tenant_of", lambda _: "") if blind else nullcontext():
        serve_gang(gang, authority, ports)


def _quiet() -> bytes:
    """Return the review of a pod in another namespace that asks for nothing."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": QUIET},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    return review_body(pod, group="", user=CONTROLLER)


def _round(target: Target, *, connections: int, seconds: float) -> tuple[list[float], int, float]:
    """Return the seconds that each quiet review took, the flood's answers, and the CPU seconds of the replica."""
    stop, answered = threading.Event(), [0]
    clients = [target.connect() for _ in range(connections)]
    crowd = threading.Thread(target=_flood, args=(target, clients, stop, answered))
    waits = []
    with target.connect() as quiet:
        _ask(quiet, target.quiet)
        group = {"replica": [target.pid, *children(target.pid)]}
        crowd.start()
        before, begin = processes.cpu_seconds(group)["replica"], time.monotonic()
        while time.monotonic() < begin + seconds:
            asked = time.monotonic()
            _ask(quiet, target.quiet)
            waits.append(time.monotonic() - asked)
            time.sleep(max(0.0, asked + EVERY - time.monotonic()))
        used, count = processes.cpu_seconds(group)["replica"] - before, answered[0]
    stop.set()
    crowd.join()
    for client in clients:
        client.close()
    return waits, count, used


def _ask(client: ssl.SSLSocket, body: bytes) -> None:
    client.sendall(request(body))
    answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def _flood(target: Target, clients: list[ssl.SSLSocket], stop: threading.Event, answered: list[int]) -> None:
    """Ask on all connections at once, and again on each as soon as it has its answer."""
    sent = request(target.flood)
    with selectors.DefaultSelector() as poller:
        for client in clients:
            client.sendall(sent)
            poller.register(client, selectors.EVENT_READ)
        while not stop.is_set():
            for key, _ in poller.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, ssl.SSLSocket)
                answer = sock.recv(65_536)
                assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 ")), answer
                answered[0] += 1
                sock.sendall(sent)


if __name__ == "__main__":
    sys.exit(main())
