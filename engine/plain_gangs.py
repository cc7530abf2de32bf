"""Gangs of plain pods: those of one namespace that give the same gang-name and gang-size, and that no workload owns.

There is no object for such a gang: its workload is made up from its pods. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from engine.annotations import Said, read_own
from engine.api import names
from engine.api.field import FieldError
from engine.api.pod import OwnerRef, Pod, PodSpec
from engine.api.resources import largest
from engine.api.text import plain, plural, quote
from engine.api.workload import Workload
from engine.pod_workloads import KIND, eligible, in_order, is_live, template_of, workload_of
from engine.shapes import with_requests

_PREFIX = "pods/"
_SIZE_DIGITS = 7
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LEVELS = frozenset({names.REQUIRE, names.PREFER, names.UNCONSTRAINED, names.SLICE_TOPOLOGY})
_OWN = frozenset({names.GANG_NAME, names.GANG_SIZE})


def gang_key(namespace: str, name: str) -> str:
    """The key of a gang of plain pods; no uid looks like it."""
    return f"{_PREFIX}{namespace}/{name}"


def is_plain(key: str) -> bool:
    """True for the key of a gang of plain pods."""
    return key.startswith(_PREFIX)


def place_of(key: str) -> tuple[str, str]:
    """The namespace and the name of a gang of plain pods."""
    namespace, _, name = key.removeprefix(_PREFIX).partition("/")
    return namespace, name


def plain_key(pod: Pod, *, dialects: Collection[str]) -> str | None:
    """The key of the gang that a pod names; None when it names none."""
    name = _said(pod, names.GANG_NAME, dialects)
    return gang_key(pod.namespace, name) if name is not None else None


def plain_workload(key: str, pods: Sequence[Pod], *, dialects: Collection[str]) -> Workload:
    """The workload of the gang of plain pods that has a key; there is at least one of them.

    A pod that is deleted gives its slot back, as nothing makes another one; while the gang is not whole that changes
    nothing, as it has no slots yet.
    """
    pods = in_order(pods)
    first = next((pod for pod in pods if names.GATE in pod.spec.gates), pods[0])
    size = size_of(first, dialects=dialects) or 1
    left = [pod for pod in pods if is_live(pod)]
    done = [pod for pod in pods if pod.finished]
    template = _template(first, dialects)
    requests = largest(pod.spec.shape.requests for pod in left)
    if requests:
        template = replace(template, shape=with_requests(template.shape, requests))
    return workload_of(
        pods,
        OwnerRef("v1", KIND, place_of(key)[1], "", controller=False),
        template=template,
        slots=size,
        remaining=len(left) if done or len(left) < size else size,
        finished=len(done) == len(pods),
        replaced="lost",
    )


def faults(
    workload: Workload, pods: Sequence[Pod], *, placed: bool, dialects: Collection[str]
) -> tuple[FieldError, ...]:
    """Why nobody of a gang without slots may go: its pods contradict each other, or some do not exist yet."""
    pods = [pod for pod in in_order(pods) if is_live(pod)]
    if placed or not pods:
        return ()
    if not _NAME.fullmatch(workload.name):
        where = f"metadata.annotations[{names.GANG_NAME}]"
        message = f"must be a name of 1 to 63 letters, digits, -, _ and .; got {quote(workload.name)}"
        return (FieldError(where, "Invalid value", None, "InvalidValue", message),)
    size, field = workload.slots, f"metadata.annotations[{names.GANG_SIZE}]"
    asked = [read_own(pod, dialects=dialects) for pod in pods]  # once: a gang may have very many pods
    sizes: set[int] = set()
    for pod, said in zip(pods, asked, strict=True):
        if (text := _value(said, names.GANG_SIZE)) is None:
            message = f"names a gang without its size{_of(pod)}; add {names.GANG_SIZE}"
            return (FieldError(field, "Required value", None, "MissingValue", message),)
        if (number := _size(text)) is None:
            message = f"must be a whole number, 1 or more; got {plain(text, 63)}{_of(pod)}"
            return (FieldError(field, "Invalid value", None, "InvalidValue", message),)
        sizes.add(number)
    if len(sizes) > 1:
        message = f"the pods of {workload.name} give different sizes ({', '.join(map(str, sorted(sizes)[:8]))})"
        return (FieldError(field, "Invalid value", None, "GangSizeMismatch", message),)
    if len(pods) > size:
        message = f"{workload.name} has {plural(len(pods), 'pod')}, more than its size of {size}"
        return (FieldError(field, "Invalid value", None, "GangSizeMismatch", message),)
    alike = [{(one.about, one.value) for one in said} for said in asked]
    if (odd := next((pod for pod, each in zip(pods, alike, strict=True) if each != alike[0]), None)) is not None:
        message = f"{pods[0].name} and {odd.name} ask for different things; the pods of one gang must ask for the same"
        return (FieldError("metadata.annotations", "Invalid value", None, "ConflictingAnnotations", message),)
    if (odd := next((pod for pod in pods if eligible(pod) != eligible(pods[0])), None)) is not None:
        message = (
            f"{pods[0].name} and {odd.name} may go to different hosts (nodeSelector, affinity, tolerations or devices)"
        )
        return (FieldError("spec", "Invalid value", None, "ConflictingAnnotations", message),)
    if len(pods) < size:
        message = f"{len(pods)} of {plural(size, 'pod')} of {workload.name} exist"
        return (FieldError(field, "Invalid value", None, "WaitingForMembers", message),)
    return ()


def size_of(pod: Pod, *, dialects: Collection[str]) -> int | None:
    """The size that a pod gives its gang; None when it gives none, or what is no number."""
    return _size(_said(pod, names.GANG_SIZE, dialects) or "")


def owners(pods: Sequence[Pod]) -> list[OwnerRef]:
    """The owners of the gang's Placement: it goes when all of its pods are gone."""
    return [OwnerRef("v1", KIND, pod.name, pod.uid, controller=False) for pod in in_order(pods)]


def _said(pod: Pod, about: str, dialects: Collection[str]) -> str | None:
    return _value(read_own(pod, dialects=dialects), about)


def _of(pod: Pod) -> str:
    """Which pod is meant; one under creation may have no name yet."""
    return f" (pod {pod.name})" if pod.name else ""


def _value(said: Iterable[Said], about: str) -> str | None:
    """What is said about a key: by its own name, or else by an alias."""
    found = [one for one in said if one.about == about]
    return min(found, key=lambda one: one.key != one.about).value if found else None


def _size(text: str) -> int | None:
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= _SIZE_DIGITS else None


def _template(pod: Pod, dialects: Collection[str]) -> PodSpec:
    """What the pods have in common; a gang that names no level needs no more than room."""
    said = read_own(pod, dialects=dialects)
    names_gang = {one.key for one in said if one.about in _OWN}
    annotations = {key: value for key, value in pod.spec.annotations.items() if key not in names_gang}
    if not any(one.about in _LEVELS for one in said):
        annotations[names.UNCONSTRAINED] = "true"
    return template_of(pod, annotations)
