"""The process under test: a real server whose handlers do what the review's name says.

Run as `python -m tests.support.replica_process FOLDER PORT THREADS MAX_PARTIAL HEARTBEAT GRACEFUL [wait]`. FOLDER has
ca.crt and ca.key; with clients.crt, clients must have a certificate of that CA with the name CLIENT_NAME. Events go to
stdout, one a line (`started PID`, `listening PORT`, `entered UID`, `drain`, `stop`); commands come on stdin, one a line
(`ready`, `go`, `renew`, `metrics`, `break METHOD`: of a connection, once; `wait-for-readers SECONDS`).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from certs.authority import read_authority
from certs.serving import ServingCertificate
from webhook.admission.concurrency import ReviewSlots
from webhook.admission.review import Response, Review, Unavailable, allowed, patched
from webhook.connections import connection
from webhook.connections.connection import Connection
from webhook.server.endpoint import Endpoint
from webhook.server.metrics import Metrics
from webhook.server.wsgi import Server, Service, serve

CLIENTS = "clients.crt"
CLIENT_NAME = "kube-apiserver"


def tell(event: str) -> None:
    os.write(1, f"{event}\n".encode())


def break_once(method: str) -> None:
    """Make the next call of a method of any connection an error that nobody has thought of."""
    whole = getattr(Connection, method)

    def broken(_: Connection) -> None:
        setattr(Connection, method, whole)
        raise RuntimeError("unheard of")

    setattr(Connection, method, broken)


class Replica:
    def __init__(self, folder: Path, turns: ReviewSlots, *, ready: bool) -> None:
        self.folder = folder
        self.turns = turns
        self.is_ready = threading.Event()
        if ready:
            self.is_ready.set()
        self.go = threading.Event()
        self.certificate: ServingCertificate
        self.metrics = Metrics()

    def start(self) -> Endpoint:
        authority = read_authority(
            (self.folder / "ca.crt").read_bytes(), (self.folder / "ca.key").read_bytes(), now=time.time()
        )
        clients = self.folder / CLIENTS
        self.certificate = ServingCertificate(
            lambda: authority,
            dns_names=["topogate.test"],
            addresses=["127.0.0.1", "::1"],
            clock=time.time,
            clients=lambda: clients.read_bytes() if clients.exists() else b"",
        )
        threading.Thread(target=self.obey, daemon=True).start()
        tell(f"started {os.getpid()}")
        return Endpoint(mutate=self.review, validate=self.review, metrics=self.metrics)

    def obey(self) -> None:
        for line in sys.stdin:
            match line.split():
                case ["ready"]:
                    self.is_ready.set()
                case ["go"]:
                    self.go.set()
                case ["renew"]:
                    self.certificate.renew()
                    tell("renewed")
                case ["metrics"]:
                    tell(f"metrics {json.dumps(self.metrics.exposition().decode())}")
                case ["break", method]:
                    break_once(method)
                    tell("broken")
                case ["wait-for-readers", seconds]:
                    connection.WRITE_SECONDS = float(seconds)  # type: ignore[misc]

    def review(self, review: Review, deadline: float) -> Response:
        match review.name:
            case "boom":
                raise RuntimeError("the handler is broken")
            case "not-synced":
                raise Unavailable("cache not synced")
            case "hold":
                tell(f"entered {review.uid}")
                self.go.wait(30)
            case "wait":
                with self.turns.released("ml") as may_wait:
                    tell(f"waiting {may_wait}")
                    self.go.wait(30 if may_wait else 0)
            case "large":
                return patched([{"op": "add", "path": "/a", "value": "x" * 4_000_000}])
        return allowed([f"{os.getpid()}"])


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.DEBUG, format="%(levelname)s %(name)s %(message)s")
    folder, port, threads, max_partial, heartbeat, graceful, *rest = sys.argv[1:]
    replica = Replica(Path(folder), ReviewSlots(int(threads)), ready="wait" not in rest)
    service = Service(
        start=replica.start,
        ready=replica.is_ready.wait,
        context=lambda: replica.certificate.context,
        client_names=frozenset({CLIENT_NAME} if (Path(folder) / CLIENTS).exists() else ()),
        listening=lambda port: tell(f"listening {port}"),
        drain=lambda: tell("drain"),
        stop=lambda: tell("stop"),
        metrics=replica.metrics,
        turns=replica.turns,
    )
    server = Server(
        service,
        port=int(port),
        max_partial=int(max_partial),
        heartbeat=int(heartbeat),
        graceful=int(graceful),
    )
    serve(server)


if __name__ == "__main__":
    main()
