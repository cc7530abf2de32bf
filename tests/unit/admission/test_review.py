"""The vocabulary of answers: AdmissionReview bytes in, AdmissionReview bytes out."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.field import FieldError, render
from engine.api.text import MAX_WARNING
from webhook.admission.review import (
    MAX_CAUSES,
    MAX_JSON_VALUES,
    MAX_MESSAGE,
    MAX_WARNINGS,
    BadReview,
    Review,
    allowed,
    decode_review,
    denied,
    encode,
    forbidden,
    patched,
)


def envelope(**changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "name": "t2",
        "namespace": "ml",
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["ml", "system:authenticated"], "extra": {"a": ["b"]}},
        "object": {"metadata": {"name": "t2"}, "spec": {"parallelism": 2}},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
    }
    request.update(changes)
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def review(**changes: Any) -> Review:
    return decode_review(json.dumps(envelope(**changes)).encode())


def error(
    field: str = "spec.a", kind: str = "Invalid value", value: str | None = "x", message: str = "no"
) -> FieldError:
    return FieldError(field=field, kind=kind, value=value, reason="InvalidValue", message=message)


def answer(body: bytes) -> dict[str, Any]:
    document = json.loads(body)
    assert document["apiVersion"] == "admission.k8s.io/v1"
    assert document["kind"] == "AdmissionReview"
    response: dict[str, Any] = document["response"]
    return response


def test_decode_keeps_the_envelope_and_leaves_the_object_as_bytes() -> None:
    """A review carries the request's attributes; the object stays undecoded and null objects are None."""
    seen = review()
    assert (seen.uid, seen.operation) == ("705ab4f5-6393-11e8-b7cc-42010a800002", "CREATE")
    assert (seen.group, seen.version, seen.kind, seen.resource, seen.subresource) == ("batch", "v1", "Job", "jobs", "")
    assert (seen.namespace, seen.name, seen.username) == ("ml", "t2", "alice")
    assert seen.groups == ("ml", "system:authenticated")
    assert seen.dry_run is False
    assert isinstance(seen.object, msgspec.Raw)
    assert msgspec.json.decode(seen.object) == {"metadata": {"name": "t2"}, "spec": {"parallelism": 2}}
    assert seen.old_object is None


def test_decode_of_a_delete_has_only_the_old_object() -> None:
    """DELETE carries object null and oldObject."""
    seen = review(operation="DELETE", object=None, oldObject={"metadata": {"name": "t2"}}, dryRun=True)
    assert seen.object is None
    assert seen.old_object is not None
    assert seen.dry_run is True


def test_decode_of_absent_optional_fields_gives_empty_values() -> None:
    """Go leaves empty strings, dryRun and groups out."""
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}'
    seen = decode_review(body)
    assert (seen.namespace, seen.name, seen.username, seen.groups, seen.dry_run) == ("", "", "", (), False)
    assert seen.object is None


DEEP = 100_000


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="no JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', id="no request"),
        pytest.param(json.dumps(envelope(uid="")).encode(), id="empty uid"),
        pytest.param(json.dumps(envelope(uid="u" * 129)).encode(), id="long uid"),
        pytest.param(json.dumps(envelope(uid=7)).encode(), id="uid of another type"),
        pytest.param(json.dumps(envelope(uid=None)).encode(), id="null uid"),
        pytest.param(json.dumps(envelope(operation="create")).encode(), id="unknown operation"),
        pytest.param(json.dumps(envelope(userInfo=[])).encode(), id="userInfo of another type"),
        pytest.param(json.dumps(envelope(userInfo={"groups": [1]})).encode(), id="group of another type"),
        pytest.param(json.dumps(envelope(kind="Job")).encode(), id="kind of another type"),
        pytest.param(json.dumps(envelope(dryRun="yes")).encode(), id="dryRun of another type"),
        pytest.param(json.dumps(envelope() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(), id="v1beta1"),
        pytest.param(json.dumps(envelope() | {"kind": "Status"}).encode(), id="another kind"),
        pytest.param(json.dumps(envelope()).encode() + b"x", id="trailing bytes"),
        pytest.param(json.dumps(envelope()).encode()[:-1], id="truncated"),
        pytest.param(json.dumps(envelope()).encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"apiVersion":"\xff"}', id="not UTF-8"),
        pytest.param(b'{"request":{"uid":"\\ud800","operation":"CREATE"}}', id="lone surrogate"),
        pytest.param(b'{"request":{"object":' + b"[" * DEEP + b"]" * DEEP + b"}}", id="nesting bomb in the object"),
        pytest.param(b'{"other":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}", id="nesting bomb elsewhere"),
        pytest.param(b"[" * DEEP, id="unclosed nesting bomb"),
        pytest.param(b'{"request":{"uid":' + b"9" * 1_000_000 + b"}}", id="number bomb"),
    ],
)
def test_decode_refuses_what_is_no_review(body: bytes) -> None:
    """Malformed, wrong-typed, absent and hostile bodies are BadReview 400 with a short message."""
    with pytest.raises(BadReview) as caught:
        decode_review(body)
    assert caught.value.status == 400
    assert 0 < len(caught.value.message) < 200


