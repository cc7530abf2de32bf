"""The path of an object from `kubectl create` to etcd, without an API server, as far as this service takes part.

The API server's own checks are not repeated, except for what every object needs: right types, a name, containers.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from engine.api.field import FieldError, path_of
from engine.api.pod import Pod
from engine.api.reasons import REASONS, known_code
from engine.api.text import sanitize
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.decoding import pods as cluster_pods
from engine.decoding.wire import ProjectionError, located
from engine.decoding.workloads import workload
from engine.kinds.read import UnreadableWorkload
from webhook.admission.objects import POD, invalid_value
from webhook.admission.patch import Edits, Operation, Path
from webhook.admission.reader import Reader
from webhook.admission.review import BadReview, Response, Review, decode_review
from webhook.handlers.mutate import mutate
from webhook.handlers.unreadable import asks_unread
from webhook.handlers.validate import validate
from webhook.rules.gating import templates
from webhook.snapshot.files import FileObject

DEADLINE: Final = 10.0  # on the offline reader's clock, which stays at 0
_USER: Final = {"username": "topogate-simulate", "groups": ["system:authenticated"]}
# Fields that the API server sets at CREATE, ignoring what was sent (`kubectl get -o yaml` prints all of them).
_SERVERS: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The outcome of a CREATE: refused for `errors`, or stored as `stored`; `patch` is our change."""

    stored: Mapping[str, Any]
    patch: tuple[Operation, ...]
    errors: tuple[FieldError, ...]
    warnings: tuple[str, ...]


Decode = Callable[[Any], Pod | Workload]
"""Returns the record of an object in JSON. Raises ProjectionError and UnreadableWorkload."""


def decoder_of(one: FileObject, view: ClusterState) -> Decode | None:
    """Return the decoder of an object's kind; None for an unregistered kind."""
    if one.what == POD:
        return partial(cluster_pods.pod, labels=view.policy.pod_labels)
    entry = view.registry.find(one.group, one.kind, one.version)
    return None if entry is None else partial(workload, entry=entry, registry=view.registry)


def left_alone(sent: Mapping[str, Any], decode: Decode, view: ClusterState) -> bool:
    """Return True for an object that cannot be read and requests nothing: it is not refused."""
    try:
        decode(msgspec.json.encode(sent))
    except UnreadableWorkload:
        return not asks_unread(sent, view.policy, created=True)
    except ProjectionError:
        pass
    return False


def as_sent(one: FileObject, *, namespace: str, serial: int) -> dict[str, Any]:
    """Return a file's object as the API server takes it: with a namespace and a name, without server-set fields.

    A `generateName` gets a suffix that depends on `serial` alone. Raises FileProblem if it is no JSON.
    """
    sent = one.decoded()
    sent.pop("status", None)
    if sent.get("metadata") is None:
        sent["metadata"] = {}
    metadata = sent["metadata"]
    if isinstance(metadata, dict):
        for key in _SERVERS:
            metadata.pop(key, None)
        metadata["namespace"] = metadata.get("namespace") or namespace
        base = metadata.get("generateName")
        if not metadata.get("name") and isinstance(base, str) and base:
            metadata["name"] = base + hashlib.sha256(f"{base}/{serial}".encode()).hexdigest()[:5]
    return sent


def submit(one: FileObject, sent: Mapping[str, Any], view: Reader, *, decode: Decode) -> Submitted:
    """Create an object: mutate, then validate it, with the service's own functions.

    `decode` decodes objects of this kind.
    """
    try:
        record = decode(msgspec.json.encode(sent))
    except ProjectionError as error:
        path, message = located(error)
        fault = invalid_value(_with_key(path, sent), message)
        return Submitted(sent, (), _with_device_errors(one, sent, (fault,), view), ())
    except UnreadableWorkload as error:
        return Submitted(sent, (), _with_device_errors(one, sent, error.errors, view), ())
    errors = _incomplete(sent, record)
    if errors:
        return Submitted(sent, (), _with_device_errors(one, sent, errors, view), ())
    try:
        mutated = mutate(_review(one, sent), view, DEADLINE)
        stored = sent if mutated.document is None else mutated.document
        validated = validate(_review(one, stored), view, DEADLINE)
    except BadReview as fault:
        return Submitted(sent, (), (invalid_value("", fault.message),), ())
    refused = () if validated.allowed else _errors(validated)
    return Submitted(stored, mutated.patch, refused, (*mutated.warnings, *validated.warnings))


