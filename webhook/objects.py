"""The objects of a review: decoded or projected, or an error that says where they cannot be read.

Two sorts of faults: what no API server sends (no JSON, wrong types) is a bad review, 400; a value out of bounds, such
as a negative count, is its user's fault and becomes a field error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from engine.cluster import projections
from engine.cluster.projections import ProjectionError
from engine.outcomes import FieldError
from engine.records import Pod, Workload
from webhook.review import BadReview, Review

Record = TypeVar("Record")

WORKLOADS: Final[dict[tuple[str, str], Callable[[Any], Workload]]] = {("batch", "Job"): projections.job}
"""The kinds that can be placed, by API group and kind, with the projection of each."""

_BOUND: Final = re.compile(r"Expected `int` (>=|<=) (-?\d+)")
_WRONG_TYPE: Final = ", got `"  # msgspec: Expected `int`, got `str`


class Unreadable(Exception):
    """A value of the object is out of all bounds; `error` says which."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(f"{error.field}: {error.message}")
        self.error = error


def decoded(raw: msgspec.Raw | None) -> dict[str, Any]:
    """The object as builtins. Raises BadReview(400) when there is none or it is no JSON object."""
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


def projected(raw: msgspec.Raw | None, projection: Callable[[Any], Record]) -> Record:
    """The record of an object. Raises BadReview(400) for wrong types, Unreadable for values out of bounds."""
    if raw is None:
        raise BadReview(400, "the review has no object")
    try:
        return projection(raw)
    except ProjectionError as fault:
        path, _, text = str(fault).partition(": ")
        field = path.removeprefix("$").removeprefix(".")
        if not field or _WRONG_TYPE in text:
            raise BadReview(400, f"malformed object: {fault}") from None
        raise Unreadable(
            FieldError(field=field, kind="Invalid value", value=None, reason="InvalidValue", message=_in_words(text))
        ) from None
    except RecursionError:
        raise BadReview(400, "the object is nested too deeply") from None


def workload_of(review: Review, raw: msgspec.Raw | None) -> Workload:
    """The workload in a review of a registered kind, in the namespace that the API server names."""
    workload = projected(raw, WORKLOADS[review.group, review.kind])
    return replace(workload, namespace=review.namespace or workload.namespace)


def pod_of(review: Review) -> Pod:
    """The pod in a review, in the namespace that the API server names."""
    pod = projected(review.object, projections.pod)
    return replace(pod, namespace=review.namespace or pod.namespace)


def _in_words(text: str) -> str:
    """A bound as msgspec tells it (Expected `int` >= 0), in words; other texts are ours already."""
    bound = _BOUND.fullmatch(text)
    if bound is None:
        return text.replace("`", "")
    return f"must be {int(bound[2]):,} or {'more' if bound[1] == '>=' else 'less'}"
