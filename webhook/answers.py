"""Errors and warnings -> the answer to a validating review, under the policy's mode."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from engine.api.field import FieldError, render
from engine.api.text import MAX_WARNING
from engine.policy.model import Policy
from webhook.review import Response, Review, allowed, denied, forbidden

# A refusal for these is the admin's decision (403), not a fault of what the user wrote (422).
POLICY_REASONS = frozenset({"GangLimitExceeded", "ReviewTooCostly"})


_ENDS: Final = re.compile(r"(?<=[;:]) ")
_TELLS: Final = "topogate: "
_OBSERVES: Final = "topogate (observe): "
_MODE: Final = f"{_OBSERVES}nothing is held or refused; with mode enforce:"


def answer(review: Review, errors: Sequence[FieldError], warnings: Sequence[str], *, policy: Policy) -> Response:
    """Refuse for the errors, or, where the policy only observes, say what would have been refused."""
    blamed = tuple(error for error in errors if error.entry)
    found = _answer(review, errors, warnings, policy=policy)
    return replace(found, blamed=blamed) if blamed else found


def _answer(review: Review, errors: Sequence[FieldError], warnings: Sequence[str], *, policy: Policy) -> Response:
    if policy.mode != "enforce":
        told = [*(f"would be refused: {error.field}: {render(error)}" for error in errors), *warnings]
        return allowed([*([_MODE] if told else ()), *(line for text in told for line in _observed(text))])
    if not errors:
        return allowed(warnings)
    if all(error.reason in POLICY_REASONS for error in errors):
        text = "; ".join(f"{error.field}: {render(error)}" for error in errors)
        return forbidden(text, errors[0].reason, warnings, errors=errors)
    return denied(errors, review, warnings)


def _observed(text: str) -> list[str]:
    """A text as warnings that name the mode, parted where a clause ends: cut, it would lose what helps."""
    lines: list[str] = []
    for clause in _ENDS.split(text.removeprefix(_TELLS)):
        if lines and len(longer := f"{lines[-1]} {clause}") <= MAX_WARNING:
            lines[-1] = longer
        else:
            lines.append(f"{_OBSERVES}{clause}")
    return [line.rstrip(";:") for line in lines]
