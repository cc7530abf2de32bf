"""The answer to a review that took too much of the processor: refused where the object asks for something.

What asks for nothing goes through untouched, and so do what another system has and pods that carry our gate: the same
happens to them while nobody answers. Others that ask are never let through unread: their pods could start apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from engine.api import names
from engine.api.field import FieldError
from engine.gang.annotations import POD_GROUP_DIALECT, meanings
from engine.gang.exemption import exempt
from engine.policy.model import Policy
from engine.policy_defaults import requests_of
from webhook.answers import answer
from webhook.budget import BudgetExceeded
from webhook.objects import POD
from webhook.review import Response, Review, allowed
from webhook.view import View


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


def too_costly(review: Review, fault: BudgetExceeded, view: View, policy: Policy) -> Response:
    """Refuse the object of a review that was broken off if it may ask for something, else let it through as it is."""
    if not _asks(review, policy) or _left_alone(review, view, policy):
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


def _left_alone(review: Review, view: View, policy: Policy) -> bool:
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
        or exempt(review.namespace, policy=policy, own_namespace=view.own_namespace)
        or any(names.KUEUE_QUEUE in one for one in carried)
    )
