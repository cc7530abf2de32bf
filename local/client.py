"""A small JSON client of an API server, for setting scenes: one pool of connections, errors with the server's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
HTTP_ERROR = 400
NOT_FOUND = 404


class ClientError(Exception):
    """The API server said no: `status` is the HTTP status, `reason` Kubernetes' own word (NotFound, Conflict ...)."""

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details


class Client:
    """Requests as one user. Safe to share between threads; `connections` bounds how many requests run at once."""

    def __init__(self, url: str, *, token: str, ca_certificate: Path, connections: int = 32) -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=connections,
            block=True,
            ca_certs=str(ca_certificate),
            cert_reqs="CERT_REQUIRED",
            retries=False,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Any:
        """Return the decoded answer (text where it is no JSON); raise ClientError for 4xx and 5xx."""
        answer = self._pool.request(
            method,
            self.url + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": content_type},
            timeout=urllib3.Timeout(total=timeout),
        )
        decoded = _decoded(answer.data)
        if answer.status < HTTP_ERROR:
            return decoded
        status: Mapping[str, Any] = decoded if isinstance(decoded, dict) else {"message": str(decoded)}
        raise ClientError(
            answer.status, status.get("reason") or "Unknown", status.get("message") or "", status.get("details") or {}
        )

    def get(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        """Read one object or a list."""
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Any | None:
        """Read one object; None when there is none."""
        try:
            return self.get(path)
        except ClientError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def items(self, path: str, *, selector: str = "") -> list[Any]:
        """List a collection, whole."""
        listed: list[Any] = self.get(path, query={"labelSelector": selector} if selector else None)["items"]
        return listed

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """Create an object in a collection."""
        return self.request("POST", path, body=body, query={"dryRun": "All"} if dry_run else None)

    def patch(self, path: str, body: object, *, kind: str = "merge", query: Mapping[str, str] | None = None) -> Any:
        """Patch an object; `kind` is a key of PATCH_TYPES."""
        return self.request("PATCH", path, body=body, content_type=PATCH_TYPES[kind], query=query)

    def delete(self, path: str, *, grace: int | None = None, propagation: str = "Background") -> None:
        """Delete an object or a collection; that it is already gone is fine."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", path, body=options)
        except ClientError as error:
            if error.status != NOT_FOUND:
                raise

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
