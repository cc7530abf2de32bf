"""`/validate`: from a review to admission or refusal; a pure function of the review and the reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from engine.api import names
from engine.api.field import FieldError
from engine.decoding import objects
from engine.gang.exemption import manages
from engine.policy.model import Policy, PolicyError, parse_policy
from engine.policy.namespaces import mode_of, policy_warnings
from engine.topology.topology import Topology, uncovered
from webhook.admission.budget import BudgetExceeded
from webhook.admission.objects import POD, Unreadable, entry_of, projected
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, Unavailable, allowed, denied
from webhook.handlers.unreadable import too_costly, unreadable
from webhook.handlers.validate_pod import forged_devices, validate_binding, validate_pod
from webhook.handlers.validate_workload import validate_workload
from webhook.rules.defaults import policy_errors
from webhook.rules.policy_effect import policy_effects

BINDING = ("", "Binding")
CONFIG_MAP = ("", "ConfigMap")
_POLICY_PATH = f"data[{names.POLICY_KEY}]"


def validate(review: Review, view: Reader, deadline: float) -> Response:
    """Answer a validating review.

    Objects that are not ours to check pass. Raises BadReview for malformed objects and Unavailable while no policy is
    loaded (the policy itself can be checked without one).
    """
    what = (review.group, review.kind)
    if what == BINDING:
        return validate_binding(review, view, deadline)
    if review.subresource or review.operation not in ("CREATE", "UPDATE"):
        return allowed()
    if what == CONFIG_MAP:
        return _validate_policy(review, view)
    if review.username == view.own_username or (what != POD and entry_of(review, view) is None):
        return allowed()
    policy = view.policy
    if policy is None:
        raise Unavailable("no policy is loaded yet")
    if (
        what == POD
        and review.operation == "CREATE"
        and not manages(review.namespace, policy=policy, own_namespace=view.own_namespace)
        and (forged := forged_devices(review, policy))
    ):
        return denied(forged, review)
    if mode_of(review.namespace, policy).is_off:
        return allowed()
    try:
        if what == POD:
            return validate_pod(review, view, policy, deadline) if review.operation == "CREATE" else allowed()
        return validate_workload(review, view, policy, deadline)
    except Unreadable as fault:
        try:
            return unreadable(review, fault.errors, view, policy)
        except BudgetExceeded as spent:
            return too_costly(review, spent, view, policy)
    except BudgetExceeded as fault:
        return too_costly(review, fault, view, policy)


def _validate_policy(review: Review, view: Reader) -> Response:
    if review.namespace != view.own_namespace or review.name not in (names.POLICY_NAME, ""):
        return allowed()
    config = projected(review.object, objects.config_map)
    if config.name != names.POLICY_NAME:
        return allowed()
    text = config.data.get(names.POLICY_KEY)
    if text is None:
        missing = FieldError(
            field=_POLICY_PATH,
            kind="Required value",
            value=None,
            reason="MissingValue",
            message="the policy must be in this key; delete the ConfigMap to get the default policy",
        )
        return denied([missing], review)
    try:
        policy = parse_policy(text)
    except PolicyError as error:
        return denied([replace(one, field=_policy_field(one.field)) for one in error.errors], review)
    topologies = view.topologies_under(policy)
    if errors := policy_errors(policy, topologies):
        return denied([replace(one, field=_policy_field(one.field)) for one in errors], review)
    warnings = [
        *_effects(view, policy, topologies),
        *policy_warnings(policy),
        *(f"topology {name} matches no node: {why}" for name, one in topologies.items() if (why := uncovered(one))),
    ]
    return allowed(warnings)


def _effects(view: Reader, policy: Policy, topologies: Mapping[str, Topology]) -> Iterator[str]:
    """Yield warnings about what the policy does to the gangs that exist; none while no policy is in force."""
    if view.policy is not None and view.policy.hash != policy.hash:
        yield from policy_effects(
            view.all_placements(),
            before=view.policy,
            after=policy,
            topologies=(view.topologies, topologies),
            own_namespace=view.own_namespace,
        )


def _policy_field(field: str) -> str:
    return _POLICY_PATH if field in ("", names.POLICY_KEY) else f"{_POLICY_PATH}.{field}"