def test_decode_refuses_more_values_than_any_object_has() -> None:
    """What is small to send and large to keep is BadReview 413; as much as is allowed is read."""
    for extra, status in ((0, None), (100, 413)):
        text = json.dumps(envelope(object="HERE")).encode()
        values = MAX_JSON_VALUES - sum(text.count(one) for one in (b",", b"[", b"{")) - 1 + extra
        body = text.replace(b'"HERE"', b"[" + b"{}," * (values // 2) + b"1]")
        try:
            assert decode_review(body).uid and status is None
        except BadReview as bad:
            assert bad.status == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("1," * MAX_JSON_VALUES, None),
        ('\\"a\\",' * MAX_JSON_VALUES, None),
        ("\\\\\\n[{" * MAX_JSON_VALUES, None),
        ('","' * (MAX_JSON_VALUES + 100), 413),
    ],
    ids=["numbers", "quotes", "backslashes", "values"],
)
def test_decode_counts_no_values_inside_of_texts(text: str, status: int | None) -> None:
    """An argument may be a long list, and what was applied last is kept as a text."""
    body = json.dumps(envelope(object="HERE")).encode().replace(b'"HERE"', f'["{text}"]'.encode())
    try:
        assert decode_review(body).uid and status is None
    except BadReview as bad:
        assert bad.status == status


def test_decode_looks_once_at_a_text_without_an_end() -> None:
    """Two million quotes: looking from each of them to the end would take hours."""
    for body in (
        b'"' + b'\\"' * 1_000_000 + b",[" * MAX_JSON_VALUES,
        b'{"a":"' + b"\\" * 999_999 + b",[" * MAX_JSON_VALUES,
    ):
        with pytest.raises(BadReview):
            decode_review(body)


def test_decode_does_not_choke_on_a_huge_number_inside_the_object() -> None:
    """A number of a million digits inside the object is not parsed by the envelope."""
    body = json.dumps(envelope(object="HERE")).encode().replace(b'"HERE"', b'{"a":' + b"1" * 1_000_000 + b"}")
    assert decode_review(body).uid == "705ab4f5-6393-11e8-b7cc-42010a800002"


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda v: st.lists(v) | st.dictionaries(st.text(), v),
            max_leaves=20,
        ).map(lambda v: json.dumps(envelope(userInfo=v, object=v)).encode()),
    )
)
def test_decode_either_understands_or_says_bad_review(body: bytes) -> None:
    """Whatever the bytes, the only exception is BadReview."""
    try:
        seen = decode_review(body)
    except BadReview:
        return
    assert seen.uid


def test_allowed_is_the_smallest_answer() -> None:
    """An allowed review answers uid and allowed, nothing else."""
    assert answer(encode(allowed(), "u1")) == {"uid": "u1", "allowed": True}


def test_patched_carries_a_base64_json_patch() -> None:
    """Operations go out as a base64 JSON Patch together with its type."""
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "ü"}}]
    response = answer(encode(patched(operations), "u1"))
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == operations


def test_patched_without_operations_has_neither_patch_nor_type() -> None:
    """The API server refuses a patchType with an empty patch."""
    assert answer(encode(patched([]), "u1")) == {"uid": "u1", "allowed": True}


