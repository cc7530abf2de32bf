"""Builds the patch that binds a placed pod to its slot: node affinity, labels, annotations, and no gate.

Required node affinity on `metadata.name` in every term makes the scheduler look at one node instead of all; the
domain's labels in nodeSelector keep the pod out when the host was moved. A gated pod's terms may only be extended, an
empty term must stay empty, and a nodeSelector key that the user set is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.api import names
from engine.api.placement import Assignment, Placement, Slot
from engine.api.pod import Pod, SelectorRequirement, SelectorTerm, Shape
from engine.api.rank import slice_index
from engine.devices.allocation import gpu_limits, visible_devices

_NAME_FIELD = "metadata.name"


def pinned_terms(affinity: Sequence[SelectorTerm] | None, host: str) -> list[dict[str, Any]]:
    """Return `nodeSelectorTerms` with `metadata.name In [host]` in every non-empty term; idempotent."""
    pin = SelectorRequirement(key=_NAME_FIELD, operator="In", values=(host,))
    if affinity is None:
        return [_term(SelectorTerm(expressions=(), fields=(pin,)))]
    return [_term(_pinned(term, pin)) for term in affinity]


def unpinned(shape: Shape, host: str, *, pin_labels: Mapping[str, str], planned: Shape) -> Shape:
    """Return a pod's shape without its pin to a host.

    Whatever equals a part of the pin goes, but for the labels in the nodeSelector of the plan's shape. So a shape that
    this changes before the pod is pinned has rules of its own that cannot be told from the pin afterwards.
    """
    pin = SelectorRequirement(key=_NAME_FIELD, operator="In", values=(host,))
    affinity = shape.affinity
    if affinity is not None and any(pin in term.fields for term in affinity):
        affinity = tuple(replace(term, fields=tuple(one for one in term.fields if one != pin)) for term in affinity)
        if not any(term.expressions or term.fields for term in affinity):
            affinity = None  # the pin was all there was
    kept = planned.node_selector
    selector = tuple(pair for pair in shape.node_selector if pair in kept or pair not in pin_labels.items())
    return replace(shape, node_selector=selector, affinity=affinity)


def added_selector(
    pin_labels: Mapping[str, str], node_selector: Mapping[str, str] | Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the labels of the host's domains that a pod's nodeSelector does not have yet."""
    taken = dict(node_selector)
    return {key: value for key, value in pin_labels.items() if key not in taken}


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """The changes to a pod once it is placed, beside removing our gate.

    `labels` and `annotations` are the pod's own; an annotation that is None is removed. `terms` are its
    `nodeSelectorTerms` as a whole, `selector` is added to its nodeSelector.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str | None]
    terms: Sequence[dict[str, Any]]
    selector: Mapping[str, str]


def placed_pod(
    pod: Pod,
    slot: Slot,
    *,
    placement: Placement,
    pod_set: str,
    rank: int | None,
    pin_labels: Mapping[str, str],
    devices: str | None = None,
    minors: bool = False,
) -> PlacedPod:
    """Return the changes to a pod on a slot of its gang's Placement; the same at its creation and afterwards.

    The Placement must have an assignment. `pin_labels` are the node's labels that its nodeSelector gets, of
    `Topology.pin_labels`; `devices` is the annotation that names the pod's devices, `minors`: its GPUs are shown to its
    containers by minor instead of UUID.
    """
    assert placement.assignment is not None
    core_limit, memory_limit = gpu_limits(devices)
    return PlacedPod(
        labels={names.MANAGED: "true", names.POD_SET: pod_set, names.GANG: placement.name},
        annotations={
            names.PLACEMENT: placement.name,
            names.REVISION: str(placement.assignment.revision),
            names.DOMAIN_PATH: "/".join(slot.domain),
            names.RANK: None if rank is None else str(rank),
            names.SLICE_INDEX: _slice_index(placement, pod_set, slot, rank),
            names.HELD_BY: None,
            names.DEVICE_ALLOCATED: devices,
            names.VISIBLE_DEVICES: visible_devices(devices, minors=minors),
            names.GPU_CORE_LIMIT: core_limit,
            names.GPU_MEMORY_LIMIT: memory_limit,
            **_consumes(placement.assignment),
        },
        terms=pinned_terms(pod.spec.shape.affinity, slot.host),
        selector=added_selector(pin_labels, pod.spec.shape.node_selector),
    )


def release_patch(pod: Pod, placed: PlacedPod) -> dict[str, Any]:
    """Return the strategic-merge PATCH that pins a held pod to its slot and removes our gate, in one write.

    The uid is a precondition: another pod of that name is not touched. nodeSelectorTerms are replaced as a whole; the
    rest of the pod's affinity stays.
    Source: docs/contributor/kubernetes-facts.md, patching pods.
    """
    there = pod.spec.annotations
    annotations = {key: value for key, value in placed.annotations.items() if value is not None or key in there}
    spec: dict[str, Any] = {
        "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(placed.terms)}
            }
        },
    }
    if placed.selector:
        spec["nodeSelector"] = dict(placed.selector)
    metadata = {"uid": pod.uid, "labels": dict(placed.labels), "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def _consumes(assignment: Assignment) -> dict[str, str | None]:
    """Return the annotations of pods that use provisioned nodes; those of the user are never touched."""
    if (request := assignment.consumes) is None:
        return {}
    return {names.CONSUME: request.name, names.CONSUME_CLASS: request.class_name}


def _slice_index(placement: Placement, pod_set: str, slot: Slot, rank: int | None) -> str | None:
    """Return the numbers of the pod's slices, coarse to fine, joined by "/".

    None without slices, and where the slot is not that of the rank: such a pod is in no slice of consecutive ranks.
    """
    if rank is None or not any(first <= rank <= last for first, last in slot.ranks or ()):
        return None
    slices = next((one.slices for one in placement.pod_sets if one.name == pod_set), ())
    return slice_index(rank, (size for _, size in slices)) or None


def _pinned(term: SelectorTerm, pin: SelectorRequirement) -> SelectorTerm:
    if pin in term.fields or not (term.expressions or term.fields):
        return term
    return SelectorTerm(expressions=term.expressions, fields=(*term.fields, pin))


def _term(term: SelectorTerm) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if term.expressions:
        found["matchExpressions"] = [_expression(one) for one in term.expressions]
    if term.fields:
        found["matchFields"] = [_expression(one) for one in term.fields]
    return found


def _expression(one: SelectorRequirement) -> dict[str, Any]:
    found: dict[str, Any] = {"key": one.key, "operator": one.operator}
    if one.values:
        found["values"] = list(one.values)
    return found
