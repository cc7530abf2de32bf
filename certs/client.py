"""The API client that this package needs: a protocol with one method, so that it depends on no client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

NOT_FOUND = HTTPStatus.NOT_FOUND
CONFLICT = HTTPStatus.CONFLICT  # AlreadyExists on create, a stale resourceVersion on write
ATTEMPTS: Final = 3


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


def patch_current(
    api: Client,
    path: str,
    patch_for: Callable[[bytes], Mapping[str, Any] | None],
    *,
    known: bytes | None,
    content_type: str,
    fence: Callable[[], None],
) -> bool:
    """Patch an object that differs from the wanted one; return True if a write was needed.

    `patch_for` returns the patch for the object (JSON) with its resourceVersion, None when it is as wanted. `known` is
    the object if a watch has shown it. Reads again after a conflict; `fence` is called before every write. Errors of
    the API pass through, "not found" too.
    """
    attempt = 0
    while True:
        attempt += 1
        patch = patch_for(api.request("GET", path) if known is None else known)
        if patch is None:
            return False
        fence()
        try:
            api.request("PATCH", path, body=patch, content_type=content_type)
        except Exception as error:
            if status_of(error) != CONFLICT or attempt == ATTEMPTS:
                raise
            known = None
        else:
            return True
