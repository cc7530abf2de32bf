"""Pods that ask and that no known workload owns: each is placed by itself, near the others of its controller.

Those of one controller that ask for the same and may go to the same hosts are filed together; their workload is made up
from them, as for the pods of a Deployment: one pod is enough to start, the others join near it as they come. A pod
without a controller is alone.
Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.annotations import Said, invalid, read_own
from engine.api import names
from engine.api.field import FieldError
from engine.api.pod import OwnerRef, Pod, PodSpec
from engine.api.resources import largest
from engine.api.workload import Workload
from engine.aside import template_aside
from engine.pod_workloads import KIND, eligible, in_order, is_live, template_of, workload_of
from engine.policy.model import Policy
from engine.shapes import with_requests

_GROUP = "pods-"
# Namespaces and requests that somebody chooses must not meet: 64 bits.
_HASH_DIGITS = 16
_MARK, _MARK_DIGITS = "single-", 8
_OF_ONE = frozenset({names.REQUIRE, names.PREFER, names.UNCONSTRAINED, names.TOPOLOGY, names.RELAX_AFTER})


def single_key(pod: Pod, owner: OwnerRef | None, *, policy: Policy) -> str | None:
    """The key under which a pod that asks is filed: `<uid of its controller, or its own>/pods-<hash>`; None for others.

    `owner`: the top-most controller above the pod. The hash is of the namespace, of what the pod asks for, and of the
    mark that its admission gave it (`mark_of`): pinned, a pod does not show any more where else it might have gone.
    """
    said = read_own(pod, dialects=policy.annotations.dialects)
    if not said or any(one.about == names.GANG_NAME for one in said) or pod.mirror:
        return None
    if owner is not None and (owner.kind == "DaemonSet" or not owner.uid or "/" in owner.uid):
        return None  # the API server makes no such uid, and a key must not be taken for another one's
    if pod.spec.node_name and names.MANAGED not in pod.spec.labels:
        return None  # it had its host before anybody asked us
    if template_aside(replace(pod.spec, node_name=""), policy=policy) is not None:
        return None
    mark = pod.spec.labels.get(names.POD_SET, "")
    asked = (pod.namespace, mark, *sorted({f"{one.about}={one.value}" for one in said}))
    return f"{pod.uid if owner is None else owner.uid}/{_GROUP}{_hash(asked)}"


def mark_of(pod: Pod) -> str:
    """The pod-set label of a pod that is placed by itself: the same for pods that may go to the same hosts."""
    return f"{_MARK}{_hash(_may_go(pod))[:_MARK_DIGITS]}"


def is_single(key: str) -> bool:
    """True for the key of pods that are placed each by itself; no replica's index looks like it.

    The key of a plain gang has a namespace in this place, which may begin in the same way, and a name after it.
    """
    group = key.partition("/")[2]
    return group.startswith(_GROUP) and "/" not in group


def in_turn(pods: Sequence[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """The pods that are looked at now, and those that have to wait for their turn; those that have ended are neither.

    Their slots are planned in one go, as those of pods that are alike. Of held pods that are marked so and are not
    (they were changed after their admission) only those go that may go where the oldest may.
    """
    held = [pod for pod in in_order(pods) if names.GATE in pod.spec.gates and is_live(pod)]
    first = _may_go(held[0]) if held else ()
    later = {pod.key for pod in held if _may_go(pod) != first}
    here = [pod for pod in pods if not pod.finished]
    return (
        tuple(pod for pod in here if pod.key not in later),
        tuple(pod for pod in here if pod.key in later),
    )


def single_workload(owner: OwnerRef | None, pods: Sequence[Pod], *, dialects: Collection[str]) -> Workload:
    """The workload of pods that are filed together, of which there is at least one; `owner` is their controller.

    There are as many slots as live pods: one that ends or is deleted gives its slot back.
    """
    pods = in_order(pods)
    live = [pod for pod in pods if is_live(pod)]
    held = [pod for pod in live if names.GATE in pod.spec.gates]
    first = next(iter(held or live or pods))
    template = _template(first, dialects)
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
    """What a pod by itself cannot ask for: it has no others beside it that could be counted."""
    said = read_own(pod, dialects=dialects)
    return [_not_alone(one) for one in said if one.about not in _OF_ONE]


def _not_alone(one: Said) -> FieldError:
    beside = names.GANG_NAME if one.about == names.GANG_SIZE else f"{names.GANG_NAME} and {names.GANG_SIZE}"
    message = f"is about a gang: add {beside}, or remove it"
    return invalid(one, message, reason="ConflictingAnnotations", kind="Forbidden")


def _hash(of: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(of).encode("utf-8", "backslashreplace")).hexdigest()[:_HASH_DIGITS]


def _may_go(pod: Pod) -> tuple[object, ...]:
    return (*eligible(pod), pod.spec.runtime_class)


def _template(pod: Pod, dialects: Collection[str]) -> PodSpec:
    """What the pods have in common, without what only a gang can ask for."""
    left_out = {one.key for one in read_own(pod, dialects=dialects) if one.about not in _OF_ONE}
    annotations = {key: value for key, value in pod.spec.annotations.items() if key not in left_out}
    return template_of(pod, annotations)
