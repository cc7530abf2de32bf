"""Shapes: what a pod asks for by Kubernetes' formula, and which nodes it may go to.

The sums follow `PodRequests`/`PodLimits` of k8s.io/component-helpers, eligibility follows the scheduler's
NodeUnschedulable, TaintToleration and NodeAffinity plugins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from engine.claims import is_claim
from engine.gpu.request import device_request
from engine.quantities import nano_to_units
from engine.records import Expression, Node, Requests, RuntimeClass, SelectorTerm, Shape, Taint, Toleration

Amounts = Mapping[str, int]  # resource -> billionths (engine.quantities.nano)

TAINT: Final = "taint "  # what a reason begins with that a taint gives
REFUSED_LATELY: Final = "refused by the scheduler lately"
ROOM_KEPT: Final = "kept for a gang that has waited longer"
_PASSING: Final = frozenset({"cordoned", "not ready", "just joined", REFUSED_LATELY, ROOM_KEPT})
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
_CONDITION_PREFIX: Final = "node.kubernetes.io/"
_INT64: Final = range(-(2**63), 2**63)
_MAX_INT_TEXT: Final = 20


def effective(containers: Iterable[Amounts], init_containers: Iterable[tuple[Amounts, bool]] = ()) -> dict[str, int]:
    """Return what the containers of a pod need together, in billionths.

    `init_containers` are (amounts, sidecar) in order; a sidecar (restartPolicy Always) goes on running beside all that
    come after it. The answer is the larger of what the running pod and any moment of its start needs.
    """
    total: dict[str, int] = {}
    for amounts in containers:
        _add(total, amounts)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for amounts, sidecar in init_containers:
        if sidecar:
            _add(total, amounts)
            _add(sidecars, amounts)
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, amounts)
        _raise_to(peak, moment)
    _raise_to(total, peak)
    return total


def pod_requests(
    containers: Amounts, *, pod_requests: Amounts, pod_limits: Amounts, overhead: Amounts
) -> dict[str, int]:
    """Return a pod's requests from its containers' `effective` ones, its pod-level resources and its overhead.

    A pod-level request replaces the sum of the containers; a pod-level limit stands in where neither asks (for
    hugepages, which cannot be overcommitted, whatever the containers ask).
    """
    total = dict(containers)
    for resource, amount in pod_limits.items():
        if is_pod_level(resource) and (resource not in total or resource.startswith("hugepages-")):
            total[resource] = amount
    total.update((resource, amount) for resource, amount in pod_requests.items() if is_pod_level(resource))
    _add(total, overhead)
    return total


def pod_limits(containers: Amounts, *, pod_limits: Amounts, overhead: Amounts) -> dict[str, int]:
    """Return a pod's limits; overhead counts only where there is a limit."""
    total = dict(containers)
    total.update((resource, amount) for resource, amount in pod_limits.items() if is_pod_level(resource))
    _add(total, {resource: amount for resource, amount in overhead.items() if resource in total})
    return total


