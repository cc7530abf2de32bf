"""Label selectors for devices: as text (the form of kubectl) and as Kubernetes' JSON, with every value checked.

One form for all: requirements sorted, each key's values sorted, so that equal selectors are equal texts. `*` is the
selector that selects everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from engine.api.device import LabelSelector
from engine.api.text import join_comma, quote, sanitize

ANY: Final = "*"
MAX_SELECTOR: Final = 2048  # characters
_MAX_REQUIREMENTS: Final = 16
_MAX_VALUES: Final = 64  # of one requirement
_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
# A requirement of the text: up to the next comma outside of parentheses.
_PART: Final = re.compile(r"[^,()]*(?:\([^()]*\))?[^,()]*")
_SET: Final = re.compile(r"(?P<key>[^\s!=(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL: Final = re.compile(r"(?P<key>[^\s!=(),]+)\s*(?P<operator>==?|!=)\s*(?P<values>[^\s!=(),]*)")
_EXISTS: Final = re.compile(r"(?P<operator>!?)\s*(?P<key>[^\s!=(),]+)")
_OPERATORS: Final = ("DoesNotExist", "Exists", "In", "NotIn")
_FORM: Final = f"must be {ANY} or a label selector, such as type=general or type in (fast,general)"


class SelectorError(ValueError):
    """A selector is wrong; the text is for its user, `path` that of the wrong value within JSON."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


@lru_cache(maxsize=1024)
def parse_selector(text: str) -> LabelSelector:
    """Return the selector of a text. Raises SelectorError."""
    if len(text) > MAX_SELECTOR:
        raise SelectorError(f"must be at most {MAX_SELECTOR:,} characters long")
    if text.strip() == ANY:
        return ()
    found: list[tuple[str, str, tuple[str, ...]]] = []
    position = 0
    while True:
        part = _PART.match(text, position)
        assert part is not None  # it matches the empty text
        found.append(_requirement(part.group().strip()))
        position = part.end()
        if position == len(text):
            return _checked(found)
        if text[position] != ",":
            raise SelectorError(_FORM)
        position += 1


def _requirement(text: str) -> tuple[str, str, tuple[str, ...]]:
    if match := _SET.fullmatch(text):
        values = tuple(value.strip() for value in match["values"].split(","))
        return match["key"], "In" if match["operator"] == "in" else "NotIn", values
    if match := _EQUAL.fullmatch(text):
        return match["key"], "NotIn" if match["operator"] == "!=" else "In", (match["values"],)
    if match := _EXISTS.fullmatch(text):
        return match["key"], "DoesNotExist" if match["operator"] else "Exists", ()
    raise SelectorError(_FORM)


def selector_of(raw: object, path: str) -> LabelSelector:
    """Return the selector of Kubernetes' JSON (matchLabels, matchExpressions). Raises SelectorError.

    `path`: that of the selector in its document.
    """
    if not isinstance(raw, Mapping):
        raise SelectorError("must be an object", path)
    allowed = ("matchExpressions", "matchLabels")
    for key in raw:
        if key not in allowed:
            raise SelectorError(f"{quote(str(key))} is unknown; allowed: {join_comma(allowed)}", path)
    found: list[tuple[str, str, tuple[str, ...]]] = []
    labels = raw.get("matchLabels") or {}
    if not isinstance(labels, Mapping):
        raise SelectorError("must be an object", f"{path}.matchLabels")
    for key, value in labels.items():
        if not isinstance(value, str):
            raise SelectorError("must be text", f"{path}.matchLabels[{sanitize(str(key), 63)}]")
        found.append((str(key), "In", (value,)))
    expressions = raw.get("matchExpressions") or []
    if not isinstance(expressions, list):
        raise SelectorError("must be a list", f"{path}.matchExpressions")
    for position, expression in enumerate(expressions[: _MAX_REQUIREMENTS + 1]):
        found.append(_expression(expression, f"{path}.matchExpressions[{position}]"))
    try:
        return _checked(found)
    except SelectorError as error:
        raise SelectorError(str(error), path) from None


def _expression(raw: object, path: str) -> tuple[str, str, tuple[str, ...]]:
    if not isinstance(raw, Mapping):
        raise SelectorError("must be an object", path)
    key, operator, values = raw.get("key"), raw.get("operator"), raw.get("values") or []
    if not isinstance(key, str):
        raise SelectorError("must be text", f"{path}.key")
    if operator not in _OPERATORS:
        shown = quote(str(operator))
        raise SelectorError(f"{shown} is unknown; allowed: {join_comma(_OPERATORS)}", f"{path}.operator")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise SelectorError("must be a list of texts", f"{path}.values")
    if bool(values) != (operator in ("In", "NotIn")):
        must = "needs at least one value" if operator in ("In", "NotIn") else "must be empty"
        raise SelectorError(f"{must} with the operator {operator}", f"{path}.values")
    return key, str(operator), tuple(values)


def _checked(found: Iterable[tuple[str, str, tuple[str, ...]]]) -> LabelSelector:
    selector = tuple(sorted({(key, operator, tuple(sorted(set(values)))) for key, operator, values in found}))
    if len(selector) > _MAX_REQUIREMENTS:
        raise SelectorError(f"must be at most {_MAX_REQUIREMENTS} requirements")
    for key, _, values in selector:
        if not _KEY.fullmatch(key):
            raise SelectorError(f"{quote(key)} must be a label key")
        if len(values) > _MAX_VALUES:
            raise SelectorError(f"{quote(key)} must be followed by at most {_MAX_VALUES} values")
        for value in values:
            if not _VALUE.fullmatch(value):
                raise SelectorError(f"{quote(value)} must be a label value")
    return selector


def format_selector(selector: LabelSelector) -> str:
    """Return a selector as text, as `parse_selector` reads it."""
    return ",".join(map(_text, selector)) or ANY


def _text(requirement: tuple[str, str, tuple[str, ...]]) -> str:
    key, operator, values = requirement
    match operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{key}!={values[0]}"
        case "In" | "NotIn":
            return f"{key} {operator.lower()} ({','.join(values)})"
        case "Exists":
            return key
        case _:
            return f"!{key}"
