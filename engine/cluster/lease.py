"""Holds the Lease that elects the leader: a thin thread around `engine.cluster.election`.

Every error is a failed renewal. A write that is already on its way when the deadline passes is stopped by the
preconditions of every write (`engine.cluster.writes`).
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec

from engine.api.names import FIELD_MANAGER
from engine.cluster.client import (
    APPLY_PATCH,
    ApiError,
    ApiFault,
    ApiUnavailable,
    KubeClient,
    get_or_none,
    object_path,
)
from engine.cluster.election import (
    Action,
    Create,
    Lease,
    Renew,
    State,
    Take,
    Terms,
    Wait,
    lost,
    observe,
    renewal,
    written,
)
from engine.decoding.wire import UNREADABLE

_log = logging.getLogger(__name__)


class NotLeader(Exception):
    """The replica is not, or not certainly, the leader, so nothing may be written."""


class _Spec(msgspec.Struct):
    holder: str | None = msgspec.field(name="holderIdentity", default=None)
    duration: float | None = msgspec.field(name="leaseDurationSeconds", default=None)
    acquired: str | None = msgspec.field(name="acquireTime", default=None)
    renewed: str | None = msgspec.field(name="renewTime", default=None)
    transitions: int | None = msgspec.field(name="leaseTransitions", default=None)


class _Meta(msgspec.Struct):
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _LeaseObject(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_LeaseObject).decode


def read_lease(body: bytes) -> Lease:
    """Parse a Lease from JSON; absent fields are empty. Raises ValueError when it is none."""
    return _lease(_decode(body))


def lease_of(body: Mapping[str, Any]) -> Lease:
    """Return a Lease from its decoded JSON; absent fields are empty. Raises ValueError when it is none."""
    return _lease(msgspec.convert(body, _LeaseObject))


def _lease(decoded: _LeaseObject) -> Lease:
    spec = decoded.spec
    return Lease(
        holder=spec.holder or "",
        duration=spec.duration or 0.0,
        transitions=max(0, spec.transitions or 0),
        acquired=spec.acquired or "",
        renewed=spec.renewed or "",
        uid=decoded.metadata.uid,
        resource_version=decoded.metadata.resource_version,
    )


def get_lease(api: KubeClient, namespace: str, name: str) -> Lease | None:
    """Get the Lease, whose holder perhaps leads no longer; None if it does not exist. Raises ApiFault."""
    path = object_path("coordination.k8s.io/v1", "leases", namespace=namespace, name=name)
    try:
        body = get_or_none(api, path)
        return None if body is None else read_lease(body)
    except UNREADABLE:
        raise ApiUnavailable(f"GET {path}: not a Lease") from None


def boottime() -> float:
    """Return monotonic seconds that also run while the machine sleeps, where the system has such a clock.

    A leader whose virtual machine was suspended must wake up knowing that its lease is over.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeaseCandidate:
    """Takes part in the election in a daemon thread of its own.

    `identity` must be unique to this process. `on_started` and `on_stopped` are called once per term, in the thread of
    the candidate: they must return at once (set an event), or renewals wait for them. They may come late; only `check`,
    to be called before every write, is current at any moment.
    """

    def __init__(
        self,
        api: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        terms: Terms | None = None,
        clock: Callable[[], float] = boottime,
        wall: Callable[[], float] = time.time,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        rng: random.Random | None = None,
        on_started: Callable[[], None] = lambda: None,
        on_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        if not identity:
            raise ValueError("a candidate needs an identity")
        self.identity = identity
        self._api = api
        self._collection = object_path("coordination.k8s.io/v1", "leases", namespace=namespace)
        self._path = object_path("coordination.k8s.io/v1", "leases", namespace=namespace, name=name)
        # At most 128 characters: hashed, because two identities cut to one manager would overwrite each other.
        self._manager = f"{FIELD_MANAGER}-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
        self._namespace = namespace
        self._name = name
        self._terms = terms or Terms()
        self._clock = clock
        self._wall = wall
        self._wait = wait
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._state = State()
        self._term = 0
        self._in_term = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # An answer that comes after half of the deadline leaves no room for a second attempt. A renewal by one write,
        # begun a retry after the last one, may take all that is left: a slow API server is no reason to give up.
        self._timeout = (self._terms.renew_deadline / 4, self._terms.renew_deadline / 2)
        self._renew_timeout = (self._terms.renew_deadline / 4, self._terms.renew_deadline - self._terms.retry)

    @property
    def is_leader(self) -> bool:
        """True when this replica leads for sure at this moment."""
        return not self._stopping.is_set() and self._state.leads(self._clock())

    @property
    def term(self) -> int:
        """The number of times that this replica became leader; work begun in one term must not continue in the next."""
        return self._term

    def check(self, term: int | None = None) -> None:
        """Raise NotLeader unless this replica leads at this moment (in this very term, if one is given)."""
        if not self.is_leader:
            raise NotLeader(f"{self.identity} does not lead")
        if term is not None and term != self._term:
            raise NotLeader(f"{self.identity} leads again, in term {self._term}; this was begun in term {term}")

    def fence(self) -> Callable[[], None]:
        """Return a check that is bound to the present term."""
        term = self._term
        return lambda: self.check(term)

    def start(self) -> None:
        """Start the thread; once."""
        if self._thread is not None:
            raise RuntimeError("the candidate was started before")
        self._thread = threading.Thread(target=self.run, name="lease", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop leading at once, release the Lease so that another replica takes it, end the thread."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def run(self) -> None:
        """Take part until `stop`; `start` calls this in a thread."""
        while not self._stopping.is_set():
            self._wait(self._stopping, self.step())
        self._release()

    def step(self) -> float:
        """Do one round (a read, and a write if it is our turn) and return how long to wait before the next."""
        # Half of the retry time is jitter: candidates do not run in step, and a release is seen within `retry`.
        pause = self._terms.retry * self._rng.uniform(0.5, 1.0)
        try:
            if not self._renewed():
                match self._observe():
                    case Wait(seconds):
                        # Not later than the moment the lease runs out: a crash is to cost no more than its duration.
                        pause = min(pause, seconds)
                    case Create():
                        self._write("PATCH", transitions=0, acquired="")
                    case Take(lease, transitions):
                        self._write("PUT", lease=lease, transitions=transitions, acquired="")
                    case Renew(lease):
                        self._renew(lease)
        except Exception as error:
            # Also a bug or a Lease that cannot be read: the Lease was not renewed.
            if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
                pause = 0.1  # deleted between our read and our write
            elif self.is_leader:
                pause /= 4  # before the deadline there is room for more attempts, if they come soon
            level = logging.INFO if isinstance(error, ApiFault) else logging.ERROR
            _log.log(level, "the lease was not renewed: %s", error, exc_info=not isinstance(error, ApiFault))
        self._call_on_change()
        return pause

    def _renewed(self) -> bool:
        """Renew our Lease by one write; False when we do not hold it, or it is another one by now."""
        own = renewal(self._state, identity=self.identity, now=self._clock())
        if own is None:
            return False
        try:
            self._renew(own.lease)
        except ApiError as error:
            if error.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                return False
            raise
        return True

    def _renew(self, lease: Lease) -> None:
        self._write("PUT", lease=lease, transitions=lease.transitions, acquired=lease.acquired)

    def _observe(self) -> Action:
        body = get_or_none(self._api, self._path, timeout=self._timeout)
        lease = None if body is None else read_lease(body)
        self._state, action = observe(self._state, lease, identity=self.identity, terms=self._terms, now=self._clock())
        return action

    def _write(self, method: str, *, transitions: int, acquired: str, lease: Lease | None = None) -> None:
        if self._stopping.is_set():
            return
        body = self._body(holder=self.identity, transitions=transitions, acquired=acquired, lease=lease)
        sent_at = self._clock()
        if method == "PATCH":
            # Server-side apply: the one way to create that RBAC can bind to this name. The manager is this process, so
            # that a second creator meets a conflict instead of overwriting the first.
            answer = self._api.request(
                "PATCH",
                self._path,
                query={"fieldManager": self._manager, "force": "false"},
                body=body,
                content_type=APPLY_PATCH,
                timeout=self._timeout,
            )
        else:
            timeout = self._renew_timeout if self._state.leads(sent_at) else self._timeout
            answer = self._api.request("PUT", self._path, body=body, timeout=timeout)
        got = read_lease(answer)
        if got.holder != self.identity:
            raise ValueError(f"wrote the lease and was answered that {got.holder!r} holds it")
        now = self._clock()
        if not self._state.leads(now):
            # Also when our own term ran out while this answer was on its way: what was begun in it must not go on.
            self._end_term()
            self._term += 1
        self._state = written(self._state, got, sent_at=sent_at, now=now, terms=self._terms)

    def _body(self, *, holder: str, transitions: int, acquired: str, lease: Lease | None) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            metadata |= {"uid": lease.uid, "resourceVersion": lease.resource_version}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, round(self._terms.duration)) if holder else 1,
                "acquireTime": acquired or now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _call_on_change(self) -> None:
        if not self.is_leader:
            self._end_term()
        elif not self._in_term:
            self._in_term = True
            self._call(self._on_started)

    def _end_term(self) -> None:
        if self._in_term:
            self._in_term = False
            self._call(self._on_stopped)

    def _release(self) -> None:
        held = self._state.observed
        self._state = lost(self._state)
        self._end_term()
        if held is None or held.holder != self.identity:
            return
        try:
            body = self._body(holder="", transitions=held.transitions, acquired=held.acquired, lease=held)
            self._api.request("PUT", self._path, body=body, timeout=(0.5, 1.0))
        except ApiFault as error:
            _log.info("the lease was not released, it runs out by itself: %s", error)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            _log.exception("a callback of the election failed")
