"""Reports objects without a field that an entry of the policy's kinds names: only the admin can correct the entry.

The users of these objects are refused with the same message. An omitted template looks like a path that leads nowhere:
a person has to decide which of the two it is, and the count shows whether every object of a kind is affected.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from engine.api.text import sanitize
from engine.kinds.registry import Registry
from webhook.admission.review import Response, Review
from webhook.server.metrics import Metrics

log = logging.getLogger(__name__)

LOG_SECONDS: Final = 300.0  # between log lines of one entry: users try again and again


class EntryFaults:
    """The faults of the entries that the current policy adds."""

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._next_log: dict[str, float] = {}

    def follow(self, registry: Registry) -> None:
        """Take the entries of a new policy; a fault of any entry is logged again."""
        added = [where for entry in registry.entries if (where := registry.added(entry))]
        with self._lock:
            self._metrics.follow_entries(added)
            self._next_log = dict.fromkeys(added, self._clock())

    def noted(self, review: Review, response: Response) -> Response:
        """Return the response unchanged after counting its entry faults and logging them at a limited rate."""
        for entry, error in {error.entry: error for error in reversed(response.blamed)}.items():
            with self._lock:
                self._metrics.entry_fault(entry)
                now = self._clock()
                due = now >= self._next_log.get(entry, now + LOG_SECONDS)
                if due:
                    self._next_log[entry] = now + LOG_SECONDS
            if due:
                log.warning(
                    "%s of the policy may be wrong: %s %s/%s has nothing at %s; try the entry on its definition: "
                    "topogate policy check --object",
                    sanitize(entry),
                    sanitize(review.kind),
                    sanitize(review.namespace),
                    sanitize(review.name or "(no name yet)"),
                    sanitize(error.field),
                )
        return response
