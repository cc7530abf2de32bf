"""Decodes an AdmissionReview and encodes the response; errors and warnings become an answer by the policy's mode.

Free of HTTP. Wire contract: admission.k8s.io/v1 AdmissionReview. The API server refuses an answer whose uid, apiVersion
or kind differs, `patch` without `patchType` (or the other way round), and either of them in a validating answer.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from engine.api.field import FieldError, natural_order, render
from engine.api.reasons import REASONS, Code
from engine.api.text import MAX_WARNING, quote, truncate_bytes
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from webhook.admission.budget import Budget

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})

# Small values are the expensive ones to decode and keep: 2.3 million empty objects fit into a body, and take 200 MB.
# An object of etcd's maximum size, twice in an UPDATE, has 250,000 at most.
MAX_JSON_VALUES: Final = 400_000
_BETWEEN: Final = (b",", b"[", b"{")
# Up to the end of the body where the closing quote is missing, so that nothing is looked at twice.
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

MAX_UID: Final = 128  # the API server sends a UUID (36); anything long would only be echoed back
MAX_WARNINGS: Final = 5
MAX_CAUSES: Final = 32  # a terminal screen of errors
MAX_MESSAGE: Final = 2_000  # bytes of status.message: the API server logs it whole

# Kubernetes' own words (field.ErrorType) and the cause types that go with them (metav1.CauseType).
CAUSE_REASONS: Final[Mapping[str, str]] = {
    "Unsupported value": "FieldValueNotSupported",
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}


class BadReview(Exception):
    """The body is not an AdmissionReview that we can answer; `status` is the HTTP status, `message` is safe to show."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Unavailable(Exception):
    """A handler cannot answer now (cache not synced, overload): HTTP 503, failurePolicy decides, never a denial."""


@dataclass(frozen=True, slots=True)
class Review:
    """One admission request.

    `operation` is CREATE, UPDATE, DELETE or CONNECT. `object` and `old_object` are undecoded bytes (None when the API
    server sent null); the code that needs them decodes them, once. `name` is empty at CREATE with generateName.
    `budget` is the processor time that its answer may use.
    """

    uid: str
    operation: str
    group: str
    version: str
    kind: str
    resource: str
    subresource: str
    namespace: str
    name: str
    username: str
    groups: tuple[str, ...]
    dry_run: bool
    object: msgspec.Raw | None
    old_object: msgspec.Raw | None
    budget: Budget = field(default_factory=Budget, compare=False)


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of status.details.causes; kubectl prints `field: message`."""

    reason: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a review.

    `patch` holds JSON Patch operations, `document` the patched object (None where nothing is patched). `code`,
    `reason`, `message` and the other fields matter only if `allowed` is False. `errors` are the source of `causes`, for
    callers that want our own codes. `blamed` are the errors, also of an admitted object, that an entry of the policy's
    kinds may have caused. `aside` is why a new object with a request is left alone.
    """

    allowed: bool
    patch: tuple[Mapping[str, Any], ...] = ()
    document: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    warnings: tuple[str, ...] = ()
    code: int = 200
    reason: str = ""
    message: str = ""
    group: str = ""
    kind: str = ""
    name: str = ""
    causes: tuple[Cause, ...] = ()
    errors: tuple[FieldError, ...] = ()
    blamed: tuple[FieldError, ...] = ()
    aside: Code | None = None

    @property
    def outcome(self) -> str:
        """Return the outcome for metrics: allowed, patched, invalid or forbidden."""
        if self.allowed:
            return "patched" if self.patch else "allowed"
        return "invalid" if self.code == 422 else "forbidden"  # noqa: PLR2004 - HTTP's number


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    kind: _Kind = _Kind()
    resource: _Resource = _Resource()
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    user_info: _User = _User()
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_NAMED: Final = msgspec.json.Decoder(_Named)
_ENCODER: Final = msgspec.json.Encoder()


def _has_too_many_values(body: bytes) -> bool:
    """Return True for more than MAX_JSON_VALUES, counted by what is between them, outside of texts.

    The usual body is looked through once; texts are taken out where there are few enough for that to be quick.
    """
    if sum(map(body.count, _BETWEEN)) <= MAX_JSON_VALUES:
        return False
    if body.count(b'"') - body.count(b'\\"') > MAX_JSON_VALUES:
        return True
    left = _TEXT.sub(b"", body)
    return sum(map(left.count, _BETWEEN)) > MAX_JSON_VALUES