def test_denied_is_invalid_with_one_cause_per_error_in_path_order() -> None:
    """All errors come at once as 422 Invalid, ordered by path with list indexes as numbers, reasons by error kind."""
    errors = [
        error("spec.containers[10].image", "Forbidden", None, "do not"),
        error("spec.containers[2].image", "Required value", None, "say one"),
        error("metadata.annotations[a/b]", "Unsupported value", "rak", "allowed: rack"),
        error("spec.z", "Invalid value", "16", "too many"),
    ]
    status = answer(encode(denied(errors, review()), "u1"))["status"]
    assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")
    details = status["details"]
    assert (details["name"], details["group"], details["kind"]) == ("t2", "batch", "Job")
    assert details["causes"] == [
        {
            "reason": "FieldValueNotSupported",
            "field": "metadata.annotations[a/b]",
            "message": 'Unsupported value: "rak": allowed: rack',
        },
        {"reason": "FieldValueRequired", "field": "spec.containers[2].image", "message": "Required value: say one"},
        {"reason": "FieldValueForbidden", "field": "spec.containers[10].image", "message": "Forbidden: do not"},
        {"reason": "FieldValueInvalid", "field": "spec.z", "message": 'Invalid value: "16": too many'},
    ]
    assert status["message"] == (
        'Job.batch "t2" is invalid: [metadata.annotations[a/b]: Unsupported value: "rak": allowed: rack, '
        "spec.containers[2].image: Required value: say one, spec.containers[10].image: Forbidden: do not, "
        'spec.z: Invalid value: "16": too many]'
    )


def test_denied_names_an_object_whose_name_is_still_to_be_generated() -> None:
    """With generateName the request has no name: the object's own metadata gives one to show."""
    response = denied([error()], review(name="", object={"metadata": {"generateName": "train-"}}))
    assert response.name == "train-"
    assert response.message == 'Job.batch "train-" is invalid: spec.a: Invalid value: "x": no'


@pytest.mark.parametrize("broken", [None, 7, [], {"metadata": 7}, {"metadata": {"name": []}}])
def test_denied_survives_an_object_without_readable_metadata(broken: Any) -> None:
    """A denial of something malformed is still a denial."""
    assert denied([error()], review(name="", object=broken)).name == ""


def test_denied_bounds_causes_and_message() -> None:
    """A thousand errors give MAX_CAUSES causes and a message that says how many more there are."""
    response = denied([error(f"spec.a[{i}]", message="m" * 300) for i in range(1000)], review())
    assert len(response.causes) == MAX_CAUSES
    assert len(response.message) < MAX_MESSAGE + 200
    assert response.message.endswith("and 994 more]")


def test_denied_without_errors_is_a_programming_error() -> None:
    """A denial has to say why."""
    with pytest.raises(ValueError, match="at least one error"):
        denied([], review())


def test_render_quotes_cuts_and_escapes_user_input() -> None:
    """User input is shown in quotes, at most 63 characters, with control characters escaped."""
    assert render(error(value='a"b\n\x1b[31m')) == 'Invalid value: "a\\"b\\n\\x1b[31m": no'
    assert render(error(value="x" * 100)) == f'Invalid value: "{"x" * 60}...": no'


def test_forbidden_is_403_with_our_code_as_a_cause() -> None:
    """A refusal by policy is Forbidden; our reason code is in details.causes."""
    status = answer(encode(forbidden("namespace ml may not", "GangLimitExceeded"), "u1"))["status"]
    assert (status["code"], status["reason"], status["message"]) == (403, "Forbidden", "namespace ml may not")
    assert status["details"]["causes"] == [{"reason": "GangLimitExceeded", "message": "namespace ml may not"}]


def test_warnings_are_few_short_different_and_free_of_control_characters() -> None:
    """At most MAX_WARNINGS warnings of MAX_WARNING characters; a line break would break the HTTP header."""
    response = allowed(["a\r\nb", "a\r\nb", "", "x" * 500, *(f"w{i}" for i in range(9))])
    assert response.warnings[0] == "a b"
    assert response.warnings[1] == "x" * (MAX_WARNING - 3) + "..."
    assert len(response.warnings) == MAX_WARNINGS
    assert answer(encode(response, "u1"))["warnings"] == list(response.warnings)


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (allowed(), "allowed"),
        (patched([]), "allowed"),
        (patched([{"op": "remove", "path": "/a"}]), "patched"),
        (denied([error()], review()), "invalid"),
        (forbidden("no", "X"), "forbidden"),
    ],
)
def test_outcome_is_one_word_for_metrics(response: Any, outcome: str) -> None:
    """Every answer has one of four outcomes."""
    assert response.outcome == outcome
