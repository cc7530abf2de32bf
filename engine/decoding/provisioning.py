"""Decodes ProvisioningRequests, which node autoscalers answer. Both versions have the same fields."""

from __future__ import annotations

from typing import Final

from engine.api import names
from engine.api.duration import epoch, parse_time
from engine.api.objects import ProvisioningRequest, RequestCondition
from engine.decoding import wire
from engine.decoding.wire import ProjectionError, Source

_MAX_TEXT: Final = 400  # of an autoscaler's message: messages for people quote fewer
_MAX_CONDITIONS: Final = 32


def provisioning_request(source: Source) -> ProvisioningRequest:
    """Return a ProvisioningRequest. Raises ProjectionError when it is no object; other faults count as left out."""
    raw = wire.decode(dict, source)
    meta = wire.decode(wire.Object, raw).metadata or wire.ObjectMeta()
    if not meta.name or not meta.namespace:
        raise ProjectionError("$.metadata: name and namespace are required")
    spec, status = _mapping(raw.get("spec")), _mapping(raw.get("status"))
    conditions = {}
    for one in _list(status.get("conditions"))[:_MAX_CONDITIONS]:
        if isinstance(kind := one.get("type"), str):
            conditions[kind] = RequestCondition(
                status=one.get("status") == "True",
                at=parse_time(one.get("lastTransitionTime")) or epoch(meta.creation_timestamp),
                reason=_text(one.get("reason")),
                message=_text(one.get("message")),
            )
    return ProvisioningRequest(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid or "",
        gang=(meta.labels or {}).get(names.GANG) or "",
        class_name=_text(spec.get("provisioningClassName")),
        parameters={str(key): str(value) for key, value in _mapping(spec.get("parameters")).items()},
        pod_sets=tuple(
            (_text(_mapping(one.get("podTemplateRef")).get("name")), count)
            for one in _list(spec.get("podSets"))
            if type(count := one.get("count")) is int
        ),
        created=epoch(meta.creation_timestamp),
        conditions=conditions,
        deleting=meta.deletion_timestamp is not None,
        api_version=_text(raw.get("apiVersion")),
        resource_version=meta.resource_version or "",
    )


def _text(value: object) -> str:
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def _mapping(raw: object) -> dict[str, object]:
    return raw if isinstance(raw, dict) else {}


def _list(raw: object) -> list[dict[str, object]]:
    return [one for one in raw if isinstance(one, dict)] if isinstance(raw, list) else []