def decode_review(body: bytes, budget: Budget | None = None) -> Review:
    """Return the review in `body`, decoding the envelope once and the objects not at all.

    Raises BadReview(400) for anything that is not an admission.k8s.io/v1 AdmissionReview with a request: no JSON, wrong
    types, missing uid, nesting or numbers that no object has; BadReview(413) for too many values. The message never
    quotes the body. Without a `budget` the answer may take any time.
    """
    if _has_too_many_values(body):
        raise BadReview(413, f"the body may have {MAX_JSON_VALUES:,} values")
    try:
        envelope = _ENVELOPE.decode(body)
    except msgspec.ValidationError as error:
        raise BadReview(400, f"not an AdmissionReview: {error}") from None
    except RecursionError:
        raise BadReview(400, "not an AdmissionReview: nested too deeply") from None
    except UnicodeDecodeError:
        raise BadReview(400, "the body is not UTF-8") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadReview(400, f"the body is not JSON: {error}") from None
    except MemoryError:
        raise BadReview(413, "the body is too large to decode") from None
    if envelope.api_version != API_VERSION or envelope.kind != KIND:
        raise BadReview(400, f"expected apiVersion {API_VERSION}, kind {KIND}")
    request = envelope.request
    if request is None:
        raise BadReview(400, "the AdmissionReview has no request")
    if not 0 < len(request.uid) <= MAX_UID:
        raise BadReview(400, f"request.uid must have 1 to {MAX_UID} characters, got {len(request.uid)}")
    if request.operation not in OPERATIONS:
        raise BadReview(400, "request.operation must be CREATE, UPDATE, DELETE or CONNECT")
    return Review(
        uid=request.uid,
        operation=request.operation,
        group=request.kind.group,
        version=request.kind.version,
        kind=request.kind.kind,
        resource=request.resource.resource,
        subresource=request.sub_resource,
        namespace=request.namespace,
        name=request.name,
        username=request.user_info.username,
        groups=request.user_info.groups or (),
        dry_run=bool(request.dry_run),
        object=_present(request.object),
        old_object=_present(request.old_object),
        budget=budget or Budget(),
    )


def allowed(warnings: Sequence[str] = ()) -> Response:
    """Admit the object unchanged."""
    return Response(allowed=True, warnings=_cleaned(warnings))


def patched(
    operations: Sequence[Mapping[str, Any]],
    warnings: Sequence[str] = (),
    *,
    document: Mapping[str, Any] | None = None,
) -> Response:
    """Admit the object with JSON Patch (RFC 6902) `operations`, which make it `document`; without any as `allowed`."""
    return Response(allowed=True, patch=tuple(operations), document=document, warnings=_cleaned(warnings))


def denied(errors: Sequence[FieldError], review: Review, warnings: Sequence[str] = ()) -> Response:
    """Refuse the user's object: 422 Invalid with one cause per error, ordered by path.

    kubectl prints `The Job "t2" is invalid:` and one `* field: message` line per cause; other clients show
    status.message, which therefore has the same content. `errors` must not be empty.
    """
    if not errors:
        raise ValueError("a denial needs at least one error")
    ordered = sorted(errors, key=lambda error: natural_order(error.field))
    causes = [
        Cause(CAUSE_REASONS.get(error.kind, "FieldValueInvalid"), error.field, render(error))
        for error in ordered[:MAX_CAUSES]
    ]
    name = review.name or _object_name(review)
    subject = f"{review.kind}.{review.group}" if review.group else review.kind
    return Response(
        allowed=False,
        code=422,
        reason="Invalid",
        message=f"{subject} {quote(name)} is invalid: {_joined(causes, len(ordered))}",
        group=review.group,
        kind=review.kind,
        name=name,
        causes=tuple(causes),
        errors=tuple(ordered),
        warnings=_cleaned(warnings),
    )


def forbidden(
    message: str, reason: str, warnings: Sequence[str] = (), *, errors: Sequence[FieldError] = ()
) -> Response:
    """Refuse by policy: 403 Forbidden; `reason` is our stable code in details.causes."""
    return Response(
        allowed=False,
        code=403,
        reason="Forbidden",
        message=truncate_bytes(message, MAX_MESSAGE),
        causes=(Cause(reason, "", truncate_bytes(message, MAX_MESSAGE)),),
        errors=tuple(errors),
        warnings=_cleaned(warnings),
    )


