"""A kubelet that has nothing but the logs of containers: the API server asks it for what `kubectl logs` shows.

It is a Node at 127.0.0.1 with a port of its own, and Pods that are bound to it. The API server takes its certificate as
it is, as there is no --kubelet-certificate-authority, and sends none of its own.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from local.client import Client
from local.nodes import NODES
from tests.support.recorder import self_signed


@dataclass(slots=True)
class ContainerLog:
    """The log of a container: a file, of which all before `starts` is that of the container before (0: of none)."""

    file: Path
    starts: int = 0

    def content(self, *, previous: bool) -> bytes | None:
        """Return the bytes of the current or of the previous container; None if there was none."""
        whole = self.file.read_bytes()
        if previous:
            return whole[: self.starts] if self.starts else None
        return whole[self.starts :]


class Kubelet:
    """Serves logs of pods; `asked` has the query of each request."""

    def __init__(self, client: Client, name: str, directory: Path) -> None:
        self.name = name
        self.asked: list[dict[str, str]] = []
        self.silent = False  # it drops every connection
        self._client = client
        self._logs: dict[tuple[str, str, str], ContainerLog] = {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self_signed(directory))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._client.create(NODES, {"metadata": {"name": self.name}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }
        self._client.patch(f"{NODES}/{self.name}/status", {"status": status})
        return self

    def __exit__(self, *error: object) -> None:
        self._client.delete(f"{NODES}/{self.name}")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def runs(
        self, namespace: str, pod: str, file: Path, *, labels: dict[str, str], container: str = "topogate"
    ) -> None:
        """Create a pod with this container, which writes its log into a file; beside it a sidecar, as meshes add."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        made = {"image": "example.com/nothing:1", "securityContext": context}
        containers = [{"name": name, **made} for name in ("sidecar", container)]
        restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"nodeName": self.name, "containers": containers, "securityContext": restricted}
        self._client.create(pods, {"metadata": {"name": pod, "labels": labels}, "spec": spec})
        self._logs[namespace, pod, container] = ContainerLog(file)
        self._tell(namespace, pod, container, restarts=0)

    def restarted(self, namespace: str, pod: str, *, container: str = "topogate") -> None:
        """Take what is in the log of a pod's container by now for that of the container before."""
        log = self._logs[namespace, pod, container]
        log.starts = log.file.stat().st_size
        self._tell(namespace, pod, container, restarts=1)

    def log(self, namespace: str, pod: str, container: str) -> ContainerLog | None:
        """Return the log of a container that runs here."""
        return self._logs.get((namespace, pod, container))

    def _tell(self, namespace: str, pod: str, container: str, *, restarts: int) -> None:
        status = {"name": container, "image": "", "imageID": "", "ready": True, "restartCount": restarts}
        body = {"status": {"phase": "Running", "containerStatuses": [{**status, "state": {"running": {}}}]}}
        self._client.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}/status", body)


def shown(content: bytes, query: dict[str, str]) -> bytes:
    """Return what a kubelet answers of a container's log for a request."""
    since = 0.0
    if "sinceSeconds" in query:
        since = time.time() - int(query["sinceSeconds"])
    if "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"]).timestamp()
    lines = [(at, line) for at, line in _stamped(content) if at >= since]
    if "tailLines" in query:
        lines = lines[-int(query["tailLines"]) :]
    stamps = query.get("timestamps") == "true"
    answer = b"".join(_stamp(at) + b" " + line if stamps else line for at, line in lines)
    return answer[: int(query["limitBytes"])] if "limitBytes" in query else answer


def _stamped(content: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield the lines with the times at which a container runtime has taken them."""
    at = time.time()
    for line in content.splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError):
            at = datetime.fromisoformat(json.loads(line)["time"]).timestamp()
        yield at, line


def _stamp(at: float) -> bytes:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "000Z").encode()


def _handler(kubelet: Kubelet) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            if kubelet.silent:
                self.close_connection = True
                return
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            kubelet.asked.append({"path": url.path, **query})
            match url.path.strip("/").split("/"):
                case ["containerLogs", namespace, pod, container]:
                    log: Any = kubelet.log(namespace, pod, container)
                    content = log.content(previous=query.get("previous") == "true") if log is not None else None
                    if content is None:
                        self._answer(400, f'previous terminated container "{container}" not found'.encode())
                    else:
                        self._answer(200, shown(content, query))
                case _:
                    self._answer(404, b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: pytest's output is for failures."""

    return Handler
