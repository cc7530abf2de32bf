"""Answers reviews of objects that cannot be decoded, or that take too much of the processor.

Custom resources may hold anything. One that asks for nothing is none of ours, whatever stands in it.

What asks for nothing goes through untouched, and so do what another system has and pods that carry our gate: the same
happens to them while nobody answers. Others that ask are never let through unread: their pods could start apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.api import names
from engine.api.field import FieldError
from engine.gang.annotations import POD_GROUP_DIALECT, meanings
from engine.gang.exemption import is_exempt
from engine.kinds.read import UnreadableWorkload, read
from engine.policy.model import Policy
from webhook.admission.budget import BudgetExceeded
from webhook.admission.objects import POD, Unreadable, decoded, entry_of, workload_of
from webhook.admission.patch import Path
from webhook.admission.reader import Reader
from webhook.admission.review import BadReview, Response, Review, allowed, answer
from webhook.handlers.defaults import requests_of
from webhook.handlers.devices import beside_unreadable


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Gate(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[_Gate, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


_OBJECT: Final = msgspec.json.Decoder(_Object)
_POD: Final = msgspec.json.Decoder(_Pod)


def too_costly(review: Review, fault: BudgetExceeded, view: Reader, policy: Policy) -> Response:
    """Refuse the object of a review that was broken off if it may ask for something, else let it through as it is."""
    if not _asks(review, policy) or _untouched(review, view, policy):
        return allowed()
    message = (
        f"{fault}; use fewer or smaller templates and containers, or several objects "
        f"(the limit is --review-cpu of topogate serve)"
    )
    error = FieldError(field="spec", kind="Forbidden", value=None, reason="ReviewTooCostly", message=message)
    return answer(review, [error], [], policy=policy)


def _asks(review: Review, policy: Policy) -> bool:
    """True when a key that asks stands anywhere in the object, or its namespace asks for it.

    Looked for in the bytes: the API server writes these keys as they are, and nothing is to be read any more.
    """
    if review.operation == "CREATE" and (review.group, review.kind) != POD and requests_of(review.namespace, policy):
        return True
    raw = bytes(review.object or b"")
    return any(f'"{key}"'.encode() in raw for key in _keys(policy))


def _keys(policy: Policy) -> Iterator[str]:
    dialects = policy.annotations.dialects
    yield from meanings(dialects)
    if POD_GROUP_DIALECT in dialects:
        yield names.POD_GROUP_NAME


def _untouched(review: Review, view: Reader, policy: Policy) -> bool:
    pod = (review.group, review.kind) == POD
    try:
        found = (_POD if pod else _OBJECT).decode(review.object or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    if isinstance(found, _Pod) and any(gate.name == names.GATE for gate in found.spec.scheduling_gates or ()):
        return True  # it is held
    metadata = found.metadata
    carried = (metadata.labels or {}, metadata.annotations or {})
    return (
        metadata.deletion_timestamp is not None
        or is_exempt(review.namespace, policy=policy, own_namespace=view.own_namespace)
        or any(names.KUEUE_QUEUE in one for one in carried)
    )


_MAX_SEARCHED: Final = 100_000  # values of one object that are searched for a request
_JOB: Final = ("batch", "Job")
_TEMPLATE: Final[Path] = ("spec", "template")


def unreadable(review: Review, faults: tuple[FieldError, ...], view: Reader, policy: Policy) -> Response:
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


def _roots(document: Mapping[str, Any], review: Review, view: Reader) -> list[Path]:
    """The templates of an object as far as its kind can be read at all."""
    entry = entry_of(review, view)
    try:
        structure = read(entry, document, registry=view.registry) if entry is not None else None
    except UnreadableWorkload:
        return []
    return [one.steps for one in structure.pod_sets if not one.beside] if structure is not None else []


def _left_alone(document: Mapping[str, Any], review: Review, view: Reader, policy: Policy) -> bool:
    """True for an object that asks for nothing, that another system has, or that is being deleted."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    said = (metadata.get("labels"), metadata.get("annotations"))
    return (
        metadata.get("deletionTimestamp") is not None
        or not asks_anywhere(document, policy.annotations.dialects)
        or is_exempt(review.namespace, policy=policy, own_namespace=view.own_namespace)
        or any(isinstance(one, Mapping) and names.KUEUE_QUEUE in one for one in said)
    )


def _before(review: Review, view: Reader) -> tuple[FieldError, ...]:
    """What could not be read of the object before."""
    if review.operation != "UPDATE" or entry_of(review, view) is None:
        return ()
    try:
        workload_of(review, review.old_object, view)
    except Unreadable as fault:
        return fault.errors
    return ()
