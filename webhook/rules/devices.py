"""GPU requests in a review: translated, checked, and kept unchanged if a file is applied again.

The rules are in `engine.resources`; this module applies them to decoded objects. One function, `translate` of
`engine.resources.translation`, checks and translates: `/mutate` uses the changes that it returns, `/validate` its
errors.
We write into an object only the resources of its containers and the two annotations about them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from engine.api import names
from engine.api.device import DeviceRequest
from engine.api.field import FieldError, path_of
from engine.api.text import join_and, plural, quote, sanitize
from engine.policy.model import Policy
from engine.resources.annotations import reapplied, recorded_requests, valid_entries
from engine.resources.containers import AmountError, PodResources, pod_resources
from engine.resources.hami import HAMI, without_hami
from engine.resources.names import NVIDIA, WHOLE, device_names, whole_names
from engine.resources.request import device_request
from engine.resources.translation import Translation, in_scope, translate
from engine.resources.validation import kind_errors
from webhook.admission.patch import Edits, Path
from webhook.admission.reader import Reader
from webhook.admission.review import Review

# Amounts up to these are probably numbers of GPUs or of gibibytes: no pod has use for so little.
_FEW_PERCENT: Final = 8
_FEW_BYTES: Final = 1 << 20
_MAX_NAME: Final = 30  # the warning has 120 characters
_SIDES: Final = ("requests", "limits")


def translate_in(edits: Edits, root: Path, *, managed: bool, view: Reader, policy: Policy) -> None:
    """Translate the GPU requests of the pod or template at `root` to the names that nodes report.

    `managed`: it is held and placed by us. A wrong request stays, but is completed if the API server would refuse it
    before `/validate` can name the error; the completion is noted, so that errors have the user's own path.
    """
    pod = _at(edits.document, root)
    done = _translation(pod, root, managed=managed, view=view, policy=policy)
    if done.errors and done.edits:
        note = _completed(pod, {one.path[:2] for one in done.edits}, policy)
        edits.put((*root, "metadata", "annotations", names.ORIGINAL_REQUESTS), note)
    # One side of a container at a time: a smaller patch, and less work, than one operation for each name.
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
    joins: bool,
    marked: bool,
    managed: bool,
    view: Reader,
    policy: Policy,
) -> None:
    """Translate the GPU requests of an updated template at `root`, formerly at `old_root` of the `old` object.

    An unchanged request gets the same translation, also on a live workload with an immutable template; with `joins`,
    where the template becomes that of a gang, it gets its first one. A changed one is translated if the template may
    change (`may_change`); else the API server refuses it. `marked`: the old template was one of a gang, also if the
    new one is not. One with replaced names keeps them, whoever asked for it.
    """
    new, before = _at(edits.document, root), _at(old, old_root)
    vendors = policy.gpu.vendors
    scoped = in_scope(new, managed=managed, scope=policy.gpu.scope)
    if not (scoped or marked or names.ORIGINAL_REQUESTS in before.annotations):
        return
    meant = reapplied(before, new, vendors=vendors)
    if not (meant.same or (may_change and scoped)):
        return
    _write(edits, root, new, meant.pod)
    if not meant.same or joins:
        # What was translated and stays so is told by its note: a file that stands alone has none.
        note = meant.pod.annotations.get(names.ORIGINAL_REQUESTS)
        _put(edits, (*root, "metadata", "annotations", names.ORIGINAL_REQUESTS), note)
        translate_in(edits, root, managed=managed, view=view, policy=policy)
        return
    noted = valid_entries(new, whole=whole_names(vendors))  # in a second call for one change, the note of the first
    for key in names.NOTE_ANNOTATIONS:
        if (value := before.annotations.get(key)) is not None and not (noted and key == names.ORIGINAL_REQUESTS):
            _put(edits, (*root, "metadata", "annotations", key), value)


def device_findings(
    document: Mapping[str, Any], root: Path, *, managed: bool, view: Reader, policy: Policy
) -> tuple[tuple[FieldError, ...], tuple[str, ...]]:
    """Return errors and warnings about the GPU requests of the pod or template at `root`; it changes nothing."""
    pod = _at(document, root)
    done = _translation(pod, root, managed=managed, view=view, policy=policy)
    path = path_of((*root, "spec"))
    errors = _as_sent(done.errors, pod, path)
    if managed:
        errors += kind_errors(pod, policy.device_kinds, path=path)
    return errors, done.warnings


def limited_containers(document: Mapping[str, Any], root: Path, *, policy: Policy) -> dict[Path, frozenset[str]]:
    """Return the variables of HAMi's library for the containers of the pod or template at `root`, by their path.

    A container that requests a part of GPUs gets the limits of its pod, where it is the one that the pod gets it for;
    if several request different parts, the pod's limit would be too much for each of them.
    """
    pod = _at(document, root)
    own, total = _parts(pod, policy)
    found: dict[Path, frozenset[str]] = {}
    for path, part in own.items():
        memory = part.ratio < WHOLE and (part.ratio, part.memory) == (total.ratio, total.memory)
        core = 0 < part.core < WHOLE and part.core == total.core
        variables = {names.GPU_MEMORY_LIMIT_VARIABLE: memory, names.GPU_CORE_LIMIT_VARIABLE: core}
        found[path] = frozenset(name for name, fits in variables.items() if fits and part.gpus == total.gpus)
    return found


def hami_warnings(document: Mapping[str, Any], root: Path, *, reported: Collection[str]) -> tuple[str, ...]:
    """Return a warning for each container of a gang's pod or template at `root` with names that only HAMi reads.

    `reported` are the names of the nodes: one that a node reports counts like any other.
    """
    found: list[str] = []
    for container in _at(document, root):
        unread = sorted(HAMI.intersection({*container.requests, *container.limits}) - set(reported))
        if not unread:
            continue
        try:
            instead = without_hami(container.amounts({*HAMI, NVIDIA}))
        except AmountError:
            instead = {}
        # One prefix for all, as a warning has 120 characters.
        wanted = ", ".join(f"{name.rpartition('/')[2]}: {amount}" for name, amount in instead.items())
        told = (
            f"instead of HAMi's names use koordinator.sh/{wanted}" if wanted else f"only HAMi reads {join_and(unread)}"
        )
        found.append(f"container {quote(container.name)}: {told}")
    return tuple(found)


def unit_warnings(document: Mapping[str, Any], root: Path, *, policy: Policy) -> tuple[str, ...]:
    """Return a warning for each container of a gang's pod or template at `root` with an amount in the wrong unit.

    `koordinator.sh/gpu` counts percent and `gpu-memory` bytes: 8 is nearly always meant as 8 GPUs, or 8 GiB.
    """
    own, _ = _parts(pod := _at(document, root), policy)
    found: list[str] = []
    for container in pod:
        part = own.get(container.path)
        if part is None or part.gpus != 1:
            continue
        name = quote(sanitize(container.name, _MAX_NAME))
        if 0 < part.memory < _FEW_BYTES:
            found.append(
                f"container {name} asks for {part.memory:,} bytes of GPU memory; for GiB write {part.memory}Gi"
            )
        elif 0 < part.ratio <= _FEW_PERCENT and part.core in (0, part.ratio):
            gpus = plural(part.ratio, "GPU")
            found.append(f"container {name} asks for {part.ratio}% of one GPU; for {gpus} write {part.ratio}00")
    return tuple(found)


def limit_warnings(document: Mapping[str, Any], root: Path, *, policy: Policy) -> tuple[str, ...]:
    """Return the warning about containers of a gang's pod or template at `root` that get no limits."""
    if not policy.gpu.hami.limits:
        return ()
    pod = _at(document, root)
    own, total = _parts(pod, policy)
    unlike = [
        one.name
        for one in pod
        if (part := own.get(one.path)) is not None
        and (part.gpus, part.core, part.ratio, part.memory) != (total.gpus, total.core, total.ratio, total.memory)
        and (part.ratio < WHOLE or part.core < WHOLE)
    ]
    if not unlike:
        return ()
    return (
        f"containers {join_and([quote(name) for name in unlike])} share the pod's GPUs with others and get no limits "
        "(policy: gpu.hami.limits); request GPUs in one container",
    )


