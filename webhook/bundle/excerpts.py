"""What a bundle keeps of an object: named fields only, so that a field that nobody thought of is left out. Pure.

Left out of users' pods are containers' images, commands, arguments and environment, volumes, and all annotations and
labels but those that Topogate reads or writes. Nothing of a Secret is ever read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.names import ASKING_KEYS, OWNED_ANNOTATIONS, OWNED_LABELS

Json = dict[str, Any]
Shape = Mapping[str, Any]
"""A field -> None for the whole value, another shape for a part of it (of each item, in a list)."""

_META: Final[Shape] = dict.fromkeys(
    ("name", "namespace", "uid", "generation", "creationTimestamp", "deletionTimestamp")
)
_CONDITION: Final[Shape] = dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"))
_OWNER: Final[Shape] = dict.fromkeys(("kind", "name", "uid", "controller"))
_ENTRY: Final[Shape] = dict.fromkeys(("name", "resources", "ready", "restartCount"))
_WAITING: Final[Shape] = {
    "waiting": {"reason": None},
    "terminated": {"reason": None, "exitCode": None},
    "running": None,
}
_STATUS_OF_CONTAINER: Final[Shape] = {**_ENTRY, "state": _WAITING, "lastState": _WAITING}
_POD: Final[Shape] = {
    "metadata": {**_META, "ownerReferences": _OWNER},
    "spec": {
        **dict.fromkeys(
            (
                *("nodeName", "schedulerName", "schedulingGates", "priority", "priorityClassName", "nodeSelector"),
                *("affinity", "tolerations", "runtimeClassName"),
            )
        ),
        "containers": _ENTRY,
        "initContainers": _ENTRY,
    },
    "status": {
        **dict.fromkeys(("phase", "reason", "startTime", "nominatedNodeName")),
        "conditions": _CONDITION,
        "containerStatuses": _STATUS_OF_CONTAINER,
        "initContainerStatuses": _STATUS_OF_CONTAINER,
    },
}
_OWN_CONTAINER: Final[Shape] = dict.fromkeys(("name", "image", "resources", "ports"))
NODE: Final[Shape] = {
    "metadata": {**_META, "labels": None},
    "spec": dict.fromkeys(("unschedulable", "taints")),
    "status": {**dict.fromkeys(("capacity", "allocatable", "nodeInfo")), "conditions": _CONDITION},
}
PLACEMENT: Final[Shape] = {
    "metadata": {**_META, "labels": None, "ownerReferences": _OWNER},
    "spec": None,
    "status": None,
}
EVENT: Final[Shape] = {
    "metadata": {"namespace": None},
    **dict.fromkeys(
        (
            *("reason", "note", "type", "regarding", "reportingController", "reportingInstance", "eventTime", "series"),
            *("deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
        )
    ),
}
LEASE: Final[Shape] = {"metadata": _META, "spec": None}
POLICY: Final[Shape] = {"metadata": _META, "data": {names.POLICY_KEY: None}}
ADMISSION: Final[Shape] = {"metadata": {**_META, "labels": None}, "spec": None, "status": None}
DEFINITION: Final[Shape] = {
    "metadata": {**_META, "labels": None},
    "spec": {"group": None, "scope": None, "names": None, "versions": dict.fromkeys(("name", "served", "storage"))},
    "status": {"storedVersions": None, "conditions": _CONDITION},
}
DEPLOYMENT: Final[Shape] = {
    "metadata": {**_META, "labels": None},
    "spec": {
        **dict.fromkeys(("replicas", "strategy")),
        "template": {"spec": {"containers": _OWN_CONTAINER, "priorityClassName": None}},
    },
    "status": None,
}
_KEYS: Final = ASKING_KEYS | OWNED_ANNOTATIONS
# Labels of a pod that say which one of its workload it is.
_PLACES: Final = (names.COMPLETION_INDEX, "batch.kubernetes.io/job-name", "apps.kubernetes.io/pod-index")


def excerpt(body: Any, shape: Shape | None) -> Any:
    """Return the parts of a JSON value that a shape names."""
    if shape is None:
        return body
    if isinstance(body, list):
        return [excerpt(one, shape) for one in body]
    if not isinstance(body, Mapping):
        return None
    return {key: excerpt(body[key], inner) for key, inner in shape.items() if key in body}


def known_keys(found: Any, keys: Iterable[str] = _KEYS) -> Json:
    """Return the annotations or labels that Topogate reads or writes."""
    wanted = frozenset(keys)
    return {key: value for key, value in found.items() if key in wanted} if isinstance(found, Mapping) else {}


def pod_excerpt(body: Json) -> Json:
    """Return what is kept of a pod."""
    found: Json = excerpt(body, _POD)
    meta = body.get("metadata")
    if isinstance(meta, Mapping):
        found["metadata"]["annotations"] = known_keys(meta.get("annotations"))
        found["metadata"]["labels"] = known_keys(meta.get("labels"), (*OWNED_LABELS, *_PLACES))
    return found


def own_pod_excerpt(body: Json) -> Json:
    """Return what is kept of a pod of the service: also its images."""
    found = pod_excerpt(body)
    spec = body.get("spec")
    if isinstance(spec, Mapping):
        found.setdefault("spec", {})["containers"] = excerpt(spec.get("containers"), _OWN_CONTAINER)
    return found


def configuration_excerpt(body: Json) -> Json:
    """Return what is kept of a webhook configuration: the CA bundle only as its digest."""
    webhooks = [dict(one) for one in body.get("webhooks") or () if isinstance(one, Mapping)]
    for one in webhooks:
        client = dict(one.get("clientConfig") or {})
        if isinstance(bundle := client.get("caBundle"), str):
            client["caBundle"] = f"sha256 {hashlib.sha256(bundle.encode()).hexdigest()}, {len(bundle)} characters"
        if isinstance(url := client.get("url"), str):
            client["url"] = url.partition("?")[0]
        one["clientConfig"] = client
    return {"metadata": excerpt(body.get("metadata"), {**_META, "labels": None}), "webhooks": webhooks}


def of_shape(shape: Shape) -> Callable[[Json], Json]:
    """Return the function that keeps the parts of objects that a shape names."""

    def kept(body: Json) -> Json:
        found: Json = excerpt(body, shape)
        return found

    return kept


def ours(event: Json) -> bool:
    """Return True for an Event that Topogate has reported, or that is about a Placement."""
    regarding = event.get("regarding")
    kind = regarding.get("kind") if isinstance(regarding, Mapping) else None
    return kind == names.PLACEMENT_KIND or str(event.get("reportingController", "")).startswith(names.FIELD_MANAGER)


# Users write what is searched: no pattern takes more than a fixed time for each character, and none goes on for ever.
_SECRETS: Final = (
    re.compile(
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:.{0,32768}?-----END [A-Z ]{0,40}PRIVATE KEY-----|.{0,32768})",
        re.DOTALL,
    ),
    # a JSON Web Token, as those of service accounts
    re.compile(r"(?<![\w-])(?=[\w-]*eyJ)[\w-]{11,}+\.[\w-]{8,}+\.[\w-]*"),
    re.compile(r"(?<=[Bb]earer )[\w.~+/=-]{8,}"),
    re.compile(r"(?<=://)[^\s/@\"']{1,200}:[^\s/@\"']{1,200}(?=@)"),  # the user of a URL
)
REMOVED: Final = "[removed]"


def scrubbed_value(value: Any) -> Any:
    """Return a JSON value, scrubbed text by text: what one text holds removes nothing of the others."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, Mapping):
        return {scrubbed(str(key)): scrubbed_value(one) for key, one in value.items()}
    return [scrubbed_value(one) for one in value] if isinstance(value, list | tuple) else value


def scrubbed(text: str) -> str:
    """Return text without tokens, private keys and passwords in URLs: no text should have any; this is the last net."""
    for pattern in _SECRETS:
        text = pattern.sub(REMOVED, text)
    return text
