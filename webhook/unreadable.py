"""What `/validate` says about objects that nobody can read: every fault at its path, to those who ask for something.

Custom resources may hold anything. One that asks for nothing is none of ours, whatever stands in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError
from engine.gang.annotations import meanings
from engine.gang.exemption import exempt
from engine.kinds.read import UnreadableWorkload, read
from engine.policy.model import Policy
from webhook.answers import answer
from webhook.devices import beside_unreadable
from webhook.objects import POD, Unreadable, decoded, entry_of, workload_of
from webhook.patch import Path
from webhook.review import BadReview, Response, Review, allowed
from webhook.view import View

_MAX_SEARCHED: Final = 100_000  # values of one object that are searched for a request
_JOB: Final = ("batch", "Job")
_TEMPLATE: Final[Path] = ("spec", "template")


def unreadable(review: Review, faults: tuple[FieldError, ...], view: View, policy: Policy) -> Response:
    """Answer a review whose object, or whose object before, cannot be read for these faults."""
    what = (review.group, review.kind)
    try:
        document = decoded(review.object)
    except BadReview:
        return answer(review, faults, [], policy=policy)  # a number that is too long for anybody
    if what not in (POD, _JOB):
        if _left_alone(document, review, view, policy):
            return allowed()
        before = _before(review, view)
        review.budget.check()
        faults = tuple(fault for fault in faults if fault not in before)
        if not faults:
            return allowed()  # it was so before: other changes of the object must go through
        roots = _roots(document, review, view)
    else:
        roots = [()] if what == POD else [_TEMPLATE]
    return answer(review, beside_unreadable(document, roots, faults, view=view, policy=policy), [], policy=policy)


def asks_anywhere(raw: Mapping[str, Any], dialects: Iterable[str]) -> bool:
    """True when annotations anywhere in the object ask for a topology or a gang."""
    known = meanings(tuple(dialects)).keys()
    found = (value.get("annotations") for value in mappings(raw))
    return any(isinstance(annotations, dict) and not known.isdisjoint(annotations) for annotations in found)


def mappings(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every mapping of an object, the outer ones first; bounded."""
    rest: deque[Any] = deque((raw,))  # metadata comes before whatever is deep in the object
    for _ in range(_MAX_SEARCHED):
        if not rest:
            return
        value = rest.popleft()
        if isinstance(value, Mapping):
            yield value
            rest.extend(value.values())
        elif isinstance(value, list):
            rest.extend(value)


def _roots(document: Mapping[str, Any], review: Review, view: View) -> list[Path]:
    """The templates of an object as far as its kind can be read at all."""
    entry = entry_of(review, view)
    try:
        structure = read(entry, document, registry=view.registry) if entry is not None else None
    except UnreadableWorkload:
        return []
    return [one.steps for one in structure.pod_sets if not one.beside] if structure is not None else []


def _left_alone(document: Mapping[str, Any], review: Review, view: View, policy: Policy) -> bool:
    """True for an object that asks for nothing, that another system has, or that is being deleted."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    said = (metadata.get("labels"), metadata.get("annotations"))
    return (
        metadata.get("deletionTimestamp") is not None
        or not asks_anywhere(document, policy.annotations.dialects)
        or exempt(review.namespace, policy=policy, own_namespace=view.own_namespace)
        or any(isinstance(one, Mapping) and names.KUEUE_QUEUE in one for one in said)
    )


def _before(review: Review, view: View) -> tuple[FieldError, ...]:
    """What could not be read of the object before."""
    if review.operation != "UPDATE" or entry_of(review, view) is None:
        return ()
    try:
        workload_of(review, review.old_object, view)
    except Unreadable as fault:
        return fault.errors
    return ()