def _parts(pod: PodResources, policy: Policy) -> tuple[dict[Path, DeviceRequest], DeviceRequest]:
    """Return what containers request of GPUs, by path, and what the pod does; nothing if an amount is wrong."""
    vendors = policy.gpu.vendors
    wanted = device_names(whole_names(vendors))
    try:
        amounts = {one.path: one.amounts(wanted) for one in pod}
    except AmountError:
        return {}, DeviceRequest()
    translated = names.ORIGINAL_REQUESTS in pod.annotations
    found = {path: device_request(named, vendors=vendors, translated=translated) for path, named in amounts.items()}
    total = device_request(pod.total(amounts), vendors=vendors, translated=translated) or DeviceRequest()
    return {path: request for path, request in found.items() if request is not None and request.gpus}, total


def beside_unreadable(
    document: Mapping[str, Any],
    roots: Iterable[Path],
    faults: Sequence[FieldError],
    *,
    view: Reader,
    policy: Policy,
) -> tuple[FieldError, ...]:
    """Return all errors of an object that cannot be decoded: `faults`, and those of its devices.

    If the value is an amount of a device, our own message about it replaces the fault.
    """
    errors = [
        error for root in roots for error in device_findings(document, root, managed=True, view=view, policy=policy)[0]
    ]
    reported = {error.field for error in errors}
    others = (one for one in faults if reported.isdisjoint((one.field, one.field.replace(".limits[", ".requests["))))
    return (*others, *errors)


def annotation_errors(
    annotations: Mapping[str, str], path: str, review: Review, policy: Policy, *, before: Mapping[str, str]
) -> tuple[FieldError, ...]:
    """Return the error for a device annotation that is set or changed by another user than its writers.

    `path` is that of the annotations' metadata, `before` the previous annotations.
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
        message="is written when the pod is placed; remove it",
    )
    return (error,)


def _completed(pod: PodResources, changed: Collection[Path], policy: Policy) -> str:
    """Return the note of the original values in containers that are completed although they have errors."""
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
    """Return the errors at `requests` if the user wrote nothing in `limits`: that side is ours."""
    note = recorded_requests(pod) if errors else {}
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
