"""Warnings about requests without effect: why the object is left alone, and keys that are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from engine.api import names
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.text import sanitize
from engine.api.workload import Workload
from engine.gang.annotations import NATIVE_DIALECT
from engine.gang.exemption import exemption_text
from engine.gang.warnings import misplaced, misspelt, misspelt_labels
from engine.policy.model import Policy
from webhook.admission.patch import Edits, Path
from webhook.rules.gating import templates

# Fields of a Job's pods that may change while it is suspended (`validateJobUpdate` in Kubernetes).
_FREE: Final = frozenset({"affinity", "nodeSelector", "schedulingGates", "tolerations"})
_CONTAINERS: Final = ("containers", "initContainers")
_MAX_KEY: Final = 30  # the longest that Kubernetes has; the warning has 120 characters


def workload_warnings(
    document: Mapping[str, Any], workload: Workload, reason: Code | None, policy: Policy
) -> tuple[str, ...]:
    """Return the warnings about a workload; `reason` is the code for its exemption, None if it has none."""
    pods = [one.template for one in workload.pod_sets]
    exemption = exemption_text(reason, workload.kind, workload.namespace, pods, policy) if reason is not None else None
    return _warnings(document, ((), *templates(workload)), exemption, policy)


def pod_warnings(document: Mapping[str, Any], pod: Pod, reason: Code | None, policy: Policy) -> tuple[str, ...]:
    """Return the warnings about a pod."""
    exemption = exemption_text(reason, "pod", pod.namespace, [pod.spec], policy) if reason is not None else None
    return _warnings(document, ((),), exemption, policy)


def _warnings(
    document: Mapping[str, Any], roots: Iterable[Path], exemption: str | None, policy: Policy
) -> tuple[str, ...]:
    # From the document, because records do not keep unread keys.
    edits, dialects = Edits(document), policy.annotations.dialects
    metadata = [edits.get(*root, "metadata") or {} for root in roots]
    annotations = [key for one in metadata for key in one.get("annotations") or ()]
    labels = [key for one in metadata for key in one.get("labels") or ()]
    # A request in another system's keys was perhaps not meant for us.
    asks_us = any(_asks(annotations, names.OWNED_ANNOTATIONS)) or any(_asks(labels, names.OWNED_LABELS))
    left_alone = exemption is not None and NATIVE_DIALECT in dialects and asks_us
    return (
        *((f"left alone: {exemption}",) if left_alone else ()),
        *misspelt(annotations, dialects=dialects),
        *misplaced(annotations, labels, dialects=dialects),
        *misspelt_labels(labels, dialects=dialects),
    )


def _asks(keys: Iterable[str], owned: Collection[str]) -> Iterator[bool]:
    return (key.startswith(names.PREFIX) and key not in owned for key in keys)


def fixed_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], workload: Workload, *, resources: bool
) -> tuple[str, ...]:
    """Return a warning if an UPDATE of a Job changes its pods in a way that the API server refuses.

    Its own refusal prints the whole pod spec on one line, without the field. `old` and `new` are the documents;
    `resources`: the server refuses other container resources too.
    """
    if not workload.api_version.startswith("batch/"):
        return ()
    for root in templates(workload):
        was, now = Edits(old).get(*root, "spec"), Edits(new).get(*root, "spec")
        both = isinstance(was, Mapping) and isinstance(now, Mapping)
        path = next(_changed(was, now, resources=resources), None) if both else None
        if path is not None:
            return (
                f"topogate: {path} of a {workload.kind} is fixed: create it again (kubectl replace --force -f FILE)",
            )
    return ()


def _changed(was: Mapping[str, Any], now: Mapping[str, Any], *, resources: bool) -> Iterator[str]:
    for key in sorted((was.keys() | now.keys()) - _FREE):
        old, new = was.get(key), now.get(key)
        if old == new:
            continue
        if not (key in _CONTAINERS and isinstance(old, list) and isinstance(new, list) and len(old) == len(new)):
            yield sanitize(key, _MAX_KEY)
            continue
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            changed = (field for field in sorted(one.keys() | other.keys()) if one.get(field) != other.get(field))
            yield from (
                f"{key}[{number}].{sanitize(field, _MAX_KEY)}" for field in changed if resources or field != "resources"
            )
