"""Logs failed TLS handshakes at a limited rate, and counts those in which we refused the client."""

from __future__ import annotations

import logging
import ssl
import time
from typing import Any, Final

from webhook.connections.connection import ClientNotAllowed
from webhook.server.metrics import Metrics, Refusal

log = logging.getLogger(__name__)

COMPLAINT_SECONDS: Final = 30.0  # between log lines of one sort: anybody who reaches the port can cause them


class HandshakeLog:
    """Logs why TLS handshakes failed; `report` is called by the threads of the server."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._next: dict[str, float] = {}

    def report(self, client: Any, error: OSError) -> Refusal | None:
        """Log an error of a handshake; return why we refused the client, None if it was the client who ended it."""
        reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
        if isinstance(error, ClientNotAllowed):
            return self._refused(client, Refusal.NAME, str(error))
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return self._refused(client, Refusal.NO_CERTIFICATE, "it has no client certificate")
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._refused(client, Refusal.UNTRUSTED, f"its client certificate: {error.verify_message}")
        if "ALERT" in reason and ("UNKNOWN_CA" in reason or "CERTIFICATE" in reason):
            self._complain("distrust", "%s does not trust our certificate (%s): is caBundle current?", client, reason)
        else:
            log.debug("TLS with %s: %s", client, error)
        return None

    def _refused(self, client: Any, why: Refusal, text: str) -> Refusal:
        self._metrics.client_refused(why)
        self._complain(why.value, "a call from %s was refused: %s", client, text)
        return why

    def _complain(self, sort: str, text: str, *arguments: Any) -> None:
        now = time.monotonic()
        if now >= self._next.get(sort, 0.0):
            self._next[sort] = now + COMPLAINT_SECONDS
            log.warning(text, *arguments)
