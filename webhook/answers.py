"""Errors and warnings -> the answer to a validating review, under the policy's mode."""

from __future__ import annotations

from collections.abc import Sequence

from engine.explain import render
from engine.outcomes import FieldError
from engine.policy import Policy
from webhook.review import Response, Review, allowed, denied, forbidden

# A refusal for these is the admin's decision (403), not a fault of what the user wrote (422).
POLICY_REASONS = frozenset({"GangLimitExceeded"})


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
