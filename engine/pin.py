"""The pin: what ties a pod to its slot, as JSON for patches.

Required node affinity on `metadata.name` in every term makes the scheduler look at one node instead of all; the
domain's labels in nodeSelector keep the pod out when the host was moved. A gated pod's terms may only be extended, an
empty term must stay empty, and a nodeSelector key that the user set is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine import names
from engine.records import Expression, Pod, SelectorTerm

_NAME_FIELD = "metadata.name"


def pinned_terms(affinity: Sequence[SelectorTerm] | None, host: str) -> list[dict[str, Any]]:
    """Return `nodeSelectorTerms` with `metadata.name In [host]` in every term that says something; idempotent."""
    pin = Expression(key=_NAME_FIELD, operator="In", values=(host,))
    if affinity is None:
        return [_term(SelectorTerm(expressions=(), fields=(pin,)))]
    return [_term(_pinned(term, pin)) for term in affinity]


def pin_labels(
    labels: Mapping[str, str], node_selector: Mapping[str, str] | Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the labels of the host's domains that the pod's nodeSelector does not name yet."""
    taken = dict(node_selector)
    return {key: value for key, value in labels.items() if key not in taken}


def release_patch(
    pod: Pod,
    host: str,
    labels: Mapping[str, str],
    *,
    domain: Sequence[str],
    rank: int | None,
    gang: str,
    devices: str | None = None,
) -> dict[str, Any]:
    """Return the strategic-merge PATCH that pins a held pod to its slot and takes our gate off, in one write.

    `labels` are those of the topology above the host (`pin_labels` is applied here), `domain` the path of label values
    with the host last, `gang` the Placement's name, `devices` the annotation that names the pod's
    devices. The uid is a precondition: another pod of that name is not touched.
    nodeSelectorTerms are replaced as a whole; the rest of the pod's affinity stays.
    Source: docs/contributor/kubernetes-facts.md, patching pods.
    """
    annotations: dict[str, str | None] = {names.DOMAIN_PATH: "/".join(domain)}
    if rank is not None:
        annotations[names.RANK] = str(rank)
    elif names.RANK in pod.spec.annotations:
        annotations[names.RANK] = None
    if devices is not None:
        annotations[names.DEVICE_ALLOCATED] = devices
    spec: dict[str, Any] = {
        "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": pinned_terms(pod.spec.shape.affinity, host)
                }
            }
        },
    }
    additions = pin_labels(labels, pod.spec.shape.node_selector)
    if additions:
        spec["nodeSelector"] = additions
    return {
        "metadata": {"uid": pod.uid, "labels": {names.GANG: gang}, "annotations": annotations},
        "spec": spec,
    }


def _pinned(term: SelectorTerm, pin: Expression) -> SelectorTerm:
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


def _expression(one: Expression) -> dict[str, Any]:
    found: dict[str, Any] = {"key": one.key, "operator": one.operator}
    if one.values:
        found["values"] = list(one.values)
    return found
