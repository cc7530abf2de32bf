"""The API client that this package needs: a protocol with one method, so that it depends on no client."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

NOT_FOUND = HTTPStatus.NOT_FOUND
CONFLICT = HTTPStatus.CONFLICT  # AlreadyExists on create, a stale resourceVersion on write


class Client(Protocol):
    """Sends requests to the API server; raises an exception with the HTTP status as `status` for a refusal."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request and return the body of the response."""


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of a refusal; None for other exceptions (no response, our own fault)."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) else None
