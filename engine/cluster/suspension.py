"""The bodies of the PATCHes that let a workload run and suspend it, for every registered kind. Pure.

A JSON Patch where templates are told: a merge patch would replace a list whole, and can bind to a version alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.api.field import path_of
from engine.api.names import HELD_BY, HELD_BY_SUSPEND
from engine.api.workload import TO_ANNOTATIONS, PodSet, Workload

Body = dict[str, Any]
Operations = list[Body]


def suspending(workload: Workload) -> Body:
    """The merge patch that suspends a workload and notes that it was us. Binds to the version that we know."""
    return _merged(
        _set(workload, True), {"metadata": {**_as_known(workload), "annotations": {HELD_BY: HELD_BY_SUSPEND}}}
    )


def resuming(workload: Workload) -> Body:
    """The merge patch that lets a workload run, and nothing else. Binds to the version that we know."""
    return _merged(_set(workload, False), {"metadata": {**_as_known(workload), "annotations": {HELD_BY: None}}})


def telling(workload: Workload, annotations: Mapping[str, str]) -> Operations:
    """The JSON Patch that lets a workload run and puts annotations on the pods of all its templates.

    Binds to the generation, not to the version: the workload's controller may note the suspension in the status at that
    very moment, which changes nothing that was decided on. To the version where no generations are counted. A test that
    fails is answered as invalid (422), in words.
    """
    assert workload.suspend_path is not None
    known = {"generation": workload.generation} if workload.generation else _as_known(workload)
    operations: Operations = [
        {"op": "test", "path": pointer(("metadata", field)), "value": value}
        for field, value in ({"uid": workload.uid} | known).items()
    ]
    operations.append({"op": "add", "path": pointer(workload.suspend_path), "value": False})
    if HELD_BY in workload.annotations:
        operations.append({"op": "remove", "path": pointer(("metadata", "annotations", HELD_BY))})
    for one in told(workload):
        where = (*one.path, *(step for step in TO_ANNOTATIONS if step not in one.missing))
        added: Mapping[str, object] = annotations
        for step in reversed(one.missing):
            added = {step: added}
        operations += [{"op": "add", "path": pointer((*where, key)), "value": value} for key, value in added.items()]
    return operations


def told(workload: Workload) -> tuple[PodSet, ...]:
    """The pod sets whose template stands in the object itself and may be changed, one for each template."""
    if workload.handling == "through" or workload.templates_fixed:
        return ()  # they are those of another object, or nobody's to change
    return tuple({one.path: one for one in workload.pod_sets if one.templated}.values())


def about_templates(workload: Workload, fields: tuple[str, ...]) -> bool:
    """True when a refusal that names these fields may be about the templates: it names one of them, or nothing."""
    paths = tuple(path_of(one.path) for one in told(workload))
    return not fields or any(field.startswith(paths) for field in fields)


def pointer(steps: tuple[str | int, ...]) -> str:
    """The JSON pointer (RFC 6901) of steps into an object."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _set(workload: Workload, suspended: bool) -> Body:
    assert workload.suspend_path is not None  # a kind without the field is held by its pods' gates alone
    return _nested(workload.suspend_path, suspended)


def _as_known(workload: Workload) -> Body:
    return {"uid": workload.uid, "resourceVersion": workload.resource_version}


def _nested(steps: tuple[str | int, ...], value: object) -> Body:
    *before, last = steps
    body: Body = {str(last): value}
    for step in reversed(before):
        body = {str(step): body}
    return body


def _merged(one: Body, other: Body) -> Body:
    result = dict(one)
    for key, value in other.items():
        held = result.get(key)
        result[key] = _merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result
