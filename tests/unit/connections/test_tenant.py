"""The tenant of a review, by its first bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.connections.tenant import tenant_of

KIND = {"group": "batch", "version": "v1", "kind": "Job"}


def request(**fields: Any) -> bytes:
    """As the API server writes it: without spaces, the fields in this order."""
    body = {"kind": "AdmissionReview", "request": {"uid": "u", "kind": KIND, "requestKind": KIND, **fields}}
    return b"POST /mutate?timeout=3s HTTP/1.1\r\nHost: t\r\n\r\n" + json.dumps(body, separators=(",", ":")).encode()


ALICE = {"username": "alice", "groups": ["g"]}
OBJECT = {"metadata": {"namespace": "forged"}}


@pytest.mark.parametrize(
    ("fields", "tenant"),
    [
        ({"name": "a", "namespace": "ml", "userInfo": ALICE, "object": OBJECT}, "ml"),
        ({"name": '"namespace":"forged"', "namespace": "ml", "userInfo": ALICE}, "ml"),
        ({"name": "a", "userInfo": ALICE}, "user alice"),
        ({"name": "a", "userInfo": ALICE, "object": OBJECT}, "user alice"),
        ({"name": "a", "userInfo": {"username": "CORP\\alice"}}, r"user CORP\\alice"),
        ({"name": "a", "userInfo": {"username": '"username":"forged"'}}, r"user \"username\":\"forged\""),
        ({"name": "a", "userInfo": {"username": "x" * 257}, "object": OBJECT}, ""),
        ({"name": "a", "namespace": "x" * 64, "userInfo": ALICE}, ""),
        ({"name": "a", "namespace": 7}, ""),
        ({"name": "x" * 13_000, "namespace": "far"}, ""),
    ],
)
def test_it_is_the_namespace_or_the_user(fields: dict[str, Any], tenant: str) -> None:
    """No value of a field can pass for another field."""
    assert tenant_of(request(**fields)) == tenant
    assert tenant_of(bytearray(request(**fields))) == tenant


def test_what_is_no_review_is_nobodys() -> None:
    for data in (b"", b"\x00\xff" * 9000, b'"namespace":"', b'"username":"', b'"username":"\\'):
        assert tenant_of(data) == ""
