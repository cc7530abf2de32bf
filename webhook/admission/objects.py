"""Decodes the objects of a review, or reports the fields that cannot be decoded.

There are two sorts of faults: an object that no API server sends (no JSON, wrong types) is a bad review, 400; a value
out of bounds, such as a negative count, is the user's fault and becomes a field error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from engine.api.field import FieldError
from engine.api.pod import Pod
from engine.api.workload import Workload
from engine.decoding import pods
from engine.decoding.wire import ProjectionError, Source, located
from engine.decoding.workloads import workload
from engine.kinds.read import UnreadableWorkload
from engine.kinds.schema import KindEntry
from engine.policy.model import Policy
from webhook.admission.reader import Reader
from webhook.admission.review import BadReview, Review

Record = TypeVar("Record")

POD: Final = ("", "Pod")
_TYPED: Final = frozenset({"", "apps", "batch"})  # groups of objects with types that the API server checks
_BOUND: Final = re.compile(r"Expected `int` (>=|<=) (-?\d+)")
_WRONG_TYPE: Final = ", got `"  # msgspec: Expected `int`, got `str`


class Unreadable(Exception):
    """Values of the object are out of bounds or unknown to its kind; `errors` has the details."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in self.errors))


def decoded(raw: msgspec.Raw | None) -> dict[str, Any]:
    """Return the object as builtins. Raises BadReview(400) if there is none or it is no JSON object."""
    if raw is None:
        raise BadReview(400, "the review has no object")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadReview(400, "the object is not JSON") from None
    except RecursionError:
        raise BadReview(400, "the object is nested too deeply") from None
    if not isinstance(value, dict):
        raise BadReview(400, "the object is not a JSON object")
    return value


def projected(source: Source | None, projection: Callable[[Any], Record], *, typed: bool = True) -> Record:
    """Return the record of an object from its bytes, or from its decoded builtins.

    Raises BadReview(400) for wrong types, Unreadable for values out of bounds. With `typed` False the API server does
    not check the object's types, so a wrong type is the user's fault too.
    """
    if source is None:
        raise BadReview(400, "the review has no object")
    try:
        return projection(source)
    except ProjectionError as fault:
        path, _, text = str(fault).partition(": ")
        field = path.removeprefix("$").removeprefix(".")
        if not field or (typed and _WRONG_TYPE in text):
            raise BadReview(400, f"malformed object: {fault}") from None
        raise Unreadable(
            (invalid_value(*located(fault)) if not typed else invalid_value(field, _bound_in_words(text)),)
        ) from None
    except UnreadableWorkload as fault:
        raise Unreadable(fault.errors) from None
    except RecursionError:
        raise BadReview(400, "the object is nested too deeply") from None


def record_and_document(
    raw: msgspec.Raw | None, projection: Callable[[Any], Record], *, typed: bool = True
) -> tuple[Record, dict[str, Any]]:
    """Return the record of an object and the object as builtins, from one decoding.

    Raises as `projected` and `decoded` do.
    """
    try:
        document = decoded(raw)
    except BadReview:
        projected(raw, projection, typed=typed)  # its exception names the path
        raise
    return projected(document, projection, typed=typed), document


def entry_of(review: Review, view: Reader) -> KindEntry | None:
    """Return the entry of the workload kind of a review; None for pods and unregistered kinds."""
    entry = view.registry.find(review.group, review.kind, review.version)
    return entry if entry is not None and entry.handling != "pods" else None


def workload_of(review: Review, raw: msgspec.Raw | None, view: Reader) -> tuple[Workload, dict[str, Any]]:
    """Return the workload in a review of a registered kind, and the object as builtins.

    The namespace is the one that the API server names. Raises BudgetExceeded, as decoding grows with the object;
    `pod_of` does too.
    """
    entry, registry = entry_of(review, view), view.registry
    assert entry is not None
    found, document = record_and_document(
        raw, lambda source: workload(source, entry=entry, registry=registry), typed=review.group in _TYPED
    )
    review.budget.check()
    return replace(found, namespace=review.namespace or found.namespace), document


def pod_of(review: Review, policy: Policy) -> tuple[Pod, dict[str, Any]]:
    """Return the pod in a review, with the labels that a policy uses, and the object as builtins.

    The namespace is the one that the API server names.
    """
    pod, document = record_and_document(review.object, partial(pods.pod, labels=policy.pod_labels))
    review.budget.check()
    return replace(pod, namespace=review.namespace or pod.namespace), document


def decoded_pod(document: Source, policy: Policy) -> Pod:
    """Return a pod from its builtins, with the labels that a policy uses."""
    return projected(document, partial(pods.pod, labels=policy.pod_labels))


def invalid_value(field: str, message: str) -> FieldError:
    """Return the error of an invalid field; the message includes the given value."""
    return FieldError(field=field, kind="Invalid value", value=None, reason="InvalidValue", message=message)


def _bound_in_words(text: str) -> str:
    """Return a bound of msgspec (Expected `int` >= 0) in words; other texts are our own."""
    bound = _BOUND.fullmatch(text)
    if bound is None:
        return text.replace("`", "")
    return f"must be {int(bound[2]):,} or {'more' if bound[1] == '>=' else 'less'}"
