"""A webhook endpoint that writes down what reaches it: for tests of what the API server sends, not of our answers."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.api import names

Patch = list[dict[str, Any]]


def label_workloads(path: str, request: dict[str, Any]) -> Patch:
    """The label that `/mutate` gives a workload with a request, by which the API server sends it to `/validate`."""
    metadata = request["object"]["metadata"]
    if path != "/mutate" or request["kind"]["kind"] == "Pod":
        return []
    labels = {**(metadata.get("labels") or {}), names.REQUESTS_PLACEMENT: "true"}
    return [{"op": "add", "path": "/metadata/labels", "value": labels}]


class Recorder:
    """Allows everything, and labels workloads. `seen` holds (path, operation, kind, name) in order of arrival, `heads`
    the requests' heads as they came; `down` drops every connection.

    `answer` may give a JSON Patch for a review's request, `review` the whole AdmissionReview for the body that came;
    `ca_bundle` is what clientConfig.caBundle takes.
    """

    def __init__(self, directory: Path) -> None:
        self.seen: list[tuple[str, str, str, str]] = []
        self.heads: list[bytes] = []
        self.down = False
        self.answer: Callable[[str, dict[str, Any]], Patch] = label_workloads
        self.review: Callable[[str, bytes], bytes] | None = None
        certificate, key = self_signed(directory)
        self.ca_bundle = base64.b64encode(certificate.read_bytes()).decode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        # The handshake belongs to the connection's thread: a silent client must not stop the accepting one.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def during(self, act: Callable[[], object]) -> list[tuple[str, str, str]]:
        """Return (path, operation, kind) of what came in while `act` ran: a request answers after its webhooks."""
        before = len(self.seen)
        act()
        return [entry[:3] for entry in self.seen[before:]]


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if recorder.down:
                self.close_connection = True
                return
            request = json.loads(body)["request"]
            path = self.path.partition("?")[0]
            lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            recorder.heads.append(self.raw_requestline + f"{lines}\r\n".encode("latin-1"))
            recorder.seen.append((path, request["operation"], request["kind"]["kind"], request.get("name", "")))
            if recorder.review is not None:
                answer = recorder.review(path, body)
            else:
                response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
                if patch := recorder.answer(path, request):
                    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
                    response |= {"patchType": "JSONPatch", "patch": encoded}
                review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
                answer = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: pytest's output is for failures."""

    return Handler


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 and its key; return their files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "recorder")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "recorder.crt", directory / "recorder.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
