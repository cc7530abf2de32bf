"""The caBundle in a webhook configuration: compared, and patched where it differs.

By strategic merge on the webhook's name, never by apply: server-side apply leaves husks when a manifest drops a webhook
and client-side apply would wipe it. The patch carries the resourceVersion, so that a webhook which went away meanwhile
is a conflict and not a new, empty entry.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal

from certs.api import CONFLICT, Api, status_of

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
ATTEMPTS: Final = 3

Configurations = Literal["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]


class ConfigurationMalformed(ValueError):
    """The object is no webhook configuration."""


def bundle_patch(configuration: bytes, bundle: bytes) -> dict[str, Any] | None:
    """Return the strategic-merge patch that gives every webhook of `configuration` (JSON) the caBundle, or None.

    Names only the webhooks that need it. Raises ConfigurationMalformed.
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


def inject(api: Api, *, resource: Configurations, name: str, bundle: bytes) -> bool:
    """Give the webhooks of one configuration the caBundle; True when something had to be written.

    Reads again after a conflict. Raises ConfigurationMalformed; errors of the API pass through, "not found" too.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{name}"
    attempt = 0
    while True:
        attempt += 1
        patch = bundle_patch(api.request("GET", path), bundle)
        if patch is None:
            return False
        try:
            api.request("PATCH", path, body=patch, content_type=STRATEGIC_MERGE)
        except Exception as error:
            if status_of(error) != CONFLICT or attempt == ATTEMPTS:
                raise
        else:
            return True


def _decoded(text: Any) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
