"""Warnings about requests without effect: why the object is left alone, and keys that are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from engine.api import names
from engine.api.pod import Pod
from engine.api.reasons import Code
from engine.api.workload import Workload
from engine.gang.annotations import NATIVE_DIALECT
from engine.gang.exemption import exemption_text
from engine.gang.warnings import misspelt
from engine.policy.model import Policy
from webhook.admission.patch import Edits, Path
from webhook.rules.gating import templates


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
    return (*((f"left alone: {exemption}",) if left_alone else ()), *misspelt(annotations, dialects=dialects))


def _asks(keys: Iterable[str], owned: Collection[str]) -> Iterator[bool]:
    return (key.startswith(names.PREFIX) and key not in owned for key in keys)
