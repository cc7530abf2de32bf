"""`/mutate` as it is served: the changes of an object, and the checks of one that `/validate` does not get afterwards.

The API server sends `/validate` only objects with our label, which a selector tests nearly for free; match conditions
on every object of the cluster would cost it more than all else that the service causes for objects of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from engine.api import names
from webhook.admission.objects import POD, decoded, entry_of
from webhook.admission.reader import Reader
from webhook.admission.review import BadReview, Response, Review, merged
from webhook.handlers.mutate import mutate
from webhook.handlers.validate import validate

_ENCODER: Final = msgspec.json.Encoder()


def mutate_and_check(review: Review, view: Reader, deadline: float) -> Response:
    """Answer a mutating review; refuse and warn as `/validate` does, unless the object is sent there next.

    Raises as `mutate` and `validate` do.
    """
    response = mutate(review, view, deadline)
    known = (review.group, review.kind) == POD or entry_of(review, view) is not None
    if not response.allowed or not known or review.object is None or review.operation not in ("CREATE", "UPDATE"):
        return response
    if _validated_next(review, response.document):
        return response
    changed = msgspec.Raw(_ENCODER.encode(response.document)) if response.patch else review.object
    return merged(response, validate(replace(review, object=changed), view, deadline))


def _validated_next(review: Review, document: Mapping[str, Any] | None) -> bool:
    """Return True if the API server sends the object, changed to `document`, to `/validate` after all mutation.

    An UPDATE that changes neither the spec nor a key of ours is not sent, even with the label. What cannot be decoded
    has no label, and `validate` answers it.
    """
    try:
        return _labelled(review, document if document is not None else decoded(review.object))
    except BadReview:
        return False


def _labelled(review: Review, document: Mapping[str, Any]) -> bool:
    if (review.group, review.kind) == POD:
        return names.MANAGED in _texts(document, "labels")
    if names.REQUESTS_PLACEMENT not in _texts(document, "labels"):
        return False
    if review.operation != "UPDATE" or review.old_object is None:
        return True
    before = decoded(review.old_object)
    return document.get("spec") != before.get("spec") or any(
        _ours(_texts(document, kind)) != _ours(_texts(before, kind)) for kind in ("annotations", "labels")
    )


def _texts(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the annotations or labels of an object; empty if they have another form."""
    metadata = document.get("metadata")
    found = metadata.get(kind) if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _ours(carried: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in carried.items() if key.startswith(names.PREFIX)}
