"""What `/validate` says about pods that ask for a topology by themselves and that nobody holds."""

from __future__ import annotations

from engine import names
from engine.annotations import Source, read, unknown_keys
from engine.aside import exempt, template_aside
from engine.outcomes import FieldError
from engine.policy import Policy
from engine.records import Pod
from engine.wording import quote
from webhook.membership import Stranger, membership, registered
from webhook.objects import pod_of
from webhook.review import Response, Review, allowed, forbidden
from webhook.validate_workload import answer
from webhook.view import View


def validate_pod(review: Review, view: View, policy: Policy) -> Response:
    """Answer the CREATE of a pod, as it is after all mutation."""
    pod = pod_of(review)
    source = Source("metadata", pod.spec.annotations, pod.spec.labels)
    said = read((source,), dialects=policy.annotations.dialects)
    strange = tuple(unknown_keys((source,)))
    if not (said or strange) or names.MANAGED in pod.spec.labels or _aside(pod, view, policy):
        return allowed()
    owner = pod.owner
    if owner is not None and registered(owner):
        if isinstance(membership(pod, view, policy), Stranger):
            return allowed()
        if policy.mode != "enforce":
            return allowed()
        return forbidden(
            "the pod asks for a topology, but its topogate.dev labels were taken off on the way", "ImmutableField"
        )
    warnings: list[str] = []
    errors = [_unsupported(one.field, pod) for one in said]
    if policy.annotations.unknown == "deny":
        errors += strange
    else:
        warnings = [f"topogate: {error.field}: {error.message}" for error in strange]
    return answer(review, errors, warnings, policy=policy)


def _aside(pod: Pod, view: View, policy: Policy) -> bool:
    if pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        return True
    if exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return True
    return template_aside(pod.spec, policy=policy) is not None


def _unsupported(field: str, pod: Pod) -> FieldError:
    if pod.owner is None:
        reason = "FeatureNotAvailable"
        message = "gangs of plain pods are not available in this version; use a Job with the annotation"
    else:
        reason = "UnsupportedKind"
        message = (
            f"pods of {quote(pod.owner.kind)} cannot be placed in this version; use a Job, or remove the annotation"
        )
    return FieldError(field=field, kind="Forbidden", value=None, reason=reason, message=message)
