"""The object of a review, read once: as a record, and as what its patch is made for."""

from __future__ import annotations

import json
from unittest.mock import patch

import msgspec
import pytest

from engine.api import names
from engine.decoding import pods, wire
from engine.policy.model import parse_policy
from tests.support.admission import FakeView, gang_view, live, rack_job, raw_job, raw_pod, review
from webhook.admission import objects
from webhook.admission.objects import Unreadable, decoded, projected, record_and_document
from webhook.admission.review import BadReview, Review
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

JOB = live(rack_job())
HOSTS = ("b0-r0-h0", "b0-r0-h1", "b0-r0-h2", "b0-r0-h3")
# Values as Go may write them, and as nobody should.
SPECS = (
    '"priority":1.0',
    '"priority":1e0',
    '"priority":1.5',
    '"priority":99999999999999999999',
    '"priority":"1"',
    '"priority":true',
    '"priority":null',
    '"containers":{}',
    '"containers":[{"resources":{"requests":{"cpu":1.0}}}]',
    '"containers":[{"resources":{"requests":{"cpu":1e3}}}]',
    '"containers":[{"resources":{"requests":{"cpu":12345678901234567890123}}}]',
    '"containers":[{"resources":{"requests":{"cpu":1e400}}}]',
    '"containers":[{"resources":{"requests":{"cpu":true}}}]',
    '"containers":[{"resources":{"requests":{"cpu":"-1"}}}]',
    '"containers":[{"resources":{"requests":{"cpu":1,"cpu":2}}}]',
    '"containers":[{"ports":[{"hostPort":80.0}]}]',
    '"containers":[{"ports":[{"hostPort":-1}]}]',
    '"nodeSelector":{"a":1}',
    '"nodeSelector":{"a":null}',
    '"nodeSelector":{"a":"\\ud800"}',
)
TEXTS = (
    *(f'{{"metadata":{{"name":"a"}},"spec":{{{spec}}}}}' for spec in SPECS),
    '{"metadata":{"creationTimestamp":"2026-01-01T00:00:00.5+01:00"}}',
    '{"metadata":{"creationTimestamp":"soon"}}',
    '{"metadata":{"creationTimestamp":1}}',
    "[]",
    "1",
    "{",
    "",
)


def read(raw: msgspec.Raw) -> object:
    """The record of the bytes, or what is said of them."""
    try:
        return projected(raw, pods.pod)
    except (BadReview, Unreadable) as fault:
        return str(fault)


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_decoded_reads_as_the_bytes_do(text: str) -> None:
    """The same record, or the same words."""
    raw = msgspec.Raw(text.encode())
    try:
        found: object = record_and_document(raw, pods.pod)[0]
    except (BadReview, Unreadable) as fault:
        found = str(fault)
    assert found == read(raw)


def test_an_object_that_is_no_json_below_what_we_read_is_refused() -> None:
    """A number that nobody can hold."""
    with pytest.raises(BadReview, match="not JSON"):
        record_and_document(msgspec.Raw(b'{"spec":{"x":1e999}}'), pods.pod)


ASKED_FOR = {"namespaces": {"defaults": [{"namespaces": ["*"], "annotations": {names.PREFER: "rack"}}]}}
REVIEWS = (
    (review(raw_pod(JOB, index=2), name=""), gang_view(JOB, HOSTS)),
    (review(rack_job()), FakeView()),
    (review(raw_job()), FakeView()),
    (review(raw_job()), FakeView(policy=parse_policy(json.dumps(ASKED_FOR)))),
)


@pytest.mark.parametrize(
    ("one", "view"), REVIEWS, ids=("pod", "job", "job that asks for nothing", "job of a namespace that asks")
)
def test_the_bytes_of_an_object_are_decoded_once(one: Review, view: FakeView) -> None:
    """By `/mutate` and by `/validate`; never into a record as well."""
    no_bytes = patch.object(wire, "_DECODERS", {})
    for answered in (lambda: mutate(one, view, 0.0), lambda: validate(one, view, 0.0)):
        with no_bytes, patch.object(objects, decoded.__name__, wraps=decoded) as once:
            answered()
        assert once.call_count == 1


def test_both_objects_of_an_update_are_decoded_once() -> None:
    """The one before and the one that is to be."""
    job = rack_job()
    one = review(job, old=json.loads(json.dumps(job)), operation="UPDATE")
    for answered in (lambda: mutate(one, FakeView(), 0.0), lambda: validate(one, FakeView(), 0.0)):
        with patch.object(wire, "_DECODERS", {}), patch.object(objects, decoded.__name__, wraps=decoded) as once:
            answered()
        assert once.call_count == 2
