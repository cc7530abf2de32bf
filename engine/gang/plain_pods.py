"""Gangs of pods without a workload: by name and size, by pod group, or single pods placed near their siblings. Pure.

Such a gang has no object of its own: its workload is built from its pods. Single pods of one controller that ask for
the same and may go to the same hosts share a workload, like the pods of a Deployment: one pod is enough to start, the
others join near it as they come. A pod without a controller is alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.api import names
from engine.api.field import FieldError
from engine.api.pod import OwnerRef, Pod, PodSpec
from engine.api.resources import largest
from engine.api.text import plural, quote, sanitize
from engine.api.workload import GRACE_PREFIX, ORPHAN_PREFIX, PLAIN_PREFIX, GangKey, PodSet, ReservationKey, Workload
from engine.gang.annotations import RequestAnnotation, invalid, read_own_annotations, requests_something
from engine.gang.exemption import template_exemption
from engine.policy.model import Policy
from engine.resources.shape import with_requests

KIND = "Pod"

_SIZE_DIGITS = 7
_MINIMUM_DIGITS = 9  # as of the annotation on workloads
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LEVELS = frozenset({names.REQUIRE, names.PREFER, names.UNCONSTRAINED, names.SLICE_TOPOLOGY, names.SLICES})
_GANG_KEYS = frozenset({names.GANG_NAME, names.GANG_SIZE})

_GROUP = "pods-"
# Hashes of namespaces and requests that users choose must not collide: 64 bits.
_HASH_DIGITS = 16
_MARK, _MARK_DIGITS = "single-", 8
_SINGLE_POD_KEYS = frozenset(
    {
        names.REQUIRE,
        names.PREFER,
        names.UNCONSTRAINED,
        names.TOPOLOGY,
        names.PROFILE,
        names.RELAX_AFTER,
        names.DEVICE_SCOPE,
        names.GPU_STRATEGY,
        names.DEVICE_SELECTOR,
        names.RDMA_SELECTOR,
        names.VF_SELECTOR,
        names.RDMA_SCOPE,
        names.EXCLUSIVE,
        names.SPREAD,
        names.SPREAD_GROUP,
    }
)


def workload_of(
    pods: Sequence[Pod],
    above: OwnerRef,
    *,
    template: PodSpec,
    slots: int,
    remaining: int,
    finished: bool,
    replaced: str,
    unit: str = "workload",
) -> Workload:
    """Build a workload of one pod set from its pods, at least one; `above` gives its kind, name and uid.

    `replaced`: the cost of deleting a pod that is not bound (`engine.kinds`).
    """
    pod_set = PodSet(
        name=names.MAIN,
        template=template,
        slots=slots,
        total=slots,
        remaining=remaining,
        ranked=False,
        path=(),
        replace=replaced,
    )
    return Workload(
        api_version=above.api_version,
        kind=above.kind,
        namespace=pods[0].namespace,
        name=above.name,
        uid=above.uid,
        resource_version="",
        generation=0,
        labels={},
        annotations={},
        pod_sets=(pod_set,),
        suspended=False,
        suspendable=False,
        started=any(pod.spec.node_name for pod in pods),
        finished=finished,
        deleting=False,
        created=min(pod.created for pod in pods),
        owner=None,
        managed_elsewhere=None,
        resource="pods",
        suspend_path=None,
        unit=unit,
        handling="pods",
    )


def template_of(pod: Pod, annotations: Mapping[str, str]) -> PodSpec:
    """Return the template of which a pod could be created: held, not bound, with these annotations."""
    spec = pod.spec
    gates = spec.gates if names.GATE in spec.gates else (*spec.gates, names.GATE)
    # Admission resolves the priority when it applies the RuntimeClass: then that is in the shape already.
    runtime_class = spec.runtime_class if spec.priority is None else ""
    return replace(spec, annotations=annotations, gates=gates, node_name="", runtime_class=runtime_class)


def _with_common_volume_claims(template: PodSpec, pods: Iterable[Pod]) -> PodSpec:
    """Return the template without its volumes, unless all pods have the same: one shape stands for all of them."""
    alike = {(pod.spec.volume_claims, pod.spec.volume_classes) for pod in pods}
    return template if len(alike) <= 1 else replace(template, volume_claims=(), volume_classes=())


def eligible(pod: Pod) -> tuple[object, ...]:
    """Return the fields that decide which hosts a pod may go to."""
    shape = pod.spec.shape
    return (shape.node_selector, shape.affinity, shape.tolerations, shape.devices)


def in_order(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods, oldest first."""
    return sorted(pods, key=lambda pod: (pod.created, pod.name))


