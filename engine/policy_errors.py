"""What is wrong with a policy, by path and in plain words: no library's jargon, no type names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.outcomes import FieldError
from engine.policy_sections import fields_at
from engine.reasons import Code
from engine.wording import did_you_mean, listed, plain, quote

INVALID: Final = "PolicyInvalid"
DOCUMENT: Final = "policy.yaml"  # the path of what concerns the text as a whole
MAX_ERRORS: Final = 100

_FIELD: Final = re.compile(r"[A-Za-z][-_A-Za-z0-9]{0,62}", re.ASCII)
_DIGITS: Final = re.compile(r"([0-9]+)")


class PolicyError(ValueError):
    """The policy is refused; `errors` holds everything that is wrong, ordered by path."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("\n".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = errors


def wrong(path: str, message: str, *, kind: str = "Invalid value", reason: Code = INVALID) -> FieldError:
    """Return an error of the policy; the value seen is part of the message."""
    return FieldError(field=path, kind=kind, value=None, reason=reason, message=message)


def text_errors(problems: Iterable[str]) -> tuple[FieldError, ...]:
    """Return the errors of a text that is no policy at all."""
    return tuple(wrong(DOCUMENT, problem) for problem in problems)


def path_of(steps: Sequence[str | int]) -> str:
    """Return `topologies[0].levels[1].keys`; keys that are no field names stand in brackets, quoted where need be."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _FIELD.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{plain(step)}]"
    return path


def in_order(errors: Iterable[FieldError]) -> tuple[FieldError, ...]:
    """Return the errors once each, ordered by path (numbers as numbers).

    At most a hundred, the last one saying how many more there are.
    """
    ordered = sorted(dict.fromkeys(errors), key=lambda error: (_natural(error.field), error.message))
    if len(ordered) <= MAX_ERRORS:
        return tuple(ordered)
    return (*ordered[: MAX_ERRORS - 1], wrong(DOCUMENT, f"{len(ordered) - MAX_ERRORS + 1} more errors"))


def apart_from(known: Sequence[FieldError], more: Iterable[FieldError]) -> list[FieldError]:
    """Return those of `more` that say nothing about a field that has a fault of its own already."""
    faulty = [error.field for error in known]
    return [
        error
        for error in more
        if not any(path == error.field or path.startswith((error.field + ".", error.field + "[")) for path in faulty)
    ]


def structural_errors(error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    """Return what pydantic found wrong with a document of the model, in our words."""
    details = error.errors(include_url=False)
    # A list counts as too short also when its entries are wrong: then only they are told.
    return [_told(detail, model) for detail in details if detail["type"] != "too_short" or not detail["input"]]


def _told(detail: ErrorDetails, model: type[BaseModel]) -> FieldError:
    steps = [step for step in detail["loc"] if step != "[key]"]
    path, seen, context = path_of(steps), detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return wrong(path, "is required", kind="Required value")
        case "extra_forbidden":
            fields = fields_at(model, steps[:-1])
            return wrong(path, f"unknown field{did_you_mean(str(steps[-1]), fields)}", kind="Forbidden")
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", context["expected"])
            meant = did_you_mean(seen, allowed) if isinstance(seen, str) else ""
            choice = f"must be one of {listed(allowed)}" if len(allowed) > 1 else f"must be {allowed[0]}"
            return wrong(path, f"{choice}; got {_shown(seen)}{meant}", kind="Unsupported value")
        case "value_error":
            return wrong(path, str(context["error"]))
        case "greater_than_equal":
            return wrong(path, f"must be at least {context['ge']:,}; got {_shown(seen)}")
        case "less_than_equal":
            return wrong(path, f"must be at most {context['le']:,}; got {_shown(seen)}")
        case "too_short":
            return wrong(path, f"must have at least {context['min_length']} entry; got none")
        case "too_long":
            return wrong(path, f"must have at most {context['max_length']:,} entries")
    return wrong(path, f"{_wanted(detail['type'])}; got {_shown(seen)}")


def _wanted(error_type: str) -> str:
    for start, wanted in (
        ("bool", "must be true or false"),
        ("int", "must be a whole number"),
        ("string", "must be text"),
        ("tuple", "must be a list"),
        ("list", "must be a list"),
        ("dict", "must be a mapping"),
        ("mapping", "must be a mapping"),
        ("model", "must be a mapping of fields to values"),
    ):
        if error_type.startswith(start):
            return wanted
    return "is not valid here"


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return plain(str(value))


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() and len(part) < 10 else (-1, part) for part in _DIGITS.split(path)]  # noqa: PLR2004
