"""Compares the caBundle of a webhook configuration, and patches it where it differs.

By strategic merge on the webhook's name, never by apply: server-side apply leaves husks when a manifest drops a webhook
and client-side apply would wipe it. The patch carries the resourceVersion, so that a webhook which was removed
meanwhile causes a conflict and not a new, empty entry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import MAX_PEM, certificates_of
from certs.client import Client, patch_current

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

Configurations = Literal["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]


class ConfigurationMalformed(ValueError):
    """The object is not a webhook configuration."""


def bundle_patch(configuration: bytes, bundle: bytes) -> dict[str, Any] | None:
    """Return the strategic-merge patch that sets the caBundle in every webhook of `configuration` (JSON), or None.

    It names only the webhooks that need it. Raises ConfigurationMalformed.
    """
    try:
        found = json.loads(configuration)
        version = found["metadata"]["resourceVersion"]
        stale = [
            {"name": webhook["name"], "clientConfig": {"caBundle": base64.b64encode(bundle).decode("ascii")}}
            for webhook in found.get("webhooks") or []
            if _decoded(webhook["clientConfig"].get("caBundle")) != bundle
        ]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ConfigurationMalformed("not a webhook configuration") from None
    return {"metadata": {"resourceVersion": version}, "webhooks": stale} if stale else None


def carries(configuration: bytes, certificate: bytes) -> bool:
    """Return True if every webhook of `configuration` (JSON) trusts `certificate` (PEM). Raises
    ConfigurationMalformed.
    """
    try:
        webhooks = json.loads(configuration).get("webhooks") or []
        return all(certificate in (_decoded(webhook["clientConfig"].get("caBundle")) or b"") for webhook in webhooks)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ConfigurationMalformed("not a webhook configuration") from None


def bundles(configuration: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the caBundle of each webhook of a configuration by name; b"" for one without. Raises
    ConfigurationMalformed.
    """
    try:
        webhooks = configuration.get("webhooks") or []
        return {one["name"]: _decoded(one["clientConfig"].get("caBundle")) or b"" for one in webhooks}
    except (KeyError, TypeError, AttributeError):
        raise ConfigurationMalformed("not a webhook configuration") from None


def callers(configuration: bytes) -> set[tuple[str, bytes]]:
    """Return how the webhooks of `configuration` (JSON) are called: the host name and the caBundle, b"" for none.

    Raises ConfigurationMalformed.
    """
    try:
        webhooks = json.loads(configuration).get("webhooks") or []
        return {_caller(webhook["clientConfig"]) for webhook in webhooks}
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ConfigurationMalformed("not a webhook configuration") from None


def _caller(client_config: Mapping[str, Any]) -> tuple[str, bytes]:
    service = client_config.get("service")
    host = f"{service['name']}.{service['namespace']}.svc" if service else urlsplit(client_config["url"]).hostname
    return host or "", _decoded(client_config.get("caBundle")) or b""


def bundle_end(bundle: bytes) -> float:
    """Return when the last certificate of a PEM bundle ends, in seconds since the epoch. Raises ValueError."""
    return max(one.not_valid_after_utc.timestamp() for one in _certificates(bundle))


def same_certificates(one: bytes, other: bytes, *, now: float) -> bool:
    """Return True if two PEM bundles hold the same certificates, however these are written.

    Certificates that have ended at `now` (seconds since the epoch) are left out, as `read_authority` leaves them out of
    what is published. A bundle without certificates is like no other.
    """
    try:
        return _current(one, now) == _current(other, now)
    except ValueError:
        return False


def _current(bundle: bytes, now: float) -> set[bytes]:
    found = _certificates(bundle)
    return {one.public_bytes(Encoding.DER) for one in found if one.not_valid_after_utc.timestamp() > now}


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    if not 0 < len(bundle) <= MAX_PEM:
        raise ValueError("no certificates")
    return certificates_of(bundle)


def inject(
    api: Client,
    *,
    resource: Configurations,
    name: str,
    bundle: bytes,
    known: bytes | None = None,
    fence: Callable[[], None] = lambda: None,
) -> bool:
    """Set the caBundle in the webhooks of one configuration; return True if a write was needed.

    `known` is the configuration (JSON) if a watch has shown it. Reads again after a conflict; `fence` is called before
    every write. Raises ConfigurationMalformed; errors of the API pass through, "not found" too.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}"
    return patch_current(
        api,
        path,
        lambda configuration: bundle_patch(configuration, bundle),
        known=known,
        content_type=STRATEGIC_MERGE,
        fence=fence,
    )


def _decoded(text: Any) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