def gang_key(namespace: str, name: str) -> GangKey:
    """Return the key of a gang of plain pods; no uid looks like it."""
    return GangKey(ReservationKey(f"{PLAIN_PREFIX}{namespace}/{name}"))


def is_plain(key: GangKey) -> bool:
    """True for the key of a gang of plain pods."""
    return key.startswith(PLAIN_PREFIX)


def place_of(key: GangKey) -> tuple[str, str]:
    """The namespace and the name of a gang of plain pods."""
    namespace, _, name = key.removeprefix(PLAIN_PREFIX).partition("/")
    return namespace, name


def plain_key(pod: Pod, *, dialects: Collection[str]) -> GangKey | None:
    """The key of the gang or pod group that a pod names; None when it names none."""
    said = read_own_annotations(pod, dialects=dialects)
    name = _value(said, names.GANG_NAME)
    if name is None:
        name = _value(said, names.POD_GROUP)
    return gang_key(pod.namespace, name) if name is not None else None


def plain_workload(key: GangKey, pods: Sequence[Pod], *, dialects: Collection[str], coming: bool = False) -> Workload:
    """Build the workload of a gang of plain pods from its key and its pods, at least one.

    A deleted pod gives its slot back, as nothing makes another one; while the gang is incomplete that changes nothing,
    as it has no slots yet. A pod group has as many slots as pods; with `coming` at least its minimum.
    """
    pods = in_order(pods)
    first = next((pod for pod in pods if names.GATE in pod.spec.gates), pods[0])
    size = size_of(first, dialects=dialects) or 1
    left = [pod for pod in pods if pod.live]
    if in_pod_group(first, dialects=dialects):
        size = max(1, len(left), size if coming else 0)
    done = [pod for pod in pods if pod.finished]
    template = _with_common_volume_claims(_template(first, dialects), left)
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
    """Return why a gang without slots cannot be placed: its pods contradict each other, or some do not exist yet."""
    pods = [pod for pod in in_order(pods) if pod.live]
    if placed or not pods:
        return ()
    asked = [read_own_annotations(pod, dialects=dialects) for pod in pods]  # once: a gang may have very many pods
    grouped = any(one.about == names.POD_GROUP for one in asked[0])
    fault = (
        (None if grouped else _name_fault(workload.name))
        or _size_fault(workload.name, pods, asked, grouped=grouped)
        or _count_fault(workload, len(pods), grouped=grouped)
        or _difference(pods, asked)
        or (None if grouped else _missing(workload, len(pods)))
    )
    return () if fault is None else (fault,)


def _name_fault(name: str) -> FieldError | None:
    if _NAME.fullmatch(name):
        return None
    message = f"must be a name of 1 to 63 letters, digits, -, _ and .; got {quote(name)}"
    return FieldError(_path(names.GANG_NAME), "Invalid value", None, "InvalidValue", message)


def _size_fault(
    gang: str, pods: Sequence[Pod], asked: Sequence[Sequence[RequestAnnotation]], *, grouped: bool
) -> FieldError | None:
    """Return what is wrong with the sizes (of a pod group: the minimums) that pods give their gang."""
    about = names.MIN_AVAILABLE if grouped else names.GANG_SIZE
    sizes: set[int] = set()
    for pod, said in zip(pods, asked, strict=True):
        keys = {one.about for one in said}
        if grouped != (names.POD_GROUP in keys) or (grouped and keys & _GANG_KEYS):
            message = f"a pod is in a pod group or in a gang of that name and size, not in both{_pod_suffix(pod)}"
            return FieldError(_path(names.POD_GROUP), "Invalid value", None, "ConflictingAnnotations", message)
        text = _value(said, about)
        if grouped and _size(text or "", digits=_MINIMUM_DIGITS) is None:
            continue  # an error of its request, or of one that differs from the others
        if text is None:
            message = f"names a gang but not its size{_pod_suffix(pod)}; add {about}"
            return FieldError(_path(about), "Required value", None, "MissingValue", message)
        if (number := _size(text, digits=_MINIMUM_DIGITS if grouped else _SIZE_DIGITS)) is None:
            message = f"must be a whole number, 1 or more; got {sanitize(text, 63)}{_pod_suffix(pod)}"
            return FieldError(_path(about), "Invalid value", None, "InvalidValue", message)
        sizes.add(number)
    if len(sizes) <= 1:
        return None
    different = f"different {'minimums' if grouped else 'sizes'} ({', '.join(map(str, sorted(sizes)[:8]))})"
    message = f"the pods of {gang} give {different}; give all of them the same"
    return FieldError(_path(about), "Invalid value", None, "GangSizeMismatch", message)


