"""What the certificates need of an API client: one method, so that this package knows no client."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

NOT_FOUND = HTTPStatus.NOT_FOUND
CONFLICT = HTTPStatus.CONFLICT  # AlreadyExists on create, a stale resourceVersion on write


class Client(Protocol):
    """Requests to the API server. A refusal raises an exception whose `status` is the HTTP status."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request and return the answer's body."""


def status_of(error: Exception) -> int | None:
    """The HTTP status of a refusal; None for every other exception (no answer, our own fault)."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) else None
