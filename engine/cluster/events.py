"""Records Events (events.k8s.io/v1) about objects, one per change of reason or note, posted in the background.

An Event's note cannot be changed later (docs/contributor/kubernetes-facts.md): a new reason or note is a new Event, and
a repeated one is dropped. Losing an Event is better than blocking a caller: the queue is bounded, and counts what it
drops. Its namespaces take turns, and the one with the most Events loses its oldest: a crowd of pods delays and loses
its own alone.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from engine import metrics
from engine.api.event_reasons import EventReason
from engine.api.names import FIELD_MANAGER
from engine.cluster.client import ApiError, ApiFault, KubeClient, object_path

CONTROLLER: Final = "topogate.dev/engine"
# Limits of the API: a longer field is refused.
MAX_NOTE: Final = 1024
MAX_WORD: Final = 128
MAX_NAME: Final = 253
QUEUE: Final = 1000
# Events that repeat what another object's Event says are dropped while more than this many wait.
SPARE: Final = 50
REMEMBERED: Final = 10_000
# For one object that changes all the time: a burst, then one Event per so many seconds (client-go: 25, 300).
BURST: Final = 25
REFILL: Final = 300.0
# A busy server asks for a pause; no Event is worth a longer one.
LONGEST_PAUSE: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about; `namespace` is "" for a cluster-scoped one."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _LastEvent:
    reason: str
    note: str
    tokens: float
    at: float


def event_body(
    regarding: Regarding,
    *,
    reason: str,
    note: str,
    action: str,
    warning: bool,
    instance: str,
    at: float,
    suffix: str,
) -> dict[str, Any]:
    """Return the JSON of an Event; `at` is seconds since the epoch, `suffix` makes its name unique.

    Note, reason, action and instance are cut to the limits of the API, never inside a character.
    """
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{regarding.name[: MAX_NAME - len(suffix) - 1].rstrip('.-')}.{suffix}",
            "namespace": regarding.namespace or "default",
        },
        "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if warning else "Normal",
        "reason": cut(reason, MAX_WORD),
        "action": cut(action, MAX_WORD),
        "note": cut(note, MAX_NOTE),
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "name": regarding.name,
            "uid": regarding.uid,
        }
        | ({"namespace": regarding.namespace} if regarding.namespace else {}),
        "reportingController": CONTROLLER,
        "reportingInstance": cut(instance, MAX_WORD),
    }


def cut(text: str, limit: int) -> str:
    """Return `text` in at most `limit` bytes of UTF-8, marked by an ellipsis where it was cut."""
    # Lone surrogates (from hostile JSON) cannot be sent at all.
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    mark = "…"
    return data[: limit - len(mark.encode())].decode("utf-8", "ignore") + mark


class Recorder:
    """Posts Events from a daemon thread of its own; `record` never waits and never raises for API faults."""

    def __init__(
        self,
        api: KubeClient,
        *,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        suffix: Callable[[], str] = lambda: uuid.uuid4().hex[:16],
    ) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._wall = wall
        self._suffix = suffix
        self._last: OrderedDict[tuple[str, ...], _LastEvent] = OrderedDict()
        self._queue: dict[str, deque[dict[str, Any]]] = {}  # by namespace, in the order of their turns
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def record(
        self,
        regarding: Regarding,
        *,
        reason: EventReason,
        note: str,
        action: str,
        warning: bool = False,
        spare: bool = False,
    ) -> bool:
        """Queue an Event; False when it repeats the object's last one, or the object has had too many.

        `spare`: another object has the same Event; this one is dropped while many wait to be posted.
        """
        with self._changed:
            if spare and self._waiting() > SPARE:
                metrics.events.labels("dropped").inc()
                return False
            if self._stopping or not self._is_news(regarding, reason, note):
                return False
            body = event_body(
                regarding,
                reason=reason,
                note=note,
                action=action,
                warning=warning,
                instance=self._instance,
                at=self._wall(),
                suffix=self._suffix(),
            )
            self._queue.setdefault(body["metadata"]["namespace"], deque()).append(body)
            if self._waiting() > QUEUE:
                self._take(max(self._queue, key=lambda namespace: len(self._queue[namespace])))
                metrics.events.labels("dropped").inc()
            self._changed.notify_all()
        return True

    def start(self) -> None:
        """Start the thread; once."""
        if self._thread is not None:
            raise RuntimeError("the recorder was started before")
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Stop taking Events, and post the queued ones within `timeout` seconds."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _is_news(self, regarding: Regarding, reason: str, note: str) -> bool:
        key = (regarding.kind, regarding.namespace, regarding.name, regarding.uid)
        now = self._clock()
        last = self._last.pop(key, None) or _LastEvent("", "", float(BURST), -math.inf)
        if last.at > -math.inf:
            last.tokens = min(float(BURST), last.tokens + (now - last.at) / REFILL)
        last.at = now
        news = (last.reason, last.note) != (reason, note)
        if news and last.tokens < 1.0:
            metrics.events.labels("dropped").inc()
            news = False
        elif news:
            last.tokens -= 1.0
            last.reason, last.note = reason, note
        self._last[key] = last
        while len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return news

    def _waiting(self) -> int:
        return sum(map(len, self._queue.values()))

    def _take(self, namespace: str) -> dict[str, Any]:
        """Remove and return the oldest Event of a namespace; its next turn comes after those of all others."""
        events = self._queue.pop(namespace)
        body = events.popleft()
        if events:
            self._queue[namespace] = events  # at the end of the round
        return body

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if not self._queue:
                    return
                body = self._take(next(iter(self._queue)))
            pause = self._post(body)
            if pause:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, pause)

    def _post(self, body: dict[str, Any]) -> float:
        """Post one Event and return how long to wait before the next one."""
        path = object_path("events.k8s.io/v1", "events", namespace=body["metadata"]["namespace"])
        try:
            self._api.request("POST", path, query={"fieldManager": FIELD_MANAGER}, body=body, timeout=(2.0, 5.0))
            metrics.events.labels("posted").inc()
            return 0.0
        except ApiError as error:
            # An Event is not worth a second attempt; a namespace that is being deleted takes none (403).
            metrics.events.labels("failed").inc()
            _log.debug("an event was not posted: %s", error)
            return min(error.retry_after or 0.0, LONGEST_PAUSE)
        except ApiFault as fault:
            metrics.events.labels("failed").inc()
            _log.debug("an event was not posted: %s", fault)
            return 1.0
        except Exception:
            metrics.events.labels("failed").inc()
            _log.exception("an event could not be posted")
            return 1.0