def _count_fault(workload: Workload, count: int, *, grouped: bool) -> FieldError | None:
    size = workload.slots
    if count <= size:
        return None
    there = f"{workload.name} has {plural(count, 'pod')}, more than its size of {size}"
    message = f"{there}; delete {count - size:,}, or give all of them the right size"
    about = names.MIN_AVAILABLE if grouped else names.GANG_SIZE
    return FieldError(_path(about), "Invalid value", None, "GangSizeMismatch", message)


def _difference(pods: Sequence[Pod], asked: Sequence[Sequence[RequestAnnotation]]) -> FieldError | None:
    """Return the error for a pod with another request, or other eligible hosts, than the first one."""
    alike = [{(one.about, one.value) for one in said} for said in asked]
    if (peer := next((pod for pod, each in zip(pods, alike, strict=True) if each != alike[0]), None)) is not None:
        message = f"{pods[0].name} and {peer.name} have different requests; the pods of one gang must have the same"
        return FieldError("metadata.annotations", "Invalid value", None, "ConflictingAnnotations", message)
    if (peer := next((pod for pod in pods if eligible(pod) != eligible(pods[0])), None)) is not None:
        message = (
            f"{pods[0].name} and {peer.name} have different eligible hosts "
            "(nodeSelector, affinity, tolerations or devices)"
        )
        return FieldError("spec", "Invalid value", None, "ConflictingAnnotations", message)
    return None


def _missing(workload: Workload, count: int) -> FieldError | None:
    size = workload.slots
    if count >= size:
        return None
    message = f"{count} of {plural(size, 'pod')} of {workload.name} exist; it starts when all of them do"
    return FieldError(_path(names.GANG_SIZE), "Invalid value", None, "WaitingForMembers", message)


def _path(about: str) -> str:
    return f"metadata.annotations[{about}]"


def size_of(pod: Pod, *, dialects: Collection[str]) -> int | None:
    """Return the size that a pod gives its gang, or the minimum of its pod group; None without a number."""
    said = read_own_annotations(pod, dialects=dialects)
    if _value(said, names.POD_GROUP) is None:
        return _size(_value(said, names.GANG_SIZE) or "")
    return _size(_value(said, names.MIN_AVAILABLE) or "", digits=_MINIMUM_DIGITS)


def in_pod_group(pod: Pod, *, dialects: Collection[str]) -> bool:
    """True for a pod that names a pod group."""
    return _value(read_own_annotations(pod, dialects=dialects), names.POD_GROUP) is not None


def owners(pods: Sequence[Pod]) -> list[OwnerRef]:
    """Return the owners of the gang's Placement: it is deleted with the last of its pods."""
    return [OwnerRef("v1", KIND, pod.name, pod.uid, controller=False) for pod in in_order(pods)]


def _pod_suffix(pod: Pod) -> str:
    """Return the name of the pod for a message; "" for a pod under creation without a name."""
    return f" (pod {sanitize(pod.name)})" if pod.name else ""


def _value(said: Iterable[RequestAnnotation], about: str) -> str | None:
    """Return the value of a key: by its own name, or else by an alias."""
    found = [one for one in said if one.about == about]
    return min(found, key=lambda one: one.key != one.about).value if found else None


def _size(text: str, *, digits: int = _SIZE_DIGITS) -> int | None:
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= digits else None


def _template(pod: Pod, dialects: Collection[str]) -> PodSpec:
    """Return the common template of the pods; a gang that names no level is unconstrained."""
    said = read_own_annotations(pod, dialects=dialects)
    names_gang = {one.key for one in said if one.about in _GANG_KEYS}
    annotations = {key: value for key, value in pod.spec.annotations.items() if key not in names_gang}
    if not any(one.about in _LEVELS for one in said):
        annotations[names.UNCONSTRAINED] = "true"
    return template_of(pod, annotations)


