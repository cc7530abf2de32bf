"""The CA's Secret: whoever comes first makes it, everybody uses it.

`ca.crt` holds every certificate that clients are to trust (during a rotation more than one), `ca.key` the key that
signs; the certificate that belongs to it is found among those. Leaves are in no Secret.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from certs.api import CONFLICT, NOT_FOUND, Api, status_of
from certs.authority import Authority, AuthorityError, new_authority, read_authority

CERTIFICATES_KEY: Final = "ca.crt"
PRIVATE_KEY: Final = "ca.key"
ATTEMPTS: Final = 3  # created by another, gone again, created anew: more is somebody's loop


class SecretUnusable(Exception):
    """The Secret is there but holds no usable CA; the message says what is wrong and what to do. No key material."""


def ensure_authority(api: Api, *, namespace: str, name: str, now: float) -> Authority:
    """Return the CA of the Secret `namespace`/`name`, making it when there is none. `now` in seconds since the epoch.

    Raises SecretUnusable when it is half written, garbage or expired: a CA that others may be using is never
    overwritten. Errors of the API pass through.
    """
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    for _ in range(ATTEMPTS):
        try:
            return _read(api.request("GET", f"{collection}/{name}"), namespace=namespace, name=name, now=now)
        except Exception as error:
            if status_of(error) != NOT_FOUND:
                raise
        authority = new_authority(now=now, name=f"{name}.{namespace}")
        try:
            api.request("POST", collection, body=_manifest(authority, namespace=namespace, name=name))
        except Exception as error:
            if status_of(error) != CONFLICT:
                raise
        else:
            return authority
    raise SecretUnusable(f"Secret {namespace}/{name} comes and goes: something deletes it")


def _read(body: bytes, *, namespace: str, name: str, now: float) -> Authority:
    try:
        data = json.loads(body).get("data") or {}
        return read_authority(_decoded(data, CERTIFICATES_KEY), _decoded(data, PRIVATE_KEY), now=now)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        what = str(error) if isinstance(error, AuthorityError) else "it is malformed"
        raise SecretUnusable(
            f"Secret {namespace}/{name} holds no usable CA: {what}. Restore it, or delete it and restart the replicas: "
            "they make a new CA and the leader writes it into the webhook configurations"
        ) from None


def _decoded(data: Any, key: str) -> bytes:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise AuthorityError(f"{key} is missing")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise AuthorityError(f"{key} is not base64") from None


def _manifest(authority: Authority, *, namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "topogate"}},
        "type": "Opaque",
        "data": {
            CERTIFICATES_KEY: base64.b64encode(authority.bundle).decode("ascii"),
            PRIVATE_KEY: base64.b64encode(authority.key).decode("ascii"),
        },
    }
