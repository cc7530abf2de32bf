"""Counts unexpected errors of a server's event loop and logs them at a limited rate, as clients may cause them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from webhook.server.metrics import Metrics

log = logging.getLogger(__name__)

LOG_SECONDS: Final = 30.0


class FaultLog:
    """The error counter of one port, `webhook` or `ops`."""

    def __init__(self, metrics: Metrics, port: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._port = port
        self._clock = clock
        self._next_log = clock()

    def report(self) -> None:
        """Count the exception that is being handled, and log it unless one was logged just before."""
        self._metrics.fault(self._port)
        now = self._clock()
        if now >= self._next_log:
            self._next_log = now + LOG_SECONDS
            log.exception("an unexpected error on port %s, please report it; the server goes on", self._port)
