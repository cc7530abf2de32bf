"""Answers reviews of objects that cannot be decoded, or that need too much processor time.

Custom resources may have any content. Objects without a request pass unchanged, and so do those that another system
manages and pods that carry our gate: the same happens to them while the service is down. Others with a request are
never admitted unread: their pods could start apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.api import names
from engine.api.field import FieldError
from engine.gang.annotations import POD_GROUP_DIALECT, AnnotationSource, meanings, pod_group_of
from engine.gang.exemption import is_exempt
from engine.kinds.read import UnreadableWorkload, read
from engine.policy.model import Policy
from webhook.admission.budget import BudgetExceeded
from webhook.admission.objects import POD, Unreadable, decoded, entry_of, workload_of
from webhook.admission.patch import Path
from webhook.admission.reader import Reader
from webhook.admission.review import BadReview, Response, Review, allowed, answer
from webhook.rules.children import texts_in
from webhook.rules.defaults import requests_of
from webhook.rules.devices import beside_unreadable


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
    """Refuse the object of an interrupted review if it may have a request, else admit it unchanged."""
    if not _asks(review, policy) or _untouched(review, view, policy):
        return allowed()
    message = (
        f"{fault}; use fewer or smaller templates and containers, or several objects "
        f"(the limit is --review-cpu of topogate serve)"
    )
    error = FieldError(field="spec", kind="Forbidden", value=None, reason="ReviewTooCostly", message=message)
    return answer(review, [error], [], policy=policy)


def _asks(review: Review, policy: Policy) -> bool:
    """Return True if a requesting key is anywhere in the object, or its namespace has a default request.

    The bytes are searched: the API server writes these keys verbatim, and nothing may be decoded any more.
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
        yield names.KOORDINATOR_GANG_NAME
        yield names.SCHEDULER_PLUGINS_POD_GROUP


def _untouched(review: Review, view: Reader, policy: Policy) -> bool:
    pod = (review.group, review.kind) == POD
    try:
        found = (_POD if pod else _OBJECT).decode(review.object or b"{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    if isinstance(found, _Pod) and any(gate.name == names.GATE for gate in found.spec.scheduling_gates or ()):
        return True  # it is held by our gate
    metadata = found.metadata
    carried = (metadata.labels or {}, metadata.annotations or {})
    return metadata.deletion_timestamp is not None or _managed_by_others(carried, review, view, policy)


_MAX_SEARCHED: Final = 100_000  # values of one object that are searched for a request
_JOB: Final = ("batch", "Job")
_TEMPLATE: Final[Path] = ("spec", "template")


def unreadable(review: Review, faults: tuple[FieldError, ...], view: Reader, policy: Policy) -> Response:
    """Answer a review with an object, or an old object, that cannot be decoded for these faults."""
    what = (review.group, review.kind)
    try:
        document = decoded(review.object)
    except BadReview:
        return answer(review, faults, [], policy=policy)  # a number that is too long for every reader
    if what not in (POD, _JOB):
        if _left_alone(document, review, view, policy):
            return allowed()
        before = _old_faults(review, view)
        review.budget.check()
        faults = tuple(fault for fault in faults if fault not in before)
        if not faults:
            return allowed()  # the fault was there before: other changes of the object must pass
        roots = _roots(document, review, view)
    else:
        roots = [()] if what == POD else [_TEMPLATE]
    return answer(review, beside_unreadable(document, roots, faults, view=view, policy=policy), [], policy=policy)


def asks_anywhere(raw: Mapping[str, Any], dialects: Iterable[str]) -> bool:
    """Return True if annotations anywhere in the object request a topology or a gang."""
    known = meanings(tuple(dialects)).keys()
    found = (value.get("annotations") for value in mappings(raw))
    return any(isinstance(annotations, dict) and not known.isdisjoint(annotations) for annotations in found)


def asks_unread(raw: Mapping[str, Any], policy: Policy, *, created: bool) -> bool:
    """Return True if an object that cannot be read makes a request: in annotations, or as a new one by a pod group."""
    return asks_anywhere(raw, policy.annotations.dialects) or (created and _asks_by_group(raw, policy))


def _asks_by_group(raw: Mapping[str, Any], policy: Policy) -> bool:
    """Return True for pod-group keys of other systems anywhere in the object, unless their own scheduler is named."""
    found = [*mappings(raw)]
    sources = [AnnotationSource("", texts_in(one, "annotations"), texts_in(one, "labels")) for one in found]
    if not pod_group_of(sources, dialects=policy.annotations.dialects):
        return False
    entry = policy.registry.entry_of(raw)
    default = entry.scheduler.default if entry is not None and entry.scheduler is not None else names.DEFAULT_SCHEDULER
    named = {name for one in found if isinstance(name := one.get("schedulerName"), str) and name}
    return (named or {default}).issubset(policy.schedulers)


def mappings(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings of an object, outer ones first, up to a limit."""
    rest: deque[Any] = deque((raw,))  # metadata comes before anything deep in the object
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
    """Return the paths of an object's templates, as far as its kind can be read at all."""
    entry = entry_of(review, view)
    try:
        structure = read(entry, document, registry=view.registry) if entry is not None else None
    except UnreadableWorkload:
        return []
    return [one.steps for one in structure.pod_sets if not one.beside] if structure is not None else []


def _left_alone(document: Mapping[str, Any], review: Review, view: Reader, policy: Policy) -> bool:
    """Return True for an object without a request, one that another system manages, or one that is being deleted."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    label_maps = (metadata.get("labels"), metadata.get("annotations"))
    return (
        metadata.get("deletionTimestamp") is not None
        or not asks_unread(document, policy, created=review.operation == "CREATE")
        or _managed_by_others(label_maps, review, view, policy)
    )


def _managed_by_others(carried: Iterable[object], review: Review, view: Reader, policy: Policy) -> bool:
    """Return True for an object of an exempt namespace, or in a queue of Kueue by its labels or annotations."""
    return is_exempt(review.namespace, policy=policy, own_namespace=view.own_namespace) or any(
        isinstance(one, Mapping) and names.KUEUE_QUEUE in one for one in carried
    )


def _old_faults(review: Review, view: Reader) -> tuple[FieldError, ...]:
    """Return the faults of the old object."""
    if review.operation != "UPDATE" or entry_of(review, view) is None:
        return ()
    try:
        workload_of(review, review.old_object, view)
    except Unreadable as fault:
        return fault.errors
    return ()
