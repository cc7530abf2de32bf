"""How many reviews one replica answers over TLS for a second of its CPU: `python -m bench.serving --help`.

Clients on kept connections send reviews of a gang's pods as an API server does, each the next one as soon as it has an
answer. What counts is the CPU of the replica's process, as other programs change the clock's figures. The other way of
answering, through gunicorn's parser and WSGI, takes turns with the direct one: its requests have one header more.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import ssl
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import processes, results
from bench.gang import CONTROLLER, PlacedGang, review_body
from certs.authority import Authority, new_authority
from certs.serving import ServingCertificate
from engine.decoding import pods
from local.nodes import Grid
from webhook.handlers.mutate import mutate
from webhook.server.endpoint import Endpoint
from webhook.server.metrics import Metrics
from webhook.server.wsgi import Server, Service, serve
from webhook.service.runtime import SWITCH_INTERVAL

PODS = 64
ANNOTATIONS = {"topogate.dev/prefer-topology": "block"}
WAYS = {"directly": b"", "through WSGI": b"X-Other: 1\r\n"}


@dataclass(frozen=True, slots=True)
class Target:
    """The replica, and what it is sent."""

    port: int
    pid: int
    tls: ssl.SSLContext
    bodies: list[bytes]


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.serving", description=__doc__)
    parser.add_argument("--grid", type=Grid.parse, default=Grid(8, 8, 8), help="BLOCKSxRACKSxHOSTS (8x8x8)")
    parser.add_argument("--connections", type=int, default=8, help="connections that are used at a time (8)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round (3)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way (5)")
    options = parser.parse_args()
    if options.grid.size < PODS:
        parser.error(f"the grid {options.grid} has {options.grid.size} hosts: too few for a gang of {PODS} pods")
    console = results.console(120)
    gang = PlacedGang.make(options.grid, pods=PODS, annotations=ANNOTATIONS)
    gang.view.stores.pods.replace([pods.pod(gang.stored(rank)) for rank in range(gang.pods // 2)])
    gang.view.refresh()
    ranks = cycle(range(gang.pods // 2, gang.pods))
    bodies = [review_body(gang.pod(rank), group="", user=CONTROLLER) for rank in islice(ranks, 20)]
    authority = new_authority(now=time.time(), name="bench")
    context = multiprocessing.get_context("fork")
    ports: Any = context.SimpleQueue()
    replica = context.Process(target=serve_gang, args=(gang, authority, ports))
    replica.start()
    report: dict[str, Any] = {way: [] for way in WAYS}
    try:
        target = Target(ports.get(), replica.pid or 0, trusting(authority), bodies)
        for number in range(options.rounds + 1):
            for way, extra in WAYS.items():
                found = _round(target, extra, connections=options.connections, seconds=options.seconds)
                if number:  # the first warms up
                    report[way].append(found)
    finally:
        replica.terminate()
        replica.join()
    table = Table(box=None, pad_edge=False, title=f"reviews of pods on {options.connections} connections")
    for column in ("WAY", "A CPU SECOND", "A SECOND", "CPU us"):
        table.add_column(column, justify="left" if column == "WAY" else "right")
    for way, rounds in report.items():
        table.add_row(
            way,
            results.spread([count / cpu for count, cpu, _ in rounds]),
            results.spread([count / wall for count, _, wall in rounds]),
            results.spread([cpu / count * 1e6 for count, cpu, _ in rounds]),
        )
    console.print(table)
    console.print(f"\n{results.write('serving', {'reviews, CPU s, s': report}).relative_to(results.ROOT)}")
    return 0


def serve_gang(gang: PlacedGang, authority: Authority, ports: Any) -> None:
    """Run a replica with the caches of a placed gang to its end; its port goes to `ports`."""
    metrics = Metrics()
    sys.setswitchinterval(SWITCH_INTERVAL)

    def start() -> Endpoint:
        return Endpoint(
            mutate=lambda review, deadline: mutate(review, gang.live, deadline),
            validate=lambda review, deadline: mutate(review, gang.live, deadline),
            metrics=metrics,
        )

    certificate = ServingCertificate(lambda: authority, dns_names=["bench"], addresses=["127.0.0.1"], clock=time.time)
    service = Service(
        start=start,
        ready=lambda _: True,
        context=lambda: certificate.context,
        listening=ports.put,
        metrics=metrics,
    )
    serve(Server(service, host="127.0.0.1", port=0))


def trusting(authority: Authority) -> ssl.SSLContext:
    """Return a client's context that trusts the authority alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ca.crt"
        path.write_bytes(authority.bundle)
        return ssl.create_default_context(cafile=str(path))


def _round(target: Target, extra: bytes, *, connections: int, seconds: float) -> tuple[int, float, float]:
    """Return the reviews answered, the CPU seconds of the replica, and the seconds."""
    stop = threading.Event()
    counts: list[int] = []
    clients = [threading.Thread(target=_ask, args=(target, extra, stop, counts)) for _ in range(connections)]
    group = {"replica": [target.pid, *children(target.pid)]}
    before, begin = processes.cpu_seconds(group)["replica"], time.monotonic()
    for client in clients:
        client.start()
    time.sleep(seconds)
    stop.set()
    for client in clients:
        client.join()
    used, wall = processes.cpu_seconds(group)["replica"] - before, time.monotonic() - begin
    assert len(counts) == connections, "a client failed"
    return sum(counts), used, wall


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def request(body: bytes, extra: bytes = b"") -> bytes:
    """Return a review's request as the API server writes it; `extra` are further lines of its head."""
    return (
        b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: bench.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n"
        b"Content-Length: %d\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n%b"
        b"Accept-Encoding: gzip\r\n\r\n%b" % (len(body), extra, body)
    )


def _ask(target: Target, extra: bytes, stop: threading.Event, counts: list[int]) -> None:
    sent = 0
    plain = socket.create_connection(("127.0.0.1", target.port))
    with target.tls.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
        for body in cycle(target.bodies):
            if stop.is_set():
                break
            sock.sendall(request(body, extra))
            answer = sock.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert b'"patch"' in answer, "the pod was not placed"
            sent += 1
    counts.append(sent)


if __name__ == "__main__":
    sys.exit(main())
