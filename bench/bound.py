"""When pods were bound, told by a watch: what a poll would add is its period and the work of its lists."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec
import urllib3

from local.controlplane import ControlPlane

PODS = "/api/v1/pods"
# Only bound pods are told about, each from the moment of its binding on.
SELECTOR = "spec.nodeName!="


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(_Event).decode
_object = msgspec.json.Decoder(_Object).decode


class WatchEnded(Exception):
    """The watch cannot go on: what comes after is not measured."""


class BoundWatch:
    """A watch over all namespaces, from `__enter__` to `__exit__`; times are `time.monotonic()`.

    The API server ends watches that it finds slow: then the next one goes on from the last version, and misses nothing.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._times: dict[str, dict[str, float]] = {}
        self._changed = threading.Condition()
        self._problem = ""
        self._closing = False
        listed = cluster.client.get(PODS, query={"limit": "1"})
        self._version: str = listed["metadata"]["resourceVersion"]
        self._pool = urllib3.PoolManager(ca_certs=str(cluster.ca_certificate), cert_reqs="CERT_REQUIRED", retries=False)
        self._answer = self._open()
        self._thread = threading.Thread(target=self._run, name="bound", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        # It may have ended by itself in this moment.
        with suppress(RuntimeError, OSError):
            self._answer.shutdown()
        self._thread.join(5.0)
        self._pool.clear()

    def wait(self, namespace: str, count: int, timeout: float) -> float:
        """Wait until `count` pods of a namespace are bound; the moment at which the last one was.

        Raises TimeoutError, and WatchEnded.
        """
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._problem or len(self._times.get(namespace, ())) >= count, timeout=timeout
            )
            if self._problem:
                raise WatchEnded(self._problem)
            bound = self._times.get(namespace, {})
            if not done:
                raise TimeoutError(f"{len(bound)} of {count} pods are bound after {timeout:.0f} s")
            return max(bound.values())

    def bound(self, namespace: str) -> Mapping[str, float]:
        """When each pod of a namespace was bound, by name."""
        with self._changed:
            return dict(self._times.get(namespace, {}))

    def _open(self) -> urllib3.BaseHTTPResponse:
        query = {
            "watch": "true",
            "fieldSelector": SELECTOR,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "7200",
        }
        return self._pool.request(
            "GET",
            f"{self._cluster.url}{PODS}?{urlencode(query)}",
            headers={"Authorization": f"Bearer {self._cluster.token}", "Accept": "application/json"},
            preload_content=False,
            timeout=urllib3.Timeout(connect=5.0, read=None),
        )

    def _run(self) -> None:
        problem = ""
        try:
            while not self._closing:
                self._follow()
                self._answer = self._open()
        except Exception as error:
            problem = f"the watch failed: {error}"
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def _follow(self) -> None:
        rest = b""
        while chunk := self._answer.read1(262144):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            self._take(lines, now)

    def _take(self, lines: list[bytes], now: float) -> None:
        with self._changed:
            for line in lines:
                event = _decode(line)
                if event.type == "ERROR":
                    raise WatchEnded(bytes(event.object).decode(errors="replace"))
                about = _object(event.object).metadata
                self._version = about.resource_version
                if event.type in ("ADDED", "MODIFIED"):
                    self._times.setdefault(about.namespace, {}).setdefault(about.name, now)
            self._changed.notify_all()
