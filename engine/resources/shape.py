"""Decides which nodes accept pods of a shape (requests and constraints), by the scheduler's rules.

The sums follow `PodRequests`/`PodLimits` of k8s.io/component-helpers, eligibility follows the scheduler's
NodeUnschedulable, TaintToleration and NodeAffinity plugins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from engine.api.objects import Node, RuntimeClass, Taint
from engine.api.pod import SelectorRequirement, SelectorTerm, Shape, Toleration
from engine.api.resources import Requests, add, is_claim
from engine.resources.request import device_request
from engine.resources.selectors import parse_selector

# Why a host is not eligible. `engine.scheduler.explain` counts the hosts by these words, and shows most of them.
CORDONED: Final = "cordoned"
NOT_READY: Final = "not ready"
TAINT: Final = "taint "  # and the key of the taint
NODE_SELECTOR: Final = "nodeSelector"
NODE_AFFINITY: Final = "node affinity"
VOLUMES: Final = "volumes"
# Why `engine.scheduler.plan` leaves out a host for now.
JUST_JOINED: Final = "just joined"
FAILED_LATELY: Final = "recently failed for this gang"
KEPT_FOR_OTHERS: Final = "kept for a gang that has waited longer"
TO_BE_LEFT: Final = "to be left (topogate.dev/replace)"
# The same for a gang that is kept apart from others (`engine.scheduler.separation`).
SPREAD_APART: Final = "in domains of gangs to be spread from"
EXCLUSIVE: Final = "in domains of exclusive gangs"
SHARED: Final = "in domains with other gangs"
# Before what the pods require of the pods near them (`engine.capacity.pod_rules`).
EXCLUDED_BY: Final = "excluded by "
_PASSING: Final = frozenset(
    {CORDONED, NOT_READY, JUST_JOINED, FAILED_LATELY, KEPT_FOR_OTHERS, TO_BE_LEFT, SPREAD_APART, EXCLUSIVE, SHARED}
)
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
_CONDITION_PREFIX: Final = "node.kubernetes.io/"
_INT64: Final = range(-(2**63), 2**63)
_MAX_INT_TEXT: Final = 20


def exclusion(shape: Shape, node: Node) -> str | None:
    """Return why a node is not eligible for a shape's pods, regardless of what is free there; None when it is.

    One of the words above, the first that applies; what the pods ask for comes before the state of the node, as no
    repair of a node that they never use makes room. A node that is not ready takes no new pod, even if tolerated: every
    real pod tolerates it for a while (tolerationSeconds). `engine.capacity.eligibility` applies the same rules to many
    nodes at once.
    """
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return NODE_SELECTOR
    if shape.affinity is not None and not any(term_matches(term, node) for term in shape.affinity):
        return NODE_AFFINITY
    if not all(any(term_matches(term, node) for term in terms) for terms in shape.volumes):
        return VOLUMES
    if node.unschedulable and not tolerates(shape.tolerations, _UNSCHEDULABLE):
        return CORDONED
    if not node.ready:
        return NOT_READY
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(shape.tolerations, taint):
            return _taint_reason(taint)
    return None


def term_matches(term: SelectorTerm, node: Node) -> bool:
    """Return whether a node matches a node selector term."""
    if not term.expressions and not term.fields:
        return False  # an empty term matches nothing (core/v1 NodeSelectorTerm)
    return all(_holds(expression, node.labels) for expression in term.expressions) and all(
        expression.key == "metadata.name" and _holds(expression, {"metadata.name": node.name})
        for expression in term.fields
    )


def repairable(reason: str) -> bool:
    """Return whether the reason why a host is excluded (`exclusion`, or one of the planner's) may pass."""
    return reason.startswith((TAINT, EXCLUDED_BY)) or reason in _PASSING


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
    """Return whether a pod of shape `actual` fits where `planned` was planned: no request is larger.

    New claims are left to the scheduler: the port of an injected sidecar must not hold the pod for ever.
    """
    have = dict(planned.requests)
    return all(amount <= have.get(resource, 0) or is_claim(resource) for resource, amount in actual.requests)


def shape_hash(shape: Shape) -> str:
    """Return ten hex digits that distinguish shapes; equal for equal shapes in every process."""
    text = json.dumps(
        {
            "requests": shape.requests,
            "nodeSelector": shape.node_selector,
            "affinity": shape.affinity
            and [[_expressions(term.expressions), _expressions(term.fields)] for term in shape.affinity],
            "tolerations": [(one.key, one.operator, one.value, one.effect) for one in shape.tolerations],
        }
    )
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def merge_runtime_class(shape: Shape, runtime_class: RuntimeClass, *, has_overhead: bool = False) -> Shape:
    """Return the shape of a template as RuntimeClass admission will make it: overhead, nodeSelector, tolerations.

    `has_overhead`: the template names its overhead, which is in the shape's requests already. Admission refuses a pod
    that names another overhead than the class. Where the nodeSelectors contradict each other, it refuses the pod too;
    the template's own value is kept.
    """
    requests = dict(shape.requests)
    if not has_overhead:
        add(requests, runtime_class.overhead)
    return replace(
        with_requests(shape, tuple(sorted((name, units) for name, units in requests.items() if units))),
        node_selector=tuple(sorted({**runtime_class.node_selector, **dict(shape.node_selector)}.items())),
        tolerations=tuple(dict.fromkeys((*shape.tolerations, *runtime_class.tolerations))),
    )


def resource_tolerations(requests: Requests) -> tuple[Toleration, ...]:
    """Return the tolerations that the admission plugin ExtendedResourceToleration adds to pods with these requests."""
    extended = (name for name, _ in requests if "/" in name and "kubernetes.io/" not in name and not is_claim(name))
    return tuple(Toleration(name, "Exists", "", "NoSchedule") for name in extended)


def with_requests(shape: Shape, requests: Requests) -> Shape:
    """Return the shape with other requests, and with the device request that follows from them."""
    translated = shape.devices is not None and shape.devices.translated
    return replace(shape, requests=requests, devices=device_request(dict(requests), translated=translated))


def within_scope(shape: Shape, scope: str | None) -> Shape:
    """Return the shape with the scope that several whole GPUs of a pod must share; None: as it is."""
    devices = shape.devices.within(scope) if shape.devices is not None and scope else shape.devices
    return shape if devices == shape.devices else replace(shape, devices=devices)


def spread_over_gpus(shape: Shape) -> Shape:
    """Return the shape of pods that take the GPUs of a host that are used least."""
    return replace(shape, devices=replace(shape.devices, spread=True)) if shape.devices is not None else shape


def on_gpus_with(shape: Shape, labels: str) -> Shape:
    """Return the shape of pods that need GPUs with labels, given as `key=value` separated by commas."""
    if shape.devices is None or not shape.devices.gpus:
        return shape
    pairs = (pair.partition("=") for pair in labels.split(","))
    return replace(shape, devices=replace(shape.devices, selector=tuple((key, value) for key, _, value in pairs)))


def with_cards(shape: Shape, *, devices: str | None, functions: str | None, scope: str | None) -> Shape:
    """Return the shape of pods that need RDMA devices with labels, virtual functions, or a scope shared with GPUs.

    `devices` and `functions` are label selectors as text. Pods without RDMA devices stay as they are.
    """
    request = shape.devices
    if request is None or not request.rdma:
        return shape
    wanted = replace(
        request,
        rdma_selector=parse_selector(devices) if devices is not None else (),
        vf_selector=parse_selector(functions) if functions is not None else None,
        rdma_scope=scope or "" if request.gpus else "",
    )
    return replace(shape, devices=wanted)


def _expressions(expressions: Iterable[SelectorRequirement]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.key, one.operator, one.values) for one in expressions]


def _taint_reason(taint: Taint) -> str:
    if taint.key == _UNSCHEDULABLE.key:
        return CORDONED  # the taint that the node controller adds for spec.unschedulable, and may be late to take off
    return NOT_READY if taint.key.startswith(_CONDITION_PREFIX) else f"{TAINT}{taint.key}"


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


def _holds(expression: SelectorRequirement, labels: Mapping[str, str]) -> bool:
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
