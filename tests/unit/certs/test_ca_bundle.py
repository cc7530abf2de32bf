"""The caBundle of webhook configurations."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from certs.authority import new_authority
from certs.ca_bundle import ConfigurationMalformed, bundle_patch, carries, inject, same_certificates

BUNDLE = b"-----BEGIN CERTIFICATE-----\nnew\n"
TEXT = base64.b64encode(BUNDLE).decode()


def configuration(**bundles: str | None) -> bytes:
    webhooks = [
        {
            "name": name,
            "clientConfig": {"service": {"name": "topogate"}} | ({} if bundle is None else {"caBundle": bundle}),
            "sideEffects": "None",
        }
        for name, bundle in bundles.items()
    ]
    return json.dumps({"metadata": {"name": "topogate", "resourceVersion": "7"}, "webhooks": webhooks}).encode()


def test_the_patch_names_only_the_webhooks_that_differ() -> None:
    """Missing, stale and malformed bundles are replaced; a right one is left alone, and nothing else is named."""
    patch = bundle_patch(
        configuration(right=TEXT, missing=None, stale="b2xk", empty="", broken="%", foreign="ü"), BUNDLE
    )
    assert patch == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [
            {"name": name, "clientConfig": {"caBundle": TEXT}}
            for name in ("missing", "stale", "empty", "broken", "foreign")
        ],
    }


def test_there_is_no_patch_when_all_is_right() -> None:
    """Nothing to do is None, also for a configuration without webhooks."""
    assert bundle_patch(configuration(a=TEXT, b=TEXT), BUNDLE) is None
    assert bundle_patch(configuration(), BUNDLE) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"metadata":{"resourceVersion":"7"},"webhooks":[{}]}',
        b'{"metadata":{"resourceVersion":"7"},"webhooks":[{"name":"a","clientConfig":null}]}',
        b'{"metadata":{"resourceVersion":"7"},"webhooks":7}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_configuration_is_refused(body: bytes) -> None:
    """Malformed answers are an error of their own."""
    with pytest.raises(ConfigurationMalformed):
        bundle_patch(body, BUNDLE)


def test_a_certificate_is_carried_when_every_webhook_trusts_it() -> None:
    """Alone or beside others; a bundle that is missing or garbage trusts nobody."""
    both = base64.b64encode(b"other\n" + BUNDLE).decode()
    assert carries(configuration(a=TEXT, b=both), BUNDLE)
    assert carries(configuration(), BUNDLE)
    for lacking in (None, "", "%", "b2xk"):
        assert not carries(configuration(a=TEXT, b=lacking), BUNDLE)
    with pytest.raises(ConfigurationMalformed):
        carries(b"[]", BUNDLE)


class Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class Cluster:
    """Serves configurations one after the other and refuses the first PATCHes with the given statuses."""

    def __init__(self, *bodies: bytes, refusals: tuple[int, ...] = ()) -> None:
        self.bodies = list(bodies)
        self.refusals = list(refusals)
        self.patches: list[Any] = []
        self.gets = 0

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        assert path == "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/topogate"
        if method == "GET":
            self.gets += 1
            return self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        assert (method, content_type) == ("PATCH", "application/strategic-merge-patch+json")
        if self.refusals:
            raise Refused(self.refusals.pop(0))
        self.patches.append(body)
        return b"{}"


def test_inject_patches_once_and_then_has_nothing_to_do() -> None:
    """The answer says whether something was written."""
    cluster = Cluster(configuration(a=None), configuration(a=TEXT))
    assert inject(cluster, resource="mutatingwebhookconfigurations", name="topogate", bundle=BUNDLE) is True
    assert inject(cluster, resource="mutatingwebhookconfigurations", name="topogate", bundle=BUNDLE) is False
    assert len(cluster.patches) == 1


def test_inject_reads_again_after_a_conflict() -> None:
    """A webhook that went away meanwhile is not patched into being."""
    cluster = Cluster(configuration(a=None, gone=None), configuration(a=None), refusals=(409,))
    assert inject(cluster, resource="mutatingwebhookconfigurations", name="topogate", bundle=BUNDLE) is True
    assert [webhook["name"] for webhook in cluster.patches[0]["webhooks"]] == ["a"]


@pytest.mark.parametrize("refusals", [(403,), (409, 409, 409)], ids=["forbidden", "endless conflict"])
def test_inject_gives_up_on_other_errors_and_endless_conflicts(refusals: tuple[int, ...]) -> None:
    """The caller hears what the API said."""
    cluster = Cluster(configuration(a=None), refusals=refusals)
    with pytest.raises(Refused):
        inject(cluster, resource="mutatingwebhookconfigurations", name="topogate", bundle=BUNDLE)
    assert cluster.patches == []


def test_inject_asks_nobody_for_what_a_watch_has_shown() -> None:
    """No GET where nothing is to be done; after a conflict it reads, as the watch was behind."""
    cluster = Cluster(configuration(a=None), refusals=(409,))
    shown = {"resource": "mutatingwebhookconfigurations", "name": "topogate", "bundle": BUNDLE}
    assert inject(cluster, **shown, known=configuration(a=TEXT)) is False  # type: ignore[arg-type]
    assert cluster.gets == 0
    assert inject(cluster, **shown, known=configuration(a=None)) is True  # type: ignore[arg-type]
    assert (cluster.gets, len(cluster.patches)) == (1, 1)


def test_inject_asks_the_fence_before_each_write() -> None:
    """Who does not lead writes nothing."""

    def fence() -> None:
        raise RuntimeError("not the leader")

    cluster = Cluster(configuration(a=None))
    with pytest.raises(RuntimeError):
        inject(cluster, resource="mutatingwebhookconfigurations", name="topogate", bundle=BUNDLE, fence=fence)
    assert cluster.patches == []


def test_bundles_are_the_same_by_what_they_certify() -> None:
    """In any order and spelling, and without what has ended; what holds no certificates is like nothing."""
    first, second = (new_authority(now=0, name=name).bundle for name in ("a", "b"))
    short = new_authority(now=-3_650 * 86_400 + 60, name="c").bundle
    assert same_certificates(first + second, b"# two\r\n" + second + first.rstrip(), now=0)
    assert not same_certificates(first, first + second, now=0)
    assert not same_certificates(first, first + short, now=59)
    assert same_certificates(first, first + short, now=60)
    for nothing in (b"", b"none", first[:100]):
        assert not same_certificates(first, nothing, now=0)
        assert not same_certificates(nothing, nothing, now=0)