def is_pod_level(resource: str) -> bool:
    """Return whether `spec.resources` of a pod may name the resource."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def in_units(amounts: Amounts) -> Requests:
    """Return amounts as planner units, rounded up, sorted by name, without zeros."""
    return tuple(sorted((name, nano_to_units(name, amount, up=True)) for name, amount in amounts.items() if amount))


def exclusion(shape: Shape, node: Node) -> str | None:
    """Return why the shape's pods cannot go to the node whatever is free there, None when they can.

    One of `cordoned`, `not ready`, `taint <key>`, `nodeSelector`, `node affinity`; the first that applies. A node that
    is not ready takes no new pod, whatever is tolerated: every real pod tolerates it for a while (tolerationSeconds).
    """
    if node.unschedulable and not tolerates(shape.tolerations, _UNSCHEDULABLE):
        return "cordoned"
    if not node.ready:
        return "not ready"
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return _named(taint)
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return "nodeSelector"
    if shape.affinity is not None and not any(_term_matches(term, node) for term in shape.affinity):
        return "node affinity"
    return None


def repairable(reason: str) -> bool:
    """Return whether the reason why a host takes no pods of a shape (`exclusion`, or one of the planner's) may pass."""
    return reason.startswith(TAINT) or reason in _PASSING


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether any of the tolerations covers the taint."""
    return any(_covers_taint(toleration, taint) for toleration in tolerations)


def int64(text: str) -> int | None:
    """Return the text as strconv.ParseInt reads it, None when it is no int64."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(text) <= _MAX_INT_TEXT):
        return None
    number = int(text)
    return number if number in _INT64 else None


def covers(planned: Shape, actual: Shape) -> bool:
    """Return whether a pod of shape `actual` fits where `planned` was planned: it asks no more of any resource.

    New claims are left to the scheduler: the port of an injected sidecar must not hold the pod for ever.
    """
    have = dict(planned.requests)
    return all(amount <= have.get(resource, 0) or is_claim(resource) for resource, amount in actual.requests)


def shape_hash(shape: Shape) -> str:
    """Return ten hex digits that tell shapes apart; equal for equal shapes in every process."""
    text = json.dumps(
        {
            "requests": shape.requests,
            "nodeSelector": shape.node_selector,
            "affinity": shape.affinity and [[_plain(term.expressions), _plain(term.fields)] for term in shape.affinity],
            "tolerations": [(one.key, one.operator, one.value, one.effect) for one in shape.tolerations],
        }
    )
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def merge_runtime_class(shape: Shape, runtime_class: RuntimeClass) -> Shape:
    """Return the shape of a template as RuntimeClass admission will make it: overhead, nodeSelector, tolerations.

    Where the nodeSelectors contradict each other, admission refuses the pod; the template's own value is kept.
    """
    requests = dict(shape.requests)
    _add(requests, runtime_class.overhead)
    return replace(
        with_requests(shape, tuple(sorted((name, units) for name, units in requests.items() if units))),
        node_selector=tuple(sorted({**runtime_class.node_selector, **dict(shape.node_selector)}.items())),
        tolerations=tuple(dict.fromkeys((*shape.tolerations, *runtime_class.tolerations))),
    )


def largest(requests: Iterable[Requests]) -> Requests:
    """Return the largest amount of every resource."""
    amounts: dict[str, int] = {}
    for one in requests:
        for resource, amount in one:
            amounts[resource] = max(amount, amounts.get(resource, 0))
    return tuple(sorted(amounts.items()))


def with_requests(shape: Shape, requests: Requests) -> Shape:
    """Return the shape with other requests, and with what these mean in devices."""
    return replace(shape, requests=requests, devices=device_request(dict(requests)))


def _plain(expressions: Iterable[Expression]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.key, one.operator, one.values) for one in expressions]


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount > total.get(resource, -1):
            total[resource] = amount


def _named(taint: Taint) -> str:
    if taint.key == _UNSCHEDULABLE.key:
        return "cordoned"  # the taint that the node controller adds for spec.unschedulable, and may be late to take off
    return "not ready" if taint.key.startswith(_CONDITION_PREFIX) else f"taint {taint.key}"


def _covers_taint(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return bool(toleration.key) and toleration.value == taint.value
        case "Gt" | "Lt":
            return _compares(taint.value, toleration.operator, toleration.value)
        case _:
            return False


def _term_matches(term: SelectorTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False  # a term that says nothing matches nothing (core/v1 NodeSelectorTerm)
    return all(_holds(expression, node.labels) for expression in term.expressions) and all(
        expression.key == "metadata.name" and _holds(expression, {"metadata.name": node.name})
        for expression in term.fields
    )


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return (
                value is not None
                and len(expression.values) == 1
                and _compares(value, expression.operator, expression.values[0])
            )
        case _:
            return False


def _compares(left: str, operator: str, right: str) -> bool:
    have, bound = int64(left), int64(right)
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound
