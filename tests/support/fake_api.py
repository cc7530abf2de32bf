"""A small API server on real sockets: versions, pages, watches, preconditions, and faults on demand.

It keeps objects as dicts under their URL path and speaks enough of the protocol to be wrong in all the ways that a real
one can be: `fault` scripts one misbehaviour for the next matching request, `bookmark`, `expire` and `drop_watches` act
on what is open. What it does not do: schemas, defaulting, authorization, admission.
"""

from __future__ import annotations

import base64
import copy
import json
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonpatch

Json = dict[str, Any]
BODY_LIMIT = 8 * 1024 * 1024
# Seconds before a watch is over in which kube-apiserver sends its last bookmark.
LAST_BOOKMARK = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Instead of doing what was asked, answer this."""

    status: int
    body: bytes | Json = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stall:
    """Say nothing until the event is set; then cut the connection, or go on when `then_work`."""

    until: threading.Event
    then_work: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """Do the work but never tell: cut the connection instead of answering."""


@dataclass(frozen=True, slots=True)
class Reset:
    """On a watch: send `events` whole lines, then half of the next one, then a TCP reset."""

    events: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """On a watch: send every line in chunks of this many bytes (which cuts UTF-8 sequences)."""

    size: int = 1


@dataclass(frozen=True, slots=True)
class Twice:
    """On a watch: deliver every event twice."""


@dataclass(frozen=True, slots=True)
class Lines:
    """On a watch: send these lines as they are, then end the answer."""

    lines: tuple[bytes, ...]


Fault = Answer | Stall | Hang | Reset | Split | Twice | Lines


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived; `lines`: its headers, also those of which there are several."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float
    marks: dict[str, int] = field(default_factory=dict)
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    def json(self) -> Json:
        return dict(json.loads(self.body))


class Refusal(Exception):
    """A Status to answer."""

    def __init__(self, code: int, reason: str, message: str = "", causes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message or reason,
            "details": {"causes": [{"field": where, "message": why} for where, why in causes]},
        }


class FakeApi:
    """The server; use as a context manager. `token`: the bearer token wanted; `tls`: a server context."""

    def __init__(self, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.token = token
        self.requests: list[Request] = []
        self.ending_bookmarks = True
        self.missing: set[str] = set()  # collections (`/apis/g/v/plural`) that answer 404
        self.kinds: dict[str, dict[str, str]] = {}  # what `/apis/<group>/<version>` says: plural -> kind
        self.short_names: dict[tuple[str, str], list[str]] = {}
        self._objects: dict[str, Json] = {}
        self._log: list[tuple[int, str, Json]] = []  # version, type, object with "_path"
        self._version = 100
        self._floor = 0
        self._bookmarks = 0
        self._generation = 0
        self._closing = False
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._faults: list[tuple[Callable[[Request], bool], Fault, int]] = []
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        api = self

        class Handler(_Handler):
            fake = api

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> FakeApi:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(60)

    # What tests do.

    def put(self, path: str, **fields: Any) -> Json:
        """Create or change the object at a path, as somebody else would; the fields are merged over what is there."""
        with self._changed:
            before = self._objects.get(path)
            return self._store(path, merge(copy.deepcopy(before or {}), fields), "MODIFIED" if before else "ADDED")

    def remove(self, path: str) -> None:
        """Delete the object at a path, as somebody else would."""
        with self._changed:
            self._delete(path)

    def get(self, path: str) -> Json | None:
        """Return the object at a path."""
        with self._changed:
            return copy.deepcopy(self._objects.get(path))

    def install(self, group_version: str, plural: str, kind: str, *short_names: str) -> None:
        """Serve a kind, as a CustomResourceDefinition does."""
        with self._changed:
            self.kinds.setdefault(group_version, {})[plural] = kind
            self.short_names[group_version, plural] = list(short_names)
            self.missing.discard(f"/apis/{group_version}/{plural}")

    def uninstall(self, group_version: str, plural: str) -> None:
        """Serve a kind no more: its objects go, and its watches end."""
        path = f"/apis/{group_version}/{plural}"
        with self._changed:
            del self.kinds[group_version][plural]
            if not self.kinds[group_version]:
                del self.kinds[group_version]
            for one in [one for one in self._objects if _below(one, path)]:
                self._delete(one)
            self.missing.add(path)
        self.drop_watches()

    @property
    def version(self) -> int:
        return self._version

    def advance(self, versions: int = 1) -> int:
        """Let other collections change: the version grows without an event here."""
        with self._changed:
            self._version += versions
            return self._version

    def bookmark(self) -> None:
        """Send a bookmark to every open watch."""
        with self._changed:
            self._bookmarks += 1
            self._changed.notify_all()

    def expire(self) -> None:
        """Forget the past: older versions and pages answer 410 from now on."""
        with self._changed:
            self._version += 1
            self._floor = self._version
            self._pages.clear()

    def drop_watches(self) -> None:
        """End every open watch regularly."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def fault(self, fault: Fault, *, when: Callable[[Request], bool] = lambda _: True, times: int = 1) -> None:
        """Misbehave at the next `times` requests that match."""
        with self._changed:
            self._faults.append((when, fault, times))

    def wait_for(self, condition: Callable[[FakeApi], bool], timeout: float = 60.0) -> None:
        """Wait until a condition over this server holds (looked at whenever something arrives)."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), timeout), "the condition never held"

    def count(self, method: str, *, watch: bool | None = None) -> int:
        """Return how many requests of a method (and kind) arrived."""
        return sum(r.method == method and (watch is None or r.is_watch == watch) for r in list(self.requests))

    # What the handler does.

    def take(self, request: Request) -> Fault | None:
        with self._changed:
            self.requests.append(request)
            # Noted at arrival: a test that saw the request may act on its watch from now on.
            request.marks.update(generation=self._generation, bookmarks=self._bookmarks)
            self._changed.notify_all()
            for index, (when, fault, times) in enumerate(self._faults):
                if when(request):
                    self._faults[index] = (when, fault, times - 1)
                    if times <= 1:
                        del self._faults[index]
                    return fault
        return None

    def answer(self, request: Request) -> Json:
        with self._changed:
            sent = request.headers.get("authorization", "").replace("bearer", "Bearer")  # scheme names know no case
            if self.token is not None and sent != f"Bearer {self.token}":
                raise Refusal(401, "Unauthorized")
            version = request.path.startswith("/apis") and request.path.count("/") <= 3
            if not version and any(_collection(request.path) == gone for gone in self.missing):
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            match request.method:
                case "GET" if request.path == "/apis":
                    return self._groups()
                case "GET" if request.path.startswith("/apis/") and request.path.count("/") == 3:
                    return self._kinds(request.path.removeprefix("/apis/"))
                case "GET" if _is_collection(request.path):
                    return self._list(request)
                case "GET":
                    return copy.deepcopy(self._existing(request.path))
                case "POST":
                    return self._create(request)
                case "PUT":
                    return self._write(request, lambda _: request.json() | {"_manager": "update"})
                case "PATCH":
                    return self._patch(request)
                case "DELETE":
                    return self._remove(request)
            raise Refusal(405, "MethodNotAllowed")

    def watch(self, request: Request) -> Iterator[Json | None]:
        """Yield events; None means: nothing now, look whether the client is still there."""
        position = int(request.query["resourceVersion"])
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", "300"))
        last = ends - LAST_BOOKMARK if self.ending_bookmarks else inf
        with self._changed:
            generation, bookmarks = request.marks["generation"], request.marks["bookmarks"]
            if position < self._floor:
                yield {"type": "ERROR", "object": Refusal(410, "Expired", "too old resource version").status}
                return
        while True:
            with self._changed:
                events = [
                    (version, kind, copy.deepcopy(body))
                    for version, kind, body in self._log
                    if version > position and _below(body["_path"], request.path)
                ]
                nearly = time.monotonic() > last
                wanted = (self._bookmarks > bookmarks or nearly) and request.query.get("allowWatchBookmarks") == "true"
                bookmarks, version_now = self._bookmarks, self._version
                over = self._closing or self._generation != generation or time.monotonic() > ends
                if not events and not wanted and not over:
                    self._changed.wait(0.2)
            for version, kind, body in events:
                position = version
                yield {"type": kind, "object": {k: v for k, v in body.items() if k != "_path"}}
            last = inf if nearly else last
            if wanted:
                yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version_now)}}}
            if over and not events:
                return
            yield None

    def _groups(self) -> Json:
        groups: dict[str, list[Json]] = {}
        for group_version in self.kinds:
            group, _, version = group_version.rpartition("/")
            groups.setdefault(group, []).append({"groupVersion": group_version, "version": version})
        return {
            "kind": "APIGroupList",
            "groups": [
                {"name": group, "versions": versions, "preferredVersion": versions[0]}
                for group, versions in groups.items()
            ],
        }

    def _kinds(self, group_version: str) -> Json:
        if group_version not in self.kinds:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        return {
            "kind": "APIResourceList",
            "groupVersion": group_version,
            "resources": [
                one
                for plural, kind in self.kinds[group_version].items()
                for one in (
                    {
                        "name": plural,
                        "singularName": kind.lower(),
                        "shortNames": self.short_names.get((group_version, plural), []),
                        "kind": kind,
                        "namespaced": True,
                        "verbs": verbs,
                    },
                    {"name": f"{plural}/status", "kind": kind, "namespaced": True, "verbs": ["get", "patch"]},
                )
            ],
        }

    def _list(self, request: Request) -> Json:
        limit = int(request.query.get("limit", "0")) or 10**9
        if token := request.query.get("continue"):
            if token not in self._pages:
                raise Refusal(410, "Expired", "the provided continue parameter is too old")
            version, rest = self._pages[token]
        else:
            version = self._version
            rest = [body for path, body in sorted(self._objects.items()) if _below(path, request.path)]
        page, rest = rest[:limit], rest[limit:]
        metadata = {"resourceVersion": str(version)}
        if rest:
            metadata["continue"] = base64.b64encode(uuid.uuid4().bytes).decode()
            self._pages[metadata["continue"]] = (version, rest)
        return {"kind": "List", "metadata": metadata, "items": copy.deepcopy(page)}

    def _existing(self, path: str) -> Json:
        if path not in self._objects:
            raise Refusal(404, "NotFound", f"{path} not found")
        return self._objects[path]

    def _create(self, request: Request) -> Json:
        body = request.json()
        body.pop("status", None)
        path = f"{request.path}/{body['metadata']['name']}"
        if path in self._objects:
            raise Refusal(409, "AlreadyExists", f"{path} already exists")
        return self._store(path, body, "ADDED")

    def _patch(self, request: Request) -> Json:
        if request.headers["content-type"] == "application/apply-patch+yaml":
            return self._apply(request)
        if request.headers["content-type"] == "application/json-patch+json":
            return self._write(request, lambda held: _json_patched(held, json.loads(request.body)))
        strategic = request.headers["content-type"] == "application/strategic-merge-patch+json"
        return self._write(request, lambda held: merge(held, request.json(), strategic=strategic))

    def _apply(self, request: Request) -> Json:
        manager, force = request.query["fieldManager"], request.query.get("force") == "true"
        held = self._objects.get(request.path)
        body = merge(copy.deepcopy(held or {}), request.json())
        if held is not None and not force and held.get("_manager") != manager and body.get("spec") != held.get("spec"):
            raise Refusal(409, "Conflict", f'conflict with "{held.get("_manager")}"', ((".spec", "conflict"),))
        return self._store(request.path, body | {"_manager": manager}, "MODIFIED" if held else "ADDED")

    def _write(self, request: Request, change: Callable[[Json], Json]) -> Json:
        path = request.path.removesuffix("/status")
        held = self._existing(path)
        body = change(copy.deepcopy(held))
        wanted = body["metadata"]
        if wanted.get("uid", held["metadata"]["uid"]) != held["metadata"]["uid"]:
            raise Refusal(422, "Invalid", "uid mismatch", (("metadata.uid", "field is immutable"),))
        if wanted.get("resourceVersion", held["metadata"]["resourceVersion"]) != held["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", "the object has been modified")
        # A write to the main resource leaves the status alone, one to /status leaves everything else alone.
        kept = copy.deepcopy(held)
        body = kept | {"status": body.get("status")} if path != request.path else body | {"status": kept.get("status")}
        if body.get("status") is None:
            body.pop("status", None)
        return self._store(path, body, "MODIFIED")

    def _remove(self, request: Request) -> Json:
        held = self._existing(request.path)["metadata"]
        wanted = (request.json() if request.body else {}).get("preconditions") or {}
        for key, value in wanted.items():
            if held[key] != value:
                raise Refusal(409, "Conflict", f"Precondition failed: {key} in precondition: {value}")
        return self._delete(request.path)

    def _store(self, path: str, body: Json, kind: str) -> Json:
        held = self._objects.get(path)
        parts = path.strip("/").split("/")
        metadata = body.setdefault("metadata", {})
        metadata["name"] = unquote(parts[-1])
        if "namespaces" in parts[:-2]:
            metadata["namespace"] = parts[parts.index("namespaces") + 1]
        metadata["uid"] = held["metadata"]["uid"] if held else metadata.get("uid") or str(uuid.uuid4())
        if held is not None and _bare(held) == _bare(body):
            return copy.deepcopy(held)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        changed = held is not None and _decided(held) != _decided(body)
        metadata["generation"] = (held["metadata"]["generation"] if held else 1) + changed
        self._objects[path] = copy.deepcopy(body)
        self._log.append((self._version, kind, copy.deepcopy(body) | {"_path": path}))
        self._changed.notify_all()
        return copy.deepcopy(body)

    def _delete(self, path: str) -> Json:
        body = self._objects.pop(path)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, "DELETED", body | {"_path": path}))
        self._changed.notify_all()
        return body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: clients that vanish are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeApi

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        self.fake._sockets.add(self.request)
        super().setup()

    def finish(self) -> None:
        self.fake._sockets.discard(self.request)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests`."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(min(int(headers.get("content-length", "0")), BODY_LIMIT))
        query, lines = dict(parse_qsl(url.query)), tuple(self.headers.items())
        request = Request(self.command, url.path, query, headers, body, time.monotonic(), lines=lines)
        fault = self.fake.take(request)
        if isinstance(fault, Stall):
            fault.until.wait(30)
            if not fault.then_work:
                self.close_connection = True
                return
        if isinstance(fault, Answer):
            self._send(fault.status, fault.body, fault.headers)
            return
        try:
            if request.is_watch:
                self.fake.answer(Request("GET", request.path, {"limit": "1"}, headers, b"", request.at))
                self._watch(request, fault)
                return
            answer = self.fake.answer(request)
        except Refusal as refusal:
            self._send(refusal.code, refusal.status)
            return
        if isinstance(fault, Hang):
            self.close_connection = True
            return
        self._send(201 if request.method == "POST" else 200, answer)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _send(self, status: int, body: bytes | Json, headers: tuple[tuple[str, str], ...] = ()) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, request: Request, fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(fault, Lines):
            for line in fault.lines:
                self._chunk(line + b"\n")
        else:
            sent = 0
            for event in self.fake.watch(request):
                if event is None:
                    continue
                # Not ASCII: UTF-8 sequences are what split chunks cut.
                line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
                if isinstance(fault, Reset) and sent == fault.events:
                    self._chunk(line[: len(line) // 2])
                    self._reset()
                    return
                for _ in range(2 if isinstance(fault, Twice) else 1):
                    size = fault.size if isinstance(fault, Split) else len(line)
                    for start in range(0, len(line), size):
                        self._chunk(line[start : start + size])
                sent += 1
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def merge(held: Any, patch: Any, *, strategic: bool = False) -> Any:
    """JSON merge patch; `strategic` adds that gates (with `$patch: delete`) and webhooks merge by name."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(held) if isinstance(held, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and key in ("schedulingGates", "webhooks"):
            named = {one["name"]: one for one in result.get(key, [])}
            for one in value:
                if one.get("$patch") == "delete":
                    named.pop(one["name"], None)
                else:
                    named[one["name"]] = merge(named.get(one["name"]), one, strategic=True)
            result[key] = list(named.values())
        else:
            result[key] = merge(result.get(key), value, strategic=strategic)
    return result


