"""The CA's Secret: read by every replica, created by the first, and written by the leader.

`ca.crt` holds every certificate that clients should trust (during a renewal more than one), `ca.key` the key that
signs, `next.key` the key that signs next; the certificates that belong to them are found among those. Leaves are in no
Secret. Annotations hold the time since which the CA signs, and requests of people.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from certs.authority import Authority, AuthorityError, AuthorityExpired, new_authority, read_authority
from certs.client import CONFLICT, NOT_FOUND, Client, status_of
from certs.rotation import StoredAuthority

CERTIFICATES_KEY: Final = "ca.crt"
PRIVATE_KEY: Final = "ca.key"
NEXT_KEY: Final = "next.key"
SINCE: Final = "topogate.dev/ca-signs-since"  # seconds since the epoch
RENEW: Final = "topogate.dev/renew-ca"
DROP: Final = "topogate.dev/drop-old-ca"
MERGE_PATCH: Final = "application/merge-patch+json"
ATTEMPTS: Final = 3  # created by another, deleted again, created anew: more is a loop of another program


class SecretUnusable(Exception):
    """The Secret exists but holds no usable CA; the message names the cause and the remedy. No key material."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


def ensure_ca(
    api: Client, *, namespace: str, name: str, now: float, may_make: Callable[[], bool] = lambda: True
) -> StoredAuthority:
    """Return the state in the Secret `namespace`/`name`, making a CA if there is none or it has expired.

    `may_make` is called before a CA is made where there is no Secret: another replica may be about to restore the one
    in use. `now` in seconds since the epoch. Raises SecretUnusable if the Secret is half written or garbage (a CA that
    others may be using is never overwritten), or if it may not be made yet. Errors of the API pass through.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    for _ in range(ATTEMPTS):
        version = ""
        try:
            body = api.request("GET", path)
            return read_kept(body, namespace=namespace, name=name, now=now)
        except SecretUnusable as error:
            if not error.expired:
                raise
            version = json.loads(body)["metadata"]["resourceVersion"]
        except Exception as error:
            if status_of(error) != NOT_FOUND:
                raise
            if not may_make():
                raise SecretUnusable(f"Secret {namespace}/{name} not found: the leader restores it") from None
        made = StoredAuthority(new_ca(namespace=namespace, name=name, now=now))
        try:
            write(api, made, namespace=namespace, name=name, version=version)
        except Exception as error:
            if status_of(error) not in (CONFLICT, NOT_FOUND):
                raise
        else:
            return made
    raise SecretUnusable(f"Secret {namespace}/{name} comes and goes: something deletes it")


def new_ca(*, namespace: str, name: str, now: float) -> Authority:
    """Return a new CA with the common name for this Secret."""
    return new_authority(now=now, name=f"{name}.{namespace}")


def read_kept(body: bytes, *, namespace: str, name: str, now: float) -> StoredAuthority:
    """Return the state in a Secret (JSON). Raises SecretUnusable."""
    try:
        found = json.loads(body)
        data, annotations = found.get("data") or {}, (found.get("metadata") or {}).get("annotations") or {}
        bundle = _decoded(data, CERTIFICATES_KEY)
        authority = read_authority(bundle, _decoded(data, PRIVATE_KEY), now=now)
        return StoredAuthority(
            authority,
            following=_following(data, bundle, authority, now=now),
            since=_seconds(annotations.get(SINCE)),
            renew_asked=RENEW in annotations,
            drop_asked=DROP in annotations,
        )
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        what = str(error) if isinstance(error, AuthorityError) else "it is malformed"
        raise SecretUnusable(
            f"Secret {namespace}/{name} holds no usable CA: {what}. A leader that knew the last one writes it back; "
            "where none runs, restore it, or delete it: the replicas make a new CA, and the leader publishes it",
            expired=isinstance(error, AuthorityExpired),
        ) from None


def write(api: Client, kept: StoredAuthority, *, namespace: str, name: str, version: str) -> bytes:
    """Store `kept` in the Secret with that resourceVersion (another version is a conflict), or in a new one ("").

    Returns the response. Data of others in the Secret stays. Errors of the API pass through.
    """
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    following = None if kept.following is None else _encoded(kept.following.key)
    data = {
        CERTIFICATES_KEY: _encoded(kept.bundle),
        PRIVATE_KEY: _encoded(kept.authority.key),
        NEXT_KEY: following,
    }
    annotations = {
        SINCE: None if kept.since is None else str(int(kept.since)),
        RENEW: "true" if kept.renew_asked else None,
        DROP: "true" if kept.drop_asked else None,
    }
    if version:
        metadata = {"resourceVersion": version, "annotations": annotations}
        patch = {"metadata": metadata, "data": data}
        return api.request("PATCH", f"{collection}/{name}", body=patch, content_type=MERGE_PATCH)
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "topogate"},
            "annotations": _without_none(annotations),
        },
        "type": "Opaque",
        "data": _without_none(data),
    }
    return api.request("POST", collection, body=manifest)


def _following(data: Any, bundle: bytes, authority: Authority, *, now: float) -> Authority | None:
    """Return the announced CA; None if its key is unusable: another one is announced in time."""
    try:
        found = read_authority(bundle, _decoded(data, NEXT_KEY), now=now)
    except AuthorityError:
        return None
    return None if found.signer == authority.signer else replace(found, certificates=(found.signer,))


def _seconds(text: Any) -> float | None:
    return float(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 16 else None  # noqa: PLR2004 - digits


def _decoded(data: Any, key: str) -> bytes:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise AuthorityError(f"{key} is missing")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise AuthorityError(f"{key} is not base64") from None


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _without_none(values: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
