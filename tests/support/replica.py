"""Starts and ends `replica_process`, and talks to it as the API server would and as nobody should."""

from __future__ import annotations

import http.client
import json
import os
import queue
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from certs.authority import new_authority
from webhook.server.wsgi import GRACEFUL_SECONDS, HEARTBEAT_SECONDS, MAX_PARTIAL

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # seconds until a test gives up on an event; events come in milliseconds
# The same for a process that starts: on a machine with other work its imports alone may take half a minute. One that
# has ended is not waited for.
START_PATIENCE = 180.0
_ENDED = ""


def write_authority(folder: Path, *, now: float) -> None:
    authority = new_authority(now=now, name="test")
    (folder / "ca.crt").write_bytes(authority.bundle)
    (folder / "ca.key").write_bytes(authority.key)


def review_body(uid: str = "u1", *, name: str = "t1", size: int = 0) -> bytes:
    request = {"uid": uid, "operation": "CREATE", "kind": {"kind": "Pod"}, "name": name, "object": {"pad": "x" * size}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def request_bytes(body: bytes, *, path: str = "/mutate?timeout=10s", extra: str = "") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}"
    )
    return head.encode() + b"\r\n" + body


def api_server_request(
    body: bytes, *, path: str = "/mutate?timeout=10s", host: str = "topogate.topogate-system.svc:443", extra: str = ""
) -> bytes:
    """A request as Go's HTTP client writes it for an API server; with `extra` header lines no longer quite so."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n{extra}"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


class Replica:
    """One running server process; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        threads: int = 4,
        wait: bool = False,
        files: int = 1024,
        max_partial: int = MAX_PARTIAL,
        heartbeat: int = HEARTBEAT_SECONDS,
        graceful: int = GRACEFUL_SECONDS,
    ) -> None:
        self.folder = folder
        self.log = folder / f"replica-{id(self)}.log"
        arguments = [
            str(folder),
            str(port),
            str(threads),
            str(max_partial),
            str(heartbeat),
            str(graceful),
            *(["wait"] if wait else []),
        ]
        command = [sys.executable, "-m", "tests.support.replica_process", *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        self.seen: list[str] = []
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.worker = int(self.event("started", patience=START_PATIENCE).split()[1])
        self.port = port
        if not wait:
            self.port = int(self.event("listening", patience=START_PATIENCE).split()[1])

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        # The worker sees its parent gone within a second and ends its pipe.
        self._reader.join(PATIENCE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def event(self, name: str, *, patience: float = PATIENCE) -> str:
        """Wait for the next event of that name, as long as the process lives, and return its line."""
        while True:
            try:
                line = self._events.get(timeout=patience)
            except queue.Empty:
                line = _ENDED
            if line == _ENDED:
                self._events.put(_ENDED)
                raise AssertionError(f"no {name!r}; seen {self.seen}; log:\n{self.log.read_text()}")
            if line.split()[0] == name:
                return line

    def command(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill_both(self) -> None:
        """kill -9 of a whole container, the arbiter and its worker; returns when the kernel has closed their sockets.

        Until then it still queues connections for the dead.
        """
        worker = os.pidfd_open(self.worker)
        try:
            self.process.kill()
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            self.process.wait(PATIENCE)
            # Readable once the last thread is gone; a zombie's first thread says nothing of the others.
            assert select.select([worker], [], [], PATIENCE)[0], "the worker outlived kill -9"
        finally:
            os.close(worker)

    def metric(self, name: str, **labels: str) -> float:
        """What the metric says now."""
        self.command("metrics")
        text = json.loads(self.event("metrics").partition(" ")[2])
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return sample.value
        raise AssertionError(f"no {name} with {labels} in {text}")

    def worker_lives(self) -> bool:
        """True while the process that `started` told of has not been replaced."""
        return sum(line.startswith("started ") for line in self.seen) == 1 and self.process.poll() is None

    def context(self, *, maximum: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if maximum is not None:
            context.maximum_version = maximum
        return context

    def tcp(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection from any address of the loopback network."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE, source_address=(source, 0))

    def tls(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        return self.context().wrap_socket(self.tcp(source), server_hostname="topogate.test")

    def client(self, address: str = "127.0.0.1") -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(address, self.port, timeout=PATIENCE, context=self.context())

    def ask(
        self,
        *,
        name: str = "t1",
        uid: str = "u1",
        path: str = "/mutate?timeout=10s",
        address: str = "127.0.0.1",
    ) -> tuple[int, dict[str, Any]]:
        """One review on a connection of its own."""
        connection = self.client(address)
        try:
            return post(connection, name=name, uid=uid, path=path)
        finally:
            connection.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line.strip())
            self._events.put(line.strip())
        self._events.put(_ENDED)


def post(
    connection: http.client.HTTPSConnection, *, name: str = "t1", uid: str = "u1", path: str = "/mutate?timeout=10s"
) -> tuple[int, dict[str, Any]]:
    """One review; an answer that is no JSON comes back as {"text": ...}."""
    connection.request("POST", path, body=review_body(uid, name=name), headers={"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if response.headers.get_content_type() == "application/json":
        return response.status, json.loads(text)["response"]
    return response.status, {"text": text.decode(), "headers": dict(response.headers)}


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    """The status of one answer on a raw socket, and the rest of what came with it."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response.status, response.read()
