"""The truth: the objects of the API server, and clients whose requests fail in the ways of a network."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from engine.cluster.client import ApiError, ApiUnavailable, status_error
from tests.support.fake_api import FakeApi, Json, Refusal, Request

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
TRAINING_JOBS: Final = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
JOB_SETS: Final = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
STATEFUL_SETS: Final = "/apis/apps/v1/namespaces/default/statefulsets"
PLACEMENTS: Final = "/apis/topogate.dev/v1alpha1/namespaces/default/placements"
# Lost answers are the worst: the write has happened, and nobody knows.
FAULTS: Final = ("down", "lost", "lost", "500", "conflict", "429")
_SHOWN: Final = 400  # characters of a body in the trace


class ClusterApi(FakeApi):
    """`FakeApi` without its socket; uids are counted, so that a life is the same in every run."""

    def __init__(self) -> None:
        super().__init__()
        self._server.server_close()
        self._serial = count(1)

    def objects(self, collection: str) -> list[Json]:
        """The objects of a collection by name; not to be changed."""
        return [body for path, body in sorted(self._objects.items()) if path.rpartition("/")[0] == collection]

    def seen(self) -> int:
        """The number of changes so far."""
        return len(self._log)

    def changes(self, collection: str, after: int) -> Iterator[tuple[int, str, Json]]:
        """Number, type and object of each change of a collection after the one with that number."""
        for number, (_, kind, body) in enumerate(self._log[after:], after + 1):
            if body["_path"].rpartition("/")[0] == collection:
                yield number, kind, body

    def delete_pod(self, path: str, *, uid: str | None = None, version: str | None = None, now: bool = False) -> Json:
        """Delete a pod as the API server does: a bound one goes when its kubelet has ended it, unless it is `now`."""
        held = self._existing(path)
        for wanted, key in ((uid, "uid"), (version, "resourceVersion")):
            if wanted not in (None, held["metadata"][key]):
                raise Refusal(409, "Conflict", f"the {key} is another one")
        if now or not held["spec"].get("nodeName"):
            with self._changed:
                return self._delete(path)
        return self.put(path, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})

    def handle(self, request: Request) -> Json:
        """Do what a request asks for."""
        if request.path.endswith("/eviction"):
            uid = request.json()["deleteOptions"]["preconditions"]["uid"]
            return self.delete_pod(request.path.removesuffix("/eviction"), uid=uid)
        if request.method == "DELETE" and request.path.startswith(PODS):
            body = request.json() if request.body else {}
            wanted, now = body.get("preconditions") or {}, body.get("gracePeriodSeconds") == 0
            return self.delete_pod(request.path, uid=wanted.get("uid"), version=wanted.get("resourceVersion"), now=now)
        return self.answer(request)

    def _store(self, path: str, body: Json, kind: str) -> Json:
        if not body.setdefault("metadata", {}).get("uid"):
            body["metadata"]["uid"] = f"00000000-0000-4000-8000-{next(self._serial):012d}"
        return super()._store(path, body, kind)


class FaultyClient:
    """What a replica uses as its `KubeClient`: a part of its requests, `faulty`, meets a fault.

    `note` takes the lines of the trace, `wrote` is called after each write.
    """

    def __init__(
        self,
        api: ClusterApi,
        rng: random.Random,
        *,
        faulty: Callable[[], float],
        note: Callable[..., None],
        wrote: Callable[[str], None],
    ) -> None:
        self._api = api
        self._rng = rng
        self._faulty = faulty
        self._note = note
        self._wrote = wrote

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        **_: Any,
    ) -> bytes:
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        fault = self._rng.choice(FAULTS) if self._rng.random() < self._faulty() else ""
        if method != "GET":
            self._note(method, path.rpartition("/default/")[2], payload[:_SHOWN].decode(), fault and f"FAULT {fault}")
        self._fail_before(fault, method, path)
        request = Request(method, path, dict(query or {}), {"content-type": content_type}, payload, 0.0)
        try:
            answer = self._api.handle(request)
        except Refusal as refusal:
            if method != "GET":
                self._note("refused", refusal.code, refusal.status["message"])
            raise status_error(json.dumps(refusal.status).encode(), http_status=refusal.code) from None
        if method != "GET":
            self._wrote(f"{method} {path}")
        if fault == "lost":
            raise ApiUnavailable("the answer is lost")
        return json.dumps(answer).encode()

    def _fail_before(self, fault: str, method: str, path: str) -> None:
        if fault == "down" or (fault == "lost" and method == "GET"):
            raise ApiUnavailable("nobody answers")
        if fault == "500":
            raise ApiError(500, "InternalError", "a fault of the server")
        if fault == "429":
            raise ApiError(429, "TooManyRequests", "slow down")
        if fault == "conflict" and method != "GET" and not path.startswith(PODS):
            self._touch(path.removesuffix("/status"))

    def _touch(self, path: str) -> None:
        """Somebody else changes the object a moment before."""
        if self._api.get(path) is not None:
            self._api.put(path, metadata={"annotations": {"example.com/touched": str(self._rng.random())}})
