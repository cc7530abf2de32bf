"""A proxy between the service and the API server that answers wrongly, late, or not at all, at random.

What it does is what a loaded or restarting API server does: it asks to come later (429), it fails (500), somebody else
was faster (409), the history that a watch wants is gone (410), a watch ends in the middle of a line, an answer is late,
and the answer to a write that was carried out is lost.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

import urllib3

WRITES = ("POST", "PUT", "PATCH", "DELETE")
PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
# How often a request meets each, of those that it can meet.
OFTEN: Mapping[str, float] = {"429": 0.1, "500": 0.1, "409": 0.1, "410": 0.2, "cut": 0.5, "late": 0.2, "lost": 0.1}
LATEST = 0.5  # seconds
LAST_CUT = 4.0  # seconds after which a watch is cut, at the latest
REASONS = {"429": "TooManyRequests", "500": "InternalError", "409": "Conflict", "410": "Expired"}


class FaultyApi:
    """Passes requests on while `calm`; otherwise it draws what each meets. `drawn` counts that."""

    def __init__(self, url: str, ca_certificate: Path | None, *, seed: int, often: Mapping[str, float] = OFTEN) -> None:
        self.calm = True
        self.drawn: Counter[str] = Counter()
        self._often = often
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._upstream = url
        self._pool = urllib3.PoolManager(
            maxsize=64,
            ca_certs=None if ca_certificate is None else str(ca_certificate),
            cert_reqs="CERT_REQUIRED",
            retries=False,
        )
        proxy = self

        class Handler(_Handler):
            api = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="faulty-api", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._pool.clear()

    def draw(self, what: tuple[str, ...]) -> tuple[str, float]:
        """The fault that a request meets, "" for none, and a number between 0 and 1 for how bad it is."""
        with self._lock:
            if self.calm:
                return "", 0.0
            for fault in what:
                if self._random.random() < self._often.get(fault, 0.0):
                    self.drawn[fault] += 1
                    return fault, self._random.random()
        return "", 0.0

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> urllib3.BaseHTTPResponse:
        """Pass a request on; what is answered is not read yet."""
        return self._pool.request(
            method,
            self._upstream + path,
            body=body,
            headers=dict(headers),
            preload_content=False,
            timeout=urllib3.Timeout(connect=5.0, read=None),
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # watches last
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever hangs up has his reasons."""


class _Handler(BaseHTTPRequestHandler):
    api: FaultyApi
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        asked = parse_qs(urlsplit(self.path).query)
        watches = asked.get("watch", [""])[0] in ("1", "true", "True")
        writes = self.command in WRITES
        faults = ("429", "500", "late") + (("410", "cut") if watches else ("409", "lost") if writes else ())
        fault, measure = self.api.draw(faults)
        if fault in REASONS:
            self._refuse(fault)
            return
        if fault == "late":
            time.sleep(measure * LATEST)
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        try:
            answer = self.api.ask(self.command, self.path, headers, body)
        except urllib3.exceptions.HTTPError:
            self.close_connection = True
            return
        try:
            if fault == "lost":
                answer.drain_conn()
                self.close_connection = True
            elif watches and answer.status == 200:
                self._stream(answer, measure if fault == "cut" else None)
            else:
                self._answer(answer.status, answer.read(), dict(answer.headers))
        except (urllib3.exceptions.HTTPError, OSError):
            self.close_connection = True
        finally:
            answer.close() if watches else answer.release_conn()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _refuse(self, fault: str) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": REASONS[fault],
            "message": "drawn by a test",
            "code": int(fault),
        }
        headers = {"Content-Type": "application/json", **({"Retry-After": "1"} if fault == "429" else {})}
        self._answer(int(fault), json.dumps(status).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name in ("Content-Type", "Retry-After"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: urllib3.BaseHTTPResponse, cut: float | None) -> None:
        """Pass a watch on as it comes; with `cut`, end it after a while, in the middle of what comes next.

        Watches that began while the proxy was calm are cut like others when it is not any more.
        """
        self.send_response_only(200)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        until = None if cut is None else time.monotonic() + cut * LAST_CUT
        drawn = not self.api.calm
        for part in answer.read_chunked() if answer.chunked else answer.stream(4096):  # type: ignore[attr-defined]
            if not drawn and not self.api.calm:
                drawn = True
                fault, measure = self.api.draw(("cut",))
                until = time.monotonic() + measure * LAST_CUT if fault else None
            ends = until is not None and time.monotonic() > until
            sent = part[: len(part) // 2] if ends else part
            self.wfile.write(b"%x\r\n%b\r\n" % (len(sent), sent) if sent else b"")
            self.wfile.flush()
            if ends:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")
