"""`/validate` for pods without a reviewed workload: those with a request of their own, for a topology or for devices.

Pods with a request that has no effect get warnings. The binding of a pod is checked too, if the policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.api import names
from engine.api.field import FieldError
from engine.api.pod import Pod
from engine.api.reasons import REASONS, Code
from engine.api.text import quote
from engine.decoding import objects
from engine.gang.annotations import own_source, read_own_annotations, unknown_keys
from engine.gang.exemption import is_exempt
from engine.gang.warnings import unread, unusable_minimums
from engine.policy.model import Policy
from engine.policy.namespaces import mode_of
from webhook.admission.objects import decoded, pod_of, projected
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, allowed, answer, forbidden
from webhook.rules.devices import annotation_errors, device_findings, hami_warnings, limit_warnings, unit_warnings
from webhook.rules.forecast import forecast_warnings
from webhook.rules.membership import Alone, NotManaged, alone, has_request, membership, pod_exemption
from webhook.rules.warnings import pod_warnings

SYSTEM_PRIORITY: Final = 2_000_000_000  # system-cluster-critical; users cannot have more than half of it
_GANG = f"{names.GANG_NAME} and gang-size make a gang"


def validate_pod(review: Review, view: Reader, policy: Policy, deadline: float) -> Response:
    """Answer the CREATE of a pod, as it is after all mutation."""
    pod, document = pod_of(review, policy)
    reason = pod_exemption(pod, view, policy)
    warned = [f"topogate: {text}" for text in _warnings(document, pod, reason, policy)]
    aside = reason if pod.owner is None and has_request(pod, policy) else None
    if reason is not None and not REASONS[reason].checked:
        return replace(answer(review, (), warned, policy=policy), aside=aside)
    managed, found = names.MANAGED in pod.spec.labels, alone(pod, view, policy)
    if managed and _of_reviewed_workload(pod, found, view):
        return allowed()
    forged = annotation_errors(pod.spec.annotations, "metadata", review, policy, before={}) if not pod.mirror else ()
    if reason is not None:
        return replace(answer(review, forged, warned, policy=policy), aside=aside)
    if not managed and mode_of(pod.namespace, policy).manages and _lost_marks(pod, view, policy):
        return forbidden(
            "the pod asks for a topology, but its topogate.dev labels were removed during admission", "ImmutableField"
        )
    errors, warnings = _request(pod, found, policy)
    devices, noted = device_findings(document, (), managed=found is not None, view=view, policy=policy)
    errors = [*dict.fromkeys((*forged, *errors, *devices))]
    if found is not None:
        hami = hami_warnings(document, (), reported=view.reported.names)
        units = unit_warnings(document, (), policy=policy)
        noted = (*limit_warnings(document, (), policy=policy), *hami, *units)
    warnings += noted
    warned = [f"topogate: {text}" for text in warnings] + warned
    if found is not None and not errors and pod.owner is None and view.placement_of(found.key) is None:
        never, lines = forecast_warnings(found.workload, found.request, view, policy, deadline, budget=review.budget)
        warned += lines
        errors += never
    return answer(review, errors, warned, policy=policy)


def forged_devices(review: Review, policy: Policy) -> tuple[FieldError, ...]:
    """Return the error for devices that the user of a new pod has chosen, in a namespace where no gang is managed.

    In no mode: they are given to the pod's containers, and counted, wherever it is. Elsewhere `/mutate` has removed or
    written what the pod of a gang was created with.
    """
    metadata = decoded(review.object).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(annotations, Mapping) or names.MIRROR in annotations:
        return ()
    return annotation_errors(annotations, "metadata", review, policy, before={})


def validate_binding(review: Review, view: Reader, deadline: float) -> Response:
    """Answer the binding of a pod of no gang: refused if the pod takes capacity that is reserved for a gang.

    Pods of gangs and DaemonSets, of exempt namespaces or of a system priority are never refused.
    """
    policy = view.policy
    if policy is None or not policy.reservations.guard or not mode_of(review.namespace, policy).manages:
        return allowed()
    if is_exempt(review.namespace, policy=policy, own_namespace=view.own_namespace):
        return allowed()
    # The scheduler binds a pod some milliseconds after it was created: its event may still be on the way to us.
    pod = view.await_pod(review.namespace, review.name, deadline)
    if pod is None or (pod.spec.priority or 0) >= SYSTEM_PRIORITY:
        return allowed()
    host = projected(review.object, objects.bound_node)
    resource = view.reserved_resource(pod, host)
    if resource is None:
        return allowed()
    return forbidden(
        f"the free {quote(resource)} of node {quote(host)} is reserved for a gang that is about to start "
        "(policy: reservations.guard); the scheduler tries the pod again",
        "ReservedByOthers",
    )


def _of_reviewed_workload(pod: Pod, found: Alone | None, view: Reader) -> bool:
    """Return True for a pod of a registered kind's object, or of another pod that may belong to one.

    Pods make pods without any workload too: the driver of `spark-submit` makes its executors.
    """
    if pod.owner is None:
        return False
    entries = view.registry.of_kind(pod.owner.api_version.rpartition("/")[0], pod.owner.kind)
    return any(entry.handling != "pods" for entry in entries) or (bool(entries) and found is None)


def _lost_marks(pod: Pod, view: Reader, policy: Policy) -> bool:
    """Return True for a pod that `/mutate` held and that has lost our marks since."""
    return has_request(pod, policy) and not isinstance(membership(pod, view, policy), NotManaged)


def _request(pod: Pod, found: Alone | None, policy: Policy) -> tuple[list[FieldError], list[str]]:
    """Return errors and warnings about its request for a topology."""
    if found is None:
        denies = policy.annotations.unknown == "deny"
        strange = tuple(unknown_keys((own_source(pod),), short=not denies))
        if denies:
            return [*strange], []
        return [], [f"{error.field}: {error.message}" for error in strange]
    warnings = [*found.request.warnings]
    if not found.gang and not (found.errors and mode_of(pod.namespace, policy).manages):
        alike = "" if pod.owner is None else f"pods of {quote(pod.owner.kind)} are placed one by one, near each other"
        warnings.append(f"{alike or 'the pod is placed alone'}; {_GANG}")
    return [*found.errors], warnings


def _warnings(document: Mapping[str, Any], pod: Pod, reason: Code | None, policy: Policy) -> list[str]:
    """Return why a pod with a request is left alone, and its keys that are not read."""
    warned, dialects = [*pod_warnings(document, pod, reason, policy)], policy.annotations.dialects
    if reason is None and not read_own_annotations(pod, dialects=dialects):
        warned += unread((own_source(pod),), dialects=dialects)
        if pod.owner is None or not pod.owner.controller:
            warned += unusable_minimums(own_source(pod), dialects=dialects)
    return warned
