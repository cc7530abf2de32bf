"""What `/validate` says about pods that nobody holds: those that ask for a topology by themselves, and for devices."""

from __future__ import annotations

from engine import names
from engine.annotations import own_source, read_own, unknown_keys
from engine.aside import exempt
from engine.outcomes import FieldError
from engine.policy import Policy
from engine.records import Pod
from engine.wording import quote
from webhook.answers import answer
from webhook.devices import annotation_errors, checked
from webhook.membership import Stranger, membership, plain_errors, pod_aside, single_errors
from webhook.objects import decoded, pod_of
from webhook.review import Response, Review, allowed, forbidden
from webhook.view import View

_GANG = f"{names.GANG_NAME} and gang-size make a gang"


def validate_pod(review: Review, view: View, policy: Policy) -> Response:
    """Answer the CREATE of a pod, as it is after all mutation."""
    pod = pod_of(review, policy)
    if exempt(pod.namespace, policy=policy, own_namespace=view.own_namespace):
        return allowed()
    if names.MANAGED in pod.spec.labels:
        return _held(pod, review, view, policy)
    aside = pod_aside(pod, view, policy)
    forged = annotation_errors(pod.spec.annotations, "metadata", review, policy, before={}) if not pod.mirror else ()
    errors, warnings = list(forged), list[str]()
    if not aside:
        asks = _topology(pod, view, policy)
        if isinstance(asks, Response):
            return asks
        devices, noted = checked(decoded(review.object), (), managed=False, view=view, policy=policy)
        errors += (*asks[0], *devices)
        warnings += (*asks[1], *(f"topogate: {text}" for text in noted))
    return answer(review, errors, warnings, policy=policy)


def _held(pod: Pod, review: Review, view: View, policy: Policy) -> Response:
    """A pod that is held by its own request alone: no workload was asked about it before."""
    owner = pod.owner
    if owner is not None and view.registry.of_kind(owner.api_version.rpartition("/")[0], owner.kind):
        return allowed()
    errors = plain_errors(pod, view, policy)
    if errors is not None:
        return answer(review, errors, [], policy=policy)
    errors = single_errors(pod, view, policy)
    if errors is None:
        return allowed()
    alone = "the pod is placed by itself"
    told = alone if owner is None else f"pods of {quote(owner.kind)} are placed one by one, near each other"
    return answer(review, errors, [f"topogate: {told}; {_GANG}"], policy=policy)


def _topology(pod: Pod, view: View, policy: Policy) -> Response | tuple[list[FieldError], list[str]]:
    """What is wrong with its request for a topology, and the warnings; or the whole answer."""
    said = read_own(pod, dialects=policy.annotations.dialects)
    strange = tuple(unknown_keys((own_source(pod),), short=policy.annotations.unknown != "deny"))
    if not (said or strange):
        return [], []
    errors: list[FieldError] = []
    if said and not isinstance(membership(pod, view, policy), Stranger):
        if policy.mode == "enforce":
            return forbidden(
                "the pod asks for a topology, but its topogate.dev labels were taken off on the way", "ImmutableField"
            )
        errors += plain_errors(pod, view, policy) or single_errors(pod, view, policy) or ()
    if policy.annotations.unknown == "deny":
        return [*dict.fromkeys((*errors, *strange))], []
    return errors, [f"topogate: {error.field}: {error.message}" for error in strange]