def _with_key(path: str, sent: Mapping[str, Any]) -> str:
    """Return the path of a decoder's error with the key of the wrong value of a map, which the decoder leaves out."""
    above, left_out, below = path.partition("[...]")
    if not left_out:
        return path
    entries: Any = sent
    for step in re.findall(r"[^.\[\]]+", above):
        entries = entries[int(step)] if isinstance(entries, list) else entries[step]
    odd = [key for key, value in entries.items() if value is not None and not isinstance(value, str)]
    odd.sort(key=lambda key: not isinstance(entries[key], bool | list | dict))  # numbers are good quantities
    return f"{above}[{sanitize(odd[0])}]{below}" if odd else path


def unsupported(kind: str | None = None) -> FieldError:
    """Return the error of an object that asks, of a kind that is not registered; `kind`: to be shown with it."""
    return FieldError(
        field="kind",
        kind="Unsupported value",
        value=kind,
        reason="UnsupportedKind",
        message="not a kind that can be placed; add it to the policy's kinds, or remove the annotation",
    )


def _review(one: FileObject, sent: Mapping[str, Any]) -> Review:
    metadata = sent["metadata"]
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "simulate",
            "kind": {"group": one.group, "version": one.version, "kind": one.kind},
            "resource": {"group": one.group, "version": one.version, "resource": f"{one.kind.lower()}s"},
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "operation": "CREATE",
            "userInfo": _USER,
            "dryRun": True,
            "object": copy.copy(sent),
            "oldObject": None,
        },
    }
    return decode_review(msgspec.json.encode(body))


def _with_device_errors(
    one: FileObject, sent: Mapping[str, Any], errors: tuple[FieldError, ...], view: Reader
) -> tuple[FieldError, ...]:
    """Return the errors of an unreadable object, extended by all errors of its devices if one of them is the cause."""
    metadata = sent["metadata"]
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        return errors
    try:
        validated = validate(_review(one, sent), view, DEADLINE)
    except BadReview:
        return errors
    return validated.errors if any(REASONS[error.reason].of_devices for error in validated.errors) else errors


def _incomplete(sent: Mapping[str, Any], record: Pod | Workload) -> tuple[FieldError, ...]:
    """Return errors for missing fields that every API server requires; optional templates may be missing."""
    missing = []
    metadata = sent["metadata"]
    if not metadata.get("name"):
        missing.append(_required("metadata.name", "name or generateName is required"))
    roots: Iterable[Path] = [()]
    if isinstance(record, Workload):
        roots = [path for path, pod_set in templates(record).items() if pod_set.templated]
    for root in roots:
        spec = Edits(sent).get(*root, "spec")
        if not isinstance(spec, Mapping) or not spec.get("containers"):
            path = path_of((*root, "spec", "containers"))
            missing.append(_required(path, "a pod has at least one container"))
    return tuple(missing)


def _errors(response: Response) -> tuple[FieldError, ...]:
    if response.errors:
        return response.errors
    return tuple(
        FieldError(
            field=cause.field,
            kind="Forbidden",
            value=None,
            reason=known_code(cause.reason) or "InvalidValue",
            message=cause.message,
        )
        for cause in response.causes
    )


def _required(field: str, message: str) -> FieldError:
    return FieldError(field=field, kind="Required value", value=None, reason="MissingValue", message=message)