def merged(changes: Response, checks: Response) -> Response:
    """Return the answer of both parts of one review: the refusal of `checks`, or the patch of `changes`.

    The warnings of both are in it, within the limits of one answer.
    """
    warnings = _cleaned((*changes.warnings, *checks.warnings))
    if not checks.allowed:
        return replace(checks, warnings=warnings)
    return replace(changes, warnings=warnings, blamed=checks.blamed, aside=checks.aside)


def encode(response: Response, uid: str) -> bytes:
    """Return the AdmissionReview that answers the request `uid`."""
    answer: dict[str, Any] = {"uid": uid, "allowed": response.allowed}
    if response.warnings:
        answer["warnings"] = response.warnings
    if not response.allowed:
        answer["status"] = _status(response)
    elif response.patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(_ENCODER.encode(response.patch)).decode("ascii")
    return _ENCODER.encode({"apiVersion": API_VERSION, "kind": KIND, "response": answer})


def _status(response: Response) -> dict[str, Any]:
    details: dict[str, Any] = {
        key: value
        for key, value in (("name", response.name), ("group", response.group), ("kind", response.kind))
        if value
    }
    if response.causes:
        details["causes"] = [
            {key: value for key, value in (("reason", c.reason), ("message", c.message), ("field", c.field)) if value}
            for c in response.causes
        ]
    status: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": response.code,
        "reason": response.reason,
        "message": response.message,
    }
    if details:
        status["details"] = details
    return status


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(memoryview(raw)[:4]) == b"null" else raw


def _object_name(review: Review) -> str:
    """Return the name in the object: the review's own is empty if the API server is to generate it."""
    if review.object is None:
        return ""
    try:
        metadata = _NAMED.decode(review.object).metadata
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return metadata.name or metadata.generate_name


def _joined(causes: Sequence[Cause], total: int) -> str:
    """Return the causes on one line, as many as fit into MAX_MESSAGE, and the number of the others."""
    shown: list[str] = []
    left = MAX_MESSAGE
    for cause in causes:
        text = truncate_bytes(f"{cause.field}: {cause.message}", MAX_MESSAGE)
        left -= len(text) + 2
        if left < 0 and shown:
            break
        shown.append(text)
    if len(shown) < total:
        shown.append(f"and {total - len(shown)} more")
    return shown[0] if total == 1 else f"[{', '.join(shown)}]"


def _cleaned(warnings: Sequence[str]) -> tuple[str, ...]:
    """Return at most MAX_WARNINGS distinct warnings of at most MAX_WARNING bytes, without control characters."""
    unique = dict.fromkeys(
        truncate_bytes(re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip(), MAX_WARNING) for text in warnings
    )
    return tuple(text for text in unique if text)[:MAX_WARNINGS]


_ENDS: Final = re.compile(r"(?<=[;:]) ")
_PREFIX: Final = "topogate: "
_OBSERVES: Final = "topogate (observe): "
_MODE: Final = f"{_OBSERVES}nothing is held or refused; with mode enforce:"


def answer(review: Review, errors: Sequence[FieldError], warnings: Sequence[str], *, policy: Policy) -> Response:
    """Refuse for the errors; in mode observe warn of the refusal instead."""
    blamed = tuple(error for error in errors if error.entry)
    found = _answer(review, errors, warnings, policy=policy)
    return replace(found, blamed=blamed) if blamed else found


def _answer(review: Review, errors: Sequence[FieldError], warnings: Sequence[str], *, policy: Policy) -> Response:
    if not mode_of(review.namespace, policy).manages:
        findings = [*(f"would be refused: {error.field}: {render(error)}" for error in errors), *warnings]
        return allowed([*([_MODE] if findings else ()), *(line for text in findings for line in _observed(text))])
    if not errors:
        return allowed(warnings)
    if all(REASONS[error.reason].by_policy for error in errors):
        text = "; ".join(f"{error.field}: {render(error)}" for error in errors)
        return forbidden(text, errors[0].reason, warnings, errors=errors)
    return denied(errors, review, warnings)


def _observed(text: str) -> list[str]:
    """Return a text as warnings that name the mode, split at clauses so that nothing useful is cut off."""
    lines: list[str] = []
    for clause in _ENDS.split(text.removeprefix(_PREFIX)):
        if lines and len(longer := f"{lines[-1]} {clause}") <= MAX_WARNING:
            lines[-1] = longer
        else:
            lines.append(f"{_OBSERVES}{clause}")
    return [line.rstrip(";:") for line in lines]