def _json_patched(held: Json, operations: list[Json]) -> Json:
    """RFC 6902; what cannot be applied is 422 without causes, as a real server answers."""
    try:
        patched: Json = jsonpatch.apply_patch(held, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Refusal(422, "Invalid", "the server rejected our request due to an error in our request") from error
    return patched


def _bare(body: Json) -> Json:
    counted = ("resourceVersion", "generation")
    metadata = {key: value for key, value in body["metadata"].items() if key not in counted}
    return {key: value for key, value in body.items() if key != "_manager"} | {"metadata": metadata}


def _decided(body: Json) -> Json:
    """What the generation counts changes of."""
    return {key: value for key, value in body.items() if key not in ("_manager", "metadata", "status")}


def _is_collection(path: str) -> bool:
    return _split(path)[1] is None


def _collection(path: str) -> str:
    return _split(path)[0]


def _split(path: str) -> tuple[str, str | None]:
    """Return (collection without its namespace, name or None)."""
    parts = path.strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    group, rest = parts[:head], parts[head:]
    if rest and rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    return "/" + "/".join([*group, rest[0]]), rest[1] if len(rest) > 1 else None


def _below(path: str, collection: str) -> bool:
    """True when the object at `path` belongs to the collection, in its namespace if it names one."""
    if _collection(path) != _collection(collection):
        return False
    return "/namespaces/" not in collection or path.startswith(collection + "/")
