"""GPU requests in a review: translated, checked, and left as they were where a file is applied again.

The rules themselves are `engine.gpu`'s; here they meet decoded objects. What of ours goes into an object: the resources
of its containers and the two annotations about them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError, path_of
from engine.devices.annotations import reapplied, written_at_first
from engine.devices.containers import PodResources, pod_resources
from engine.devices.resources import device_names, whole_names
from engine.devices.translation import Translation, in_scope, translate
from engine.policy.model import Policy
from webhook.admission.patch import Edits, Path
from webhook.admission.reader import Reader
from webhook.admission.review import Review

NOTES: Final = (names.ORIGINAL_REQUESTS, names.GPU_REQUEST)
_SIDES: Final = ("requests", "limits")


def translate_in(edits: Edits, root: Path, *, managed: bool, view: Reader, policy: Policy) -> None:
    """Write the GPU requests of the pod or template at `root` in the names that nodes report.

    `managed`: it is held and placed by us. What is wrong stays as it is, completed where the API server would refuse it
    before `/validate` can say what is wrong; what was completed is noted, for errors at the user's own path.
    """
    pod = _at(edits.document, root)
    done = _translation(pod, root, managed=managed, view=view, policy=policy)
    if done.errors and done.edits:
        note = _completed(pod, {one.path[:2] for one in done.edits}, policy)
        edits.put((*root, "metadata", "annotations", names.ORIGINAL_REQUESTS), note)
    # A side of a container at a time: it takes less room, in the patch and in its making, than each name by itself.
    for where, side in groupby(done.edits, key=lambda one: one.path[:-1]):
        path = (*root, "spec", *where)
        values = {**(edits.get(*path) or {}), **{one.path[-1]: one.value for one in side}}
        edits.put(path, {name: value for name, value in values.items() if value is not None})
    for key, value in done.annotations.items():
        _put(edits, (*root, "metadata", "annotations", key), value)


def translate_again(
    edits: Edits,
    old: Mapping[str, Any],
    root: Path,
    old_root: Path,
    *,
    may_change: bool,
    managed: bool,
    view: Reader,
    policy: Policy,
) -> None:
    """Settle the GPU requests of a template at `root` that is updated; it was at `old_root` of the `old` object.

    Who asks for the same as before gets the same as before, also on a live workload, whose template may not change.
    What he changed is translated where the template may change (`may_change`); else the API server refuses it.
    """
    new, before = _at(edits.document, root), _at(old, old_root)
    vendors = policy.gpu.vendors
    if not in_scope(new, managed=managed, scope=policy.gpu.scope):
        return
    meant = reapplied(before, new, vendors=vendors)
    if not (meant.same or may_change):
        return
    _write(edits, root, new, meant.pod)
    if not meant.same:
        translate_in(edits, root, managed=managed, view=view, policy=policy)
        return
    for key in NOTES:
        if (value := before.annotations.get(key)) is not None:
            _put(edits, (*root, "metadata", "annotations", key), value)


def checked(
    document: Mapping[str, Any], root: Path, *, managed: bool, view: Reader, policy: Policy
) -> tuple[tuple[FieldError, ...], tuple[str, ...]]:
    """Return what is wrong with the GPU requests of the pod or template at `root`, and what to warn of."""
    pod = _at(document, root)
    done = _translation(pod, root, managed=managed, view=view, policy=policy)
    return _as_sent(done.errors, pod, path_of((*root, "spec"))), done.warnings


def beside_unreadable(
    document: Mapping[str, Any],
    roots: Iterable[Path],
    faults: Sequence[FieldError],
    *,
    view: Reader,
    policy: Policy,
) -> tuple[FieldError, ...]:
    """Return everything that is wrong with an object that cannot be read: `faults`, and its devices.

    Where the value is an amount of a device, our own words about it stand for the fault.
    """
    errors = [error for root in roots for error in checked(document, root, managed=True, view=view, policy=policy)[0]]
    told = {error.field for error in errors}
    others = (one for one in faults if told.isdisjoint((one.field, one.field.replace(".limits[", ".requests["))))
    return (*others, *errors)


def annotation_errors(
    annotations: Mapping[str, str], path: str, review: Review, policy: Policy, *, before: Mapping[str, str]
) -> tuple[FieldError, ...]:
    """Return the refusal of a device annotation that somebody else than its writers sets or changes.

    `path` is that of the annotations' metadata, `before` what stood there.
    """
    value = annotations.get(names.DEVICE_ALLOCATED)
    if value is None or value == before.get(names.DEVICE_ALLOCATED):
        return ()
    trusted = {*policy.admins, *policy.gpu.device_annotation_writers}
    if review.username in trusted or not trusted.isdisjoint(review.groups):
        return ()
    error = FieldError(
        field=f"{path}.annotations[{names.DEVICE_ALLOCATED}]",
        kind="Forbidden",
        value=None,
        reason="ReservedName",
        message="says which devices a pod got, and is written when it is placed; remove it",
    )
    return (error,)


def _completed(pod: PodResources, changed: Collection[Path], policy: Policy) -> str:
    """The note of what stood in containers that are completed although something is wrong with them."""
    wanted = device_names(whole_names(policy.gpu.vendors))
    entries = {
        container.name: {
            side: {name: value for name, value in listed.items() if name in wanted}
            for side, listed in zip(_SIDES, (container.requests, container.limits), strict=True)
        }
        for container in pod
        if container.path in changed
    }
    return json.dumps(entries, separators=(",", ":"))


def _as_sent(errors: Sequence[FieldError], pod: PodResources, path: str) -> tuple[FieldError, ...]:
    """The errors, at `requests` where the user wrote nothing in `limits`: that side is ours."""
    note = written_at_first(pod) if errors else {}
    wrote = {f"{path}.{one.path[0]}[{one.path[1]}].resources": note[one.name] for one in pod if one.name in note}

    def sent(error: FieldError) -> FieldError:
        before, _, rest = error.field.rpartition(".limits[")
        name, entry = rest.removesuffix("]"), wrote.get(before)
        if entry is None or name not in entry["requests"] or name in entry["limits"]:
            return error
        return replace(error, field=f"{before}.requests[{name}]")

    return tuple(map(sent, errors))


def _translation(pod: PodResources, root: Path, *, managed: bool, view: Reader, policy: Policy) -> Translation:
    gpu = policy.gpu
    return translate(
        pod,
        mode=gpu.translation,
        reported=view.reported,
        path=path_of((*root, "spec")),
        managed=managed,
        scope=gpu.scope,
        vendors=gpu.vendors,
    )


def _at(document: Mapping[str, Any], root: Path) -> PodResources:
    found: Any = document
    for step in root:
        if isinstance(found, list) and isinstance(step, int):
            found = found[step] if step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return PodResources(())
    metadata = found.get("metadata")
    return pod_resources(found.get("spec"), metadata.get("annotations") if isinstance(metadata, Mapping) else None)


def _write(edits: Edits, root: Path, before: PodResources, after: PodResources) -> None:
    for old, new in zip(before, after, strict=True):
        for side, had, has in zip(_SIDES, (old.requests, old.limits), (new.requests, new.limits), strict=True):
            if had != has:
                edits.put((*root, "spec", *old.path, "resources", side), dict(has))


def _put(edits: Edits, path: Path, value: object) -> None:
    if value is None:
        edits.drop(path)
    else:
        edits.put(path, value)
