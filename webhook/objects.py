"""The objects of a review: decoded or projected, or a 400 that says where they are malformed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from engine.cluster import projections
from engine.cluster.projections import ProjectionError
from engine.records import Pod, Workload
from webhook.review import BadReview, Review

Record = TypeVar("Record")

WORKLOADS: Final[dict[tuple[str, str], Callable[[Any], Workload]]] = {("batch", "Job"): projections.job}
"""The kinds that can be placed, by API group and kind, with the projection of each."""


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
    """The record of an object. Raises BadReview(400) that names the path which is wrong."""
    if raw is None:
        raise BadReview(400, "the review has no object")
    try:
        return projection(raw)
    except ProjectionError as error:
        raise BadReview(400, f"malformed object: {error}") from None
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
