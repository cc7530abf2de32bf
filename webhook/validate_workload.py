"""What `/validate` says about workloads: every error at once, and at submit time what will happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine import names
from engine.aside import standing_aside
from engine.explain import forecast, render
from engine.outcomes import FieldError, Never, Placed, Waits
from engine.policy import Policy
from engine.records import Workload
from engine.requests import Understanding, path_of, relaxed, understand
from webhook.devices import annotation_errors, checked
from webhook.guard import mark_errors, request_errors
from webhook.marks import TEMPLATE
from webhook.objects import decoded, workload_of
from webhook.review import Response, Review, allowed, denied, forbidden
from webhook.view import View

# A refusal for these is the admin's decision (403), not a fault of what the user wrote (422).
POLICY_REASONS = frozenset({"NamespaceNotAllowed", "LevelNotAllowed", "GangLimitExceeded"})


def validate_workload(review: Review, view: View, policy: Policy, deadline: float) -> Response:
    """Answer a CREATE or UPDATE of a workload, as it is after all mutation."""
    workload = workload_of(review, review.object)
    if workload.deleting:
        return allowed()
    understanding = _understood(workload, view, policy)
    devices, noted = _devices(review.object, workload, understanding, view, policy)
    errors, old = [*understanding.errors, *devices], None
    forgeable: Mapping[str, str] = {}
    if review.operation == "UPDATE":
        old = workload_of(review, review.old_object)
        before = _understood(old, view, policy)
        # A request that a later policy made invalid must not block every other change of its workload.
        known = {*before.errors, *_devices(review.old_object, old, before, view, policy)[0]}
        errors = [error for error in errors if error not in known]
        forgeable = old.template.annotations
        if not _trusted(review, policy):
            errors += mark_errors(old, workload, asks=understanding.ask is not None)
        errors += request_errors(
            old,
            workload,
            before=before,
            after=understanding,
            placement=view.placement_of(old.uid),
            policy=policy,
        )
    errors += annotation_errors(
        workload.template.annotations, "spec.template.metadata", review, policy, before=forgeable
    )
    warnings = [f"topogate: {text}" for text in (*understanding.warnings, *noted)]
    if not errors and understanding.ask is not None and (old is None or _asks_anew(old, workload, view, policy)):
        never, outlook = _outlook(workload, understanding, view, policy, deadline)
        warnings += outlook
        errors += never
    return answer(review, errors, warnings, policy=policy)


def answer(review: Review, errors: Sequence[FieldError], warnings: Sequence[str], *, policy: Policy) -> Response:
    """Refuse for the errors, or, where the policy only observes, say what would have been refused."""
    if not errors:
        return allowed(warnings)
    if policy.mode != "enforce":
        return allowed([*(f"topogate: {error.field}: {render(error)}" for error in errors), *warnings])
    if all(error.reason in POLICY_REASONS for error in errors):
        text = "; ".join(f"{error.field}: {render(error)}" for error in errors)
        return forbidden(text, errors[0].reason, warnings, errors=errors)
    return denied(errors, review, warnings)


def _understood(workload: Workload, view: View, policy: Policy) -> Understanding:
    return understand(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)


def _devices(
    raw: msgspec.Raw | None, workload: Workload, understanding: Understanding, view: View, policy: Policy
) -> tuple[tuple[FieldError, ...], tuple[str, ...]]:
    """What is wrong with the devices that the template asks for, and, of a workload that is none of ours, warnings."""
    if standing_aside(workload, policy=policy, own_namespace=view.own_namespace) is not None:
        return (), ()
    managed = understanding.ignored is None
    errors, warnings = checked(decoded(raw), TEMPLATE, managed=managed, view=view, policy=policy)
    return errors, () if managed else warnings


def _trusted(review: Review, policy: Policy) -> bool:
    return review.username in policy.admins or not set(policy.admins).isdisjoint(review.groups)


def _asks_anew(old: Workload, new: Workload, view: View, policy: Policy) -> bool:
    """True when an UPDATE of a gang that waits changes what it asks for."""
    return new.suspended and _understood(old, view, policy).ask != _understood(new, view, policy).ask


def _outlook(
    workload: Workload, understanding: Understanding, view: View, policy: Policy, deadline: float
) -> tuple[list[FieldError], tuple[str, ...]]:
    """What would happen: an error for a gang that fits nowhere ever, if the policy refuses those; else warnings."""
    outcome = view.forecast(workload, understanding, deadline)
    match outcome:
        case None:
            return [], ()
        case Never() if policy.never_fits == "deny":
            return [_never(outcome, workload, policy)], ()
        case Waits():
            return [], forecast(outcome, instead=_relaxed(workload, understanding, view, deadline))
        case _:
            return [], forecast(outcome)


def _relaxed(workload: Workload, understanding: Understanding, view: View, deadline: float) -> Placed | None:
    """Where a gang that must wait would go if it preferred what it requires."""
    softer = relaxed(understanding)
    if softer == understanding:
        return None
    outcome = view.forecast(workload, softer, deadline)
    return outcome if isinstance(outcome, Placed) else None


def _never(outcome: Never, workload: Workload, policy: Policy) -> FieldError:
    if outcome.reason == "HostTooSmall":
        field = "spec.template.spec.containers"
    else:
        field = path_of(workload, names.REQUIRE, policy=policy)
    return FieldError(field=field, kind="Invalid value", value=None, reason=outcome.reason, message=outcome.message)