def single_key(pod: Pod, owner: OwnerRef | None, *, policy: Policy) -> GangKey | None:
    """Return the key of a single pod, `<uid of its controller, or its own>/pods-<hash>`; None for other pods.

    `owner`: the top-most controller above the pod. The hash is of the namespace, the pod's request, and the mark from
    its admission (`mark_of`): a pinned pod does not show any more where else it might have gone.
    """
    said = read_own_annotations(pod, dialects=policy.annotations.dialects)
    if (
        not requests_something(said)
        or any(one.about in (names.GANG_NAME, names.POD_GROUP) for one in said)
        or pod.mirror
    ):
        return None
    if owner is not None and (owner.kind == "DaemonSet" or not is_uid(owner.uid)):
        return None  # the API server makes no such uid, and a key must not be taken for another one's
    if pod.spec.node_name and names.MANAGED not in pod.spec.labels:
        return None  # it was bound before we could place it
    if template_exemption(replace(pod.spec, node_name=""), policy=policy) is not None:
        return None
    mark = pod.spec.labels.get(names.POD_SET, "")
    asked = (pod.namespace, mark, *sorted({f"{one.about}={one.value}" for one in said}))
    return GangKey(ReservationKey(f"{pod.uid if owner is None else owner.uid}/{_GROUP}{_hash(asked)}"))


def is_uid(text: str) -> bool:
    """True unless a uid in a reference, which a user may write freely, could be taken for the first part of a key."""
    return bool(text) and "/" not in text and f"{text}/" not in (PLAIN_PREFIX, ORPHAN_PREFIX, GRACE_PREFIX)


def mark_of(pod: Pod) -> str:
    """Return the pod-set label of a single pod: the same for pods that may go to the same hosts."""
    return f"{_MARK}{_hash(_host_constraints(pod))[:_MARK_DIGITS]}"


def is_single(key: GangKey) -> bool:
    """True for the key of single pods; no replica's index looks like it.

    The key of a plain gang has a namespace in this position, which may begin in the same way, and a name after it.
    """
    group = key.partition("/")[2]
    return group.startswith(_GROUP) and "/" not in group


def in_turn(pods: Sequence[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Split the live and terminating pods into those to plan now, and those that have to wait for their turn.

    Slots are planned in one go for pods that are alike. Of held pods with the same mark that differ all the same
    (changed after their admission) only those are planned that may go where the oldest may.
    """
    held = [pod for pod in in_order(pods) if pod.held]
    first = _host_constraints(held[0]) if held else ()
    later = {pod.key for pod in held if _host_constraints(pod) != first}
    here = [pod for pod in pods if not pod.finished]
    return (
        tuple(pod for pod in here if pod.key not in later),
        tuple(pod for pod in here if pod.key in later),
    )


def single_workload(owner: OwnerRef | None, pods: Sequence[Pod], *, dialects: Collection[str]) -> Workload:
    """Build the workload of single pods with one key, at least one; `owner` is their controller.

    There are as many slots as live pods: one that ends or is deleted gives its slot back.
    """
    pods = in_order(pods)
    live = [pod for pod in pods if pod.live]
    held = [pod for pod in live if names.GATE in pod.spec.gates]
    first = next(iter(held or live or pods))
    template = _with_common_volume_claims(_single_template(first, dialects), live)
    alike = [pod.spec.shape.requests for pod in held if pod.key != first.key]
    if alike:
        template = replace(template, shape=with_requests(template.shape, largest((template.shape.requests, *alike))))
    count = max(1, len(live))
    return workload_of(
        pods,
        owner or OwnerRef("v1", KIND, first.name, first.uid, controller=False),
        template=template,
        slots=count,
        remaining=len(live),
        finished=not live,
        replaced="lost" if owner is None else "free",
        unit="pod",
    )


def errors(pod: Pod, *, dialects: Collection[str]) -> list[FieldError]:
    """Return errors for keys that a single pod cannot use, because they need other pods."""
    said = read_own_annotations(pod, dialects=dialects)
    return [_needs_gang(one) for one in said if one.about not in _SINGLE_POD_KEYS]


def _needs_gang(one: RequestAnnotation) -> FieldError:
    beside = names.GANG_NAME if one.about == names.GANG_SIZE else f"{names.GANG_NAME} and {names.GANG_SIZE}"
    message = f"needs a gang: add {beside}, or remove it"
    return replace(invalid(one, message, reason="ConflictingAnnotations", kind="Forbidden"), value=None)


def _hash(of: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(of).encode("utf-8", "backslashreplace")).hexdigest()[:_HASH_DIGITS]


def _host_constraints(pod: Pod) -> tuple[object, ...]:
    return (*eligible(pod), pod.spec.runtime_class)


def _single_template(pod: Pod, dialects: Collection[str]) -> PodSpec:
    """Return the common template of the pods, without annotations that only a gang can use."""
    left_out = {one.key for one in read_own_annotations(pod, dialects=dialects) if one.about not in _SINGLE_POD_KEYS}
    annotations = {key: value for key, value in pod.spec.annotations.items() if key not in left_out}
    return template_of(pod, annotations)
