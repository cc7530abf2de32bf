"""A handshake in memory tells what the API server will say."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from certs.authority import new_authority
from certs.ca_bundle import ConfigurationMalformed, callers
from certs.serving import ServingCertificate
from certs.trust import refusal
from tests.support.certificates import DAY, TestAuthority

NOW = time.time()
CA = new_authority(now=NOW, name="ca")
CONTEXT = ServingCertificate(lambda: CA, dns_names=["a.test"], addresses=["::1"], clock=time.time).context


@pytest.mark.parametrize("host", ["a.test", "A.test", "::1"])
def test_a_client_that_trusts_the_authority_accepts(host: str) -> None:
    """By name and by address; other CAs may be in the bundle too."""
    other = TestAuthority.make(now=NOW)
    assert refusal(CONTEXT, bundle=other.pem + CA.bundle, host=host) == ""


@pytest.mark.parametrize(
    ("bundle", "host", "text"),
    [
        (b"", "a.test", "there is no CA bundle"),
        (b"garbage", "a.test", "the CA bundle is not PEM"),
        (b"\xff" * 10, "a.test", "the CA bundle is not PEM"),
        (CA.bundle * 200, "a.test", "the CA bundle is too large"),
        (TestAuthority.make(now=NOW).pem, "a.test", "unable to get local issuer certificate"),
        (CA.bundle, "b.test", "Hostname mismatch, certificate is not valid for 'b.test'."),
        (CA.bundle, "127.0.0.1", "IP address mismatch, certificate is not valid for '127.0.0.1'."),
        (CA.bundle, "", "the name is malformed"),
        (CA.bundle, ".test", "the name is malformed"),
        (TestAuthority.make(now=NOW - 3 * DAY, days=1).pem, "a.test", "unable to get local issuer certificate"),
    ],
)
def test_why_a_client_refuses_is_told(bundle: bytes, host: str, text: str) -> None:
    """In OpenSSL's words, which people find in the API server's log in Go's."""
    assert refusal(CONTEXT, bundle=bundle, host=host) == text


def configuration(*clients: Any) -> bytes:
    return json.dumps(
        {"webhooks": [{"name": str(one), "clientConfig": client} for one, client in enumerate(clients)]}
    ).encode()


def test_how_a_configuration_calls_is_read_from_its_webhooks() -> None:
    """A Service is called by its DNS name, a URL by its host; the same way counts once."""
    bundle = base64.b64encode(b"pem").decode()
    service = {"service": {"name": "t", "namespace": "n", "path": "/mutate"}, "caBundle": bundle}
    address = {"url": "https://[::1]:8443/mutate", "caBundle": "%"}
    found = callers(configuration(service, service, address, {"url": "https://a.test/"}))
    assert found == {("t.n.svc", b"pem"), ("::1", b""), ("a.test", b"")}
    assert callers(b"{}") == set()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"webhooks": 1}', configuration({}), configuration(None), configuration({"url": 1})]
)
def test_what_is_no_configuration_is_an_error(body: bytes) -> None:
    """Whatever a watch may bring."""
    with pytest.raises(ConfigurationMalformed):
        callers(body)
