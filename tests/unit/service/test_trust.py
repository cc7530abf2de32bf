"""Whether the webhook configurations trust what a replica serves."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from types import SimpleNamespace
from typing import Any, cast

import pytest

from webhook.configuration.webhooks import MUTATING, VALIDATING
from webhook.service import trust
from webhook.service.trust import ConfigurationTrust


def configuration(*bundles: bytes) -> bytes:
    service = {"name": "topogate", "namespace": "topogate-system", "path": "/mutate"}
    hooks = [{"clientConfig": {"service": service, "caBundle": b64encode(one).decode()}} for one in bundles]
    return json.dumps({"webhooks": hooks}).encode()


def trust_of(**configurations: bytes) -> ConfigurationTrust:
    resources = {"mutating": MUTATING, "validating": VALIDATING}
    found = {(resources[kind], "topogate"): body for kind, body in configurations.items()}
    return ConfigurationTrust(cast(Any, SimpleNamespace(configurations=lambda: found)), clock=lambda: 0.0)


def test_nothing_is_tried_after_the_first_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial is a TLS handshake; one refusal is the answer, and it is kept."""
    tried: list[bytes] = []

    def refusal(_: ssl.SSLContext, *, bundle: bytes, host: str) -> str:
        tried.append(bundle)
        return "" if bundle == b"a" else "no"

    monkeypatch.setattr(trust, "refusal", refusal)
    context = ssl.create_default_context()
    found = trust_of(mutating=configuration(b"a", b"b", b"c"), validating=configuration(b"d"))
    host = "topogate.topogate-system.svc"
    for _ in range(2):
        assert found.distrust(context) == f"MutatingWebhookConfiguration topogate does not trust it as {host}: no"
    assert tried == [b"a", b"b"]


def test_a_way_of_calling_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []
    monkeypatch.setattr(trust, "refusal", lambda _, *, bundle, host: tried.append(bundle) or "")
    both = configuration(b"good", b"good")
    assert trust_of(mutating=both, validating=both).trusts(ssl.create_default_context())
    assert tried == [b"good"]
